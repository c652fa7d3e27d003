"""The result of a statement that is sent together with the next one."""

from typing import Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Deferred(Protocol[T_co]):
    """The result of a statement that is sent together with the next statement of its transaction, to save a round trip."""

    @property
    def value(self) -> T_co | None:
        """The result, or None if the statement found no row. It is known after the next statement was awaited."""
        ...
