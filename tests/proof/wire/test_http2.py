"""HTTP/2 over TLS, with h2 and hyperframe as a client that can break the rules."""

import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest
import structlog.testing
import trio
import trio.testing
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from entrypoints.http.edge.middleware import App, Receive, Send
from entrypoints.http.edge.protocol.client_connection import MAX_STREAMS
from entrypoints.http.edge.protocol.request_checks import Scope
from entrypoints.http.edge.size_limits import MAX_HEADER_BLOCK
from tests.fakes.certificates import make_certificate
from tests.proof.wire import wire
from tests.proof.wire.test_server import HIDDEN, LARGE, SOON, bare, say, say_size
from tests.proof.wire.wire import Served, serving
from tests.support.waiting import PATIENCE, eventually

GET = [(":method", "GET"), (":scheme", "https"), (":authority", "test"), (":path", "/")]
POST = [(":method", "POST"), *GET[1:]]


@pytest.fixture(autouse=True)
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> wire.Tls:
    file = make_certificate(tmp_path / "server.pem", "localhost")
    contexts = wire.make_tls(file)
    contexts.client.set_alpn_protocols(["h2"])
    monkeypatch.setattr(wire, "tls_in_use", contexts)
    return contexts


class Http2Client:
    """A client's connection. Its events are kept by stream; the connection's own events are at 0."""

    def __init__(self, stream: "trio.SSLStream[trio.SocketStream]") -> None:
        self.stream = stream
        config = h2.config.H2Configuration(
            header_encoding="utf-8", validate_outbound_headers=False, normalize_outbound_headers=False, validate_inbound_headers=True
        )
        self.h2 = h2.connection.H2Connection(config)
        self.events: dict[int, list[Any]] = {}
        self.is_ended = False  # our half

    async def start(self) -> None:
        self.h2.initiate_connection()
        await self.flush()

    async def flush(self) -> None:
        data = self.h2.data_to_send()
        if not self.is_ended:
            await self.stream.send_all(data)

    async def send(self, frames: Iterable[Frame]) -> None:
        await self.stream.send_all(b"".join(frame.serialize() for frame in frames))

    async def request(self, headers: list[tuple[str, str]] | None = None, body: bytes | None = None, *, end: bool = True) -> int:
        stream_id = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream_id, headers or GET, end_stream=end and body is None)
        if body is not None:
            self.h2.send_data(stream_id, body, end_stream=end)
        await self.flush()
        return stream_id

    async def receive(self) -> None:
        """Receive once. Raises: EOFError when the connection ends."""
        try:
            data = await self.stream.receive_some(65536)
        except trio.BrokenResourceError:
            data = b""
        if not data:
            raise EOFError
        for event in self.h2.receive_data(bytes(data)):
            self.events.setdefault(getattr(event, "stream_id", 0) or 0, []).append(event)
            if isinstance(event, h2.events.DataReceived):
                self.h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id)
        await self.flush()

    async def response(self, stream_id: int) -> tuple[int, dict[str, str], bytes]:
        """Return a complete response's status, headers and body."""
        with trio.fail_after(PATIENCE):
            while not self.has(stream_id, h2.events.StreamEnded):
                await self.receive()
        events = self.events[stream_id]
        head = next(event for event in events if isinstance(event, h2.events.ResponseReceived))
        headers = {str(name): str(value) for name, value in head.headers}
        body = b"".join(event.data for event in events if isinstance(event, h2.events.DataReceived))
        return int(headers[":status"]), headers, body

    def has(self, stream_id: int, kind: type) -> bool:
        return any(isinstance(event, kind) for event in self.events.get(stream_id, []))

    async def until_end(self) -> ErrorCodes | int | None:
        """Receive until the server ends the connection. Return its GOAWAY's error code, if any."""
        with trio.fail_after(PATIENCE):
            while True:
                try:
                    await self.receive()
                except (EOFError, trio.BrokenResourceError):
                    break
        codes = [event.error_code for event in self.events.get(0, []) if isinstance(event, h2.events.ConnectionTerminated)]
        return codes[-1] if codes else None


@asynccontextmanager
async def connected(server: Served) -> AsyncIterator[Http2Client]:
    async with await trio.open_tcp_stream("127.0.0.1", server.port) as transport:
        assert isinstance(server.trust, ssl.SSLContext)
        stream = trio.SSLStream(transport, server.trust, server_hostname="localhost", https_compatible=True)
        await stream.do_handshake()
        assert stream.selected_alpn_protocol() == "h2"
        client = Http2Client(stream)
        await client.start()
        yield client


