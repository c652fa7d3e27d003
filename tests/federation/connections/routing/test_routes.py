"""Domain routes to connections, and the lookup by email address (decision 103; security B-4, T-6)."""

from typing import Any

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import ADMIN
from ports import Ports
from tests.federation.connections.routing.conftest import WAYS, RoutedWorld, put_routes
from tests.support.browser import FakeBrowser
from tests.support.builders import BASE_URL, Api, add_account, add_member, run_sql
from tests.support.connections import add_connection
from tests.support.services import add_service
from tests.support.tenants import Tenant


async def look_up(api: Api, email: str, **fields: str) -> dict[str, Any]:
    answer = await api.post("/api/auth/lookup-email", {"email": email, **fields})
    assert answer.status == 200, answer.text
    match: dict[str, Any] = answer.json
    return match


async def find_ways(api: Api) -> dict[str, str | None]:
    """Return the identity provider's slug that the lookup gives, by address."""
    answers = {email: await look_up(api, email) for email in WAYS}
    return {email: answer["provider"] or (answer["connection"] or {}).get("slug") for email, answer in answers.items()}


async def test_an_address_leads_to_the_connection_of_its_domain(api: Api, world: RoutedWorld, acme: Tenant, pool: Pool) -> None:
    assert await find_ways(api) == WAYS
    start = BASE_URL + world.start_of("acme-okta")
    expected = {"provider": None, "connection": {"slug": "acme-okta", "name": "Acme-Okta"}, "org_slug": "acme"}
    assert await look_up(api, "ada@acme.example") == {**expected, "authorization_url": f"{start}?org=acme"}
    # A connection's session is good in its own organization only.
    for org_slug in ("acme", "twin"):
        [(org_id,)] = await run_sql(pool, "select id from organizations where slug = %s", org_slug)
        await add_service(pool, org_id, "shop")
    urls = [(await look_up(api, "ada@acme.example", org=org, service="shop"))["authorization_url"] for org in ("acme", "twin")]
    assert urls == [f"{start}?org=acme&service=shop", f"{start}?org=acme"]
    await add_account(acme.ports, "known@acme.example")
    assert await look_up(api, "known@acme.example") == await look_up(api, "unknown@acme.example")
    await acme.set_status("suspended")
    assert await find_ways(api) == {email: slug if slug == "twin-okta" else None for email, slug in WAYS.items()}
    await acme.set_status("active")
    await run_sql(pool, "update connections set state = 'inactive' where slug = 'acme-okta'")
    assert await find_ways(api) == {email: None if slug == "acme-okta" else slug for email, slug in WAYS.items()}


async def test_routes_name_connections_of_their_own_organization(acme: Tenant, world: RoutedWorld) -> None:
    listed = (await acme.api.get(f"{acme.path}/hrd", token=acme.token("owner"))).json["domains"]
    assert {route["domain"]: (route["connection"] or {}).get("slug") or route["provider"] for route in listed} == {
        "acme.example": "acme-okta",
        "draft.acme.example": "acme-draft",
        "eu.acme.example": "acme-entra",
        "former.acme.example": "acme-former",
        "lab.acme.example": "acme-okta",
        "social.acme.example": "codehost",
        "twin.example": "acme-okta",
        "unproved.example": "acme-okta",
    }
    one = f"{acme.path}/hrd/acme.example"
    for wrong in ({"connection": "twin-okta"}, {"connection": "codehost"}, {"connection": "x", "provider": "codehost"}, {}):
        answer = await acme.api.call("PUT", one, wrong, token=acme.token("owner"))
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), wrong
    answer = await acme.api.call("PUT", one, {"connection": "acme-entra"}, token=acme.token("owner"))
    assert answer.json["connection"] == {"slug": "acme-entra", "name": "Acme-Entra"}
    changes = [entry["details"]["domains"] for entry in await acme.log() if entry["action"] == "hrd.updated"]
    assert changes[1:] == [{"acme.example": {"old": "acme-okta", "new": "acme-entra"}}]


async def test_a_connection_to_which_domains_lead_is_not_removed(acme: Tenant, world: RoutedWorld) -> None:
    path = f"{acme.path}/connections/acme-entra"
    assert (await acme.api.delete(path, token=acme.token("owner"))).status == 409
    await put_routes(acme, {"acme.example": "acme-okta"})
    assert (await acme.api.delete(path, token=acme.token("owner"))).status == 204


async def test_the_page_offers_connections_and_providers_of_the_platform(acme: Tenant, browser: FakeBrowser, ports: Ports) -> None:
    await add_connection(ports.storage, acme.org, "okta")
    await add_member(acme.pool, acme.org, (await add_account(ports, "grace@example.com")).id, ADMIN, confirmed=True)
    await browser.sign_in("grace@example.com")
    path = "/app/organizations/acme/domains/routes"
    for slug in ("okta", "websuite"):
        page = await browser.open(path)
        assert all(f'<option value="{each}"' in page.text for each in ("okta", "websuite")), page.text
        assert (await browser.submit(path, path, domain="acme.example", provider=slug)).status == 303
        [route] = (await acme.api.get(f"{acme.path}/hrd", token=acme.token("owner"))).json["domains"]
        assert slug in (route["provider"], (route["connection"] or {}).get("slug"))
    refused = await browser.submit(path, path, domain="acme.example", provider="gone")
    assert (refused.status, 'id="provider-error"' in refused.text) == (400, True)
