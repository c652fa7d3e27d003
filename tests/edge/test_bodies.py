"""Request bodies: the accepted JSON, and strict field reading (security G-3, N-3, N-4, N-5)."""

import json
import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from quart_trio import QuartTrio

from core.kernel.errors import Invalid
from core.kernel.values import KEEP, Email, EmailInvalid
from entrypoints.http.edge import bodies
from entrypoints.http.edge.bodies import (
    DECODED_AT_ONCE,
    MAX_STRUCTURE,
    BodyInvalid,
    BodyNotAnObject,
    BodyTooComplex,
    DateTime,
    EmailAddress,
    Name,
    PasswordText,
    Reason,
    RequestModel,
    ResponseModel,
    Text,
    Timestamp,
    decode,
    optional,
)
from entrypoints.http.edge.size_limits import MAX_BODY
from ports import Ports
from tests.support.builders import Api, add_account
from tests.support.direct import ask
from tests.tables import table

STEADY = settings(max_examples=100)

PLAIN_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
INTEGERS = st.integers(min_value=-(10**18), max_value=10**18)
VALUES = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | PLAIN_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PLAIN_TEXT, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@STEADY
@given(value=st.dictionaries(PLAIN_TEXT, VALUES), escaped=st.booleans())
def test_all_kinds_of_json_values_are_read(value: dict[str, Any], escaped: bool) -> None:
    assert decode(json.dumps(value, ensure_ascii=escaped).encode("utf-8")) == value


