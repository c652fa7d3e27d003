"""Attacks by external clients: anyone can publish a document, and send a user to us with its address."""

import json
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote

from quart_trio import QuartTrio

from adapters.http.client_keys import HttpClientDocuments
from core.accounts.model.accounts import Account
from core.federation.oauth.model.external_clients import FIRST_OF_ORGANIZATION, OF_ORGANIZATION, OF_PLATFORM
from entrypoints.http.base.context import app_context
from tests.fakes.http_server import Answer as Published
from tests.fakes.outside import FakeClock
from tests.federation.api.cli import VERIFY
from tests.federation.api.external.conftest import client, server
from tests.federation.api.external.external import ExternalParty
from tests.federation.api.relying import PKCE, add_relying_party, sign_in_browser
from tests.federation.api.resources.orders import ORDERS, READ, error
from tests.federation.attacks.world import is_code, unchanged
from tests.support.browser import FakeBrowser
from tests.support.builders import add_account, run_sql
from tests.support.direct import change_ports
from tests.support.services import add_api_resource
from tests.support.tenants import Tenant

OTHER: Final = "urn:gatehouse:other"  # another organization's API

__all__ = ["client", "server"]  # the fixtures

MARKUP: Final = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'{{99999999*99999999}}"


async def test_a_document_cannot_claim_the_redirect_uri_of_another_client(client: ExternalParty, user: Account) -> None:
    """The user agreed to the other client, so a code would go there without a question. A consent covers one client."""
    await client.code()
    twin = ExternalParty(client.tenant, client.browser, client.server, "", client.redirect_uri)
    twin.address = client.server.publish("/twin", "other.example", redirect_uris=[client.redirect_uri])
    async with unchanged(client.tenant.pool):
        page = await twin.open()
        assert page.status == 200
        assert f"other.example:{client.server.port}" in page.text
        assert not is_code(page)
    code = await client.code()
    assert error(await twin.exchange(code)) == "invalid_grant", "a code is for the client that asked for it"
    assert (await client.exchange(code)).status == 200


async def test_a_document_that_changes_between_fetch_and_consent_gets_no_code(client: ExternalParty, clock: FakeClock) -> None:
    """The user agrees to the client that the page has shown."""
    changes: list[dict[str, Any]] = [
        {"redirect_uris": ["https://other.example/callback"]},
        {"jwks_uri": "https://keys.example/keys"},
        {"client_id": "https://other.example/client"},
        {"token_endpoint_auth_method": "client_secret_basic"},
    ]
    for members in changes:
        client.server.publish()
        clock.advance(timedelta(minutes=5))
        page = await client.open()
        clock.advance(timedelta(minutes=5))
        client.server.publish(**members)
        answer = await client.browser.answer(page, "continue")
        assert not is_code(answer), members
        assert answer.status in (200, 400, 403), members
    assert await client.stored() == []


async def test_a_policy_that_changes_between_page_and_consent_gets_no_code(client: ExternalParty) -> None:
    page = await client.open()
    await client.set_policy("listed", ("other.example",))
    assert not is_code(await client.browser.answer(page, "continue"))
    assert await client.stored() == []


async def test_lookalike_hosts_are_shown_as_they_are(client: ExternalParty) -> None:
    host = "xn--80aqecdr1a.example"
    client.address = client.server.publish("/look", host, client_name="client.example")
    client.redirect_uri = f"https://{host}/callback"
    page = await client.open()
    assert page.status == 200
    assert f"Give <bdi>{host}:{client.server.port}</bdi> access?" in page.text
    assert "calls itself" in page.text
    assert f'You continue at <strong class="target"><bdi>{host}</bdi>' in page.text
    for address in (client.address.replace(host, "клиент.example"), client.address.replace("https", "HTTPS"), client.address + "/../look"):
        answer = await client.open(client_id=address)
        assert answer.status in (400, 404), address
        assert not is_code(answer)


