"""Storage of passkeys."""

from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model.accounts import Account
from core.accounts.model.mfa import FirstFactor, RedeemedCode
from core.accounts.model.passkeys import KeyHosts, KnownPasskey, Passkey, RedeemedPasskey, UsedChallenge, VerifiedAssertion
from core.kernel.causes import Caller


class PasskeysRead(Protocol):
    """Read access to passkeys."""

    async def of_user(self, user_id: UUID) -> list[Passkey]:
        """Return the passkeys of the account, oldest first."""

    async def by_id(self, user_id: UUID, passkey_id: UUID) -> Passkey | None:
        """Return this passkey of the account."""

    async def by_credential(self, credential_id: bytes) -> KnownPasskey | None:
        """Return the passkey with this credential id, with its account."""

    async def handle_of(self, user_id: UUID) -> bytes | None:
        """Return what authenticators know of the user, or None if the account has never had a passkey."""

    async def restorable(self, user_id: UUID, rp_id: str) -> list[bytes]:
        """Return the credential ids of passkeys that an undo can restore, last deleted first."""

    async def is_deleted(self, credential_id: bytes) -> bool:
        """Return whether an undo can restore a passkey with this credential id."""

    async def is_used(self, challenge: UsedChallenge) -> bool:
        """Return whether a ceremony has used the challenge up."""

    async def find_offerable(self, user_id: UUID, before: datetime) -> KeyHosts | None:
        """Return the RP IDs of the account's keys, or None if it gets no offer of a passkey.

        That is without a verified address, with an offer since `before`, and while only a recovery gives it another factor.
        """

    async def rp_id(self) -> str | None:
        """Return the RP ID of the installation, or None if it has no passkeys for it."""

    async def next_wait(self, now: datetime) -> Account | None:
        """Return an account whose wait for lost passkeys is over but not announced, or was not used in time, or None."""

    async def users_by_rp_id(self, rp_id: str) -> Mapping[str, int]:
        """Return the number of users with passkeys for this RP ID, and for each other one that of users who have none for this one.

        It reads all passkeys.
        """


class Passkeys(PasskeysRead, Protocol):
    """Write access to passkeys. Callers lock the account first. The numbers of passkeys and of security keys stand with the account."""

    async def handle(self, user_id: UUID, proposed: bytes) -> bytes:
        """Return what authenticators know of the user. It is `proposed` if the account has none yet."""

    async def lock_rp_id(self, url: str) -> None:
        """Let no other transaction change the RP ID. `url` is the base URL. Call this before `rp_id` and `set_rp_id`."""

    async def set_rp_id(self, rp_id: str) -> None:
        """Store the RP ID."""

    async def use_challenge(self, challenge: UsedChallenge) -> bool:
        """Use a challenge up. Exactly one caller gets True."""

    def redeem(self, passkey: Passkey, seen: VerifiedAssertion, now: datetime) -> Awaitable[RedeemedPasskey | None]:
        """Lock the account, store the new state of the passkey, and use the challenge up.

        The result is None if the account is gone. Of two clones with one counter, one gets `is_used`.
        """

    def redeem_second(
        self, first: FirstFactor, passkey: Passkey, seen: VerifiedAssertion, caller: Caller, now: datetime
    ) -> Awaitable[RedeemedCode | None]:
        """As `Mfa.redeem_step`, but use up the challenge and store the new state of the passkey."""

    async def set_second(self, user_id: UUID, since: datetime | None, now: datetime) -> None:
        """Make the passkeys and security keys of the account its second factor, or with None end that."""

    async def set_wait(self, user_id: UUID, at: datetime | None) -> None:
        """Start the account's wait for lost passkeys, or with None end the wait."""

    async def announce_wait(self, user_id: UUID) -> bool:
        """Store that the email about the end of the wait is queued. Of concurrent callers, only the first gets True."""

    async def set_offered(self, user_id: UUID, now: datetime) -> None:
        """Store that the user was offered to create a passkey."""

    async def mark_refused(self, user_id: UUID, passkey_id: UUID, before: datetime, now: datetime) -> bool:
        """Store the time of an impossible change, and return whether the last time was before `before`, or there was none."""

    async def add(self, passkey: Passkey) -> None:
        """Add a passkey. The credential id of a deleted passkey is taken until no undo restores it. Raises: PasskeyTaken."""

    async def rename(self, user_id: UUID, passkey_id: UUID, name: str) -> None: ...

    async def remove(self, user_id: UUID, passkey_id: UUID, now: datetime) -> bool:
        """Delete a passkey, which an undo can restore, and return whether it existed."""

    async def end(self, user_id: UUID, passkey_id: UUID) -> None:
        """Delete a passkey. No undo restores it."""

    async def turn_into_security_keys(self, user_id: UUID) -> None:
        """Make all passkeys of the account security keys, which do not sign in alone. An undo restores none of the deleted ones."""

    async def remove_all(self, user_id: UUID) -> None:
        """Delete all passkeys. No undo restores them."""

    async def remove_added_since(self, user_id: UUID, since: datetime) -> Sequence[UUID]:
        """Delete the passkeys that were added at that time or later, and return their ids."""

    async def restore(self, user_id: UUID, since: datetime) -> Sequence[Passkey]:
        """Restore and return the passkeys that were added before `since` and deleted since then."""
