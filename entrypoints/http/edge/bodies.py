"""Strict request bodies: our JSON decoder, and the field types of all models (security N-3, N-4, N-5)."""

import json
import math
import re
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Final, NoReturn, ParamSpec, Self, TypeVar, cast
from uuid import UUID

import trio
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from quart import request
from quart_trio.wrappers import TrioRequest
from werkzeug.exceptions import UnsupportedMediaType

from core.kernel import errors, values
from core.kernel.shares import FairPlaces
from core.provisioning.model.directories import attributes_of_body
from entrypoints.http.base.context import directory_call
from entrypoints.http.edge import size_limits
from entrypoints.http.edge.directory.log import DirectoryCall
from entrypoints.http.edge.error_body import speaks_scim
from entrypoints.http.edge.protocol import connection

View = Callable[..., Awaitable[Any]]
P = ParamSpec("P")
R = TypeVar("R", bound="ResponseModel")

DECODED_AT_ONCE = 64 * 1024  # larger bodies are decoded in a thread
MAX_DEPTH = 32
# Commas and opening brackets in a large body. The largest group in the form with most of them has
# 1.1 million. Decoding five million empty lists stopped every request for 0.7 s.
MAX_STRUCTURE = 1_500_000
MAX_INTEGER_DIGITS = 19  # the digits in 2**63 - 1
MAX_TEXT = 2048
MAX_ITEMS = 100
MAX_NAME_LENGTH = 100

# A single thread decodes large bodies, because a decoded body takes many times the memory that its
# bytes take. Smaller bodies do not wait for large bodies.
_decoding_large = cast("trio.CapacityLimiter", FairPlaces(trio.Event, 1))
_decoding = cast("trio.CapacityLimiter", FairPlaces(trio.Event, 1))


class BodyInvalid(errors.Invalid):
    """The body is not valid JSON. Send one object in UTF-8, with each name once, at most 32 levels and integers of at most 19 digits."""

    scim_type = "invalidSyntax"


class BodyTooComplex(BodyInvalid):
    """The body has too many values. Send the members of the group in several PATCH requests."""


class BodyNotAnObject(BodyInvalid):
    """The body must be a JSON object."""


def decode(raw: bytes) -> dict[str, Any]:
    """Return the object in a JSON body.

    The body must be strict UTF-8 without duplicate names, NaN, Infinity and lone surrogates, with integers of at most
    19 digits and at most 32 levels. For some of these faults, the framework's parser responds with 500. For the rest it
    returns None.

    Raises: BodyInvalid; BodyTooComplex if it has more than MAX_STRUCTURE commas and opening brackets.
    """
    if len(raw) > MAX_STRUCTURE and sum(map(raw.count, (b",", b"[", b"{"))) > MAX_STRUCTURE:
        raise BodyTooComplex
    try:
        value = json.loads(
            raw.decode("utf-8-sig"),  # without a byte order mark, which some clients write (RFC 8259 section 8.1)
            object_pairs_hook=_without_duplicates,
            parse_constant=_refuse_constant,
            parse_int=_bounded,
            parse_float=_finite,
        )
        _check_depth(value, MAX_DEPTH)
        if b"\\u" in raw:
            # The decoder accepts an escaped lone surrogate, but the database does not.
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
    if not isinstance(value, (dict, list)):
        return
    if left == 0:
        raise ValueError("too deep")
    for item in value.values() if isinstance(value, dict) else value:
        _check_depth(item, left - 1)


def body_limit(path: str) -> int:
    """Return a path's body limit in bytes (security N-3)."""
    if not speaks_scim(path):
        return size_limits.MAX_BODY
    return size_limits.MAX_SCIM_GROUP_BODY if path.startswith("/scim/v2/Groups") else size_limits.MAX_SCIM_BODY


