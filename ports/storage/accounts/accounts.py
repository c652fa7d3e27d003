"""Storage for accounts, email address changes, one-time tokens, uploaded images, and platform owners."""

from collections.abc import Awaitable, Collection
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model import accounts, email_queue, platform, profiles
from core.accounts.model.protection import Protection
from core.kernel import images
from core.kernel.proofs import Strength
from core.kernel.values import Email
from core.maintenance.model.health import QueueState
from core.tenancy.model.members import AccountControl


class AccountsRead(Protocol):
    """Read access to accounts."""

    async def by_email(self, email: Email) -> accounts.Account | None:
        """Return the account with this address, usable or not."""

    async def next_to_erase(self, now: datetime) -> accounts.Account | None:
        """Return an account that was deleted, and that must be erased now, or None."""

    async def by_id(self, user_id: UUID) -> accounts.Account | None:
        """Return the account, usable or not."""

    async def is_recovery_required(self, user_id: UUID) -> bool:
        """Return whether an undo has removed a factor that a sign-in policy asked for, and no recovery has followed."""

    async def own_profile(self, user_id: UUID, now: datetime) -> profiles.OwnProfile | None:
        """Return the account's address and profile, with the pending new address."""

    async def protection(self, user_id: UUID, asked: Strength) -> Protection | None:
        """Return the account's protection against this strength, or None if there is no account."""

    async def has_signed_in(self, user_id: UUID) -> bool:
        """Return whether the user has ever signed in, or has a linked identity."""

    async def platform_owner_exists(self) -> bool:
        """Return whether any account is a platform owner, usable or not."""

    async def platform_owner_addresses(self) -> list[Email]:
        """Return the usable platform owners' addresses."""

    async def owner_addresses_with_password_alone(self) -> list[Email]:
        """Return the addresses of usable platform owners whose password alone signs in, also beside a passkey."""

    async def owner_addresses_without_second_factor(self, rp_id: str | None) -> list[Email]:
        """Return the addresses of usable platform owners who have neither a second factor nor a passkey.

        Only passkeys and security keys for this RP ID count.
        """

    async def account_control(self, user_id: UUID, org_id: UUID) -> AccountControl:
        """Return the facts that decide how far the organization controls the account. Raises: AccountNotFound."""


