"""Accepting clients, the state of their connections, and the lifespan of the application: the part that both servers share.

An error on one connection does not affect the others (security P-3). Hypercorn runs the lifespan (docs/adr/0051).
"""

import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

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

TlsContext = Callable[[], ssl.SSLContext]


class Malformed(Protocol):
    """The function that returns the response to unparsable input. It also records the request if `observed` is true."""

    def __call__(self, status: int, peer: str | None, *, observed: bool) -> tuple[Headers, bytes]: ...


class ClientLeft(Exception):
    """The client has reset its connection before it was served."""


def _open_client(sock: socket.socket, send_within: float, tls: TlsContext | None) -> ClientSocket:
    """Return the socket of a client, with TLS if `tls` is given. Raises: ClientLeft."""
    try:
        return ClientSocket(sock, send_within) if tls is None else TlsClientSocket(sock, send_within, tls())
    except OSError:
        raise ClientLeft from None


class ServedConnection(Protocol):
    """The requests of one client."""

    async def run(self) -> None:
        """Serve requests until the connection ends."""

    def close_if_idle(self) -> None:
        """Close the connection if it has no request."""


class Server(ABC):
    """The state that all connections share."""

    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        malformed: Malformed | None,
        tls: TlsContext | None,
        headers_within: float,
        send_within: float,
        keep_alive: float,
    ) -> None:
        self.app = app
        self.malformed = malformed
        self._tls = tls
        self.headers_within = headers_within
        self.send_within = send_within
        self.keep_alive = keep_alive
        self.is_draining = False  # the next response of each connection is its last one
        self._connections: set[ServedConnection] = set()

    @abstractmethod
    def connect(self, client: ClientSocket) -> ServedConnection:
        """Return the connection of a client."""

    async def serve(self, sock: socket.socket) -> None:
        """Serve one client until its connection ends. Raises: ClientLeft."""
        connection = self.connect(_open_client(sock, self.send_within, self._tls))
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    async def drain(self) -> None:
        """Close idle connections, and the others after their next response."""
        self.is_draining = True
        for connection in self._connections:
            connection.close_if_idle()


async def serve(
    server_type: type[Server],
    app: Callable[..., Awaitable[None]],
    listening: Sequence[socket.socket],
    *,
    shutdown: trio.Event,
    shutdown_grace: float | Callable[[], float],
    keep_alive: float,
    on_started: Callable[[], object] = lambda: None,
    malformed: Malformed | None = None,
    tls: TlsContext | None = None,
    headers_within: float = HEADERS_WITHIN,
    send_within: float = SEND_WITHIN,
) -> None:
    """Serve until `shutdown` is set, then stop accepting, let running requests finish within `shutdown_grace` seconds, and return.

    `shutdown_grace` can be a function, which is called when the shutdown starts: the signal
    determines the seconds. Requests that run longer are canceled. `keep_alive` is the number of
    seconds without a request until a connection is closed. `tls` returns the context of a new
    connection; without it, clients speak plain HTTP. The listening sockets are closed here; workers
    that inherited them keep their copies.
    """
    server = server_type(app, malformed, tls, headers_within, send_within, keep_alive)
    config = Config()
    config.errorlog = None
    lifespan = Lifespan(ASGIWrapper(app), config, {})
    async with trio.open_nursery() as outer:
        await outer.start(lifespan.handle_lifespan)
        await lifespan.wait_for_startup()
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as accepting:
                listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in listening]
                accepting.start_soon(partial(trio.serve_listeners, partial(_serve, server), listeners, handler_nursery=connections))
                on_started()
                await shutdown.wait()
                accepting.cancel_scope.cancel()
            connections.cancel_scope.deadline = trio.current_time() + (shutdown_grace() if callable(shutdown_grace) else shutdown_grace)
            await server.drain()
        await lifespan.wait_for_shutdown()
        outer.cancel_scope.cancel()


async def _serve(server: Server, stream: trio.SocketStream) -> None:
    with socket.socket(fileno=stream.socket.detach()) as sock:
        try:
            await server.serve(sock)
        except* ClientLeft:
            pass
        except* Exception:  # also in a group with a cancellation
            log.exception("connection_failed")
