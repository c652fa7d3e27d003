"""The server and the middleware on real sockets, with Quart-Trio and bare ASGI applications."""

import json
import re
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import h11
import pytest
import structlog.testing
import trio
import trio.testing
from quart import Response, request
from quart_trio import QuartTrio

from entrypoints.http.edge.middleware import App, Receive, Send
from entrypoints.http.edge.protocol.client_connection import HEADERS_WITHIN, Connection, ServerState
from entrypoints.http.edge.protocol.client_socket import SEND_WITHIN, ClientSocket
from entrypoints.http.edge.protocol.listening import BACKLOG, BindError, listen
from entrypoints.http.edge.protocol.request_checks import Scope
from entrypoints.http.edge.protocol.server import Server
from entrypoints.http.edge.size_limits import MAX_HEADER_BLOCK
from entrypoints.settings import KEEP_ALIVE
from tests.fakes.certificates import make_certificate
from tests.proof.wire import wire
from tests.proof.wire.wire import Client, serving, serving_without_middleware
from tests.support.waiting import PATIENCE, eventually

if TYPE_CHECKING:
    from entrypoints.http.base.request_record import RequestRecord

SOON: Final = 0.2  # seconds until a deadline, which a TLS handshake on a busy machine must meet
LARGE = 320 * 65536  # more than the kernel buffers for a connection

POST = b"POST /api/echo HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"