async def is_served(server: Served) -> bool:
    """Return whether another client is served."""
    async with connected(server) as client:
        return (await client.response(await client.request()))[0] == 200


def application(answer: Callable[[Scope, Receive, Send], Any] | None = None) -> App:
    async def quick(scope: Scope, receive: Receive, send: Send) -> None:
        await say(send)

    return bare(answer or quick)


class Held:
    """An application that holds its requests until `leave` is set."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.leave = trio.Event()
        self.app = bare(self._answer)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/":
            await say(send)
            return
        self.running += 1
        self.most = max(self.most, self.running)
        await self.leave.wait()
        self.running -= 1
        await say(send)


SLOW = [*GET[:3], (":path", "/slow")]


async def test_requests_of_one_connection_run_together_and_are_recorded() -> None:
    held = Held()
    async with serving(held.app) as server, connected(server) as client:
        slow, quick = await client.request(SLOW), await client.request()
        status, headers, body = await client.response(quick)
        assert (status, body, headers["x-content-type-options"]) == (200, b"ok", "nosniff")
        assert "date" in headers
        assert {"server", "connection"}.isdisjoint(headers)
        held.leave.set()
        assert (await client.response(slow))[2] == b"ok"
        records = await server.observed(2)
        assert [(record.status, record.address) for record in records] == [(200, "127.0.0.1")] * 2


async def test_headers_are_those_of_http_1() -> None:
    seen: list[Scope] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)
        await say(send)

    async with serving(application(answer)) as server, connected(server) as client:
        fields = [*POST[:3], (":path", "/a%2Cb?c=d"), ("cookie", "a=1"), ("x", "1"), ("cookie", "b=2")]
        await client.response(await client.request(fields, b"body"))
    [scope] = seen
    assert scope["headers"] == [(b"host", b"test"), (b"x", b"1"), (b"transfer-encoding", b"chunked"), (b"cookie", b"a=1; b=2")]
    assert (scope["method"], scope["path"], scope["raw_path"], scope["query_string"]) == ("POST", "/a,b", b"/a%2Cb", b"c=d")
    assert scope["http_version"] == "2"


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([(":method", "CONNECT"), (":authority", "example.com:443")], 405),
        ([*GET, ("authorization", "a"), ("authorization", "b")], 400),
        ([*GET, ("content-type", "a"), ("content-type", "b")], 400),
        ([*GET[:3], (":path", "/é")], 400),
        ([*GET, ("x-large", "x" * MAX_HEADER_BLOCK)], 431),
    ],
    ids=["CONNECT", "two authorizations", "two content types", "a path that is not ASCII", "large headers"],
)
async def test_ambiguous_requests_are_refused_and_the_connection_goes_on(fields: list[tuple[str, str]], status: int) -> None:
    calls: list[str] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        calls.append(scope["path"])
        await say(send)

    async with serving(application(answer)) as server, connected(server) as client:
        assert (await client.response(await client.request(fields)))[0] == status
        assert (await client.response(await client.request()))[0] == 200
        assert [record.status for record in await server.observed(2)] == [status, 200]
    assert calls == ["/"]


async def test_a_request_without_a_host_is_refused() -> None:
    async with serving(application()) as server, connected(server) as client:
        await client.request([*GET[:2], GET[3]])
        assert await client.until_end() == ErrorCodes.PROTOCOL_ERROR
        assert [record.status for record in await server.observed()] == [400]


async def test_http_1_after_the_choice_of_http_2_ends_the_connection() -> None:
    async with serving(application()) as server, server.client() as client:
        await client.send(HIDDEN)
        assert b"HTTP/1.1" not in await client.rest()
        assert [record.status for record in await server.observed()] == [400]
        assert await is_served(server)


@pytest.mark.parametrize(
    "field",
    [
        ("transfer-encoding", "chunked"),
        ("connection", "close"),
        ("content-length", "9"),
        ("X-Upper", "x"),
        ("x", "a\r\nb"),
        (":path", "/2"),
        ("host", "other"),
    ],
    ids=lambda field: field[0],
)
async def test_malformed_requests_end_the_connection(field: tuple[str, str]) -> None:
    """h2 ends the connection, where an error on the stream would be enough (RFC 9113 section 8.1.1)."""
    calls: list[str] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        calls.append(scope["path"])
        await receive()
        await say(send)

    async with serving(application(answer)) as server, connected(server) as client:
        await client.request([*POST, field], b"body")
        assert await client.until_end() == ErrorCodes.PROTOCOL_ERROR
        assert 400 in [record.status for record in await server.observed()]
        assert await is_served(server)
    assert len(calls) <= 2


async def test_websockets_are_not_offered() -> None:
    async with serving(application()) as server, connected(server) as client:
        stream_id = await client.request([(":method", "CONNECT"), (":protocol", "websocket"), *GET[1:]], end=False)
        assert (await client.response(stream_id))[0] == 405
        assert client.h2.remote_settings.enable_connect_protocol == 0
        assert await is_served(server)


async def test_a_body_is_received_and_its_window_is_opened() -> None:
    async with serving(application(say_size), body_limit=lambda _: 1_000_000) as server, connected(server) as client:
        stream_id, left = await client.request(POST, end=False), 500_000
        with trio.fail_after(PATIENCE):
            while left:
                window = min(left, client.h2.local_flow_control_window(stream_id), 16384)
                if window:
                    client.h2.send_data(stream_id, b"x" * window, end_stream=window == left)
                    left -= window
                    await client.flush()
                else:
                    await client.receive()
        assert (await client.response(stream_id))[2] == b"500000"


async def test_a_body_that_the_application_does_not_read_takes_no_more_than_a_window() -> None:
    held = Held()
    async with serving(held.app) as server, connected(server) as client:
        stream_id = await client.request([POST[0], *SLOW[1:]], end=False)
        while client.h2.local_flow_control_window(stream_id) > 0:
            client.h2.send_data(stream_id, b"x" * min(16384, client.h2.local_flow_control_window(stream_id)))
        await client.flush()
        assert (await client.response(await client.request()))[0] == 200  # other streams on the same connection are served
        assert client.h2.local_flow_control_window(stream_id) == 0
        held.leave.set()
        assert (await client.response(stream_id))[0] == 200
        with trio.fail_after(PATIENCE):
            while client.h2.outbound_flow_control_window < 40_000:  # h2 opens the connection's window in steps
                await client.receive()


@pytest.mark.slow
async def test_frames_that_wait_behind_a_slow_response_are_not_lost() -> None:
    """The middleware discards a body while a client that does not read holds up the socket. The window opens nevertheless."""
    leave = trio.Event()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            await leave.wait()
        await say(send, b"x" * (LARGE if scope["method"] == "GET" else 2))

    async with serving(application(answer)) as server, connected(server) as client:
        client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1})
        client.h2.increment_flow_control_window(2**30)
        large, small = await client.request(), await client.request(POST, b"x" * 16384, end=False)
        client.h2.send_data(small, b"x" * 16384)
        await client.flush()
        await trio.testing.wait_all_tasks_blocked(0.01)
        leave.set()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len((await client.response(large))[2]) == LARGE
        assert (await client.response(small))[0] == 200
        with trio.fail_after(PATIENCE):
            while client.h2.outbound_flow_control_window < 40_000:
                await client.receive()


async def test_a_refused_body_ends_with_its_response(tls: wire.Tls) -> None:
    """Data on the closed stream must not end the server (pgjones/hypercorn#329)."""
    with structlog.testing.capture_logs() as logs:
        async with serving(application()) as server, connected(server) as client:
            stream_id = await client.request([*POST, ("content-length", "600000")], b"x" * 10_000, end=False)
            status, _, body = await client.response(stream_id)
            assert (status, b"PAYLOAD_TOO_LARGE" in body) == (413, True)
            late = DataFrame(stream_id)
            late.data = b"x" * 10_000
            await client.send([late] * 3)
            assert (await client.response(await client.request()))[0] == 200
    assert logs == []


@pytest.mark.parametrize("ends", ["half", "reset", "stream"])
async def test_a_client_that_leaves_does_not_cancel_its_request(ends: str) -> None:
    held = Held()
    async with serving(held.app) as server:
        async with connected(server) as client:
            stream_id = await client.request(SLOW)
            await eventually(lambda: held.running)
            if ends == "half":
                await client.stream.transport_stream.send_eof()
                client.is_ended = True
                held.leave.set()
                assert (await client.response(stream_id))[2] == b"ok"
                assert await client.until_end() is None
            elif ends == "stream":
                client.h2.reset_stream(stream_id, ErrorCodes.CANCEL)
                await client.flush()
                assert (await client.response(await client.request()))[0] == 200
            else:
                client.stream.transport_stream.socket.close()
        held.leave.set()
        await eventually(lambda: held.running == 0)
        assert "/slow" in [record.path for record in await server.observed()]


@pytest.mark.parametrize(("window", "send_within"), [(0, 0.2), (1, 0.2), (1, wire.NEVER)])  # the last case ends by its many frames
async def test_a_client_with_small_windows_is_dropped_and_takes_little_memory(window: int, send_within: float) -> None:
    sent = 0

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(300):
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
            sent += 65536

    async with serving(application(answer), send_within=send_within) as server, connected(server) as client:
        client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})
        await client.flush()
        await client.request()
        with suppress(EOFError, trio.BrokenResourceError):
            for _ in range(100 * window):
                await client.receive()  # this opens the window for the next byte
        await client.until_end()
        await eventually(lambda: any(record.aborted for record in server.exchanges))  # too many frames have their own record
        assert sent <= 2 * 65536


