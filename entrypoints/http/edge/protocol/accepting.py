"""Accepting clients, the state of their connections, and the lifespan of the application: the part that both servers share.

An error on one connection does not affect the others (security P-3). Hypercorn runs the lifespan (docs/adr/0051).
"""

import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Final, Protocol

import structlog
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.lifespan import Lifespan

from entrypoints.http.edge.middleware import Headers
from entrypoints.http.edge.protocol.client_socket import SEND_WITHIN, ClientSocket
from entrypoints.http.edge.protocol.tls_socket import TlsClientSocket

log = structlog.get_logger("http")

HEADERS_WITHIN = 5.0  # seconds for the headers, from the start of the connection or the first byte of a later request
MAX_REQUESTS = 1000  # on one connection; clients that connect again spread over the workers
# Some clients, such as h2load, take a response without a reason for a failure (RFC 9112 section 4 allows it).
REASONS: Final = {status.value: status.phrase.encode() for status in HTTPStatus}

TlsContext = Callable[[], ssl.SSLContext]


class Malformed(Protocol):
    """The function that returns the response to unparsable input. It also records the request if `observed` is true."""

    def __call__(self, status: int, peer: str | None, *, observed: bool) -> tuple[Headers, bytes]: ...


class ServedConnection(Protocol):
    """The requests of one client."""

    async def run(self) -> None:
        """Serve requests until the connection ends."""

    def close_if_idle(self) -> None:
        """Close the connection if it has no request."""


@dataclass(kw_only=True, eq=False)
class Server(ABC):
    """A server, with the state that all of its connections share."""

    app: Callable[..., Awaitable[None]]
    keep_alive: float  # seconds without a request until a connection is closed
    headers_within: float = HEADERS_WITHIN
    send_within: float = SEND_WITHIN
    malformed: Malformed | None = None
    tls: TlsContext | None = None  # returns the context of a new connection; without it, clients speak plain HTTP
    is_draining: bool = field(default=False, init=False)  # the next response of each connection is its last one
    _connections: set[ServedConnection] = field(default_factory=set, init=False)

    @abstractmethod
    def connect(self, client: ClientSocket) -> ServedConnection:
        """Return the connection of a client."""

    async def serve(
        self,
        listening: Sequence[socket.socket],
        *,
        shutdown: trio.Event,
        shutdown_grace: float | Callable[[], float],
        on_started: Callable[[], object] = lambda: None,
    ) -> None:
        """Serve until `shutdown` is set, then stop accepting, let running requests finish within `shutdown_grace` seconds, and return.

        `shutdown_grace` can be a function, which is called when the shutdown starts: the signal
        determines the seconds. Requests that run longer are canceled. The listening sockets are closed
        here; workers that inherited them keep their copies.
        """
        config = Config()
        config.errorlog = None
        lifespan = Lifespan(ASGIWrapper(self.app), config, {})
        async with trio.open_nursery() as outer:
            await outer.start(lifespan.handle_lifespan)
            await lifespan.wait_for_startup()
            async with trio.open_nursery() as connections:
                async with trio.open_nursery() as accepting:
                    listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in listening]
                    accepting.start_soon(partial(trio.serve_listeners, self._serve_client, listeners, handler_nursery=connections))
                    on_started()
                    await shutdown.wait()
                    accepting.cancel_scope.cancel()
                grace = shutdown_grace() if callable(shutdown_grace) else shutdown_grace
                connections.cancel_scope.deadline = trio.current_time() + grace
                await self.drain()
            await lifespan.wait_for_shutdown()
            outer.cancel_scope.cancel()

    async def _serve_client(self, stream: trio.SocketStream) -> None:
        """Serve one client until its connection ends. An error on it is logged, and does not end the others."""
        with socket.socket(fileno=stream.socket.detach()) as sock:
            try:
                client = self._open(sock)
            except OSError:  # the client has reset the connection
                return
            connection = self.connect(client)
            self._connections.add(connection)
            try:
                await connection.run()
            except* Exception:  # also in a group with a cancellation
                log.exception("connection_failed")
            finally:
                self._connections.discard(connection)

    def _open(self, sock: socket.socket) -> ClientSocket:
        return ClientSocket(sock, self.send_within) if self.tls is None else TlsClientSocket(sock, self.send_within, self.tls())

    async def drain(self) -> None:
        """Close idle connections, and the others after their next response."""
        self.is_draining = True
        for connection in self._connections:
            connection.close_if_idle()