class SmallApplication:
    """A small Quart application that can hold its requests."""

    def __init__(self) -> None:
        self.entered = trio.Event()
        self.leave = trio.Event()
        self.calls: list[str] = []
        self.ended: list[str] = []
        self.exchange: RequestRecord | None = None
        self.app = QuartTrio(__name__, static_folder=None)
        self.app.before_request(self._note)
        self.app.get("/api/quick")(self._quick)
        self.app.get("/api/slow")(self._slow)
        self.app.post("/api/slow")(self._slow)
        self.app.post("/api/echo")(self._echo)
        self.app.post("/api/refuse")(self._refuse)
        self.app.get("/api/large")(self._large)
        self.app.get("/api/broken")(self._broken)

    async def _note(self) -> None:
        self.calls.append(request.path)
        exchange: RequestRecord = request.scope["request_record"]  # type: ignore[typeddict-item]
        self.exchange = exchange
        if request.url_rule is not None:
            exchange.route = request.url_rule.rule

    def sees_the_client_gone(self) -> bool:
        return self.exchange is not None and self.exchange.aborted

    async def _quick(self) -> str:
        return "ok"

    async def _slow(self) -> str:
        self.entered.set()
        try:
            await self.leave.wait()
        except trio.Cancelled:
            self.ended.append("cancelled")
            raise
        self.ended.append("done")
        return "slow"

    async def _echo(self) -> str:
        return str(await request.get_data(as_text=True))

    async def _refuse(self) -> tuple[str, int]:
        return "go away", 401

    async def _large(self) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(LARGE // 65536):
                yield b"x" * 65536

        return Response(pieces())

    async def _broken(self) -> str:
        raise ZeroDivisionError


MODES: Final = ["plain HTTP", "TLS"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests that use `serving` with plain HTTP and with TLS."""
    if "serving" in metafunc.function.__code__.co_names:
        metafunc.parametrize("tls", MODES, indirect=True)


@pytest.fixture(scope="session")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> wire.Tls:
    return wire.make_tls(make_certificate(tmp_path_factory.mktemp("tls") / "server.pem", "localhost", days=1))


@pytest.fixture
def use_mode(contexts: wire.Tls, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A function that chooses a mode from MODES for the next `serving`."""
    return lambda mode: monkeypatch.setattr(wire, "tls_in_use", contexts if mode == "TLS" else None)


@pytest.fixture(autouse=True)
def tls(request: pytest.FixtureRequest, use_mode: Callable[[str], None]) -> None:
    use_mode(getattr(request, "param", MODES[0]))


@pytest.fixture
def application() -> SmallApplication:
    return SmallApplication()


@pytest.fixture
def app(application: SmallApplication) -> App:
    return application.app  # type: ignore[return-value]


def bare(answer: Callable[[Scope, Receive, Send], Awaitable[None]]) -> App:
    """Return an ASGI application without a framework and without lifespan."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await answer(scope, receive, send)
        else:
            while True:
                kind = (await receive())["type"]
                await send({"type": f"{kind}.complete"})
                if kind == "lifespan.shutdown":
                    return

    return app


async def say(send: Send, body: bytes = b"ok", status: int = 200) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain"), length]})
    await send({"type": "http.response.body", "body": body})


async def say_size(scope: Scope, receive: Receive, send: Send) -> None:
    """Read the body, and answer with its size."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message["body"]), message["more_body"]
    await say(send, b"%d" % size)


class HeldAnswer:
    """The answer from a bare application that waits until the test sets `leave`."""

    def __init__(self) -> None:
        self.entered, self.leave = trio.Event(), trio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.entered.set()
        await self.leave.wait()
        await say(send)


# Connections


async def test_one_connection_serves_many_requests(app: App) -> None:
    async with serving(app) as server, server.client() as client:
        for _ in range(3):
            reply = await client.get("/api/quick")
            assert (reply.status, reply.body) == (200, b"ok")
            assert reply.headers["content-type"].startswith("text/html")
        assert "date" in reply.headers
        assert "server" not in reply.headers
        assert [exchange.route for exchange in await server.observed(3)] == ["/api/quick"] * 3


async def test_pipelined_requests_are_answered_in_order(app: App) -> None:
    async with serving(app) as server, server.client() as client:
        echoes = b"".join(POST + b"Content-Length: 1\r\n\r\n%d" % number for number in range(8))
        await client.send(echoes)
        assert [(await client.reply()).body for _ in range(8)] == [b"%d" % number for number in range(8)]
        assert len(await server.observed(8)) == 8


async def note_turns(events: list[str]) -> None:
    while True:
        events.append("turn")
        await trio.lowlevel.checkpoint()


def assert_other_tasks_have_turns(events: list[str], step: str) -> None:
    """Check that at most three steps follow in a row.

    Trio shuffles every batch of tasks, so two can, and the last step can follow at once.
    """
    assert events.count(step) > 10
    assert [step] * 4 not in [events[i : i + 4] for i in range(len(events))]


async def test_pipelined_requests_do_not_hold_up_other_tasks() -> None:
    events: list[str] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        events.append("request")
        await say(send)

    async with serving(bare(answer)) as server, server.client() as client, trio.open_nursery() as nursery:
        nursery.start_soon(note_turns, events)
        await client.send(HIDDEN * 20)
        for _ in range(20):
            await client.reply()
        nursery.cancel_scope.cancel()
    assert_other_tasks_have_turns(events, "request")


async def test_a_large_body_does_not_hold_up_other_tasks() -> None:
    events: list[str] = []
    arrived = trio.Event()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await arrived.wait()
        more = True
        while more:
            more = (await receive())["more_body"]
            events.append("part")
        await say(send)

    async with serving(bare(answer), body_limit=lambda _: 1_000_000) as server, server.client() as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.send, POST + b"Content-Length: 1000000\r\n\r\n" + b"x" * 1_000_000)
        await trio.testing.wait_all_tasks_blocked()  # the kernel has as much of the body as it takes
        nursery.start_soon(note_turns, events)
        arrived.set()
        await client.reply()
        nursery.cancel_scope.cancel()
    assert_other_tasks_have_turns(events, "part")


async def test_a_long_response_does_not_hold_up_other_tasks() -> None:
    events: list[str] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(20):
            await send({"type": "http.response.body", "body": b"part", "more_body": number < 19})
            events.append("part")

    async with serving(bare(answer)) as server, server.client() as client, trio.open_nursery() as nursery:
        nursery.start_soon(note_turns, events)
        await client.send(HIDDEN)
        assert (await client.reply()).body == b"part" * 20
        nursery.cancel_scope.cancel()
    assert_other_tasks_have_turns(events, "part")


@pytest.mark.parametrize("path", ["/api/quick", "/api/nowhere", "/api/broken"])
async def test_connection_close_is_obeyed(app: App, path: str) -> None:
    async with serving(app) as server, server.client() as client:
        reply = await client.get(path, "Connection: close")
        assert reply.headers["connection"] == "close"
        assert await client.is_closed()
        assert "x-request-id" in reply.headers


async def test_http_1_0_is_answered_and_closed(app: App) -> None:
    async with serving(app) as server, server.client() as client:
        await client.send(b"GET /api/quick HTTP/1.0\r\n\r\n")
        reply = await client.reply()
        assert (reply.status, reply.body) == (200, b"ok")
        assert await client.is_closed()


@pytest.mark.slow
async def test_an_idle_connection_is_closed(use_mode: Callable[[str], None]) -> None:
    """Both servers run at once, because this test waits for the real times."""
    assert max(HEADERS_WITHIN, KEEP_ALIVE) <= 5  # Required are 6 s. Here it only has to happen, with the real settings.
    async with trio.open_nursery() as nursery:
        for mode in MODES:
            nursery.start_soon(_check_idle_connections, mode, use_mode)


async def _check_idle_connections(mode: str, use_mode: Callable[[str], None]) -> None:
    async def trickle(client: Client) -> None:
        with pytest.raises(trio.BrokenResourceError):  # noqa: PT012
            for byte in b"GET /api/quick HTTP/1.1\r\nHost: test\r\nX-Slow: xxxxxxxx":
                await client.send(bytes([byte]))
                await trio.sleep(0.5)

    use_mode(mode)  # `serving` reads it before this task waits
    served = serving(bare(_answer_ok), headers_within=HEADERS_WITHIN, keep_alive=KEEP_ALIVE)
    async with served as server, server.client() as silent, server.client() as used, server.client() as slow:
        await used.get("/api/quick")
        with trio.fail_after(2 * PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trickle, slow)
                assert await silent.is_closed(), mode
                assert await used.is_closed(), mode


async def _answer_ok(scope: Scope, receive: Receive, send: Send) -> None:
    await say(send)


async def test_closing_idle_connections_logs_nothing(app: App) -> None:
    async with serving(app, headers_within=SOON) as server, server.client() as silent:
        assert await silent.is_closed()
        assert server.exchanges == []
    async with serving(app, keep_alive=SOON) as server, server.client() as used:
        await used.get("/api/quick")
        assert await used.is_closed()
        assert len(server.exchanges) == 1


async def test_an_idle_connection_is_kept_longer_than_slow_headers(app: App) -> None:
    async with serving(app, headers_within=SOON) as server, server.client() as client:
        await client.get("/api/quick")
        await trio.sleep(1.5 * SOON)
        assert (await client.get("/api/quick")).status == 200
        await client.send(b"GET /api/quick")
        assert (await client.reply()).status == 408


async def test_a_client_that_closes_its_half_gets_its_response(application: SmallApplication, app: App) -> None:
    async with serving(app) as server, server.client() as client:
        await client.send(b"GET /api/slow HTTP/1.1\r\nHost: test\r\n\r\n")
        await application.entered.wait()
        await client.end()
        await eventually(application.sees_the_client_gone)
        application.leave.set()
        assert (await client.reply()).body == b"slow"
        assert await client.is_closed()


@pytest.mark.parametrize("reset", [False, True])
async def test_a_disconnecting_client_does_not_cancel_its_handler(application: SmallApplication, app: App, reset: bool) -> None:
    async with serving(app) as server:
        async with server.client() as client:
            await client.send(b"GET /api/slow HTTP/1.1\r\nHost: test\r\n\r\n")
            await application.entered.wait()
            if reset:
                client.reset_when_closed()
        await eventually(application.sees_the_client_gone)
        application.leave.set()
        [exchange] = await server.observed()
        assert application.ended == ["done"]
        assert (exchange.aborted, exchange.route, exchange.status) == (True, "/api/slow", 200)


async def test_a_client_that_disconnects_in_its_body_is_recorded(application: SmallApplication, app: App) -> None:
    async with serving(app) as server:
        async with server.client() as client:
            await client.send(POST.replace(b"echo", b"slow") + b"Content-Length: 10\r\n\r\nabc")
            await application.entered.wait()
        [exchange] = await server.observed()
        assert (exchange.aborted, exchange.route, exchange.status) == (True, "/api/slow", 499)
        assert application.ended == ["cancelled"]


async def test_the_method_is_passed_on_in_upper_case(app: App) -> None:
    """The middleware compares methods in upper case, and Quart converts them."""
    async with serving(app) as server, server.client() as client:
        assert (await client.get("/api/quick", method="head")).headers["content-length"] == "2"
        assert (await client.get("/api/quick", method="get")).body == b"ok"
        assert [exchange.method for exchange in await server.observed(2)] == ["HEAD", "GET"]


async def test_expect_continue_is_answered(app: App) -> None:
    async with serving(app) as server, server.client() as client:
        await client.send(POST + b"Content-Length: 4\r\nExpect: 100-Continue\r\n\r\n")
        assert (await client.reply()).status == 100
        await client.send(b"body")
        assert (await client.reply()).body == b"body"


async def test_head_is_answered_without_a_body(app: App) -> None:
    async with serving(app) as server, server.client() as client:
        reply = await client.get("/api/quick", method="HEAD")
        assert (reply.status, reply.headers["content-length"]) == (200, "2")
        assert (await client.get("/api/quick")).body == b"ok"  # so the next response is in the right place


# Slow and stalled clients


async def test_headers_that_arrive_too_slowly_end_the_connection(app: App) -> None:
    async with serving(app, headers_within=0.1) as server, server.client() as client:
        cut = False
        with trio.fail_after(PATIENCE):
            for byte in b"GET /api/quick HTTP/1.1\r\nHost: test\r\nX-Slow: " + b"x" * 1000:
                try:
                    await client.send(bytes([byte]))
                except trio.BrokenResourceError:
                    cut = True
                    break
                await trio.sleep(0.01)
        assert cut
        [exchange] = await server.observed()
        assert (exchange.status, exchange.error_code) == (408, "REQUEST_TIMEOUT")


async def test_incomplete_headers_get_a_408(app: App) -> None:
    async with serving(app, headers_within=SOON) as server, server.client() as client:
        await client.send(b"GET /api/quick HTTP/1.1\r\nHost:")
        reply = await client.reply()
        assert (reply.status, json.loads(reply.body)["error_code"]) == (408, "REQUEST_TIMEOUT")
        assert await client.is_closed()


async def test_incomplete_headers_after_a_head_request_get_a_408(app: App) -> None:
    """The response to HEAD has no body, but the 408 has a body."""
    async with serving(app, headers_within=SOON) as server, server.client() as client:
        await client.get("/api/quick", method="HEAD")
        await client.send(b"GET /api/quick")
        assert (await client.reply()).body
        assert await client.is_closed()


@pytest.mark.parametrize("framing", [b"Content-Length: 9\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"])
async def test_a_body_that_is_too_late_is_refused(app: App, framing: bytes) -> None:
    async with serving(app, body_within=0.05) as server, server.client() as client:
        await client.send(POST + framing)
        reply = await client.reply()
        assert (reply.status, json.loads(reply.body)["error_code"]) == (408, "REQUEST_TIMEOUT")
        assert await client.is_closed()
        assert [exchange.route for exchange in server.exchanges] == ["/api/echo"]


async def test_a_client_that_stops_reading_is_dropped(app: App) -> None:
    assert SEND_WITHIN < 60
    async with serving(app, send_within=0.1) as server, server.client() as client:
        await client.send(b"GET /api/large HTTP/1.1\r\nHost: test\r\n\r\n")
        [exchange] = await server.observed()
        assert (exchange.route, exchange.aborted) == ("/api/large", True)
        with pytest.raises(trio.BrokenResourceError):  # a reset: the kernel discards the rest
            await client.rest()


async def test_a_slow_reader_is_not_dropped(app: App) -> None:
    async with serving(app) as server, server.client() as client:
        await client.send(b"GET /api/large HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
        assert len(await client.rest()) > LARGE
        assert [exchange.aborted for exchange in await server.observed()] == [False]


async def test_the_kernel_drops_an_unresponsive_peer() -> None:
    with listen("127.0.0.1:0")[0] as listening, socket.create_connection(listening.getsockname()) as client:
        await trio.lowlevel.wait_readable(listening)
        accepted, _ = listening.accept()
        with accepted, client:
            assert 15_000 <= accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 30_000
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


# Refusals


UPGRADES = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
    "websocket": b"Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    "several": b"Connection: Upgrade\r\nUpgrade: TLS/1.3, h2c\r\nUpgrade: websocket\r\n",
}


@pytest.mark.parametrize(
    "body", [b"", b"Content-Length: 5\r\n\r\nhello", b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"]
)
@pytest.mark.parametrize("upgrade", UPGRADES.values(), ids=UPGRADES)
async def test_an_upgrade_is_ignored(app: App, upgrade: bytes, body: bytes) -> None:
    """The connection goes on with HTTP/1.1, also with a pipelined request (RFC 9110 section 7.8)."""
    request = POST + upgrade + body if body else b"GET /api/quick HTTP/1.1\r\nHost: test\r\n" + upgrade + b"\r\n"
    async with serving(app) as server, server.client() as client:
        await client.send(request + request)
        for _ in range(2):
            reply = await client.reply()
            assert (reply.status, reply.body, "upgrade" in reply.headers) == (200, b"hello" if body else b"ok", False)
        assert (await client.get("/api/quick")).status == 200


async def test_an_empty_line_between_requests_is_ignored(app: App) -> None:
    async with serving(app) as server, server.client() as client:
        for _ in range(3):
            await client.send(b"\r\n")
            assert (await client.get("/api/quick")).status == 200


async def test_an_expectation_of_http_1_0_is_ignored(app: App) -> None:
    """The client would take an interim response for the final response (RFC 9110 section 10.1.1)."""
    async with serving(app) as server, server.client() as client:
        await client.send(POST.replace(b"HTTP/1.1", b"HTTP/1.0") + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        await client.send(b"hello")
        assert (await client.rest()).startswith(b"HTTP/1.1 200 ")


async def test_http_2_by_prior_knowledge_is_refused(application: SmallApplication, app: App) -> None:
    async with serving(app) as server, server.client() as client:
        # GET / with indexed header fields, after the preface and an empty SETTINGS frame.
        headers = b"\x82\x84\x86\x41\x04test"
        frames = b"\0\0\0\x04\0\0\0\0\0" + struct.pack(">I", len(headers))[1:] + b"\x01\x05\0\0\0\x01" + headers
        await client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frames)
        assert (await client.rest()).startswith(b"HTTP/1.1 505 ")
        assert application.calls == []
        assert [exchange.status for exchange in server.exchanges] == [505]


async def test_connect_is_refused(application: SmallApplication, app: App) -> None:
    async with serving(app) as server, server.client() as client:
        assert (await client.get("example.com:443", method="CONNECT")).status == 405
        assert await client.is_closed()
        assert application.calls == []


HIDDEN = b"GET /api/quick HTTP/1.1\r\nHost: test\r\n\r\n"

SMUGGLING = {
    "both lengths": (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "both, the other way round": (b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400),
    "both, and a length of nothing": (b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "contradicting lengths": (b"Content-Length: 0\r\nContent-Length: 44\r\n\r\n", 400),
    "a list of lengths": (b"Content-Length: 0, 44\r\n\r\n", 400),
    "a signed length": (b"Content-Length: +0\r\n\r\n", 400),
    "an unknown coding": (b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501),
    "two codings": (b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    "two coding headers": (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 501),
    "two hosts": (b"Host: test\r\n\r\n", 400),
    "a space before the colon": (b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
    "a tab in the name": (b"Content-Length\t: 0\r\n\r\n", 400),
    "a bare CR": (b"X: a\rContent-Length: 44\r\n\r\n", 400),
    "a NUL": (b"X: a\0b\r\n\r\n", 400),
    "an invalid chunk size": (b"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n", 400),
    "a chunk longer than it says": (b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", 400),
    "a chunk without an end": (b"Transfer-Encoding: chunked\r\n\r\n1\r\naXX0\r\n\r\n", 400),
}


@pytest.mark.parametrize(("head", "status"), SMUGGLING.values(), ids=SMUGGLING)
async def test_request_smuggling_is_refused(application: SmallApplication, app: App, head: bytes, status: int) -> None:
    async with serving(app) as server, server.client() as client:
        await client.send(b"POST /api/echo HTTP/1.1\r\nHost: test\r\n" + head + HIDDEN)
        answers = await client.rest()
        assert re.findall(rb"^HTTP/1.1 (\d+) ", answers, re.MULTILINE) == [str(status).encode()]
        assert "/api/quick" not in application.calls


async def test_a_request_without_a_host_is_refused(application: SmallApplication, app: App) -> None:
    async with serving(app) as server, server.client() as client:
        await client.send(b"GET /api/quick HTTP/1.1\r\n\r\n")
        assert (await client.reply()).status == 400
        assert application.calls == []


async def test_chunks_in_http_1_0_are_refused(application: SmallApplication, app: App) -> None:
    async with serving(app) as server, server.client() as client:
        await client.send(b"POST /api/echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        assert (await client.reply()).status == 400
        assert application.calls == []


@pytest.mark.parametrize("name", ["Authorization", "Content-Type", "X-Api-Key", "billing-signature"])
async def test_headers_that_frame_the_message_must_not_repeat(application: SmallApplication, app: App, name: str) -> None:
    async with serving(app) as server, server.client() as client:
        assert (await client.get("/api/quick", f"{name}: a", f"{name.upper()}: b")).status == 400
        assert (await client.get("/api/quick", f"{name}: a")).status == 200
        assert application.calls == ["/api/quick"]


@pytest.mark.parametrize("size", [16 * 1024, 60_000, 200_000])
async def test_large_headers_are_refused(application: SmallApplication, app: App, size: int) -> None:
    async with serving(app) as server, server.client() as client:
        await client.send(b"GET /api/quick HTTP/1.1\r\nHost: test\r\nX-Large: " + b"x" * size + b"\r\n\r\n")
        reply = await client.reply()
        assert (reply.status, json.loads(reply.body)["error_code"]) == (431, "REQUEST_HEADER_FIELDS_TOO_LARGE")
        assert await client.is_closed()
        assert application.calls == []


async def test_headers_below_the_limit_are_accepted(app: App) -> None:
    async with serving(app) as server, server.client() as client:
        assert (await client.get("/api/quick", "X-Large: " + "x" * 16_000)).status == 200


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x16\x03\x01",
        b"\r\n\r\n" + POST,
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\r\n\r\n",
    ],
)
async def test_other_protocols_get_a_400_and_are_recorded(application: SmallApplication, app: App, garbage: bytes) -> None:
    async with serving(app) as server, server.client() as client:
        await client.send(garbage)
        reply = await client.reply()
        assert (reply.status, json.loads(reply.body)["error_code"]) == (400, "BAD_REQUEST")
        assert {"x-request-id", "x-content-type-options", "date"} <= reply.headers.keys()
        assert await client.is_closed()
        [exchange] = server.exchanges
        assert (exchange.status, exchange.route, exchange.address) == (400, "(unknown)", "127.0.0.1")
        assert exchange.request_id == reply.headers["x-request-id"]


@pytest.mark.parametrize("pieces", ["at once", "bytes"])
async def test_requests_do_not_depend_on_how_they_arrive(pieces: str) -> None:
    bodies: list[tuple[str, bytes]] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        bodies.append((scope["path"], body))
        await say(send)

    request = b"POST /a HTTP/1.1\r\nHost: test\r\n"
    chunks = b"Transfer-Encoding: chunked\r\n\r\n1;x=y\r\na\r\n00A\r\n0123456789\r\n0\r\nX: y\r\n\r\n"
    upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\n"  # ignored (RFC 9110 section 7.8)
    both = b"Content-Length: 3\r\n" + chunks  # the middleware refuses such a request
    # An empty line before a request is ignored, too (RFC 9112 section 2.2).
    data = b"\r\n" + request + upgrade + b"hello\r\n" + request + chunks + request + both + request + b"\r\n"
    async with serving_without_middleware(bare(answer)) as server, server.client() as client:
        for piece in [data] if pieces == "at once" else [data[i : i + 1] for i in range(len(data))]:
            await client.send(piece)
        assert [(await client.reply()).body for _ in range(4)] == [b"ok"] * 4
    assert bodies == [("/a", b"hello"), ("/a", b"a0123456789"), ("/a", b"a0123456789"), ("/a", b"")]


@pytest.mark.parametrize("line", [b"1;" + b"x" * MAX_HEADER_BLOCK, b"0\r\nX: " + b"x" * MAX_HEADER_BLOCK], ids=["chunk", "trailer"])
async def test_endless_chunk_lines_and_trailers_are_refused(line: bytes) -> None:
    async with serving(bare(say_size)) as server, server.client() as client:
        await client.send(POST + b"Transfer-Encoding: chunked\r\n\r\n" + line)
        assert (await client.reply()).status == 431
        assert await client.is_closed()


@pytest.mark.parametrize("value", ["x, Close", "close,x", "CLOSE"])
async def test_a_list_of_connection_options_can_close(app: App, value: str) -> None:
    async with serving(app) as server, server.client() as client:
        assert (await client.get("/api/quick", f"Connection: {value}")).headers["connection"] == "close"
        assert await client.is_closed()


# Bodies


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_client_reads_the_413_while_it_still_sends(application: SmallApplication, app: App, chunked: bool) -> None:
    size = 8_000_000
    async with serving(app) as server, server.client() as client, trio.open_nursery() as nursery:

        async def upload() -> None:
            framing = b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"Content-Length: %d\r\n\r\n" % size
            try:
                await client.send(POST + framing)
                for _ in range(size // 8000):
                    await client.send(b"1f40\r\n" + b"x" * 8000 + b"\r\n" if chunked else b"x" * 8000)
            except trio.BrokenResourceError:
                pass  # the server may cut the connection once the client had time to read

        nursery.start_soon(upload)
        reply = await client.reply()
        assert (reply.status, json.loads(reply.body)["error_code"]) == (413, "PAYLOAD_TOO_LARGE")
        assert await client.is_closed()
        nursery.cancel_scope.cancel()


async def test_a_client_that_reads_only_after_its_upload_gets_the_early_response(app: App) -> None:
    async with serving(app) as server, server.client() as client:
        await client.send(POST + b"Content-Length: 600000\r\n\r\n")
        await server.observed()
        for _ in range(60):
            await client.send(b"x" * 10_000)  # raises if the server has closed the connection
        assert (await client.reply()).status == 413
        assert await client.is_closed()


async def test_a_response_before_the_end_of_the_body_closes_the_connection(app: App) -> None:
    async with serving(app) as server, server.client() as client:
        await client.send(POST.replace(b"echo", b"refuse") + b"Content-Length: 100\r\n\r\nabc")
        assert (await client.reply()).status == 401
        assert await client.is_closed()
        assert [(exchange.status, exchange.aborted) for exchange in await server.observed()] == [(401, False)]


async def test_a_request_with_a_malformed_body_does_not_reach_the_application(application: SmallApplication, app: App) -> None:
    async with serving(app) as server, server.client() as client:
        await client.send(POST.replace(b"echo", b"refuse") + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n")
        reply = await client.reply()
        assert (reply.status, json.loads(reply.body)["error_code"]) == (400, "BAD_REQUEST")
        assert await client.is_closed()
        [exchange] = await server.observed()
        assert (exchange.status, exchange.request_id) == (400, reply.headers["x-request-id"])
    assert application.calls == []


@pytest.mark.parametrize("rest", [b"ZZ\r\n", b""], ids=["malformed", "truncated"])
async def test_a_body_that_breaks_while_the_application_runs_is_recorded_without_a_response(rest: bytes) -> None:
    answer = HeldAnswer()
    with structlog.testing.capture_logs() as lines:
        async with serving(bare(answer)) as server, server.client() as client:
            await client.send(POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
            await answer.entered.wait()
            await client.send(rest)
            if not rest:
                await client.end()
            answer.leave.set()
            assert (await client.reply()).status == 400
            [exchange] = await server.observed()
            assert (exchange.status, exchange.aborted, exchange.error) == (499, True, None)
            assert await client.is_closed()
    assert lines == []


@pytest.mark.parametrize("reason", ["unread body", "header", "header, at once"])
async def test_data_after_the_last_request_of_a_connection_does_not_cut_its_response(reason: str) -> None:
    entered, leave = trio.Event(), trio.Event()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"6")]})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        entered.set()
        await leave.wait()
        await send({"type": "http.response.body", "body": b"two"})

    async with serving(bare(answer)) as server, server.client() as client:
        first, rest = POST + b"Content-Length: 4\r\n\r\n", b"body" + HIDDEN
        if reason != "unread body":
            first, rest = b"GET /api/quick HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n", HIDDEN
        if reason == "header, at once":
            first, rest = first + rest, b""
        await client.send(first)
        with trio.fail_after(PATIENCE):
            await entered.wait()
        await client.send(rest)
        await trio.testing.wait_all_tasks_blocked(0.01)
        leave.set()
        reply = await client.reply()
        assert (reply.body, reply.headers["connection"]) == (b"onetwo", "close")
        assert await client.is_closed()
        assert [(exchange.status, exchange.aborted) for exchange in await server.observed()] == [(200, False)]


async def test_an_application_that_reads_no_body_does_not_hang() -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await say(send)

    async with serving(bare(answer)) as server, server.client() as client:
        await client.send(POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 1000)
        assert (await client.reply()).status == 200
        assert await client.is_closed()
        await server.observed()
    # no task is left when the block ends


async def test_a_body_waits_for_a_busy_application(application: SmallApplication) -> None:
    received = 0
    go = trio.Event()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal received
        await go.wait()
        more = True
        while more:
            message = await receive()
            received += len(message["body"])
            more = message["more_body"]
        await say(send)

    async with serving(bare(answer), body_limit=lambda _: 50_000_000) as server, server.client() as client:
        sent = 0
        with trio.move_on_after(0.1):
            await client.send(POST + b"Content-Length: 40000000\r\n\r\n")
            for _ in range(4000):
                await client.send(b"x" * 10_000)
                sent += 10_000
        assert sent < 30_000_000, "the client has to wait"
        go.set()


# Faults


async def test_a_fault_ends_only_its_own_connection() -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await say(send)

    listening = listen("127.0.0.1:0")
    shutdown, started = trio.Event(), trio.Event()

    def malformed(status: int, peer: str | None, *, observed: bool) -> Any:
        raise ZeroDivisionError

    serve = Server(app=bare(answer), keep_alive=60, malformed=malformed).serve
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve, listening, shutdown=shutdown, shutdown_grace=1, on_started=started.set))
        await started.wait()
        port = listening[0].getsockname()[1]
        async with await trio.open_tcp_stream("127.0.0.1", port) as first, await trio.open_tcp_stream("127.0.0.1", port) as second:
            with structlog.testing.capture_logs() as logs:
                await first.send_all(b"rubbish\r\n\r\n")
                assert await Client(first).is_closed()
            assert [line["event"] for line in logs] == ["connection_failed"]
            await second.send_all(b"GET /nowhere HTTP/1.1\r\nHost: test\r\n\r\n")
            assert (await Client(second).reply()).status == 200
        shutdown.set()


async def test_a_response_that_breaks_off_is_incomplete() -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ZeroDivisionError

    async with serving(bare(answer)) as server, server.client() as client:
        await client.send(HIDDEN)
        assert (await client.rest()).endswith(b"4\r\nhalf\r\n")  # without the last chunk
        assert isinstance((await server.observed())[0].error, ZeroDivisionError)


@pytest.mark.parametrize("path", [b"/api/quick", b"/api/large", b"*"])
async def test_responses_to_disconnected_clients_are_not_faults(application: SmallApplication, app: App, path: bytes) -> None:
    async with serving(app) as server:
        with structlog.testing.capture_logs() as logs:
            for _ in range(20):
                async with server.client() as client:
                    client.reset_when_closed()
                    await client.send(b"GET %s HTTP/1.1\r\nHost: test\r\n\r\n" % path)
            server.shutdown.set()
            await server.finished.wait()
        assert logs == []
        assert {exchange.error for exchange in server.exchanges} <= {None}  # connections that were reset at once never became requests


async def test_a_handler_that_fails_when_canceled_does_not_stop_the_shutdown(app: App) -> None:
    entered = trio.Event()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                entered.set()
                await trio.sleep_forever()
        except BaseException:
            raise ZeroDivisionError from None

    async with serving(bare(answer), shutdown_grace=0) as server, server.client() as client:
        await client.send(HIDDEN)
        await entered.wait()
        server.shutdown.set()
        await server.finished.wait()
        assert [type(exchange.error) for exchange in server.exchanges] == [ZeroDivisionError]


async def test_invalid_response_headers_do_not_hang() -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"a\r\nb")]})

    async with serving(bare(answer)) as server, server.client() as client:
        await client.send(HIDDEN)
        assert b"a\r\nb" not in await client.rest()
        assert (await server.observed())[0].error is not None