async def test_a_large_body_does_not_block_other_requests(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []

    def decoded(raw: bytes) -> dict[str, Any]:
        threads.append(threading.current_thread() is threading.main_thread())
        return decode(raw)

    monkeypatch.setattr(bodies, "decode", decoded)
    for size, status in ((10, 401), (DECODED_AT_ONCE, 401), (MAX_BODY + 1, 413)):
        answer = await api.post("/api/auth/login", {"email": "ada@example.com", "password": "x" * 128, "more": "y" * size})
        assert answer.status == status
    assert threads == [True, False]


def test_a_body_with_too_many_values_is_refused() -> None:
    """Decoding it would stop all other requests."""
    for value in ("[]", "{}", "0", "[" * 30 + "]" * 30):
        raw = ('{"x":[' + ",".join([value] * (MAX_STRUCTURE + 1)) + "]}").encode()
        with pytest.raises(BodyTooComplex):
            decode(raw)


@pytest.mark.slow
@STEADY
@given(raw=st.binary() | st.text(st.sampled_from('{}[]",:0123456789.eE-+\\u/ntrufalsdN ')).map(str.encode))
def test_invalid_json_has_one_error(raw: bytes) -> None:
    try:
        value = decode(raw)
    except Invalid as refusal:
        assert refusal.code == "BAD_REQUEST"  # noqa: PT017 (most inputs are refused, some may not be)
    else:
        assert isinstance(value, dict)


@table(
    "raw",
    [
        b"",
        b" ",
        b"{",
        b"}",
        b'{"a"}',
        b'{"a":}',
        b'{"a":1,}',
        b"{'a':1}",
        b'{a:1}',
        b'{"a":01}',
        b'{"a":+1}',
        b'{"a":.5}',
        b'{"a":0x10}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":-1e999}',
        b'{"a":100000000000000000000}',
        b'{"a":-100000000000000000000}',
        b'{"a":1}{}',
        b'{"a":1}x',
        b"\xef\xbb\xbf\xef\xbb\xbf{}",
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\xc0\xaf"}',
        b'{"a":"\t"}',
        b'{"a":"\n"}',
        b'{"a":"\x00"}',
        rb'{"a":"\ud800"}',
        rb'{"a":"\udc00\ud800"}',
        rb'{"a":["\udfff"]}',
        rb'{"\ud800":1}',
        b'{"a":1,"a":1}',
        b'{"b":{"a":1,"a":2}}',
        b'{"b":[{"a":1,"a":2}]}',
        rb'{"a":1,"\u0061":2}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' + b"9" * 100_000 + b"}",
    ],
)  # fmt: skip
def test_json_extensions_are_refused(raw: bytes) -> None:
    with pytest.raises(BodyInvalid):
        decode(raw)


@table("raw", [b"[]", b"null", b"true", b"1", b'"{}"', b"[{}]", b"1.5"])
def test_a_body_must_be_an_object(raw: bytes) -> None:
    with pytest.raises(BodyNotAnObject):
        decode(raw)


def nested(levels: int, innermost: bytes) -> bytes:
    """Return an object that nests `levels` objects, including itself."""
    return b'{"a":' * (levels - 1) + b"{" + innermost + b"}" + b"}" * (levels - 1)


@table("innermost", [b"", b'"a":1', b'"a":"x"'])
def test_thirty_two_levels_are_the_limit(innermost: bytes) -> None:
    assert decode(nested(32, innermost))
    with pytest.raises(BodyInvalid):
        decode(nested(33, innermost))


def test_lists_count_as_levels() -> None:
    assert decode(b'{"a":' + b"[" * 31 + b"]" * 31 + b"}")
    with pytest.raises(BodyInvalid):
        decode(b'{"a":' + b"[" * 32 + b"]" * 32 + b"}")


def test_a_wide_body_is_not_deep() -> None:
    assert len(decode(b'{"a":[' + b"[]," * 10_000 + b"[]]}")["a"]) == 10_001


@table("number", [2**63 - 1, -(2**63), 0, 10**19 - 1, 1 - 10**19])
def test_integers_of_64_bits_are_read(number: int) -> None:
    assert decode(b'{"a":%d}' % number) == {"a": number}


@table("number", [10**19, -(10**19)])
def test_integers_have_at_most_nineteen_digits(number: int) -> None:
    with pytest.raises(BodyInvalid):
        decode(b'{"a":%d}' % number)


def test_surrogate_pairs_are_characters() -> None:
    assert decode(rb'{"a":"\ud83d\ude00"}') == {"a": "😀"}


# Models


class Sample(RequestModel):
    text: Text = ""
    number: int = 0
    flag: bool = False
    email: EmailAddress | None = None
    password: PasswordText = ""


class Dated(RequestModel):
    at: DateTime


@table(
    "fields",
    [
        {"text": 5},
        {"text": None},
        {"text": ["x"]},
        {"text": b"x"},
        {"number": "5"},
        {"number": 5.0},
        {"number": True},
        {"flag": 1},
        {"flag": "true"},
        {"flag": None},
        {"email": 5},
        {"password": 12345678},
        {"text": "x" * 2049},
        {"password": "x" * 2049},
        {"email": "a@" + "b" * 2050},
        {"text": "a\x00"},
        {"text": "a\x1f"},
        {"text": "a\x7f"},
        {"text": "a\x85"},
        {"text": "a\u202e"},
        {"text": "a\u2069"},
        {"text": "a\ud800"},
    ],
)
def test_fields_are_read_strictly(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Sample.model_validate(fields)


def test_a_wrong_address_has_its_own_message() -> None:
    with pytest.raises(EmailInvalid):
        Sample.model_validate({"email": "nonsense"})


def test_unknown_fields_are_ignored() -> None:
    read = Sample.model_validate({"text": "x", "is_platform_owner": True, "model_config": {}, "__class__": "x"})
    assert read.model_dump() == {"text": "x", "number": 0, "flag": False, "email": None, "password": ""}
    assert read.model_fields_set == {"text"}


@table("text", ["x" * 2048, " spaces stay ", "Ünïcödé 😀", "\u200f right to left mark"])
def test_text_is_not_changed(text: str) -> None:
    assert Sample.model_validate({"text": text, "password": text}).text == text


def test_passwords_can_have_characters_that_text_cannot() -> None:
    assert Sample.model_validate({"password": "nul\x00tab\t\u202e"}).password == "nul\x00tab\t\u202e"


def test_an_address_is_read_in_canonical_form() -> None:
    assert Sample.model_validate({"email": " Ada@EXAMPLE.com "}).email == "ada@example.com"


@table(
    ("text", "time"),
    [
        ("2026-03-14T15:09:26Z", (15, 9, 26, 0)),
        ("2026-03-14t15:09:26.5z", (15, 9, 26, 500000)),
        ("2026-03-14T15:09:26.123456789+00:00", (15, 9, 26, 123456)),
        ("2026-03-14T17:39:26+02:30", (15, 9, 26, 0)),
        ("2026-03-14T10:09-0500", (15, 9, 0, 0)),
        ("2026-03-15T05:09+14", (15, 9, 0, 0)),
    ],
)
def test_a_time_with_an_offset_is_converted_to_utc(text: str, time: tuple[int, int, int, int]) -> None:
    read = Dated.model_validate({"at": text}).at
    assert read == datetime(2026, 3, 14, *time, tzinfo=UTC)
    assert read.utcoffset() == timedelta()


@table(
    "value",
    [
        "",
        "2026-03-14",
        "2026-03-14T15:09:26",
        "2026-03-14 15:09:26Z",
        "20260314T150926Z",
        "2026-W11-6T15:09:26Z",
        "2026-02-29T15:09:26Z",
        "2026-03-14T24:00:00Z",
        "2026-03-14T15:09:60Z",
        "2026-03-14T15:09:26+24:00",
        "2026-03-14T15:09:26Z\n",
        "\u0662026-03-14T15:09:26Z",
        "now",
        1773500966,
        1773500966.5,
        True,
        None,
        datetime(2026, 3, 14, tzinfo=UTC),
    ],
)
def test_a_time_without_an_offset_is_refused(value: object) -> None:
    with pytest.raises(ValidationError, match="offset"):
        Dated.model_validate({"at": value})


@table("text", ["0002-01-01T00:00:00+14:00", "9998-12-31T23:59:59.999999-14:00"])
def test_a_time_can_be_in_almost_every_year(text: str) -> None:
    assert Dated.model_validate({"at": text}).at == datetime.fromisoformat(text)


@table("text", ["9999-12-31T23:59:59Z", "9999-01-01T00:00:00+14:00", "0001-12-31T23:59:59-14:00", "0000-06-01T00:00:00Z"])
def test_a_time_outside_of_these_years_is_refused_with_its_own_message(text: str) -> None:
    with pytest.raises(ValidationError, match="in the years 0002 to 9998"):
        Dated.model_validate({"at": text})


# Requests


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "APPLICATION/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=utf-16",  # JSON is UTF-8, even if the charset parameter says otherwise (RFC 8259 section 8.1)
        "application/scim+json",
        "application/problem+json; charset=utf-8",
        "application/vnd.example.v1+json",
    ],
)
async def test_every_json_content_type_is_read(api: Api, content_type: str) -> None:
    answer = await api.call("POST", "/api/auth/forgot-password", raw=b'{"email": "x"}', headers={"Content-Type": content_type})
    assert answer.status == 200


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text/plain",
        "text/json",
        "application/x-json",
        "application/jsonp",
        "application/json+xml",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/octet-stream",
        "image/json",
        "json",
    ],
)
async def test_other_content_types_are_refused(api: Api, content_type: str) -> None:
    answer = await api.call("POST", "/api/auth/forgot-password", raw=b'{"email": "x"}', headers={"Content-Type": content_type})
    assert (answer.status, answer.code) == (415, "UNSUPPORTED_MEDIA_TYPE")


