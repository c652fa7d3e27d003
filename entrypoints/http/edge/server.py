"""The HTTP/1.1 server on Trio: Hypercorn's protocol on our own connection loop (docs/adr/0004).

Hypercorn provides HTTP/1.1 (h11, the ASGI cycle, keep-alive, pipelining, lifespan). `_Connection`
replaces `hypercorn.trio.TCPServer` between the protocol and the socket. Hypercorn 0.18 has no
settings for these problems, all of which were reproduced with raw sockets:

- Its sends are shielded and have no deadline, so a slow reader holds a connection forever, even past the
  shutdown. A write timeout was proposed in pgjones/hypercorn#262, which was closed without a merge.
- If an application responds without reading the body, its task and the connection hang on a full queue.
- It closes the socket while the client still sends. The reset destroys the response (413, 401).
- An unexpected error on one connection ends the server. (#103 fixed this for read timeouts.)
- It responds to unparsable input (400, 431, 501) without a body and request id, and logs nothing.
- HTTP/2 over cleartext cannot be disabled (security P-5; #317 is about the upgrade itself).

Private interfaces of Hypercorn used here: `H11Protocol` with `_check_protocol`, `_create_stream`,
`_send_h11_event` and `_send_error_response`; `HTTPStream`; `ASGIWrapper`; `Lifespan`;
`WorkerContext`; and the event classes. Hypercorn is therefore pinned to its minor version. The
tests in tests/proof/wire use raw sockets and fail if an upgrade changes the behavior. This module
can shrink when Hypercorn has a write timeout, a switch for h2c, and lingering close; the middleware
also covers #277, #279 and #280.

Skipping Hypercorn's connection loop also saves task switches and system calls, which about doubles
the number of requests per second. The module is longer than 400 lines because these classes share
private state.
"""

import errno
import math
import os
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, cast

import h11
import structlog
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, RawData, Updated
from hypercorn.events import Event as ConnectionEvent
from hypercorn.protocol.events import Body, Request, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.trio.lifespan import Lifespan
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState, TaskGroup

from entrypoints.bind import parse_bind
from entrypoints.http.edge.size_limits import MAX_HEADER_BLOCK, MAX_SCIM_GROUP_BODY

log = structlog.get_logger("http")

HEADERS_WITHIN = 5.0  # seconds for the headers, from the start of the connection or the first byte of a later request
SEND_WITHIN = 30.0  # seconds for a client to take SEND_AT_ONCE bytes
SEND_AT_ONCE = 64 * 1024
LINGER = 2.0  # seconds without data after which the socket of a closing connection is closed
LINGER_WITHIN = 30.0  # seconds for a client that still sends, from the last response of its connection
LINGER_BYTES = 2 * MAX_SCIM_GROUP_BODY  # discarded bytes of such a client
LINGER_PIECE = 1024 * 1024  # bytes; with LINGER_PAUSE, discarding takes little time from other requests
LINGER_PAUSE = 0.05  # seconds between two pieces
MAX_RECEIVE = 64 * 1024
MAX_WAITING = 2  # queued pieces of a request body before the client must wait
BACKLOG = 1024
UNACKNOWLEDGED_WITHIN = 20_000  # milliseconds until an unresponsive peer is dropped (TCP_USER_TIMEOUT)


class Malformed(Protocol):
    """The function that returns the response to unparsable input. It also records the request if `observed` is true."""

    def __call__(self, status: int, peer: str | None, *, observed: bool) -> tuple[list[tuple[bytes, bytes]], bytes]: ...


class BindError(Exception):
    """The address cannot be used for listening. The message is a sentence for the operator."""


def listen(bind: str) -> socket.socket:
    """Return a listening socket for an address in the format of `parse_bind`. Workers can inherit it.

    Raises: BindError.
    """
    try:
        host, port = parse_bind(bind)
    except ValueError as error:
        raise BindError(f"{bind!r} is not an address to listen on: it {error}.") from None
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise BindError(f"The host {host!r} to listen on has no address on this machine. Choose another address with SSO_BIND.") from None
    family, _, _, _, address = addresses[0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # lets a restart bind while old connections are in TIME_WAIT
        if family == socket.AF_INET6 and address[0] == "::":
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # On Linux, accepted sockets inherit these two options, which saves system calls.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_WITHIN)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        reason = {
            errno.EADDRINUSE: "is already in use; stop the other program, or choose another address with SSO_BIND",
            errno.EACCES: "requires root; choose a port from 1024 up with SSO_BIND",
            errno.EADDRNOTAVAIL: "is not an address of this machine; choose another address with SSO_BIND",
        }.get(error.errno or 0, f"cannot be used for listening: {os.strerror(error.errno or 0)}")
        raise BindError(f"{bind} {reason}.") from None
    except BaseException:
        sock.close()
        raise
    return sock


