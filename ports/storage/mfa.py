"""What is asked of storage about second factors."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.access import Caller
from core.mfa import Enrolment, MfaEvent, Redeemed, Status
from ports.storage.soon import Soon


class MfaRead(Protocol):
    """Second factors, looked at. The secrets are sealed."""

    async def status(self, user_id: UUID) -> Status | None:
        """None if there is no such account."""
        ...

    async def enrolment(self, user_id: UUID) -> Enrolment | None:
        """What was set up, confirmed or not, expired or not. Raises SealBroken."""
        ...

    async def has_code(self, user_id: UUID, code_hash: bytes) -> bool:
        """Whether there is an unused backup code with this hash."""
        ...


class MfaLog(Protocol):
    """The log of the second factor, apart from those of organizations (organizations.md section 6.3)."""

    async def log(self, user_id: UUID, events: Sequence[MfaEvent], caller: Caller, now: datetime, *, reason: str | None = None) -> None:
        """Write these, of one and the same doing, in this order: all of them successful unless there is a failure among them."""
        ...


class Mfa(MfaRead, MfaLog, Protocol):
    """Second factors, changed. The account is locked before any of these."""

    async def begin(self, user_id: UUID, secret: str, now: datetime) -> None:
        """Have this secret wait for being confirmed, in place of whatever there was."""
        ...

    async def take_step(self, user_id: UUID, setup_at: datetime, step: int) -> bool:
        """Take the code of this step, of the secret that was set up then; whether no code of this or a later step was taken before."""
        ...

    async def replace_codes(self, user_id: UUID, salt: bytes, hashes: Sequence[bytes]) -> None:
        """Have these backup codes and no others."""
        ...

    def accept_step(self, pre_auth_id: UUID, user_id: UUID, setup_at: datetime, step: int, now: datetime) -> Soon[Redeemed]:
        """Before the next statement, lock an account and end a sign-in to it that waits, by `take_step`: the account, and whether the code
        was there; nothing where the sign-in does not wait any more.

        Exactly one caller has both, and whoever has not must roll back.
        """
        ...

    def accept_code(self, pre_auth_id: UUID, user_id: UUID, code_hash: bytes, now: datetime) -> Soon[Redeemed]:
        """The same by using up the backup code with this hash."""
        ...

    async def remove(self, user_id: UUID) -> None:
        """Forget secret and backup codes, if there are any. The log stays."""
        ...