async def test_a_client_that_stops_reading_is_dropped() -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await say(send, b"x" * LARGE)

    async with serving(application(answer), send_within=0.1) as server, connected(server) as client:
        client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1})
        client.h2.increment_flow_control_window(2**30)
        await client.request()
        [record] = await server.observed()
        assert record.aborted
        received = 0
        with trio.fail_after(PATIENCE), suppress(trio.BrokenResourceError):
            while data := await client.stream.transport_stream.receive_some():
                received += len(data)
        assert received < LARGE


async def test_the_table_of_sent_headers_stays_small() -> None:
    async with serving(application()) as server, connected(server) as client:
        client.h2.update_settings({SettingCodes.HEADER_TABLE_SIZE: 2**31 - 1})
        await client.flush()
        await client.response(await client.request())
        await client.response(await client.request())
        assert client.h2.decoder.header_table_size == 4096


async def test_a_long_response_arrives_whole() -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(64):
            await send({"type": "http.response.body", "body": bytes([number]) * 65536, "more_body": number < 63})

    async with serving(application(answer)) as server, connected(server) as client:
        _, _, body = await client.response(await client.request())
        assert body == b"".join(bytes([number]) * 65536 for number in range(64))


async def test_a_response_that_breaks_off_resets_its_stream_only() -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/":
            await say(send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ZeroDivisionError

    async with serving(application(answer)) as server, connected(server) as client:
        stream_id = await client.request(SLOW)
        with trio.fail_after(PATIENCE):
            while not client.has(stream_id, h2.events.StreamReset):
                await client.receive()
        assert (await client.response(await client.request()))[0] == 200


async def test_a_body_that_is_too_late_is_refused() -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        await say(send)

    async with serving(application(answer), body_within=0.05) as server, connected(server) as client:
        assert (await client.response(await client.request(POST, b"part", end=False)))[0] == 408


@pytest.mark.parametrize("begins", ["nothing", "request", "half a request"])
async def test_a_connection_without_a_request_is_closed(begins: str) -> None:
    keep_alive = 1.0 if begins == "request" else SOON  # the client still acknowledges the settings when it reads the response
    async with serving(application(), headers_within=SOON, keep_alive=keep_alive) as server, connected(server) as client:
        if begins == "request":
            await client.response(await client.request())
        elif begins == "half a request":
            await client.send([headers(1, flags=("END_STREAM",))])
            client.is_ended = True  # no other frame may follow
        assert await client.until_end() == ErrorCodes.NO_ERROR


@pytest.mark.parametrize("reason", ["reset", "window"])
async def test_a_connection_is_idle_after_its_request_was_reset(reason: str) -> None:
    held = Held()
    async with serving(held.app, keep_alive=0.5) as server, connected(server) as client:
        stream_id = await client.request(SLOW)
        await eventually(lambda: held.running)
        if reason == "reset":
            await client.send([RstStreamFrame(stream_id)])
        else:
            await client.send([WindowUpdateFrame(stream_id, window_increment=2**31 - 1)])  # more than h2 permits
        with trio.fail_after(PATIENCE):
            while not client.has(0, h2.events.ConnectionTerminated):
                await client.receive()
        held.leave.set()


async def test_pings_do_not_keep_a_connection_open() -> None:
    async with serving(application(), keep_alive=1.0) as server, connected(server) as client:
        await client.response(await client.request())
        with trio.fail_after(PATIENCE), pytest.raises(trio.BrokenResourceError):  # noqa: PT012
            while True:
                await client.send([PingFrame(0)])
                await trio.sleep(0.02)


async def test_a_shutdown_finishes_requests_and_refuses_new_ones() -> None:
    held = Held()
    async with serving(held.app) as server, connected(server) as client, connected(server) as idle:
        assert (await idle.response(await idle.request()))[0] == 200
        stream_id = await client.request(SLOW)
        await eventually(lambda: held.running)
        server.shutdown.set()
        assert await idle.until_end() == ErrorCodes.NO_ERROR
        late = await client.request()
        with trio.fail_after(PATIENCE):
            while not client.has(late, h2.events.StreamReset):
                await client.receive()
        [reset] = [event for event in client.events[late] if isinstance(event, h2.events.StreamReset)]
        assert reset.error_code == ErrorCodes.REFUSED_STREAM
        held.leave.set()
        assert (await client.response(stream_id))[2] == b"ok"
        assert await client.until_end() == ErrorCodes.NO_ERROR
        with trio.fail_after(PATIENCE):
            await server.finished.wait()


async def test_a_request_past_the_grace_gets_503() -> None:
    held = Held()
    async with serving(held.app, shutdown_grace=0.05) as server, connected(server) as client:
        stream_id = await client.request(SLOW)
        await eventually(lambda: held.running)
        server.shutdown.set()
        assert (await client.response(stream_id))[0] == 503
        await server.finished.wait()


# Floods

ENCODED = Encoder().encode(GET)


def headers(stream_id: int, block: bytes = ENCODED, flags: tuple[str, ...] = ("END_HEADERS", "END_STREAM")) -> Frame:
    frame = HeadersFrame(stream_id, flags=flags)
    frame.data = block
    return frame


def rapid_reset(number: int) -> list[Frame]:
    encoded = Encoder().encode(SLOW)
    return [headers(2 * number + 1, encoded), RstStreamFrame(2 * number + 1, error_code=8)]


def continuation(number: int) -> list[Frame]:
    frames: list[Frame] = [headers(1, b"", ("END_STREAM",))] if number == 0 else []
    frame = ContinuationFrame(1)
    return [*frames, frame]


def large_continuation(number: int) -> list[Frame]:
    [*frames, frame] = continuation(number)
    frame.data = b"\x00\x01x\x7f\x81\x7f" + b"x" * 16000  # type: ignore[attr-defined]
    return [*frames, frame]


def settings(number: int) -> list[Frame]:
    return [SettingsFrame(0, settings={SettingCodes.INITIAL_WINDOW_SIZE: 65535 + number % 2})]


def header_bomb(number: int) -> list[Frame]:
    # A large header, and 16,000 references to it: 64 MB.
    large = Encoder().encode([*GET, ("x", "y" * 4000)], huffman=False)
    return [headers(2 * number + 1, large + b"\xbe" * (16_000 - len(large)))]


def empty_data(number: int) -> list[Frame]:
    frames = [headers(1, Encoder().encode([(":method", "POST"), *SLOW[1:]]), ("END_HEADERS",))] if number == 0 else []
    return [*frames, DataFrame(1)]


def padding(number: int) -> list[Frame]:
    [*frames, _] = empty_data(number)
    padded = DataFrame(1, b"x", flags=("PADDED",), pad_length=255)
    return [*frames, padded]


def closed_stream(number: int) -> list[Frame]:
    frames = [headers(3, Encoder().encode(SLOW)), RstStreamFrame(3, error_code=8)] if number == 0 else []
    return [*frames, headers(3)]


FLOODS: dict[str, Callable[[int], list[Frame]]] = {
    "rapid reset": rapid_reset,
    "continuation": continuation,
    "large continuation": large_continuation,
    "settings": settings,
    "ping": lambda number: [PingFrame(0)],
    "priority": lambda number: [PriorityFrame(2 * number + 101, depends_on=0, stream_weight=7)],
    "header bomb": header_bomb,
    "empty data": empty_data,
    "padding": padding,
    "headers of a closed stream": closed_stream,
    "requests without end": lambda number: [headers(2 * number + 1, Encoder().encode(SLOW))],
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
async def test_a_flood_of_frames_ends_its_connection(flood: Callable[[int], list[Frame]]) -> None:
    held, sent = Held(), 0
    with structlog.testing.capture_logs() as logs:
        async with serving(held.app) as server, connected(server) as client:
            await client.receive()

            async def attack() -> None:
                nonlocal sent
                for number in range(20_000):
                    try:
                        await client.send(flood(number))
                    except trio.BrokenResourceError:
                        return
                    sent = number
                    await trio.lowlevel.checkpoint()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(attack)
                assert await is_served(server)
                with trio.fail_after(PATIENCE):
                    await eventually(lambda: [record for record in server.exchanges if record.status == 400])
                assert held.most <= MAX_STREAMS
                assert await is_served(server)
                nursery.cancel_scope.cancel()
            held.leave.set()
    assert logs == []
