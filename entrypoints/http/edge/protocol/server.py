"""The HTTP/1.1 server on Trio: one task per connection, which runs the application itself (docs/adr/0027).

Slow clients are dropped (security P-3, P-4).

While an application runs, nothing reads the socket until the application calls `receive`: for the
body, or, after the body, for the disconnect of the client.
"""

import math
import time
from contextlib import suppress
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote

import structlog
import trio

from entrypoints.http.edge.middleware import BODY_IS_HERE, Headers, Message
from entrypoints.http.edge.protocol.accepting import MAX_REQUESTS, REASONS, ServedConnection, Server
from entrypoints.http.edge.protocol.client_socket import LINGER, ClientGone, ClientSocket
from entrypoints.http.edge.protocol.request_parser import BadRequest, RequestHead, RequestParser

log = structlog.get_logger("http")

_ASGI = {"version": "3.0", "spec_version": "2.1"}
_DISCONNECT: Message = {"type": "http.disconnect"}


class Http1Server(Server):
    """The HTTP/1.1 server."""

    _date = (0, b"")  # the current second, and its header

    def connect(self, client: ClientSocket) -> ServedConnection:
        return _Connection(self, client)

    def response_head(self, status: int, headers: Headers) -> bytes:
        """Return the head of a response. Raises: ValueError if a header could add another one, or end the headers."""
        lines = b"".join([b"%b: %b\r\n" % header for header in headers])
        if not lines.count(b"\n") == lines.count(b"\r") == len(headers) or b"\0" in lines:
            raise ValueError("a header of the response contains CR, LF or NUL")
        now = int(time.time())
        if now != self._date[0]:
            self._date = now, formatdate(now, usegmt=True).encode()
        return b"HTTP/1.1 %d %b\r\n%bdate: %b\r\n\r\n" % (status, REASONS.get(status, b""), lines, self._date[1])


