"""The parts of a server that Hypercorn's protocols need: the state of all connections, and one connection."""

from dataclasses import dataclass
from typing import Final, Protocol

from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Event
from hypercorn.trio.worker_context import WorkerContext

from entrypoints.http.edge.protocol.accepting import MAX_REQUESTS, Server
from entrypoints.http.edge.protocol.client_socket import ClientSocket
from entrypoints.http.edge.size_limits import MAX_HEADER_BLOCK

MAX_STREAMS: Final = 100  # requests of one connection with HTTP/2 that run at the same time, also those that the client has reset


@dataclass(kw_only=True, eq=False)
class ServerState(Server):
    """The state that all connections share, with the values that Hypercorn's protocols read."""

    def __post_init__(self) -> None:
        self.asgi = ASGIWrapper(self.app)
        self.config = Config()
        self.config.accesslog = None
        self.config.errorlog = None
        self.config.include_server_header = False
        self.config.h11_max_incomplete_size = MAX_HEADER_BLOCK
        self.config.h2_max_concurrent_streams = MAX_STREAMS
        self.config.h2_max_header_list_size = MAX_HEADER_BLOCK
        self.config.keep_alive_max_requests = MAX_REQUESTS
        self.context = WorkerContext(None)


class ProtocolConnection(Protocol):
    """One connection, as a protocol of Hypercorn uses it."""

    server: ServerState
    client: ClientSocket

    async def handle(self, event: Event) -> None:
        """Execute an event of the protocol."""

    def abort(self) -> None:
        """Reset the connection of a client that does not read."""
