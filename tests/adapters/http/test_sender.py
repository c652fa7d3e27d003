"""POST requests to targets that tenants chose, with real servers and sockets (security W-1, W-2, W-3, W-4)."""

import gzip
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from adapters.http.guard import AllowedTarget, Guard
from adapters.http.sender import GuardedSender
from core.kernel.outbound import MAX_REPLY_SIZE, Reply, SendFailed, SendFailure, TargetInvalid, parse_target
from tests.fakes.certificates import client_context, make_certificate, server_context
from tests.fakes.requests import Request
from tests.tables import table

LOOPBACK = AllowedTarget.parse("127.0.0.0/8")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

Stream = trio.abc.Stream


class Server:
    """A server that answers all connections with the same bytes and keeps the last request."""

    def __init__(self, answer: bytes | Callable[[Stream], Awaitable[None]]) -> None:
        self._answer = answer
        self.connections = 0
        self.got: Request | None = None

    async def serve(self, stream: Stream) -> None:
        self.connections += 1
        self.got = await Request.read(stream)
        if isinstance(self._answer, bytes):
            await stream.send_all(self._answer)
        else:
            await self._answer(stream)


@asynccontextmanager
async def run_server(
    answer: bytes | Callable[[Stream], Awaitable[None]] = OK, certificate: Path | None = None
) -> AsyncIterator[tuple[Server, int]]:
    server = Server(answer)

    async def handle(stream: trio.SocketStream) -> None:
        served: Stream = stream
        if certificate is not None:
            served = trio.SSLStream(stream, server_context(certificate), server_side=True)
        try:
            async with served:
                await server.serve(served)
        except trio.BrokenResourceError:
            pass  # the client has closed the connection

    async with trio.open_nursery() as nursery:
        yield server, await _listen(nursery, handle)
        nursery.cancel_scope.cancel()


async def _listen(nursery: trio.Nursery, handle: Callable[[trio.SocketStream], Awaitable[None]]) -> int:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, handle, listeners)
    port: int = listeners[0].socket.getsockname()[1]
    return port


def lookup_of(*addresses: str) -> Callable[..., Any]:
    """Return a lookup that has these addresses for every name."""

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    return look_up


def sender(*openings: AllowedTarget, lookup: Callable[..., Any] = socket.getaddrinfo, certificate: Path | None = None) -> GuardedSender:
    guard = Guard(openings or (LOOPBACK,), lookup=lookup)
    return GuardedSender(guard, None if certificate is None else client_context(certificate))


async def failure_of(post: Awaitable[Reply]) -> SendFailure:
    with pytest.raises(SendFailed) as caught:
        await post
    assert str(caught.value) == caught.value.reason.value
    return caught.value.reason


async def test_a_request_arrives_and_its_response_is_returned() -> None:
    async with run_server(b"HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nmade") as (server, port):
        reply = await sender().post(f"http://127.0.0.1:{port}/ho%0d%0aoks?a=b%20", b'{"x":1}', {"Content-Type": "application/json"}, 5)
    assert reply == Reply(201, b"made")
    assert reply.is_success
    assert server.got is not None
    assert (server.got.method, server.got.path, server.got.body) == ("POST", "/ho%0d%0aoks?a=b%20", b'{"x":1}')
    assert server.got.headers == {
        "host": f"127.0.0.1:{port}",
        "accept": "*/*",
        "accept-encoding": "identity",
        "user-agent": "Gatehouse",
        "content-type": "application/json",
        "connection": "close",
        "content-length": "7",
    }


@table(
    ("url", "host"),
    [
        ("http://client.example:PORT/", "client.example:PORT"),
        ("http://[::ffff:127.0.0.1]:PORT/", "[::ffff:127.0.0.1]:PORT"),  # RFC 9112 section 3.2
    ],
)
async def test_the_host_of_a_request_is_that_of_its_url(url: str, host: str) -> None:
    async with run_server() as (server, port):
        await sender(lookup=lookup_of("127.0.0.1")).get(url.replace("PORT", str(port)), 5)
    assert server.got is not None
    assert server.got.headers["host"] == host.replace("PORT", str(port))


async def test_a_redirect_is_returned_and_not_followed() -> None:
    async with run_server() as (other, other_port):
        answer = f"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:{other_port}/\r\nContent-Length: 0\r\n\r\n".encode()
        async with run_server(answer) as (_, port):
            reply = await sender().post(f"http://127.0.0.1:{port}/", b"x", {}, 5)
    assert reply.status == 307
    assert not reply.is_success
    assert other.connections == 0


async def test_a_compressed_response_is_not_decompressed() -> None:
    packed = gzip.compress(bytes(5_000_000))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n".encode()
    async with run_server(head + packed) as (_, port):
        reply = await sender().post(f"http://127.0.0.1:{port}/", b"x", {}, 5)
    assert reply.body == packed[:MAX_REPLY_SIZE]


async def test_only_the_start_of_an_endless_response_is_read() -> None:
    async def endless(stream: Stream) -> None:
        await stream.send_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await stream.send_all(b"1000\r\n" + bytes(0x1000) + b"\r\n")

    async with run_server(endless) as (_, port):
        reply = await sender().post(f"http://127.0.0.1:{port}/", b"x", {}, 5)
    assert reply == Reply(200, bytes(MAX_REPLY_SIZE))


async def _dripping(stream: Stream) -> None:
    await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while True:
        await stream.send_all(b".")
        await trio.sleep(0.01)


async def _silent(_: Stream) -> None:
    await trio.sleep_forever()


@table("answer", [_dripping, _silent])
async def test_a_slow_target_is_abandoned_at_the_deadline(answer: Callable[[Stream], Awaitable[None]]) -> None:
    async with run_server(answer) as (_, port):
        assert await failure_of(sender().post(f"http://127.0.0.1:{port}/", b"x", {}, 0.1)) is SendFailure.TIMED_OUT


