"""Reading requests strictly: our own JSON decoding, and the field types that all bodies are made of (security.md N-3 to N-5)."""

import json
import math
import re
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn, cast
from urllib.parse import unquote_to_bytes
from uuid import UUID

import trio
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema
from quart import request
from quart_trio.wrappers import TrioRequest
from werkzeug.exceptions import UnsupportedMediaType

from core.kernel.errors import Invalid, Refusal
from core.kernel.values import KEEP, Domain, Email, T, is_printable, parse_id, rfc3339
from entrypoints.http.edge.error_body import speaks_scim

MAX_BODY = 256 * 1024
# Of SCIM, and of what changes its group, which may name very many members (security.md N-3).
MAX_SCIM_BODY = 1024 * 1024
MAX_SCIM_GROUP_BODY = 16 * 1024 * 1024
LARGE_BODY = 64 * 1024
MAX_DEPTH = 32
MAX_INTEGER_DIGITS = 19  # as many as 2**63 - 1 has
MAX_TEXT = 2048
MAX_ITEMS = 100


MAX_QUERY_FIELDS = 100

# One at a time: what is read takes many times the memory that it has as bytes.
_large_bodies = trio.CapacityLimiter(1)


class TooManyFields(Invalid):
    """The query has too many fields."""


class QueryNotUtf8(Invalid):
    """The query is not UTF-8."""


def check_query() -> None:
    """Raises TooManyFields, QueryNotUtf8."""
    raw = request.query_string
    if raw.count(b"&") >= MAX_QUERY_FIELDS:
        raise TooManyFields
    if b"%" in raw or not raw.isascii():
        try:  # strictly, as bodies are read; the framework would put replacement characters in, and something else would be looked for
            unquote_to_bytes(raw).decode("utf-8")
        except UnicodeDecodeError:
            raise QueryNotUtf8 from None


class BodyInvalid(Invalid):
    """The body is not valid JSON."""

    scim_type = "invalidSyntax"


class BodyNotAnObject(BodyInvalid):
    """The body must be a JSON object."""


def decode(raw: bytes) -> dict[str, Any]:
    """The object that a JSON body holds.

    Strict UTF-8, no duplicate names, no NaN or Infinity, integers of at most 19 digits, at most 32 levels, no lone surrogates; the
    framework's own parser answers some of these with 500 and some with None. Raises BodyInvalid.
    """
    try:
        value = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_constant=_refuse_constant,
            parse_int=_bounded,
            parse_float=_finite,
        )
        _check_depth(value, MAX_DEPTH)
        if b"\\u" in raw:
            # An escaped lone surrogate passes the decoder, and nothing that stores text takes it.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        raise BodyInvalid from None
    if not isinstance(value, dict):
        raise BodyNotAnObject
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("duplicate name")
    return value


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError("not JSON")


def _bounded(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_INTEGER_DIGITS:
        raise ValueError("integer too large")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError("number too large")
    return value


def _check_depth(value: Any, left: int) -> None:
    if not isinstance(value, dict | list):
        return
    if left == 0:
        raise ValueError("too deep")
    for item in value.values() if isinstance(value, dict) else value:
        _check_depth(item, left - 1)


def body_limit(path: str) -> int:
    """How many bytes a body may have that is sent there (security.md N-3)."""
    if not speaks_scim(path):
        return MAX_BODY
    return MAX_SCIM_GROUP_BODY if path.startswith("/scim/v2/Groups/") else MAX_SCIM_BODY


class StrictRequest(TrioRequest):
    """A request whose JSON is decoded by us. An absent body is an empty object; a body of another kind is 415 (G-3)."""

    def __init__(self, method: str, scheme: str, path: str, *given: Any, **named: Any) -> None:
        # The outer layer has measured what comes in; this is for whoever leaves it out.
        super().__init__(method, scheme, path, *given, **{**named, "max_content_length": body_limit(path)})

    async def get_json(self, force: bool = False, silent: bool = False, cache: bool = True) -> Any:
        return await self.read_json(lambda body: body, cache=cache)

    async def read_json(self, read: Callable[[dict[str, Any]], T], *, cache: bool = True) -> T:
        """What becomes of the body. In a thread, if it is a large one, so that nobody else waits; there it is also thrown away."""
        raw = await self.get_data(cache=cache, as_text=False, parse_form_data=False)
        if not raw:
            return read({})
        if not self.is_json:
            raise UnsupportedMediaType
        if len(raw) <= LARGE_BODY:
            return read(decode(raw))
        return await trio.to_thread.run_sync(lambda: _read_aside(read, raw), limiter=_large_bodies)


def _read_aside(read: Callable[[dict[str, Any]], T], raw: bytes) -> T:
    try:
        return read(decode(raw))
    except Refusal as refused:
        # What was read so far would hang on to the refusal, and be thrown away where others wait.
        refused.__context__ = None
        raise refused.with_traceback(None) from None


async def read_beside(read: Callable[[dict[str, Any]], T]) -> T:
    """What becomes of the body of this request (StrictRequest.read_json)."""
    return await cast("StrictRequest", request).read_json(read)


class RequestModel(BaseModel):
    """A JSON body: no coercion ("5" is not 5), unknown fields ignored."""

    model_config = ConfigDict(strict=True, frozen=True)


def maybe(**limits: Any) -> Any:
    """The default of a field that may be left out, and null only if its type says so. It is KEEP then, for the use case to see."""
    return Field(default=KEEP, json_schema_extra=_without_default, **limits)


def _without_default(schema: dict[str, Any]) -> None:
    del schema["default"]


class ResponseModel(BaseModel):
    """A JSON answer: names every field that goes out, so that nothing else can."""

    model_config = ConfigDict(frozen=True)


def _plain(text: str) -> str:
    if not is_printable(text):
        raise ValueError("it holds characters that are not allowed")
    return text


def _trimmed(most: int) -> Callable[[str], str]:
    def trim(text: str) -> str:
        trimmed = _plain(text).strip()
        if not 0 < len(trimmed) <= most:
            raise ValueError(f"it must have 1 to {most} characters")
        return trimmed

    return trim


def _readable(name: str) -> str:
    if "=?" in name:
        raise ValueError('it must not hold "=?", with which mail programs begin an encoded word')
    if not any(unicodedata.category(letter)[0] in "LNPS" for letter in name):
        raise ValueError("it must have a character that can be seen")
    return name


def _described(most: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "minLength": 1, "maxLength": most})