async def test_no_member_of_a_document_reaches_a_page_as_markup(client: ExternalParty, user: Account) -> None:
    """This holds when the user is asked and when the document is stored, on the pages for users and admins."""
    names = ("client_name", "client_uri", "logo_uri", "tos_uri", "policy_uri", "scope", "software_id")
    members: dict[str, Any] = dict.fromkeys(names, MARKUP)
    client.redirect_uri = f"com.example.app:/{quote(MARKUP)}"
    client.server.publish(**members, contacts=[MARKUP], redirect_uris=[client.redirect_uri])
    pages = [await client.open()]
    assert "img-src" in pages[0].headers["Content-Security-Policy"]
    await client.tokens()
    codes = (await client.post("/auth/device/code", scope=READ, resource=ORDERS, **PKCE)).json
    pages.append(await client.browser.submit(VERIFY, VERIFY, user_code=codes["user_code"]))
    [(service, resource)] = await run_sql(
        client.tenant.pool, "select v.id, r.id from services v, api_resources r where v.client_uri is not null"
    )
    account = "/app/account"
    pages += [await client.browser.open(f"{account}{path}") for path in ("", "/consents", f"/consents/{service}", "/security")]
    desk = await add_relying_party(client.tenant, client.browser, "desk")
    await sign_in_browser(desk, client.tenant.people["admin"], provider="password")
    console = f"/app/organizations/{client.tenant.slug}"
    for path in (f"/api-resources/{resource}/external-clients", "/sign-ins", "/audit-log", f"/users/{user.id}", "/analytics", "/users"):
        pages.append(await client.browser.open(f"{console}{path}"))
    for page in pages:
        assert page.status == 200, page.text
        for text in ("<script>alert", "<img src=x", str(99999999 * 99999999)):
            assert text not in page.text
    assert sum("&lt;script&gt;" in page.text for page in pages) >= 4, "the name is shown, as text"


async def test_markup_in_an_address_or_in_a_redirect_uri_stays_text(client: ExternalParty) -> None:
    for changes in (
        {"client_id": f"{client.address}{MARKUP}"},
        {"client_id": f"https://{MARKUP}/client"},
        {"redirect_uri": f"{client.redirect_uri}{MARKUP}"},
        {"redirect_uri": "javascript:alert(1)"},
        {"resource": f"{ORDERS}{MARKUP}"},
    ):
        answer = await client.open(**changes)
        assert answer.status == 400, changes
        assert "<script>alert" not in answer.text
        assert not is_code(answer)
    client.server.publish(redirect_uris=[f"com.example.app:/{quote(MARKUP)}"])
    page = await client.open(redirect_uri=f"com.example.app:/{quote(MARKUP)}")
    assert "<script>alert" not in page.text


async def test_a_flood_of_addresses_from_one_person_is_stopped(client: ExternalParty, clock: FakeClock) -> None:
    """Ten new addresses in any 60 minutes. Known addresses stay usable, and the page says how long to wait."""
    addresses = [client.server.publish(f"/flood-{number}") for number in range(13)]
    assert (await client.open(client_id=addresses.pop())).status == 200
    clock.advance(timedelta(minutes=50))
    answers = [await client.open(client_id=address) for address in addresses]
    assert [answer.status for answer in answers] == [200] * 9 + [429] * 3
    assert "Too many new applications asked for access in a short time. Try again in 10 minutes." in answers[-1].text
    assert (await client.open(client_id=addresses[0])).status == 200, "it is in the cache"
    assert len(client.server.requests) == 10
    for minutes, statuses in ((9, [429, 429]), (1, [200, 429]), (49, [429]), (1, [200] * 2)):
        clock.advance(timedelta(minutes=minutes))
        assert [(await client.open(client_id=address)).status for address in addresses[-len(statuses) :]] == statuses, minutes


