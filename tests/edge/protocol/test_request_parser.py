"""The requests of one connection, as h11 parses them."""

from collections.abc import Callable, Sequence

import pytest

from entrypoints.http.edge.protocol.request_parser import BadRequest, RequestParser
from entrypoints.http.edge.size_limits import MAX_HEADER_BLOCK

REQUEST = b"POST /a HTTP/1.1\r\nHost: test\r\n"


def parse(pieces: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Return target and body of the complete requests in these pieces of input."""
    parser, head, body, requests = RequestParser(), None, b"", []
    for piece in pieces:
        parser.feed(piece)
        while head is not None or (head := parser.parse_head()) is not None:
            body += parser.parse_body()
            if not parser.is_complete:
                break
            requests.append((head.target, body))
            head, body = None, b""
    return requests


@pytest.mark.parametrize("cut", [lambda data: [data], lambda data: [data[i : i + 1] for i in range(len(data))]], ids=["at once", "bytes"])
def test_pipelined_requests_are_parsed_in_order(cut: Callable[[bytes], list[bytes]]) -> None:
    chunks = b"Transfer-Encoding: chunked\r\n\r\n1;x=y\r\na\r\n00A\r\n0123456789\r\n0\r\nX: y\r\n\r\n"
    upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\n"  # ignored (RFC 9110 section 7.8)
    # An empty line before a request is ignored, too (RFC 9112 section 2.2).
    both = b"Content-Length: 3\r\n" + chunks  # the middleware refuses such a request
    data = b"\r\n" + REQUEST + upgrade + b"hello\r\n" + REQUEST + chunks + REQUEST + both + REQUEST + b"\r\n"
    assert parse(cut(data)) == [(b"/a", b"hello"), (b"/a", b"a0123456789"), (b"/a", b"a0123456789"), (b"/a", b"")]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (REQUEST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (REQUEST + b"Transfer-Encoding: identity\r\n\r\n", 501),
        (b"\x16\x03\x01", 400),
        (b"\r\n\r\n" + REQUEST, 400),
        (REQUEST + b"X: " + b"x" * MAX_HEADER_BLOCK, 431),
    ],
)
def test_other_input_is_refused(data: bytes, status: int) -> None:
    parser = RequestParser()
    parser.feed(data)
    with pytest.raises(BadRequest) as caught:
        parser.parse_head()
    assert caught.value.status == status


@pytest.mark.parametrize("line", [b"1;" + b"x" * MAX_HEADER_BLOCK, b"0\r\nX: " + b"x" * MAX_HEADER_BLOCK])
def test_endless_chunk_lines_and_trailers_are_refused(line: bytes) -> None:
    parser = RequestParser()
    parser.feed(REQUEST + b"Transfer-Encoding: chunked\r\n\r\n" + line)
    assert parser.parse_head() is not None
    with pytest.raises(BadRequest):
        parser.parse_body()


@pytest.mark.parametrize(
    ("version", "headers", "keeps_connection", "expects_continue"),
    [
        (b"1.1", b"", True, False),
        (b"1.1", b"Connection: x, Close\r\n", False, False),
        (b"1.0", b"Expect: 100-continue\r\n", False, False),
        (b"1.1", b"Content-Length: 1\r\nExpect: 100-Continue\r\n", True, True),
    ],
)
def test_the_head_says_how_the_client_continues(version: bytes, headers: bytes, keeps_connection: bool, expects_continue: bool) -> None:
    parser = RequestParser()
    parser.feed(b"POST / HTTP/%b\r\nHost: a\r\n%b\r\n" % (version, headers))
    head = parser.parse_head()
    assert head is not None
    assert (head.keeps_connection, head.expects_continue) == (keeps_connection, expects_continue)
