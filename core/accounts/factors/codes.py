"""Second-factor codes of any kind.

A sign-in verifies a code in two steps, so that no code works twice. `verify` runs outside any
transaction and changes nothing. `redeem` and `accept` use the code up in the transaction that starts
the session.
"""

from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import Final, Protocol
from uuid import UUID

from core.accounts import events
from core.accounts.factors import backup_codes, totp
from core.accounts.model import email_queue, mfa
from core.accounts.model.accounts import Account
from core.accounts.model.attempt_limits import SecretKind
from core.kernel.callers import Person
from core.kernel.causes import Caller
from core.kernel.errors import refuse
from core.kernel.proofs import Method
from ports import Ports
from ports.storage import Transaction


class VerifiedCode(Protocol):
    """A right code, with its kind."""

    @property
    def method(self) -> Method: ...

    @property
    def events(self) -> Sequence[mfa.MfaEvent]:
        """The second-factor log entries when the code is used."""

    @property
    def notice(self) -> email_queue.EmailKind | None:
        """The email to the user when the code is used, if any."""

    def redeem(self, tx: Transaction, caller: Caller, first: mfa.FirstFactor, now: datetime) -> Awaitable[mfa.RedeemedCode | None]:
        """Lock the account, consume its first factor and the code, log this, and clear the failed attempts.

        The result is None if the first factor has ended. Pass it to `accept`.
        """

    async def use(self, tx: Transaction, user_id: UUID, now: datetime) -> bool:
        """Use up a locked account's code. Return False if it was used before, or its factor was replaced."""


class CodeKind(Protocol):
    """A kind of codes. Every kind is a module."""

    def accepts(self, code: str) -> bool: ...

    async def verify(self, ports: Ports, user_id: UUID, enrollment: mfa.MfaEnrollment, code: str, /) -> VerifiedCode | None: ...


# The formats of two kinds have no text in common.
KINDS: Final[tuple[CodeKind, ...]] = (totp, backup_codes)


def check_format(code: str) -> None:
    """Refuse text that is in the format of no kind (security M-3)."""
    if not any(kind.accepts(code) for kind in KINDS):
        raise mfa.CodeMalformed


async def verify(ports: Ports, user_id: UUID, enrollment: mfa.MfaEnrollment | None, code: str) -> VerifiedCode:
    """Verify a code of any kind. Pass the result to `redeem`, which uses the code up.

    Callers count the attempt first, for all kinds of codes and all addresses together (security M-2).

    Raises: CodeWrong; Limited if too many hashes are queued.
    """
    kind = next((kind for kind in KINDS if kind.accepts(code)), None)
    verified = None if kind is None or enrollment is None else await kind.verify(ports, user_id, enrollment, code)
    return verified or refuse(mfa.CodeWrong)


async def log_failure(ports: Ports, caller: Caller, user_id: UUID) -> None:
    """Record that a wrong code was sent after the right first factor."""
    async with ports.storage.transaction(by=caller) as tx:
        await tx.mfa.log(user_id, [mfa.MfaEvent.VERIFY_ATTEMPT, mfa.MfaEvent.VERIFY_FAILED], caller, ports.clock.now())
        tx.record(events.mfa_failed(user_id, "sign_in"))


async def accept(code: VerifiedCode, tx: Transaction, redeemed: mfa.RedeemedCode, now: datetime) -> Account:
    """Return the locked account if `VerifiedCode.redeem` used the code up. Queue the email about it, if any.

    Raises: CodeWrong if another request used the code first, or the second factor was replaced.
    """
    if not redeemed.code_taken:
        raise mfa.CodeWrong
    await _notify(tx, redeemed.account, code, now)
    return redeemed.account


async def use(tx: Transaction, caller: Person, account: Account, code: VerifiedCode, now: datetime) -> None:
    """Use up a verified code, for a locked account. Queue the email about it, if any.

    Raises: CodeWrong if another request used the code first, or the second factor was replaced.
    """
    if not await code.use(tx, account.id, now):
        raise mfa.CodeWrong
    await tx.mfa.log(account.id, code.events, caller, now)
    await tx.attempt_limits.clear(SecretKind.MFA, mfa.attempt_subject(account.id))
    await _notify(tx, account, code, now)


async def _notify(tx: Transaction, account: Account, code: VerifiedCode, now: datetime) -> None:
    if code.notice is not None:
        await tx.email_queue.add(email_queue.new_email(code.notice, account.email, now))
