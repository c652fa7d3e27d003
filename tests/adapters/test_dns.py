"""DNS lookups at real name servers: choosing the server, the transport, and malformed answers."""

from collections.abc import Iterator

import dns.resolver
import pytest
import trio
import trio.testing

from adapters.dns import DnsResolver
from core.tenancy.model.domains import DnsFailed
from tests.fakes.dns_server import DnsServer
from tests.support.waiting import eventually

NAME = "_gatehouse-challenge.acme.example"


@pytest.fixture
def server() -> Iterator[DnsServer]:
    with DnsServer() as running:
        yield running


async def test_a_truncated_udp_answer_is_requested_again_over_tcp(server: DnsServer) -> None:
    server.texts[NAME] = [[b"x" * 255, b"y" * 255]]
    assert list(await DnsResolver([server.address]).texts(NAME)) == ["x" * 255 + "y" * 255]
    assert server.queries == [("udp", NAME), ("tcp", NAME)]


async def test_the_name_is_queried_once_and_without_a_search_list(server: DnsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns.resolver.BaseResolver, "read_resolv_conf", lambda self, _: use(self, server, search="internal.example"))
    for resolver in (DnsResolver([server.address]), DnsResolver()):
        server.queries.clear()
        assert list(await resolver.texts(NAME)) == []
        assert server.queries == [("udp", NAME)]


def use(resolver: dns.resolver.BaseResolver, server: DnsServer, *, search: str) -> None:
    """Replace the resolvers from the system's configuration file."""
    host, port = server.address
    resolver.nameservers, resolver.port = [host], port
    resolver.search = [dns.name.from_text(search)]


async def test_the_resolvers_of_the_system_are_read_for_each_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = DnsResolver()
    for text in (b"one", b"another"):
        with DnsServer() as server:
            server.texts[NAME] = [[text]]
            with monkeypatch.context() as patch:
                patch.setattr(dns.resolver.BaseResolver, "read_resolv_conf", lambda self, _, at=server: use(self, at, search="x.example"))
                assert list(await resolver.texts(NAME)) == [text.decode()]


async def test_the_lookup_fails_if_the_system_has_no_resolvers(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise dns.resolver.NoResolverConfiguration("cannot open the file")  # type: ignore[no-untyped-call]

    monkeypatch.setattr(dns.resolver.BaseResolver, "read_resolv_conf", read)
    with pytest.raises(DnsFailed):
        await DnsResolver().texts(NAME)


@pytest.mark.parametrize("failure", ["SERVFAIL", "REFUSED", "FORMERR"])
async def test_after_a_failure_the_next_server_is_asked(server: DnsServer, failure: str) -> None:
    server.texts[NAME] = [[b"a text"]]
    with DnsServer() as failing:
        failing.codes[NAME] = failure
        assert list(await DnsResolver([failing.address, server.address]).texts(NAME)) == ["a text"]


@pytest.mark.slow
async def test_after_a_silent_server_the_next_one_is_asked_in_time(server: DnsServer) -> None:
    server.texts[NAME] = [[b"a text"]]
    with DnsServer() as silent:
        silent.silent.add(NAME)
        assert list(await DnsResolver([silent.address, server.address], deadline=2).texts(NAME)) == ["a text"]
        assert silent.queries


async def test_an_alias_is_followed(server: DnsServer) -> None:
    server.aliases[NAME] = "acme.validation.example"
    server.texts["acme.validation.example"] = [[b"a text"]]
    assert list(await DnsResolver([server.address]).texts(NAME)) == ["a text"]


async def test_a_record_that_is_not_utf8_does_not_fail_the_lookup(server: DnsServer) -> None:
    server.texts[NAME] = [[b"\xff\x00\xfe"], [b""], [b"a ", b"text"]]
    assert "a text" in await DnsResolver([server.address]).texts(NAME)


@pytest.mark.parametrize("code", ["SERVFAIL", "REFUSED", "NOTIMP", "YXDOMAIN"])
async def test_the_lookup_fails_if_every_server_fails(server: DnsServer, code: str) -> None:
    server.codes[NAME] = code
    with pytest.raises(DnsFailed):
        await DnsResolver([server.address]).texts(NAME)


async def test_the_lookup_fails_if_no_server_answers_in_time(server: DnsServer) -> None:
    server.silent.add(NAME)
    with pytest.raises(DnsFailed):
        await DnsResolver([server.address], deadline=0.1).texts(NAME)


async def test_concurrent_lookups_are_limited_and_the_others_wait(server: DnsServer) -> None:
    server.texts[NAME] = [[b"a text"]]
    server.gate.clear()
    resolver = DnsResolver([server.address], deadline=60, lookups=2)
    texts: list[str] = []

    async def look_up() -> None:
        texts.extend(await resolver.texts(NAME))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(look_up)
        await eventually(lambda: len(server.queries) == 2, "two are asked about")
        await trio.testing.wait_all_tasks_blocked()
        assert len(server.queries) == 2
        server.gate.set()
    assert texts == ["a text"] * 5
