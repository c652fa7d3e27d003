"""Answers of identity providers that are refused, with the names of what they contained."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from math import ceil
from typing import Final

from core.kernel.errors import Invalid

CLOCK_SKEW: Final = timedelta(seconds=60)  # tolerated between the identity provider's clock and ours, unless the connection sets another
MAX_CLOCK_SKEW: Final = timedelta(minutes=5)  # that a connection can set
_MAX_SECONDS: Final = 2**31 - 1  # that the sign-in log stores


class AnswerRefused(Invalid):
    """Your organization's identity provider sent an answer that can't be accepted. Try again, or contact your IT department."""

    received: tuple[str, ...] = ()  # the names of its claims or attributes, if its signature was right
    # By how much a refused time is ahead of our clock, or if negative behind it. None: the refusal is not about such a time.
    seconds_off: int | None = None


def to_seconds_off(seconds: float) -> int:
    """Return a difference as the sign-in log stores it, rounded up: the times of tokens have no fraction of a second."""
    return ceil(max(-_MAX_SECONDS, min(seconds, _MAX_SECONDS)))


@contextmanager
def names_received(names: Iterable[str]) -> Iterator[None]:
    """Add the names of verified claims or attributes to a refusal of their answer."""
    try:
        yield
    except AnswerRefused as refusal:
        refusal.received = tuple(sorted({*names}))
        raise
