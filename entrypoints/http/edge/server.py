"""Serves the application over HTTP/1.1 on Trio: Hypercorn's protocol on sockets that are watched here.

Hypercorn's HTTP/1.1 (h11, the ASGI cycle, keep-alive, pipelining, lifespan) does the talking. Between it and the socket stands our own
`_Connection` in place of `hypercorn.trio.TCPServer`, because these have no setting in Hypercorn 0.18 (all seen with raw sockets):

- its sends are shielded without a deadline, so a reader that takes a byte now and then holds a connection for ever, also past shutdown;
- an application that answers without reading the body leaves both its task and the connection hanging on a full queue;
- it closes while the client still sends, and the reset that follows destroys the answer (413, 401) before it is read;
- an unexpected error on one connection ends the server, and with it all others;
- what h11 cannot read (400, 431, 501) is answered without body and request id, and nobody hears of it;
- HTTP/2 over cleartext cannot be switched off (P-5).

Pinned to Hypercorn's minor version: `H11Protocol` and `HTTPStream` are not its public interface. The tests in tests/edge speak to real
sockets, so an upgrade that changes something here fails there. It also saves a task switch here and a system call there: about twice the
requests per second.
"""

import errno
import math
import os
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, cast

import h11
import structlog
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, RawData, Updated
from hypercorn.events import Event as ConnectionEvent
from hypercorn.protocol.events import Body, Request
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.trio.lifespan import Lifespan
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState, TaskGroup

from entrypoints.bind import parse_bind

log = structlog.get_logger("http")

HEADERS_WITHIN = 5.0  # seconds for a request's header, counted from the connection's start or the last answer's end: keep-alive too
SEND_WITHIN = 30.0  # seconds for a client to take SEND_AT_ONCE bytes
SEND_AT_ONCE = 64 * 1024
LINGER = 0.5  # seconds in which a client that still sends may read the answer that ends its connection
MAX_HEADER_BLOCK = 16 * 1024
MAX_RECEIVE = 64 * 1024
MAX_WAITING = 10  # pieces of request body that wait for the application before the client has to
BACKLOG = 1024
UNACKNOWLEDGED_WITHIN = 20_000  # milliseconds until a peer that is silently gone is given up (TCP_USER_TIMEOUT)


class Malformed(Protocol):
    """What to answer to bytes that are no request; the last argument says whether nobody else will record it."""

    def __call__(self, status: int, peer: str | None, *, record: bool) -> tuple[list[tuple[bytes, bytes]], bytes]: ...


class BindError(Exception):
    """The address cannot be listened on; the message is a sentence for the operator."""


def listen(bind: str) -> socket.socket:
    """A listening socket for what `parse_bind` reads, ready to be inherited by workers.

    Raises BindError.
    """
    try:
        host, port = parse_bind(bind)
    except ValueError as error:
        raise BindError(f"{bind!r} is not an address to listen on: it {error}.") from None
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise BindError(f"The host {host!r} to listen on has no address on this machine.") from None
    family, _, _, _, address = found[0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restart need not wait for old connections to be forgotten
        if family == socket.AF_INET6 and address[0] == "::":
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # Accepted sockets inherit these two (on Linux), so that no system call is spent on each.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_WITHIN)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        reason = {
            errno.EADDRINUSE: "is already in use; stop what uses it, or choose another with SSO_BIND",
            errno.EACCES: "may only be used by root; choose a port from 1024 up with SSO_BIND",
            errno.EADDRNOTAVAIL: "is not an address of this machine; choose another with SSO_BIND",
        }.get(error.errno or 0, f"cannot be listened on: {os.strerror(error.errno or 0)}")
        raise BindError(f"{bind} {reason}.") from None
    except BaseException:
        sock.close()
        raise
    return sock


class ClientGone(ConnectionError):
    """What an application sends reaches nobody any more (the OSError that ASGI foresees for this)."""


async def serve_http(
    app: Callable[..., Awaitable[None]],
    listening: socket.socket,
    *,
    shutdown: trio.Event,
    grace: float | Callable[[], float],
    on_started: Callable[[], object] = lambda: None,
    malformed: Malformed | None = None,
    headers_within: float = HEADERS_WITHIN,
    send_within: float = SEND_WITHIN,
) -> None:
    """Serve until `shutdown` is set; then take no more connections, let running requests finish within `grace` seconds, and return.

    `grace` may be a function, asked when shutdown begins, since a signal decides it. A request still running at the end of its grace is
    cancelled. The listening socket is closed here; workers that inherited it keep theirs.
    """
    server = _Server(app, malformed, headers_within, send_within)
    lifespan = Lifespan(server.app, server.config, {})
    async with trio.open_nursery() as around:
        await around.start(lifespan.handle_lifespan)
        await lifespan.wait_for_startup()
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as accepting:
                listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
                accepting.start_soon(partial(trio.serve_listeners, server.serve, [listener], handler_nursery=connections))
                on_started()
                await shutdown.wait()
                accepting.cancel_scope.cancel()
            connections.cancel_scope.deadline = trio.current_time() + (grace() if callable(grace) else grace)
            await server.drain()
        await lifespan.wait_for_shutdown()
        around.cancel_scope.cancel()


