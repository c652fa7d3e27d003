"""A policy that requires the connection leads a browser there and back."""

from datetime import timedelta
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.causes import SYSTEM
from core.kernel.connections import RequiredConnection
from core.kernel.sign_in_policy.rules import Rules
from core.kernel.values import Domain, Email
from core.tenancy.model.sign_in_policies import SignInPolicy
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.connections.people.conftest import House
from tests.support.browser import FakeBrowser, hidden_fields, leads_to, main_of
from tests.support.builders import PASSWORD, add_account, add_member, add_organization, run_sql
from tests.support.saml import add_application
from tests.support.services import add_service_user

PAGE = "/app/organizations/acme"
CALLBACK = "https://shop.example.com/callback"


@pytest.fixture
async def browser(house: House, ports: Ports, pool: Pool) -> FakeBrowser:
    """The browser of a member who has signed in with the password. The connection is required, and sessions end after 15 minutes."""
    user: Account = await add_account(ports, "ada@example.com")
    await add_member(pool, house.org, user.id, confirmed=True)
    await house.set(
        """
        insert into connection_identities (org_id, connection_id, user_id, subject, linked_at, last_used_at)
        values (%s, %s, %s, '4711', now(), now())""",
        house.org,
        house.connection.id,
        user.id,
    )
    required = RequiredConnection(house.connection.id, house.connection.slug)
    rules = Rules(required_connections={Domain("example.com"): required}, session_lifetime=timedelta(minutes=15))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.sign_in_policies.put(SignInPolicy(org_id=house.org, rules=rules, changed_at=ports.clock.now()))
    browser = FakeBrowser(house.app)
    await browser.sign_in(Email("ada@example.com"), PASSWORD)
    return browser


async def leave(browser: FakeBrowser, start: str) -> str:
    """Return the URL at the identity provider."""
    return (await browser.open(start)).headers["Location"]


async def sign_in_there(house: House, browser: FakeBrowser, url: str) -> str:
    """Sign in at the identity provider, and return the path that follows."""
    house.issuer.subject, house.issuer.claims = "4711", {"email": "ada@example.com", "email_verified": True}
    returned = house.issuer.authorize(url)
    return leads_to(await browser.open(f"/auth/connections/{house.connection.id}/callback?{urlencode(returned)}"))


async def test_a_user_with_a_password_comes_through_the_connection_and_back_to_the_page(house: House, browser: FakeBrowser) -> None:
    confirmation = leads_to(await browser.open(PAGE))
    start = leads_to(await browser.open(confirmation))
    assert start == f"/auth/connections/{house.connection.id}/start?{urlencode({'next': confirmation})}"
    assert await sign_in_there(house, browser, await leave(browser, start)) == confirmation
    assert leads_to(await browser.open(confirmation)) == PAGE
    assert (await browser.open(PAGE)).status == 200
    assert (await browser.open("/app/account/security")).status == 200, "the own sign-in stays in the session"


async def test_the_connection_alone_renews_the_lifetime(house: House, browser: FakeBrowser, clock: FakeClock) -> None:
    """A user that the organization has removed at its identity provider would otherwise continue by the password."""
    start = leads_to(await browser.open(leads_to(await browser.open(PAGE))))
    await sign_in_there(house, browser, await leave(browser, start))
    clock.advance(timedelta(minutes=16))
    confirmation = leads_to(await browser.open(PAGE))
    page = await browser.open(confirmation)
    assert ("asks for a newer sign-in" in page.text, "Sign in again through Okta" in page.text) == (True, True)
    assert not any(way in page.text for way in ('name="password"', "Email me a code", "Continue with"))
    fields = hidden_fields(page)
    assert leads_to(await browser.send("/app/reauthenticate", **fields, password=PASSWORD)) == confirmation
    assert leads_to(await browser.open(PAGE)) == confirmation, "the password alone opens nothing"
    url = leads_to(await browser.send("/app/reauthenticate/connection", **fields))
    assert parse_qs(urlsplit(url).query)["prompt"] == ["login"]
    assert await sign_in_there(house, browser, url) == confirmation
    assert leads_to(await browser.open(confirmation)) == PAGE
    assert (await browser.open(PAGE)).status == 200


