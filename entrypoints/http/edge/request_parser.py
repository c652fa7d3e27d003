"""The parser of HTTP/1.1 requests (RFC 9112).

It is strict: one spelling of each construct, and no repairs. A test compares it with h11: h11 accepts
everything that it accepts, with the same fields and the same body.
"""

import re
from typing import NamedTuple

from entrypoints.http.edge.size_limits import MAX_HEADER_BLOCK

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_TEXT = rb"[^\x00-\x08\x0a-\x1f\x7f]*"
_LINE = rb"(%b) ([\x21-\x7e]+) HTTP/([0-9]\.[0-9])\r\n" % _TOKEN
_LINES = rb"(?:%b:%b\r\n)*" % (_TOKEN, _TEXT)

_METHOD = re.compile(_TOKEN)
_REQUEST_LINE = re.compile(_LINE)
_FIELD_LINES = re.compile(_LINES)
_HEAD = re.compile(rb"%b(%b)\r\n" % (_LINE, _LINES))
_CHUNK_LINE = re.compile(rb"\r\n([0-9A-Fa-f]{1,16})(?:;%b)?" % _TEXT)  # with the end of the previous chunk

# The headers that this module reads.
_READ = frozenset({b"connection", b"content-length", b"expect", b"host", b"transfer-encoding"})


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
        self._data = bytearray()  # not parsed yet
        self._left = 0  # bytes of the body, or of its current chunk
        self._is_chunked = False  # and more chunks follow

    def feed(self, data: bytes) -> None:
        self._data += data

    @property
    def has_data(self) -> bool:
        """Return whether data has arrived that is not parsed."""
        return bool(self._data)

    def parse_head(self) -> RequestHead | None:
        """Return the head of the next request, or None if it is incomplete. Raises: BadRequest."""
        end = self._data.find(b"\r\n\r\n")
        if (len(self._data) if end < 0 else end) > MAX_HEADER_BLOCK:
            raise BadRequest(431)
        if end < 0:
            beginning = _REQUEST_LINE if b"\n" in self._data else _METHOD
            if self._data and not beginning.match(self._data):
                raise BadRequest
            return None
        match = _HEAD.fullmatch(self._take(end + 4))
        if match is None:
            raise BadRequest
        method, target, version, lines = match.groups()
        headers, read = [], dict[bytes, bytes]()
        for line in lines.split(b"\r\n")[:-1]:
            name, _, value = line.partition(b":")
            name, value = name.lower(), value.strip(b" \t")
            headers.append((name, value))
            if name in _READ:
                read[name] = read[name] + b"," + value if name in read else value
        if b"," in read.get(b"host", b"") or (b"host" not in read and version == b"1.1"):
            raise BadRequest
        self._begin_body(read.get(b"content-length", b"0"), read.get(b"transfer-encoding"))
        options = [option.strip(b" \t") for option in read.get(b"connection", b"").lower().split(b",")]
        return RequestHead(
            method.decode(),
            target,
            version.decode(),
            headers,
            keeps_connection=version == b"1.1" and b"close" not in options,
            expects_continue=version == b"1.1" and read.get(b"expect", b"").lower() == b"100-continue",
        )

    def _begin_body(self, length: bytes, coding: bytes | None) -> None:
        """Determine how the body ends (RFC 9112 section 6.3). The middleware refuses requests with both headers (security P-6)."""
        if not length.isdigit() or len(length) > 18:
            raise BadRequest
        if coding is None:
            self._left = int(length)
        elif coding.lower() == b"chunked":
            self._data[:0] = b"\r\n"  # as at the end of a chunk, so that all chunks begin alike
        else:
            raise BadRequest(501)
        self._is_chunked = coding is not None
        self.is_complete = not self._left and not self._is_chunked

    def parse_body(self) -> bytes:
        """Return the part of the body that has arrived since the last call. Raises: BadRequest."""
        pieces = [self._take_body()]
        while not self._left and self._is_chunked and self._begin_chunk():
            pieces.append(self._take_body())
        self.is_complete = not self._left and not self._is_chunked
        return b"".join(pieces)

    def _begin_chunk(self) -> bool:
        """Parse the line before a chunk, and after the last chunk also the trailers, which are discarded. Return whether data follows."""
        end = self._data.find(b"\r\n", 2)
        match = _CHUNK_LINE.fullmatch(self._data, 0, end) if end > 0 else None
        if match is not None:
            self._left = int(match[1], 16)
            if self._left:
                self._take(end + 2)
                return True
            begin, end = end + 2, self._data.find(b"\r\n\r\n", end)
            trailers = _FIELD_LINES.fullmatch(self._data, begin, end + 2) if end > 0 else None
            if trailers is not None and not any(line.partition(b":")[0].lower() in _READ for line in trailers[0].split(b"\r\n")):
                self._take(end + 4)
                self._is_chunked = False
                return False
        if end > 0 or len(self._data) > MAX_HEADER_BLOCK:
            raise BadRequest
        return False  # the line or the trailers are incomplete

    def _take_body(self) -> bytes:
        piece = self._take(self._left)
        self._left -= len(piece)
        return piece

    def _take(self, count: int) -> bytes:
        data = bytes(self._data[:count])
        del self._data[:count]
        return data
