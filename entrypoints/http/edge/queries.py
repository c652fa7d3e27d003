"""Query parameters and ids in paths. Numbers are clamped into their range, and other invalid values are refused."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import unquote_to_bytes
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from quart import request

from core.kernel.errors import Invalid
from core.kernel.values import Page, parse_id
from entrypoints.http.base.context import current_request
from entrypoints.http.edge import bodies
from entrypoints.http.edge.typed_fields import as_api_reads
from entrypoints.http.edge.validation import validate

MAX_FIELDS = 500  # more than there are event types, which are boxes of a form
MAX_LIMIT = 100
MAX_SHOWN_NAME = 50  # characters from a parameter's name in an error
LARGEST = 2**31 - 1  # the product of two such numbers fits into a bigint
_REPEATABLE: Final = "_repeatable_parameters"  # a view's attribute; `functools.wraps` copies it
Q = TypeVar("Q", bound="Query")
_INTEGER = re.compile(r"[+-]?[0-9]+")


class TooManyFields(Invalid):
    """The query has too many fields. Send at most 500."""


class QueryNotUtf8(Invalid):
    """The query is not valid UTF-8. Percent-encode it in UTF-8."""


class DuplicateParameter(Invalid):
    """The request has the same parameter twice. Send each parameter once."""

    def __init__(self, name: str) -> None:
        super().__init__(f"The request has the parameter {name[:MAX_SHOWN_NAME]!r} twice. Send each parameter once.")


def repeatable(*names: str) -> Callable[[bodies.View], bodies.View]:
    """Let a request repeat the parameters with these names, in the query or in a form. Read them with `joined_query`.

    The decorator stands below the access decorator.
    """

    def decorate(view: bodies.View) -> bodies.View:
        setattr(view, _REPEATABLE, frozenset(names))
        return view

    return decorate


def repeatable_parameters(view: Callable[..., Any]) -> frozenset[str]:
    """Return which parameters a request to this view can repeat, by name."""
    names: frozenset[str] = getattr(view, _REPEATABLE, frozenset())
    return names


def joined_query() -> dict[str, str]:
    """Return the current request's query. A repeated parameter's values are joined by spaces."""
    return {name: " ".join(values) for name, values in request.args.lists()}


def check_query(listed: frozenset[str] = frozenset()) -> None:
    """Check the current request's query. No parameter may be repeated, except the parameters in `listed`."""
    raw = current_request().query_string
    if not raw:
        return
    if raw.count(b"&") >= MAX_FIELDS:
        raise TooManyFields
    if b"%" in raw or not raw.isascii():
        try:  # strictly, because the framework would insert replacement characters
            unquote_to_bytes(raw).decode("utf-8")
        except UnicodeDecodeError:
            raise QueryNotUtf8 from None
    if b"&" in raw:
        for name, values in request.args.lists():
            if len(values) > 1 and name not in listed:
                raise DuplicateParameter(name)


class Query(BaseModel):
    """A query string. Unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, defer_build=True)


def read_query(model: type[Q], *, is_of_page: bool) -> Q:
    """Return the current request's query. No parameter is a list. Forms send their page's query."""
    # Some clients write a list as `name[]=value`, which must not count as an unknown field.
    fields = {name.removesuffix("[]"): [value] if name.endswith("[]") else value for name, value in request.args.items()}
    return validate(model, as_api_reads(fields) if is_of_page else fields)


def clamped(value: Any, least: int, most: int) -> int:
    """Return the integer in a text, clamped into the range. Raises: ValueError if the text is not an integer."""
    if not isinstance(value, str) or not _INTEGER.fullmatch(value):
        raise ValueError("it must be an integer")
    # Any size is accepted (security N-6), also more digits than Python converts.
    digits = value.lstrip("+-").lstrip("0") or "0"
    size = int(digits) if len(digits) <= len(str(LARGEST)) else LARGEST
    return max(least, min(-size if value[0] == "-" else size, most))


def _clamped(least: int, most: int) -> BeforeValidator:
    return BeforeValidator(lambda value: clamped(value, least, most))


def _described(text: str, least: int, default: int | None, most: int | None = None) -> WithJsonSchema:
    """Return the schema. It has no bounds: a number beyond a bound is answered as if it were the bound."""
    bounds = f"A number below {least} counts as {least}" + ("." if most is None else f", and one above {most} as {most}.")
    schema: dict[str, Any] = {"type": "integer", "default": default}
    if default is None:
        schema = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    return WithJsonSchema({**schema, "description": f"{text} {bounds}"})


PageNumber = Annotated[int, _clamped(1, LARGEST), _described("The number of the page, starting at 1.", 1, 1)]
Limit = Annotated[int, _clamped(1, MAX_LIMIT), _described("The number of items per page.", 1, 50, MAX_LIMIT)]
SearchLimit = Annotated[int, _clamped(1, MAX_LIMIT), _described("The number of items per page.", 1, 20, MAX_LIMIT)]
Offset = Annotated[int, _clamped(0, LARGEST), _described("The number of items to skip.", 0, 0)]
# Without a maximum.
RecentLimit = Annotated[int, _clamped(1, LARGEST), _described("The number of items. There is no maximum.", 1, 10)]
# For lists without a maximum length. Without the parameter, the response is the whole list.
AnyLimit = Annotated[int | None, _clamped(1, LARGEST), _described("The number of items. Without it, the list is complete.", 1, None)]


def _read_flag(value: Any) -> bool:
    # Case does not matter, because Python clients send True. Other spellings (1, yes, on) are
    # refused.
    known = {"true": True, "false": False}
    if not isinstance(value, str) or value.lower() not in known:
        raise ValueError("it must be 'true' or 'false'")
    return known[value.lower()]


Flag = Annotated[bool, BeforeValidator(_read_flag)]


class Pagination(bodies.ResponseModel):
    """This page's position in the list."""

    page: int = Field(description="The number of this page, starting at 1.")
    limit: int = Field(description="The number of items per page.")
    total: int = Field(description="The number of items on all pages.")
    total_pages: int = Field(description="The number of pages.")
    has_next: bool = Field(description="Whether there is a next page.")
    has_prev: bool = Field(description="Whether there is a previous page.")


class PageQuery(Query):
    """The page of a list."""

    page: PageNumber = 1
    limit: Limit = 50

    def page_request(self) -> Page:
        """Return the requested page."""
        return Page(self.page, self.limit)

    def pagination(self, total: int) -> Pagination:
        """Return the requested page's position in a list with `total` items."""
        pages = -(-total // self.limit)
        return Pagination(
            page=self.page, limit=self.limit, total=total, total_pages=pages, has_next=self.page < pages, has_prev=self.page > 1
        )


class PartQuery(Query):
    """The part of a list."""

    limit: Limit = 50
    offset: Offset = 0


NO_ID = UUID(int=0)  # no generated id has this value


def path_id(text: str) -> UUID:
    """Return the id in a path. If it is not a canonical UUID, return an id that nothing has (security T-4).

    The use case then refuses unknown and malformed ids in the same way.
    """
    return parse_id(text) or NO_ID
