"""Acts in an organization that requires a connection, at identity providers that may not ask the user again (security SP-9)."""

import json
import re
from dataclasses import dataclass
from datetime import timedelta
from html import unescape
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.access import AccountGone
from core.kernel.causes import SYSTEM
from core.kernel.connections import RequiredConnection
from core.kernel.errors import refuse
from core.kernel.sign_in_policy.rules import Concerned, Rules
from core.kernel.values import Domain, Email
from core.tenancy.model.sign_in_policies import SignInPolicy
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.connections.people.conftest import House
from tests.support.browser import FakeBrowser, hidden_fields, leads_to
from tests.support.builders import PASSWORD, Answer, Api, add_account, add_member, run_sql
from tests.support.mfa import add_mfa
from tests.support.passkeys.authenticator import SoftAuthenticator
from tests.support.passkeys.users import PasskeyUser

ADDRESS: Final = "ada@example.com"
NEW_GROUP: Final = "/app/organizations/acme/groups/new"
PAGE: Final = "/app/organizations/acme"
START: Final = f"/start?{urlencode({'next': PAGE})}"
LINK: Final = """
    insert into connection_identities (org_id, connection_id, user_id, subject, linked_at, last_used_at)
    select m.org_id, c.id, m.user_id, '4711', now(), now() from memberships m join connections c on c.org_id = m.org_id"""
# An identity provider's claims about when it asked the user. None: there is no such claim.
PROVIDERS: Final[dict[str, dict[str, Any]]] = {"asks": {}, "silent": {"auth_time": None}, "honors no prompt": {"auth_time": 1_500_000_000}}


@dataclass(slots=True)
class Ada:
    """An Acme admin in a browser, with an account of this kind: with a password, with a password and a passkey, or with neither."""

    house: House
    browser: FakeBrowser
    key: SoftAuthenticator | None
    claims: dict[str, Any]

    async def send(self, url: str, **answer: str) -> Answer:
        """Return from the identity provider, with its answer or this error."""
        self.house.issuer.subject, self.house.issuer.claims = "4711", {"email": ADDRESS, "email_verified": True, **self.claims}
        returned = {**answer, "state": parse_qs(urlsplit(url).query)["state"][0]} if answer else self.house.issuer.authorize(url)
        return await self.browser.open(f"/auth/connections/{self.house.connection.id}/callback?{urlencode(returned)}")

    async def arrive(self) -> None:
        url = (await self.browser.open(f"/auth/connections/{self.house.connection.id}{START}")).headers["Location"]
        assert (await self.send(url)).status == 303

    async def act(self) -> str:
        """Send a form that needs a recent sign-in. Return the path of the page that asks for it."""
        form = hidden_fields(await self.browser.open(NEW_GROUP))
        return leads_to(await self.browser.send(NEW_GROUP, **form, name="Engineers"))

    async def confirm(self, page: Answer, way: str, **error: str) -> None:
        fields = hidden_fields(page)
        if way == "connection":
            url = leads_to(await self.browser.send("/app/reauthenticate/connection", **fields))
            assert parse_qs(urlsplit(url).query)["prompt"] == ["login"]
            assert ((await self.send(url, **error)).status == 303) is not bool(error)
        elif self.key is None:
            assert (await self.browser.send("/app/reauthenticate", **fields, password=PASSWORD)).status == 303
        else:
            found = re.search('data-options="([^"]*)"', (await self.browser.open("/app/reauthenticate?policy=***")).text)
            assert found
            credential = json.dumps(self.key.get(json.loads(unescape(found[1]))))
            assert (await self.browser.send("/app/reauthenticate", **{**fields, "credential": credential})).status == 303


def asks(page: Answer) -> str:
    """Return the next step: the connection, the account's own way, or nothing more."""
    if 'name="kept_form"' in page.text:
        return "done"
    assert "Sign in again through Okta" in page.text
    if "did not confirm that it asked you to sign in." not in page.text:
        assert not any(way in page.text for way in ('name="password"', 'data-passkey="get"', "Email me a code"))
        return "connection"
    assert 'name="password"' in page.text
    assert not any(way in page.text for way in ("Email me a code", "Continue with"))
    return "own"


