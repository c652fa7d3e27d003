"""The parts of a server that Hypercorn's protocols need: the state of all connections, and one connection."""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Event
from hypercorn.trio.worker_context import WorkerContext

from entrypoints.http.edge.protocol.accepting import MAX_REQUESTS, Malformed
from entrypoints.http.edge.protocol.client_socket import ClientSocket
from entrypoints.http.edge.size_limits import MAX_HEADER_BLOCK

MAX_STREAMS: Final = 100  # requests of one connection with HTTP/2 that run at the same time, also those that the client has reset


class ServerState:
    """The state that all connections share."""

    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        malformed: Malformed | None,
        headers_within: float,
        send_within: float,
        keep_alive: float,
    ) -> None:
        self.asgi = ASGIWrapper(app)
        self.config = Config()
        self.config.accesslog = None
        self.config.errorlog = None
        self.config.include_server_header = False
        self.config.h11_max_incomplete_size = MAX_HEADER_BLOCK
        self.config.h2_max_concurrent_streams = MAX_STREAMS
        self.config.h2_max_header_list_size = MAX_HEADER_BLOCK
        self.config.keep_alive_max_requests = MAX_REQUESTS
        self.context = WorkerContext(None)
        self.malformed = malformed
        self.headers_within = headers_within
        self.send_within = send_within
        self.keep_alive = keep_alive
        self.is_draining = False


class ProtocolConnection(Protocol):
    """One connection, as a protocol of Hypercorn uses it."""

    server: ServerState
    client: ClientSocket

    async def handle(self, event: Event) -> None:
        """Execute an event of the protocol."""

    def abort(self) -> None:
        """Reset the connection of a client that does not read."""
