"""Hypercorn's HTTP/2 with bounds for hostile clients, and without server push, priorities and WebSockets (security P-3 to security P-6)."""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

import h2.events
import h2.exceptions
import trio
from h2.errors import ErrorCodes
from h2.settings import SettingCodes, Settings
from hypercorn.events import Closed, RawData, Updated
from hypercorn.events import Event as ConnectionEvent
from hypercorn.protocol.events import Body, EndBody, Request, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h2 import BUFFER_LOW_WATER, H2Protocol, StreamBuffer
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.typing import ConnectionState, TaskGroup

from entrypoints.http.edge.middleware import Headers
from entrypoints.http.edge.protocol import client_socket, frame_limits, http2_requests
from entrypoints.http.edge.protocol.client_connection import Connection
from entrypoints.http.edge.size_limits import MAX_HEADER_BLOCK

MAX_HEADER_TABLE: Final = 4096  # bytes; the default of HTTP/2


class _Buffer(StreamBuffer):
    """A stream's unsent data. Hypercorn's buffer takes more data after every small part that was sent, without a bound."""

    async def pop(self, max_length: int) -> bytes:
        data = bytes(self.buffer[:max_length])
        del self.buffer[:max_length]
        if len(self.buffer) < BUFFER_LOW_WATER:
            await self._paused.set()
        if not self.buffer:
            await self._is_empty.set()
        return data


