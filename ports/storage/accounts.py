"""Storage of accounts: accounts, second factors, devices, the email queue, attempt limits, one-time tokens, platform metrics.

The module is longer than 400 lines because each area has one storage module (docs/adr/0018).
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model.accounts import Account, AccountOrigin, EmailChange
from core.accounts.model.attempt_limits import AttemptLimit, SecretKind
from core.accounts.model.devices import Device, DeviceFingerprint, KnownBy, KnownDevice, ListedDevice
from core.accounts.model.email_queue import NO_BUSY_SERVERS, BusyServers, EmailBacklog, EmailKind, EmailOutcome, QueuedEmail
from core.accounts.model.mfa import MfaEnrollment, MfaEvent, MfaStatus, RedeemedCode
from core.accounts.model.one_time_tokens import TO_ACCOUNT_PAGE, LinkContinuation, TokenPurpose
from core.accounts.model.platform import FoundUser, MfaAlert, MfaMetrics, PlatformFigures, UserMfaStatus
from core.accounts.model.profiles import OwnProfile, Profile
from core.accounts.model.security_notices import SecurityNotice
from core.authentication.model.login import LoginAttempt
from core.kernel.causes import Caller
from core.kernel.deferred import Deferred
from core.kernel.values import Email
from core.maintenance.model.health import QueueState
from core.tenancy.model.members import AccountControl

# Accounts


class AccountsRead(Protocol):
    """Read access to accounts."""

    async def by_email(self, email: Email) -> Account | None:
        """Return the account with this address, usable or not."""
        ...

    async def next_to_erase(self, now: datetime) -> Account | None:
        """Return an account that was deleted, and that must be erased now, or None."""
        ...

    async def by_id(self, user_id: UUID) -> Account | None:
        """Return the account, usable or not."""
        ...

    async def own_profile(self, user_id: UUID, now: datetime) -> OwnProfile | None:
        """Return the account's address and profile, with the address of its pending change."""
        ...

    async def has_signed_in(self, user_id: UUID) -> bool:
        """Return whether the user has ever signed in, or has a linked identity."""
        ...

    async def platform_owner_exists(self) -> bool:
        """Return whether any account is a platform owner, usable or not."""
        ...

    async def platform_owner_addresses(self) -> list[Email]:
        """Return the addresses of the usable platform owners."""
        ...


