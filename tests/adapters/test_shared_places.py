"""Places that all organizations share: if some organizations hold a place, the other organizations go on (security N-11).

Servers are held by hand, and Trio's clock runs the waits.
"""

import math
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock, wait_all_tasks_blocked

from adapters.crypto import Argon2Passwords
from adapters.http.client_keys import MAX_OF_SHARE, HttpClientDocuments, HttpClientKeys
from adapters.http.guard import MAX_LOOKUPS, Guard
from adapters.http.openid_providers import DEADLINE, MAX_OF_CONNECTION, MAX_OF_ORGANIZATION, HttpOpenIdProviders
from adapters.http.provider_keys import MAX_CAUSES, REFETCH_PAUSE, ProviderKeys
from adapters.http.upstream import PLACE_WITHIN, UpstreamHttp
from core.federation.connections.model.openid import OpenIdClient, OpenIdProviderMetadata
from core.federation.connections.model.settings import ProviderAuthentication
from core.federation.oauth.model.client_documents import ClientDocumentUnavailable
from core.federation.oauth.model.clients import ClientAssertionInvalid
from core.kernel.outbound import NO_HEADERS, Reply
from core.kernel.policy import Policy
from core.kernel.shares import FairPlaces, Share, of_organization, of_stranger, working_for
from tests.fakes.outside import FakeClock
from tests.support.waiting import PATIENCE

ORGANIZATIONS = [of_organization(UUID(int=number)) for number in range(40)]
HONEST = of_organization(UUID(int=99))
SLOW = "https://slow"  # servers at these addresses answer when the test says so


class HeldSender:
    """A sender with slow servers, which answer when the test says so. Servers at other addresses answer at once."""

    def __init__(self, pause: float = math.inf) -> None:
        self.answers = trio.Event()
        self._pause = pause
        self.running: Counter[str] = Counter()

    async def post(self, url: str, body: bytes, headers: Any, within: float, *, at_most: int = 0) -> Reply:
        return await self.get(url, within)

    async def get(self, url: str, within: float, *, headers: Any = NO_HEADERS, at_most: int = 0) -> Reply:
        self.running[url] += 1
        try:
            if url.startswith(SLOW):
                with trio.move_on_after(self._pause):
                    await self.answers.wait()
        finally:
            self.running[url] -= 1
        return Reply(400, b'{"error": "invalid_grant"}', {})

    @property
    def held(self) -> int:
        return self.running.total()


def client_of(org_id: UUID, number: int = 0, host: str = SLOW) -> tuple[OpenIdClient, OpenIdProviderMetadata]:
    """Return our client at an organization's connection, and the provider's metadata."""
    issuer = f"{host}-{org_id.int}-{number}.example"
    client = OpenIdClient(
        org_id=org_id,
        connection_id=UUID(int=org_id.int << 16 | number),
        issuer=issuer,
        client_id="us",
        authentication=ProviderAuthentication.BASIC,
        client_secret="secret",
    )
    metadata = OpenIdProviderMetadata(
        issuer=issuer,
        authorization_endpoint=f"{issuer}/authorize",
        token_endpoint=f"{issuer}/token",
        jwks_uri=f"{issuer}/keys",
        userinfo_endpoint=None,
        end_session_endpoint=None,
        algorithms=("RS256",),
        authentications=frozenset(),
        names_issuer=False,
    )
    return client, metadata


