"""Storage of the area accounts."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.accounts_rules import Account
from core.accounts.attempt_limits_rules import AttemptLimit, SecretKind
from core.accounts.devices_rules import Device, DeviceFingerprint, KnownDevice, ListedDevice
from core.accounts.email_queue_rules import NO_BUSY_SERVERS, BusyServers, QueuedEmail, EmailKind, EmailOutcome
from core.accounts.mfa_rules import MfaEnrollment, MfaEvent, RedeemedCode, MfaStatus
from core.accounts.one_time_tokens import TokenPurpose
from core.accounts.platform_rules import PlatformFigures
from core.accounts.platform_users_rules import MfaAlert, FoundUser, MfaMetrics, UserMfaStatus
from core.authentication.login_rules import LoginAttempt
from core.kernel.deferred import Deferred
from core.kernel.principals import Caller
from core.kernel.values import Email
from core.tenancy.account_control import AccountControl

# accounts: What is asked of storage about accounts.


class AccountsRead(Protocol):
    """Accounts, looked at."""

    async def by_email(self, email: Email) -> Account | None:
        """The account with this address, usable or not."""
        ...

    async def by_id(self, user_id: UUID) -> Account | None: ...
    async def platform_owner_exists(self) -> bool: ...


class Accounts(AccountsRead, Protocol):
    """Accounts, changed."""

    async def add(self, account: Account) -> None:
        """Raises EmailTaken."""
        ...

    async def add_if_free(self, account: Account) -> bool:
        """Add the account unless another one has its address; whether it was added."""
        ...

    async def lock(self, user_id: UUID) -> Account | None:
        """The account, locked until the transaction ends."""
        ...

    async def lock_by_email(self, email: Email) -> Account | None: ...

    async def lock_by_token(self, token_hash: bytes, purpose: TokenPurpose) -> Account | None:
        """The account that a one-time token was made for, locked; whether the token is still good is another question."""
        ...

    def lock_usable(self, user_id: UUID) -> Deferred[Account]:
        """The account, locked before the next statement, if anybody may sign in to it."""
        ...

    def lock_for_login(self, user_id: UUID, password_hash: str) -> Deferred[Account]:
        """The account, locked before the next statement, if it may still sign in with the password that was checked: same hash, usable,
        address verified."""
        ...

    async def lock_platform_owners(self) -> None:
        """Make others who would change who is a platform owner wait."""
        ...

    async def mark_verified(self, user_id: UUID, now: datetime) -> None:
        """The address is proved; one that was proved before keeps its time."""
        ...

    async def set_password(self, user_id: UUID, password_hash: str, now: datetime) -> None: ...

    async def drop_password(self, user_id: UUID, now: datetime) -> None:
        """The account is locked before, and has no password then."""
        ...

    async def set_mfa(self, user_id: UUID, enabled_at: datetime | None, now: datetime) -> None:
        """Ask for the second factor from now on, or no more."""
        ...

    async def change_email(self, user_id: UUID, email: Email, now: datetime) -> None:
        """The new address is unverified, and the old one kept among the former ones. The account is locked before. Raises EmailTaken."""
        ...

    async def deactivate(self, user_id: UUID, now: datetime) -> None:
        """Nobody can sign in to the account from now on. Its sessions are the caller's to end."""
        ...

    async def reactivate(self, user_id: UUID, now: datetime) -> None: ...

    async def promote(self, user_id: UUID, now: datetime) -> None:
        """Make the account a platform owner."""
        ...

    async def demote(self, user_id: UUID, now: datetime) -> None:
        """Make the account a platform owner no more. `lock_platform_owners` comes before."""
        ...

    async def other_platform_owner_exists(self, user_id: UUID) -> bool:
        """Whether there is a platform owner in good standing besides this one. `lock_platform_owners` comes before."""
        ...

    async def lock_platform_owner(self, user_id: UUID) -> bool:
        """Whether the account is a platform owner in good standing, which it then stays until the transaction ends."""
        ...

    async def account_control(self, user_id: UUID, org_id: UUID) -> AccountControl:
        """What account_control a locked account to this organization, and what it is tied to besides."""
        ...

    async def remove(self, user_id: UUID) -> None:
        """Remove a locked account, with its one-time tokens, identities, sessions and logins; what is counted is removed before."""
        ...


# mfa: What is asked of storage about second factors.


class MfaRead(Protocol):
    """Second factors, looked at. The secrets are sealed."""

    async def status(self, user_id: UUID) -> MfaStatus | None:
        """None if there is no such account."""
        ...

    async def enrollment(self, user_id: UUID) -> MfaEnrollment | None:
        """What was set up, confirmed or not, expired or not. Raises SealBroken."""
        ...

    async def has_unused_code(self, user_id: UUID, code_hash: bytes) -> bool:
        """Whether there is an unused backup code with this hash."""
        ...