class Http2(H2Protocol):
    """A connection's requests with HTTP/2."""

    def __init__(self, connection: Connection) -> None:
        server, client = connection.server, connection.client
        local = cast("tuple[str, int]", client.local)
        super().__init__(
            server.app,
            server.config,
            server.context,
            cast("TaskGroup", self),
            ConnectionState({}),
            True,
            client.peer,
            local,
            self._handle_own_event,
        )
        # Without Hypercorn's ENABLE_CONNECT_PROTOCOL, which is for WebSockets.
        self.connection.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: server.config.h2_max_concurrent_streams,
                SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEADER_BLOCK,
            },
        )
        self._connection = connection
        self._applications: trio.Nursery
        self._sending: trio.Nursery  # of the task that sends
        self._lock = trio.Lock()  # of the socket, for several streams
        self._unsent = b""  # frames that wait for the lock
        self._limits = frame_limits.FrameLimits()
        self._running = 0  # applications
        self._receiving: set[int] = set()  # streams with a body that is incomplete
        self._sent: set[int] = set()  # streams with a complete response
        self._idle = trio.Event()  # set after a response if there is no other request

    async def run(self, data: bytes) -> None:
        """Serve a client's requests that begin with this data, until the connection ends.

        The task that sends ends after the applications, so that applications that a shutdown cancels can still respond.
        """
        async with trio.open_nursery() as self._sending:
            try:
                async with trio.open_nursery() as self._applications:
                    await self.initiate()
                    await self._receive(data)
                    await self.handle(Closed())  # a running request receives the disconnect
            finally:
                await self.handle(Closed())

    async def _receive(self, data: bytes) -> None:
        connection = self._connection
        received: bytes | None = data
        while received and not connection.is_closing:
            await self.handle(RawData(received))
            received = await connection.receive()
        if received is not None:
            await self._finish()
        elif not self.streams and not connection.is_closing:
            self.connection.close_connection()
            await self._flush()

    async def _finish(self) -> None:
        """The client has closed its half of the connection. Complete requests still get their responses."""
        for stream_id in list(self._receiving):
            await self._close_stream(stream_id)
        while self.streams and not self._connection.client.is_gone:
            self._idle = trio.Event()
            await self._idle.wait()

    def spawn(self, func: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Start the task that sends, as a task group."""
        self._sending.start_soon(self._run_shielded, func, *args)

    async def _run_shielded(self, func: Callable[..., Awaitable[None]], *args: Any) -> None:
        # Shielded, so that applications that a shutdown cancels can still respond. The end of the connection ends it.
        with trio.CancelScope(shield=True):
            await func(*args)

    async def _handle_own_event(self, event: ConnectionEvent) -> None:
        if isinstance(event, Closed):
            self._connection.close()
        elif isinstance(event, Updated):
            if event.idle:
                # Other frames come between requests, so the time without a request limits headers.
                self._connection.limit_waiting(has_begun=False)
            else:
                self._connection.wait_without_limit()

    # The client's frames

    async def handle(self, event: ConnectionEvent) -> None:
        if not isinstance(event, RawData):
            await super().handle(event)
            for stream_id in list(self.stream_buffers):
                await self._discard_buffer(stream_id)  # no application waits for a window of a closed connection
            return
        if not self._limits.admit(event.data):
            await self._end(ErrorCodes.ENHANCE_YOUR_CALM)
            return
        try:
            events = self.connection.receive_data(event.data)
        except h2.exceptions.ProtocolError:
            await self._end(None)  # h2 has prepared the GOAWAY
            return
        await self._handle_events(events)

    async def _end(self, error: ErrorCodes | None) -> None:
        """End a connection that breaks the rules. It is recorded as a malformed request."""
        self._connection.refuse(400)
        if error is not None:
            self.connection.close_connection(error)
        await self._flush()
        await self.send(Closed())

    async def _handle_events(self, events: list[h2.events.Event]) -> None:
        for event in events:
            if isinstance(event, h2.events.RequestReceived):
                await self._receive_request(event)
            elif isinstance(event, h2.events.DataReceived):
                await self._receive_data(event)
            elif isinstance(event, h2.events.StreamReset):
                await self._receive_reset(event.stream_id)
            else:
                if isinstance(event, h2.events.StreamEnded):
                    self._receiving.discard(event.stream_id)
                elif isinstance(event, h2.events.RemoteSettingsChanged):
                    self._limit_encoder()
                await super()._handle_events([event])
        await trio.lowlevel.checkpoint()  # many frames must not delay other connections
        await self._flush()

    def _limit_encoder(self) -> None:
        """Limit the table of sent headers, which the client may make larger: the encoder searches all of it for every header."""
        encoder = self.connection.encoder
        encoder.header_table_size = min(encoder.header_table_size, MAX_HEADER_TABLE)

    async def _priority_updated(self, event: h2.events.PriorityUpdated) -> None:
        """Do nothing: priorities are deprecated (RFC 9113 section 5.3.2), and storing them would take memory."""

    async def _receive_request(self, request: h2.events.RequestReceived) -> None:
        stream_id = request.stream_id
        if self._is_ending or self._running >= self.config.h2_max_concurrent_streams:
            self.connection.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)  # the client can send the request again
            return
        if request.stream_ended is None:
            self._receiving.add(stream_id)
        self.keep_alive_requests += 1
        head = _read_head(request.headers, has_body=stream_id in self._receiving)
        if head is None:
            await self._refuse(stream_id)
            return
        await self._start(stream_id, *head)
        await self.send(Updated(idle=False))

    @property
    def _is_ending(self) -> bool:
        return self.keep_alive_requests >= self.config.keep_alive_max_requests  # none in a shutdown

    async def _refuse(self, stream_id: int) -> None:
        """Respond with 400 to a request that the server cannot pass on."""
        headers, _ = self._connection.refuse(400)
        headers = [(name, value) for name, value in _without_connection(headers) if name not in (b"content-length", b"content-type")]
        headers = [(b":status", b"400"), *headers, *self.config.response_headers("h2")]
        self.connection.send_headers(stream_id, headers, end_stream=True)
        self._stop_receiving(stream_id)

    async def _start(self, stream_id: int, method: str, target: bytes, headers: Headers) -> None:
        inbox = http2_requests.Inbox(partial(self._acknowledge, stream_id))
        task = cast("TaskGroup", http2_requests.ApplicationTask(self._applications, inbox, self._count_end))
        self._running += 1
        stream = HTTPStream(self.app, self.config, self.context, task, self.ssl, self.client, self.server, self.stream_send, stream_id)
        self.streams[stream_id] = stream
        self.stream_buffers[stream_id] = _Buffer(self.context.event_class)
        self.priority.insert_stream(stream_id)
        self.priority.block(stream_id)
        await stream.handle(
            Request(stream_id=stream_id, headers=headers, http_version="2", method=method, raw_path=target, state=self.connection_state)
        )

    def _count_end(self) -> None:
        self._running -= 1

    async def _receive_data(self, event: h2.events.DataReceived) -> None:
        stream, size = self.streams.get(event.stream_id), event.flow_controlled_length or 0
        if stream is None:
            await self._acknowledge(event.stream_id, size)
        else:
            padding = size - len(event.data or b"")
            await self._acknowledge(event.stream_id, padding)
            if padding and len(event.data or b"") >= frame_limits.SMALL:
                self._limits.earn(1)  # the cost of a padded frame
            await stream.handle(Body(stream_id=event.stream_id, data=event.data or b""))

    async def _receive_reset(self, stream_id: int) -> None:
        """End a stream. Its application runs to its end, but the connection can be idle before."""
        self._receiving.discard(stream_id)
        if stream_id in self.streams:
            await self._close_stream(stream_id)
            await self._discard_buffer(stream_id)
            await self._update()

    async def _acknowledge(self, stream_id: int, size: int) -> None:
        """Open the client's window again, after the application has taken the data. So the window limits the memory."""
        if size and not self.closed:
            try:
                self.connection.acknowledge_received_data(size, stream_id)
            except h2.exceptions.ProtocolError:
                return  # the connection has ended
            await self._flush()

    # Our frames

    async def stream_send(self, event: StreamEvent) -> None:
        stream_id = event.stream_id
        if isinstance(event, StreamClosed):
            await self._end_stream(stream_id)
            return
        if stream_id not in self.streams or self.closed or self._connection.client.is_gone:
            raise client_socket.ClientGone
        if isinstance(event, Response):
            headers = list(_without_connection(event.headers))
            if any(byte in part for header in headers for part in header for byte in b"\r\n\0"):
                raise ValueError("a header of the response contains CR, LF or NUL")
            await super().stream_send(Response(stream_id=stream_id, status_code=event.status_code, headers=headers))
        elif isinstance(event, Body):
            for start in range(0, len(event.data), client_socket.SEND_AT_ONCE):
                await self._send_in_time(Body(stream_id=stream_id, data=event.data[start : start + client_socket.SEND_AT_ONCE]))
        else:
            await self._send_in_time(event)
            if isinstance(event, EndBody):
                self._sent.add(stream_id)
                self._limits.earn(frame_limits.FRAMES_PER_RESPONSE)

    async def _send_in_time(self, event: StreamEvent) -> None:
        """Send a part of a response. A client that does not open its window in time is reset (security P-4)."""
        with trio.CancelScope(deadline=trio.current_time() + self._connection.server.send_within, shield=True) as scope:
            await super().stream_send(event)
        if scope.cancelled_caught:
            self._connection.client.abort()
            self._connection.stop_waiting()
        if self._connection.client.is_gone or event.stream_id not in self.streams:
            raise client_socket.ClientGone

    async def _send_data(self, stream_id: int) -> None:
        # As in Hypercorn, but the end is queued before the application goes on, so that it comes before a reset.
        buffer = self.stream_buffers[stream_id]
        try:
            window = min(self.connection.local_flow_control_window(stream_id), self.connection.max_outbound_frame_size)
            data = await buffer.pop(max(0, window))
            if data or buffer.complete:
                self.connection.send_data(stream_id, data, end_stream=buffer.complete)
            else:
                self.priority.block(stream_id)
            if buffer.complete:
                await self._discard_buffer(stream_id)
        except h2.exceptions.ProtocolError:  # the stream, or the connection, has ended
            await self._discard_buffer(stream_id)
        await self._flush()

    async def _discard_buffer(self, stream_id: int) -> None:
        if buffer := self.stream_buffers.pop(stream_id, None):
            await buffer.close()
            self.priority.remove_stream(stream_id)

    async def _end_stream(self, stream_id: int) -> None:
        await self._close_stream(stream_id)
        if stream_id in self._sent:
            self._sent.discard(stream_id)
            self._stop_receiving(stream_id)
        else:
            await self._break_off(stream_id)
        await self._flush()
        await self._update()

    async def _update(self) -> None:
        """After the end of a stream, end the connection if it was the last stream, or tell the connection whether it is idle."""
        if not self.streams:
            self._idle.set()
            if self._is_ending and not self.closed:
                self.connection.close_connection()
                await self._flush()
                await self.send(Closed())
        await self.send(Updated(idle=not self.streams))

    async def _break_off(self, stream_id: int) -> None:
        """Reset a stream without a complete response, and discard its unsent data."""
        self._receiving.discard(stream_id)
        self._reset(stream_id, ErrorCodes.INTERNAL_ERROR)
        await self._discard_buffer(stream_id)

    def _stop_receiving(self, stream_id: int) -> None:
        """After the response, the client need not send the rest of its body (RFC 9113 section 8.1)."""
        if stream_id in self._receiving:
            self._receiving.discard(stream_id)
            self._reset(stream_id, ErrorCodes.NO_ERROR)

    def _reset(self, stream_id: int, error: ErrorCodes) -> None:
        with suppress(h2.exceptions.ProtocolError):  # the stream, or the connection, has ended
            self.connection.reset_stream(stream_id, error)

    async def _flush(self) -> None:
        """Send h2's frames. A task that is canceled before its turn leaves them to the next task: no frame may be missing."""
        self._unsent += self.connection.data_to_send()
        if not self._unsent:
            return
        try:  # acquiring a free lock must not cost a checkpoint
            self._lock.acquire_nowait()
        except trio.WouldBlock:
            await self._lock.acquire()
        data, self._unsent = self._unsent, b""
        self._limits.earn(len(data) / frame_limits.BYTES_PER_FRAME)
        try:
            await self._connection.client.send(data)
        except client_socket.ClientGone:
            self._connection.stop_waiting()
        finally:
            self._lock.release()


def _read_head(fields: Iterable[tuple[bytes, bytes]], *, has_body: bool) -> tuple[str, bytes, Headers] | None:
    """Return a request's method, target and headers as HTTP/1.1 has them, or None if it has no or several hosts (security P-6)."""
    pseudo: dict[bytes, bytes] = {}
    headers: Headers = []
    cookies: list[bytes] = []
    hosts: list[bytes] = []
    for name, value in fields:
        if name.startswith(b":"):
            pseudo[name] = value
        elif name == b"host":
            hosts.append(value)
        elif name == b"cookie":
            cookies.append(value)  # browsers send every cookie in its own field (RFC 9113 section 8.2.3)
        else:
            headers.append((name, value))
    host = pseudo.get(b":authority") or b"".join(hosts)
    target = pseudo.get(b":path", host)  # CONNECT has none
    if len(hosts) > 1 or not host or not target.isascii() or not pseudo[b":method"].isascii():
        return None
    if has_body and not any(name == b"content-length" for name, _ in headers):
        headers.append((b"transfer-encoding", b"chunked"))  # so that the middleware knows of the body
    if cookies:
        headers.append((b"cookie", b"; ".join(cookies)))
    return pseudo[b":method"].decode().upper(), target, [(b"host", host), *headers]


def _without_connection(headers: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[bytes, bytes]]:
    """Leave out the header that HTTP/2 forbids (RFC 9113 section 8.2.2)."""
    return ((name, value) for name, value in headers if name != b"connection")