class Outcomes:
    """A test's tasks that ended, by the type of their error, or "done"."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, float]] = []

    async def run(self, call: Callable[[], Any]) -> None:
        started = trio.current_time()
        try:
            await call()
        except Exception as error:
            self.ended.append((type(error).__name__, trio.current_time() - started))
        else:
            self.ended.append(("done", trio.current_time() - started))


@asynccontextmanager
async def running(outcomes: Outcomes, calls: Sequence[Callable[[], Any]]) -> AsyncIterator[None]:
    """Run the calls during the block, and end them after it."""
    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(outcomes.run, call)
        await wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()


async def test_slow_providers_of_two_organizations_stop_no_other_organization(mock_clock: MockClock) -> None:
    """Two organizations have 20 connections per organization, with three browsers at every connection."""
    sender, outcomes = HeldSender(), Outcomes()
    providers = HttpOpenIdProviders(sender, FakeClock())
    clients = [client_of(UUID(int=org), number) for org in (1, 2) for number in range(20) for _ in range(3)]
    async with running(outcomes, [partial(providers.check_client, *client, "https://us.example") for client in clients]):
        assert sender.held == 2 * MAX_OF_ORGANIZATION
        for _ in range(2 * MAX_OF_ORGANIZATION):
            await providers.check_client(*client_of(UUID(int=3), host="https://fast"), "https://us.example")
        assert trio.current_time() == 0, "the honest organization waits for nothing"


async def test_codes_from_one_address_delay_a_sign_in_from_another_by_one_turn(autojump_clock: MockClock) -> None:
    """Only the provider tells a forged code from an honest one."""
    providers, outcomes, client = HttpOpenIdProviders(HeldSender(pause=1), FakeClock()), Outcomes(), client_of(UUID(int=1))

    async def come(address: str) -> None:
        with working_for(of_stranger(address)):
            await providers.check_client(*client, "https://us.example")

    async with running(outcomes, [partial(come, "198.51.100.1") for _ in range(100)]):
        await come("192.0.2.1")
        assert trio.current_time() <= 2


async def test_one_connection_leaves_places_for_other_connections_of_its_organization(mock_clock: MockClock) -> None:
    sender, outcomes = HeldSender(), Outcomes()
    providers = HttpOpenIdProviders(sender, FakeClock())
    slow = [partial(providers.check_client, *client_of(UUID(int=1)), "https://us.example") for _ in range(20)]
    async with running(outcomes, slow):
        assert sender.held == MAX_OF_CONNECTION
        await providers.check_client(*client_of(UUID(int=1), 1, host="https://fast"), "https://us.example")


async def test_the_wait_for_a_place_is_no_part_of_the_time_of_a_call(autojump_clock: MockClock) -> None:
    """The seventh sign-in waits five seconds at most. If it gets a place in this time, it has ten seconds for the provider."""
    sender, outcomes = HeldSender(), Outcomes()
    providers = HttpOpenIdProviders(sender, FakeClock())
    calls = [
        partial(providers.check_client, *client_of(UUID(int=1), number), "https://us.example") for number in range(MAX_OF_ORGANIZATION + 1)
    ]
    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(outcomes.run, call)
    assert outcomes.ended == [("OpenIdProviderUnreachable", PLACE_WITHIN)] + [("OpenIdProviderUnreachable", DEADLINE)] * MAX_OF_ORGANIZATION
    outcomes.ended.clear()
    async with trio.open_nursery() as nursery:
        for call in calls[:-1]:
            nursery.start_soon(outcomes.run, call)
        await trio.sleep(DEADLINE - PLACE_WITHIN + 1)
        nursery.start_soon(outcomes.run, calls[-1])
    assert outcomes.ended[-1] == ("OpenIdProviderUnreachable", PLACE_WITHIN - 1 + DEADLINE)


async def test_sign_outs_that_strangers_report_hold_no_place_of_a_sign_in(mock_clock: MockClock) -> None:
    """The strangers' tokens lead to a key fetch, which a slow server does not answer."""
    sender, outcomes = HeldSender(), Outcomes()
    providers = HttpOpenIdProviders(sender, FakeClock())
    client, metadata = client_of(UUID(int=1), host="https://fast")
    reports = [partial(providers.read_logout, *client_of(UUID(int=1), number), "a.b.c") for number in range(20) for _ in range(3)]
    async with running(outcomes, reports):
        assert 0 < sender.held <= MAX_OF_ORGANIZATION
        await providers.check_client(client, metadata, "https://us.example")
        assert trio.current_time() == 0


async def test_starts_of_strangers_hold_no_place_of_a_sign_in_that_ends(mock_clock: MockClock) -> None:
    """A sign-out leads to a metadata fetch per connection, which a slow server does not answer."""
    sender, outcomes = HeldSender(), Outcomes()
    providers = HttpOpenIdProviders(sender, FakeClock())
    starts = [partial(providers.discover, client_of(UUID(int=1), number)[0]) for number in range(20) for _ in range(3)]
    async with running(outcomes, starts):
        assert sender.held == MAX_OF_ORGANIZATION
        await providers.check_client(*client_of(UUID(int=1), host="https://fast"), "https://us.example")
        assert trio.current_time() == 0


