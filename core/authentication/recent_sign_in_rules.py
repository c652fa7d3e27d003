"""Actions that need a recent sign-in, because an open session is not proof enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from core.kernel.principals import AuthenticationInsufficient

if TYPE_CHECKING:
    from core.accounts.accounts_rules import Account

MAX_AGE: Final = timedelta(minutes=10)


class SignInNotRecent(AuthenticationInsufficient):
    """Sign in again, with your second factor if you use one, and repeat this within 10 minutes."""

    needed: Mapping[str, str] = {"max_age": str(int(MAX_AGE.total_seconds()))}

    def __init__(self, *, second_factor: bool) -> None:
        """`second_factor`: the sign-in needs it, also on a trusted device."""
        super().__init__()
        if second_factor:
            self.needed = {"acr_values": "mfa", **self.needed}


@dataclass(frozen=True, slots=True)
class SignInFacts:
    """The sign-in that started a session. `at` is UTC."""

    at: datetime
    is_granted: bool  # a code started the session, and the sign-in that approved the code may be older
    had_second_factor: bool

    def is_recent(self, account: Account, now: datetime) -> bool:
        """Return whether this sign-in to the account is recent, and used all its factors.

        A sign-in that skipped the second factor on a trusted device does not count.
        """
        has_all_factors = self.had_second_factor or account.mfa_enabled_at is None
        return not self.is_granted and has_all_factors and now - self.at <= MAX_AGE


def require_recent(sign_in: SignInFacts | None, account: Account, now: datetime) -> None:
    """Check that a sign-in to this account is recent, and used all its factors. Raises: SignInNotRecent."""
    if sign_in is None or not sign_in.is_recent(account, now):
        raise SignInNotRecent(second_factor=account.mfa_enabled_at is not None)
