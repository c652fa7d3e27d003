"""Lists without a maximum on a real socket: whole however long, nothing of the database held while they go out, and broken off as such
(decisions, point 10; security.md N-6)."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from quart import Quart, Response
from quart_trio import QuartTrio

from adapters.postgres.applications.plans import Plans
from adapters.postgres.engine.pool import Pool
from core.applications import plans
from core.kernel.errors import StorageDown
from core.kernel.values import Batches
from entrypoints.http.edge.bodies import ResponseModel
from entrypoints.http.edge.streaming import Part, streamed, streamed_object
from tests.applications.api.services import Workshop
from tests.proof.wire.wire import Client, serving
from tests.support.builders import Api
from tests.support.refusals import refused
from tests.support.services import add_plan, add_service
from tests.support.tenants import Tenant


@pytest.fixture
async def shops(acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """With a service named shop that has five plans, of which two are read at once."""
    monkeypatch.setattr(plans, "LISTED_AT_ONCE", 2)
    service = await add_service(acme.pool, acme.org)
    for number in range(5):
        await add_plan(acme.pool, service, f"n{number}")
    return Workshop(acme)


class Door:
    """Stands before the statement that reads plans, and counts who comes by."""

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
    """To the service on a socket; its own outer layer stands in another one, which changes nothing of this."""
    async with serving(app) as server, server.client() as client:  # type: ignore[arg-type]
        yield client


async def ask(client: Client, shops: Workshop, method: str = "GET") -> None:
    token = shops.tenant.token("member")
    await client.send(f"{method} {shops.path}/shop/plans HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {token}\r\n\r\n".encode())


async def test_a_list_of_several_batches_is_one_answer(app: QuartTrio, shops: Workshop, door: Door) -> None:
    async with connected(app) as client:
        await ask(client, shops)
        reply = await client.reply()
        assert (reply.status, reply.headers["content-type"], reply.headers["cache-control"]) == (200, "application/json", "no-store")
        listed = json.loads(reply.body)
        assert ([plan["name"] for plan in listed["plans"]], listed["total"]) == ([f"n{number}" for number in range(5)], 5)
        assert door.calls == 3
        # And the connection goes on.
        await ask(client, shops)
        assert json.loads((await client.reply()).body) == listed


async def test_an_outage_before_the_first_batch_is_told(api: Api, shops: Workshop, door: Door) -> None:
    door.fails_at = 1
    answer = await api.get(f"{shops.path}/shop/plans", token=shops.tenant.token("member"))
    assert refused(answer) == (500, "DATABASE_ERROR")


async def test_an_outage_after_it_breaks_the_answer_off(app: QuartTrio, shops: Workshop, door: Door) -> None:
    """What came so far cannot be taken for the whole list: neither HTTP nor JSON has come to its end."""
    door.fails_at = 2
    async with connected(app) as client:
        await ask(client, shops)
        answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"n1" in answer
    assert b"n2" not in answer
    assert b"total" not in answer
    assert not answer.endswith(b"\r\n0\r\n\r\n")


async def test_of_a_list_that_is_only_asked_about_one_batch_is_read(app: QuartTrio, shops: Workshop, door: Door) -> None:
    async with connected(app) as client:
        await ask(client, shops, "HEAD")
        reply = await client.reply(bodiless=True)
        assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
        assert reply.headers.get("content-length") != "0"
        assert door.calls == 1


# Without the service around it


class Piece(ResponseModel):
    text: str


def small(read: Any, **options: Any) -> Quart:
    """An application that answers with the batches that `read` gives."""
    app = QuartTrio(__name__, static_folder=None)

    async def view() -> Response:
        return await streamed(Batches(read, size=2), lambda text: Piece(text=text), **options)

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
    "an object": ({"named": "items"}, lambda items: {"items": items}),
    "with more": (
        {"named": "items", "beside": {"a": A, "b": B}},
        lambda items: {"items": items, "a": {"text": "x"}, "b": {"text": "ä"}},
    ),
    "counted": ({"named": "items", "counted": "total"}, lambda items: {"items": items, "total": len(items)}),
    "with more and counted": (
        {"named": "items", "beside": {"a": A}, "counted": "total"},
        lambda items: {"items": items, "a": {"text": "x"}, "total": len(items)},
    ),
}


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("shape", SHAPES)
async def test_an_answer_is_json_however_many_items_there_are(count: int, shape: str) -> None:
    options, expected = SHAPES[shape]
    answer = await small(numbers(count), **options).test_client().get("/list")
    items = [{"text": str(number)} for number in range(count)]
    assert json.loads(await answer.get_data(as_text=False)) == expected(items)


async def test_while_a_piece_goes_out_nothing_of_the_database_is_held(pool: Pool) -> None:
    """However slowly whoever asked reads it."""
    borrowed = []

    async def read(last: str | None, wanted: int) -> Sequence[str]:
        async with pool.connection() as connection:
            await connection.row("select 1")
            borrowed.append(pool.stats.total - pool.stats.idle)
        return await numbers(5)(last, wanted)  # type: ignore[no-any-return]

    async with small(read).test_request_context("/list"):
        response = await streamed(Batches(read, size=2), lambda text: Piece(text=text))
    pieces = []
    async with response.response as body:
        async for piece in body:
            pieces.append(piece)
            assert pool.stats.total == pool.stats.idle == 1
    assert (borrowed, len(pieces)) == ([1, 1, 1], 4)
    assert json.loads(b"".join(pieces)) == [{"text": str(number)} for number in range(5)]


# Objects with several lists


class Head(ResponseModel):
    a: int
    b: str


def several(*counts: int, first: bool = False) -> Quart:
    """An application that answers with an object in which there are a head, and lists of so many items; these first, or last."""
    app = QuartTrio(__name__, static_folder=None)

    async def view() -> Response:
        lists = [Part(f"list{at}", Batches(numbers(count), size=2), lambda text: Piece(text=text)) for at, count in enumerate(counts)]
        return await streamed_object(*lists, Head(a=1, b="ä")) if first else await streamed_object(Head(a=1, b="ä"), *lists)

    app.get("/object")(view)
    return app


@pytest.mark.parametrize("counts", [(), (0,), (1,), (5,), (0, 0), (0, 3), (3, 0), (2, 2), (5, 0, 1), (0, 0, 4)])
@pytest.mark.parametrize("first", [False, True])
async def test_an_object_of_lists_is_json_in_its_order_however_long_they_are(counts: tuple[int, ...], first: bool) -> None:
    answer = await several(*counts, first=first).test_client().get("/object")
    assert (answer.status_code, answer.content_type) == (200, "application/json")
    lists = {f"list{at}": [{"text": str(number)} for number in range(count)] for at, count in enumerate(counts)}
    head = {"a": 1, "b": "ä"}
    found = json.loads(await answer.get_data(as_text=False))
    assert list(found.items()) == list(({**lists, **head} if first else {**head, **lists}).items())


class Asked:
    """Lists of three items, and in which order they were asked for."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def part(self, name: str) -> Part[str]:
        async def read(last: str | None, wanted: int) -> Sequence[str]:
            self.names.append(name)
            return await numbers(3)(last, wanted)  # type: ignore[no-any-return]

        return Part(name, Batches(read, size=2), lambda text: Piece(text=text))


async def test_of_an_object_that_is_only_asked_about_only_the_beginning_is_read() -> None:
    asked = Asked()
    async with several().test_request_context("/object", method="HEAD"):
        response = await streamed_object(asked.part("a"), asked.part("b"))
    assert (response.status_code, response.content_type) == (200, "application/json")
    assert "Content-Length" not in response.headers
    async with response.response as body:
        assert b"".join([piece async for piece in body]) == b""
    assert asked.names == ["a", "b"]


async def test_the_beginning_of_every_list_is_read_before_anything_goes_out() -> None:
    """So that an outage is told as ever."""
    asked = Asked()
    async with several().test_request_context("/object"):
        response = await streamed_object(asked.part("a"), asked.part("b"))
    assert asked.names == ["a", "b"]
    async with response.response as body:
        assert json.loads(b"".join([piece async for piece in body])).keys() == {"a", "b"}
    assert asked.names == ["a", "b", "a", "b"]
