"""The second factor of an account, and its errors."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from core.accounts.model.accounts import Account
from core.kernel.errors import Invalid, Unauthenticated
from core.kernel.values import digest

# The time to confirm a new secret (security M-5).
SETUP_TTL: Final = timedelta(minutes=15)


class MfaEvent(StrEnum):
    """The kind of an entry in the log of second factors."""

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
    PASSKEY_ADDED = "passkey_added"
    PASSKEY_REMOVED = "passkey_removed"
    PASSKEY_REFUSED = "passkey_refused"


FAILURES: Final = frozenset({MfaEvent.SETUP_FAILED, MfaEvent.VERIFY_FAILED, MfaEvent.PASSKEY_REFUSED})


@dataclass(frozen=True, slots=True)
class MfaEnrollment:
    """The secret of an account's authenticator app. Times are UTC."""

    secret: str = field(repr=False)
    setup_at: datetime
    enabled_at: datetime | None  # None while the secret is not confirmed
    last_step: int | None  # the time step of the newest code that was used
    codes_salt: bytes | None = field(repr=False)

    def is_pending(self, now: datetime) -> bool:
        """Return whether the secret can still be confirmed."""
        return self.enabled_at is None and now < self.setup_at + SETUP_TTL


@dataclass(frozen=True, slots=True)
class MfaStatus:
    """The status of an account's second factor."""

    enabled_at: datetime | None  # UTC; None while it is off
    backup_codes: int  # the number of unused codes


@dataclass(frozen=True, slots=True)
class MfaSetup:
    """A secret to confirm."""

    secret: str = field(repr=False)
    uri: str = field(repr=False)  # an otpauth URI, which authenticator apps read from a QR code


@dataclass(frozen=True, slots=True)
class FirstFactor:
    """The proof of a first factor, in the sign-in in progress that a code continues. A later proof of the same user is another one."""

    flow_id: UUID
    browser_hash: bytes | None  # SHA-256; None: an API client
    user_id: UUID
    expires_at: datetime  # UTC


@dataclass(frozen=True, slots=True)
class RedeemedCode:
    """The result of consuming a pending sign-in and its code. The account is locked."""

    account: Account
    code_taken: bool  # False if the code was used before


class CodeMalformed(Invalid):
    """This is not a code. Enter the 6 digits from your authenticator app, or a backup code such as ABCD-EFGH."""


class CodeWrong(Unauthenticated):
    """This code is wrong or has already been used. Wait for your app's next code, or use another backup code."""


class SetupCodeMalformed(Invalid):
    """This is not a code. Enter the 6 digits from your authenticator app."""


class SetupCodeWrong(Invalid):
    """This code is wrong. Enter the current code from your authenticator app, and check the clock of its device."""


class NotSetUp(Invalid):
    """There is no setup to confirm, or it is older than 15 minutes. Set up two-factor authentication again."""


class AlreadyEnabled(Invalid):
    """Two-factor authentication is already on. To move it to another app, turn it off first."""


class NotEnabled(Invalid):
    """Two-factor authentication is off. Set it up first."""


def attempt_subject(user_id: UUID) -> bytes:
    """Return the subject under which attempts at a user's second factor are counted."""
    return digest(str(user_id))
