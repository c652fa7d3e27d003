"""Entities, refusals and pure rules of `core.accounts.attempt_limits`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from core.kernel.errors import Limited

if TYPE_CHECKING:
    from core.kernel.policy import Policy


class SecretKind(StrEnum):
    """What is being guessed."""

    PASSWORD = "password"  # noqa: S105
    PASSWORD_ON_TRUSTED_DEVICE = "password_on_trusted_device"  # noqa: S105  (security.md A-3)
    MFA = "mfa"  # by code of an app and backup code alike
    USER_CODE = "user_code"  # of devices that wait to be signed in, whoever has them


@dataclass(frozen=True, slots=True)
class AttemptLimit:
    """How many wrong guesses in which time; then one guess after each wait, which begins at `first_wait` and doubles to `longest_wait`.

    When nobody has guessed for `quiet` after a wait, all is forgotten.
    """

    limit: int
    window: timedelta
    first_wait: timedelta = timedelta(seconds=30)
    longest_wait: timedelta = timedelta(minutes=15)
    quiet: timedelta = timedelta(minutes=15)


class TooManyAttempts(Limited):
    """Too many attempts."""

    def __init__(self, retry_after: float, secret: SecretKind = SecretKind.PASSWORD) -> None:
        super().__init__(retry_after)
        match secret:
            case SecretKind.PASSWORD | SecretKind.PASSWORD_ON_TRUSTED_DEVICE:
                self.message = f"Too many attempts. Try again in {self.retry_after} s, or reset the password."
            case SecretKind.MFA | SecretKind.USER_CODE:
                self.message = f"Too many codes. Try again in {self.retry_after} s."


def attempt_limit(policy: Policy, secret: SecretKind) -> AttemptLimit:
    """How often it may be guessed."""
    window = policy.guess_window
    if secret in (SecretKind.MFA, SecretKind.USER_CODE):  # after so many wrong codes none at all for as long, and then so many again (M-2, V-2)
        limit = policy.mfa_guess_limit if secret is SecretKind.MFA else policy.account_guess_limit
        return AttemptLimit(limit, window, first_wait=window, longest_wait=window, quiet=timedelta(0))
    return AttemptLimit(policy.account_guess_limit, window, quiet=window)


def raise_if_locked(secret: SecretKind, blocked_until: datetime | None, now: datetime) -> None:
    """Raises TooManyGuesses if a guess was not counted because it must wait until then."""
    if blocked_until is not None:
        raise TooManyAttempts((blocked_until - now).total_seconds(), secret)