async def enter(house: House, api: Api, ports: Ports, account: str, claims: dict[str, Any], **rules: Any) -> Ada:
    ada = Ada(house, FakeBrowser(house.app), None, claims)
    if account != "none":
        user = await add_account(ports, ADDRESS)
        await add_member(house.pool, house.org, user.id, confirmed=True)
        await house.set(LINK)
        await ada.browser.sign_in(Email(ADDRESS), PASSWORD)
    if account == "passkey":
        token = (await api.post("/api/auth/login", {"email": ADDRESS, "password": PASSWORD})).json["access_token"]
        holder = PasskeyUser(api, token)
        await holder.add()
        ada.key = holder.authenticator
    await ada.arrive()
    await house.set("update memberships set role = 'admin'")
    required = RequiredConnection(house.connection.id, house.connection.slug)
    strict = Rules(required_connections={Domain("example.com"): required}, **rules)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.sign_in_policies.put(SignInPolicy(org_id=house.org, rules=strict, changed_at=ports.clock.now()))
    return ada


@pytest.mark.parametrize("order", ["own first", "connection first"])
@pytest.mark.parametrize("account", ["password", "passkey", "none"])
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_the_connection_and_an_own_way_confirm_an_act(
    house: House, api: Api, ports: Ports, pool: Pool, clock: FakeClock, provider: str, account: str, order: str
) -> None:
    """A user that the identity provider has removed confirms nothing."""
    ada = await enter(house, api, ports, account, PROVIDERS[provider])
    clock.advance(timedelta(minutes=61))
    confirmation, seen = await ada.act(), list[str]()

    async def look() -> Answer:
        page = await ada.browser.open(confirmation)
        seen.append(asks(page))
        return page

    page = await look()
    if order == "own first" and account != "none":
        await ada.confirm(page, "own")
        page = await look()
    await ada.confirm(page, "connection", error="access_denied")
    page = await look()
    await ada.confirm(page, "connection")
    page = await look()
    if seen[-1] == "own":
        await ada.confirm(page, "own")
        page = await look()
    expected = ["connection"] * (3 if order == "own first" and account != "none" else 2)
    is_alone = provider == "asks" or account == "none" or order == "own first"
    assert seen == [*expected, "done"] if is_alone else [*expected, "own", "done"]
    assert leads_to(await ada.browser.send(NEW_GROUP, **hidden_fields(page))).startswith("/app/organizations/acme/groups/")
    assert await run_sql(pool, "select name from groups") == [("Engineers",)]


async def test_a_user_who_just_came_through_the_connection_confirms_there_if_it_asks(house: House, api: Api, ports: Ports) -> None:
    """The user may not know a password, and the first sign-in did not ask the identity provider to authenticate them."""
    ada = await enter(house, api, ports, "password", PROVIDERS["asks"])
    ada.browser = FakeBrowser(house.app)
    await ada.arrive()
    confirmation = await ada.act()
    page = await ada.browser.open(confirmation)
    assert asks(page) == "own"
    await ada.confirm(page, "connection")
    assert asks(await ada.browser.open(confirmation)) == "done"


