"""The state that all connections in a server share, with the limits that Hypercorn reads."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext

from entrypoints.http.edge.middleware import Headers
from entrypoints.http.edge.protocol.client_socket import SEND_WITHIN

HEADERS_WITHIN: Final = 5.0  # seconds for the headers, from the start of the connection or the first byte of a later request
MAX_REQUESTS: Final = 1000  # on a connection; clients that connect again spread over the workers
MAX_STREAMS: Final = 100  # requests that run at the same time on a connection with HTTP/2, also requests that the client has reset

TlsContext = Callable[[], ssl.SSLContext]


class Malformed(Protocol):
    """The function that returns the response to unparsable input. It also records the request if `observed` is true."""

    def __call__(self, status: int, peer: str | None, *, observed: bool) -> tuple[Headers, bytes]: ...


@dataclass(kw_only=True, eq=False)
class ServerState:
    """The state that all connections in a server share."""

    app: Callable[..., Any]  # an ASGI application
    keep_alive: float  # seconds without a request until a connection is closed
    headers_within: float = HEADERS_WITHIN
    send_within: float = SEND_WITHIN
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