class ClientGone(ConnectionError):
    """The client is gone, or its request is broken. ASGI signals this to applications with an OSError."""


async def serve_http(
    app: Callable[..., Awaitable[None]],
    listening: socket.socket,
    *,
    shutdown: trio.Event,
    shutdown_grace: float | Callable[[], float],
    keep_alive: float,
    on_started: Callable[[], object] = lambda: None,
    malformed: Malformed | None = None,
    headers_within: float = HEADERS_WITHIN,
    send_within: float = SEND_WITHIN,
) -> None:
    """Serve until `shutdown` is set, then stop accepting, let running requests finish within `shutdown_grace` seconds, and return.

    `shutdown_grace` can be a function, which is called when the shutdown starts: the signal
    determines the seconds. Requests that run longer are canceled. `keep_alive` is the number of
    seconds without a request until a connection is closed. The listening socket is closed here;
    workers that inherited it keep their copies.
    """
    server = _Server(app, malformed, headers_within, send_within, keep_alive)
    lifespan = Lifespan(server.app, server.config, {})
    async with trio.open_nursery() as outer:
        await outer.start(lifespan.handle_lifespan)
        await lifespan.wait_for_startup()
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as accepting:
                listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
                accepting.start_soon(partial(trio.serve_listeners, server.serve, [listener], handler_nursery=connections))
                on_started()
                await shutdown.wait()
                accepting.cancel_scope.cancel()
            connections.cancel_scope.deadline = trio.current_time() + (shutdown_grace() if callable(shutdown_grace) else shutdown_grace)
            await server.drain()
        await lifespan.wait_for_shutdown()
        outer.cancel_scope.cancel()


