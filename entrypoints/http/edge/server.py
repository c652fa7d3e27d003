"""The HTTP/1.1 server on Trio: one task per connection, which runs the application itself (docs/adr/0027).

h11 parses requests, and Hypercorn runs the lifespan. This module reads and writes the sockets. It
drops slow clients, lets a client read a refusal while it still sends, and keeps the errors of one
connection from the others (security P-3, P-4).

While an application runs, nothing reads the socket until the application calls `receive`: for the
body, or, after the body, for the disconnect of the client.

The module is longer than 400 lines, because a connection and its requests share private state.
"""

import errno
import math
import os
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from email.utils import formatdate
from functools import partial
from typing import Any, Protocol
from urllib.parse import unquote

import h11
import structlog
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.lifespan import Lifespan

from entrypoints.bind import parse_bind
from entrypoints.http.edge.middleware import Headers, Message
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
MAX_REQUESTS = 1000  # on one connection; clients that connect again spread over the workers
BACKLOG = 1024
UNACKNOWLEDGED_WITHIN = 20_000  # milliseconds until an unresponsive peer is dropped (TCP_USER_TIMEOUT)

_ASGI = {"version": "3.0", "spec_version": "2.1"}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_DISCONNECT: Message = {"type": "http.disconnect"}


class Malformed(Protocol):
    """The function that returns the response to unparsable input. It also records the request if `observed` is true."""

    def __call__(self, status: int, peer: str | None, *, observed: bool) -> tuple[Headers, bytes]: ...


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
    config = Config()
    config.errorlog = None
    lifespan = Lifespan(ASGIWrapper(app), config, {})
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
            server.drain()
        await lifespan.wait_for_shutdown()
        outer.cancel_scope.cancel()


