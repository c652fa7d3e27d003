"""An account's second factor, and its errors."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final
from uuid import UUID

from core.accounts.model.accounts import Account
from core.kernel import errors, proofs
from core.kernel.values import digest

# The time to confirm a new secret (security M-5).
SETUP_TTL: Final = timedelta(minutes=15)


# Of backup codes and recovery codes. It leaves out characters that look alike: I and 1, O and 0.
CODE_ALPHABET: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"


class MfaEvent(StrEnum):
    """The kind of an entry in the second-factor log."""

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
    PASSKEY_ENABLED = "passkey_mfa_enabled"
    PASSKEY_DISABLED = "passkey_mfa_disabled"
    PASSKEY_FORCE_DISABLED = "passkey_mfa_force_disabled_by_admin"
    PASSKEY_USED = "passkey_used"
    RECOVERY_ISSUED = "recovery_issued"
    RECOVERY_FAILED = "recovery_failed"
    RECOVERY_ENDED = "recovery_ended_by_sign_in"
    RECOVERED = "recovered"


FAILURES: Final = frozenset({MfaEvent.SETUP_FAILED, MfaEvent.VERIFY_FAILED, MfaEvent.PASSKEY_REFUSED, MfaEvent.RECOVERY_FAILED})


# The log entries about a second factor: it is turned on, its user turns it off, or another person does.
ENABLED: Final = MappingProxyType({proofs.FactorKind.TOTP: MfaEvent.ENABLED, proofs.FactorKind.PASSKEY: MfaEvent.PASSKEY_ENABLED})
DISABLED: Final = MappingProxyType({proofs.FactorKind.TOTP: MfaEvent.DISABLED, proofs.FactorKind.PASSKEY: MfaEvent.PASSKEY_DISABLED})
FORCE_DISABLED: Final = MappingProxyType(
    {proofs.FactorKind.TOTP: MfaEvent.FORCE_DISABLED, proofs.FactorKind.PASSKEY: MfaEvent.PASSKEY_FORCE_DISABLED}
)


@dataclass(frozen=True, slots=True)
class FactorSwitch:
    """An entry of the log: a second factor was turned on or off. `at` is UTC."""

    at: datetime
    event: MfaEvent  # ENABLED, DISABLED or FORCE_DISABLED

    @property
    def is_on(self) -> bool:
        return self.event in ENABLED.values()

    @property
    def factor(self) -> proofs.FactorKind:
        return next(kind for kind in ENABLED if self.event in (ENABLED[kind], DISABLED[kind], FORCE_DISABLED[kind]))

    @property
    def is_by_others(self) -> bool:
        """Whether another person removed the factor: no undo restores it."""
        return self.event in FORCE_DISABLED.values()


@dataclass(frozen=True, slots=True)
class FactorLifetime:
    """When an app, passkey or security key, which an undo can restore, was added and removed. Times are UTC."""

    is_key: bool
    added_at: datetime
    removed_at: datetime | None  # None while the account has it


@dataclass(frozen=True, slots=True)
class MfaEnrollment:
    """The secrets of an account's second factor: the authenticator app's secret, and the salt for the backup codes. Times are UTC."""

    secret: str | None = field(repr=False)  # None without an app
    setup_at: datetime | None
    enabled_at: datetime | None  # None while the secret is not confirmed
    last_step: int | None  # the time step of the newest code that was used
    codes_salt: bytes | None = field(repr=False)

    def is_pending(self, now: datetime) -> bool:
        """Return whether the secret can still be confirmed."""
        return self.setup_at is not None and self.enabled_at is None and now < self.setup_at + SETUP_TTL


@dataclass(frozen=True, slots=True)
class MfaStatus:
    """An account's second-factor status. Times are UTC."""

    totp_at: datetime | None  # None without an authenticator app
    passkey_at: datetime | None  # None while passkeys and security keys are no second factor
    has_keys: bool  # whether the account has passkeys or security keys
    backup_codes: int  # how many codes are unused

    @property
    def enabled_at(self) -> datetime | None:
        """The time since when a first factor alone does not sign in, or None."""
        return min((at for at in (self.totp_at, self.passkey_at) if at is not None), default=None)

    @property
    def methods(self) -> tuple[proofs.Method, ...]:
        """The methods that a sign-in accepts after a first factor. A passkey is accepted beside an app without being asked for."""
        offered = (
            (proofs.Method.TOTP, self.totp_at),
            (proofs.Method.PASSKEY, self.has_keys),
            (proofs.Method.BACKUP_CODE, self.backup_codes),
        )
        return () if self.enabled_at is None else tuple(method for method, is_there in offered if is_there)


@dataclass(frozen=True, slots=True)
class MfaSetup:
    """A secret to confirm."""

    secret: str = field(repr=False)
    uri: str = field(repr=False)  # an otpauth URI, which authenticator apps read from a QR code


@dataclass(frozen=True, slots=True)
class FirstFactor:
    """The proof of a first factor, in the sign-in in progress that a code continues.

    If the same user proves it again later, that is a new proof.
    """

    flow_id: UUID
    browser_hash: bytes | None  # SHA-256; None: an API client
    user_id: UUID
    expires_at: datetime  # UTC


@dataclass(frozen=True, slots=True)
class RedeemedCode:
    """The result of consuming a pending sign-in and its code. The account is locked."""

    account: Account
    code_taken: bool  # False if the code was used before


class CodeMalformed(errors.Invalid):
    """This is not a code. Enter the 6 digits from your authenticator app, or a backup code such as ABCD-EFGH."""


class CodeWrong(errors.Unauthenticated):
    """This code is wrong or has already been used. Wait for your app's next code, or use another backup code."""


class SetupCodeMalformed(errors.Invalid):
    """This is not a code. Enter the 6 digits from your authenticator app."""


class SetupCodeWrong(errors.Invalid):
    """This code is wrong. Enter the current code from your authenticator app, and check the clock of its device."""


class NotSetUp(errors.Invalid):
    """There is no setup to confirm, or it is older than 15 minutes. Set up two-factor authentication again."""


class AlreadyEnabled(errors.Invalid):
    """Two-factor authentication is already on. To move it to another app, turn it off first."""


class RecoveryNeeded(errors.Forbidden):
    """A sign-in policy asks this user for a second factor, so it is not removed. Start a recovery, with which they set up a new one."""


class OwnerRecoveryNeeded(errors.Forbidden):
    """A sign-in policy asks this platform owner for a second factor. Run `gatehouse owner recover --reset-factors` on the server."""


class NotEnabled(errors.Invalid):
    """Two-factor authentication is off. Set it up first."""


def attempt_subject(user_id: UUID) -> bytes:
    """Return the subject under which attempts at a user's second factor are counted."""
    return digest(str(user_id))