class Accounts(AccountsRead, Protocol):
    """Write access to accounts. Callers lock an account before they change it. The locks last until the transaction ends."""

    async def add(self, account: Account) -> None:
        """Add an account.

        Raises: EmailTaken, also if the address is reserved for its former account.
        """
        ...

    async def add_if_free(self, account: Account) -> bool:
        """Add an account unless its address is taken or reserved, and return whether it was added."""
        ...

    async def lock(self, user_id: UUID) -> Account | None:
        """Lock and return the account."""
        ...

    async def lock_by_email(self, email: Email) -> Account | None:
        """Lock and return the account with this address."""
        ...

    def lock_by_email_deferred(self, email: Email) -> Deferred[Account]:
        """Lock the account with this address with the next statement."""
        ...

    async def lock_by_token(self, token_hash: bytes, purpose: TokenPurpose) -> Account | None:
        """Lock and return the account of a one-time token. The token may have expired or been used."""
        ...

    def lock_for_login_deferred(self, user_id: UUID, password_hash: str) -> Deferred[Account]:
        """Lock the account with the next statement, if it is usable and verified, and still has this password hash."""
        ...

    async def lock_platform_owners(self) -> None:
        """Make other transactions that promote or demote platform owners wait."""
        ...

    async def mark_verified(self, user_id: UUID, now: datetime) -> None:
        """Mark the address as verified. An earlier time of verification stays."""
        ...

    async def set_password(self, user_id: UUID, password_hash: str, now: datetime) -> None:
        """Set or replace the password."""
        ...

    async def rehash_password(self, user_id: UUID, password_hash: str, now: datetime) -> None:
        """Replace the hash of the present password."""
        ...

    async def drop_password_set_since(self, user_id: UUID, since: datetime, now: datetime) -> None:
        """Remove the password if it was set, changed or reset at that time or later."""
        ...

    async def drop_password(self, user_id: UUID, now: datetime) -> None:
        """Remove the password."""
        ...

    async def set_mfa(self, user_id: UUID, enabled_at: datetime | None, now: datetime) -> None:
        """Require the second factor since `enabled_at`. None turns it off."""
        ...

    async def set_profile(self, user_id: UUID, profile: Profile, now: datetime) -> None:
        """Replace the profile of a locked account."""
        ...

    async def change_email(self, user_id: UUID, email: Email, now: datetime) -> None:
        """Set an unverified address, and add the old one to the former addresses.

        Raises: EmailTaken, also if the address is reserved for another account.
        """
        ...

    async def deactivate(self, user_id: UUID, now: datetime) -> None:
        """Deactivate the account for a directory. The caller ends its sessions."""
        ...

    async def reactivate(self, user_id: UUID, now: datetime) -> None:
        """Allow sign-ins again to an account that a directory deactivated, unless the platform or its user has closed it."""
        ...

    async def deactivate_by_platform(self, user_id: UUID, now: datetime) -> None:
        """Deactivate the account for a platform owner. The caller ends its sessions. Directories cannot reactivate it."""
        ...

    async def is_due_for_erasure(self, user_id: UUID, now: datetime) -> bool:
        """Return whether this account was deleted, and the time to undo that is over."""
        ...

    async def close_until(self, user_id: UUID, erase_at: datetime, now: datetime) -> None:
        """Close an account that is deleted, until it is erased at this time. Neither the platform nor a directory can open it."""
        ...

    async def reopen(self, user_id: UUID, now: datetime) -> None:
        """Open an account again that was deleted, unless the platform or a directory has deactivated it."""
        ...

    async def reactivate_by_platform(self, user_id: UUID, now: datetime) -> None:
        """Allow sign-ins again to an account that the platform deactivated, unless a directory or its user has closed it."""
        ...

    async def can_be_freed(self, user_id: UUID) -> bool:
        """Return whether a directory deactivated the account, and it has no credentials or an address that is not verified.

        It cannot be freed while the platform has deactivated it, or while an undo can open it again.
        """
        ...

    async def set_origin(self, user_id: UUID, origin: AccountOrigin, org_id: UUID | None, now: datetime) -> None:
        """Change which organization counts as the creator of the account. None: the user."""
        ...

    async def promote(self, user_id: UUID, now: datetime) -> None:
        """Make the account a platform owner."""
        ...

    async def demote(self, user_id: UUID, now: datetime) -> None:
        """Revoke the rights of a platform owner. Call `lock_platform_owners` first."""
        ...

    async def other_platform_owner_exists(self, user_id: UUID) -> bool:
        """Return whether another usable account is a platform owner. Call `lock_platform_owners` first."""
        ...

    async def lock_platform_owner(self, user_id: UUID) -> bool:
        """Return whether the account is usable and a platform owner, and keep it one until the transaction ends."""
        ...

    async def account_control(self, user_id: UUID, org_id: UUID) -> AccountControl:
        """Return the facts that decide how far the organization controls a locked account."""
        ...

    async def remove(self, user_id: UUID) -> None:
        """Delete a locked account with its one-time tokens, identities, sessions and logins.

        The caller first deletes rows that are part of a counter.
        """
        ...


# Second factors


class MfaRead(Protocol):
    """Read access to second factors."""

    async def status(self, user_id: UUID) -> MfaStatus | None:
        """Return the status, or None if the account does not exist."""
        ...

    async def enrollment(self, user_id: UUID) -> MfaEnrollment | None:
        """Return the enrollment, which may be pending or expired.

        Raises: SealBroken.
        """
        ...

    async def has_unused_code(self, user_id: UUID, code_hash: bytes) -> bool:
        """Return whether the account has an unused backup code with this hash."""
        ...


class MfaLog(Protocol):
    """The log of second factors, which is apart from the audit logs of organizations."""

    async def log(self, user_id: UUID, events: Sequence[MfaEvent], caller: Caller, now: datetime, *, reason: str | None = None) -> None:
        """Write the events of one action, in this order. They count as failed if one of them is a failure."""
        ...


