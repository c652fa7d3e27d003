"""A client's connection, with deadlines for its requests, as HTTP/1.1 and HTTP/2 use it, and the state that all connections share."""

import math
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import structlog
import trio
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext

from entrypoints.http.edge import middleware
from entrypoints.http.edge.protocol import client_socket

log = structlog.get_logger("http")


HEADERS_WITHIN: Final = 5.0  # seconds for the headers, from the start of the connection or the first byte of a later request
MAX_REQUESTS: Final = 1000  # on a connection; clients that connect again spread over the workers
MAX_STREAMS: Final = 100  # requests that run at the same time on a connection with HTTP/2, also requests that the client has reset

TlsContext = Callable[[], ssl.SSLContext]


class Malformed(Protocol):
    """The function that returns the response to unparsable input. It also records the request if `observed` is true."""

    def __call__(self, status: int, peer: str | None, *, observed: bool) -> tuple[middleware.Headers, bytes]: ...


@dataclass(kw_only=True, eq=False)
class ServerState:
    """The state that all connections in a server share."""

    app: Callable[..., Any]  # an ASGI application
    keep_alive: float  # seconds without a request until a connection is closed
    headers_within: float = HEADERS_WITHIN
    send_within: float = client_socket.SEND_WITHIN
    malformed: Malformed | None = None
    tls: TlsContext | None = None  # returns the context for a new connection; without it, clients speak plain HTTP
    is_draining: bool = field(default=False, init=False)  # the next response on a connection is its last response

    def __post_init__(self) -> None:
        self.context = WorkerContext(None)
        self.config = config = Config()
        config.accesslog = None
        config.errorlog = None
        config.include_server_header = False
        config.h2_max_concurrent_streams = MAX_STREAMS
        config.keep_alive_max_requests = MAX_REQUESTS


class Connection:
    """A client's socket, and the time that the client has for the next request."""

    def __init__(self, server: ServerState, client: client_socket.ClientSocket) -> None:
        self.server = server
        self.client = client
        self.is_closing = False  # after the last response
        self._waiting: trio.CancelScope | None = None  # for data
        self._deadline = math.inf  # for data
        self.limit_waiting(has_begun=True)

    def limit_waiting(self, *, has_begun: bool) -> None:
        """Limit the time until all headers in the next request have arrived, or until the request begins.

        The deadline is absolute, so that slow headers time out like missing headers. During a shutdown, the requests
        that new connections have already sent are still read.
        """
        server = self.server
        seconds = client_socket.LINGER if server.is_draining else server.headers_within if has_begun else server.keep_alive
        self._set_deadline(trio.current_time() + seconds)

    def wait_without_limit(self) -> None:
        """Let the client send nothing while its requests run. The middleware limits the time for a body (security P-4)."""
        self._set_deadline(math.inf)

    def _set_deadline(self, deadline: float) -> None:
        self._deadline = deadline
        if self._waiting is not None:
            self._waiting.deadline = deadline

    async def receive(self) -> bytes | None:
        """Return the client's next data, b"" after its last data, or None after the deadline or the end of the connection."""
        while not (self.is_closing or self.client.is_gone):
            with trio.CancelScope(deadline=self._deadline) as self._waiting:
                await self.client.wait_readable()
            timed_out, self._waiting = self._waiting.cancelled_caught, None
            if timed_out:
                return None
            if (data := self.client.receive_now()) is not None:
                return data
        return None

    def refuse(self, status: int, *, observed: bool = True) -> tuple[middleware.Headers, bytes]:
        """Return the response to input that is not a request, and record the input as a request if `observed` is true."""
        peer, malformed = self.client.peer, self.server.malformed
        if malformed is None:
            return [(b"content-length", b"0"), (b"connection", b"close")], b""
        return malformed(status, peer and peer[0], observed=observed)

    def stop_waiting(self) -> None:
        """Let a running `receive` return None."""
        if self._waiting is not None:
            self._waiting.cancel()

    def close_if_idle(self) -> None:
        """Close the connection if it has no request."""
        if self._deadline < math.inf:
            self._set_deadline(-math.inf)

    def close(self) -> None:
        """End the responses. The client can still read them (`ClientSocket.linger`)."""
        self.is_closing = True
        self.client.end()
        self.stop_waiting()

    async def end(self) -> None:
        """End the connection."""
        if self.is_closing:
            await self.client.linger()
        else:
            self.client.end()


async def run_application(app: Any, scope: Any, receive: middleware.Receive, send: middleware.Send) -> None:
    """Run the application for a request. An error in it is logged, and ends only its response."""
    try:
        await app(scope, receive, send)
    except* client_socket.ClientGone:
        pass
    except* Exception:
        log.exception("application_failed")