async def test_a_body_without_a_type_is_refused(app: QuartTrio) -> None:
    answer = await ask(app, "POST", "/api/auth/forgot-password", body=b'{"email": "x"}')
    assert (answer.status, answer.code) == (415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize("headers", [[], [(b"content-type", b"text/plain")], [(b"content-type", b"application/json")]])
@pytest.mark.parametrize("body", [None, b""])
async def test_an_absent_body_is_an_empty_object(
    app: QuartTrio, api: Api, ports: Ports, body: bytes | None, headers: list[tuple[bytes, bytes]]
) -> None:
    await add_account(ports)
    token = (await api.login()).json["access_token"]
    assert (await ask(app, "PATCH", "/api/user", headers=headers, body=body, token=token)).status == 200
    missing = await ask(app, "POST", "/api/auth/forgot-password", headers=headers, body=body)
    assert (missing.status, missing.json["error"]) == (400, 'The field "email" is required.')


async def test_an_error_names_the_field_and_does_not_repeat_the_value(api: Api) -> None:
    answer = await api.post("/api/auth/login", {"email": "ada@example.com", "password": {"secret": "hunter2"}})
    assert answer.status == 400
    assert '"password"' in answer.json["error"]
    assert "hunter2" not in answer.text
    assert "Traceback" not in answer.text
    long = await api.post("/api/auth/login", {"email": "ada@example.com", "password": "hunter2" * 300})
    assert (long.status, "hunter2" in long.text) == (400, False)


@pytest.mark.parametrize("chunked", [False, True])
async def test_the_limit_of_a_body_is_exact(app: QuartTrio, chunked: bool) -> None:
    json_type = [(b"content-type", b"application/json")]
    body = b'{"email": "x", "padding": "'
    body += b"x" * (MAX_BODY - len(body) - 2) + b'"}'
    assert len(body) == MAX_BODY == 262144
    assert (await ask(app, "POST", "/api/auth/forgot-password", headers=json_type, body=body, chunked=chunked)).status == 200
    over = await ask(app, "POST", "/api/auth/forgot-password", headers=json_type, body=body + b" ", chunked=chunked)
    assert (over.status, over.code) == (413, "PAYLOAD_TOO_LARGE")


async def test_a_body_is_ignored_where_the_route_reads_none(app: QuartTrio) -> None:
    answer = await ask(app, "GET", "/health", headers=[(b"content-type", b"text/plain")], body=b"\xff" * 1000)
    assert answer.status == 200


async def test_fields_outside_the_model_are_not_assigned(api: Api, ports: Ports) -> None:
    smuggled = {"email": "eve@example.com", "password": "a good long text", "is_platform_owner": True, "email_verified_at": "2020-01-01"}
    assert (await api.post("/api/auth/register", smuggled)).status == 200
    async with ports.storage.reading() as read:
        account = await read.accounts.by_email(Email("eve@example.com"))
    assert account is not None
    assert (account.is_platform_owner, account.email_verified_at) == (False, None)


# Names, reasons, times, and optional fields


class Named(RequestModel):
    name: Name
    reason: Reason


@table(("field", "most"), [("name", 100), ("reason", 500)])
def test_names_and_reasons_are_trimmed_and_bounded(field: str, most: int) -> None:
    def read(text: Any) -> object:
        return getattr(Named.model_validate({"name": "x", "reason": "x", field: text}), field)

    assert read("  a b\u2003") == "a b"
    assert read(" " * 1000 + "x" * most) == "x" * most
    for text in ("", " ", "\u3000", "x" * (most + 1), "x\x00", "x\n", "\tx", "a\x85b", "\u202ex", None, 5, ["x"]):
        with pytest.raises(ValidationError):
            read(text)
    described = Named.model_json_schema()["properties"][field]
    assert (described["type"], described["minLength"], described["maxLength"]) == ("string", 1, most)


@table("name", ["=?utf-8?q?x?=", "a =?", "\u200b", "\u00ad\u200d", "x\u2028y"])
def test_a_name_with_encoded_words_or_invisible_characters_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        Named(name=name, reason="x")
    assert Named(name="A=B ? Ünïcödé 😀", reason="=?").name == "A=B ? Ünïcödé 😀"


class Timed(ResponseModel):
    at: Timestamp
    until: Timestamp | None


@table(
    ("at", "shown"),
    [
        (datetime(2026, 3, 14, 15, 9, 26, 535897, tzinfo=UTC), "2026-03-14T15:09:26.535897Z"),
        (datetime(1970, 1, 1, tzinfo=UTC), "1970-01-01T00:00:00Z"),
        (datetime(2026, 3, 14, 15, 9, 26, 500000, tzinfo=ZoneInfo("UTC")), "2026-03-14T15:09:26.500000Z"),
        (datetime(2026, 3, 14, 1, tzinfo=timezone(timedelta(hours=2))), "2026-03-13T23:00:00Z"),
    ],
)
def test_a_time_is_shown_in_utc_with_z(at: datetime, shown: str) -> None:
    assert Timed(at=at, until=at).model_dump(mode="json") == {"at": shown, "until": shown}
    assert Timed(at=at, until=None).model_dump(mode="json")["until"] is None
    assert Timed.model_json_schema(mode="serialization")["properties"]["at"]["format"] == "date-time"


class Changed(RequestModel):
    name: Name = optional()
    days: int = optional(ge=1, le=90)


def test_an_optional_field_is_absent_rather_than_null() -> None:
    assert dict(Changed.model_validate({})) == {"name": KEEP, "days": KEEP}
    assert Changed.model_validate({"days": 90}).days == 90
    for body in ({"name": None}, {"days": None}, {"days": 0}, {"days": 91}, {"days": True}, {"days": "5"}, {"days": 5.0}, {"name": ""}):
        with pytest.raises(ValidationError):
            Changed.model_validate(body)
    schema = Changed.model_json_schema()
    assert "required" not in schema
    assert not any("default" in field or "anyOf" in field for field in schema["properties"].values())
