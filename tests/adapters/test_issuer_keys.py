"""The keys of the issuers of pipelines."""

import json

import pytest

from adapters.http.client_keys import DISCOVERY_PATH, HttpIssuerKeys
from core.federation.oauth.client_assertions_rules import ClientAssertionInvalid
from core.kernel.outbound import Reply
from tests.fakes.outside import FakeClock

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
    assert await HttpIssuerKeys(issuer, clock).get(ISSUER) == ([], True)
    assert issuer.urls == [f"{ISSUER}{DISCOVERY_PATH}", "https://keys.example/jwks"]
    downgraded = Issuer("http://127.0.0.1:8081/jwks")
    with pytest.raises(ClientAssertionInvalid):
        await HttpIssuerKeys(downgraded, clock).get(ISSUER)
    assert downgraded.urls == [f"{ISSUER}{DISCOVERY_PATH}"]