class _Connection:
    """The requests of one client."""

    def __init__(self, server: Http1Server, client: ClientSocket) -> None:
        self.server = server
        self.client = client
        self.parser = RequestParser()
        self.requests = 0
        self._waiting: trio.CancelScope | None = None  # for the head of a request

    async def run(self) -> None:
        """Serve requests until the connection ends."""
        try:
            while (head := await self._read_head()) is not None:
                self.requests += 1
                if not await _Request(self, head).run():
                    return await self.client.linger()
            self.client.end()
        except BadRequest as error:
            await self.refuse(error.status)
            await self.client.linger()

    async def _read_head(self) -> RequestHead | None:
        """Return the head of the next request, or None if the client sends none. Raises: BadRequest."""
        # An absolute deadline, so that slow headers time out like missing ones. A new connection
        # counts as a request that has begun. During a shutdown, the requests that new connections
        # have already sent are still read.
        parser, has_begun = self.parser, not self.requests
        if parser.has_data:
            has_begun = True
            await trio.lowlevel.checkpoint()  # many pipelined requests must not delay other connections
        deadline = self._deadline(has_begun=has_begun)
        while (head := parser.parse_head()) is None:
            with trio.CancelScope(deadline=deadline) as self._waiting:
                await self.client.wait_readable()
            timed_out, self._waiting = self._waiting.cancelled_caught, None
            data = b"" if timed_out else self.client.receive_now()
            if data == b"":
                if parser.has_data:
                    await self.refuse(408 if timed_out else 400)
                return None
            if data is not None:
                parser.feed(data)
                if parser.has_data and not has_begun:
                    has_begun, deadline = True, self._deadline(has_begun=True)
        return head

    def _deadline(self, *, has_begun: bool) -> float:
        server = self.server
        return trio.current_time() + (LINGER if server.is_draining else server.headers_within if has_begun else server.keep_alive)

    def close_if_idle(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()

    async def refuse(self, status: int, *, observed: bool = True, bodiless: bool = False) -> None:
        """Respond to a request that did not reach the application, or to which the application did not respond."""
        headers, body = [(b"content-length", b"0"), (b"connection", b"close")], b""
        peer = self.client.peer
        if self.server.malformed is not None:
            headers, body = self.server.malformed(status, peer and peer[0], observed=observed)
        with suppress(ClientGone):
            await self.client.send(self.server.response_head(status, headers) + (b"" if bodiless else body))


class _Request:
    """One request and its response, as the application receives and sends them."""

    def __init__(self, connection: _Connection, request: RequestHead) -> None:
        self._connection = connection
        self._request = request
        self._parser = connection.parser
        self._client = connection.client
        self._method = request.method.upper()  # the checks of the middleware know upper case only
        self._body = b""  # parsed, and not yet delivered to the application
        self._is_delivered = False  # the whole body
        self._expects_continue = request.expects_continue
        self._failure = 0  # the status of the response to a malformed or truncated body
        self._is_started = False  # the application has started its response
        self._is_sent = False  # the whole response
        self._is_kept = request.keeps_connection and connection.requests < MAX_REQUESTS
        self._head = b""  # of the response, sent together with the first part of its body
        self._is_bodiless = self._method == "HEAD"
        self._is_chunked = False
        self._left: float = 0  # bytes of the response's body

    async def run(self) -> bool:
        """Run the application. Return whether the connection can have another request."""
        self._parse_body()
        if self._failure:
            await self._refuse(observed=True)
            return False
        try:
            await self._connection.server.app(self._scope(), self.receive, self.send)
        except* ClientGone:
            pass
        except* Exception:
            log.exception("application_failed")
        if not self._is_started and not self._client.is_gone:
            await self._refuse(observed=False)  # the application has recorded the request as one without a response
        return self._is_sent and self._is_kept and self._parser.is_complete

    async def _refuse(self, *, observed: bool) -> None:
        await self._connection.refuse(self._failure or 500, observed=observed, bodiless=self._method == "HEAD")

    def _scope(self) -> dict[str, Any]:
        path, _, query = self._request.target.partition(b"?")
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": self._request.version,
            "method": self._method,
            "scheme": "http",
            "path": unquote(path.decode()),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": self._request.headers,
            "client": self._client.peer,
            "server": self._client.local,
            BODY_IS_HERE: self._parser.is_complete,
        }

    def _parse_body(self) -> None:
        """Parse the part of the body that has arrived."""
        try:
            self._body = self._parser.parse_body()
        except BadRequest as error:
            self._failure = error.status
        if self._body:
            self._expects_continue = False

    async def receive(self) -> Message:
        """Return the next part of the body, or the disconnect of the client."""
        if self._is_delivered and not self._is_sent:
            await self._client.wait_for_disconnect()
            return _DISCONNECT
        while not (self._body or self._parser.is_complete or self._failure or self._is_sent):
            await self._receive_body()
        if self._is_delivered or self._failure or self._is_sent:
            return _DISCONNECT
        body, self._body, self._is_delivered = self._body, b"", self._parser.is_complete
        return {"type": "http.request", "body": body, "more_body": not self._is_delivered}

    async def _receive_body(self) -> None:
        data = self._client.receive_now()
        if data is None:
            await trio.lowlevel.checkpoint_if_cancelled()  # a response that does not need the body is not preceded by a 100
            if self._expects_continue and not self._is_started:
                self._expects_continue = False
                self._client.send_now(b"HTTP/1.1 100 Continue\r\n\r\n")
            await self._client.wait_readable()
        elif not data:
            self._failure = 400  # a truncated body
        else:
            self._parser.feed(data)
            self._parse_body()
            if not self._parser.is_complete:
                await trio.lowlevel.checkpoint()  # a large body must not delay other connections

    async def send(self, message: Message) -> None:
        """Send a part of the response. Raises: ClientGone."""
        if self._failure:
            raise ClientGone
        if message["type"] == "http.response.start" and not self._is_started:
            self._head = self._response_head(message["status"], list(message.get("headers", ())))
            self._is_started = True
        elif message["type"] == "http.response.body" and self._is_started and not self._is_sent:
            await self._send_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"an unexpected message of the application: {message['type']}")

    def _response_head(self, status: int, headers: Headers) -> bytes:
        length: bytes | None = None
        closes = False
        for name, value in headers:
            if name == b"content-length":
                length = value
            elif name == b"connection":
                closes = value == b"close"
        self._is_bodiless |= status in (204, 304)
        if length is not None:
            self._left = int(length)
        elif self._request.version == "1.0":
            self._left = math.inf  # the body ends with the connection
        elif not self._is_bodiless:
            self._is_chunked = True
            headers.append((b"transfer-encoding", b"chunked"))
        self._is_kept = self._is_kept and not closes and not self._connection.server.is_draining
        if not (self._is_kept or closes):
            headers.append((b"connection", b"close"))
        return self._connection.server.response_head(status, headers)

    async def _send_body(self, body: bytes, *, more: bool) -> None:
        if self._is_bodiless:
            body = b""
        elif self._is_chunked:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"" if more else b"0\r\n\r\n")
        else:
            self._left -= len(body)
            if self._left < 0 or (not more and 0 < self._left < math.inf):
                raise RuntimeError("the body of the response is not as long as its Content-Length")
        if body or not more:
            data, self._head = self._head + body, b""
            await self._client.send(data)
        if more:
            await trio.lowlevel.checkpoint()  # a long response must not delay other connections
        self._is_sent = not more
