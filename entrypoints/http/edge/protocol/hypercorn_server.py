"""HTTP/1.1 and HTTP/2 by Hypercorn's protocols, on sockets with our deadlines (docs/adr/0051).

`Connection` is between the socket and Hypercorn's protocol, in place of Hypercorn's TCP server, which has
no settings for these problems:

- Its sends are shielded and have no deadline, so a slow reader holds a connection forever, even past the
  shutdown. A write timeout was proposed in pgjones/hypercorn#262, which was closed without a merge.
- If an application responds without reading the body, its task and the connection hang on a full queue.
- It closes the socket while the client still sends. The reset destroys the response (413, 401).
- An unexpected error on one connection ends the server, such as data on a closed stream of HTTP/2 (#329).
- It responds to unparsable input (400, 431, 501) without a body and request id, and logs nothing.
- HTTP/2 over cleartext and WebSockets cannot be disabled (security P-5).
"""

import math

import trio
from hypercorn.events import Closed, RawData, Updated
from hypercorn.events import Event as ConnectionEvent

from entrypoints.http.edge.protocol.accepting import ServedConnection
from entrypoints.http.edge.protocol.client_socket import LINGER, ClientGone, ClientSocket
from entrypoints.http.edge.protocol.hypercorn_http1 import Http1
from entrypoints.http.edge.protocol.hypercorn_http2 import Http2
from entrypoints.http.edge.protocol.hypercorn_state import ServerState


class HypercornServer(ServerState):
    """The server with Hypercorn's protocols. Clients choose HTTP/2 by ALPN, if the context of `tls` offers it."""

    def connect(self, client: ClientSocket) -> ServedConnection:
        return Connection(self, client)

    async def drain(self) -> None:
        await self.context.terminated.set()  # the next response is the last one of its connection ...
        self.config.keep_alive_max_requests = 0  # ... and has the header Connection: close
        await super().drain()


class Connection:
    """The socket of one client, with deadlines for reading, writing and closing."""

    def __init__(self, server: ServerState, client: ClientSocket) -> None:
        self.server = server
        self.client = client
        self._sending = trio.Lock()
        self._reading = trio.CancelScope()
        self._is_idle = True  # between requests, until all headers have arrived
        self._has_begun = True  # whether a part of the headers has arrived; a new connection counts as a request that has begun
        self._is_closing = False
        self._protocol: Http1 | Http2 | None = None  # after the first data, and with TLS after the handshake

    async def run(self) -> None:
        """Serve requests until the connection ends."""
        async with trio.open_nursery() as sending:
            try:
                await self._run(sending)
            finally:
                if self._protocol is not None:
                    await self._protocol.handle(Closed())
        if self._is_closing:
            await self.client.linger()
        else:
            self.client.end()

    async def _run(self, sending: trio.Nursery) -> None:
        async with trio.open_nursery() as applications:
            self._limit_reading(self.server.headers_within)
            with self._reading:
                await self._read(applications, sending)
            if self._protocol is not None:
                if self._reading.cancelled_caught and self._is_idle and not self._is_closing:
                    await self._protocol.give_up()
                await self._protocol.handle(Closed())  # a running request receives the disconnect

    async def _read(self, applications: trio.Nursery, sending: trio.Nursery) -> None:
        while not self._is_closing:
            await self.client.wait_readable()
            data = self.client.receive_now()
            if data is None:
                continue
            if self._protocol is None:
                if not data:
                    return
                has_http2 = self.client.application_protocol == "h2"
                self._protocol = Http2(self, applications, sending) if has_http2 else Http1(self, applications)
                await self._protocol.initiate()
            if not data:
                await self._protocol.end_of_input()
                return
            await self._protocol.handle(RawData(data))
            if self._is_idle and not self._has_begun and self._protocol.has_partial_request:
                self._has_begun = True
                self._limit_reading(self.server.headers_within)

    def _limit_reading(self, seconds: float) -> None:
        # An absolute deadline, so that slow headers time out like missing ones. During a shutdown,
        # the requests that new connections have already sent are still read.
        self._reading.deadline = trio.current_time() + (LINGER if self.server.is_draining else seconds)

    def close_if_idle(self) -> None:
        if self._is_idle:
            self._reading.cancel()

    async def handle(self, event: ConnectionEvent) -> None:
        """Execute an event of the protocol."""
        if isinstance(event, RawData):
            await self._send(event.data)
        elif isinstance(event, Closed):
            self._is_closing = True
            self.client.end()
            self._reading.cancel()
        elif isinstance(event, Updated):
            self._update(is_idle=event.idle)

    def _update(self, *, is_idle: bool) -> None:
        self._is_idle = is_idle
        if is_idle:
            self._has_begun = self._protocol is not None and self._protocol.has_partial_request
            self._limit_reading(self.server.headers_within if self._has_begun else self.server.keep_alive)
        else:
            # No deadline here: only the body can arrive now, and the middleware limits its time
            # (security P-4).
            self._reading.deadline = math.inf

    async def _send(self, data: bytes) -> None:
        # The lock separates the responses of several streams. Acquiring a free lock must not cost a
        # checkpoint.
        try:
            self._sending.acquire_nowait()
        except trio.WouldBlock:
            await self._sending.acquire()
        try:
            await self.client.send(data)
        except ClientGone:
            self._reading.cancel()
        finally:
            self._sending.release()

    def abort(self) -> None:
        """Reset the connection of a client that does not read."""
        self.client.abort()
        self._reading.cancel()