class Mfa(MfaRead, MfaLog, Protocol):
    """Write access to second factors. Callers lock the account first, except before the `redeem` methods. Secrets are stored sealed."""

    async def save_pending_secret(self, user_id: UUID, secret: str, now: datetime) -> None:
        """Store a secret that the user has to confirm. It replaces an earlier one."""
        ...

    async def use_step(self, user_id: UUID, setup_at: datetime, step: int) -> bool:
        """Use up the code of a time step of the secret set up at `setup_at`.

        Return False, and change nothing, if a code of this or a later step was used, or the secret was replaced.
        """
        ...

    async def use_backup_code(self, user_id: UUID, code_hash: bytes, now: datetime) -> bool:
        """Use up the backup code with this hash. Return whether it was unused."""
        ...

    async def retire(self, user_id: UUID, enabled_at: datetime, now: datetime) -> None:
        """Keep the enabled second factor aside for an undo, before `remove`."""
        ...

    async def restore(self, user_id: UUID, since: datetime) -> datetime | None:
        """Restore the second factor that was enabled before `since` and kept aside since then. Return when it was enabled, or None."""
        ...

    async def remove_codes(self, user_id: UUID) -> None:
        """Delete all backup codes."""
        ...

    async def replace_codes(self, user_id: UUID, salt: bytes, hashes: Sequence[bytes]) -> None:
        """Replace all backup codes."""
        ...

    def redeem_step_deferred(
        self, pre_auth_id: UUID, user_id: UUID, setup_at: datetime, step: int, caller: Caller, now: datetime
    ) -> Deferred[RedeemedCode]:
        """With the next statement, lock the account, consume its pending sign-in, and use up the code as `use_step` does.

        If the code is used up, this is logged, and the failed attempts are cleared.

        The result is None if the sign-in is no longer pending. Exactly one caller gets a result
        with `code_taken`. The other callers must roll back.
        """
        ...

    def redeem_backup_code_deferred(
        self, pre_auth_id: UUID, user_id: UUID, code_hash: bytes, caller: Caller, now: datetime
    ) -> Deferred[RedeemedCode]:
        """Like `redeem_step_deferred`, but use up the backup code with this hash."""
        ...

    async def remove(self, user_id: UUID) -> None:
        """Delete the secret and the backup codes. The log stays."""
        ...


# Devices


class DevicesRead(Protocol):
    """Read access to devices.

    `org_id` is the organization of the service of the request, or None. Its trust period applies
    like those of the organizations in which the user has a confirmed membership.
    """

    async def of_user(
        self, user_id: UUID, session_id: UUID | None, org_id: UUID | None, now: datetime, after: Device | None, limit: int
    ) -> list[ListedDevice]:
        """Return devices that are not revoked, the most recently used first, beginning after `after`.

        `session_id` is the caller's session, or None if the caller is a service account.
        """
        ...

    async def by_id(self, device_id: UUID, session_id: UUID, org_id: UUID | None, now: datetime) -> ListedDevice | None:
        """Return the device of any user, revoked or not. `session_id` is the caller's session."""
        ...


class Devices(DevicesRead, Protocol):
    """Write access to devices. Callers lock the account first."""

    async def find_match(self, user_id: UUID, fingerprint: DeviceFingerprint, org_id: UUID | None, now: datetime) -> KnownDevice:
        """Find the user's device with this fingerprint, and summarize the user's earlier logins.

        A device matches by its trust token, else by the client's device id. If the client has no
        device id, the most recently used device without an id that has the same browser, system and
        type matches. Revoked devices never match.
        """
        ...

    async def by_client(self, user_id: UUID, client_hash: bytes) -> Device | None:
        """Return the device with this hash of its client id, unless it is revoked."""
        ...

    async def save(self, device: Device) -> None:
        """Add the device, or update all but its owner, client id and creation time. Revoked devices do not change."""
        ...

    async def rename(self, user_id: UUID, device_id: UUID, name: str, now: datetime) -> None:
        """Rename a device."""
        ...

    async def revoke(self, user_id: UUID, device_id: UUID, now: datetime) -> None:
        """Revoke a device and its trust. The caller ends its sessions."""
        ...

    async def distrust(self, user_id: UUID, now: datetime) -> None:
        """End the trust of all devices of the user."""
        ...


