"""The recovery of an account that lost its factors: a link by email, and a code from a person who checked who asks (security M-8)."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from core.accounts.model import mfa
from core.kernel import errors
from core.kernel.proofs import Method
from core.kernel.values import Email

RECOVERY_TTL: Final = timedelta(hours=24)
REPEAT_TTL: Final = timedelta(hours=72)  # within this time after a sign-in ended a recovery, the next recovery refuses sign-ins
MAX_ATTEMPTS: Final = 5  # at the code
CODE_LETTERS: Final = 10  # 50 bits
_SEPARATORS: Final = re.compile(r"[\s-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRecovery:
    """A recovery that is not finished. Times are UTC."""

    id: UUID
    user_id: UUID
    org_id: UUID | None  # of the issuer; None for the platform
    issuer_id: UUID
    code_salt: bytes = field(repr=False)
    created_at: datetime
    expires_at: datetime


def name_factors(methods: Collection[Method]) -> str:
    """Return the factors that a recovery can set up, in words for its user, such as "passkey or authenticator app"."""
    names = {Method.PASSKEY: "passkey", Method.TOTP: "authenticator app"}
    return " or ".join(name for method, name in names.items() if method in methods)


@dataclass(frozen=True, slots=True)
class OpenRecovery:
    """A recovery in the browser that gave the link and the code."""

    recovery: AccountRecovery
    email: Email  # of the account
    setup: mfa.MfaSetup  # for an authenticator app
    methods: frozenset[Method]  # factors that the account's policies accept: an app, a passkey or both

    @property
    def allows_app(self) -> bool:
        """Return whether an authenticator app is enough for the policies."""
        return Method.TOTP in self.methods

    @property
    def allows_passkey(self) -> bool:
        """Return whether the policies accept a passkey."""
        return Method.PASSKEY in self.methods


@dataclass(frozen=True, slots=True)
class CountedAttempt:
    """An attempt at the code of a recovery, which is counted."""

    number: int  # starts at 1
    code_hash: bytes = field(repr=False)  # of the right code


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryChoices:
    """What an admin can do to recover a user, and why they cannot start a recovery."""

    can_start: bool
    can_cancel: bool
    reason: str | None


@dataclass(frozen=True, slots=True)
class IssuedRecovery:
    """The part of a new recovery that its issuer gives to the user. `expires_at` is in UTC."""

    code: str = field(repr=False)
    expires_at: datetime
    refuses_sign_ins: bool


def format_code(letters: str) -> str:
    """Return the code as users read it: XXXXX-XXXXX."""
    return f"{letters[:5]}-{letters[5:]}"


def normalize_code(typed: str) -> str | None:
    """Return the letters in a typed code, or None if the text cannot be a code."""
    letters = _SEPARATORS.sub("", typed).upper()
    return letters if len(letters) == CODE_LETTERS and set(letters) <= set(mfa.CODE_ALPHABET) else None


class RecoveryRefused(errors.Invalid):
    """The link or the code is wrong, or this recovery has ended. Check both, or ask for a new recovery. A code can be tried five times."""


class TooManyRecoveries(errors.Limited):
    """This user got too many recoveries in the last hour, so the link cannot be sent. Retry-After says when you can start the next one."""


class RecoveryEnded(errors.Invalid):
    """This recovery has ended, or began in another browser. Ask for a new one."""


class FactorNotEnough(errors.Invalid):
    """A sign-in policy asks for a passkey, so an authenticator app is not enough. Set up a passkey."""


class PasskeyNotAccepted(errors.Invalid):
    """A sign-in policy does not accept passkeys. Set up an authenticator app."""


class RecoveryNotAllowed(errors.Forbidden):
    """Your organization recovers only accounts that it created and that no other one uses, but not its owner's. Ask a platform owner."""


class RecoversMoreRights(errors.Forbidden):
    """This member has rights that you don't have. Ask the owner of the organization to recover the account."""


class CannotRecoverSelf(errors.Forbidden):
    """You cannot recover your own account. Ask another admin."""


class PlatformOwnerNotRecovered(errors.Forbidden):
    """Platform owners are recovered on the server: gatehouse owner recover EMAIL --reset-factors."""


class RecoveryNotReachable(errors.Invalid):
    """Only an active account with a verified email address can be recovered, because the link goes there."""


class RecoveryNotFound(errors.NotFound):
    """This account has no open recovery."""