@pytest.mark.parametrize("length", [b"1", b"3"])
async def test_a_body_that_differs_from_its_content_length_ends_the_connection(length: bytes) -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": b"ok"})

    async with serving(bare(answer)) as server, server.client() as client:
        await client.send(HIDDEN)
        received = await client.rest()  # the part before the error
        assert received == b"" or (b"content-length: 3" in received and received.endswith(b"\r\n\r\nok"))
        assert isinstance((await server.observed())[0].error, RuntimeError | h11.LocalProtocolError)


async def test_the_rest_of_a_body_is_not_the_next_request() -> None:
    """The server does not rely on the middleware for this."""
    calls: list[str] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        calls.append(scope["path"])
        await say(send)

    async with serving_without_middleware(bare(answer)) as server, server.client() as client:
        await client.send(POST + b"Content-Length: %d\r\n\r\n" % len(HIDDEN))
        assert (await client.reply()).status == 200
        await client.send(HIDDEN)
        assert await client.is_closed()
    assert calls == ["/api/echo"]


# Shutdown


async def test_an_idle_server_ends_without_waiting_for_its_grace(app: App) -> None:
    async with serving(app) as server, server.client() as silent, server.client() as used:
        await used.get("/api/quick")
        server.shutdown.set()
        with trio.fail_after(PATIENCE):
            await server.finished.wait()
        assert await used.is_closed()
        assert await silent.is_closed()
        assert await server.refuses()


