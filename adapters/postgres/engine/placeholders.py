"""Named placeholders in a statement. Every text is compiled once into the protocol's positional placeholders."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Final, NamedTuple

from psycopg.adapt import PyFormat

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
