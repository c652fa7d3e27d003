"""The risk of a login: the sum of the points of its unusual properties, at most 100 (decision 83)."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

NEW_DEVICE, UNKNOWN_LOCATION, UNUSUAL_TIME, VPN_OR_PROXY, FAILED_ATTEMPT = 30, 20, 10, 10, 20
HIGHEST = 100
HIGH = 70  # above this, device trust is ignored

# The periods of logins that count, and the number of logins before an hour can be unusual.
FAILURE_PERIOD: Final = timedelta(hours=24)
HABIT_PERIOD: Final = timedelta(days=30)
MIN_LOGINS_FOR_HABIT = 10
# More failures do not raise the score, so the query stops counting here.
MAX_COUNTED_FAILURES = HIGHEST // FAILED_ATTEMPT


@dataclass(frozen=True, slots=True)
class LoginRisk:
    """The risk score of a login, and the unusual properties that added to it."""

    score: int  # 0 to 100
    factors: tuple[str, ...]

    @property
    def is_high(self) -> bool:
        """Return whether device trust is ignored, and users without a second factor are notified by email."""
        return self.score > HIGH


@dataclass(frozen=True, slots=True)
class LoginHistory:
    """A summary of a user's earlier logins, to compare a new login with."""

    failures: int  # of the last 24 hours and since the last success, at most MAX_COUNTED_FAILURES
    logins: int  # successful logins of the last 30 days, at most MIN_LOGINS_FOR_HABIT
    at_this_hour: bool  # a successful login of the last 30 days was in the same hour of the day, in UTC
    known_location: bool  # a successful login at any time came from the same location


def assess(history: LoginHistory, *, is_new_device: bool, location_is_known: bool, is_anonymized: bool) -> LoginRisk:
    """Return the risk of a login by a user with this history.

    An unknown location adds no points. `is_anonymized` means that the address belongs to a VPN or a proxy.
    """
    contributions = {
        "new_device": NEW_DEVICE if is_new_device else 0,
        "unknown_location": UNKNOWN_LOCATION if location_is_known and not history.known_location else 0,
        "unusual_time": UNUSUAL_TIME if history.logins >= MIN_LOGINS_FOR_HABIT and not history.at_this_hour else 0,
        "vpn_or_proxy": VPN_OR_PROXY if is_anonymized else 0,
        "failed_attempts": FAILED_ATTEMPT * history.failures,
    }
    return LoginRisk(min(HIGHEST, sum(contributions.values())), tuple(name for name, points in contributions.items() if points > 0))
