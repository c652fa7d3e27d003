"""Streamed lists on a real socket.

Streamed lists are complete at any length, hold no database connection, and break off visibly after an outage (security
N-6).
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from quart import Quart, Response
from quart_trio import QuartTrio

from adapters.postgres.applications.plans import Plans
from adapters.postgres.engine.pool import Pool
from core.applications.model import plans as model_plans
from core.kernel.errors import StorageDown
from core.kernel.values import Batches
from entrypoints.http.edge.bodies import ResponseModel
from entrypoints.http.edge.streaming import Part, stream_list, stream_object
from tests.applications.api.services import Workshop
from tests.proof.wire.wire import Client, serving
from tests.support.builders import Api
from tests.support.refusals import refused
from tests.support.services import add_plan, add_service
from tests.support.tenants import Tenant
from tests.tables import table


@pytest.fixture
async def shops(acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """A service `shop` with five plans, which are read in batches of two."""
    monkeypatch.setattr(model_plans, "PLAN_BATCH", 2)
    service = await add_service(acme.pool, acme.org)
    for number in range(5):
        await add_plan(acme.pool, service, f"n{number}")
    return Workshop(acme)


class Door:
    """A counter for statements that read plans, which fails at the statement `fails_at`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.fails_at = 0
        read = Plans.list_after

        async def listed(*arguments: Any) -> Any:
            self.calls += 1
            if self.calls == self.fails_at:
                raise StorageDown
            return await read(*arguments)

        monkeypatch.setattr(Plans, "list_after", listed)


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    return Door(monkeypatch)


@asynccontextmanager
async def connected(app: QuartTrio) -> AsyncIterator[Client]:
    """Connect to the service.

    Its middleware runs inside the test server's middleware, which changes nothing here.
    """
    async with serving(app) as server, server.client() as client:  # type: ignore[arg-type]
        yield client


async def ask(client: Client, shops: Workshop, method: str = "GET") -> None:
    token = shops.tenant.token("member")
    await client.send(f"{method} {shops.path}/shop/plans HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {token}\r\n\r\n".encode())


async def test_a_list_of_several_batches_is_one_response(app: QuartTrio, shops: Workshop, door: Door) -> None:
    async with connected(app) as client:
        await ask(client, shops)
        reply = await client.reply()
        assert (reply.status, reply.headers["content-type"], reply.headers["cache-control"]) == (200, "application/json", "no-store")
        listed = json.loads(reply.body)
        assert ([plan["name"] for plan in listed["plans"]], listed["total"]) == ([f"n{number}" for number in range(5)], 5)
        assert door.calls == 3
        # The connection stays usable.
        await ask(client, shops)
        assert json.loads((await client.reply()).body) == listed


async def test_an_outage_before_the_first_batch_is_an_error(api: Api, shops: Workshop, door: Door) -> None:
    door.fails_at = 1
    answer = await api.get(f"{shops.path}/shop/plans", token=shops.tenant.token("member"))
    assert refused(answer) == (500, "DATABASE_ERROR")


async def test_an_outage_after_the_first_batch_breaks_the_response_off(app: QuartTrio, shops: Workshop, door: Door) -> None:
    """The part cannot be mistaken for the whole list: neither HTTP nor JSON is complete."""
    door.fails_at = 2
    async with connected(app) as client:
        await ask(client, shops)
        answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"n1" in answer
    assert b"n2" not in answer
    assert b"total" not in answer
    assert not answer.endswith(b"\r\n0\r\n\r\n")


async def test_head_reads_only_the_first_batch(app: QuartTrio, shops: Workshop, door: Door) -> None:
    async with connected(app) as client:
        await ask(client, shops, "HEAD")
        reply = await client.reply(bodiless=True)
        assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
        assert reply.headers.get("content-length") != "0"
        assert door.calls == 1


# Without the service


class Piece(ResponseModel):
    text: str


def small(read: Any, **options: Any) -> Quart:
    """Return an application that streams the batches from `read`."""
    app = QuartTrio(__name__, static_folder=None)

    async def view() -> Response:
        return await stream_list(Batches(read, size=2), lambda text: Piece(text=text), **options)

    app.get("/list")(view)
    return app


def numbers(count: int) -> Any:
    async def read(last: str | None, wanted: int) -> Sequence[str]:
        begin = 0 if last is None else int(last) + 1
        return [str(number) for number in range(begin, min(begin + wanted, count))]

    return read