# The email queue


class EmailLeases(Protocol):
    """The leases of queued emails, and the outcomes of their attempts."""

    async def claim(self, now: datetime, lease_until: datetime, limit: int, busy: BusyServers = NO_BUSY_SERVERS) -> list[QueuedEmail]:
        """Lease due emails, oldest first. They fall due again at `lease_until`.

        Emails that others have leased and emails of busy servers are left out. A token with a
        broken seal counts as not created yet, so that one bad row does not stop the queue.
        """
        ...

    async def finish(self, email: QueuedEmail, outcome: EmailOutcome, now: datetime, *, reason: str | None = None) -> None:
        """Record the final outcome and delete the token.

        Ignored if the email was claimed again, except for SENT: a sent email is sent, no matter
        which process has the lease now.
        """
        ...

    async def postpone(self, email: QueuedEmail, due_at: datetime, reason: str) -> None:
        """Record a failed attempt. Ignored if the lease expired and the email was claimed again."""
        ...


class EmailQueue(EmailLeases, Protocol):
    """The queue of emails. Tokens are stored sealed."""

    async def add(self, email: QueuedEmail) -> None:
        """Add an email. The mailers of all processes are notified when the transaction commits."""
        ...

    async def add_within(self, email: QueuedEmail, per_day: int) -> None:
        """Add an email that the directory of its organization causes, due so that at most `per_day` go out in 24 hours.

        The caller locks the organization first.
        """
        ...

    async def is_waiting(self, kind: EmailKind, address: Email, org_id: UUID) -> bool:
        """Return whether the organization has an unsent email of this kind to this address."""
        ...

    async def withdraw(self, kind: EmailKind, address: Email, org_id: UUID, now: datetime) -> None:
        """Drop the organization's unsent emails of this kind to this address."""
        ...

    async def save_token(self, email: QueuedEmail, token: str | None, now: datetime) -> None:
        """Store the token for further attempts, and count the email against the recipient's limit.

        Change nothing if the email was claimed again or withdrawn (see `is_claimed_deferred`).
        """
        ...

    def is_claimed_deferred(self, email: QueuedEmail) -> Deferred[bool]:
        """Return whether the email is still claimed as given, and not claimed again or withdrawn, available after the next statement."""
        ...

    async def count_since(self, address: Email, kinds: Collection[EmailKind], since: datetime) -> int:
        """Return how many emails of these kinds were counted against the recipient's limit since then."""
        ...

    async def lock_recipient(self, address: Email) -> None:
        """Make other transactions that count the emails of this address wait. The address may have no account to lock."""
        ...


# Changes of the email address


class EmailChangesRead(Protocol):
    """Read access to the changes of email addresses that users requested.

    An address is reserved for its former account while a change away from it can be undone.
    """

    async def pending(self, user_id: UUID, now: datetime) -> EmailChange | None:
        """Return the user's pending change."""
        ...


class EmailChanges(EmailChangesRead, Protocol):
    """Write access to changes of email addresses. Callers lock the account before they write."""

    async def add(self, change: EmailChange) -> None:
        """Add a change. The caller has canceled the pending one."""
        ...

    async def by_id(self, change_id: UUID) -> EmailChange | None:
        """Return the change, if it exists."""
        ...

    async def first_since(self, user_id: UUID, since: datetime) -> EmailChange | None:
        """Return the first change that the user requested since then, and that can be undone, or None."""
        ...

    async def first_undoable(self, user_id: UUID, now: datetime) -> EmailChange | None:
        """Return the first change of the user that can still be undone, pending or not, or None."""
        ...

    async def nth_newest_at(self, user_id: UUID, number: int) -> datetime | None:
        """Return when the user requested the change with this number, counted from the newest one, which is 1. None if there are fewer."""
        ...

    async def is_taken(self, email: Email, user_id: UUID, now: datetime) -> bool:
        """Return whether another account has the address, or it is reserved for another account."""
        ...

    async def is_reserved(self, email: Email, now: datetime) -> bool:
        """Return whether the address is reserved for an account that does not have it now."""
        ...

    async def cancel_pending(self, user_id: UUID, now: datetime) -> None:
        """Cancel the user's pending change, if there is one. The link in its notice still works."""
        ...

    async def mark_proved(self, change_id: UUID, now: datetime) -> None:
        """Record that the change took effect."""
        ...

    async def undo(self, change: EmailChange, now: datetime) -> None:
        """Mark the change and all later ones of the user as undone, and cancel the pending one."""
        ...

    async def end_all(self, user_id: UUID, now: datetime) -> None:
        """Cancel the pending change, and let no change of the user be undone any longer."""
        ...


