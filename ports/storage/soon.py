"""What a statement finds, before it is awaited."""

from typing import Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Soon(Protocol[T_co]):
    """What one statement finds, sent along with the next one of its transaction to save a round trip."""

    @property
    def value(self) -> T_co | None:
        """Known when that one has been awaited."""
        ...
