"""Sign-ins that an organization's identity provider initiates (OpenID Connect Core section 4)."""

from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.federation.connections.model.connections import OrganizationConnection
from core.federation.connections.model.settings import OidcSettings
from core.kernel.causes import SYSTEM
from ports import Ports
from tests.fakes.openid_issuers import FakeIssuer, OpenIdIssuers
from tests.fakes.outside import FakeClock, FakeTxtRecords
from tests.federation.connections.openid.test_checks import connect, reach_loopback
from tests.federation.connections.routing.conftest import put_routes
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import run_sql
from tests.support.services import add_service
from tests.support.tenants import Tenant
from tests.tenancy.domains import prove_domain

SHOP = "https://shop.example.com/start"


@pytest.fixture
def server(clock: FakeClock) -> Iterator[OpenIdIssuers]:
    with OpenIdIssuers(now=lambda: clock.now().timestamp()) as server:
        yield server


@pytest.fixture
async def connected(
    acme: Tenant, server: OpenIdIssuers, app: QuartTrio, ports: Ports, dns: FakeTxtRecords
) -> tuple[FakeIssuer, OrganizationConnection]:
    reach_loopback(app, ports)
    await prove_domain(acme, dns, "acme.example")
    issuer, connection = await connect(ports, acme.org, server)
    issuer.email, issuer.claims = "grace@acme.example", {"email_verified": True}
    assert isinstance(connection.settings, OidcSettings)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.connections.save(replace(connection, preset="google-workspace", settings=replace(connection.settings, targets=(SHOP,))))
    return issuer, connection


async def test_a_user_continues_at_a_listed_target_or_in_the_console(
    connected: tuple[FakeIssuer, OrganizationConnection], browser: FakeBrowser
) -> None:
    issuer, connection = connected
    path = f"/auth/connections/{connection.id}/initiate"
    elsewhere = ("https://shop.example.com/start?x=1", "https://shop.example.com.evil.example/start", "//evil.example", "javascript:1", "")
    for target, place in ((SHOP, SHOP), ("https://SHOP.example.com:443/start", SHOP), *((each, "/app") for each in elsewhere)):
        fields = {"iss": issuer.url, "login_hint": "grace", "target_link_uri": target}
        to_get = await browser.send(path, **fields)
        assert to_get.status == 303, "a form of another site brings no cookies"
        url = leads_to(await browser.open(leads_to(to_get), follows=False))
        assert parse_qs(urlsplit(url).query)["login_hint"] == ["grace"]
        back = await browser.open(f"/auth/connections/{connection.id}/callback?{urlencode(issuer.authorize(url))}", follows=False)
        assert leads_to(back) == place, target


async def test_an_initiation_of_another_provider_is_refused(
    connected: tuple[FakeIssuer, OrganizationConnection], browser: FakeBrowser, acme: Tenant, pool: Pool
) -> None:
    issuer, connection = connected
    path = f"/auth/connections/{connection.id}/initiate"
    for fields in ({}, {"iss": f"{issuer.url}/"}, {"iss": "https://other.example"}):
        assert (await browser.open(f"{path}?{urlencode(fields)}")).status == 400
    right = f"{path}?{urlencode({'iss': issuer.url})}"
    await run_sql(pool, "update connections set state = 'inactive' where id = %s", connection.id)
    assert (await browser.open(right)).status == 409
    await acme.set_status("suspended")
    assert (await browser.open(right)).status == 404
    assert (await browser.open(right, (b"sec-fetch-dest", b"iframe"))).status == 403


@pytest.mark.parametrize(("preset", "parameter"), [("google-workspace", "hd"), ("entra-id", "domain_hint"), (None, "domain_hint")])
async def test_hints_go_on_to_the_provider_as_its_product_names_them(
    connected: tuple[FakeIssuer, OrganizationConnection],
    browser: FakeBrowser,
    pool: Pool,
    acme: Tenant,
    preset: str | None,
    parameter: str,
) -> None:
    """The hints also come from an authorization request that names the organization, the connection or the domain."""
    _, connection = connected
    await run_sql(pool, "update connections set preset = %s where id = %s", preset, connection.id)
    await put_routes(acme, {"acme.example": connection.slug})
    await add_service(pool, acme.org, "shop")
    application = {"org": acme.slug, "service": "shop", "redirect_uri": "https://shop.example.com/callback", "response_type": "code"}
    hints = {"login_hint": "grace@acme.example", "domain_hint": "acme.example"}
    starts = [f"/auth/connections/{connection.id}/start?{urlencode({'next': '/app', **hints})}"]
    for choice in ({"organization": acme.slug}, {"connection": connection.slug}, {}):
        waiting = await browser.open(f"/auth/authorize?{urlencode({**application, **choice, **hints})}", follows=False)
        starts.append(leads_to(waiting))
    for start in starts:
        sent = parse_qs(urlsplit(str((await browser.open(start, follows=False)).headers["Location"])).query)
        names = {"login_hint", "hd", "domain_hint"} & sent.keys()
        assert {name: sent[name] for name in names} == {"login_hint": ["grace@acme.example"], parameter: ["acme.example"]}, start