def _id(value: Any) -> UUID:
    found = parse_id(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("it must be a UUID")
    return found


def _domain(text: str) -> str:
    return Domain.parse(text.strip(" "))


# RFC 3339 section 5.6, and what ISO 8601 lets one leave out: the seconds, and the minutes of the offset or their colon.
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,12})?)?(Z|[+-]\d\d(:?\d\d)?)", re.ASCII | re.IGNORECASE)
_YEARS = range(2, 9999)  # without the first and the last, so that there is such a time in every offset


def _moment(value: Any) -> datetime:
    try:
        if not isinstance(value, str) or not _MOMENT.fullmatch(value):
            raise ValueError
        # Python knows no year 0, which is a year of RFC 3339.
        time = None if value.startswith("0000") else datetime.fromisoformat(value.upper())
    except ValueError:
        raise ValueError("it must be a time with its offset, such as 2026-03-14T15:09:26Z") from None
    if time is None or time.year not in _YEARS:
        raise ValueError("it must be a time in the years 0002 to 9998")
    return time.astimezone(UTC)


Text = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(_plain)]
# What people call a thing, and why they did something: trimmed, and not empty then (decisions, point 21).
Name = Annotated[str, AfterValidator(_trimmed(100)), AfterValidator(_readable), _described(100)]
Reason = Annotated[str, AfterValidator(_trimmed(500)), _described(500)]
# Passwords are compared as they come, so nothing but their length is judged, and that by the use case.
PasswordText = Annotated[str, Field(max_length=MAX_TEXT), WithJsonSchema({"type": "string", "format": "password"})]
Texts = Annotated[list[Text], Field(max_length=MAX_ITEMS)]
# In its canonical form only, as in paths; one that nothing has is the use case's to refuse (decisions, point 8).
Id = Annotated[UUID, BeforeValidator(_id), WithJsonSchema({"type": "string", "format": "uuid"})]
# A point in time, of whatever offset (decisions, point 24); without one it would be a different moment everywhere.
DateTime = Annotated[datetime, BeforeValidator(_moment), WithJsonSchema({"type": "string", "format": "date-time"})]
# EmailInvalid is not a ValueError, so it passes through validation and says its own sentence.
EmailAddress = Annotated[
    str, Field(max_length=MAX_TEXT), AfterValidator(Email.parse), WithJsonSchema({"type": "string", "format": "email", "maxLength": 254})
]
# As DomainInvalid does.
DomainName = Annotated[
    str, Field(max_length=MAX_TEXT), AfterValidator(_domain), WithJsonSchema({"type": "string", "format": "idn-hostname", "maxLength": 253})
]


# In an answer; the framework's own form of a time is that of HTTP headers.
Timestamp = Annotated[
    datetime, PlainSerializer(rfc3339, return_type=str), WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization")
]


class Message(ResponseModel):
    """What was done, in a sentence."""

    message: str


class Empty(ResponseModel):
    """It was done, and there is nothing to say about it."""