class Accounts(AccountsRead, Protocol):
    """Write access to accounts. Callers lock an account before they change it. The locks last until the transaction ends."""

    async def add(self, account: accounts.Account) -> None:
        """Add an account. Raises: EmailTaken, also if the address is reserved for its former account."""

    async def add_if_free(self, account: accounts.Account) -> bool:
        """Add an account unless its address is taken or reserved, and return whether it was added."""

    def lock(self, user_id: UUID) -> Awaitable[accounts.Account | None]: ...
    def lock_by_email(self, email: Email) -> Awaitable[accounts.Account | None]: ...

    async def lock_by_token(self, token_hash: bytes, purpose: email_queue.TokenPurpose) -> accounts.Account | None:
        """Lock and return the account that a one-time token belongs to. The token may have expired or been used."""

    def lock_for_login(self, user_id: UUID, password_hash: str) -> Awaitable[accounts.Account | None]:
        """Lock the account, if it is usable and verified, and still has this password hash."""

    async def lock_platform_owners(self) -> None:
        """Make concurrent transactions that promote or demote platform owners wait."""

    async def mark_verified(self, user_id: UUID, now: datetime) -> None:
        """Mark the address as verified. An earlier verification time stays."""

    async def set_password(self, user_id: UUID, password_hash: str, now: datetime) -> None:
        """Set or replace the password."""

    async def rehash_password(self, user_id: UUID, password_hash: str, now: datetime) -> None:
        """Replace the present password's hash."""

    async def drop_password_set_since(self, user_id: UUID, since: datetime, now: datetime) -> None:
        """Remove the password if it was set, changed or reset at that time or later."""

    async def drop_password(self, user_id: UUID, now: datetime) -> None: ...

    async def set_recovery_required(self, user_id: UUID, since: datetime | None) -> None:
        """Store that the account needs a recovery since then, or, with None, no longer."""

    async def set_mfa(self, user_id: UUID, enabled_at: datetime | None, now: datetime) -> None:
        """Require the second factor since `enabled_at`. With None, the second factor is turned off."""

    async def set_profile(self, user_id: UUID, profile: profiles.Profile, now: datetime) -> None:
        """Replace a locked account's profile."""

    async def change_email(self, user_id: UUID, email: Email, now: datetime) -> None:
        """Set an unverified address, and add the old address to the former addresses.

        Raises: EmailTaken, also if the address is reserved for another account.
        """

    async def deactivate(self, user_id: UUID, now: datetime) -> None:
        """Deactivate the account for a directory. The caller ends the account's sessions."""

    async def reactivate(self, user_id: UUID, now: datetime) -> None:
        """Allow sign-ins again to an account that a directory deactivated, unless the platform or its user has closed it."""

    async def deactivate_by_platform(self, user_id: UUID, now: datetime) -> None:
        """Deactivate the account for a platform owner.

        The caller ends the account's sessions. Directories cannot reactivate the account.
        """

    async def is_due_for_erasure(self, user_id: UUID, now: datetime) -> bool:
        """Return whether this account was deleted, and the time to undo that is over."""

    async def close_until(self, user_id: UUID, erase_at: datetime, now: datetime) -> None:
        """Close an account that is deleted, until it is erased at this time. Neither the platform nor a directory can open the account."""

    async def reopen(self, user_id: UUID, now: datetime) -> None:
        """Open an account again that was deleted, unless the platform or a directory has deactivated it."""

    async def reactivate_by_platform(self, user_id: UUID, now: datetime) -> None:
        """Allow sign-ins again to an account that the platform deactivated, unless a directory or its user has closed it."""

    async def can_be_freed(self, user_id: UUID) -> bool:
        """Return whether a directory deactivated the account, and it has no credentials or an address that is not verified.

        The account cannot be freed while the platform has deactivated it, or while an undo can open it again.
        """

    async def set_origin(self, user_id: UUID, origin: accounts.AccountOrigin, org_id: UUID | None, now: datetime) -> None:
        """Change which organization counts as the account's creator. None stands for the user."""

    async def promote(self, user_id: UUID, now: datetime) -> None: ...

    async def demote(self, user_id: UUID, now: datetime) -> None:
        """Revoke a platform owner's rights. Call `lock_platform_owners` first."""

    async def other_platform_owner_exists(self, user_id: UUID) -> bool:
        """Return whether another usable account is a platform owner. Call `lock_platform_owners` first."""

    async def lock_platform_owner(self, user_id: UUID) -> bool:
        """Return whether the account is usable and a platform owner. The account stays a platform owner until the transaction ends."""

    async def remove(self, user_id: UUID) -> None:
        """Delete a locked account with its one-time tokens, identities, sessions and logins.

        The caller first deletes rows that a counter includes.
        """


class EmailChangesRead(Protocol):
    """Read access to the address changes that users requested.

    An address is reserved for its former account while a change away from it can be undone.
    """

    async def pending(self, user_id: UUID, now: datetime) -> accounts.EmailChange | None: ...


class EmailChanges(EmailChangesRead, Protocol):
    """Write access to email address changes. Callers lock the account before they write."""

    async def add(self, change: accounts.EmailChange) -> None:
        """Add a change. The caller has canceled the pending change."""

    async def by_id(self, change_id: UUID) -> accounts.EmailChange | None: ...

    async def first_since(self, user_id: UUID, since: datetime) -> accounts.EmailChange | None:
        """Return the first change that the user requested since then, and that can be undone, or None."""

    async def first_undoable(self, user_id: UUID, now: datetime) -> accounts.EmailChange | None:
        """Return the user's first change that can still be undone, pending or not, or None."""

    async def last_undoable(self, user_id: UUID, now: datetime) -> accounts.EmailChange | None:
        """Return the user's last change that can still be undone, or None. All these changes return to the same address."""

    async def nth_newest_at(self, user_id: UUID, number: int) -> datetime | None:
        """Return when the user requested the change with this number, counted from the newest change, which is 1.

        Return None if there are fewer changes.
        """

    async def is_taken(self, email: Email, user_id: UUID, now: datetime) -> bool:
        """Return whether another account has the address, or it is reserved for another account."""

    async def is_reserved(self, email: Email, now: datetime) -> bool:
        """Return whether the address is reserved for an account that does not have it now."""

    async def cancel_pending(self, user_id: UUID, now: datetime) -> None:
        """Cancel the user's pending change, if any. The link in its notice still works."""

    async def mark_proved(self, change_id: UUID, now: datetime) -> None: ...

    async def undo(self, change: accounts.EmailChange, now: datetime) -> None:
        """Mark the change and the user's later changes as undone, and cancel the pending change."""

    async def end_all(self, user_id: UUID, now: datetime) -> None:
        """Cancel the pending change, and end the undo period for all the user's changes."""


