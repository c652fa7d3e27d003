"""Storage for passkeys."""

from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model import mfa, passkeys
from core.accounts.model.accounts import Account
from core.kernel.causes import Caller


class PasskeysRead(Protocol):
    """Read access to passkeys."""

    async def of_user(self, user_id: UUID) -> list[passkeys.Passkey]:
        """Return the account's passkeys, oldest first."""

    async def by_id(self, user_id: UUID, passkey_id: UUID) -> passkeys.Passkey | None:
        """Return the account's passkey with this id."""

    async def by_credential(self, credential_id: bytes) -> passkeys.KnownPasskey | None:
        """Return the passkey with this credential id, with its account."""

    async def handle_of(self, user_id: UUID) -> bytes | None:
        """Return the user handle that authenticators store, or None if the account has never had a passkey."""

    async def restorable(self, user_id: UUID, rp_id: str) -> list[bytes]:
        """Return the credential ids of passkeys that an undo can restore, last deleted first."""

    async def is_deleted(self, credential_id: bytes) -> bool:
        """Return whether an undo can restore a passkey with this credential id."""

    async def is_used(self, challenge: passkeys.UsedChallenge) -> bool:
        """Return whether a ceremony has used the challenge up."""

    async def find_offerable(self, user_id: UUID, before: datetime) -> passkeys.KeyHosts | None:
        """Return the RP IDs in the account's keys, or None if the account gets no passkey offer.

        There is no offer without a verified address, after an offer since `before`, or while only a recovery gives the account another
        factor.
        """

    async def rp_id(self) -> str | None:
        """Return the installation's RP ID, or None if it has no passkeys for it."""

    async def next_wait(self, now: datetime) -> Account | None:
        """Return an account whose wait for lost passkeys is over but not announced, or was not used in time, or None."""

    async def users_by_rp_id(self, rp_id: str) -> Mapping[str, int]:
        """Return how many users have passkeys for this RP ID, and for every other RP ID how many of its users have none for this RP ID.

        The query reads all passkeys.
        """


class Passkeys(PasskeysRead, Protocol):
    """Write access to passkeys. Callers lock the account first. The account counts its passkeys and its security keys."""

    async def handle(self, user_id: UUID, proposed: bytes) -> bytes:
        """Return the user handle that authenticators store. The handle is `proposed` if the account has none yet."""

    async def lock_rp_id(self, url: str) -> None:
        """Make concurrent transactions that change the RP ID wait. `url` is the base URL. Call this before `rp_id` and `set_rp_id`."""

    async def set_rp_id(self, rp_id: str) -> None:
        """Store the RP ID."""

    async def use_challenge(self, challenge: passkeys.UsedChallenge) -> bool:
        """Use a challenge up. Exactly one caller gets True."""

    def redeem(
        self, passkey: passkeys.Passkey, seen: passkeys.VerifiedAssertion, now: datetime
    ) -> Awaitable[passkeys.RedeemedPasskey | None]:
        """Lock the account, store the passkey's new state, and use the challenge up.

        The result is None if the account is gone. If two clones send the same counter, only one clone gets `is_used`.
        """

    def redeem_second(
        self, first: mfa.FirstFactor, passkey: passkeys.Passkey, seen: passkeys.VerifiedAssertion, caller: Caller, now: datetime
    ) -> Awaitable[mfa.RedeemedCode | None]:
        """As `Mfa.redeem_step`, but use up the challenge and store the passkey's new state."""

    async def set_second(self, user_id: UUID, since: datetime | None, now: datetime) -> None:
        """Make the account's passkeys and security keys its second factor, or with None end that."""

    async def set_wait(self, user_id: UUID, at: datetime | None) -> None:
        """Start the account's wait for lost passkeys, or with None end the wait."""

    async def announce_wait(self, user_id: UUID) -> bool:
        """Store that the email about the end of the wait is queued. Among concurrent callers, only the first gets True."""

    async def set_offered(self, user_id: UUID, now: datetime) -> None:
        """Store that the user was offered to create a passkey."""

    async def mark_refused(self, user_id: UUID, passkey_id: UUID, before: datetime, now: datetime) -> bool:
        """Store when an impossible change came, and return whether the last such time was before `before`, or there was none."""

    async def add(self, passkey: passkeys.Passkey) -> None:
        """Add a passkey. A deleted passkey's credential id is taken until no undo restores it. Raises: PasskeyTaken."""

    async def rename(self, user_id: UUID, passkey_id: UUID, name: str) -> None: ...

    async def remove(self, user_id: UUID, passkey_id: UUID, now: datetime) -> bool:
        """Delete a passkey, which an undo can restore, and return whether it existed."""

    async def end(self, user_id: UUID, passkey_id: UUID) -> None:
        """Delete a passkey. No undo restores the passkey."""

    async def turn_into_security_keys(self, user_id: UUID) -> None:
        """Make the account's passkeys security keys, which do not sign in alone. An undo restores no deleted passkey."""

    async def remove_all(self, user_id: UUID) -> None:
        """Delete all passkeys. No undo restores the passkeys."""

    async def remove_added_since(self, user_id: UUID, since: datetime) -> Sequence[UUID]:
        """Delete the passkeys that were added at that time or later, and return their ids."""

    async def restore(self, user_id: UUID, since: datetime) -> Sequence[passkeys.Passkey]:
        """Restore and return the passkeys that were added before `since` and deleted since then."""
