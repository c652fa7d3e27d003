"""A statement in a connection's queue, and its named placeholders."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

from psycopg import pq
from psycopg.abc import Buffer
from psycopg.adapt import PyFormat

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


# The service has fewer texts than the limit. The limit protects the memory from texts that differ
# at every call.
CACHED_TEXTS: Final = 2000

_PLACEHOLDER: Final = re.compile(r"%(?:\((\w+)\)s|(%)|)")


class PositionalText(NamedTuple):
    """A statement's text with `$1`, `$2` and so on, and the parameter names."""

    sql: bytes
    names: tuple[str, ...]
    values_of: Callable[[Mapping[str, object]], Sequence[object]]  # returns the parameter values in the order of `names`
    formats: list[PyFormat]  # per parameter: as psycopg's cursors choose it


@lru_cache(CACHED_TEXTS)
def to_positional(text: str) -> PositionalText:
    """Replace every `%(name)s` by a position, and `%%` by `%`. Raises: ValueError if another `%` is in the text."""
    numbers: dict[str, int] = {}

    def replace(match: re.Match[str]) -> str:
        name, percent = match.groups()
        if name:
            return f"${numbers.setdefault(name, len(numbers) + 1)}"
        if not percent:
            raise ValueError(f"write %% or %(name)s at position {match.start()} of the statement: {text}")
        return "%"

    sql = _PLACEHOLDER.sub(replace, text)
    names = tuple(numbers)
    # `itemgetter` is five times as fast, but returns no sequence for a single name.
    values_of = itemgetter(*names) if len(names) > 1 else lambda parameters: [parameters[name] for name in names]
    return PositionalText(sql.encode(), names, values_of, [PyFormat.AUTO] * len(numbers))