class MfaLog(Protocol):
    """The log of the second factor, apart from those of organizations (organizations.md section 6.3)."""

    async def log(self, user_id: UUID, events: Sequence[MfaEvent], caller: Caller, now: datetime, *, reason: str | None = None) -> None:
        """Write these, of one and the same doing, in this order: all of them successful unless there is a failure among them."""
        ...


class Mfa(MfaRead, MfaLog, Protocol):
    """Second factors, changed. The account is locked before any of these."""

    async def save_pending_secret(self, user_id: UUID, secret: str, now: datetime) -> None:
        """Have this secret wait for being confirmed, in place of whatever there was."""
        ...

    async def use_step(self, user_id: UUID, setup_at: datetime, step: int) -> bool:
        """Take the code of this step, of the secret that was set up then; whether no code of this or a later step was taken before."""
        ...

    async def replace_codes(self, user_id: UUID, salt: bytes, hashes: Sequence[bytes]) -> None:
        """Have these backup codes and no others."""
        ...

    def redeem_step(self, pre_auth_id: UUID, user_id: UUID, setup_at: datetime, step: int, now: datetime) -> Deferred[RedeemedCode]:
        """Before the next statement, lock an account and end a sign-in to it that waits, by `take_step`: the account, and whether the code
        was there; nothing where the sign-in does not wait any more.

        Exactly one caller has both, and whoever has not must roll back.
        """
        ...

    def redeem_backup_code(self, pre_auth_id: UUID, user_id: UUID, code_hash: bytes, now: datetime) -> Deferred[RedeemedCode]:
        """The same by using up the backup code with this hash."""
        ...

    async def remove(self, user_id: UUID) -> None:
        """Forget secret and backup codes, if there are any. The log stays."""
        ...


# devices: What is asked of storage about devices.


class DevicesRead(Protocol):
    """From where people sign in, looked at. `org_id` is the organization of the service that it is about, None without one: its trust
    period counts beside those of the organizations in which the person takes part (decisions, point 81)."""

    async def of_user(
        self, user_id: UUID, session_id: UUID, org_id: UUID | None, now: datetime, after: Device | None, limit: int
    ) -> list[ListedDevice]:
        """Those that are not revoked, as they are seen in this session, the one that was used last first, or those that follow `after`."""
        ...

    async def by_id(self, device_id: UUID, session_id: UUID, org_id: UUID | None, now: datetime) -> ListedDevice | None:
        """This one, whosever it is, revoked or not."""
        ...


class Devices(DevicesRead, Protocol):
    """The same, changed. The account is locked before any of these."""

    async def find_match(self, user_id: UUID, look: DeviceFingerprint, org_id: UUID | None, now: datetime) -> KnownDevice:
        """The device, not revoked, that has this trust token; else this id of the client's; else, if the client keeps none, one without an
        id that says the same of itself, of several the one that was used last. And what is known of earlier logins, as it concerns one
        from this place."""
        ...

    async def by_client(self, user_id: UUID, client_hash: bytes) -> Device | None:
        """The device, not revoked, whose client's id has this hash."""
        ...

    async def save(self, device: Device) -> None:
        """Add it, or write all but its owner, the id of its client and when it was first seen; a revoked one stays as it is."""
        ...

    async def rename(self, user_id: UUID, device_id: UUID, name: str, now: datetime) -> None: ...

    async def revoke(self, user_id: UUID, device_id: UUID, now: datetime) -> None:
        """Its trust ends as well."""
        ...

    async def distrust(self, user_id: UUID, now: datetime) -> None:
        """All device trust of the person ends."""
        ...


# mails: What is asked of storage about the queue of mails.


class EmailQueue(Protocol):
    """The queue of mails. Tokens in it are sealed."""

    async def add(self, mail: QueuedEmail) -> None:
        """Also wakes the mailers of all processes, when the transaction commits."""
        ...

    async def add_within(self, mail: QueuedEmail, per_day: int) -> None:
        """The same for one that the directory of its organization causes: it is due as soon as there are no more than so many of those in
        the 24 hours before. The organization is locked."""
        ...

    async def is_waiting(self, kind: EmailKind, address: Email, org_id: UUID) -> bool:
        """Whether one of this kind to this address, of this organization, has not gone out yet."""
        ...

    async def withdraw(self, kind: EmailKind, address: Email, org_id: UUID, now: datetime) -> None:
        """Drop those of this kind to this address, of this organization, that have not gone out yet."""
        ...

    async def claim(self, now: datetime, lease_until: datetime, limit: int, held_back: BusyServers = NO_BUSY_SERVERS) -> list[QueuedEmail]:
        """Due mails, oldest first, that nobody else holds and that are not held back; they fall due again at `lease_until`.

        A token whose seal is broken counts as not made yet, so that one bad row does not hold up all others.
        """
        ...

    async def save_token(self, mail: QueuedEmail, token: str | None, now: datetime) -> bool:
        """Keep the token, if the mail has one, for further attempts, and that it was let through. False, and nothing kept, when the mail
        has been claimed again since, or withdrawn."""
        ...

    async def count_since(self, address: Email, kinds: Collection[EmailKind], since: datetime) -> int:
        """How many mails of these kinds to this address have had their token prepared, or were let through, since then."""
        ...

    async def lock_recipient(self, address: Email) -> None:
        """Make others who would count what this address gets wait; for mails to whom there may be no account to lock."""
        ...

    async def finish(self, mail: QueuedEmail, outcome: EmailOutcome, now: datetime, *, reason: str | None = None) -> None:
        """The mail is done with; its token is forgotten.

        Without effect when it has been claimed again since, unless it was sent: that is true whoever holds it now.
        """
        ...

    async def postpone(self, mail: QueuedEmail, due_at: datetime, reason: str) -> None:
        """An attempt failed. Without effect when the mail has been claimed again since: its lease ended, and it is another's now."""
        ...