class StrictRequest(TrioRequest):
    """A request with our JSON decoder. A missing body is an empty object; another content type is 415 (security G-3).

    Await `body` for the bytes. The framework's method for the bytes sets a time limit, which costs as much as the rest, and the middleware
    has a shorter time limit.
    """

    body_class = connection.LazyBody
    parameter_storage_class = dict_storage_class = connection.RequestParameters
    _decoded: dict[str, Any] | None = None

    async def get_json(self, force: bool = False, silent: bool = False, cache: bool = True) -> Any:
        if self._decoded is None:
            self._decoded = await self.read_json(lambda body: body, cache=cache)
        return self._decoded

    async def read_json(self, read: Callable[[dict[str, Any]], values.T], *, cache: bool = True) -> values.T:
        """Return `read(body)`. A large body is decoded and released in a thread, so that small requests do not wait."""
        if self.content_length and not self.is_json:  # before the body arrives
            raise UnsupportedMediaType
        raw = await self.body
        if not cache:
            self.body.clear()
        if not raw:
            return read({})
        if not self.is_json:
            raise UnsupportedMediaType
        call = directory_call()
        if call is not None:
            read = _noting_attributes(call, read)
        if len(raw) <= DECODED_AT_ONCE:
            return read(decode(raw))
        limiter = _decoding_large if len(raw) > size_limits.MAX_BODY else _decoding
        return await trio.to_thread.run_sync(lambda: _read_in_thread(read, raw), limiter=limiter)


def _noting_attributes(call: DirectoryCall, read: Callable[[dict[str, Any]], values.T]) -> Callable[[dict[str, Any]], values.T]:
    def noting(body: dict[str, Any]) -> values.T:
        call.attributes = attributes_of_body(body)  # first, because reading may take the body apart
        return read(body)

    return noting


def _read_in_thread(read: Callable[[dict[str, Any]], values.T], raw: bytes) -> values.T:
    try:
        return read(decode(raw))
    except errors.Refusal as refused:
        # Without this, the refusal would keep the decoded body alive, and the event loop would
        # release it.
        refused.__context__ = None
        raise refused.with_traceback(None) from None


async def read_in_thread(read: Callable[[dict[str, Any]], values.T]) -> values.T:
    """Return `read(body)` for the current request's body, as in `StrictRequest.read_json`."""
    return await cast("StrictRequest", request).read_json(read)


# For models with only optional fields, when a request needs at least one field. The use case
# refuses an empty body.
AT_LEAST_ONE_FIELD: Final = ConfigDict(json_schema_extra={"minProperties": 1})


class RequestModel(BaseModel):
    """The base of request models. Values are not coerced ("5" is not 5), and unknown fields are ignored.

    `repeatable` are the fields with the type `RepeatableText`, for models that `forms.parameters` reads.
    """

    model_config = ConfigDict(strict=True, frozen=True, defer_build=True)
    repeatable: ClassVar[frozenset[str]] = frozenset()


def optional(**limits: Any) -> Any:
    """Return the definition of a field that may be missing. Its value is KEEP then. Null is allowed only if the type allows it."""
    return Field(default=values.KEEP, json_schema_extra=_without_default, **limits)


def _without_default(schema: dict[str, Any]) -> None:
    del schema["default"]


def absent_if_none(description: str, **others: Any) -> Any:
    """Return the definition of a response field that is left out if it is None."""
    return Field(default=None, exclude_if=lambda value: value is None, description=description, **others)


class ResponseModel(BaseModel):
    """The base of response models. Only declared fields are sent."""

    model_config = ConfigDict(frozen=True, defer_build=True, from_attributes=True)

    @classmethod
    def of(cls, record: object, /, **others: object) -> Self:
        """Return the response for a record: its attributes are the fields with the same names, also in nested models.

        `others` are the fields that the record does not have, or has in a different form.

        Raises: ValidationError, AttributeError if the record does not fit the model.
        """
        if not others:
            return cls.model_validate(record)
        for name in cls.__pydantic_fields__:
            if name not in others:
                others[name] = getattr(record, name)
        return cls.model_validate(others)

    @classmethod
    def list_of(cls, records: Iterable[object]) -> list[Self]:
        """Return the responses for records, as in `of`."""
        return [cls.model_validate(record) for record in records]


def fields_of(model: Callable[P, R]) -> Callable[P, R]:
    """Return a function that only collects an item's fields, for a list that its response model validates in a single step.

    A model that is created by itself is validated by itself, which takes three times as long for a page with 50 items.
    For mypy, the result is the model. It is a dictionary, so pass it to another model and nothing else.
    """
    return cast("Callable[P, R]", dict)


def _printable(text: str) -> str:
    if not values.is_printable(text):
        raise ValueError("it contains characters that are not allowed")
    return text


def _trimmed(most: int) -> Callable[[str], str]:
    def trim(text: str) -> str:
        trimmed = _printable(text).strip()
        if not 0 < len(trimmed) <= most:
            raise ValueError(f"it must have 1 to {most} characters")
        return trimmed

    return trim


