"""Hypercorn's HTTP/1.1 without upgrades, with the application in its connection's task (security P-3, P-5, P-6)."""

from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, cast

import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, RawData
from hypercorn.events import Event as ConnectionEvent
from hypercorn.protocol.events import Body, EndBody, Request, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.typing import ConnectionState, TaskGroup

from entrypoints.http.edge import middleware
from entrypoints.http.edge.protocol import client_connection
from entrypoints.http.edge.protocol.client_socket import ClientGone
from entrypoints.http.edge.size_limits import MAX_HEADER_BLOCK

# Some clients, such as h2load, take a response without a reason for a failure (RFC 9112 section 4 allows it).
_REASONS: Final = {status.value: status.phrase.encode() for status in HTTPStatus}
_DISCONNECT: Final[middleware.Message] = {"type": "http.disconnect"}


class _Parser(h11.Connection):
    """h11 that ignores an empty line before a request, and does not parse data after a request before the response is complete."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=MAX_HEADER_BLOCK)
        self._start: bytes | None = b""  # the next request's data that h11 has not seen; None after its first byte

    @property
    def has_data(self) -> bool:
        """Return whether a part of the next request has arrived."""
        return bool(self._receive_buffer)

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
        self._start = b""
        if self.has_data:
            unparsed, self._receive_buffer = self.trailing_data[0], type(self._receive_buffer)()
            self.receive_data(unparsed)

    def next_event(self) -> Any:
        if self.their_state is h11.MUST_CLOSE and self.has_data:
            return h11.NEED_DATA  # h11 would raise after a connection's last request, and end its response
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._request_method = event.method.upper()  # h11 gives `head` a body, and the application does not
        return h11.NEED_DATA if event is h11.PAUSED else event  # Hypercorn would wait for the response here


class Http1(H11Protocol):
    """A connection's requests with HTTP/1.1.

    While an application runs, nothing reads the socket until the application calls `receive`: for the body, or, after
    the body, for the client's disconnect.
    """

    connection: _Parser

    def __init__(self, connection: client_connection.Connection) -> None:
        server, client = connection.server, connection.client
        group, local = cast("TaskGroup", self), cast("tuple[str, int]", client.local)
        super().__init__(
            server.app, server.config, server.context, group, ConnectionState({}), False, client.peer, local, self._handle_event
        )
        self.connection = _Parser()
        self._connection = connection
        self._client = client
        self._method = b""
        self._application: tuple[Any, Any] | None = None  # scope and `send` of a request that the application has not seen
        self._is_running = False  # the application
        self._body = b""  # parsed, and not yet delivered to the application
        self._is_complete = False  # the parsed body
        self._is_delivered = False  # the whole body
        self._unsent_headers = b""

    # Requests

    async def run(self, data: bytes) -> None:
        """Serve a client's requests that begin with this data, until the connection ends."""
        connection, has_begun = self._connection, True  # a new connection counts as a request that has begun
        received: bytes | None = data
        while received:
            await self.handle(RawData(received))
            if self._application is not None:
                await self._run_applications()
                has_begun = self.connection.has_data
                connection.limit_waiting(has_begun=has_begun)
            elif not has_begun and self.connection.has_data:
                has_begun = True
                connection.limit_waiting(has_begun=True)
            if connection.is_closing or self._client.is_gone:
                return
            received = await connection.receive()
        if received is not None:
            await self.handle(RawData(b""))  # the end of the input
        elif self.connection.has_data:
            await self._send_error_response(408)

    @property
    def _is_broken(self) -> bool:
        """Return whether the request has a malformed or truncated body. The client gets only 400 then."""
        return self.connection.their_state is h11.ERROR

    async def _run_applications(self) -> None:
        """Run the application for the present request, and for the requests that the client has sent behind it."""
        while self._application is not None and not self._is_broken:
            (scope, send), self._application = self._application, None
            scope[middleware.BODY_IS_HERE] = self._is_complete
            self._is_running = True
            await client_connection.run_application(self.app, scope, self._receive, send)
            if self.stream is not None:
                await self._break_off()
            self._is_running = False
            if self.connection.has_data and self.stream is None and not self._connection.is_closing:
                await trio.lowlevel.checkpoint()  # many pipelined requests must not delay other connections
                await self._handle_events()

    async def _break_off(self) -> None:
        """End the connection if its request has no complete response."""
        if self.connection.our_state is h11.SEND_RESPONSE and not self._is_broken:
            await self._send_error_response(500)
        self._connection.close()

    async def spawn_app(self, app: Any, config: Config, scope: Any, send: Any) -> Any:
        """Keep the application until all data is parsed, as a stream's task group."""
        self._application = scope, send
        self._body, self._is_complete, self._is_delivered = b"", False, False
        return self._put

    async def _put(self, message: middleware.Message) -> None:
        if message["type"] == "http.request":
            self._body += message["body"]
            self._is_complete = not message["more_body"]

    async def _receive(self) -> middleware.Message:
        """Return the next part of the body, or the client's disconnect."""
        if self._is_delivered and self.stream is not None:
            await self._client.wait_for_disconnect()
            return _DISCONNECT
        while not (self._body or self._is_complete or self._is_broken or self.stream is None):
            await self._receive_body()
        if self._is_delivered or self._is_broken or self.stream is None:
            return _DISCONNECT
        body, self._body, self._is_delivered = self._body, b"", self._is_complete
        return {"type": "http.request", "body": body, "more_body": not self._is_delivered}

    async def _receive_body(self) -> None:
        data = self._client.receive_now()
        if data is None:
            await trio.lowlevel.checkpoint_if_cancelled()  # a response that does not need the body is not preceded by a 100
            if self.connection.they_are_waiting_for_100_continue:
                self._client.send_now(self._write(h11.InformationalResponse(status_code=100, headers=[], reason=_REASONS[100])))
            await self._client.wait_readable()
        else:
            await self.handle(RawData(data))
            if not self._is_complete:
                await trio.lowlevel.checkpoint()  # a large body must not delay other connections

    async def _handle_event(self, event: ConnectionEvent) -> None:
        if isinstance(event, Closed):
            self._connection.close()

    async def _check_protocol(self, event: h11.Request) -> None:
        """Do nothing. Hypercorn would change to HTTP/2 here, which the middleware refuses (security P-5)."""

    async def _create_stream(self, request: h11.Request) -> None:
        # As in Hypercorn, without WebSockets.
        self._method = request.method.upper()
        self.stream = HTTPStream(
            self.app, self.config, self.context, self.task_group, self.ssl, self.client, self.server, self.stream_send, STREAM_ID
        )
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=request.http_version.decode(),
                method=self._method.decode("ascii"),
                raw_path=request.target,
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1

    # Responses

    async def stream_send(self, event: StreamEvent) -> None:
        if isinstance(event, StreamClosed):
            await super().stream_send(event)
            return
        if self._is_broken:
            raise ClientGone
        if isinstance(event, Response):
            self._begin_response(event.status_code, event.headers)
        elif isinstance(event, Body):
            is_first = bool(self._unsent_headers)
            await self._send_part(h11.Data(data=event.data))
            if not is_first:
                await trio.lowlevel.checkpoint()  # a long response must not delay other connections
        elif isinstance(event, EndBody):
            await self._send_part(h11.EndOfMessage())

    def _begin_response(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Write the headers, and keep them until the first part of the body: a single packet and system call instead of two."""
        headers = headers + self.config.response_headers("h11")
        if self.keep_alive_requests >= self.config.keep_alive_max_requests:
            headers.append((b"connection", b"close"))
        self._unsent_headers = self._write(h11.Response(status_code=status, headers=headers, reason=_REASONS.get(status, b"")))

    async def _send_part(self, event: h11.Data | h11.EndOfMessage) -> None:
        data, self._unsent_headers = self._unsent_headers + self._write(event), b""
        if data:
            await self._client.send(data)

    def _write(self, event: h11.Event) -> bytes:
        return self.connection.send(event) or b""

    async def _send_h11_event(self, event: Any) -> None:
        """Do nothing. Hypercorn would send "100 Continue" here, before the application has decided to read the body."""

    async def _send_error_response(self, status_code: int) -> None:
        # An application that runs records the request itself, as a request without a response,
        # because it cannot send its own.
        headers, body = self._connection.refuse(status_code, observed=not self._is_running)
        with suppress(ClientGone):
            self._begin_response(status_code, headers)
            if body and (self.stream is None or self._method != b"HEAD"):
                await self._send_part(h11.Data(data=body))
            await self._send_part(h11.EndOfMessage())
