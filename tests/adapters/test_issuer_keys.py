"""The keys of pipeline issuers and clients."""

import json
from typing import Any

import pytest

from adapters.http.client_keys import DISCOVERY_PATH, HttpClientKeys, HttpIssuerKeys
from adapters.http.provider_keys import CACHE_TTL
from core.federation.oauth.model.clients import ClientAssertionInvalid
from core.kernel.outbound import Reply
from tests.fakes.outside import FakeClock
from tests.federation.api.client_authentication.keys import client_key

ISSUER = "https://issuer.example"


class Issuer:
    """A sender to an issuer with these metadata, which publishes no keys."""

    def __init__(self, jwks_uri: str) -> None:
        self.metadata = {"issuer": ISSUER, "jwks_uri": jwks_uri}
        self.urls: list[str] = []

    async def get(self, url: str, within: float) -> Reply:
        self.urls.append(url)
        return Reply(200, json.dumps(self.metadata if url.endswith(DISCOVERY_PATH) else {"keys": []}).encode())


async def test_keys_come_over_https_as_the_metadata_do(clock: FakeClock) -> None:
    """On their way over http, keys could be exchanged."""
    issuer = Issuer("https://keys.example/jwks")
    assert await HttpIssuerKeys(issuer, clock, {443}).get(ISSUER) == ([], True)
    assert issuer.urls == [f"{ISSUER}{DISCOVERY_PATH}", "https://keys.example/jwks"]
    downgraded = Issuer("http://127.0.0.1:8081/jwks")
    with pytest.raises(ClientAssertionInvalid):
        await HttpIssuerKeys(downgraded, clock, {443}).get(ISSUER)
    assert downgraded.urls == [f"{ISSUER}{DISCOVERY_PATH}"]


@pytest.mark.parametrize("port", [22, 25, 80, 444, 8443])
async def test_keys_are_fetched_only_at_ports_that_the_operator_allows(clock: FakeClock, port: int) -> None:
    """This includes URLs that were stored before, and URLs in an issuer's metadata."""
    for keys in (HttpClientKeys, HttpIssuerKeys):
        sender = Issuer("https://keys.example/jwks")
        with pytest.raises(ClientAssertionInvalid):
            await keys(sender, clock, {443}).get(f"https://issuer.example:{port}")
        assert sender.urls == []
    sender = Issuer(f"https://keys.example:{port}/jwks")
    with pytest.raises(ClientAssertionInvalid):
        await HttpIssuerKeys(sender, clock, {443}).get(ISSUER)
    assert sender.urls == [f"{ISSUER}{DISCOVERY_PATH}"]
    assert await HttpIssuerKeys(sender, clock, {443, port}).get(ISSUER) == ([], True)
    on_loopback = Issuer("https://127.0.0.1:8081/jwks")  # the guard decides about it
    assert await HttpIssuerKeys(on_loopback, clock, {443}).get(ISSUER) == ([], True)


class Publisher:
    """A sender to clients that publish these keys."""

    def __init__(self, *keys: Any) -> None:
        self.keys = keys

    async def get(self, url: str, within: float) -> Reply:
        return Reply(200, json.dumps({"keys": self.keys}).encode())


async def test_of_the_keys_of_a_client_only_those_that_can_verify_are_kept(clock: FakeClock) -> None:
    """Anyone can publish client metadata with URLs that all serve 64 KiB of different values, and nothing would forget them."""
    usable = [client_key("ES256", str(number)).jwk for number in range(25)]
    published = HttpClientKeys(
        Publisher({}, {"kty": 7}, {"kty": "oct", "k": "a"}, *[{**key, "more": {"kept": False}} for key in usable]), clock, {443}
    )
    assert [dict(key) for key in (await published.get("https://client.example/keys"))[0]] == usable[:20]
    for number in range(5):
        await published.get(f"https://client.example/{number}")
    clock.advance(CACHE_TTL)
    await published.get("https://client.example/keys")
    assert len(published._caches._used) == 1
