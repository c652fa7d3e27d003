"""Query strings and ids in paths: clamped, or refused if they have no meaning (security N-6, T-4)."""

from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID, uuid4

import pytest
from pydantic import ValidationError
from quart_trio import QuartTrio

from core.kernel.values import Page
from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.bodies import Message
from entrypoints.http.edge.queries import (
    LARGEST,
    Flag,
    Limit,
    Offset,
    PageNumber,
    PageQuery,
    Pagination,
    Query,
    path_id,
)
from tests.support.direct import ask
from tests.tables import table


class Sample(Query):
    """A query parameter per kind."""

    page: PageNumber = 1
    limit: Limit = 50
    offset: Offset = 0


class Flags(Query):
    """A query with a flag."""

    flag: Flag | None = None


@table(
    ("text", "page", "limit", "offset"),
    [
        ("0", 1, 1, 0),
        ("1", 1, 1, 1),
        ("-1", 1, 1, 0),
        ("+7", 7, 7, 7),
        ("-0", 1, 1, 0),
        ("007", 7, 7, 7),
        ("99", 99, 99, 99),
        ("100", 100, 100, 100),
        ("101", 101, 100, 101),
        (str(2**31 - 2), 2**31 - 2, 100, 2**31 - 2),
        (str(2**31 - 1), 2**31 - 1, 100, 2**31 - 1),
        (str(2**31), 2**31 - 1, 100, 2**31 - 1),
        (str(2**63), 2**31 - 1, 100, 2**31 - 1),
        (str(-(2**63)), 1, 1, 0),
        ("9" * 5000, 2**31 - 1, 100, 2**31 - 1),  # more digits than Python converts
        ("-" + "9" * 5000, 1, 1, 0),
        ("0" * 5000 + "7", 7, 7, 7),
        ("-" + "0" * 5000, 1, 1, 0),
    ],
)
def test_an_integer_of_any_size_is_clamped(text: str, page: int, limit: int, offset: int) -> None:
    query = Sample.model_validate({"page": text, "limit": text, "offset": text})
    assert (query.page, query.limit, query.offset) == (page, limit, offset)


NO_INTEGERS: list[Any] = [
    *["", " ", "x", "1.0", "1e3", "0x10", "1_000", " 1", "1 ", "1\n", "--1", "+-1", "+", "-", "\u0661", "\uff11", "\u00b2", "nan", "null"],
    *["true", "1,000", "1;2", ["1", "2"], ["1"], None],
]


@table("text", NO_INTEGERS)
@table("name", ["page", "limit", "offset"])
def test_other_values_are_refused(name: str, text: Any) -> None:
    with pytest.raises(ValidationError):
        Sample.model_validate({name: text})


@table(("text", "is_true"), [("true", True), ("false", False), ("True", True), ("FALSE", False)])
def test_a_flag_is_true_or_false(text: str, is_true: bool) -> None:
    assert Flags.model_validate({"flag": text}).flag is is_true
    assert Flags().flag is None


@table("text", ["", " ", "maybe", "1", "0", "yes", "on", "t", "null", " true", "true\n", ["true", "true"], ["true"]])
def test_other_values_of_a_flag_are_refused_with_the_allowed_ones(text: Any) -> None:
    with pytest.raises(ValidationError, match="it must be 'true' or 'false'"):
        Flags.model_validate({"flag": text})


async def test_every_flag_of_the_api_names_its_values(app: QuartTrio) -> None:
    """This includes bool fields, for which pydantic has another message."""
    flags = 0
    for query in subclasses(Query):
        for name, schema in query.model_json_schema()["properties"].items():
            if any(option.get("type") == "boolean" for option in (schema, *schema.get("anyOf", ()))):
                flags += 1
                with pytest.raises(ValidationError, match="it must be 'true' or 'false'"):
                    query.model_validate({name: "maybe"})
    assert flags > 1, "there are more than that of this module"


def subclasses(kind: type[Query]) -> Iterator[type[Query]]:
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def test_absent_parameters_have_defaults() -> None:
    assert Sample() == Sample.model_validate({}) == Sample.model_validate({"page": "1", "limit": "50", "offset": "0", "unknown": "x"})
    assert PageQuery().page_request() == Page(1, 50)
    assert PageQuery.model_validate({"page": "3", "limit": "20"}).page_request() == Page(3, 20)


def test_the_description_says_that_numbers_are_clamped() -> None:
    properties = Sample.model_json_schema()["properties"]
    assert {name: {key: schema[key] for key in schema if key != "title"} for name, schema in properties.items()} == {
        "page": {
            "type": "integer",
            "default": 1,
            "description": "The number of the page, starting at 1. A number below 1 counts as 1.",
        },
        "limit": {
            "type": "integer",
            "default": 50,
            "description": "The number of items per page. A number below 1 counts as 1, and one above 100 as 100.",
        },
        "offset": {"type": "integer", "default": 0, "description": "The number of items to skip. A number below 0 counts as 0."},
    }