class _Server:
    """The state that all connections share."""

    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        malformed: Malformed | None,
        headers_within: float,
        send_within: float,
        keep_alive: float,
    ) -> None:
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
        self.keep_alive = keep_alive
        self.connections: set[_Connection] = set()
        self.draining = False

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one client until its connection ends."""
        connection = _Connection(self, stream)
        self.connections.add(connection)
        try:
            await connection.run()
        except* Exception:  # also in a group with a cancellation
            # An error on one connection must not end the others.
            log.exception("connection_failed")
        finally:
            self.connections.discard(connection)

    async def drain(self) -> None:
        """Close idle connections, and the others after their next response."""
        self.draining = True
        await self.context.terminated.set()  # the next response is the last one of its connection ...
        self.config.keep_alive_max_requests = 0  # ... and has the header Connection: close
        for connection in list(self.connections):
            connection.close_if_idle()


class _Connection:
    """The socket of one client, with deadlines for reading, writing and closing."""

    def __init__(self, server: _Server, stream: trio.SocketStream) -> None:
        self._server = server
        self._stream = stream
        self._sending = trio.Lock()
        self._reading = trio.CancelScope()
        self._idle = True  # between requests, until all headers have arrived
        self._has_begun = True  # whether a part of the headers has arrived; a new connection counts as a request that has begun
        self._closing = False
        self._linger_deadline = math.inf
        self.gone = False  # the client no longer receives data
        self._protocol: _Http1

    async def run(self) -> None:
        try:
            peer = self._stream.socket.getpeername()
            local = self._stream.socket.getsockname()
        except OSError:
            return  # the client has already reset the connection
        async with trio.open_nursery() as applications:
            self._protocol = _Http1(self._server, self, applications, peer[:2] or None, local[:2] or None)
            self._limit_reading(self._server.headers_within)
            with self._reading:
                await self._read()
            if self._reading.cancelled_caught and self._idle and not self._closing:
                await self._protocol.give_up()
            await self._protocol.handle(Closed())  # a running request receives the disconnect

    async def _read(self) -> None:
        while True:
            data = await self._receive(MAX_RECEIVE)
            if not self._has_begun:
                self._has_begun = True
                self._limit_reading(self._server.headers_within)
            if self._closing:
                break
            await self._protocol.handle(RawData(data))
            if not data:
                return  # a half-closed client still gets its response
        # Lingering close: read and discard data of the client while it sends. Closing at once would
        # reset the connection and destroy the response that the client has not read (RFC 9112
        # section 9.6).
        discarded = len(data)
        while data and discarded < LINGER_BYTES:
            self._reading.deadline = min(trio.current_time() + LINGER, self._linger_deadline)
            await trio.sleep(LINGER_PAUSE)
            data = await self._receive(LINGER_PIECE)
            discarded += len(data)

    async def _receive(self, count: int) -> bytes:
        """Return data of the client, or nothing if there will be no more."""
        try:
            return bytes(await self._stream.receive_some(count))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""

    def _set_idle(self) -> None:
        self._idle = True
        self._has_begun = bool(self._protocol.connection.trailing_data[0])
        self._limit_reading(self._server.headers_within if self._has_begun else self._server.keep_alive)

    def _limit_reading(self, seconds: float) -> None:
        # An absolute deadline, so that slow headers time out like missing ones. During a shutdown,
        # the requests that new connections have already sent are still read.
        self._reading.deadline = trio.current_time() + (LINGER if self._server.draining else seconds)

    def close_if_idle(self) -> None:
        if self._idle:
            self._reading.cancel()

    async def handle(self, event: ConnectionEvent) -> None:
        """Execute an event of the protocol."""
        if isinstance(event, RawData):
            await self._send(event.data)
        elif isinstance(event, Closed):
            await self._close()
        elif isinstance(event, Updated):
            if event.idle:
                self._set_idle()
            else:
                # No read deadline here: only the body can arrive now, and the middleware limits its
                # time (security P-4).
                self._idle = False
                self._reading.deadline = math.inf

    async def _send(self, data: bytes) -> None:
        # The lock separates a "100 Continue" from a response. Acquiring a free lock must not cost a
        # checkpoint.
        try:
            self._sending.acquire_nowait()
        except trio.WouldBlock:
            await self._sending.acquire()
        try:
            # Shielded, because a truncated response would corrupt the next one. The deadline bounds
            # it (security P-4).
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
        self._linger_deadline = trio.current_time() + LINGER_WITHIN
        self._reading.deadline = trio.current_time() + LINGER

    def _abort(self) -> None:
        """Reset the connection, so that the kernel discards the data that the client does not read."""
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.gone = True
        self._reading.cancel()


class _Parser(h11.Connection):
    """h11 that stops parsing at the end of a connection's last request.

    If more data follows, h11 would raise, and the connection would be closed in the middle of the
    response.
    """

    def next_event(self) -> Any:
        if self.their_state is h11.MUST_CLOSE and self.trailing_data[0]:
            return h11.PAUSED if self.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY) else h11.NEED_DATA
        return super().next_event()


class _Http1(H11Protocol):
    """Hypercorn's HTTP/1.1 without upgrades, and with our response to unparsable input."""

    def __init__(
        self,
        server: _Server,
        connection: _Connection,
        applications: trio.Nursery,
        peer: tuple[str, int] | None,
        local: tuple[str, int] | None,
    ) -> None:
        self._applications = _Applications(applications, self)
        spawner = cast("TaskGroup", self._applications)
        super().__init__(server.app, server.config, server.context, spawner, ConnectionState({}), False, peer, local, connection.handle)
        self.connection = _Parser(h11.SERVER, max_incomplete_event_size=MAX_HEADER_BLOCK)
        self._connection = connection
        self._malformed = server.malformed
        self._method = b""
        self._unsent_headers = b""

    async def give_up(self) -> None:
        """End a connection after its idle time. Respond with 408 if part of a request has arrived."""
        if self.connection.trailing_data[0]:
            await self._send_error_response(408)

    async def _check_protocol(self, event: h11.Request) -> None:
        """Do nothing. Hypercorn would upgrade to HTTP/2 here, which the middleware refuses (security P-5)."""

    async def _create_stream(self, request: h11.Request) -> None:
        # As in Hypercorn, without WebSockets.
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

    @property
    def is_broken(self) -> bool:
        """Return whether the request has a malformed or truncated body. The client gets 400 then, and no other response."""
        return self.connection.their_state is h11.ERROR

    async def stream_send(self, event: StreamEvent) -> None:
        if self.is_broken and not isinstance(event, StreamClosed):
            raise ClientGone
        await super().stream_send(event)
        if isinstance(event, Body) and self._connection.gone:
            # Stop a streaming application by an exception instead of a cancellation.
            raise ClientGone

    async def send_continue(self) -> None:
        """Send "100 Continue" if the client waits for it. The application is about to read the body."""
        if self.connection.they_are_waiting_for_100_continue:
            await super()._send_h11_event(h11.InformationalResponse(status_code=100, headers=self.config.response_headers("h11")))

    async def _send_h11_event(self, event: Any) -> None:
        if isinstance(event, h11.InformationalResponse):
            return  # Hypercorn's "100 Continue", before the application has decided to read the body
        try:
            data = self.connection.send(event) or b""
        except h11.LocalProtocolError:
            if self.connection.their_state is not h11.ERROR:
                raise
            return
        if isinstance(event, h11.Response):
            # Send the headers with the first part of the body: one packet and one system call
            # instead of two.
            self._unsent_headers = data
            return
        data, self._unsent_headers = self._unsent_headers + data, b""
        if data:
            await self.send(RawData(data=data))

    async def _send_error_response(self, status_code: int) -> None:
        headers, body = [(b"content-length", b"0"), (b"connection", b"close")], b""
        if self._malformed is not None:
            # An application that runs records the request itself: as one without a response,
            # because it cannot send its own.
            observed = self.stream is None or not self._applications.has_begun
            headers, body = self._malformed(status_code, self.client[0] if self.client else None, observed=observed)
        await self._send_h11_event(h11.Response(status_code=status_code, headers=headers + self.config.response_headers("h11")))
        if body and (self.stream is None or self._method != b"HEAD"):
            await self._send_h11_event(h11.Data(data=body))
        await self._send_h11_event(h11.EndOfMessage())


