"""The request parser, alone and compared with h11."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entrypoints.http.edge.request_parser import BadRequest, RequestParser
from entrypoints.http.edge.size_limits import MAX_HEADER_BLOCK

Parsed = list[tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes]]  # method, target, headers and body of complete requests

LINES = [
    b"GET / HTTP/1.1",
    b"POST /a?b HTTP/1.1",
    b"HEAD * HTTP/1.0",
    b"G(T / HTTP/1.1",
    b"GET  / HTTP/1.1",
    b"GET /\xff HTTP/1.1",
    b"GET /",
]
NAMES = [b"X", b"X ", b"X\t", b"", b" X", b"Content-Length ", b"Transfer-Encoding "]
TEXTS = [b"", b"a", b"a\0b", b"a\rb", b"a\x0bb", b"\xe9", b"\t a \t"]
LENGTHS = [b"0", b"5", b"5,5", b"5, 6", b"+5", b"-0", b"0x5", b"05", b"1_0", b"\xb2", b"", b"9" * 30]
CODINGS = [b"chunked", b"\tChunked ", b"xchunked", b"gzip, chunked", b""]
FIELDS = [
    *(b"Host: a,b", b" folded", b"X", b"Connection: Close", b"Connection: x, close"),
    *(name + b": a" for name in NAMES),
    *(b"X: " + text for text in TEXTS),
    *(b"Content-Length: " + length for length in LENGTHS),
    *(b"Transfer-Encoding: " + coding for coding in CODINGS),
]
SIZES = [b"1", b"01", b"1;x=y", b"1 ;x", b"1 ", b" 1", b"0x1", b"-1", b"+1", b"", b"1" * 17]
CHUNKS = [
    *(b"5\r\nhello\r\n", b"0a\r\n0123456789\r\n", b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"0\r\nContent-Length: 1,2\r\n\r\n"),
    *(b"1\r\nab\r\n", b"2\r\na\r\n", b"1\r\naXX", b"1\na\r\n", b"\r\n", b"0\r\n\n", b"0\r\n y\r\n\r\n"),
    *(size + b"\r\na\r\n" for size in SIZES),
]
ENDS = [b"\r\n"] * 12 + [b"\n", b"\r", b"\r\r\n", b"\r\n "]

GOOD = b"POST /a?b HTTP/1.1\r\nHost: test\r\n"
BODIES = [b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", b"Content-Length: 5\r\n\r\nhello", b"\r\n"]

# Each request has one questionable part, because input with several is refused for the first one.
bodies = st.sampled_from(BODIES)
lines = st.tuples(st.sampled_from(LINES), st.sampled_from(ENDS), st.sampled_from([b"Host: test\r\n", b""]), bodies)
fields = st.tuples(st.just(GOOD), st.sampled_from(FIELDS), st.sampled_from(ENDS), bodies)
chunks = st.tuples(st.sampled_from(CHUNKS), st.sampled_from(CHUNKS), st.sampled_from(CHUNKS[:4])).map(b"".join)
chunked = st.tuples(st.just(GOOD + b"Transfer-Encoding: chunked\r\n\r\n"), chunks)
requests = st.one_of(lines, fields, chunked).map(b"".join)
inputs = st.tuples(st.lists(requests, min_size=1, max_size=2).map(b"".join), st.lists(st.integers(0, 400), max_size=4))


def parse(pieces: Sequence[bytes]) -> tuple[Parsed, bytes]:
    """Return the complete requests, and the beginning of the body of an incomplete one."""
    parser, parsed, head, body = RequestParser(), Parsed(), None, b""
    try:
        for piece in pieces:
            parser.feed(piece)
            while head or (head := parser.parse_head()):
                body += parser.parse_body()
                if not parser.is_complete:
                    break
                parsed.append((head.method.encode(), head.target, head.headers, body))
                if not head.keeps_connection:
                    return parsed, b""
                head, body = None, b""
    except BadRequest:
        pass
    return parsed, body


def parse_with_h11(pieces: Sequence[bytes]) -> tuple[Parsed, bytes]:
    parser, parsed, head, body = h11.Connection(h11.SERVER, MAX_HEADER_BLOCK), Parsed(), None, b""
    try:
        for piece in pieces:
            parser.receive_data(piece)
            while (event := parser.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Request):
                    head = event
                elif isinstance(event, h11.Data):
                    body += event.data
                else:
                    assert head is not None
                    parsed.append((head.method, head.target, list(head.headers), body))
                    if parser.their_state is h11.MUST_CLOSE:
                        return parsed, b""
                    (unparsed, _), body = parser.trailing_data, b""
                    parser = h11.Connection(h11.SERVER, MAX_HEADER_BLOCK)
                    if unparsed:
                        parser.receive_data(unparsed)
    except h11.RemoteProtocolError:
        pass
    return parsed, body


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(inputs)
def test_h11_accepts_what_the_parser_accepts(generated: tuple[bytes, list[int]]) -> None:
    data, cuts = generated
    pieces = [data[start:end] for start, end in pairwise(sorted({0, len(data), *(cut for cut in cuts if cut < len(data))}))]
    parsed, body = parse(pieces)
    expected, more = parse_with_h11(pieces)
    bodies = [body for *_, body in expected[len(parsed) :]] + [more]
    assert [(method, target, _lower_codings(headers), body) for method, target, headers, body in parsed] == expected[: len(parsed)]
    assert bodies[0].startswith(body)


def _lower_codings(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name, value.lower() if name == b"transfer-encoding" else value) for name, value in headers]


@pytest.mark.parametrize("cut", [lambda data: [data], lambda data: [data[i : i + 1] for i in range(len(data))]], ids=["at once", "bytes"])
def test_pipelined_requests_are_parsed_in_order(cut: Callable[[bytes], list[bytes]]) -> None:
    head = b"POST /a HTTP/1.1\r\nHost:test\r\n"
    chunks = b"Transfer-Encoding: chunked\r\n\r\n1;x=y\r\na\r\n00A\r\n0123456789\r\n0\r\nX: y\r\n\r\n"
    data = head + b"Content-Length: 5\r\n\r\nhello" + head + chunks + head + b"\r\n"
    parsed, _ = parse(cut(data))
    assert [body for *_, body in parsed] == [b"hello", b"a0123456789", b""]
    assert [target for _, target, *_ in parsed] == [b"/a"] * 3


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: a\n\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n", 501),
        (b"\x16\x03\x01", 400),
        (b"\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * MAX_HEADER_BLOCK, 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * MAX_HEADER_BLOCK + b"\r\n\r\n", 431),
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
    parser.feed(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + line)
    assert parser.parse_head() is not None
    with pytest.raises(BadRequest):
        parser.parse_body()