class _Server:
    """The state that all connections share."""

    def __init__(
        self, app: Callable[..., Awaitable[None]], malformed: Malformed | None, headers_within: float, send_within: float, keep_alive: float
    ) -> None:
        self.app = app
        self.malformed = malformed
        self.headers_within = headers_within
        self.send_within = send_within
        self.keep_alive = keep_alive
        self.is_draining = False  # the next response of each connection is its last one
        self._connections: set[_Connection] = set()
        self._date = (0, b"")

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one client until its connection ends."""
        # Trio's sockets pass through the scheduler in each call. A request passes through it while it waits for the client.
        with socket.socket(fileno=stream.socket.detach()) as sock:
            try:
                connection = _Connection(self, sock)
            except OSError:
                return  # the client has already reset the connection
            self._connections.add(connection)
            try:
                await connection.run()
            except* Exception:  # also in a group with a cancellation
                # An error on one connection must not end the others.
                log.exception("connection_failed")
            finally:
                self._connections.discard(connection)

    def drain(self) -> None:
        """Close idle connections, and the others after their next response."""
        self.is_draining = True
        for connection in self._connections:
            connection.close_if_idle()

    def date_header(self) -> bytes:
        """Return the header line with the current time."""
        now = int(time.time())
        if now != self._date[0]:
            self._date = now, f"date: {formatdate(now, usegmt=True)}\r\n".encode()
        return self._date[1]


class _Connection:
    """The socket of one client, with deadlines for reading, writing and closing."""

    def __init__(self, server: _Server, sock: socket.socket) -> None:
        self.server = server
        self.peer: tuple[str, int] = sock.getpeername()[:2]
        self.local: tuple[str, int] = sock.getsockname()[:2]
        self.gone = False  # the client no longer receives data
        self.requests = 0
        self._sock = sock
        self._fileno = sock.fileno()
        self._waiting: trio.CancelScope | None = None  # for a request

    async def run(self) -> None:
        """Serve requests, and end the connection."""
        unparsed, responded = b"", True
        while responded:
            parser = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADER_BLOCK)
            if unparsed:
                parser.receive_data(unparsed)
                await trio.lowlevel.checkpoint()  # many pipelined requests must not delay other connections
            try:
                head = await self._read_head(parser)
            except h11.RemoteProtocolError as error:
                await self.refuse(error.error_status_hint)
                break
            except TimeoutError:
                if parser.trailing_data[0]:
                    await self.refuse(408)
                return
            if head is None:
                return
            self.requests += 1
            responded = await _Request(self, parser, head).run()
            unparsed = parser.trailing_data[0]
        await self._linger()

    async def _read_head(self, parser: h11.Connection) -> h11.Request | None:
        """Return the head of the next request, or None if the client has closed the connection.

        Raises: RemoteProtocolError if the input is no request; TimeoutError.
        """
        # An absolute deadline, so that slow headers time out like missing ones. A new connection
        # counts as a request that has begun. During a shutdown, the requests that new connections
        # have already sent are still read.
        begun = not self.requests or bool(parser.trailing_data[0])
        deadline = trio.current_time() + self._wait_for_request(begun=begun)
        while (event := parser.next_event()) is h11.NEED_DATA:
            with trio.CancelScope(deadline=deadline) as self._waiting:
                await self.wait_readable()
            timed_out, self._waiting = self._waiting.cancelled_caught, None
            if timed_out:
                raise TimeoutError
            if (data := self.receive_now()) is None:
                continue
            parser.receive_data(data)
            if not begun:
                begun, deadline = True, trio.current_time() + self._wait_for_request(begun=True)
        return event if isinstance(event, h11.Request) else None  # or ConnectionClosed

    def _wait_for_request(self, *, begun: bool) -> float:
        if self.server.is_draining:
            return LINGER
        return self.server.headers_within if begun else self.server.keep_alive

    def close_if_idle(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()

    def receive_now(self, count: int = MAX_RECEIVE) -> bytes | None:
        """Return the data that has arrived: nothing at the end of the client's data, or None if there is none yet."""
        try:
            return self._sock.recv(count)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    async def wait_readable(self) -> None:
        await trio.lowlevel.wait_readable(self._fileno)

    async def wait_for_disconnect(self) -> None:
        """Return when the client has closed its half of the connection, or the whole connection."""
        await self.wait_readable()
        with suppress(ConnectionError):
            if self._sock.recv(1, socket.MSG_PEEK):
                await trio.sleep_forever()  # the next request, which is read after this one

    def send_continue(self) -> None:
        """Send "100 Continue". A client that does not take it at once reads no responses."""
        try:
            complete = self._sock.send(_CONTINUE) == len(_CONTINUE)
        except OSError:
            complete = False
        if not complete:
            self._abort()

    async def send(self, data: bytes) -> None:
        """Send all data. Raises: ClientGone."""
        if self.gone:
            raise ClientGone
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.gone = True
            raise ClientGone from None
        if sent < len(data):
            await self._send_slowly(memoryview(data)[sent:])

    async def _send_slowly(self, data: memoryview) -> None:
        # Shielded, because a truncated response would corrupt the next one. The deadline bounds it
        # (security P-4).
        while data:
            piece, data = data[:SEND_AT_ONCE], data[SEND_AT_ONCE:]
            with trio.CancelScope(deadline=trio.current_time() + self.server.send_within, shield=True) as scope:
                while piece:
                    await trio.lowlevel.wait_writable(self._fileno)
                    try:
                        piece = piece[self._sock.send(piece) :]
                    except BlockingIOError:
                        continue
                    except OSError:
                        self.gone = True
                        raise ClientGone from None
            if scope.cancelled_caught:
                self._abort()
                raise ClientGone

    def _abort(self) -> None:
        """Reset the connection when it is closed, so that the kernel discards the data that the client does not read."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.gone = True

    async def refuse(self, status: int, *, observed: bool = True, bodiless: bool = False) -> None:
        """Respond to a request that cannot reach the application, or has no response of it."""
        headers, body = [(b"content-length", b"0"), (b"connection", b"close")], b""
        if self.server.malformed is not None:
            headers, body = self.server.malformed(status, self.peer[0], observed=observed)
        with suppress(ClientGone):
            await self.send(_head(status, headers, self.server.date_header()) + (b"" if bodiless else body))

    async def _linger(self) -> None:
        """End the responses, and discard what the client still sends.

        Closing at once would reset the connection and destroy the response that the client has not
        read (RFC 9112 section 9.6).
        """
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
        end, discarded = trio.current_time() + LINGER_WITHIN, 0
        while not self.gone and discarded < LINGER_BYTES:
            with trio.move_on_at(min(trio.current_time() + LINGER, end)) as waiting:
                await self.wait_readable()
            data = None if waiting.cancelled_caught else self.receive_now(LINGER_PIECE)
            if not data:
                return
            discarded += len(data)
            await trio.sleep(LINGER_PAUSE)


class _Request:
    """One request and its response, as the application receives and sends them."""

    def __init__(self, connection: _Connection, parser: h11.Connection, request: h11.Request) -> None:
        self._connection = connection
        self._parser = parser
        self._request = request
        self._body = b""  # parsed, and not yet delivered to the application
        self._is_received = False  # whether the body is parsed completely
        self._delivered = False  # the whole body, to the application
        self._expects_continue = parser.they_are_waiting_for_100_continue
        self._failure = 0  # the status of the response to a malformed or truncated body
        self._is_kept = connection.requests < MAX_REQUESTS and request.http_version == b"1.1"
        self._started = False  # the application has started its response
        self._is_complete = False  # the response was sent
        self._head = b""  # of the response, sent together with the first part of its body
        self._method = request.method.decode().upper()  # the checks of the middleware know upper case only
        self._bodiless = self._method == "HEAD"
        self._is_chunked = False
        self._body_left: float = 0  # bytes of the response's body, if its length was announced

    async def run(self) -> bool:
        """Run the application. Return whether the connection can have another request."""
        scope = self._scope()
        self._parse()
        if self._failure:
            await self._refuse(observed=True)
            return False
        try:
            await self._connection.server.app(scope, self.receive, self.send)
        except* ClientGone:
            pass
        except* Exception:
            log.exception("application_failed")
        if not self._started and not self._connection.gone:
            await self._refuse(observed=False)  # the application has recorded the request as one without a response
        return self._is_complete and self._is_kept and self._is_received

    async def _refuse(self, *, observed: bool) -> None:
        await self._connection.refuse(self._failure or 500, observed=observed, bodiless=self._method == "HEAD")

    def _scope(self) -> dict[str, Any]:
        request = self._request
        path, _, query = request.target.partition(b"?")
        headers = list(request.headers)
        for name, value in headers:
            if name == b"connection" and b"close" in [token.strip() for token in value.lower().split(b",")]:
                self._is_kept = False
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": request.http_version.decode(),
            "method": self._method,
            "scheme": "http",
            "path": unquote(path.decode()),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": headers,
            "client": self._connection.peer,
            "server": self._connection.local,
        }

    def _parse(self) -> None:
        """Parse the data that has arrived."""
        pieces = []
        try:
            while isinstance(event := self._parser.next_event(), h11.Data):
                pieces.append(event.data)
            self._is_received = isinstance(event, h11.EndOfMessage)
        except h11.RemoteProtocolError as error:
            self._failure = error.error_status_hint
        self._body = b"".join(pieces)

    async def receive(self) -> Message:
        """Return the next part of the body, or the disconnect of the client."""
        if self._delivered and not self._is_complete:
            await self._connection.wait_for_disconnect()
            return _DISCONNECT
        while not (self._body or self._is_received or self._failure or self._is_complete):
            await self._receive_body()
        if self._delivered or self._failure or self._is_complete:
            return _DISCONNECT
        body, self._body, self._delivered = self._body, b"", self._is_received
        return {"type": "http.request", "body": body, "more_body": not self._delivered}

    async def _receive_body(self) -> None:
        data = self._connection.receive_now()
        if data is not None:
            self._parser.receive_data(data)
            self._parse()
            if not self._is_received:
                await trio.lowlevel.checkpoint()  # a large body must not delay other connections
            return
        await trio.lowlevel.checkpoint_if_cancelled()  # a response that does not need the body is not preceded by a 100
        if self._expects_continue and not self._started:
            self._expects_continue = False
            self._connection.send_continue()
        await self._connection.wait_readable()

    async def send(self, message: Message) -> None:
        """Send a part of the response. Raises: ClientGone."""
        if self._failure:
            raise ClientGone
        if message["type"] == "http.response.start" and not self._started:
            self._head = self._response_head(message["status"], list(message.get("headers", ())))
            self._started = True
        elif message["type"] == "http.response.body" and self._started and not self._is_complete:
            await self._send_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"an unexpected message of the application: {message['type']}")

    def _response_head(self, status: int, headers: Headers) -> bytes:
        length: bytes | None = None
        closes = False
        for name, value in headers:
            if name == b"content-length":
                length = value
            elif name == b"connection":
                closes = value == b"close"
        self._bodiless |= status in (204, 304)
        if length is not None:
            self._body_left = int(length)
        elif self._request.http_version == b"1.0":
            self._body_left = math.inf  # the body ends with the connection
        elif not self._bodiless:
            self._is_chunked = True
            headers.append((b"transfer-encoding", b"chunked"))
        if closes or self._connection.server.is_draining:
            self._is_kept = False
        if not (self._is_kept or closes):
            headers.append((b"connection", b"close"))
        return _head(status, headers, self._connection.server.date_header())

    async def _send_body(self, body: bytes, *, more: bool) -> None:
        if self._bodiless:
            body = b""
        elif self._is_chunked:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"" if more else b"0\r\n\r\n")
        else:
            self._body_left -= len(body)
            if self._body_left < 0 or (not more and 0 < self._body_left < math.inf):
                raise RuntimeError("the body of the response is not as long as its Content-Length")
        if body or not more:
            data, self._head = self._head + body, b""
            await self._connection.send(data)
        if more:
            await trio.lowlevel.checkpoint()  # a long response must not delay other connections
        self._is_complete = not more


def _head(status: int, headers: Headers, date: bytes) -> bytes:
    """Return the head of a response. Raises: ValueError if a header could add another one, or end the headers."""
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    if not lines.count(b"\n") == lines.count(b"\r") == len(headers) or b"\0" in lines:
        raise ValueError("a header of the response contains CR, LF or NUL")
    return b"HTTP/1.1 %d \r\n%b%b\r\n" % (status, lines, date)