A, B = Piece(text="x"), Piece(text="ä")
SHAPES: dict[str, tuple[dict[str, Any], Any]] = {
    "an array": ({}, lambda items: items),
    "an object": ({"name": "items"}, lambda items: {"items": items}),
    "with more": (
        {"name": "items", "other_fields": {"a": A, "b": B}},
        lambda items: {"items": items, "a": {"text": "x"}, "b": {"text": "ä"}},
    ),
    "counted": ({"name": "items", "count_name": "total"}, lambda items: {"items": items, "total": len(items)}),
    "with more and counted": (
        {"name": "items", "other_fields": {"a": A}, "count_name": "total"},
        lambda items: {"items": items, "a": {"text": "x"}, "total": len(items)},
    ),
}


@table("count", [0, 1, 2, 3, 5])
@table("shape", SHAPES)
async def test_a_response_is_valid_json_for_any_number_of_items(count: int, shape: str) -> None:
    options, expected = SHAPES[shape]
    answer = await small(numbers(count), **options).test_client().get("/list")
    items = [{"text": str(number)} for number in range(count)]
    assert json.loads(await answer.get_data(as_text=False)) == expected(items)


@table(("count", "is_complete"), [(0, True), (1, True), (2, False), (3, False)])
async def test_a_list_that_is_complete_with_its_first_batch_has_a_length(count: int, is_complete: bool) -> None:
    async with several().test_request_context("/list"):
        response = await stream_list(Batches(numbers(count), size=2), lambda text: Piece(text=text), name="items")
    assert ("Content-Length" in response.headers) is is_complete


async def test_no_database_connection_is_held_while_a_batch_is_sent(pool: Pool) -> None:
    """A slow client must not keep a connection."""
    borrowed = []

    async def read(last: str | None, wanted: int) -> Sequence[str]:
        async with pool.connection() as connection:
            await connection.row("select 1")
            borrowed.append(pool.stats.total - pool.stats.idle)
        return await numbers(5)(last, wanted)  # type: ignore[no-any-return]

    async with small(read).test_request_context("/list"):
        response = await stream_list(Batches(read, size=2), lambda text: Piece(text=text))
    pieces = []
    async with response.response as body:
        async for piece in body:
            pieces.append(piece)
            assert pool.stats.total == pool.stats.idle
    assert (borrowed, len(pieces)) == ([1, 1, 1], 4)
    assert json.loads(b"".join(pieces)) == [{"text": str(number)} for number in range(5)]


# Objects with several lists


class Head(ResponseModel):
    a: int
    b: str


def several(*counts: int, first: bool = False) -> Quart:
    """Return an application that streams an object with these lists and a head, before or after
    them."""
    app = QuartTrio(__name__, static_folder=None)

    async def view() -> Response:
        lists = [Part(f"list{at}", Batches(numbers(count), size=2), lambda text: Piece(text=text)) for at, count in enumerate(counts)]
        return await stream_object(*lists, Head(a=1, b="ä")) if first else await stream_object(Head(a=1, b="ä"), *lists)

    app.get("/object")(view)
    return app


@table("counts", [(), (0,), (1,), (5,), (0, 0), (0, 3), (3, 0), (2, 2), (5, 0, 1), (0, 0, 4)])
@table("first", [False, True])
async def test_an_object_of_lists_is_valid_json_in_its_order(counts: tuple[int, ...], first: bool) -> None:
    answer = await several(*counts, first=first).test_client().get("/object")
    assert (answer.status_code, answer.content_type) == (200, "application/json")
    lists = {f"list{at}": [{"text": str(number)} for number in range(count)] for at, count in enumerate(counts)}
    head = {"a": 1, "b": "ä"}
    found = json.loads(await answer.get_data(as_text=False))
    assert list(found.items()) == list(({**lists, **head} if first else {**head, **lists}).items())


class RecordedLists:
    """Lists with three items, and the order in which they were read."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def part(self, name: str) -> Part[str]:
        async def read(last: str | None, wanted: int) -> Sequence[str]:
            self.names.append(name)
            return await numbers(3)(last, wanted)  # type: ignore[no-any-return]

        return Part(name, Batches(read, size=2), lambda text: Piece(text=text))


async def test_head_of_an_object_reads_only_the_first_batches() -> None:
    lists = RecordedLists()
    async with several().test_request_context("/object", method="HEAD"):
        response = await stream_object(lists.part("a"), lists.part("b"))
    assert (response.status_code, response.content_type) == (200, "application/json")
    assert "Content-Length" not in response.headers
    async with response.response as body:
        assert b"".join([piece async for piece in body]) == b""
    assert lists.names == ["a", "b"]


async def test_the_first_batch_of_every_list_is_read_before_anything_is_sent() -> None:
    """An outage is an ordinary error then."""
    lists = RecordedLists()
    async with several().test_request_context("/object"):
        response = await stream_object(lists.part("a"), lists.part("b"))
    assert lists.names == ["a", "b"]
    async with response.response as body:
        assert json.loads(b"".join([piece async for piece in body])).keys() == {"a", "b"}
    assert lists.names == ["a", "b", "a", "b"]