@table(
    ("page", "total", "pages", "has_next", "has_prev"),
    [
        (Page(1, 50), 0, 0, False, False),
        (Page(2, 50), 0, 0, False, True),
        (Page(1, 50), 1, 1, False, False),
        (Page(1, 50), 50, 1, False, False),
        (Page(1, 50), 51, 2, True, False),
        (Page(2, 50), 51, 2, False, True),
        (Page(2, 50), 101, 3, True, True),
        (Page(3, 1), 3, 3, False, True),
        (Page(9, 1), 3, 3, False, True),
        (Page(LARGEST, 100), 10**12, 10**10, True, True),
    ],
)
def test_the_pagination_object(page: Page, total: int, pages: int, has_next: bool, has_prev: bool) -> None:
    assert PageQuery.model_validate({"page": str(page.number), "limit": str(page.limit)}).pagination(total) == Pagination(
        page=page.number, limit=page.limit, total=total, total_pages=pages, has_next=has_next, has_prev=has_prev
    )


def test_an_id_in_canonical_form_is_read() -> None:
    for id_ in (uuid4(), UUID(int=0), UUID(int=2**128 - 1)):
        assert path_id(str(id_)) == id_


ID = "6f1d0c52-5c1e-4b4f-9a57-0a3d8ad1b0c1"


@table("text", ["", "x", "1", "me", ID.upper(), ID.replace("-", ""), f"{{{ID}}}", f"urn:uuid:{ID}", f" {ID}", f"{ID}\n", ID[:-1]])
def test_other_spellings_are_an_id_that_does_not_exist(text: str) -> None:
    assert path_id(text) == UUID(int=0)


# Over HTTP


SEEN: Final[list[Any]] = []


@pytest.fixture
def seen() -> list[Any]:
    """The values that this module's routes read."""
    SEEN.clear()
    return SEEN


def add_routes(app: QuartTrio) -> None:
    @anyone
    async def listed(query_args: Sample) -> Message:
        SEEN.append((query_args.page, query_args.limit, query_args.offset))
        return Message(message="listed")

    @anyone
    async def thing(thing_id: UUID) -> Message:
        SEEN.append(thing_id)
        return Message(message="found")

    app.add_url_rule("/api/test/things", "test_things", listed)
    app.add_url_rule("/api/test/things/<thing_id>", "test_thing", thing)


async def test_parameters_are_read_from_the_query(app: QuartTrio, seen: list[Any]) -> None:
    for query in ("", "?page=2&limit=7&offset=9", "?page=-5&limit=9999999999999999999999&offset=%2B3&x=y", "?page=%31"):
        assert (await ask(app, "GET", f"/api/test/things{query}")).status == 200
    assert seen == [(1, 50, 0), (2, 7, 9), (1, 100, 3), (1, 50, 0)]


async def test_values_without_a_meaning_are_refused(app: QuartTrio, seen: list[Any]) -> None:
    queries = [
        "page=",
        "page=x",
        "limit=1.5",
        "offset=%00",
        "page=1&page=2",
        "page[]=1",
        "limit=%D9%A1",
        "offset=+3",
        "page=1%0A",
    ]
    for query in queries:
        answer = await ask(app, "GET", f"/api/test/things?{query}")
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), query
        assert query[:4] in answer.json["error"]
    assert seen == []


# With surrogates, alone and in pairs.
NOT_UTF8 = ["%FF", "a%C3", "%C3%28", "%C0%AF", "%ED%A0%80", "%ED%A0%BD%ED%B8%80", "%F4%90%80%80"]


async def test_every_field_of_a_query_must_be_utf8(app: QuartTrio, seen: list[Any]) -> None:
    for text in NOT_UTF8:
        for query in (f"x={text}", f"page=1&{text}", f"{text}=1&limit=5", f"page={text}"):
            answer = await ask(app, "GET", f"/api/test/things?{query}")
            assert (answer.status, answer.json["error"]) == (400, "The query is not valid UTF-8. Percent-encode it in UTF-8."), query
    assert seen == []
    for query in ("x=%C3%BC%F0%9F%98%80", "x=%EF%BF%BD", "x=100%", "x=%zz"):
        assert (await ask(app, "GET", f"/api/test/things?{query}")).status == 200, query


async def test_a_path_that_is_not_utf8_does_not_exist(app: QuartTrio, seen: list[Any]) -> None:
    for text in NOT_UTF8:
        for path in (f"/api/test/things/{text}", f"/api/test/{text}/", f"http://gatehouse.test/api/test/things/{text}"):
            assert (await ask(app, "GET", path)).status == 404, path
    assert seen == []
    assert (await ask(app, "GET", "/api/test/things/%C3%BC%EF%BF%BD")).status == 200


async def test_an_id_in_a_path_is_matched_exactly(app: QuartTrio, seen: list[Any]) -> None:
    assert (await ask(app, "GET", f"/api/test/things/{ID}")).status == 200
    assert (await ask(app, "GET", f"/api/test/things/{ID}/")).status == 200
    assert seen == [UUID(ID)] * 2
    for text in (ID.upper(), ID.replace("-", ""), f"%7B{ID}%7D", f"%20{ID}", f"{ID}%20", f"{ID}%0A", f"{ID}%00", "x", "%D9%A1", f"{ID}%2F"):
        answer = await ask(app, "GET", f"/api/test/things/{text}")
        assert answer.status == 404 or seen[-1] == UUID(int=0), text
    assert seen.count(UUID(ID)) == 2