class _Server:
    """What all connections share."""

    def __init__(self, app: Callable[..., Awaitable[None]], malformed: Malformed | None, headers_within: float, send_within: float) -> None:
        self.app = ASGIWrapper(app)
        self.config = Config()
        self.config.accesslog = None
        self.config.errorlog = None
        self.config.include_server_header = False
        self.config.h11_max_incomplete_size = MAX_HEADER_BLOCK
        self.context = WorkerContext(None)
        self.malformed = malformed
        self.headers_within = headers_within
        self.send_within = send_within
        self.connections: set[_Connection] = set()
        self.draining = False

    async def serve(self, stream: trio.SocketStream) -> None:
        connection = _Connection(self, stream)
        self.connections.add(connection)
        try:
            await connection.run()
        except* Exception:  # of a group, too, that cancellation is part of
            # A fault in what speaks to one client is no reason to hang up on the others.
            log.exception("connection_failed")
        finally:
            self.connections.discard(connection)

    async def drain(self) -> None:
        self.draining = True
        await self.context.terminated.set()  # an answer is now the last on its connection ...
        self.config.keep_alive_max_requests = 0  # ... and says so
        for connection in list(self.connections):
            connection.close_if_idle()


class _Connection:
    """One client's socket: reads for the protocol, writes for it, and closes in time."""

    def __init__(self, server: _Server, stream: trio.SocketStream) -> None:
        self._server = server
        self._stream = stream
        self._sending = trio.Lock()
        self._reading = trio.CancelScope()
        self._idle = True  # between requests; a header that is still arriving is no request yet
        self._closing = False
        self.gone = False  # nothing that is sent arrives any more
        self._protocol: _Http1

    async def run(self) -> None:
        try:
            peer = self._stream.socket.getpeername()
            own = self._stream.socket.getsockname()
        except OSError:
            return  # reset before it was looked at
        async with trio.open_nursery() as applications:
            self._protocol = _Http1(self._server, self, applications, peer[:2] or None, own[:2] or None)
            self._set_idle()
            with self._reading:
                await self._read()
            if self._reading.cancelled_caught and self._idle and not self._closing:
                await self._protocol.give_up()
            await self._protocol.handle(Closed())  # a request that is still running may want to know

    async def _read(self) -> None:
        while True:
            try:
                data = await self._stream.receive_some(MAX_RECEIVE)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            if not self._closing:
                await self._protocol.handle(RawData(bytes(data)))
            if not data:
                return  # perhaps the client closed only its half; then it still gets its answer

    def _set_idle(self) -> None:
        self._idle = True
        # One absolute deadline, so that a header which comes a byte a second is cut as surely as silence is.
        # At shutdown there is a moment left for what a client, just accepted, has already sent.
        self._reading.deadline = trio.current_time() + (LINGER if self._server.draining else self._server.headers_within)

    def close_if_idle(self) -> None:
        if self._idle:
            self._reading.cancel()

    async def handle(self, event: ConnectionEvent) -> None:
        """What the protocol wants done."""
        if isinstance(event, RawData):
            await self._send(event.data)
        elif isinstance(event, Closed):
            await self._close()
        elif isinstance(event, Updated):
            if event.idle:
                self._set_idle()
            else:
                # No read timeout either (P-4): all that can be read now is the request's body, and the application's surroundings
                # have an eye on that.
                self._idle = False
                self._reading.deadline = math.inf

    async def _send(self, data: bytes) -> None:
        # The lock is for the rare meeting of a "100 Continue" with an answer. Taking a free one must not cost a trip through the scheduler.
        try:
            self._sending.acquire_nowait()
        except trio.WouldBlock:
            await self._sending.acquire()
        try:
            # Shielded, for an answer cut off in the middle would corrupt what the client reads next; but never for ever (P-4).
            for start in range(0, 0 if self.gone else len(data), SEND_AT_ONCE):
                with trio.CancelScope(deadline=trio.current_time() + self._server.send_within, shield=True) as scope:
                    await self._stream.send_all(data[start : start + SEND_AT_ONCE] if len(data) > SEND_AT_ONCE else data)
                if scope.cancelled_caught:
                    self._abort()
                    break
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.gone = True
            self._reading.cancel()
        finally:
            self._sending.release()

    async def _close(self) -> None:
        if self._closing:
            return
        self._closing = True
        try:
            await self._stream.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            self._reading.cancel()
        # What the client is still sending is read and dropped for a moment: closing on it would reset the connection, and a reset destroys
        # the answer that has not been read yet (RFC 9112 section 9.6).
        self._reading.deadline = trio.current_time() + LINGER

    def _abort(self) -> None:
        """Reset the connection: the kernel too forgets what it still holds for a client that takes nothing."""
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.gone = True
        self._reading.cancel()


