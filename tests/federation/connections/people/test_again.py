"""Repeated sign-ins at a connection, for organization routes that need a recent sign-in (security A-12)."""

from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from adapters.postgres.engine.pool import Pool
from core.authentication.model.sessions import OtherIdentity
from core.kernel.access import AccountGone
from core.kernel.causes import SYSTEM
from core.kernel.errors import refuse
from core.kernel.sign_in_policy.rules import Concerned, Rules
from core.tenancy.model.sign_in_policies import SignInPolicy
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.connections.people.conftest import House
from tests.support.browser import FakeBrowser, hidden_fields, leads_to
from tests.support.builders import Answer, run_sql
from tests.support.mfa import add_mfa

ROLES = "/app/organizations/acme/roles"
NEW_ROLE = "/app/organizations/acme/roles/new"
FILLED = {"slug": "reader", "name": "Reader", "right:members.view": "yes"}
AGAIN = "Sign in again through Okta"


@pytest.fixture
async def browser(house: House, pool: Pool, clock: FakeClock) -> FakeBrowser:
    """The browser of an owner who came through the connection more than an hour ago, and has no password."""
    browser = FakeBrowser(house.app)
    assert leads_to(await house.arrive(browser)) == "/app"
    await run_sql(pool, "update memberships set role = 'owner'")
    clock.advance(timedelta(minutes=61))
    return browser


async def ask(browser: FakeBrowser) -> Answer:
    """Send a form that needs a recent sign-in. Return the page that asks for it."""
    fields = hidden_fields(await browser.open(NEW_ROLE))
    return await browser.open(leads_to(await browser.send(NEW_ROLE, **fields, **FILLED)))


async def sign_in_again(house: House, browser: FakeBrowser, page: Answer, **claims: Any) -> Answer:
    """Press the page's button, and sign in at the identity provider. Return the callback's answer."""
    url = leads_to(await browser.send("/app/reauthenticate/connection", **hidden_fields(page)))
    query = parse_qs(urlsplit(url).query)
    assert (query["prompt"], query["max_age"]) == (["login"], ["0"])
    house.issuer.claims = {"email_verified": True, **claims}
    return await browser.open(f"/auth/connections/{house.connection.id}/callback?{urlencode(house.issuer.authorize(url))}")


async def test_a_form_waits_for_a_sign_in_at_the_connection(house: House, browser: FakeBrowser, pool: Pool, clock: FakeClock) -> None:
    [(session, end)] = await run_sql(pool, "select id, ends_at from sessions")
    page = await ask(browser)
    assert AGAIN in page.text
    until = int((clock.now() + timedelta(hours=2)).timestamp())
    back = await sign_in_again(house, browser, page, session_expiry=until)
    kept = await browser.open(leads_to(back))
    assert "Reader" not in kept.text
    assert leads_to(await browser.send(NEW_ROLE, **hidden_fields(kept))).startswith("/app/organizations/acme/roles/")
    rows = await run_sql(pool, "select id, extract(epoch from ends_at)::bigint, restricted_to, jsonb_array_length(proofs) from sessions")
    assert rows == [(session, until, house.org, 1)], "the same session, which ends with the provider's"
    assert end.timestamp() > until
    stored = "select count(*) from connection_logins l join sessions s on s.proofs -> 0 ->> 'login' = l.id::text"
    assert await run_sql(pool, stored) == [(1,)], "for a later sign-out"


async def test_a_sign_in_of_another_person_changes_nothing(house: House, browser: FakeBrowser, pool: Pool) -> None:
    [before] = await run_sql(pool, "select proofs from sessions")
    page = await ask(browser)
    house.issuer.subject = "4712"
    refused = await sign_in_again(house, browser, page)
    assert (refused.status, OtherIdentity().message in unescape(refused.text)) == (401, True)
    await run_sql(pool, "update connections set state = 'inactive'")
    assert AGAIN not in (await ask(browser)).text
    assert (await browser.send("/app/reauthenticate/connection", **hidden_fields(page))).status == 400
    assert await run_sql(pool, "select proofs from sessions") == [before]


async def test_only_the_browser_of_the_session_gets_the_sign_in(house: House, browser: FakeBrowser, pool: Pool) -> None:
    page = await ask(browser)
    url = leads_to(await browser.send("/app/reauthenticate/connection", **hidden_fields(page)))
    callback = f"/auth/connections/{house.connection.id}/callback?{urlencode(house.issuer.authorize(url))}"
    session = browser.cookies.pop("gatehouse-session")
    assert (await browser.open(callback)).status == 403
    browser.cookies["gatehouse-session"] = session
    assert (await browser.open(callback)).status == 400, "the provider request is over"


async def test_the_account_itself_needs_a_way_of_its_own(house: House, browser: FakeBrowser) -> None:
    page = await browser.open(leads_to(await browser.open("/app/account/security")))
    assert AGAIN not in page.text
    assert (await browser.send("/app/reauthenticate/connection", **hidden_fields(page))).status == 400


@pytest.mark.parametrize("minutes", [9, 11])
async def test_the_second_factor_is_asked_for_alone_after_the_connection(
    house: House, browser: FakeBrowser, ports: Ports, pool: Pool, clock: FakeClock, minutes: int
) -> None:
    """A recent second factor is not asked again. Without its own factor, the connection would lead back to the same page for ever."""
    [(user_id,)] = await run_sql(pool, "select user_id from memberships")
    async with ports.storage.reading() as read:
        user = await read.accounts.by_id(user_id) or refuse(AccountGone)
    app = await add_mfa(ports, user)
    rules = Rules(second_factor=frozenset({Concerned.EVERYONE}), session_idle=timedelta(minutes=5))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.sign_in_policies.put(SignInPolicy(org_id=house.org, rules=rules, changed_at=clock.now()))

    async def confirm_at_connection() -> Answer:
        page = await browser.open(leads_to(await browser.open(ROLES)))
        assert AGAIN in page.text
        return await browser.open(leads_to(await sign_in_again(house, browser, page)))

    page = await confirm_at_connection()
    assert ('id="code"' in page.text, 'type="password"' in page.text, AGAIN in page.text) == (True, False, False)
    back = leads_to(await browser.send("/app/reauthenticate", **hidden_fields(page), code=app.code()))
    assert leads_to(await browser.open(back)) == ROLES
    assert (await browser.open(ROLES)).status == 200
    clock.advance(timedelta(minutes=minutes))
    page = await confirm_at_connection()
    assert ('id="code"' in page.text) is (minutes > 10)
    assert await run_sql(pool, "select restricted_to from sessions") == [(house.org,)]
