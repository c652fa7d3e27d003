"""The limits on failed attempts to guess a secret (security A-3, M-2, V-2)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from core.kernel.errors import Limited
from core.kernel.policy import Policy
from core.kernel.values import digest


class SecretKind(StrEnum):
    """The kind of secret that an attempt is counted for."""

    PASSWORD = "password"  # noqa: S105
    MFA = "mfa"  # authenticator app codes and backup codes together
    USER_CODE = "user_code"  # user codes in the device flow
    EMAIL_CODE = "email_code"  # codes for sign-ins by email, per address


@dataclass(frozen=True, slots=True)
class AttemptLimit:
    """A limit on failed attempts: `limit` attempts within `window`, then a single attempt after every wait.

    The waits begin at `first_wait` and double up to `longest_wait`. If no attempt follows for
    `quiet` after a wait, the count starts again.
    """

    limit: int
    window: timedelta
    first_wait: timedelta = timedelta(seconds=30)
    longest_wait: timedelta = timedelta(minutes=15)
    quiet: timedelta = timedelta(minutes=15)


class TooManyAttempts(Limited):
    """Too many attempts. Try again later."""

    def __init__(self, retry_after: float, secret: SecretKind = SecretKind.PASSWORD) -> None:
        super().__init__(retry_after)
        match secret:
            case SecretKind.PASSWORD:
                self.message = f"Too many attempts. Try again in {self.wait}, or reset the password."
            case SecretKind.EMAIL_CODE:
                self.message = f"Too many codes. Try again in {self.wait}, or use the link in the email."
            case SecretKind.MFA | SecretKind.USER_CODE:
                self.message = f"Too many codes. Try again in {self.wait}."


def attempt_limit(policy: Policy, secret: SecretKind) -> AttemptLimit:
    """Return the limit for a kind of secret."""
    window = policy.guess_window
    if secret in (SecretKind.MFA, SecretKind.USER_CODE, SecretKind.EMAIL_CODE):
        # After the limit, no code is checked for a whole window. Then the full number is allowed
        # again (security M-2, V-2).
        limit = policy.mfa_guess_limit if secret is SecretKind.MFA else policy.account_guess_limit
        return AttemptLimit(limit, window, first_wait=window, longest_wait=window, quiet=timedelta(0))
    return AttemptLimit(policy.account_guess_limit, window, quiet=window)


def raise_if_locked(secret: SecretKind, blocked_until: datetime | None, now: datetime) -> None:
    """Refuse an attempt that was not counted because it must wait until `blocked_until`."""
    if blocked_until is not None:
        raise TooManyAttempts((blocked_until - now).total_seconds(), secret)


def session_subject(session_id: UUID) -> bytes:
    """Return the subject of wrong first factors in this session. A stranger cannot use up these attempts."""
    return digest(f"session {session_id}")
