"""Large bodies on real sockets: their admission, and refusals that do not wait for a body (security N-10)."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, cast

import pytest
import trio
from quart_trio import QuartTrio

from core.kernel.shares import FairPlaces
from core.provisioning.model.schemas import GROUP_URN
from entrypoints.http.base.context import app_context
from entrypoints.http.edge.directory.limits import MAX_ADMITTED, MAX_CONCURRENT, MAX_PER_ORGANIZATION, RETRY_AFTER
from entrypoints.http.edge.size_limits import MAX_BODY, MAX_SCIM_GROUP_BODY
from tests.proof.wire.wire import Client, Reply, Served, serving_gatehouse
from tests.support.builders import run_sql
from tests.support.database import POOL_SIZE
from tests.support.scim import ERROR_URN, Directory, directory_of
from tests.support.tenants import Tenant
from tests.support.waiting import PATIENCE, eventually

if TYPE_CHECKING:
    from entrypoints.http.app import Application

pytestmark = pytest.mark.slow

LARGE = 15_000_000


@pytest.fixture
async def server(app: QuartTrio) -> AsyncIterator[Served]:
    async with serving_gatehouse(cast("Application", app)) as served:
        yield served


@pytest.fixture
async def other_directory(other_tenant: Tenant) -> Directory:
    return await directory_of(other_tenant)


def head(
    directory: Directory,
    *headers: str,
    method: str = "PUT",
    path: str | None = None,
    token: str | None = None,
    content_type: str = "application/scim+json",
) -> bytes:
    """Return a request head that replaces the group."""
    lines = [
        f"{method} /scim/v2{path or directory.group_path} HTTP/1.1",
        "Host: test",
        f"Authorization: Bearer {token or directory.token}",
        f"Content-Type: {content_type}",
        *headers,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def group(directory: Directory, size: int) -> bytes:
    """Return a body with this size that keeps the members."""
    body = {"schemas": [GROUP_URN], "members": [{"value": directory.tenant.id(name)} for name in directory.tenant.people], "x": ""}
    body["x"] = "x" * (size - len(json.dumps(body)))
    return json.dumps(body).encode()


async def begin(client: Client, directory: Directory, size: int = LARGE) -> Reply:
    """Send a request's head. The reply 100 says that its body was admitted, and is being read."""
    await client.send(head(directory, f"Content-Length: {size}", "Expect: 100-continue"))
    return await client.reply()


def large_bodies(app: QuartTrio, directory: Directory) -> int:
    return app_context(app).large_bodies.held_by(directory.tenant.org)


def assert_refused(reply: Reply) -> None:
    assert (reply.status, reply.headers["retry-after"], reply.headers["connection"]) == (429, str(RETRY_AFTER), "close")
    assert json.loads(reply.body)["schemas"] == [ERROR_URN]


