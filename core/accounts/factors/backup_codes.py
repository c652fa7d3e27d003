"""Backup codes, for users without their authenticator app. A code works once."""

import re
import secrets
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Final
from uuid import UUID

from core.accounts.model import mfa
from core.accounts.model.email_queue import EmailKind
from core.kernel.causes import Caller
from core.kernel.proofs import Method
from ports import Ports
from ports.storage import Transaction

BACKUP_CODES: Final = 10
_FORMAT: Final = re.compile("[0-9A-Z]{4}-[0-9A-Z]{4}")


@dataclass(frozen=True, slots=True)
class VerifiedBackupCode:
    """A right backup code."""

    method: ClassVar[Method] = Method.BACKUP_CODE
    events: ClassVar[tuple[mfa.MfaEvent, ...]] = (mfa.MfaEvent.VERIFY_ATTEMPT, mfa.MfaEvent.VERIFY_SUCCESS, mfa.MfaEvent.BACKUP_CODE_USED)
    notice: ClassVar[EmailKind | None] = EmailKind.BACKUP_CODE_USED
    code_hash: bytes = field(repr=False)

    def redeem(self, tx: Transaction, caller: Caller, first: mfa.FirstFactor, now: datetime) -> Awaitable[mfa.RedeemedCode | None]:
        return tx.mfa.redeem_backup_code(first, self.code_hash, caller, now)

    async def use(self, tx: Transaction, user_id: UUID, now: datetime) -> bool:
        return await tx.mfa.use_backup_code(user_id, self.code_hash, now)


def accepts(code: str) -> bool:
    """Return whether the text has the code format."""
    return _FORMAT.fullmatch(code) is not None


async def verify(ports: Ports, user_id: UUID, enrollment: mfa.MfaEnrollment, code: str) -> VerifiedBackupCode | None:
    """Return the code if it belongs to the user and is unused. It is not used up yet. Raises: Limited if too many hashes are queued."""
    if enrollment.codes_salt is None:
        return None
    code_hash = await ports.passwords.derive(code, enrollment.codes_salt)
    async with ports.storage.reading() as read:
        unused = await read.mfa.has_unused_code(user_id, code_hash)
    return VerifiedBackupCode(code_hash) if unused else None


@dataclass(frozen=True, slots=True)
class BackupCodes:
    """A new set of backup codes."""

    texts: Sequence[str] = field(repr=False)
    salt: bytes = field(repr=False)
    hashes: Sequence[bytes] = field(repr=False)


NO_CODES: Final = BackupCodes((), b"", ())


async def generate(ports: Ports) -> BackupCodes:
    """Return a new set of backup codes. Raises: Limited if too many hashes are queued."""
    codes: dict[str, None] = {}
    while len(codes) < BACKUP_CODES:
        letters = "".join(secrets.choice(mfa.CODE_ALPHABET) for _ in range(8))  # 40 bits (security M-4)
        codes[f"{letters[:4]}-{letters[4:]}"] = None
    salt = ports.passwords.new_salt()
    return BackupCodes([*codes], salt, [await ports.passwords.derive(code, salt) for code in codes])