async def test_a_flood_of_addresses_from_many_people_of_one_network_is_stopped(
    client: ExternalParty, app: QuartTrio, other_tenant: Tenant, clock: FakeClock
) -> None:
    """The API's organization gets 20 new addresses in any minute.

    The organization's API refuses more addresses, and another organization's API does not.
    """
    await add_api_resource(other_tenant.pool, other_tenant.org, OTHER)
    await run_sql(client.tenant.pool, "update api_resources set host = null where canonical = %s", OTHER)
    await client.set_policy()
    desk, statuses = await add_relying_party(client.tenant, client.browser, "desk"), []
    for person in range(4):
        desk.browser = FakeBrowser(app)
        account = await add_account(client.tenant.ports, f"user{person}@example.com")
        await sign_in_browser(desk, account, provider="password", is_known=False)
        for number in range(7):
            address = client.server.publish(f"/flood-{person}-{number}")
            statuses.append((await desk.browser.open(client.path(client_id=address))).status)
    assert statuses == [200] * 20 + [429] * 8
    assert len(client.server.requests) == 20
    assert (await desk.browser.open(client.path(client_id=client.server.publish("/other"), resource=OTHER))).status == 200
    for seconds, status in ((59, 429), (1, 200)):
        clock.advance(timedelta(seconds=seconds))
        assert (await desk.browser.open(client.path(client_id=client.server.publish("/late")))).status == status


async def test_a_client_that_users_agreed_to_is_not_new(client: ExternalParty, clock: FakeClock) -> None:
    """The client's document is fetched again after the cache has forgotten it, and no person is refused for these fetches."""
    await client.code()
    for _ in range(12):
        clock.advance(timedelta(minutes=5))
        assert (await client.open()).status == 303
    assert len(client.server.requests) == 13


async def test_one_person_cannot_use_up_the_limit_of_an_organization_by_a_failing_client(
    client: ExternalParty, app: QuartTrio, clock: FakeClock
) -> None:
    """A stored client does not use it up either if fetching its document always fails."""
    await client.code()
    clock.advance(timedelta(minutes=6))
    client.server.answers["/client"] = Published(500)
    for _ in range(25):
        assert (await client.open()).status == 303, "the stored document counts"
    assert len(client.server.requests) == 11
    async with client.tenant.ports.storage.autocommit() as statements:
        while not await statements.rates.charge_window(f"organization {client.tenant.org}", OF_ORGANIZATION, clock.now()):
            pass
    clock.advance(timedelta(seconds=2))
    assert (await client.open()).status == 303, "the limit of the organization refuses no user who has agreed"
    clock.advance(timedelta(minutes=1))
    desk = await add_relying_party(client.tenant, FakeBrowser(app), "desk")
    await sign_in_browser(desk, await add_account(client.tenant.ports, "other@example.com"), provider="password", is_known=False)
    assert (await desk.browser.open(client.path(client_id=client.server.publish("/new")))).status == 200


async def test_a_refusal_charges_no_limit(client: ExternalParty, clock: FakeClock) -> None:
    """While the platform is flooded, the user keeps the own ten clients."""
    ports = client.tenant.ports
    async with ports.storage.autocommit() as statements:
        for _ in range(60):
            await statements.rates.charge_window("platform", OF_PLATFORM, clock.now())
        for _ in range(FIRST_OF_ORGANIZATION.count):
            await statements.rates.charge_window(f"organization {client.tenant.org}", FIRST_OF_ORGANIZATION, clock.now())
    for number in range(12):
        assert (await client.open(client_id=client.server.publish(f"/flooded-{number}"))).status == 429
    clock.advance(timedelta(minutes=1))
    statuses = [(await client.open(client_id=client.server.publish(f"/later-{number}"))).status for number in range(11)]
    assert statuses == [200] * 10 + [429]


async def test_several_processes_charge_a_person_once_for_a_new_client(client: ExternalParty, app: QuartTrio, clock: FakeClock) -> None:
    """Every process has its own cache. Repeated fetches count like a stored client's fetches, for all three limits."""
    for _ in range(11):
        change_ports(app, client_documents=HttpClientDocuments(client.server.sender(), clock, app_context(app).ports.policy))
        assert (await client.open()).status == 200
    change_ports(app, client_documents=HttpClientDocuments(client.server.sender(), clock, app_context(app).ports.policy))
    assert (await client.open()).status == 429, "the eleventh repetition within a minute"
    await require_left(client, of_organization=9, of_platform=49)
    clock.advance(timedelta(minutes=1))
    statuses = [(await client.open(client_id=client.server.publish(f"/other-{number}"))).status for number in range(10)]
    assert statuses == [200] * 9 + [429]


