"""The sockets for `localhost`: both loopback addresses, on the same port."""

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import pytest
import trio

from entrypoints.http.edge.middleware import Receive, Send
from entrypoints.http.edge.protocol.listening import PORT_ATTEMPTS, BindError, listen
from entrypoints.http.edge.protocol.request_checks import Scope
from entrypoints.http.edge.protocol.server import Server
from tests.proof.wire.loopback import IPV4, IPV6, family_of, has_ipv6
from tests.proof.wire.wire import Client
from tests.support.waiting import PATIENCE, eventually

needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


@contextmanager
def listening(bind: str) -> Iterator[list[tuple[str, int]]]:
    """Listen, and yield the addresses."""
    with ExitStack() as stack:
        yield [stack.enter_context(sock).getsockname()[:2] for sock in listen(bind)]


def answers(host: str, port: int) -> bool:
    """Return whether a program listens there."""
    with socket.socket(family_of(host)) as client:
        return client.connect_ex((host, port)) == 0


def free_port() -> int:
    with listening("localhost:0") as [(_, port), *_]:
        return port


@needs_ipv6
def test_localhost_means_both_addresses_at_one_port() -> None:
    port = free_port()
    with listening(f"localhost:{port}") as addresses:
        assert addresses == [(IPV4, port), (IPV6, port)]
        assert answers(IPV4, port)
        assert answers(IPV6, port)
    assert not answers(IPV4, port)
    assert not answers(IPV6, port)


@needs_ipv6
def test_a_port_that_the_kernel_chooses_is_the_same_for_both_addresses() -> None:
    with listening("localhost:0") as [first, second]:
        assert first == (IPV4, second[1])
        assert second[0] == IPV6
        assert first[1] > 0


@pytest.mark.parametrize(("bind", "host"), [("127.0.0.1:0", IPV4), ("[::1]:0", IPV6)])
def test_an_address_of_numbers_is_used_alone(bind: str, host: str) -> None:
    if host == IPV6 and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    with listening(bind) as addresses:
        [(used, port)] = addresses
        assert used == host
        assert not answers(IPV4 if host == IPV6 else IPV6, port)


@dataclass
class Failures:
    """The failures on IPv6 sockets, where a kernel would raise them, and the ports that were tried."""

    error: int
    at_creation: bool = False
    times: int = 1000
    count: int = 0
    ports: list[int] = field(default_factory=list)

    def fail(self) -> None:
        if self.count < self.times:
            self.count += 1
            raise OSError(self.error, "refused")


class FailingSocket(socket.socket):
    failures: ClassVar[Failures]

    def __init__(self, family: int = -1, *arguments: Any, **options: Any) -> None:
        if family == socket.AF_INET6 and self.failures.at_creation:
            self.failures.fail()
        super().__init__(family, *arguments, **options)

    def bind(self, address: Any) -> None:
        if self.family == socket.AF_INET6:
            self.failures.ports.append(address[1])
            self.failures.fail()
        super().bind(address)


def use(failures: Failures, monkeypatch: pytest.MonkeyPatch) -> Failures:
    monkeypatch.setattr(FailingSocket, "failures", failures, raising=False)
    monkeypatch.setattr(socket, "socket", FailingSocket)
    return failures


@pytest.mark.parametrize(("error", "at_creation"), [(errno.EAFNOSUPPORT, True), (errno.EADDRNOTAVAIL, False)])
def test_without_ipv6_one_socket_listens(
    error: int, at_creation: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A kernel without IPv6, and a kernel in which it is switched off."""
    failures = use(Failures(error, at_creation), monkeypatch)
    with listening("localhost:0") as addresses:
        assert [host for host, _ in addresses] == [IPV4]
    assert failures.count == 1
    assert capfd.readouterr() == ("", "")


@needs_ipv6
def test_another_port_is_tried_if_the_kernel_chose_one_that_another_program_has(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = use(Failures(errno.EADDRINUSE, times=3), monkeypatch)
    with listening("localhost:0") as [(_, port), (_, same_port)]:
        assert port == same_port == failures.ports[-1]
    assert len(failures.ports) == 4
    failures = use(Failures(errno.EADDRINUSE), monkeypatch)
    with pytest.raises(BindError, match="is already in use"):
        listen("localhost:0")
    assert len(failures.ports) == PORT_ATTEMPTS


@needs_ipv6
@pytest.mark.parametrize(("host", "name"), [(IPV4, r"127\.0\.0\.1"), (IPV6, r"\[::1\]")])
def test_a_port_that_another_program_has_on_one_address_is_reported(host: str, name: str) -> None:
    """Browsers that open `localhost` would reach the other program. The message names the address, and the second address is free again."""
    other = IPV4 if host == IPV6 else IPV6
    with socket.socket(family_of(host)) as taken:
        taken.bind((host, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            BindError, match=rf"^{name}:{port} is already in use; stop the other program, or choose another address with SSO_BIND\.$"
        ):
            listen(f"localhost:{port}")
        assert not answers(other, port)


class Waiting:
    """An application that answers its requests when the test lets it."""

    def __init__(self) -> None:
        self.clients: list[str] = []
        self.may_answer = trio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.clients.append(scope["client"][0])
            await self.may_answer.wait()
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})
        else:
            for _ in range(2):
                await send({"type": (await receive())["type"] + ".complete"})


@needs_ipv6
async def test_requests_on_both_addresses_end_before_the_server_does() -> None:
    app, shutdown, started, sockets = Waiting(), trio.Event(), trio.Event(), listen("localhost:0")
    port = sockets[0].getsockname()[1]
    serve = partial(Server(app=app, keep_alive=60).serve, sockets)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve, shutdown=shutdown, shutdown_grace=PATIENCE, on_started=started.set))
        await started.wait()
        async with await trio.open_tcp_stream(IPV4, port) as first, await trio.open_tcp_stream(IPV6, port) as second:
            for stream in (first, second):
                await stream.send_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await eventually(lambda: len(app.clients) == 2)
            assert set(app.clients) == {IPV4, IPV6}
            shutdown.set()
            await eventually(lambda: not answers(IPV4, port) and not answers(IPV6, port))
            app.may_answer.set()
            for stream in (first, second):
                assert (await Client(stream).rest()).startswith(b"HTTP/1.1 204 ")