async def test_the_page_tells_a_user_listed_for_break_glass_that_the_connection_did_not_ask(
    house: House, api: Api, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    """The password then counts beside the sign-in at the connection, so break glass is not used."""
    ada = await enter(house, api, ports, "password", PROVIDERS["silent"])
    await run_sql(pool, "insert into break_glass_users (org_id, user_id) select org_id, user_id from memberships")
    clock.advance(timedelta(minutes=61))
    confirmation = await ada.act()
    page = await ada.browser.open(confirmation)
    assert ("listed for break glass" in page.text, "did not confirm" in page.text) == (True, False)
    await ada.confirm(page, "connection")
    page = await ada.browser.open(confirmation)
    assert (asks(page), "listed for break glass" in page.text) == ("own", False)
    wrong = await ada.browser.send("/app/reauthenticate", **hidden_fields(page), password="a wrong one")
    assert ("The password is wrong. Try again.<" in wrong.text, 'href="/app/forgot-password"' in wrong.text) == (True, True)
    await ada.confirm(page, "own")
    assert asks(await ada.browser.open(confirmation)) == "done"
    assert await run_sql(pool, "select 1 from audit_log where action = 'break_glass.used'") == []


async def test_a_removed_user_confirms_nothing_by_an_own_way_or_a_code_by_email(
    house: House, api: Api, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    ada = await enter(house, api, ports, "password", PROVIDERS["silent"])
    clock.advance(timedelta(minutes=61))
    confirmation = await ada.act()
    page = await ada.browser.open(confirmation)
    await ada.confirm(page, "own")
    assert asks(await ada.browser.open(confirmation)) == "connection"
    form = hidden_fields(await ada.browser.open(confirmation))
    assert (await ada.browser.send(NEW_GROUP, form_token=form["form_token"], kept_form=form["form"])).headers["Location"] == confirmation
    clock.advance(timedelta(minutes=61))
    confirmation = await ada.act()
    await ada.confirm(await ada.browser.open(confirmation), "connection")
    [(user_id,)] = await run_sql(pool, "select user_id from memberships")
    code = """
        update sessions set proofs = proofs || jsonb_build_array(jsonb_build_object('method', 'email', 'at', %s::text))
        where user_id = %s and proofs is not null"""
    await run_sql(pool, code, clock.now().isoformat(), user_id)
    assert asks(await ada.browser.open(confirmation)) == "own", "the identity provider may have the mailbox"
    assert await run_sql(pool, "select 1 from groups") == []


async def test_both_renew_the_lifetime_of_a_session(house: House, api: Api, ports: Ports, clock: FakeClock) -> None:
    ada = await enter(house, api, ports, "password", PROVIDERS["silent"], session_lifetime=timedelta(minutes=15))
    assert (await ada.browser.open(PAGE)).status == 200
    clock.advance(timedelta(minutes=16))
    confirmation = leads_to(await ada.browser.open(PAGE))
    for step in ("connection", "own"):
        page = await ada.browser.open(confirmation)
        assert asks(page) == step
        assert leads_to(await ada.browser.open(PAGE)) == confirmation
        await ada.confirm(page, step)
    assert leads_to(await ada.browser.open(confirmation)) == PAGE
    assert (await ada.browser.open(PAGE)).status == 200


async def test_beside_a_new_sign_in_at_the_connection_the_code_alone_is_asked_for(
    house: House, api: Api, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    ada = await enter(house, api, ports, "password", PROVIDERS["asks"], second_factor=frozenset({Concerned.EVERYONE}))
    [(user_id,)] = await run_sql(pool, "select user_id from memberships")
    async with ports.storage.reading() as read:
        user = await read.accounts.by_id(user_id) or refuse(AccountGone)
    app = await add_mfa(ports, user)
    page = await ada.browser.open(leads_to(await ada.browser.open(NEW_GROUP)))
    assert leads_to(await ada.browser.send("/app/reauthenticate", **hidden_fields(page), code=app.code())).startswith("/app/reauthenticate")
    clock.advance(timedelta(minutes=61))
    confirmation = await ada.act()
    page = await ada.browser.open(f"{confirmation}&emailed=yes")
    assert 'name="email_code"' not in page.text
    await ada.confirm(page, "connection")
    clock.advance(timedelta(minutes=11))
    page = await ada.browser.open(confirmation)
    assert ('name="code"' in page.text, 'name="password"' in page.text, "through Okta" in page.text) == (True, False, False)
    await ada.browser.send("/app/reauthenticate", **hidden_fields(page), code=app.code())
    assert asks(await ada.browser.open(confirmation)) == "done"
