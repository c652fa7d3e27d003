"""Checking a connection over the API and its page, a test sign-in in a browser, and our published keys."""

from collections.abc import Callable
from urllib.parse import urlencode
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.federation.connections.model.connections import OrganizationConnection
from core.federation.connections.model.settings import OidcSettings, ProviderAuthentication
from core.federation.saml.model.configuration import CertificateState
from core.kernel.causes import SYSTEM
from core.kernel.rate_limits import METADATA_FETCH
from core.kernel.values import new_id
from ports import Ports
from tests.fakes.http_server import TRAP, Answer
from tests.fakes.openid_issuers import CLIENT_ID, DISCOVERY, SECRET, FakeIssuer, OpenIdIssuers
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import Api, run_sql, with_loopback_sender
from tests.support.connections import add_connection
from tests.support.direct import change_ports
from tests.support.saml import new_certificate
from tests.support.services import verify_domain
from tests.support.tenants import Tenant

API = "/api/organizations/acme/connections"
PAGE = "/app/organizations/acme/connections"


def reach_loopback(app: QuartTrio, ports: Ports) -> None:
    """Let the application also reach the test's providers."""
    with_sender = with_loopback_sender(ports)
    change_ports(app, sender=with_sender.sender, openid_providers=with_sender.openid_providers)


async def connect(ports: Ports, org_id: UUID, server: OpenIdIssuers, slug: str = "okta") -> tuple[FakeIssuer, OrganizationConnection]:
    """Add a connection to a new provider."""
    issuer = server.add(slug)
    settings = OidcSettings(issuer=issuer.url, client_id=CLIENT_ID, client_authentication=ProviderAuthentication.BASIC)
    connection = await add_connection(ports.storage, org_id, slug, settings=settings)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.connections.save_client_secret(org_id, connection.id, SECRET, ports.clock.now())
    return issuer, connection


CASES: dict[str, tuple[list[tuple[str, bool]], Callable[[FakeIssuer], object]]] = {
    "honest": ([], lambda issuer: None),
    "down": ([("status", True)], lambda issuer: issuer.answers.update({DISCOVERY: Answer(500)})),
    "another": ([("metadata_issuer", True)], lambda issuer: issuer.metadata.update(issuer="https://elsewhere.example")),
    "secret": ([("client", True)], lambda issuer: issuer.clients.update({CLIENT_ID: "another"})),
    "method": (
        [("metadata_authentication", True)],
        lambda issuer: issuer.metadata.update(token_endpoint_auth_methods_supported=["private_key_jwt"]),
    ),
    "keyless": ([("signing_key", True)], lambda issuer: issuer.published.clear()),
    "odd-key": ([("unusable_key", False)], lambda issuer: issuer.published.append({"kty": "EC", "crv": "P-521", "kid": "p521"})),
    "broken": (
        [("status", True), ("client", True)],
        lambda issuer: issuer.answers.update({"/keys": Answer(404), "/token": Answer(401, b"{}")}),
    ),
}


@pytest.mark.slow
async def test_the_check_finds_what_would_refuse_sign_ins(
    app: QuartTrio, api: Api, acme: Tenant, ports: Ports, pool: Pool, server: OpenIdIssuers
) -> None:
    reach_loopback(app, ports)
    await verify_domain(pool, acme.org)
    findings = []
    for slug, (expected, change) in CASES.items():
        issuer, _ = await connect(ports, acme.org, server, slug)
        change(issuer)
        answer = await api.post(f"{API}/{slug}/check", token=acme.token("admin"))
        problems = [(problem["code"], problem["is_error"]) for problem in answer.json["problems"]]
        findings += [(slug, answer.json)] if problems != [*expected, ("no_route", False)] or TRAP in answer.text else []
    assert findings == []
    for _ in range(METADATA_FETCH.burst - len(CASES)):
        await api.post(f"{API}/honest/check", token=acme.token("admin"))
    assert (await api.post(f"{API}/honest/check", token=acme.token("admin"))).status == 429
    assert (await api.post(f"{API}/unknown/check", token=acme.token("admin"))).status == 404


