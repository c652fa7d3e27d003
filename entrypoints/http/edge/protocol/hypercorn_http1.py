"""Hypercorn's HTTP/1.1 without upgrades, and with our response to unparsable input (security P-5, P-6)."""

from typing import Any, cast

import h11
import trio
from hypercorn.events import RawData
from hypercorn.protocol.events import Body, Request, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.typing import ConnectionState, TaskGroup

from entrypoints.http.edge.protocol.accepting import REASONS
from entrypoints.http.edge.protocol.client_socket import ClientGone
from entrypoints.http.edge.protocol.hypercorn_requests import ApplicationTask, Inbox
from entrypoints.http.edge.protocol.hypercorn_state import ProtocolConnection
from entrypoints.http.edge.size_limits import MAX_HEADER_BLOCK


class _Parser(h11.Connection):
    """h11 that ignores an empty line before a request, and stops parsing at the end of a connection's last request.

    If more data follows the last request, h11 would raise, and the connection would be closed in the
    middle of the response.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=MAX_HEADER_BLOCK)
        self._start: bytes | None = b""  # the data of the next request that h11 has not seen; None after its first byte

    def receive_data(self, data: bytes) -> None:
        if self._start is not None and data:
            # Old clients send an empty line after a body (RFC 9112 section 2.2).
            self._start = (self._start + data).removeprefix(b"\r\n")
            if self._start in (b"", b"\r"):
                return
            data, self._start = self._start, None
        super().receive_data(data)

    def start_next_cycle(self) -> None:
        super().start_next_cycle()
        unparsed, self._receive_buffer = self.trailing_data[0], type(self._receive_buffer)()
        self._start = b""
        if unparsed:
            self.receive_data(unparsed)

    def next_event(self) -> Any:
        if self.their_state is h11.MUST_CLOSE and self.trailing_data[0]:
            return h11.PAUSED if self.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY) else h11.NEED_DATA
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._request_method = event.method.upper()  # h11 gives `head` a body, and the application does not
        return event


class Http1(H11Protocol):
    """The requests of one connection with HTTP/1.1."""

    def __init__(self, connection: ProtocolConnection, applications: trio.Nursery) -> None:
        server, client = connection.server, connection.client
        nothing = cast("TaskGroup", None)  # each request has its own task
        local = cast("tuple[str, int]", client.local)
        super().__init__(
            server.asgi, server.config, server.context, nothing, ConnectionState({}), False, client.peer, local, connection.handle
        )
        self.connection = _Parser()
        self._applications = applications
        self._connection = connection
        self._malformed = server.malformed
        self._method = b""
        self._unsent_headers = b""
        self._task: ApplicationTask | None = None

    @property
    def has_partial_request(self) -> bool:
        """Return whether a part of the next request has arrived."""
        return bool(self.connection.trailing_data[0])

    async def give_up(self) -> None:
        """End a connection after its idle time. Respond with 408 if part of a request has arrived."""
        if self.has_partial_request:
            await self._send_error_response(408)

    async def end_of_input(self) -> None:
        """The client has closed its half of the connection. It still gets its response."""
        await self.handle(RawData(b""))

    async def _check_protocol(self, event: h11.Request) -> None:
        """Do nothing. Hypercorn would change to HTTP/2 here, which the middleware refuses (security P-5)."""

    async def _create_stream(self, request: h11.Request) -> None:
        # As in Hypercorn, without WebSockets.
        self._method = request.method.upper()
        self._task = ApplicationTask(self._applications, Inbox(before_wait=self._send_continue), is_broken=self._is_broken)
        group = cast("TaskGroup", self._task)
        self.stream = HTTPStream(
            self.app, self.config, self.context, group, self.ssl, self.client, self.server, self.stream_send, STREAM_ID
        )
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=request.http_version.decode(),
                method=request.method.decode("ascii").upper(),
                raw_path=request.target,
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1

    def _is_broken(self) -> bool:
        """Return whether the request has a malformed or truncated body. The client gets 400 then, and no other response."""
        return self.connection.their_state is h11.ERROR

    async def stream_send(self, event: StreamEvent) -> None:
        if self._is_broken() and not isinstance(event, StreamClosed):
            raise ClientGone
        is_later_part = isinstance(event, Body) and not self._unsent_headers
        await super().stream_send(event)
        if is_later_part:
            await trio.lowlevel.checkpoint()  # a long response must not delay other connections
        if isinstance(event, Body | Response) and self._connection.client.is_gone:
            # Stop a streaming application by an exception instead of a cancellation.
            raise ClientGone

    async def _send_continue(self) -> None:
        """Send "100 Continue" if the client waits for it. The application is about to read the body."""
        if self.connection.they_are_waiting_for_100_continue:
            data = self.connection.send(h11.InformationalResponse(status_code=100, headers=[], reason=REASONS[100]))
            await self.send(RawData(data=data or b""))

    async def _send_h11_event(self, event: Any) -> None:
        if isinstance(event, h11.InformationalResponse):
            return  # Hypercorn's "100 Continue", before the application has decided to read the body
        if isinstance(event, h11.Response):
            reason = REASONS.get(event.status_code, b"")
            event = h11.Response(status_code=event.status_code, headers=event.headers, reason=reason)
        try:
            data = self.connection.send(event) or b""
        except h11.LocalProtocolError:
            if self.connection.their_state is not h11.ERROR:
                raise
            return
        if isinstance(event, h11.Response):
            # Send the headers with the first part of the body: one packet and one system call
            # instead of two.
            self._unsent_headers = data
            return
        data, self._unsent_headers = self._unsent_headers + data, b""
        if data:
            await self.send(RawData(data=data))

    async def _send_error_response(self, status_code: int) -> None:
        headers, body = [(b"content-length", b"0"), (b"connection", b"close")], b""
        if self._malformed is not None:
            # An application that runs records the request itself: as one without a response,
            # because it cannot send its own.
            observed = self.stream is None or self._task is None or not self._task.has_begun
            headers, body = self._malformed(status_code, self.client[0] if self.client else None, observed=observed)
        await self._send_h11_event(h11.Response(status_code=status_code, headers=headers + self.config.response_headers("h11")))
        if body and (self.stream is None or self._method != b"HEAD"):
            await self._send_h11_event(h11.Data(data=body))
        await self._send_h11_event(h11.EndOfMessage())
