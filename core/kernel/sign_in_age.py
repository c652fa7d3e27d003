"""How old a sign-in may be for an action, because an open session is not proof enough (security A-12; RFC 9470)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from core.kernel import proofs
from core.kernel.errors import Unauthenticated
from core.kernel.policy import Policy


class SignInAge(StrEnum):
    """The sign-in that an action needs. The sign-in must have used all the account's factors, and every factor counts with its age."""

    ANY = "any"  # also an old sign-in, or a sign-in without all factors
    RECENT = "recent"  # at most `Policy.recent_sign_in_ttl` old
    FRESH = "fresh"  # at most `Policy.fresh_sign_in_ttl` old

    def limit(self, policy: Policy) -> timedelta:
        """Return how old an accepted sign-in may be. Not for ANY."""
        return policy.fresh_sign_in_ttl if self is SignInAge.FRESH else policy.recent_sign_in_ttl


class AuthenticationInsufficient(Unauthenticated):
    """Your sign-in is not enough for this. Sign in again, and use all your factors."""

    oauth_error = "insufficient_user_authentication"  # RFC 9470 section 3
    token_sent = True
    needed: Mapping[str, str] = {}  # the challenge parameters `acr_values` and `max_age`


class SignInNotRecent(AuthenticationInsufficient):
    """Confirm that it's you: call POST /api/auth/reauthenticate or sign in again, and repeat this."""

    def __init__(self, limit: timedelta, required: proofs.Strength, message: str | None = None) -> None:
        """`limit`: how old an accepted sign-in may be.

        `required`: the strength that an accepted sign-in needs, also on a trusted device.
        """
        super().__init__(message)
        acr = {"acr_values": next(acr.value for acr in proofs.Acr if acr.strength is required)} if required >= proofs.Strength.TWO else {}
        self.needed = {**acr, "max_age": str(int(limit.total_seconds()))}


@dataclass(frozen=True, slots=True)
class LastSignIn:
    """A session's last sign-in: at its start, or a later reauthentication. `at` is UTC."""

    at: datetime
    is_proof: bool  # the user took part in it (security A-12)
    strength: proofs.Strength
    required: proofs.Strength  # for a sign-in with all factors that the account has now
    second_at: datetime | None = None  # UTC, for the newest second factor; None: none is required, or it was proved with the first factor

    @property
    def is_complete(self) -> bool:
        """Whether the sign-in used all factors that the account has now."""
        return self.is_proof and self.strength >= self.required

    @property
    def oldest_at(self) -> datetime:
        """When the oldest factor in the sign-in was proved. Every factor counts with its age."""
        return min(self.at, self.second_at or self.at)

    def is_younger_than(self, limit: timedelta, now: datetime) -> bool:
        """Return whether the user proved a first factor at most `limit` ago."""
        return self.is_proof and now - self.at <= limit


def find_age_refusal(sign_in: LastSignIn | None, age: SignInAge, policy: Policy, now: datetime) -> SignInNotRecent | None:
    """Return the refusal for a session's last sign-in, or None. `sign_in` is None for a session in which the user did not sign in."""
    if is_enough(sign_in, age, policy, now):
        return None
    return SignInNotRecent(age.limit(policy), proofs.Strength.ONE if sign_in is None else sign_in.required)


def is_enough(sign_in: LastSignIn | None, age: SignInAge, policy: Policy, now: datetime) -> bool:
    """Return whether the session's last sign-in is young enough and used all factors. `sign_in` as in `find_age_refusal`."""
    return age is SignInAge.ANY or (sign_in is not None and sign_in.is_complete and now - sign_in.oldest_at <= age.limit(policy))
