"""The findings of `gatehouse doctor`."""

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    """The result of a check."""

    GOOD = "ok"
    WARNING = "warn"
    BAD = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """The subject of a check, its result, and what to do about a problem."""

    subject: str
    health: Health
    text: str