async def test_an_application_asks_the_connection_for_a_newer_sign_in(
    house: House, browser: FakeBrowser, ports: Ports, clock: FakeClock
) -> None:
    shop = await add_application(ports, house.pool, house.org, "acme")
    [(user_id, client_id)] = await run_sql(
        house.pool, "select u.id, v.client_id from users u, services v where u.email = 'ada@example.com'"
    )
    await add_service_user(ports, shop.id, user_id, signed_in=False)
    request = f"/auth/authorize?{urlencode({'client_id': str(client_id), 'redirect_uri': CALLBACK})}"

    async def sign_in() -> dict[str, list[str]]:
        """Sign in for the application. Return the parameters in the request to the identity provider."""
        start = leads_to(await browser.open(leads_to(await browser.open(request, follows=False)), follows=False))
        url = await leave(browser, start)
        assert (await sign_in_there(house, browser, url)).startswith(f"{CALLBACK}?code=")
        return parse_qs(urlsplit(url).query)

    assert "prompt" not in await sign_in()
    clock.advance(timedelta(minutes=16))
    page = await browser.open(leads_to(await browser.open("/app/account/password")))
    await browser.send("/app/reauthenticate", **hidden_fields(page), password=PASSWORD)
    assert (await sign_in())["prompt"] == ["login"]


NEW_GROUP = "/app/organizations/acme/groups/new"


@pytest.mark.parametrize("is_listed", [False, True])
async def test_a_form_that_needs_a_recent_sign_in_waits_for_the_connection_alone(
    house: House, browser: FakeBrowser, pool: Pool, clock: FakeClock, is_listed: bool
) -> None:
    """The password and a code by email confirm nothing, unless the user is listed for break glass."""
    await run_sql(pool, "update memberships set role = 'admin'")
    await run_sql(pool, "update sign_in_policies set rules = rules - 'session_lifetime_minutes', version = version + 1")
    if is_listed:
        await run_sql(pool, "insert into break_glass_users (org_id, user_id) select org_id, user_id from memberships")
    start = f"/auth/connections/{house.connection.id}/start?{urlencode({'next': PAGE})}"
    assert await sign_in_there(house, browser, await leave(browser, start)) == PAGE
    clock.advance(timedelta(minutes=61))
    form = hidden_fields(await browser.open(NEW_GROUP))
    confirmation = leads_to(await browser.send(NEW_GROUP, **form, name="Engineers"))
    page = await browser.open(confirmation)
    assert "Sign in again through Okta" in page.text
    assert [way in page.text for way in ('name="password"', "Email me a code")] == [is_listed] * 2
    fields = hidden_fields(page)
    assert leads_to(await browser.send("/app/reauthenticate", **fields, password=PASSWORD)) == confirmation
    waiting = await browser.open(confirmation)
    assert ('name="kept_form"' in waiting.text) is is_listed
    if not is_listed:
        url = leads_to(await browser.send("/app/reauthenticate/connection", **fields))
        assert parse_qs(urlsplit(url).query)["prompt"] == ["login"]
        assert await sign_in_there(house, browser, url) == confirmation
        waiting = await browser.open(confirmation)
    assert leads_to(await browser.send(NEW_GROUP, **hidden_fields(waiting))).startswith("/app/organizations/acme/groups/")
    assert await run_sql(pool, "select count(*)::int from audit_log where action = 'break_glass.used'") == [(int(is_listed),)]


@pytest.mark.parametrize("has_policy", [False, True])
async def test_the_application_of_another_organization_says_why_it_asks(
    house: House, ports: Ports, pool: Pool, *, has_policy: bool
) -> None:
    """The other organization requires no second factor, and the sign-in at the connection is not too old either."""
    browser = FakeBrowser(house.app)
    await house.arrive(browser)
    beta = await add_organization(pool, "beta")
    await add_application(ports, pool, beta, "beta")
    if has_policy:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            rules = Rules(session_lifetime=timedelta(hours=8))
            await tx.sign_in_policies.put(SignInPolicy(org_id=beta, rules=rules, changed_at=ports.clock.now()))
    [(client_id,)] = await run_sql(pool, "select client_id from services")
    page = await browser.open(f"/auth/authorize?{urlencode({'client_id': str(client_id), 'redirect_uri': CALLBACK})}")
    assert "You signed in through an organization, and that counts there only." in page.text, main_of(page)
    assert not any(text in page.text for text in ("second factor", "asks for a newer sign-in")), main_of(page)