class _Applications:
    """The part of Hypercorn's TaskGroup that an HTTP stream uses: it starts the application for each request."""

    def __init__(self, nursery: trio.Nursery, protocol: _Http1) -> None:
        self._nursery = nursery
        self._protocol = protocol
        self.has_begun = False  # for the current request

    async def spawn_app(self, app: Any, config: Config, scope: Any, send: Callable[..., Awaitable[None]]) -> Any:
        inbox = _Inbox(self._protocol.send_continue)
        self.has_begun = False
        self._nursery.start_soon(self._run, app, scope, inbox, send)
        return inbox.put

    async def _run(self, app: Any, scope: Any, inbox: "_Inbox", send: Callable[..., Awaitable[None]]) -> None:
        try:
            # The part of the body that came with the headers was parsed before this task runs.
            if self._protocol.is_broken:
                return
            self.has_begun = True
            await app(scope, inbox.get, send, trio.to_thread.run_sync, trio.from_thread.run)
        except* ClientGone:
            pass
        except* Exception:
            log.exception("application_failed")
        finally:
            inbox.close()
            with suppress(ClientGone):
                await send(None)


class _Inbox:
    """The messages for one request. Body messages wait for space, so that a client cannot fill the memory. A disconnect never waits."""

    __slots__ = ("_arrived", "_closed", "_messages", "_send_continue", "_space")

    def __init__(self, send_continue: Callable[[], Awaitable[None]]) -> None:
        self._send_continue = send_continue
        self._messages: deque[Any] = deque()
        self._arrived = trio.Event()
        self._space = trio.Event()
        self._closed = False

    async def put(self, message: Any) -> None:
        if self._is_closed():
            return
        self._messages.append(message)
        self._arrived.set()
        if message["type"] == "http.request":
            while len(self._messages) > MAX_WAITING and not self._is_closed():
                self._space = trio.Event()
                await self._space.wait()

    async def get(self) -> Any:
        while not self._messages:
            self._arrived = trio.Event()
            await trio.lowlevel.checkpoint_if_cancelled()  # a response that does not need the body is not preceded by a 100
            await self._send_continue()
            await self._arrived.wait()
        self._space.set()
        return self._messages.popleft()

    def _is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self._space.set()