async def test_tokens_of_strangers_leave_the_fetch_of_keys_for_our_own_requests() -> None:
    clock, fetches = FakeClock(), 0
    keys = ProviderKeys(clock)

    async def fetch() -> Sequence[dict[str, str]]:
        nonlocal fetches
        fetches += 1
        return [{"kid": str(fetches)}]

    async def causes_fetch(cause: Share | str) -> bool:
        known, _ = await keys.get(fetch)
        return await keys.get_newer(known, fetch, cause) is not None

    addresses = [of_stranger(f"198.51.100.{number}") for number in range(MAX_CAUSES + 2)]
    assert [await causes_fetch(addresses[0]) for _ in range(5)] == [True] + [False] * 4
    assert [await causes_fetch(address) for address in addresses] == [False] + [True] * (MAX_CAUSES - 1) + [False] * 2
    assert await causes_fetch("our request")
    assert not await causes_fetch("our request")
    clock.advance(REFETCH_PAUSE)
    assert await causes_fetch(addresses[-1])
    assert fetches == 1 + MAX_CAUSES + 2


async def test_a_slow_host_of_one_organization_delays_no_keys_and_documents_of_another(mock_clock: MockClock) -> None:
    """Two organizations have clients at the same host. A busy host does not count as a key failure."""
    sender, outcomes, clock = HeldSender(), Outcomes(), FakeClock()
    keys, documents = HttpClientKeys(sender, clock, (443,)), HttpClientDocuments(sender, clock, Policy())

    def ask(share: Share, url: str) -> list[Callable[[], Any]]:
        async def fetch_keys() -> None:
            with working_for(share), pytest.raises(ClientAssertionInvalid):
                await keys.get(url)

        async def fetch_document() -> None:
            with working_for(share), pytest.raises(ClientDocumentUnavailable):
                await documents.fetch(url)

        return [fetch_keys, fetch_document]

    calls = [call for share in ORGANIZATIONS[:3] for number in range(10) for call in ask(share, f"{SLOW}.example/{share[1]}/{number}")]
    async with running(outcomes, calls):
        assert sender.held == 2 * 3, "one request of each organization"
        honest = ask(HONEST, f"{SLOW}.example/honest")
        async with running(outcomes, honest):
            assert sender.held == 2 * 4
        for call in ask(HONEST, "https://fast.example/honest"):
            await call()


async def test_slow_hosts_delay_no_other_organization_at_a_shared_address(mock_clock: MockClock) -> None:
    """The requests wait for their own places, and hold neither a key lock nor a place at the shared host.

    The slow hosts fail alone, too.
    """
    sender, outcomes, clock = HeldSender(), Outcomes(), FakeClock()
    keys, documents, shared = HttpClientKeys(sender, clock, (443,)), HttpClientDocuments(sender, clock, Policy()), "https://fast.example/1"

    async def get_keys(share: Share, url: str) -> None:
        with working_for(share):
            await keys.get(url)

    async def get_document(share: Share, url: str) -> None:
        with working_for(share):
            await documents.fetch(url)

    def ask(share: Share, url: str) -> list[Callable[[], Any]]:
        return [partial(call, share, url) for call in (get_keys, get_document)]

    slow = [call for share in ORGANIZATIONS[:12] for number in range(MAX_OF_SHARE) for call in ask(share, f"{SLOW}-{share[1]}-{number}/1")]
    async with running(outcomes, slow):
        assert sender.held == 12 * 2 * MAX_OF_SHARE
        async with running(outcomes, [call for share in ORGANIZATIONS[:12] for call in ask(share, shared)]):
            mock_clock.autojump_threshold = 0
            for call in ask(HONEST, shared):
                await outcomes.run(call)
            assert outcomes.ended == [("ClientAssertionInvalid", 0), ("ClientDocumentUnavailable", 0)], "the host answers, with an error"
    with pytest.raises(ClientAssertionInvalid, match="were not available"):
        await get_keys(HONEST, shared)
    with pytest.raises(ClientAssertionInvalid, match="are not available"):
        await get_keys(ORGANIZATIONS[20], shared)
    assert (keys._hosts._hosts, documents._hosts._hosts) == ({}, {})


