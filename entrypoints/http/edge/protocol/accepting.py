"""Accepting clients, and the lifespan of the application: the part that both servers share (docs/adr/0051).

An error on one connection does not affect the others (security P-3). Hypercorn runs the lifespan.
"""

import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

import structlog
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.lifespan import Lifespan

from entrypoints.http.edge.middleware import Headers
from entrypoints.http.edge.protocol.client_socket import ClientSocket
from entrypoints.http.edge.protocol.tls_socket import TlsClientSocket

log = structlog.get_logger("http")

HEADERS_WITHIN = 5.0  # seconds for the headers, from the start of the connection or the first byte of a later request
MAX_REQUESTS = 1000  # on one connection; clients that connect again spread over the workers

TlsContext = Callable[[], ssl.SSLContext]


class Malformed(Protocol):
    """The function that returns the response to unparsable input. It also records the request if `observed` is true."""

    def __call__(self, status: int, peer: str | None, *, observed: bool) -> tuple[Headers, bytes]: ...


class Server(Protocol):
    """A server of accepted connections."""

    async def serve(self, sock: socket.socket) -> None:
        """Serve one client until its connection ends. Raises: ClientLeft."""

    async def drain(self) -> None:
        """Close idle connections, and the others after their last response."""


class ClientLeft(Exception):
    """The client has reset its connection before it was served."""


def open_client(sock: socket.socket, send_within: float, tls: TlsContext | None) -> ClientSocket:
    """Return the socket of a client, with TLS if `tls` is given. Raises: ClientLeft."""
    try:
        return ClientSocket(sock, send_within) if tls is None else TlsClientSocket(sock, send_within, tls())
    except OSError:
        raise ClientLeft from None


async def accept_clients(
    server: Server,
    app: Callable[..., Awaitable[None]],
    listening: Sequence[socket.socket],
    *,
    shutdown: trio.Event,
    shutdown_grace: float | Callable[[], float],
    on_started: Callable[[], object],
) -> None:
    """Run the lifespan of the application, and pass clients to the server until `shutdown` is set."""
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
