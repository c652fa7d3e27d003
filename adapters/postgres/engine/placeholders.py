"""Named placeholders of a statement, compiled once for each text into the positional ones of the protocol."""

import re
from functools import lru_cache
from typing import Final, NamedTuple

from psycopg.adapt import PyFormat

# The service has fewer texts. The limit protects the memory from texts that differ at each call.
CACHED_TEXTS: Final = 2000

_PLACEHOLDER: Final = re.compile(r"%(?:\((\w+)\)s|(%)|)")


class PositionalText(NamedTuple):
    """The text of a statement with `$1`, `$2` and so on, and the name of each parameter."""

    sql: bytes
    names: tuple[str, ...]
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
    return PositionalText(sql.encode(), tuple(numbers), [PyFormat.AUTO] * len(numbers))