async def test_a_slow_provider_of_the_platform_and_many_checkouts_leave_places(mock_clock: MockClock) -> None:
    http, outcomes, ended = UpstreamHttp(10.0, FairPlaces(trio.Event, 50, of_share=6)), Outcomes(), trio.Event()

    async def call(share: Share) -> None:
        async with http.connect(share):
            await ended.wait()

    async with running(outcomes, [partial(call, share) for share in ORGANIZATIONS[:2] for _ in range(60)]):
        async with http.connect(HONEST):
            assert trio.current_time() == 0
        mock_clock.autojump_threshold = 0
        await outcomes.run(partial(call, ORGANIZATIONS[0]))
        assert "UpstreamFailed" in [name for name, _ in outcomes.ended]
        assert trio.current_time() == PLACE_WITHIN


async def test_a_flood_of_passwords_from_one_address_delays_others_by_one_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    passwords = Argon2Passwords(memory_kib=8, time_cost=1, parallelism=1, concurrency=1, queue=32)
    gate, hashed = threading.Semaphore(0), []
    flood, user, member = of_stranger("198.51.100.1"), of_stranger("192.0.2.1"), HONEST

    def matches(_: str, password: bytes) -> bool:
        assert gate.acquire(timeout=PATIENCE)
        hashed.append(password.decode())
        return True

    async def verify(share: Share, password: str) -> None:
        with working_for(share):
            await passwords.verify(None, password)

    monkeypatch.setattr(passwords, "_matches", matches)
    outcomes = Outcomes()
    async with trio.open_nursery() as nursery:
        for _ in range(60):
            nursery.start_soon(outcomes.run, partial(verify, flood, "flood"))
        await wait_all_tasks_blocked()
        assert Counter(name for name, _ in outcomes.ended) == {"Limited": 60 - 33}
        for share, name in ((user, "user"), (member, "member")):
            nursery.start_soon(outcomes.run, partial(verify, share, name))
        await wait_all_tasks_blocked()
        gate.release(33)
    assert Counter(name for name, _ in outcomes.ended) == {"Limited": 60 - 31, "done": 33}
    assert {"user", "member"} <= set(hashed[:4])
    passwords.close()


async def test_silent_name_servers_of_a_few_organizations_leave_threads() -> None:
    answer = threading.Event()

    def look_up(host: str, port: int, **_: Any) -> Any:
        if host.startswith("slow"):
            answer.wait(PATIENCE)
        return [(socket.AF_INET, None, None, None, ("1.1.1.1", port))]

    guard, outcomes = Guard(lookup=look_up, deadline=60), Outcomes()

    async def resolve(share: Share, host: str) -> None:
        with working_for(share):
            assert await guard.addresses(host, 443) == ("1.1.1.1",)

    slow = [partial(resolve, share, "slow.example") for share in ORGANIZATIONS[:5] for _ in range(MAX_LOOKUPS)]
    try:
        async with running(outcomes, slow):
            with trio.fail_after(PATIENCE):
                await resolve(HONEST, "fast.example")
    finally:
        answer.set()


async def test_a_flood_of_unknown_keys_keeps_new_keys_away_for_a_minute_at_most() -> None:
    """The fetches that the flood causes bring them, too."""
    clock, published = FakeClock(), ["old"]
    keys = ProviderKeys(clock)

    async def fetch() -> Sequence[dict[str, str]]:
        return [{"kid": kid} for kid in published]

    async def verify(kid: str, cause: Share) -> bool:
        known, _ = await keys.get(fetch)
        if {"kid": kid} not in known:
            known = await keys.get_newer(known, fetch, cause) or ()
        return {"kid": kid} in known

    async def flood() -> None:
        assert not any([await verify("forged", of_stranger(f"198.51.100.{number}")) for number in range(MAX_CAUSES)])

    await flood()
    published.append("new")
    assert not await verify("new", of_stranger("192.0.2.1"))
    clock.advance(REFETCH_PAUSE)
    await flood()
    assert await verify("new", of_stranger("192.0.2.1"))