@table(
    "answer",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"220 mail.example.com ESMTP\r\n", id="another protocol"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", id="half an answer"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"A: " + b"b" * 200_000, id="an endless head"),
    ],
)
async def test_a_malformed_response_is_reported_as_broken(answer: bytes) -> None:
    async with run_server(answer) as (_, port):
        assert await failure_of(sender().post(f"http://127.0.0.1:{port}/", b"x", {}, 5)) is SendFailure.BROKEN


async def test_a_closed_port_is_reported_as_not_connected() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    assert await failure_of(sender().post(f"http://127.0.0.1:{port}/", b"x", {}, 5)) is SendFailure.NOT_CONNECTED


async def test_no_connection_is_made_to_a_private_address() -> None:
    async with run_server() as (server, port):
        for host in ("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"):
            post = GuardedSender(Guard()).post(f"http://{host}:{port}/", b"x", {}, 5)
            assert await failure_of(post) is SendFailure.NOT_ALLOWED, host
    assert server.connections == 0


async def test_an_unknown_name_is_reported_as_not_resolved() -> None:
    assert await failure_of(sender(lookup=lookup_of()).post("http://unknown.example/", b"x", {}, 5)) is SendFailure.NOT_RESOLVED


async def test_the_host_header_and_tls_use_the_name_of_the_target(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path / "receiver.pem", "receiver.example")
    async with run_server(certificate=certificate) as (server, port):
        one = sender(lookup=lookup_of("127.0.0.1"), certificate=certificate)
        reply = await one.post(f"https://receiver.example:{port}/", b"x", {}, 5)
    assert reply == Reply(200, b"ok")
    assert server.got is not None
    assert server.got.headers["host"] == f"receiver.example:{port}"


async def test_a_certificate_for_another_name_is_refused(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path / "receiver.pem", "other.example")
    async with run_server(certificate=certificate) as (server, port):
        one = sender(lookup=lookup_of("127.0.0.1"), certificate=certificate)
        assert await failure_of(one.post(f"https://receiver.example:{port}/", b"x", {}, 5)) is SendFailure.TLS_FAILED
    assert server.got is None


async def test_a_target_without_tls_is_reported_as_a_tls_failure() -> None:
    async def chatty(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.send_all(b"220 mail.example.com ESMTP\r\n")

    async with trio.open_nursery() as nursery:
        port = await _listen(nursery, chatty)
        assert await failure_of(sender().post(f"https://127.0.0.1:{port}/", b"x", {}, 5)) is SendFailure.TLS_FAILED
        nursery.cancel_scope.cancel()


async def test_the_next_address_is_tried_if_one_is_unreachable() -> None:
    async with run_server() as (_, port):
        reply = await sender(lookup=lookup_of("127.0.0.2", "127.0.0.1")).post(f"http://both.example:{port}/", b"x", {}, 5)
    assert reply.status == 200


async def test_the_host_is_resolved_again_for_each_request() -> None:
    addresses = ["127.0.0.1"]

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (addresses[0], port))]

    async with run_server() as (server, port):
        one = sender(AllowedTarget.parse("127.0.0.1/32"), lookup=look_up)
        await one.post(f"http://moving.example:{port}/", b"x", {}, 5)
        addresses[0] = "127.0.0.2"
        assert await failure_of(one.post(f"http://moving.example:{port}/", b"x", {}, 5)) is SendFailure.NOT_ALLOWED
    assert server.connections == 1


async def test_many_requests_run_at_once() -> None:
    async with run_server() as (server, port):
        one = sender()
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(one.post, f"http://127.0.0.1:{port}/", b"x", {}, 5)
    assert server.connections == 50


@table(
    "url",
    [
        "http://receiver.example",
        "https://receiver.example/hooks?a=b",
        "http://receiver.example:80/",
        "https://receiver.example:443/",
        "http://receiver.example:1024/",
        "https://10.0.0.1:65535/",
        "https://[2606:4700::1111]/",
        "https://xn--bcher-kva.example/%C3%BC%20x",
        "https://receiver.example/%0d%0aX?y=%00%7F",
    ],
)
def test_urls_that_are_allowed_as_targets(url: str) -> None:
    assert parse_target(url) == url.replace(":80/", "/").replace(":443/", "/")


@table(
    "url",
    [
        "",
        "receiver.example",
        "ftp://receiver.example/",
        "https://",
        "https:///path",
        "https://user@receiver.example/",
        "https://user:password@receiver.example/",
        "https://receiver.example/#fragment",
        "http://receiver.example:25/",
        "http://receiver.example:0/",
        "http://receiver.example:65536/",
        "http://receiver example/",
        "http://receiver.example/\n",
        " http://receiver.example/",
        "http://receiver.example/ ",
        "http://receiver.example/a b",
        "http://receiver.example/a*b",
        "http://receiver.example/100%",
        "http://receiver.example/ü",
        "http://localhost./",
        "http://receiver.example/" + "a" * 2048,
    ],
)
def test_urls_that_are_refused_as_targets(url: str) -> None:
    with pytest.raises(TargetInvalid, match="The URL is not allowed as a target: "):
        parse_target(url)


async def test_a_get_request_can_have_headers_and_a_longer_answer() -> None:
    body = b"x" * (MAX_REPLY_SIZE + 2)
    async with run_server(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body) as (server, port):
        reply = await sender().get(f"http://127.0.0.1:{port}/", 5, headers={"Authorization": "Bearer x"}, at_most=MAX_REPLY_SIZE + 1)
    assert len(reply.body) == MAX_REPLY_SIZE + 1
    assert server.got is not None
    assert server.got.headers["authorization"] == "Bearer x"
