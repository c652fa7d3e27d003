"""Answers of identity providers that are refused, with the names of what they contained."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from core.kernel.errors import Invalid


class AnswerRefused(Invalid):
    """Your organization's identity provider sent an answer that can't be accepted. Try again, or contact your IT department."""

    received: tuple[str, ...] = ()  # the names of its claims or attributes, if its signature was right


@contextmanager
def names_received(names: Iterable[str]) -> Iterator[None]:
    """Add the names of verified claims or attributes to a refusal of their answer."""
    try:
        yield
    except AnswerRefused as refusal:
        refusal.received = tuple(sorted({*names}))
        raise