async def test_a_connection_that_is_not_yet_waiting_learns_of_the_shutdown() -> None:
    server = ServerState(app=bare(say_size), keep_alive=wire.NEVER, headers_within=wire.NEVER)
    left, right = socket.socketpair()
    with left, right, trio.fail_after(PATIENCE):
        connection = Connection(server, ClientSocket(left, wire.NEVER))
        connection.close_if_idle()
        assert await connection.receive() is None


async def test_running_requests_finish_during_the_grace(application: SmallApplication, app: App) -> None:
    async with serving(app) as server, server.client() as client, server.client() as idle:
        await idle.get("/api/quick")
        await client.send(b"GET /api/slow HTTP/1.1\r\nHost: test\r\n\r\n")
        await application.entered.wait()
        server.shutdown.set()
        assert await idle.is_closed()
        assert not server.finished.is_set()
        application.leave.set()
        reply = await client.reply()
        assert (reply.body, reply.headers["connection"]) == (b"slow", "close")
        await client.stream.aclose()
        await server.finished.wait()


async def test_running_requests_are_canceled_after_the_grace(application: SmallApplication, app: App) -> None:
    async with serving(app, shutdown_grace=0.05) as server, server.client() as client:
        await client.send(b"GET /api/slow HTTP/1.1\r\nHost: test\r\n\r\n")
        await application.entered.wait()
        server.shutdown.set()
        reply = await client.reply()
        assert (reply.status, json.loads(reply.body)["error_code"]) == (503, "SERVICE_UNAVAILABLE")
        await server.finished.wait()
        assert application.ended == ["cancelled"]
        assert [(exchange.status, exchange.route) for exchange in server.exchanges] == [(503, "/api/slow")]


