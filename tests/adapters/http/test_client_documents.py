"""The metadata of external clients, fetched from a real TLS server."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import trio

from adapters.http.client_documents import MAX_CACHED, HttpClientDocuments
from adapters.http.guard import AllowedTarget
from core.federation.oauth.model.client_documents import ClientDocumentUnavailable
from core.kernel.outbound import Reply
from core.kernel.policy import Policy
from tests.fakes.client_documents import ClientServer
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
    """Its own requests wait for each other, and give up."""
    slow, growing = server.publish("/slow", "other.example"), server.publish("/growing", "keys.example")
    server.answers |= {"/slow": Answer(hang=True), "/growing": Answer(200, b" ", JSON, drip=True)}
    address = server.publish()
    refused: list[str] = []

    async def expect_refusal(slow_address: str) -> None:
        with pytest.raises(ClientDocumentUnavailable) as refusal:
            await documents.fetch(slow_address)
        refused.append(refusal.value.message)

    async with trio.open_nursery() as nursery:
        for target in (slow, slow, growing):
            nursery.start_soon(expect_refusal, target)
        assert (await documents.fetch(address)).host == f"client.example:{server.port}"
        assert not refused
    assert len(refused) == 3
    assert [request.path for request in server.requests if request.path == "/slow"] in (["/slow"], ["/slow", "/slow"])


async def test_a_host_that_resolves_to_an_address_of_special_use_is_never_asked(server: ClientServer, clock: FakeClock) -> None:
    """Also if only one of its addresses is, and if a later lookup has another answer (DNS rebinding)."""
    documents = HttpClientDocuments(server.sender(AllowedTarget.parse("127.0.0.1/32")), clock, Policy(key_ports=frozenset({server.port})))
    address = server.publish()
    for addresses in (["10.0.0.1"], ["169.254.169.254"], ["127.0.0.1", "192.168.0.1"], ["::1"], ["100.64.0.1"]):
        server.addresses["client.example"] = addresses
        with pytest.raises(ClientDocumentUnavailable) as refusal:
            await documents.fetch(address)
        assert "not allowed" in refusal.value.message
    assert server.requests == []
    server.addresses["client.example"] = ["127.0.0.1"]
    await documents.fetch(address)
    clock.advance(timedelta(minutes=5))
    server.addresses["client.example"] = ["127.0.0.2"]
    with pytest.raises(ClientDocumentUnavailable):
        await documents.fetch(address)
    assert len(server.requests) == 1


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
    assert not documents._locks._locks
