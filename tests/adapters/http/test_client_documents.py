"""External clients' metadata, fetched from a real TLS server."""

import json
import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import trio

from adapters.http.client_keys import MAX_CACHED, HttpClientDocuments
from adapters.http.guard import AllowedTarget, Guard
from adapters.http.sender import GuardedSender
from core.federation.oauth.model.client_documents import ClientDocumentUnavailable, ClientHostBusy
from core.kernel.outbound import Reply
from core.kernel.policy import Policy
from tests.fakes.client_documents import LOOPBACK, ClientServer
from tests.fakes.http_server import Answer
from tests.fakes.outside import FakeClock
from tests.support.builders import run_concurrently

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ClientServer]:
    with ClientServer(tmp_path) as server:
        yield server


@pytest.fixture
def documents(server: ClientServer, clock: FakeClock) -> HttpClientDocuments:
    return HttpClientDocuments(server.sender(), clock, Policy(key_ports=frozenset({server.port})))


async def test_a_document_is_fetched_once_and_kept_by_its_headers(
    server: ClientServer, documents: HttpClientDocuments, clock: FakeClock
) -> None:
    address = server.publish(headers={"Cache-Control": "max-age=600"})
    assert documents.cached(address) is None
    fetched = await run_concurrently(20, lambda _: documents.fetch(address))
    assert {document.name for document in fetched} == {"Assistant"}
    [request] = server.requests
    assert request.headers["host"] == f"client.example:{server.port}"
    assert not {"cookie", "authorization", "referer"} & request.headers.keys()
    clock.advance(timedelta(seconds=599))
    assert documents.cached(address) == fetched[0]
    clock.advance(timedelta(seconds=1))
    assert documents.cached(address) is None


async def test_a_document_is_kept_for_five_minutes_to_a_day(server: ClientServer, documents: HttpClientDocuments, clock: FakeClock) -> None:
    """The document's server cannot change this."""
    headers = {
        "": 300,
        "no-store, max-age=600": 300,
        "max-age=1": 300,
        "max-age=0": 300,
        "max-age=-5": 300,
        "max-age=3600": 3600,
        "max-age=60, s-maxage=7200": 7200,
        "max-age=86401": 86400,
        "max-age=99999999999": 86400,
        "max-age=9999999999, immutable": 86400,
    }
    for number, (value, seconds) in enumerate(headers.items()):
        address = server.publish(f"/{number}", headers={"Cache-Control": value})
        await documents.fetch(address)
        clock.advance(timedelta(seconds=seconds, microseconds=-1))
        assert documents.cached(address) is not None, value
        clock.advance(timedelta(microseconds=1))
        assert documents.cached(address) is None, value


async def test_a_failure_is_never_kept(server: ClientServer, documents: HttpClientDocuments) -> None:
    address = server.publish()
    published = server.answers["/client"]
    body = json.dumps({"client_id": address}).encode()
    failures = {
        "answers 500": Answer(500, body, JSON),
        "answers 404": Answer(404),
        "answers 201": Answer(201, body, JSON),
        "answers 302": Answer(302, b"", {"Location": server.address_of("/client")}),
        "answers 304": Answer(304),
        "larger than 5120 bytes": Answer(200, b" " * 5121 + body, JSON),
        "application/json": Answer(200, body, {"Content-Type": "text/plain"}),
        "no client_name": Answer(200, json.dumps({"client_id": address, "redirect_uris": ["https://a.example"]}).encode(), JSON),
    }
    for reason, failure in failures.items():
        server.answers["/client"] = failure
        with pytest.raises(ClientDocumentUnavailable) as refusal:
            await documents.fetch(address)
        assert reason in refusal.value.message
        assert documents.cached(address) is None
    server.answers["/client"] = published
    assert (await documents.fetch(address)).name == "Assistant"


