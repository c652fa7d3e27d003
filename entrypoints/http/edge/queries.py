"""Query strings, and the ids in paths: clamped into range, or refused where nothing can be meant (decisions, points 8, 9 and 13)."""

import re
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, WithJsonSchema

from core.kernel.values import Page, parse_id
from entrypoints.http.edge.bodies import ResponseModel

MAX_LIMIT = 100
LARGEST = 2**31 - 1  # so that no product of two of them overflows in the database
_INTEGER = re.compile(r"[+-]?[0-9]+")


class Query(BaseModel):
    """A query string. Unknown fields are ignored."""

    model_config = ConfigDict(frozen=True)


def clamped(value: Any, least: int, most: int) -> int:
    """The integer that a text is, brought into range. Raises ValueError."""
    if not isinstance(value, str) or not _INTEGER.fullmatch(value):
        raise ValueError("it must be an integer")
    # Of any size (security.md N-6), which may be more digits than Python would turn into a number.
    digits = value.lstrip("+-").lstrip("0") or "0"
    size = int(digits) if len(digits) <= len(str(LARGEST)) else LARGEST
    return max(least, min(-size if value[0] == "-" else size, most))


def _clamped(least: int, most: int) -> BeforeValidator:
    return BeforeValidator(lambda value: clamped(value, least, most))


def _described(least: int, default: int, most: int | None = None) -> WithJsonSchema:
    limits = {} if most is None else {"maximum": most}
    return WithJsonSchema({"type": "integer", "minimum": least, "default": default, **limits})


PageNumber = Annotated[int, _clamped(1, LARGEST), _described(1, 1)]
Limit = Annotated[int, _clamped(1, MAX_LIMIT), _described(1, 50, MAX_LIMIT)]
SearchLimit = Annotated[int, _clamped(1, MAX_LIMIT), _described(1, 20, MAX_LIMIT)]
Offset = Annotated[int, _clamped(0, LARGEST), _described(0, 0)]
RecentLimit = Annotated[int, _clamped(1, LARGEST), _described(1, 10)]  # without a maximum (decisions, point 10)
# Of lists without a maximum, and without a limit unless one is given (decisions, point 10).
AnyLimit = Annotated[int | None, _clamped(1, LARGEST), WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]})]


def _read_flag(value: Any) -> bool:
    # In any case, since Python's clients write True. More that libraries take for a truth (1, yes, on) would be more to name.
    known = {"true": True, "false": False}
    if not isinstance(value, str) or value.lower() not in known:
        raise ValueError("it must be 'true' or 'false'")
    return known[value.lower()]


Flag = Annotated[bool, BeforeValidator(_read_flag)]


class PageQuery(Query):
    """Which page of a list."""

    page: PageNumber = 1
    limit: Limit = 50

    def wanted(self) -> Page:
        return Page(self.page, self.limit)


class PartQuery(Query):
    """Which part of a list."""

    limit: Limit = 50
    offset: Offset = 0


class Pagination(ResponseModel):
    """Where in a list this page is, as the server understood it."""

    page: int
    limit: int
    total: int
    total_pages: int
    has_next: bool
    has_prev: bool


def pagination(page: Page, total: int) -> Pagination:
    pages = -(-total // page.limit)
    return Pagination(
        page=page.number, limit=page.limit, total=total, total_pages=pages, has_next=page.number < pages, has_prev=page.number > 1
    )


NOBODY = UUID(int=0)  # which no generator of ours makes


def path_id(text: str) -> UUID:
    """The id that a path names; where it is not a UUID in canonical form (security.md T-4), one that nothing has.

    So the use case refuses both in one way, and at one time.
    """
    return parse_id(text) or NOBODY
