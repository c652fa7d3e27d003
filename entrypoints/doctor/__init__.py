"""The checks of `gatehouse doctor` and their findings. Platform owners can see them on a page, too."""

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    """A check's result."""

    GOOD = "ok"
    WARNING = "warn"
    BAD = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """A check's subject, its result, and what to do about a problem."""

    subject: str
    health: Health
    text: str