@pytest.mark.slow
async def test_a_dawdling_host_does_not_delay_another(server: ClientServer, documents: HttpClientDocuments) -> None:
    """The dawdling host's own requests wait in a row, and give up."""
    slow, growing = server.publish("/slow", "other.example"), server.publish("/growing", "keys.example")
    server.answers |= {"/slow": Answer(hang=True), "/growing": Answer(200, b" ", JSON, drip=True)}
    address = server.publish()
    refused: list[ClientDocumentUnavailable] = []

    async def expect_refusal(slow_address: str) -> None:
        with pytest.raises(ClientDocumentUnavailable) as refusal:
            await documents.fetch(slow_address)
        refused.append(refusal.value)

    async with trio.open_nursery() as nursery:
        for target in (slow, slow, slow, growing):
            nursery.start_soon(expect_refusal, target)
        assert (await documents.fetch(address)).address == address
        assert not refused
    assert len(refused) == 4
    assert any(isinstance(refusal, ClientHostBusy) for refusal in refused), "not asked is not failed"
    assert [request.path for request in server.requests if request.path == "/slow"] in (["/slow"], ["/slow", "/slow"])


async def test_a_host_that_resolves_to_an_address_of_special_use_is_never_asked(server: ClientServer, clock: FakeClock) -> None:
    """This holds even if only one address is of special use."""
    documents = HttpClientDocuments(server.sender(AllowedTarget.parse("127.0.0.1/32")), clock, Policy(key_ports=frozenset({server.port})))
    address = server.publish()
    for addresses in (["10.0.0.1"], ["169.254.169.254"], ["127.0.0.1", "192.168.0.1"], ["::1"], ["100.64.0.1"]):
        server.addresses["client.example"] = addresses
        with pytest.raises(ClientDocumentUnavailable) as refusal:
            await documents.fetch(address)
        assert "not allowed" in refusal.value.message
    assert server.requests == []


async def test_the_address_that_was_checked_is_the_address_of_the_connection(server: ClientServer, clock: FakeClock) -> None:
    """A host answers every lookup with a different address (DNS rebinding): first allowed, then forbidden, or reversed."""
    answers = ["127.0.0.1", "127.0.0.2", "127.0.0.2", "127.0.0.1"]
    lookups: list[str] = []

    def look_up(host: str, port: int, **_: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        lookups.append(answers[len(lookups)])
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (lookups[-1], port))]

    sender = GuardedSender(Guard([LOOPBACK], lookup=look_up), server.trust)
    documents = HttpClientDocuments(sender, clock, Policy(key_ports=frozenset({server.port})))
    address, outcomes = server.publish(), []
    with socket.create_server(("127.0.0.2", server.port)) as internal:
        internal.setblocking(False)
        for _ in answers:
            try:
                outcomes.append((await documents.fetch(address)).name)
            except ClientDocumentUnavailable as refusal:
                outcomes.append("not allowed" if "not allowed" in refusal.message else refusal.message)
            clock.advance(timedelta(minutes=5))
        with pytest.raises(BlockingIOError):
            internal.accept()
    assert outcomes == ["Assistant", "not allowed", "not allowed", "Assistant"]
    assert lookups == answers, "one lookup for each request"
    assert len(server.requests) == 2


async def test_a_certificate_of_another_host_is_refused(server: ClientServer, documents: HttpClientDocuments) -> None:
    address = server.publish()
    server.addresses["elsewhere.example"] = ["127.0.0.1"]
    with pytest.raises(ClientDocumentUnavailable) as refusal:
        await documents.fetch(address.replace("client.example", "elsewhere.example"))
    assert "certificate" in refusal.value.message


async def test_a_flood_of_addresses_fills_no_memory(clock: FakeClock) -> None:
    class Everywhere:
        async def get(self, url: str, within: float) -> Reply:
            document = {"client_id": url, "client_name": "Flood", "redirect_uris": ["https://a.example/callback"]}
            return Reply(200, json.dumps(document).encode(), {"content-type": "application/json"})

    documents = HttpClientDocuments(Everywhere(), clock, Policy())
    addresses = [f"https://host-{number}.example/client" for number in range(MAX_CACHED + 10)]
    for address in addresses:
        await documents.fetch(address)
    assert [address for address in addresses if documents.cached(address) is None] == addresses[:10]
    assert (await documents.fetch(addresses[0])).name == "Flood", "a document that was forgotten is fetched again"
    assert documents.cached(addresses[10]) is None, "the next one makes room"
    assert not documents._hosts._hosts
