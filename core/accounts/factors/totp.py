"""TOTP: codes from an authenticator app (RFC 6238)."""

import re
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final
from uuid import UUID

from core.accounts.model import mfa
from core.accounts.model.email_queue import EmailKind
from core.kernel.causes import Caller
from core.kernel.proofs import Method
from ports import Ports
from ports.storage import Transaction

_FORMAT: Final = re.compile("[0-9]{6}")


@dataclass(frozen=True, slots=True)
class VerifiedTotpCode:
    """The right code of a time step, with the secret that was set up at `setup_at` (UTC)."""

    method: ClassVar[Method] = Method.TOTP
    events: ClassVar[tuple[mfa.MfaEvent, ...]] = (mfa.MfaEvent.VERIFY_ATTEMPT, mfa.MfaEvent.VERIFY_SUCCESS)
    notice: ClassVar[EmailKind | None] = None
    step: int
    setup_at: datetime

    def redeem(self, tx: Transaction, caller: Caller, first: mfa.FirstFactor, now: datetime) -> Awaitable[mfa.RedeemedCode | None]:
        return tx.mfa.redeem_step(first, self.setup_at, self.step, caller, now)

    async def use(self, tx: Transaction, user_id: UUID, now: datetime) -> bool:
        return await tx.mfa.use_step(user_id, self.setup_at, self.step)


def accepts(code: str) -> bool:
    """Return whether the text has the code format."""
    return _FORMAT.fullmatch(code) is not None


async def verify(ports: Ports, _user_id: UUID, enrollment: mfa.MfaEnrollment, code: str) -> VerifiedTotpCode | None:
    """Return the code if it is right, and no code from its time step or a later step was used. It is not used up yet."""
    if enrollment.secret is None or enrollment.setup_at is None or enrollment.enabled_at is None:
        return None
    step = ports.codes.matching_step(enrollment.secret, code, ports.clock.now())
    if step is None or (enrollment.last_step is not None and step <= enrollment.last_step):
        return None
    return VerifiedTotpCode(step, enrollment.setup_at)
