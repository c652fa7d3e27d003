"""The requests of one connection, parsed by h11 (RFC 9112)."""

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

import h11

from entrypoints.http.edge.size_limits import MAX_HEADER_BLOCK

_CLOSE: Final = b"close"


class BadRequest(Exception):
    """Input that is not an HTTP request, or that is too large. `status` is the status of the response."""

    def __init__(self, status: int = 400) -> None:
        super().__init__(status)
        self.status = status


class RequestHead(NamedTuple):
    """The request line and the headers of a request. Names of headers are in lower case."""

    method: str
    target: bytes
    version: str
    headers: list[tuple[bytes, bytes]]
    keeps_connection: bool  # the client can send another request on this connection
    expects_continue: bool


class RequestParser:
    """The requests of one connection. For each request, call `parse_head`, and then `parse_body` until `is_complete`."""

    def __init__(self) -> None:
        self.is_complete = True  # the body of the current request is parsed
        self._left = 0.0  # bytes of this body that are not parsed, or infinity if it is chunked
        self._has_head = False  # of the current request
        self._start: bytes | None = b""  # the data of the next request that h11 has not seen; None after its first byte
        self._connection = _new_connection()

    def feed(self, data: bytes) -> None:
        """Add data of the client, which must not be empty: for h11, empty data is the end of the connection."""
        if self._start is not None:
            # Old clients send an empty line after a body, which is ignored (RFC 9112 section 2.2).
            self._start = (self._start + data).removeprefix(b"\r\n")
            if self._start in (b"", b"\r"):
                return
            data, self._start = self._start, None
        self._connection.receive_data(data)

    @property
    def has_data(self) -> bool:
        """Return whether data has arrived that is not parsed."""
        return bool(self._connection.trailing_data[0])

    def parse_head(self) -> RequestHead | None:
        """Return the head of the next request, or None if it is incomplete."""
        if self._has_head:
            self._begin_next()
        if self._start is not None:  # h11 has seen nothing
            return None
        event = self._next_event()
        if not isinstance(event, h11.Request):
            return None
        headers = list(event.headers)
        self._has_head, self._left = True, _length_of(headers)
        self.is_complete = self._left == 0
        closes = any(name == b"connection" and _CLOSE in map(bytes.strip, value.lower().split(b",")) for name, value in headers)
        return RequestHead(
            event.method.decode(),
            event.target,
            event.http_version.decode(),
            headers,
            keeps_connection=event.http_version == b"1.1" and not closes,
            expects_continue=self._connection.they_are_waiting_for_100_continue,
        )

    def parse_body(self) -> bytes:
        """Return the part of the body that has arrived since the last call. Raises: BadRequest."""
        pieces = []
        while not self.is_complete:
            event = self._next_event()
            if isinstance(event, h11.Data):
                pieces.append(event.data)
                self._left -= len(event.data)
                self.is_complete = self._left == 0
            elif isinstance(event, h11.EndOfMessage):
                self.is_complete = True
            else:
                break
        return b"".join(pieces)

    def _next_event(self) -> object:
        try:
            return self._connection.next_event()
        except h11.RemoteProtocolError as error:
            raise BadRequest(error.error_status_hint) from None

    def _begin_next(self) -> None:
        # h11 reuses a connection only after it has sent the response. It does not send ours.
        unparsed, _ = self._connection.trailing_data
        self._has_head, self._start = False, b""
        self._connection = _new_connection()
        if unparsed:
            self.feed(unparsed)


def _length_of(headers: Iterable[tuple[bytes, bytes]]) -> float:
    """Return the length of a body, or infinity if it is chunked: then only h11 finds its end. h11 has checked both headers."""
    length = 0.0
    for name, value in headers:
        if name == b"transfer-encoding":
            return math.inf
        if name == b"content-length":
            length = int(value)
    return length


def _new_connection() -> h11.Connection:
    return h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADER_BLOCK)
