"""TLS on real sockets, beside the server tests that run with TLS, too (test_server.py)."""

import fcntl
import socket
import ssl
import termios
from array import array
from pathlib import Path

import pytest
import structlog.testing
import trio

from entrypoints.http.edge.middleware import Receive, Send
from entrypoints.http.edge.protocol.request_checks import Scope
from entrypoints.http.edge.protocol.tls_socket import RECEIVE_AT_ONCE, TlsClientSocket
from entrypoints.serving import redirect_to
from tests.fakes.certificates import make_certificate
from tests.proof.wire import wire
from tests.proof.wire.test_server import HIDDEN, POST, HeldAnswer, bare, say, say_size
from tests.proof.wire.wire import NEVER, Client, serving, serving_without_middleware
from tests.support.waiting import PATIENCE


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return make_certificate(tmp_path / "server.pem", "localhost")


@pytest.fixture(autouse=True)
def tls(file: Path, monkeypatch: pytest.MonkeyPatch) -> wire.Tls:
    contexts = wire.make_tls(file)
    monkeypatch.setattr(wire, "tls_in_use", contexts)
    return contexts


async def address(scope: Scope, receive: Receive, send: Send) -> None:
    await say(send, scope["request_record"].address.encode())


APP = bare(address)


def hello(trust: ssl.SSLContext) -> bytes:
    """Return a client's first message."""
    outgoing = ssl.MemoryBIO()
    client = trust.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


async def test_the_protocol_is_http_1_1_and_the_address_is_that_of_the_client(tls: wire.Tls) -> None:
    """A client that offers HTTP/2 gets it (test_http2.py)."""
    async with serving(APP) as server:
        for offered in (["http/1.1"], []):
            tls.client.set_alpn_protocols(offered)
            async with server.client() as client:
                assert (await client.get("/")).body == b"127.0.0.1"
                assert isinstance(client.stream, trio.SSLStream)
                chosen = "http/1.1" if "http/1.1" in offered else None
                assert (client.stream.selected_alpn_protocol(), client.stream.version()) == (chosen, "TLSv1.3")


@pytest.mark.parametrize("silence", ["nothing", "half a handshake", "one byte at a time", "no answer"])
async def test_a_slow_handshake_ends_with_the_time_for_headers(tls: wire.Tls, silence: str) -> None:
    with structlog.testing.capture_logs() as logs:
        async with serving(APP, headers_within=0.1) as server, await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
            message = hello(tls.client)
            if silence == "one byte at a time":
                with pytest.raises(trio.BrokenResourceError):  # noqa: PT012
                    for byte in message * 10:
                        await stream.send_all(bytes([byte]))
                        await trio.sleep(0.01)
            else:
                await stream.send_all({"nothing": b"", "half a handshake": message[:40], "no answer": message}[silence])
                await Client(stream).rest()
    assert (server.exchanges, logs) == ([], [])


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x40\x01" + b"x" * 0x4001, b"\x15\x03\x03\x00\x02\x02\x00", b"SSH-2.0-client\r\n", b"\0" * 100_000]
)
async def test_garbage_ends_the_connection_without_a_log_line(garbage: bytes) -> None:
    with structlog.testing.capture_logs() as logs:
        async with serving(APP) as server, await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
            with trio.fail_after(PATIENCE):
                try:
                    await stream.send_all(garbage)
                    while await stream.receive_some():
                        pass
                except trio.BrokenResourceError:
                    pass
    assert (server.exchanges, logs) == ([], [])


async def test_plain_http_is_answered_with_the_advice_to_use_https() -> None:
    async with serving(APP) as server, await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
        client = Client(stream)
        await client.send(HIDDEN)
        reply = await client.reply()
        assert (reply.status, b"https" in reply.body) == (400, True)
        await client.rest()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_tls_1_1_is_refused_and_tls_1_2_is_not(tls: wire.Tls) -> None:
    tls.client.set_ciphers("DEFAULT:@SECLEVEL=0")
    async with serving(APP) as server:
        for version, is_accepted in ((ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_1, False)):
            tls.client.minimum_version, tls.client.maximum_version = ssl.TLSVersion.TLSv1, version
            async with server.client() as client:
                if is_accepted:
                    assert (await client.get("/")).status == 200
                    continue
                with pytest.raises(trio.BrokenResourceError) as broken:
                    await client.get("/")
                assert "ALERT_PROTOCOL_VERSION" in str(broken.value.__cause__)