async def require_left(client: ExternalParty, *, of_organization: int, of_platform: int) -> None:
    """Check how many new clients and fetches the organization and the platform still have, and use them up."""
    now, counts = client.tenant.ports.clock.now(), []
    async with client.tenant.ports.storage.autocommit() as statements:
        for key, window in ((f"organization {client.tenant.org}", OF_ORGANIZATION), ("platform", OF_PLATFORM)):
            charges = [await statements.rates.charge_window(key, window, now) for _ in range(window.count)]
            counts.append(charges.count(0))
    assert counts == [of_organization, of_platform]


async def test_a_flood_at_many_organizations_ends_at_the_limit_of_the_platform(client: ExternalParty) -> None:
    ports, now = client.tenant.ports, client.tenant.ports.clock.now()
    async with ports.storage.autocommit() as statements:
        for _ in range(59):
            assert not await statements.rates.charge_window("platform", OF_PLATFORM, now)
    first = [client.server.publish(f"/first-{number}") for number in range(FIRST_OF_ORGANIZATION.count)]
    assert [(await client.open(client_id=address)).status for address in first] == [200] * 5, "no other organization delays these"
    assert (await client.open(client_id=client.server.publish("/late"))).status == 429
    assert len(client.server.requests) == 5


async def test_documents_that_cannot_be_fetched_use_up_nothing_of_the_platform(client: ExternalParty) -> None:
    for number in range(9):
        client.server.answers[f"/broken-{number}"] = Published(500)
        assert (await client.open(client_id=client.server.address_of(f"/broken-{number}"))).status == 400
    await require_left(client, of_organization=11, of_platform=60)


async def test_nothing_is_fetched_for_a_browser_without_a_session(client: ExternalParty) -> None:
    """Otherwise any page could make us send requests."""
    client.browser.cookies.clear()
    for number in range(3):
        assert (await client.open(client_id=client.server.publish(f"/unseen-{number}"))).status == 200
    assert client.server.requests == []


async def test_a_resource_of_a_suspended_organization_gets_no_code_and_no_token(client: ExternalParty) -> None:
    page, tokens = await client.open(), await client.tokens()
    code = await client.code()
    await run_sql(client.tenant.pool, "update organizations set status = 'suspended' where id = %s", client.tenant.org)
    assert not is_code(await client.browser.answer(page, "continue"))
    assert (await client.exchange(code)).status in (400, 403)
    assert (await client.refresh(tokens)).status in (400, 403)
    assert (await client.open()).status == 400


async def test_a_consent_in_one_organization_is_none_in_another(client: ExternalParty, other_tenant: Tenant) -> None:
    """The same client has another id there, and its codes and tokens stay apart."""
    await add_api_resource(other_tenant.pool, other_tenant.org, OTHER)
    await run_sql(client.tenant.pool, "update api_resources set host = null where canonical = %s", OTHER)
    await client.set_policy()
    code = await client.code()
    assert (await client.open(resource=OTHER)).status == 200, "asked again"
    swapped = await client.exchange(code, resource=OTHER)
    assert error(swapped) == "invalid_target"
    other = await client.code(resource=OTHER)
    assert (await client.exchange(other, resource=OTHER)).status == 200
    assert len(await client.stored()) == 2


async def test_a_host_that_redirects_or_grows_leads_nowhere(client: ExternalParty) -> None:
    published = client.server.answers["/client"]
    assert isinstance(published, Published)
    for answer in (
        Published(302, b"", {"Location": client.server.address_of("/elsewhere")}),
        Published(200, published.body + b" " * 70_000, published.headers),
        Published(200, json.dumps({"a": "b" * 5200}).encode(), published.headers),
        Published(206, published.body, published.headers),
    ):
        client.server.answers["/client"] = answer
        page = await client.open()
        assert page.status == 400
        assert not is_code(page)
    assert {request.path for request in client.server.requests} == {"/client"}
    assert await client.stored() == []


async def test_a_rebinding_host_is_checked_at_each_request(client: ExternalParty, clock: FakeClock) -> None:
    await client.open()
    clock.advance(timedelta(minutes=5))
    for address in ("169.254.169.254", "10.1.2.3"):
        client.server.addresses["client.example"] = [address]
        page = await client.open()
        assert page.status == 400
        assert "not allowed" in page.text
        assert address not in page.text
    assert len(client.server.requests) == 1
