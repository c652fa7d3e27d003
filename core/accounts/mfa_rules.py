"""Entities, refusals and pure rules of `core.accounts.mfa`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from core.kernel.errors import Invalid, Unauthenticated
from core.kernel.values import digest

if TYPE_CHECKING:
    from uuid import UUID

    from core.accounts.accounts_rules import Account

# How long a secret that nobody has confirmed is good for (security.md M-5).
SETUP_TTL: Final = timedelta(minutes=15)
BACKUP_CODES: Final = 10
# Without what is easily taken for something else: I and 1, O and 0. Eight of these are 40 bits (security.md M-4).
ALPHABET: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
TOTP_CODE: Final = re.compile("[0-9]{6}")
_BACKUP_CODE: Final = re.compile("[0-9A-Z]{4}-[0-9A-Z]{4}")


class MfaEvent(StrEnum):
    """What the log of the second factor tells (organizations.md section 6.3)."""

    SETUP_INITIATED = "mfa_setup_initiated"
    SETUP_COMPLETED = "mfa_setup_completed"
    SETUP_FAILED = "mfa_setup_failed"
    ENABLED = "mfa_enabled"
    DISABLED = "mfa_disabled"
    FORCE_DISABLED = "mfa_force_disabled_by_admin"
    VERIFY_ATTEMPT = "mfa_verify_attempt"
    VERIFY_SUCCESS = "mfa_verify_success"
    VERIFY_FAILED = "mfa_verify_failed"
    BACKUP_CODES_GENERATED = "backup_codes_generated"
    BACKUP_CODE_USED = "backup_code_used"


FAILURES: Final = frozenset({MfaEvent.SETUP_FAILED, MfaEvent.VERIFY_FAILED})


@dataclass(frozen=True, slots=True)
class MfaEnrollment:
    """The secret of an account, confirmed at `enabled_at` or still pending; `last_step` is that of the newest code taken. Times are UTC."""

    secret: str = field(repr=False)
    setup_at: datetime
    enabled_at: datetime | None
    last_step: int | None
    codes_salt: bytes | None = field(repr=False)

    def is_pending(self, now: datetime) -> bool:
        """Whether it can still be confirmed."""
        return self.enabled_at is None and now < self.setup_at + SETUP_TTL


@dataclass(frozen=True, slots=True)
class MfaStatus:
    """What somebody may know of the own second factor: since when it is asked for, in UTC, and how many backup codes are left."""

    enabled_at: datetime | None
    backup_codes: int


@dataclass(frozen=True, slots=True)
class MfaSetup:
    """A secret that waits to be confirmed, and the `otpauth` address by which an app learns it."""

    secret: str = field(repr=False)
    uri: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class VerifiedCode:
    """What a right code was: the code of a step, of the secret that was set up then, or the backup code with this hash."""

    step: int | None = None
    setup_at: datetime | None = None
    code_hash: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class RedeemedCode:
    """The locked account at which a sign-in that waited has ended, and whether its code was still good."""

    account: Account
    code_taken: bool


class CodeMalformed(Invalid):
    """Send the six digits that your authenticator app shows, or a backup code as you were given it, such as ABCD-EFGH."""


class CodeWrong(Unauthenticated):
    """The code is wrong, or it was used before. Wait for the next one of your authenticator app, or use another backup code."""


class SetupCodeMalformed(Invalid):
    """Send the six digits that your authenticator app shows."""


class SetupCodeWrong(Invalid):
    """The code is wrong. Send the one that your authenticator app shows now; the clock of its device must be right."""


class NotSetUp(Invalid):
    """There is nothing to confirm: set up two-factor authentication first. What was set up must be confirmed within 15 minutes."""


class AlreadyEnabled(Invalid):
    """Two-factor authentication is on already. To move it to another app, switch it off first."""


class NotEnabled(Invalid):
    """Two-factor authentication is not on. Set it up first."""


# What signing in does with it


def check_format(code: str) -> None:
    """Raises CodeMalformed for what is neither six ASCII digits nor spelled as a backup code is (security.md M-3)."""
    if not TOTP_CODE.fullmatch(code) and not _BACKUP_CODE.fullmatch(code):
        raise CodeMalformed


def attempt_subject(user_id: UUID) -> bytes:
    """By what the guesses at somebody's second factor are counted."""
    return digest(str(user_id))