async def test_large_bodies_of_one_organization_do_not_hold_up_another(
    server: Served, directory: Directory, other_directory: Directory
) -> None:
    body = group(directory, LARGE)
    async with server.client() as first, server.client() as second, server.client() as third, server.client() as other:
        for client in (first, second):
            assert (await begin(client, directory)).status == 100
            await client.send(body[: LARGE // 2])
        assert_refused(await begin(third, directory))
        assert await third.is_closed()
        async with server.client() as growing:  # without a length, it is refused as soon as it is large
            await growing.send(head(directory, "Transfer-Encoding: chunked") + b"%x\r\n%s\r\n" % (MAX_BODY, body[:MAX_BODY]))
            await growing.send(b"1\r\n{\r\n")
            assert_refused(await growing.reply())

        async with server.client() as small:
            reply = await small.get("/scim/v2/Users", f"Authorization: Bearer {directory.token}")
            assert reply.status == 200
        reply = await other.get("/scim/v2/Users", f"Authorization: Bearer {other_directory.token}")
        assert reply.status == 200
        for size in (1000, LARGE):
            await other.send(head(other_directory, f"Content-Length: {size}") + group(other_directory, size))
            assert (await other.reply()).status == 200

        for client in (first, second):
            await client.send(body[LARGE // 2 :])
            assert (await client.reply()).status == 200


async def test_the_place_of_a_large_body_becomes_free_however_its_request_ends(
    app: QuartTrio, server: Served, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = MAX_BODY + 1
    endings = {
        "finished": group(directory, size),
        "invalid": b"x" * size,
        "disconnected": b"{",
        "too slow": b"{",
        "disconnected at once": b"",
    }
    async with server.client() as held:
        assert (await begin(held, directory, size)).status == 100
        for ending, body in endings.items():
            with monkeypatch.context() as patch:
                if ending == "too slow":
                    patch.setattr(cast("Application", app).middleware, "body_within", 0.05)
                async with server.client() as client:
                    assert (await begin(client, directory, size)).status == 100, ending
                    await client.send(body)
                    status = {"finished": 200, "invalid": 400, "too slow": 408}.get(ending)
                    if status is not None:
                        assert (await client.reply()).status == status
            await eventually(lambda: large_bodies(app, directory) == 1)
    await eventually(lambda: large_bodies(app, directory) == 0)
    assert MAX_PER_ORGANIZATION == 2


async def test_requests_that_wait_for_their_organization_leave_connections_to_others(
    server: Served, directory: Directory, other_directory: Directory
) -> None:
    tenant, statuses = directory.tenant, list[int]()

    async def change() -> None:
        async with server.client() as client:
            body = group(directory, 1000)
            await client.send(head(directory, f"Content-Length: {len(body)}") + body)
            statuses.append((await client.reply()).status)

    async with trio.open_nursery() as nursery, tenant.pool.connection() as connection, connection.transaction():
        await connection.execute("select 1 from organizations where id = %s for update", (tenant.org,))

        async def all_wait() -> bool:
            [(count,)] = await (await connection.execute("select count(*) from pg_locks where not granted")).fetchall()
            return bool(count >= MAX_CONCURRENT)

        for _ in range(2 * POOL_SIZE):
            nursery.start_soon(change)
        await eventually(all_wait)
        with trio.fail_after(PATIENCE):
            async with server.client() as client:
                assert (await client.get("/scim/v2/Users", f"Authorization: Bearer {other_directory.token}")).status == 200
        assert statuses == []
    assert statuses == [200] * (2 * POOL_SIZE)


async def test_slow_large_bodies_take_no_turn(
    app: QuartTrio, server: Served, directory: Directory, other_directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = FairPlaces(trio.Event, 1)
    monkeypatch.setattr(app_context(app).directory_turns, "places", turns)
    async with AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(server.client()) for _ in range(2 * MAX_PER_ORGANIZATION)]
        senders = [*[directory] * MAX_PER_ORGANIZATION, *[other_directory] * MAX_PER_ORGANIZATION]
        for client, sender in zip(slow, senders, strict=True):
            assert (await begin(client, sender)).status == 100
        async with server.client() as other:
            assert (await other.get("/scim/v2/Users", f"Authorization: Bearer {directory.token}")).status == 200
        for client, sender in zip(slow, senders, strict=True):
            await client.send(group(sender, LARGE))
            assert (await client.reply()).status == 200
    assert turns.is_idle


async def test_the_waiting_requests_of_an_organization_are_limited(app: QuartTrio, server: Served, directory: Directory) -> None:
    with ExitStack() as others:
        for _ in range(MAX_ADMITTED):
            others.enter_context(app_context(app).directory_turns.admit(directory.tenant.org))
        async with server.client() as client:
            await client.send(head(directory, f"Content-Length: {MAX_BODY}"))
            assert_refused(await client.reply())
        async with server.client() as other:
            assert (await other.get("/health")).status == 200
    async with server.client() as client:
        assert (await client.get("/scim/v2/Users", f"Authorization: Bearer {directory.token}")).status == 200


async def test_slow_small_bodies_do_not_stop_the_other_requests_of_their_organization(server: Served, directory: Directory) -> None:
    async with AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(server.client()) for _ in range(MAX_CONCURRENT)]
        for client in slow:
            assert (await begin(client, directory, MAX_BODY)).status == 100
        async with server.client() as other:
            assert (await other.get("/scim/v2/Users", f"Authorization: Bearer {directory.token}")).status == 200
        for client in slow:
            await client.send(group(directory, MAX_BODY))
            assert (await client.reply()).status == 200


@pytest.mark.parametrize("sends", ["nothing", "everything"])
async def test_a_refused_request_is_answered_without_its_body(
    server: Served, directory: Directory, other_directory: Directory, sends: str
) -> None:
    """A client that sends its whole body before it reads gets the response, too."""
    other = other_directory.tenant
    await run_sql(other.pool, "update organizations set status = 'suspended' where id = %s", other.org)
    length = f"Content-Length: {LARGE}"
    requests = {
        "unknown token": (head(directory, length, token="scim_x"), 401),
        "inactive organization": (head(other_directory, length), 403),
        "unknown group": (head(directory, length, path="/Groups/x"), 404),
        "unknown path": (head(directory, f"Content-Length: {MAX_BODY}", path="/Nothing"), 404),
        "method": (head(directory, f"Content-Length: {MAX_BODY}", method="DELETE"), 403),
        "too large": (head(directory, length, path="/Users/x"), 413),
        "much too large": (head(directory, f"Content-Length: {MAX_SCIM_GROUP_BODY + 1}"), 413),
        "no session": (b"POST /api/organizations HTTP/1.1\r\nHost: test\r\nContent-Length: 200000\r\n\r\n", 401),
        "content type": (b"POST /api/auth/login HTTP/1.1\r\nHost: test\r\nContent-Type: text/plain\r\nContent-Length: 200000\r\n\r\n", 415),
        "content type in SCIM": (head(directory, f"Content-Length: {MAX_BODY}", content_type="text/plain"), 415),
    }

    async def check(name: str, request: bytes, status: int) -> None:
        async with server.client() as client:
            await client.send(request)
            if sends == "everything":
                with trio.fail_after(PATIENCE):
                    await client.send(b"x" * int(request.partition(b"Content-Length: ")[2].split()[0]))
            reply = await client.reply()
            assert (reply.status, reply.headers["connection"]) == (status, "close"), name
            assert await client.is_closed(), name

    for name, (request, status) in requests.items():
        await check(name, request, status)
    async with server.client() as one, server.client() as another:
        for client in (one, another):
            assert (await begin(client, directory)).status == 100
        await check("too many", head(directory, length), 429)


async def test_a_refusal_keeps_the_connection_if_the_body_has_arrived(server: Served, directory: Directory) -> None:
    async with server.client() as client:
        for _ in range(2):
            await client.send(head(directory, "Content-Length: 2", token="scim_x") + b"{}")
            reply = await client.reply()
            assert (reply.status, reply.headers.get("connection")) == (401, None)