def _readable(name: str) -> str:
    if "=?" in name:
        raise ValueError('it must not contain "=?", which starts an encoded word in emails')
    if not values.is_visible(name):
        raise ValueError("it must contain a visible character")
    return name


def _described(most: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "minLength": 1, "maxLength": most})


def _join_texts(value: Any) -> Any:
    return " ".join(value) if isinstance(value, list) and all(isinstance(text, str) for text in value) else value


def _id(value: Any) -> UUID:
    id_ = values.parse_id(value) if isinstance(value, str) else None
    if id_ is None:
        raise ValueError("it must be a UUID")
    return id_


def _domain(text: str) -> str:
    return values.Domain.parse(text.strip(" "))


# RFC 3339 section 5.6. As in ISO 8601, the seconds may be missing, and the offset's minutes or
# their colon.
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,12})?)?(Z|[+-]\d\d(:?\d\d)?)", re.ASCII | re.IGNORECASE)
_YEARS = range(2, 9999)  # without the first and the last year, so that every offset can be applied


def _timestamp(value: Any) -> datetime:
    try:
        if not isinstance(value, str) or not _TIMESTAMP.fullmatch(value):
            raise ValueError
        # RFC 3339 has a year 0, Python does not.
        time = None if value.startswith("0000") else datetime.fromisoformat(value.upper())
    except ValueError:
        raise ValueError("it must be a time with its offset, such as 2026-03-14T15:09:26Z") from None
    if time is None or time.year not in _YEARS:
        raise ValueError("it must be a time in the years 0002 to 9998")
    return time.astimezone(UTC)


# After a text's limit: a limit behind it would count items.
PRINTABLE: Final = AfterValidator(_printable)
Text = Annotated[str, Field(max_length=MAX_TEXT), PRINTABLE]
TokenText = Annotated[str, Field(max_length=8 * 1024), AfterValidator(_printable)]  # tokens and assertions are longer than other texts
# Names, reasons and descriptions are trimmed, and must not be empty.
Name = Annotated[str, AfterValidator(_trimmed(MAX_NAME_LENGTH)), AfterValidator(_readable), _described(MAX_NAME_LENGTH)]
Reason = Annotated[str, AfterValidator(_trimmed(500)), _described(500)]
Description = Annotated[str, AfterValidator(_trimmed(200)), AfterValidator(_readable), _described(200)]
# Passwords are not changed. The use case checks their length.
PasswordText = Annotated[str, Field(max_length=MAX_TEXT), WithJsonSchema({"type": "string", "format": "password"})]
# A parameter that a form can repeat, and a list in JSON. The value is a single text, joined by
# spaces.
RepeatableText = Annotated[
    str,
    Field(max_length=MAX_TEXT),  # first, so that it limits a text: its error counts characters
    BeforeValidator(_join_texts),
    AfterValidator(_printable),
    WithJsonSchema({"type": "array", "items": {"type": "string", "maxLength": MAX_TEXT}}),
]
Texts = Annotated[list[Text], Field(max_length=MAX_ITEMS)]
# Only a UUID's canonical form. The use case refuses unknown ids.
Id = Annotated[UUID, BeforeValidator(_id), WithJsonSchema({"type": "string", "format": "uuid"})]
# A point in time with any offset. The offset is required, or the time would be
# ambiguous.
DateTime = Annotated[datetime, BeforeValidator(_timestamp), WithJsonSchema({"type": "string", "format": "date-time"})]
# EmailInvalid is not a ValueError, so pydantic passes it on with its own message.
EmailAddress = Annotated[
    str,
    Field(max_length=MAX_TEXT),
    AfterValidator(values.Email.parse),
    WithJsonSchema({"type": "string", "format": "email", "maxLength": 254}),
]
# So is DomainInvalid.
DomainName = Annotated[
    str, Field(max_length=MAX_TEXT), AfterValidator(_domain), WithJsonSchema({"type": "string", "format": "idn-hostname", "maxLength": 253})
]


# A time in a response. pydantic formats a time in UTC as `rfc3339` does, with a Z.
Timestamp = Annotated[datetime, AfterValidator(lambda time: time.astimezone(UTC))]


class Message(ResponseModel):
    """A message about the result."""

    message: str = Field(description="The result in one sentence.")


class Empty(ResponseModel):
    """An empty object: the request succeeded."""
