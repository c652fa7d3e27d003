"""The HTTP server: Hypercorn's protocols and lifespan, on sockets with our deadlines (docs/adr/0052).

An error on a connection does not affect other connections (security P-3).
"""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.trio.lifespan import Lifespan

from entrypoints.http.edge.protocol.client_connection import Connection, ServerState
from entrypoints.http.edge.protocol.client_socket import ClientSocket
from entrypoints.http.edge.protocol.http1 import Http1
from entrypoints.http.edge.protocol.http2 import Http2
from entrypoints.http.edge.protocol.tls_socket import TlsClientSocket

log = structlog.get_logger("http")


@dataclass(kw_only=True, eq=False)
class Server(ServerState):
    """A server. Clients choose HTTP/2 by ALPN, if the context of `tls` offers it."""

    _connections: set[Connection] = field(default_factory=set, init=False)

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
        lifespan = Lifespan(ASGIWrapper(self.app), self.config, {})
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
        """Serve a client until its connection ends. An error on it is logged, and does not end other connections."""
        with socket.socket(fileno=stream.socket.detach()) as sock:
            try:
                client = self._open(sock)
            except OSError:  # the client has reset the connection
                return
            connection = Connection(self, client)
            self._connections.add(connection)
            try:
                if data := await connection.receive():  # with TLS, after the handshake
                    await (Http2 if client.application_protocol == "h2" else Http1)(connection).run(data)
                await connection.end()
            except* Exception:  # also in a group with a cancellation
                log.exception("connection_failed")
            finally:
                self._connections.discard(connection)

    def _open(self, sock: socket.socket) -> ClientSocket:
        return ClientSocket(sock, self.send_within) if self.tls is None else TlsClientSocket(sock, self.send_within, self.tls())

    async def drain(self) -> None:
        """Close idle connections, and busy connections after their next response."""
        self.is_draining = True
        await self.context.terminated.set()  # the next response is the connection's last response ...
        self.config.keep_alive_max_requests = 0  # ... and has the header Connection: close
        for connection in self._connections:
            connection.close_if_idle()