@pytest.mark.slow
async def test_a_client_cannot_renegotiate(file: Path) -> None:
    async with serving(APP) as server:
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-tls1_2", "-CAfile", str(file)]
        with trio.fail_after(PATIENCE):
            ended = await trio.run_process(command, stdin=b"R\n", capture_stdout=True, capture_stderr=True, check=False)
        assert b"no renegotiation" in ended.stderr


async def test_the_redirect_keeps_the_path_and_refuses_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "tls_in_use", None)
    async with serving_without_middleware(redirect_to("https://id.example.com")) as server:
        for target, location in ((b"/", b"/"), (b"/a%2Fb//c?d=%0D%0A&e", b"/a%2Fb//c?d=%0D%0A&e"), (b"//evil.example", b"//evil.example")):
            for method in (b"GET", b"HEAD"):
                async with server.client() as client:
                    await client.send(method + b" " + target + b" HTTP/1.1\r\nHost: evil.example\r\n\r\n")
                    answer = await client.rest()
                    assert answer.startswith(b"HTTP/1.1 308 ")
                    assert b"\r\nlocation: https://id.example.com" + location + b"\r\n" in answer
        for request in (
            POST + b"Content-Length: 9\r\n\r\nsecret",
            b"GET http://test/ HTTP/1.1\r\nHost: test\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"x",
        ):
            async with server.client() as client:
                await client.send(request)
                await client.end()
                assert (await client.rest()).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("says_goodbye", [True, False])
async def test_a_client_that_closes_logs_nothing_and_gets_the_response_before(says_goodbye: bool) -> None:
    answer = HeldAnswer()
    with structlog.testing.capture_logs() as logs:
        async with serving(bare(answer)) as server, server.client() as client:
            await client.send(HIDDEN)
            await answer.entered.wait()
            assert isinstance(client.stream, trio.SSLStream)
            if says_goodbye:
                with pytest.raises(ssl.SSLWantReadError):
                    client.stream._ssl_object.unwrap()
                await client.transport.send_all(client.stream._outgoing.read())
            else:
                await client.end()
            answer.leave.set()
            [exchange] = await server.observed()
            assert (exchange.status, exchange.error) == (200, None)
    assert logs == []


async def test_the_server_says_that_its_last_data_was_the_last(tls: wire.Tls) -> None:
    """Otherwise a client could not tell the end from an attacker who cuts the connection."""
    async with serving(APP, keep_alive=0.05) as server:
        for closes in (b"Connection: close\r\n", b""):
            stream = trio.SSLStream(await trio.open_tcp_stream("127.0.0.1", server.port), tls.client, server_hostname="localhost")
            async with stream:
                await stream.send_all(b"GET / HTTP/1.1\r\nHost: test\r\n" + closes + b"\r\n")
                assert (await Client(stream).rest()).endswith(b"127.0.0.1")  # type: ignore[arg-type]


async def test_a_request_that_arrives_while_the_application_waits_for_the_disconnect_is_kept() -> None:
    waited = trio.Event()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        with trio.move_on_after(0.05):
            await receive()
        waited.set()
        await say(send, scope["path"].encode())

    async with serving_without_middleware(bare(answer)) as server, server.client() as client:
        await client.send(b"GET /1 HTTP/1.1\r\nHost: test\r\n\r\n")
        await client.send(b"GET /2 HTTP/1.1\r\nHost: test\r\n\r\n")
        assert [(await client.reply()).body for _ in range(2)] == [b"/1", b"/2"]


async def test_a_body_of_many_small_records_is_received() -> None:
    async with serving(bare(say_size)) as server, server.client() as client:
        await client.send(POST + b"Content-Length: 3000\r\n\r\n")
        for _ in range(3000):
            await client.send(b"x")
        assert (await client.reply()).body == b"3000"


async def test_a_turn_receives_no_more_than_a_record(tls: wire.Tls) -> None:
    """Records without data, such as key updates, would otherwise hold up other connections."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        server = TlsClientSocket(ours, NEVER, tls.server)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = tls.client.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        theirs.sendall(outgoing.read())
        assert server.receive_now() is None
        incoming.write(theirs.recv(65536))
        client.do_handshake()
        theirs.sendall(outgoing.read())
        assert server.receive_now() is None
        client.write(b"x" * 60_000)
        theirs.sendall(outgoing.read())
        assert server.receive_now() == b"x" * 16384
        unread = array("i", [0])
        fcntl.ioctl(ours, termios.FIONREAD, unread)
        assert unread[0] > 60_000 - RECEIVE_AT_ONCE
