"""Named placeholders of a statement, compiled once for each text into the positional ones of the protocol."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Final, NamedTuple

from psycopg.adapt import PyFormat

# The service has fewer texts. The limit protects the memory from texts that differ at each call.
CACHED_TEXTS: Final = 2000

_PLACEHOLDER: Final = re.compile(r"%(?:\((\w+)\)s|(%)|)")


class PositionalText(NamedTuple):
    """The text of a statement with `$1`, `$2` and so on, and the name of each parameter."""

    sql: bytes
    names: tuple[str, ...]
    values_of: Callable[[Mapping[str, object]], Sequence[object]]  # returns the values of parameters in the order of `names`
    formats: list[PyFormat]  # of each parameter: as psycopg's cursors choose it


@lru_cache(CACHED_TEXTS)
def to_positional(text: str) -> PositionalText:
    """Replace each `%(name)s`, and `%%` by `%`. Raises: ValueError if another `%` is in the text."""
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
    # `itemgetter` is five times as fast, but returns no sequence for one name.
    values_of = itemgetter(*names) if len(names) > 1 else lambda parameters: [parameters[name] for name in names]
    return PositionalText(sql.encode(), names, values_of, [PyFormat.AUTO] * len(numbers))
