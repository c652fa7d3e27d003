"""Entities, refusals and pure rules of `core.accounts.attempt_limits`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from core.kernel.errors import Limited

if TYPE_CHECKING:
    from core.kernel.policy import Policy


class Secret(StrEnum):
    """What is being guessed."""

    PASSWORD = "password"  # noqa: S105
    PASSWORD_ON_TRUSTED_DEVICE = "password_on_trusted_device"  # noqa: S105  (security.md A-3)
    MFA = "mfa"  # by code of an app and backup code alike
    USER_CODE = "user_code"  # of devices that wait to be signed in, whoever has them


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many wrong guesses in which time; then one guess after each wait, which begins at `first_wait` and doubles to `longest_wait`.

    When nobody has guessed for `quiet` after a wait, all is forgotten.
    """

    limit: int
    window: timedelta
    first_wait: timedelta = timedelta(seconds=30)
    longest_wait: timedelta = timedelta(minutes=15)
    quiet: timedelta = timedelta(minutes=15)


class TooManyGuesses(Limited):
    """Too many attempts."""

    def __init__(self, retry_after: float, secret: Secret = Secret.PASSWORD) -> None:
        super().__init__(retry_after)
        match secret:
            case Secret.PASSWORD | Secret.PASSWORD_ON_TRUSTED_DEVICE:
                self.message = f"Too many attempts. Try again in {self.retry_after} s, or reset the password."
            case Secret.MFA | Secret.USER_CODE:
                self.message = f"Too many codes. Try again in {self.retry_after} s."


def allowance(policy: Policy, secret: Secret) -> Allowance:
    """How often it may be guessed."""
    window = policy.guess_window
    if secret in (Secret.MFA, Secret.USER_CODE):  # after so many wrong codes none at all for as long, and then so many again (M-2, V-2)
        limit = policy.mfa_guess_limit if secret is Secret.MFA else policy.account_guess_limit
        return Allowance(limit, window, first_wait=window, longest_wait=window, quiet=timedelta(0))
    return Allowance(policy.account_guess_limit, window, quiet=window)


def judge(secret: Secret, blocked_until: datetime | None, now: datetime) -> None:
    """Raises TooManyGuesses if a guess was not counted because it must wait until then."""
    if blocked_until is not None:
        raise TooManyGuesses((blocked_until - now).total_seconds(), secret)
