"""The presets' clients, with the documents that they publish, at their real addresses.

The test's resolver leads their hosts to a server on the loopback interface, which the application trusts by the file in
SSO_OUTBOUND_CA_FILE.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.http.client_keys import HttpClientDocuments, HttpClientKeys
from core.accounts.model.accounts import Account
from core.programs.model.client_policy import PRESETS, ClientPreset
from ports import Ports
from tests.fakes.client_documents import HTTPS, ClientServer
from tests.fakes.http_server import Answer as Published
from tests.fakes.http_server import in_json
from tests.fakes.published_clients import CHATGPT, CHATGPT_CONNECTOR, CLAUDE, CLAUDE_CODE, VSCODE
from tests.federation.api.cli import CODE
from tests.federation.api.client_authentication.keys import client_key
from tests.federation.api.external.external import ExternalParty, assertion
from tests.federation.api.relying import PKCE, TOKEN, add_relying_party, claims, sign_in_browser
from tests.federation.api.resources.orders import ORDERS, READ, error
from tests.support.browser import FakeBrowser
from tests.support.builders import BASE_URL
from tests.support.direct import change_ports
from tests.support.services import add_api_resource, verify_domain
from tests.support.tenants import Tenant

JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
KEY: Final = client_key("RS256")  # ChatGPT's key
PRESET_OF: Final = {preset.name: preset for preset in PRESETS}


@dataclass(frozen=True, slots=True)
class PublishedClient:
    """A sign-in by a published client, at a redirect URI from its document."""

    preset: str
    document: dict[str, Any]
    redirect_uri: str

    @property
    def is_local(self) -> bool:
        return self.redirect_uri.startswith("http:")


PUBLISHED: Final = (
    PublishedClient("claude", CLAUDE, CLAUDE["redirect_uris"][0]),
    PublishedClient("claude", CLAUDE_CODE, "http://localhost:58135/callback"),
    PublishedClient("claude", CLAUDE_CODE, "http://127.0.0.1:3118/callback"),
    PublishedClient("chatgpt", CHATGPT, CHATGPT["redirect_uris"][0]),
    PublishedClient("chatgpt", CHATGPT_CONNECTOR, CHATGPT_CONNECTOR["redirect_uris"][0]),
    PublishedClient("vscode", VSCODE, "http://127.0.0.1:61876/"),
    PublishedClient("vscode", VSCODE, "http://127.0.0.1:33418/"),
    PublishedClient("vscode", VSCODE, "https://vscode.dev/redirect"),
)


@pytest.fixture
def internet(tmp_path: Path, app: QuartTrio, ports: Ports) -> Iterator[ClientServer]:
    """The servers for the real hosts, at the https port on a loopback address that no other test process uses."""
    number = os.getpid()
    try:
        server = ClientServer(tmp_path, (f"127.58.{number // 250 % 250}.{number % 250 + 1}", HTTPS))
    except PermissionError:
        pytest.skip("needs the right to listen at port 443")
    with server:
        for document in (CLAUDE, CLAUDE_CODE, CHATGPT, CHATGPT_CONNECTOR, VSCODE):
            path = "/oauth/" + document["client_id"].partition("/oauth/")[2]
            server.answers[path] = Published(200, json.dumps(document).encode(), {"Content-Type": "application/json"})
        server.answers["/oauth/jwks.json"] = in_json({"keys": [KEY.jwk]})
        sender = server.sender_of_settings()
        change_ports(
            app,
            client_documents=HttpClientDocuments(sender, ports.clock, ports.policy),
            client_keys=HttpClientKeys(sender, ports.clock, ports.policy.key_ports),
        )
        yield server


@dataclass(slots=True)
class Organization:
    """An organization with an API resource, and the browser of a signed-in user."""

    tenant: Tenant
    browser: FakeBrowser
    server: ClientServer
    resource: UUID

    async def admit(self, preset: ClientPreset, **changes: Any) -> None:
        policy = {
            "admit": "listed",
            "hosts": list(preset.hosts),
            "accepts_token_endpoint_audience": preset.accepts_token_endpoint_audience,
            "access": "anyone",
            **changes,
        }
        path = f"{self.tenant.path}/api-resources/{self.resource}/external-clients"
        answer = await self.tenant.api.call("PUT", path, policy, token=self.tenant.token("admin"))
        assert answer.status == 200, answer.text

    def client(self, published: PublishedClient) -> ExternalParty:
        return ExternalParty(self.tenant, self.browser, self.server, published.document["client_id"], published.redirect_uri)


@pytest.fixture
async def organization(acme: Tenant, browser: FakeBrowser, user: Account, internet: ClientServer) -> Organization:
    await verify_domain(acme.pool, acme.org)
    resource = await add_api_resource(acme.pool, acme.org)
    await sign_in_browser(await add_relying_party(acme, browser), user, provider="password", is_known=False)
    return Organization(acme, browser, internet, resource)


async def test_each_published_client_signs_a_user_in_after_one_switch(organization: Organization) -> None:
    for published in PUBLISHED:
        client, preset = organization.client(published), PRESET_OF[published.preset]
        others = [each for each in PRESETS if each != preset]
        await organization.admit(preset, hosts=[host for each in others for host in each.hosts])
        count = len(organization.server.requests)
        assert (await client.open()).status == 403, published
        assert len(organization.server.requests) == count, "nothing is fetched for a host that the policy does not admit"
        await organization.admit(preset)
        page = await client.open()
        host = published.document["client_id"].split("/")[2]
        assert page.status == 200, (published, page.text)
        for text in (
            f"Give <bdi>{host}</bdi> access?",
            f"calls itself “<bdi>{published.document['client_name']}</bdi>”",
            f'You continue at <strong class="target"><bdi>{urlsplit(published.redirect_uri).netloc}</bdi>',
        ):
            assert text in page.text, (published, text)
        assert ("program on this device" in page.text) == published.is_local
        assert "<img" not in page.text, "a neutral letter in place of a logo"
        assert published.document.get("logo_uri", "no logo") not in page.text
        tokens = await signed_tokens(client, published)
        token = claims(tokens)
        assert (token["client_id"], token["scope"]) == (published.document["client_id"], READ)
        refreshed = await client.refresh(tokens, **proof(client, published))
        assert refreshed.status == 200, refreshed.text
        for grant in (JWT_BEARER, "client_credentials"):
            answer = await client.post(TOKEN, grant_type=grant, assertion="a.b.c", scope=READ, **proof(client, published))
            assert answer.status in (400, 401), (published, grant)
        assert (await client.open()).status == (200 if published.is_local else 303), "a local program is asked for each time"
        codes = await client.post(CODE, scope=READ, resource=ORDERS, **PKCE, **proof(client, published))
        assert (codes.status == 200) == (published.document is VSCODE), (
            "any program can send the address, and the document lists no such grant"
        )
        assert codes.status == 200 or codes.json["error"] == "unauthorized_client"
    stored = [address for address, *_ in await organization.client(PUBLISHED[0]).stored()]
    assert stored == sorted({published.document["client_id"] for published in PUBLISHED})


def proof(client: ExternalParty, published: PublishedClient, **changes: Any) -> dict[str, str]:
    """Return the client's assertion in the form that ChatGPT sends, or nothing for a public client."""
    return assertion(client, KEY, aud=f"{BASE_URL}{TOKEN}", **changes) if "jwks_uri" in published.document else {}


async def signed_tokens(client: ExternalParty, published: PublishedClient) -> dict[str, Any]:
    answer = await client.exchange(await client.code(), **proof(client, published))
    assert answer.status == 200, (published, answer.text)
    tokens: dict[str, Any] = answer.json
    return tokens


@pytest.mark.parametrize("document", [CHATGPT, CHATGPT_CONNECTOR])
async def test_an_assertion_names_the_token_endpoint_only_where_the_preset_allows_it(
    organization: Organization, document: dict[str, Any]
) -> None:
    """A connector's document names several methods, and the client signs."""
    published = replace(PUBLISHED[3], document=document, redirect_uri=document["redirect_uris"][0])
    client, preset = organization.client(published), PRESET_OF["chatgpt"]
    await organization.admit(preset, accepts_token_endpoint_audience=False)
    assert error(await client.open(code_challenge=None, code_challenge_method=None)) == "invalid_request", "PKCE is required, too"
    code = await client.code()
    assert (await client.exchange(code)).status == 401, "it has keys, so it must sign"
    assert error(await client.exchange(code, **proof(client, published))) == "invalid_client"
    await organization.admit(preset)
    assert (await client.exchange(code, **proof(client, published))).status == 200
