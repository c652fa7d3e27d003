"""How risky a login is (identity.md section 2.5; decisions, point 83): a sum of what is unusual about it, in hundredths, 100 at most.

That somebody comes through a VPN or a proxy would add another 10, but nothing here knows of any.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

NEW_DEVICE, UNKNOWN_LOCATION, UNUSUAL_TIME, FAILED_ATTEMPT = 30, 20, 10, 20
HIGHEST = 100
HIGH = 70  # what is above this asks for additional verification

# What is looked back at, and how many logins it takes until an hour can be unusual.
FAILURES_WITHIN: Final = timedelta(hours=24)
HABITS_OF: Final = timedelta(days=30)
LOGINS_OF_A_HABIT = 10
# More failures than this change nothing, so nobody needs to count them.
FAILURES_THAT_COUNT = HIGHEST // FAILED_ATTEMPT


@dataclass(frozen=True, slots=True)
class LoginRisk:
    """What is unusual about a login: `score` in hundredths, 0 to 100, and the names of what has added to it."""

    score: int
    factors: tuple[str, ...]

    @property
    def is_high(self) -> bool:
        """Whether device trust counts for nothing, and people without a second factor are told by mail."""
        return self.score > HIGH


@dataclass(frozen=True, slots=True)
class LoginHistory:
    """What is known of somebody's earlier logins that says how unusual this one is.

    `failures` are those since the last success within 24 hours, counted as far as they count. `logins` are the successful ones of the last
    30 days, counted as far as it takes for a habit, and `at_this_hour` whether one of them was in the same hour of a day in UTC.
    `known_location` is whether any successful login came from the same place.
    """

    failures: int
    logins: int
    at_this_hour: bool
    known_location: bool


def assess(history: LoginHistory, *, is_new_device: bool, location_is_known: bool) -> LoginRisk:
    """The risk of a login by somebody with this history. A place that is not known adds nothing."""
    contributions = {
        "new_device": NEW_DEVICE if is_new_device else 0,
        "unknown_location": UNKNOWN_LOCATION if location_is_known and not history.known_location else 0,
        "unusual_time": UNUSUAL_TIME if history.logins >= LOGINS_OF_A_HABIT and not history.at_this_hour else 0,
        "failed_attempts": FAILED_ATTEMPT * history.failures,
    }
    return LoginRisk(min(HIGHEST, sum(contributions.values())), tuple(name for name, points in contributions.items() if points > 0))