@pytest.mark.slow
async def test_an_admin_tests_a_connection_in_the_browser(
    app: QuartTrio, owner_browser: FakeBrowser, browser: FakeBrowser, ports: Ports, pool: Pool, server: OpenIdIssuers
) -> None:
    """The result shows names and values to the admin alone. The answer is not stored, and signs no user in."""
    reach_loopback(app, ports)
    [(org_id,)] = await run_sql(pool, "select id from organizations where slug = 'acme'")
    issuer, connection = await connect(ports, org_id, server)
    issuer.userinfo = {"department": "<b>R&D</b>"}
    page = f"{PAGE}/okta/test"
    unknown_domain = (await owner_browser.submit(page, page)).text
    assert ("No domain is verified" in unknown_domain, 'href="/app/organizations/acme/domains"' in unknown_domain) == (True, True)
    await verify_domain(pool, org_id)
    unrouted = (await owner_browser.open(f"{PAGE}/okta")).text
    for shown in ("No verified domain leads to this connection", f"/auth/connections/{connection.id}/start</code>"):
        assert shown in unrouted
    await owner_browser.submit("/app/organizations/acme/domains/routes", domain="example.com", provider="okta")
    assert "addresses at <bdi>example.com</bdi> to this connection" in (await owner_browser.open(f"{PAGE}/okta")).text
    assert "Everything is fine" in (await owner_browser.submit(page, page)).text
    before = await run_sql(pool, "select count(*) from sessions union all select count(*) from users")

    async def back() -> str:
        start = await owner_browser.open(f"{page}/start")
        assert start.status == 303
        return f"/auth/connections/{connection.id}/callback?{urlencode(issuer.authorize(start.headers['Location']))}"

    issuer.answers[DISCOVERY] = Answer(500)
    assert (await owner_browser.submit(page, page)).status == 200
    assert "answered with an error or a redirect" in (await owner_browser.open(f"{page}/start")).text
    issuer.answers.clear()
    assert "Everything is fine" in (await owner_browser.submit(page, page)).text
    address = await back()
    assert (await browser.open(address)).status == 400, "of another browser"
    result = await owner_browser.open(address)
    assert result.status == 200
    for shown in ("4711", "ada@example.com", "not verified", "&lt;b&gt;R&amp;D&lt;/b&gt;", "given_name", f'href="{page}"'):
        assert shown in result.text, shown
    assert (await owner_browser.open(address)).status == 400, "it works once"
    issuer.claims = {"aud": "another"}
    result = await owner_browser.open(await back())
    assert (result.status, "Correct the client id of the connection" in result.text, "<code>audience</code>" in result.text) == (
        200,
        True,
        True,
    )
    issuer.refuses = "access_denied"
    assert (await owner_browser.open(await back())).status == 200
    assert await run_sql(pool, "select count(*) from sessions union all select count(*) from users") == before
    assert await run_sql(pool, "select 1 from sign_in_flows f where strpos(f::text, 'ada@example.com') > 0") == []


@pytest.mark.slow
async def test_saved_values_are_checked_at_once(
    app: QuartTrio, owner_browser: FakeBrowser, ports: Ports, pool: Pool, server: OpenIdIssuers
) -> None:
    """A save is never refused because of the identity provider, even if the organization has had too many checks."""
    reach_loopback(app, ports)
    [(org_id,)] = await run_sql(pool, "select id from organizations where slug = 'acme'")
    issuer, _ = await connect(ports, org_id, server)
    settings, secret = f"{PAGE}/okta", f"{PAGE}/okta/keys/client-secret"
    fields = {"issuer": issuer.url, "client_id": CLIENT_ID, "client_authentication": "client_secret_basic", "scopes": "email"}

    async def save(name: str) -> str:
        """Return the page with the problems, or the status if the browser is led back."""
        saved = await owner_browser.submit(settings, settings, name=name, **fields)
        assert await run_sql(pool, "select name from connections where slug = 'okta'") == [(name,)]
        return saved.text if "Your values are saved." in saved.text else str(saved.status)

    assert await save("Right") == "303"
    assert issuer.counted == {DISCOVERY: 1, "/keys": 1, "/token": 1}, "one check asks once"
    issuer.answers[DISCOVERY] = Answer(500)
    assert "answered with an error or a redirect" in await save("Down")
    issuer.answers.clear()
    keys = f"{PAGE}/okta/keys"
    assert "does not accept" in (await owner_browser.submit(secret, keys, client_secret="of another client")).text
    assert leads_to(await owner_browser.submit(secret, keys, client_secret=SECRET)) == keys
    for number in range(METADATA_FETCH.burst - 4):
        assert await save(f"Right {number}") == "303"
    before = len(issuer.received)
    assert f"The check was not made: your organization had {METADATA_FETCH.burst} checks" in await save("Too many")
    assert len(issuer.received) == before
    fields["client_id"] = ""
    await owner_browser.submit(f"{settings}/deactivate", settings)
    assert await save("Incomplete") == "303", "there is nothing to ask yet"


@pytest.mark.slow
async def test_our_keys_at_an_identity_provider_are_published(api: Api, acme: Tenant, ports: Ports) -> None:
    connection, now = await add_connection(ports.storage, acme.org), ports.clock.now()
    path = f"/auth/connections/{connection.id}/jwks.json"
    assert (await api.get(path)).json == {"keys": []}
    states = (CertificateState.PREVIOUS, CertificateState.NEXT, CertificateState.ACTIVE)
    keys = {state: await new_certificate(now, state) for state in states}
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for state, key in keys.items():
            await tx.connection_keys.add(acme.org, connection.id, key, state)
    published = (await api.get(path)).json["keys"]
    expected = [keys[state].certificate for state in (CertificateState.ACTIVE, CertificateState.NEXT)]
    assert published == [await ports.certificates.public_jwk(certificate) for certificate in expected]
    assert all(key.keys() == {"kty", "use", "alg", "kid", "x5t#S256", "n", "e"} for key in published)
    for unknown in (new_id(), "x"):
        assert (await api.get(f"/auth/connections/{unknown}/jwks.json")).status == 404