async def test_a_client_that_does_not_read_does_not_delay_the_shutdown(app: App) -> None:
    async with serving(app, shutdown_grace=0.05, send_within=0.2) as server, server.client() as client:
        await client.send(b"GET /api/large HTTP/1.1\r\nHost: test\r\n\r\n")
        await client.stream.receive_some(1)
        server.shutdown.set()
        with trio.fail_after(PATIENCE):
            await server.finished.wait()


async def test_lifespan_startup_and_shutdown_enclose_all_requests() -> None:
    life: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            life.append("request")
            await say(send)
            return
        for _ in range(2):
            kind = (await receive())["type"]
            life.append(kind)
            await send({"type": f"{kind}.complete"})

    async with serving(app) as server, server.client() as client:
        await client.get("/")
    assert life == ["lifespan.startup", "request", "lifespan.shutdown"]


# Listening


def test_an_address_in_use_is_reported_in_one_sentence() -> None:
    with listen("127.0.0.1:0")[0] as first:
        port = first.getsockname()[1]
        with pytest.raises(
            BindError, match=rf"^127\.0\.0\.1:{port} is already in use; stop the other program, or choose another address with SSO_BIND\.$"
        ):
            listen(f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    "bind", ["", "8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "127.0.0.1:-1", "no.such.invalid:80"]
)
def test_an_invalid_address_is_reported_in_one_sentence(bind: str) -> None:
    with pytest.raises(BindError) as caught:
        listen(bind)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(BindError, match="is not an address of this machine"):
        listen("192.0.2.1:0")


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
@pytest.mark.parametrize(("bind", "families"), [("[::1]:0", [socket.AF_INET6]), ("[::]:0", [socket.AF_INET6, socket.AF_INET])])
def test_ipv6_and_wildcard_addresses_are_accepted(bind: str, families: list[socket.AddressFamily]) -> None:
    try:
        [listening] = listen(bind)
    except BindError:
        pytest.skip("this machine has no IPv6 address")
    with listening:
        for family in families:
            with socket.socket(family) as client:
                client.connect(("::1" if family == socket.AF_INET6 else "127.0.0.1", listening.getsockname()[1]))
    assert BACKLOG >= 128