# guesses: What is asked of storage about wrong guesses.


class AttemptReset(Protocol):
    async def clear(self, secret: SecretKind, subject: bytes) -> None:
        """Forget the guesses that were counted."""
        ...


class AttemptLimits(AttemptReset, Protocol):
    """Counters of wrong guesses (core/guesses.py)."""

    async def count_attempt(self, secret: SecretKind, subject: bytes, attempt_limit: AttemptLimit, now: datetime) -> datetime | None:
        """Count one guess; or, when it must wait, count nothing and return until when. Atomic."""
        ...

    async def count_password_attempt(self, email: Email, trust_hash: bytes | None, attempt_limit: AttemptLimit, now: datetime) -> LoginAttempt:
        """The same of a guess at the password of whoever has this address, which nobody need have.

        Where the account trusts the device with the trust token of this SHA-256, and the token is live, it is counted at the device.
        """
        ...

    async def uncount(self, secret: SecretKind, subject: bytes, attempt_limit: AttemptLimit) -> None:
        """Have a guess that was counted not count: it was right. Atomic."""
        ...


# one_time_tokens: What is asked of storage about tokens of mails.


class OneTimeTokensRead(Protocol):
    async def is_live(self, token_hash: bytes, purpose: TokenPurpose, now: datetime) -> bool: ...


class OneTimeTokens(OneTimeTokensRead, Protocol):
    """Tokens of mails: kept as SHA-256, looked up by purpose and hash, good once (security.md A-5)."""

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
    ) -> None:
        """`org_id` is the organization whose design the page has that the token leads to."""
        ...

    async def newer_exists(self, user_id: UUID, purpose: TokenPurpose, created_at: datetime) -> bool:
        """Whether there is an unused token that was asked for later than that."""
        ...

    async def redeem(self, token_hash: bytes, purpose: TokenPurpose, now: datetime) -> Email | None:
        """Use the token up: the address it was sent to, or None when it is unknown, expired or used. Exactly one caller wins."""
        ...

    async def void(self, user_id: UUID, purpose: TokenPurpose) -> None:
        """Remove every token of this purpose."""
        ...


# platform: What is asked of storage about the whole platform.


class PlatformRead(Protocol):
    async def figures(self) -> PlatformFigures: ...

    async def due_jobs(self, now: datetime) -> int:
        """How many pieces of background work are due."""
        ...


# platform_users: What is asked of storage about people, for platform owners.


class PlatformUsersRead(Protocol):
    """People of every organization and of none, as platform owners see them."""

    async def search(self, limit: int, *, email: str | None = None, user_id: UUID | None = None) -> list[FoundUser]:
        """Those whose address has `email` in it, which is in lower case, and who have this id, where these are given; the newest first."""
        ...

    async def mfa_status(self, user_id: UUID) -> UserMfaStatus | None: ...

    async def mfa_metrics(self, since: datetime) -> MfaMetrics:
        """What happened is counted since then."""
        ...

    async def alerts(self, since: datetime, limit: int) -> list[MfaAlert]:
        """What is suspicious in the log of the second factor since then, the newest first."""
        ...


# The repositories of this area, by the kind of access


class AccountsReading(Protocol):
    """Read access to the repositories of accounts."""

    @property
    def accounts(self) -> AccountsRead: ...
    @property
    def devices(self) -> DevicesRead: ...
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
    def email_queue(self) -> EmailQueue: ...
    @property
    def mfa(self) -> Mfa: ...
    @property
    def one_time_tokens(self) -> OneTimeTokens: ...


class AccountsAutocommit(Protocol):
    """The statements of accounts that commit by themselves."""

    @property
    def attempt_limits(self) -> AttemptLimits: ...
    @property
    def mfa(self) -> MfaLog: ...
