"""A statement in a connection's queue."""

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import pq
from psycopg.abc import Buffer

Row = tuple[Any, ...]
Key = tuple[bytes, tuple[int, ...]]  # a text, and its parameters' types as object ids


class Statement:
    """A statement in its connection's queue. The round trip sets the result and the rows, or its error."""

    __slots__ = ("error", "formats", "is_done", "key", "refusals", "result", "rows", "values")

    result: pq.abc.PGresult

    def __init__(
        self,
        key: Key,
        values: Sequence[Buffer | None],
        formats: list[pq.Format] | None,
        refusals: Mapping[str, type[Exception]],
    ) -> None:
        self.key = key
        self.values = values
        self.formats = formats
        self.refusals = refusals
        self.is_done = False
        self.rows: list[Row] = []
        self.error: Exception | None = None

    @property
    def affected(self) -> int:
        """Return how many rows were affected, or -1 for a statement that affects none. The statement has its result."""
        count = self.result.command_tuples
        return -1 if count is None else count