class _Http1(H11Protocol):
    """Hypercorn's HTTP/1.1 without the ways out of it, and with an answer to what is no HTTP."""

    def __init__(
        self,
        server: _Server,
        connection: _Connection,
        applications: trio.Nursery,
        client: tuple[str, int] | None,
        own: tuple[str, int] | None,
    ) -> None:
        spawner = cast("TaskGroup", _Applications(applications))
        super().__init__(server.app, server.config, server.context, spawner, ConnectionState({}), False, client, own, connection.handle)
        self._connection = connection
        self._malformed = server.malformed
        self._method = b""
        self._held = b""

    async def give_up(self) -> None:
        """End a connection that has been idle for too long, and say so if half a request had come."""
        if self.connection.trailing_data[0]:
            await self._send_error_response(408)

    async def _check_protocol(self, event: h11.Request) -> None:
        """Hypercorn goes over to HTTP/2 here (P-5); the application's surroundings refuse what asked for it."""

    async def _create_stream(self, request: h11.Request) -> None:
        # As Hypercorn does it, less WebSockets.
        self._method = request.method
        self.stream = HTTPStream(
            self.app, self.config, self.context, self.task_group, self.ssl, self.client, self.server, self.stream_send, STREAM_ID
        )
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=request.http_version.decode(),
                method=request.method.decode("ascii").upper(),
                raw_path=request.target,
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1

    async def stream_send(self, event: StreamEvent) -> None:
        await super().stream_send(event)
        if isinstance(event, Body) and self._connection.gone:
            # So that an application which streams much can stop. Its work is done by now; it is not cancelled, it hears of it.
            raise ClientGone

    async def _send_h11_event(self, event: Any) -> None:
        try:
            data = self.connection.send(event) or b""
        except h11.LocalProtocolError:
            if self.connection.their_state is not h11.ERROR:
                raise
            return
        if isinstance(event, h11.Response):
            # ASGI lets the head wait for the first of the body: one packet and one system call instead of two.
            self._held = data
            return
        data, self._held = self._held + data, b""
        if data:
            await self.send(RawData(data=data))

    async def _send_error_response(self, status_code: int) -> None:
        headers, body = [(b"content-length", b"0"), (b"connection", b"close")], b""
        if self._malformed is not None:
            # With a stream there is an application, which now learns that its client is gone, and records that.
            headers, body = self._malformed(status_code, self.client[0] if self.client else None, observed=self.stream is None)
        await self._send_h11_event(h11.Response(status_code=status_code, headers=headers + self.config.response_headers("h11")))
        if body and (self.stream is None or self._method != b"HEAD"):
            await self._send_h11_event(h11.Data(data=body))
        await self._send_h11_event(h11.EndOfMessage())


class _Applications:
    """Starts the application for each request: the part of Hypercorn's TaskGroup that an HTTP stream asks for."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery

    async def spawn_app(self, app: Any, config: Config, scope: Any, send: Callable[..., Awaitable[None]]) -> Any:
        inbox = _Inbox()
        self._nursery.start_soon(self._run, app, scope, inbox, send)
        return inbox.put

    @staticmethod
    async def _run(app: Any, scope: Any, inbox: "_Inbox", send: Callable[..., Awaitable[None]]) -> None:
        try:
            await app(scope, inbox.get, send, trio.to_thread.run_sync, trio.from_thread.run)
        except* ClientGone:
            pass
        except* Exception:
            log.exception("application_failed")
        finally:
            inbox.close()
            await send(None)


class _Inbox:
    """What comes in for one request. Body waits for room, so that a client cannot fill the memory; the news of its leaving never does."""

    __slots__ = ("_closed", "_messages", "_news", "_room")

    def __init__(self) -> None:
        self._messages: deque[Any] = deque()
        self._news = trio.Event()
        self._room = trio.Event()
        self._closed = False

    async def put(self, message: Any) -> None:
        if self._is_closed():
            return
        self._messages.append(message)
        self._news.set()
        if message["type"] == "http.request":
            while len(self._messages) > MAX_WAITING and not self._is_closed():
                self._room = trio.Event()
                await self._room.wait()

    async def get(self) -> Any:
        while not self._messages:
            self._news = trio.Event()
            await self._news.wait()
        self._room.set()
        return self._messages.popleft()

    def _is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self._room.set()