class SecurityNoticesRead(Protocol):
    """Read access to the emails about ways into an account."""

    async def by_token(self, token_hash: bytes) -> SecurityNotice | None:
        """Return the notice with this undo token. It may have been used, or have expired."""
        ...

    async def live(self, user_id: UUID, now: datetime) -> list[SecurityNotice]:
        """Return the notices of the account that can still be undone, oldest first."""
        ...


class SecurityNotices(SecurityNoticesRead, Protocol):
    """Write access to these notices. Callers lock the account before they write."""

    async def add(self, notice: SecurityNotice) -> None:
        """Add a notice."""
        ...

    async def by_id(self, notice_id: UUID) -> SecurityNotice | None:
        """Return the notice, if it exists."""
        ...

    async def save_token(self, notice_id: UUID, token_hash: bytes) -> None:
        """Store the hash of the token in the email."""
        ...

    async def use_up(self, user_id: UUID, notice_id: UUID, since: datetime, now: datetime) -> None:
        """Mark this notice of the account, and all since then, as undone."""
        ...

    async def end_all(self, user_id: UUID, now: datetime) -> None:
        """Let no notice of the account be undone any longer."""
        ...


# Attempt limits


class AttemptReset(Protocol):
    """The attempt limits inside a transaction, where they can only be cleared."""

    async def clear(self, secret: SecretKind, subject: bytes) -> None:
        """Delete the counter."""
        ...

    async def clear_of_account(self, secret: SecretKind, user_id: UUID, email: Email) -> None:
        """Delete the counters of the address and of all devices of the account."""
        ...


class AttemptLimits(AttemptReset, Protocol):
    """The counters of failed attempts (`core.accounts.attempt_limits`). Every method is atomic."""

    async def count_attempt(self, secret: SecretKind, subject: bytes, attempt_limit: AttemptLimit, now: datetime) -> datetime | None:
        """Count an attempt. If it must wait, count nothing and return until when."""
        ...

    async def count_password_attempt(self, email: Email, known: KnownBy, attempt_limit: AttemptLimit, now: datetime) -> LoginAttempt:
        """Count an attempt at the password of this address, which may have no account.

        If the account has a device with one of these values that is not revoked, the attempt is counted
        for that device instead. A trust token that has expired does not count.
        """
        ...

    async def uncount(self, secret: SecretKind, subject: bytes, attempt_limit: AttemptLimit) -> None:
        """Take back one counted attempt, which was correct."""
        ...


# One-time tokens


class OneTimeTokensRead(Protocol):
    """Read access to one-time tokens."""

    async def live_email(self, token_hash: bytes, purpose: TokenPurpose, now: datetime) -> Email | None:
        """Return the address that the token was sent to, or None if the token does not exist, is used or has expired."""
        ...

    async def verified_email(self, token_hash: bytes) -> Email | None:
        """Return the address that this used verification token was sent to.

        Return None if the token is not used, or if the address is not the verified one of its account, which can be used.
        """
        ...

    async def continuation(self, token_hash: bytes, purpose: TokenPurpose) -> LinkContinuation | None:
        """Return where the browser continues after this link, or None if there is no such token. It may be used or expired."""
        ...