class OneTimeTokensRead(Protocol):
    """Read access to one-time tokens."""

    async def live_email(self, token_hash: bytes, purpose: email_queue.TokenPurpose, now: datetime) -> Email | None:
        """Return the address that the token was sent to, or None if the token does not exist, is used or has expired."""

    async def verified_email(self, token_hash: bytes) -> Email | None:
        """Return the address that this used verification token was sent to.

        Return None unless the token is used, its account is usable, and the address is the account's verified address.
        """

    async def continuation(self, token_hash: bytes, purpose: email_queue.TokenPurpose) -> email_queue.LinkContinuation | None:
        """Return where the browser continues after this link, or None if there is no such token. The token may be used or expired."""


class OneTimeTokens(OneTimeTokensRead, Protocol):
    """Write access to one-time tokens. Tokens are stored as SHA-256 and found by purpose and hash (security A-5)."""

    async def add(self, token: email_queue.OneTimeToken) -> None:
        """Add a token."""

    async def sign_up(self, user_id: UUID, email: Email) -> email_queue.LinkContinuation | None:
        """Return where the user's sign-up with this address continues, or None if they did not sign up on our page."""

    def newer_exists(self, email: Email, purpose: email_queue.TokenPurpose, created_at: datetime) -> Awaitable[bool]:
        """Return whether the account with this address has an unused token that was requested later."""

    async def redeem(self, token_hash: bytes, purpose: email_queue.TokenPurpose, now: datetime) -> Email | None:
        """Use up a token and return the address that it was sent to.

        Return None if the token is unknown, expired or used. Exactly one caller succeeds.
        """

    async def void(self, user_id: UUID, purpose: email_queue.TokenPurpose) -> None:
        """Delete the user's tokens for this purpose, except used tokens that verified the present address (`verified_email`)."""


class PlatformRead(Protocol):
    """Metrics about the whole platform."""

    async def figures(self) -> platform.PlatformFigures: ...
    async def due_jobs(self, now: datetime) -> int: ...

    async def queues(self, now: datetime) -> list[QueueState]:
        """Return the queues for webhook deliveries, logout notices and SIEM entries, with at most 100,000 due items per queue."""

    async def email_backlog(self, now: datetime) -> email_queue.EmailBacklog:
        """Return how many emails are due or failed and not sent yet, up to 100,000, and how long the oldest has waited.

        Emails that a directory caused wait from their due time on, because they are spread over days.
        """


class PlatformUsersRead(Protocol):
    """Read access to all users, for platform owners."""

    async def search(
        self, limit: int, *, email: str | None = None, user_id: UUID | None = None, after: UUID | None = None
    ) -> list[platform.FoundUser]:
        """Search by a lower-case part of the address, by id, or by address and id together.

        The newest accounts come first.

        Without an id, the list begins after the account `after`. The list is empty if there is no such account.
        """

    async def owners(self) -> list[platform.FoundUser]:
        """Return all platform owners, also if they are deactivated. The newest accounts come first."""

    async def mfa_status(self, user_id: UUID) -> platform.UserMfaStatus | None:
        """Return the status of a user's second factor, or None if the account does not exist."""

    async def mfa_metrics(self, since: datetime) -> platform.MfaMetrics:
        """Return the metrics about second factors, with the events since then."""

    async def alerts(self, since: datetime, limit: int) -> list[platform.MfaAlert]:
        """Return the alerts about events since then, the newest first."""


class ImagesRead(Protocol):
    """Read access to images."""

    async def content(self, address: images.ImageAddress) -> tuple[bytes, bool] | None:
        """Return the PNG at this address, and whether it is a user's picture, or None."""

    async def of_user(self, user_id: UUID) -> bytes | None:
        """Return a user's picture in the large size, or None."""

    async def keys(self, owner_ids: Collection[UUID]) -> dict[UUID, str]:
        """Return the image keys of these owners. Callers pass only ids that the user may see."""


class Images(ImagesRead, Protocol):
    """Write access to images. Lock order: the owner first."""

    async def put(self, owner: images.ImageOwner, image: images.NewImage, now: datetime) -> None:
        """Store an owner's image instead of the present image."""

    async def remove(self, owner: images.ImageOwner) -> bool:
        """Remove the owner's image, and return whether there was an image."""