class OneTimeTokens(OneTimeTokensRead, Protocol):
    """Write access to one-time tokens. They are stored as SHA-256 and found by purpose and hash (security A-5)."""

    async def add(
        self,
        token_hash: bytes,
        purpose: TokenPurpose,
        user_id: UUID,
        email: Email,
        *,
        created_at: datetime,
        expires_at: datetime,
        org_id: UUID | None = None,
        continuation: LinkContinuation = TO_ACCOUNT_PAGE,
    ) -> None:
        """Add a token. `org_id` is the organization that brands the page behind the link."""
        ...

    async def sign_up(self, user_id: UUID, email: Email) -> LinkContinuation | None:
        """Return the continuation of the user's sign-up with this address, or None if they did not sign up on our page."""
        ...

    def newer_exists_deferred(self, email: Email, purpose: TokenPurpose, created_at: datetime) -> Deferred[bool]:
        """Return whether the account with this address has an unused token that was requested later, available after the next statement."""
        ...

    async def redeem(self, token_hash: bytes, purpose: TokenPurpose, now: datetime) -> Email | None:
        """Use up a token and return the address that it was sent to.

        Return None if it is unknown, expired or used. Exactly one caller succeeds.
        """
        ...

    async def void(self, user_id: UUID, purpose: TokenPurpose) -> None:
        """Delete the user's tokens for this purpose, except used ones that verified the present address (`verified_email`)."""
        ...


# The whole platform


class PlatformRead(Protocol):
    """Metrics of the whole platform."""

    async def figures(self) -> PlatformFigures:
        """Return the values of the gauges."""
        ...

    async def due_jobs(self, now: datetime) -> int:
        """Return the number of due background jobs."""
        ...

    async def queues(self, now: datetime) -> list[QueueState]:
        """Return the queues of webhook deliveries, logout notices and SIEM entries, each with at most 100,000 pieces of due work."""
        ...

    async def email_backlog(self, now: datetime) -> EmailBacklog:
        """Return the number of emails that are due or failed and are not sent yet, up to 100,000, and the age of the oldest one.

        Emails that a directory caused wait from their due time on, because they are spread over days.
        """
        ...


class PlatformUsersRead(Protocol):
    """Read access to all users, for platform owners."""

    async def search(
        self, limit: int, *, email: str | None = None, user_id: UUID | None = None, after: UUID | None = None
    ) -> list[FoundUser]:
        """Search by a part of the address in lower case, or by id, or both. The newest accounts come first.

        Without an id, the list begins after the account `after`. It is empty if there is no such account.
        """
        ...

    async def owners(self) -> list[FoundUser]:
        """Return all platform owners, also deactivated ones. The newest accounts come first."""
        ...

    async def mfa_status(self, user_id: UUID) -> UserMfaStatus | None:
        """Return the status of a user's second factor, or None if the account does not exist."""
        ...

    async def mfa_metrics(self, since: datetime) -> MfaMetrics:
        """Return the metrics of second factors, with the events since then."""
        ...

    async def alerts(self, since: datetime, limit: int) -> list[MfaAlert]:
        """Return the alerts about events since then, the newest first."""
        ...


# The repositories of this area, by kind of access


class AccountsReading(Protocol):
    """Read access to the repositories of accounts."""

    @property
    def accounts(self) -> AccountsRead: ...
    @property
    def devices(self) -> DevicesRead: ...
    @property
    def email_changes(self) -> EmailChangesRead: ...
    @property
    def security_notices(self) -> SecurityNoticesRead: ...
    @property
    def mfa(self) -> MfaRead: ...
    @property
    def one_time_tokens(self) -> OneTimeTokensRead: ...
    @property
    def platform(self) -> PlatformRead: ...
    @property
    def platform_users(self) -> PlatformUsersRead: ...


class AccountsTransaction(Protocol):
    """The repositories of accounts in a transaction."""

    @property
    def accounts(self) -> Accounts: ...
    @property
    def devices(self) -> Devices: ...
    @property
    def attempt_limits(self) -> AttemptReset: ...
    @property
    def email_changes(self) -> EmailChanges: ...
    @property
    def security_notices(self) -> SecurityNotices: ...
    @property
    def email_queue(self) -> EmailQueue: ...
    @property
    def mfa(self) -> Mfa: ...
    @property
    def one_time_tokens(self) -> OneTimeTokens: ...


class AccountsAutocommit(Protocol):
    """The repositories of accounts with autocommit: every statement commits by itself."""

    @property
    def attempt_limits(self) -> AttemptLimits: ...
    @property
    def email_queue(self) -> EmailLeases: ...
    @property
    def mfa(self) -> MfaLog: ...
