"""Sign-ins through an organization's connection: which account a person gets."""

import re
from base64 import b64encode
from datetime import timedelta
from html import unescape
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

import pytest

from adapters.crypto import AesVault
from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account, AccountOrigin
from core.federation.connections.model.people import (
    AddressOutside,
    ConnectionNotActive,
    ConnectionTeamFull,
    OtherPersonLinked,
    PlatformOwnerRefused,
)
from core.kernel.causes import SYSTEM
from core.kernel.roles import OWNER
from core.tenancy import members
from ports import Ports
from ports.crypto import SecretContext
from tests.fakes.outside import FakeClock
from tests.federation.connections.people.conftest import DOMAIN, House
from tests.support.browser import FakeBrowser, is_step, leads_to
from tests.support.builders import PASSWORD, add_account, add_member, add_organization, run_concurrently, run_sql
from tests.support.mfa import add_mfa
from tests.support.services import add_service

ADA = "ada@example.com"
CALLBACK = "https://shop.example.com/callback"


async def test_a_new_person_gets_an_account_that_the_organization_created(house: House, pool: Pool) -> None:
    browser = FakeBrowser(house.app)
    answer = await house.arrive(browser, name="Ada Lovelace")
    assert leads_to(answer) == "/app"
    [row] = await run_sql(pool, "select origin, origin_org_id, email, email_verified_at is not null, name, password_hash from users")
    assert row == ("connection", house.org, ADA, True, "Ada Lovelace", None)
    assert await run_sql(pool, "select role, confirmed_at is not null from memberships where org_id = %s", house.org) == [("member", True)]
    assert await run_sql(pool, "select restricted_to, proofs -> 0 ->> 'method' from sessions") == [(house.org, "connection")]
    events = {name for (name,) in await run_sql(pool, "select action from audit_log where org_id = %s", house.org)}
    assert {"user.joined", "connection.person.linked", "user.login.success"} <= events
    assert await run_sql(pool, "select kind from mails") == [], "no welcome, because no password is needed"


async def test_a_known_subject_keeps_its_account_whatever_the_address_says(house: House, pool: Pool, clock: FakeClock) -> None:
    await house.arrive()
    for claims in ({"email": "other@example.com"}, {"email": "eve@elsewhere.example"}, {"email": None}):
        assert leads_to(await house.arrive(**claims)) == "/app"
    await house.set("delete from domains")  # a lost domain stops new links only
    assert leads_to(await house.arrive()) == "/app"
    assert await house.known() == [("4711", ADA)]
    assert (await house.arrive(subject="4712", email="new@example.com")).status == 403


async def test_the_log_of_a_refusal_by_time_says_by_how_many_seconds(house: House, pool: Pool, clock: FakeClock) -> None:
    now, cases = int(clock.now().timestamp()), {"iat": 95, "exp": -3000, "nbf": 61}
    for claim, off in cases.items():
        refused = await house.arrive(None, "4711", **{claim: now + off})
        assert (refused.status, "this code: time" in refused.text) == (400, True)
        clock.advance(timedelta(minutes=1))  # the log counts the attempts of a minute in one row
        now += 60
    logged = await run_sql(pool, "select distinct fault, seconds_off from login_events where not success")
    assert sorted(logged) == [("time", -3000), ("time", 61), ("time", 95)]
    await house.set("update connections set settings = settings || '{\"clock_skew_seconds\": 300}'")
    assert leads_to(await house.arrive(iat=now + 95)) == "/app"


async def test_a_later_sign_in_verifies_the_address_of_an_account_that_the_connection_created(house: House, pool: Pool) -> None:
    verified = "select email_verified_at is not null from users"
    for email, claim, expected in ((ADA, False, False), ("eve@example.com", True, False), (ADA, True, True), (ADA, False, True)):
        assert (await house.arrive(email=email, email_verified=claim)).status == 303
        assert await run_sql(pool, verified) == [(expected,)], (email, claim)
    for origin in (AccountOrigin.SCIM, AccountOrigin.SIGN_UP):  # another way into such an account can be another person's
        await house.set("update users set origin = %s, email_verified_at = null, first_verified_at = null", origin)
        assert (await house.arrive(email_verified=True)).status == 303
        assert await run_sql(pool, verified) == [(False,)], origin


async def test_the_names_follow_the_claims_in_an_account_that_the_organization_controls(house: House, pool: Pool) -> None:
    """A directory's names win, but if the account is used elsewhere, the user's names stay."""
    names = "select name, profile_details ->> 'given_name', picture from users"
    await house.arrive(name="Ada Byron", given_name="Ada")
    await house.arrive(name="Ada Lovelace", picture="https://example.com/ada.png", given_name=None)
    assert await run_sql(pool, names) == [("Ada Lovelace", "Ada", None)]
    assert await run_sql(pool, "select details -> 'changed' from audit_log where action = 'user.updated'") == [(["name"],)]
    provisioned = """
        insert into scim_users (org_id, user_id, provisioned, membership_id, joined_at, updated_at)
        select org_id, user_id, true, id, now(), now() from memberships"""
    await house.set(provisioned)
    await house.arrive(name="Of the provider")
    await house.set("delete from scim_users")
    [(user_id,)] = await run_sql(pool, "select id from users")
    await add_member(pool, await add_organization(pool, "globex"), user_id, confirmed=True)
    await house.arrive(name="Of the provider")
    assert await run_sql(pool, names) == [("Ada Lovelace", "Ada", None)]


async def test_twenty_first_sign_ins_at_once_make_one_account(house: House, pool: Pool) -> None:
    async def arrive(_: int) -> int:
        return (await house.arrive()).status

    assert set(await run_concurrently(20, arrive)) == {303}
    assert await house.known() == [("4711", ADA)]
    assert await run_sql(pool, "select count(*), sum(member_count) from organizations") == [(1, 1)]


async def test_an_account_with_an_unproved_address_does_not_change_hands(house: House) -> None:
    assert (await house.arrive(subject="a", email_verified=False)).status == 303
    assert (await house.arrive(subject="b", email_verified=True)).status == 409
    assert await house.known() == [("a", ADA)]


@pytest.mark.parametrize("session_expiry", ["never", True, 10**30, 1])
async def test_a_session_without_a_time_at_which_it_ends_is_refused(house: House, pool: Pool, session_expiry: object) -> None:
    assert (await house.arrive(session_expiry=session_expiry)).status == 400
    assert await run_sql(pool, "select id from users") == []


# The table: every kind of account with the address, what happens, and what the connection knows afterwards.
CONTROLLED = {"origin": AccountOrigin.SCIM}
LINKED, QUESTION = "linked", "question"
ACCOUNTS: Final[dict[str, tuple[dict[str, Any], str, Any]]] = {
    "provisioned by the directory": (CONTROLLED, "", LINKED),
    "created by an API key, never signed in": ({"origin": AccountOrigin.API_KEY, "password_hash": None}, "", LINKED),
    "signed up at the organization": ({"origin": AccountOrigin.SIGN_UP}, "", LINKED),
    "of the user's own": ({}, "", QUESTION),
    "of a member, of the user's own": ({}, "member", QUESTION),
    "of an admin, provisioned by the directory": (CONTROLLED, "admin", QUESTION),
    "of the owner": (CONTROLLED, OWNER, QUESTION),
    "member of another organization, too": (CONTROLLED, "elsewhere", QUESTION),
    "of a platform owner": ({"is_platform_owner": True}, "", QUESTION),
    "blocked by the directory": (CONTROLLED, "blocked", "BlockedByDirectory"),
    "known as another subject": (CONTROLLED, "known", OtherPersonLinked),
    "never verified, of another person": ({"email_verified_at": None, "first_verified_at": None}, "", QUESTION),
    "deactivated": ({"platform": True}, "deactivated", "AccountClosed"),
}


async def prepare(house: House, kind: str) -> Account:
    changes, role, _ = ACCOUNTS[kind]
    values = {name: value for name, value in changes.items() if name != "platform"}
    if "origin" in values:
        values["origin_org_id"] = house.org
    user = await add_account(house.ports, ADA, **values)
    if role in ("member", "admin", OWNER):
        await add_member(house.pool, house.org, user.id, role, confirmed=True)
    elif role == "elsewhere":
        await add_member(house.pool, await add_organization(house.pool, "globex"), user.id, confirmed=True)
    elif role == "blocked":
        await house.set("insert into directory_blocks (org_id, user_id, since) values (%s, %s, now())", house.org, user.id)
    elif role == "known":
        insert = """
            insert into connection_identities (org_id, connection_id, user_id, subject, linked_at, last_used_at)
            values (%s, %s, %s, 'another', now(), now())"""
        await house.set(insert, house.org, house.connection.id, user.id)
    elif role == "deactivated":
        await house.set("update users set deactivated_at = now(), platform_deactivated_at = now() where id = %s", user.id)
    return user


@pytest.mark.parametrize("kind", ACCOUNTS)
async def test_an_account_with_the_address_is_linked_only_if_the_organization_controls_it(house: House, pool: Pool, kind: str) -> None:
    _, role, outcome = ACCOUNTS[kind]
    user = await prepare(house, kind)
    before = await run_sql(pool, "select count(*) from users")
    for verified in (False, None) if outcome == LINKED else ():
        unproved = await house.arrive(email_verified=verified)
        assert (unproved.status, ADA in unproved.text, await house.known()) == (200, True, []), "the address may be that of another person"
    answer = await house.arrive()
    known = [("another", ADA)] if role == "known" else []
    if outcome == LINKED:
        assert leads_to(answer) == "/app"
        assert await house.known() == [("4711", ADA)]
        assert await run_sql(pool, "select user_id, restricted_to from sessions") == [(user.id, house.org)]
    elif outcome == QUESTION:
        assert answer.status == 200
        assert ("Acme" in answer.text, ADA in answer.text) == (True, True)
        assert await house.known() == []
    else:
        assert answer.status in (401, 403, 409)
        assert await house.known() == known
    assert await run_sql(pool, "select count(*) from users") == before
    if outcome != LINKED:
        assert await run_sql(pool, "select 1 from sessions") == []


@pytest.mark.parametrize("refused", ["missing", "no address", "elsewhere", "below, proved by another", "a domain that was lost"])
async def test_addresses_outside_the_proved_domains_create_nothing(house: House, pool: Pool, refused: str) -> None:
    email: str | None = {"missing": None, "no address": "ada", "elsewhere": "ada@other.example"}.get(refused, "ada@eu.example.com")
    if refused == "below, proved by another":
        await house.set(DOMAIN, await add_organization(pool, "globex"), "eu.example.com")
    elif refused == "a domain that was lost":
        await house.set("delete from domains")
    answer = await house.arrive(email=email)
    assert (answer.status, (AddressOutside.__doc__ or "").partition(".")[0] in answer.text.replace("&#39;", "'")) == (403, True)
    assert await run_sql(pool, "select 1 from users") == []
    logged = await run_sql(pool, "select reason, provider, fault, connection_id from login_events order by seen_by")
    assert logged == 2 * [("address", "connection", "address_outside", house.connection.id)], "for the organization, and the platform"


async def test_an_own_sign_in_with_all_factors_makes_the_link(house: House, pool: Pool, ports: Ports, clock: FakeClock) -> None:
    user, browser = await add_account(ports, ADA, PASSWORD), FakeBrowser(house.app)
    app = await add_mfa(ports, user)
    clock.advance(timedelta(minutes=1))
    question = await house.arrive(browser, sid="s1")
    assert "<h1>Link your account</h1>" in question.text
    page = await browser.open((await browser.answer(question, "continue")).headers["Location"])
    assert f'value="{ADA}"' in page.text
    answer = await browser.fill(page, email=ADA, password=PASSWORD)
    assert is_step(leads_to(answer), "code")
    assert await house.known() == []
    assert leads_to(await browser.show_code(app.code())) == "/app"
    assert "Your account is linked." in (await browser.open("/app/account")).text
    assert await house.known() == [("4711", ADA)]
    [(restriction, proofs)] = await run_sql(pool, "select restricted_to, proofs from sessions")
    assert (restriction, [proof["method"] for proof in proofs]) == (None, ["connection", "password", "totp"])
    assert await run_sql(pool, "select confirmed_at is not null from memberships") == [(True,)]
    assert ("connection_linked", ADA) in await run_sql(pool, "select kind, address from mails")
    [(login, provider_session)] = await run_sql(pool, "select id::text, provider_session from connection_logins")
    assert (login, provider_session) == (proofs[0]["login"], "s1"), "a sign-out there reaches the session"
    assert await run_sql(pool, "select 1 from sign_in_flows f where strpos(f::text, 'eyJ') > 0") == [], "the ID token is encrypted"
    sign_out = f"/auth/connections/{house.connection.id}/sign-out"
    assert f"url={sign_out}" in (await browser.submit("/app/sign-out", "/app/account")).text
    url = leads_to(await browser.open(sign_out))
    assert (url.startswith(f"{house.issuer.url}/logout?"), "id_token_hint=" in url) == (True, True)
    assert leads_to(await house.arrive()) == "/app", "from now on, the subject is enough"


async def test_a_user_that_the_identity_provider_refuses_is_sent_to_an_admin_of_the_organization(house: House, pool: Pool) -> None:
    house.issuer.refuses = "access_denied"
    [(name,)] = await run_sql(pool, "select name from organizations where id = %s", house.org)
    refused = await house.arrive()
    expected = f"Ask an admin of {name} to assign the application to you there"
    assert (refused.status, expected in unescape(refused.text)) == (400, True)
    assert await run_sql(pool, "select distinct fault from login_events") == [("access_denied",)]


async def test_the_link_is_made_also_if_the_key_of_its_values_for_a_sign_out_was_removed(house: House, pool: Pool, ports: Ports) -> None:
    await add_account(ports, ADA, PASSWORD)
    browser = FakeBrowser(house.app)
    question = await house.arrive(browser, sid="s1")
    page = await browser.open((await browser.answer(question, "continue")).headers["Location"])
    [(link,)] = await run_sql(pool, "select connection_link ->> 'id' from sign_in_flows where connection_link is not null")
    sealed = AesVault([("removed", bytes(32))]).seal(b"{}", SecretContext("sign_in_flows", link, "connection_link"))
    set_logout = "update sign_in_flows set connection_link = connection_link || jsonb_build_object('logout', %s::text)"
    await run_sql(pool, f"{set_logout} where connection_link ->> 'id' = %s", b64encode(sealed).decode(), link)
    assert leads_to(await browser.fill(page, email=ADA, password=PASSWORD)) == "/app"
    assert await house.known() == [("4711", ADA)]
    assert await run_sql(pool, "select provider_session from connection_logins") == [("s1",)]
    answer = await browser.submit("/app/sign-out", "/app/account")
    assert "/auth/connections/" not in answer.text, "the sign-out does not go on at the identity provider"


@pytest.mark.parametrize("case", ["another account", "platform owner", "canceled", "deactivated", "too late"])
async def test_otherwise_the_own_sign_in_makes_no_link(house: House, pool: Pool, ports: Ports, clock: FakeClock, case: str) -> None:
    """The user is signed in nevertheless, in their own way."""
    await add_account(ports, ADA, PASSWORD, is_platform_owner=case == "platform owner")
    await add_account(ports, "eve@example.com", PASSWORD)
    browser = FakeBrowser(house.app)
    question = await house.arrive(browser)
    if case == "canceled":
        form = question.text.rindex("<form")
        assert "Don't link" in question.text[form:].replace("&#39;", "'")
        page = await browser.open((await browser.answer(question, "cancel")).headers["Location"])
    else:
        page = await browser.open((await browser.answer(question, "continue")).headers["Location"])
    if case == "deactivated":
        await house.set("update connections set state = 'inactive' where org_id is not null")
    elif case == "too late":
        clock.advance(timedelta(hours=2))
    email = "eve@example.com" if case == "another account" else ADA
    assert leads_to(await browser.fill(page, email=email, password=PASSWORD)) == "/app"
    says_so = "nothing was linked" in (await browser.open("/app/account")).text
    assert says_so is (case not in ("canceled", "too late")), "the user has agreed to the link"
    assert await house.known() == []
    assert await run_sql(pool, "select restricted_to, jsonb_array_length(proofs) from sessions") == [(None, 1)]


async def test_known_people_are_refused_when_the_connection_no_longer_opens_their_account(house: House, pool: Pool) -> None:
    await house.arrive()
    for sql, refusal in (
        ("update users set is_platform_owner = {}", PlatformOwnerRefused),
        ("update connections set state = case when {} then 'inactive' else 'active' end where org_id is not null", ConnectionNotActive),
    ):
        await house.set(sql.format("true"))
        browser = FakeBrowser(house.app)
        if refusal is ConnectionNotActive:
            answer = await browser.open(f"/auth/connections/{house.connection.id}/start")
        else:
            answer = await house.arrive(browser)
        assert answer.status in (403, 409)
        assert (refusal.__doc__ or "") in answer.text.replace("&#39;", "'")
        await house.set(sql.format("false"))
    await house.set("insert into directory_blocks (org_id, user_id, since) select %s, id, now() from users", house.org)
    assert (await house.arrive()).status == 403
    assert leads_to(await house.arrive(subject="2", email="eve@example.com")) == "/app"


async def test_a_full_organization_takes_no_new_person(house: House, pool: Pool) -> None:
    await house.set("update organizations set max_users = 1, member_count = 1")
    answer = await house.arrive()
    assert (answer.status, (ConnectionTeamFull.__doc__ or "") in answer.text) == (400, True)
    assert await run_sql(pool, "select 1 from users") == []


async def test_a_flow_of_another_organization_never_begins_there(house: House, pool: Pool) -> None:
    """The flow's sign-in would not count there."""
    other: UUID = await add_organization(pool, "globex")
    await run_sql(pool, "select 1 from organizations where id = %s", other)
    browser = FakeBrowser(house.app)
    assert (await browser.open(f"/auth/connections/{house.connection.id}/start?org=globex&service=missing")).status == 404


async def test_a_new_account_takes_the_picture_and_the_language(house: House, pool: Pool) -> None:
    """Values that an account cannot have are left out. Later sign-ins keep the user's choice."""
    await house.set("""update connections set mapping = mapping || '{"picture": "photo", "locale": "locale"}' where slug = 'okta'""")
    stored = "select picture, locale from users where email like %s"
    await house.arrive(photo="https://images.example.com/ada.png", locale="en-GB")
    assert await run_sql(pool, stored, "ada@%") == [("https://images.example.com/ada.png", "en-GB")]
    await house.arrive(photo="https://images.example.com/other.png", locale="fr")
    assert await run_sql(pool, stored, "ada@%") == [("https://images.example.com/ada.png", "en-GB")]
    await house.arrive(subject="2", email="eve@example.com", photo="javascript:alert(1)", locale="no language tag")
    assert await run_sql(pool, stored, "eve@%") == [(None, None)]


async def test_a_user_who_stays_signed_in_goes_on_to_the_application(house: House, pool: Pool, ports: Ports) -> None:
    """The browser has got another user's session while it was at the identity provider."""
    await add_account(ports, "eve@example.org", PASSWORD)
    await add_service(pool, house.org, "shop")
    request = {"org": "acme", "service": "shop", "redirect_uri": CALLBACK, "response_type": "code", "state": "s", "connection": "okta"}
    browser = FakeBrowser(house.app)
    start = leads_to(await browser.open(f"/auth/authorize?{urlencode(request)}", follows=False))
    away = await browser.open(start, follows=False)
    await browser.sign_in("eve@example.org", PASSWORD)
    house.issuer.claims = {"email_verified": True}
    returned = house.issuer.authorize(away.headers["Location"])
    question = await browser.open(f"/auth/connections/{house.connection.id}/callback?{urlencode(returned)}")
    assert (question.status, "Switch accounts?" in question.text) == (200, True)
    [stay] = re.findall(r'href="([^"]+)">Stay signed in', question.text)
    page = await browser.open(stay)
    assert "eve@example.org" in page.text, "the present user is asked about the application"
    answer = leads_to(await browser.answer(page, "continue"))
    assert (answer.startswith(f"{CALLBACK}?"), "code=" in answer, "state=s" in answer) == (True, True, True)
    assert await house.known() == []


# How a link ends


async def test_a_removed_member_loses_the_link_and_its_sessions(house: House, pool: Pool) -> None:
    """The account that the organization controls is linked again by the next sign-in."""
    browser = FakeBrowser(house.app)
    await house.arrive(browser)
    [(user_id,)] = await run_sql(pool, "select id from users")
    async with house.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.organizations.lock(house.org)
        await tx.accounts.lock(user_id)
        await members.end_membership(tx, house.org, user_id, house.ports.clock.now())
    assert await house.known() == []
    assert await run_sql(pool, "select count(*) from sessions where ended_at is null") == [(0,)]
    assert leads_to(await house.arrive()) == "/app"
    assert await run_sql(pool, "select user_id from memberships") == [(user_id,)]


async def test_admins_and_users_see_and_remove_links(house: House, pool: Pool, ports: Ports) -> None:
    await house.arrive(FakeBrowser(house.app))
    admin = await add_account(ports, "admin@elsewhere.example", PASSWORD)
    await add_member(pool, house.org, admin.id, "admin", confirmed=True)
    browser, people = FakeBrowser(house.app), "/app/organizations/acme/connections/okta/people"
    await browser.sign_in("admin@elsewhere.example", PASSWORD)
    page = await browser.open(people)
    assert (ADA in page.text, "4711" in page.text) == (True, True)
    [(user_id,)] = await run_sql(pool, "select user_id from connection_identities")
    assert leads_to(await browser.submit(f"{people}/{user_id}/unlink", people)) == people
    assert await house.known() == []
    assert await run_sql(pool, "select count(*) from sessions where ended_at is not null") == [(1,)]
    insert = """
        insert into connection_identities (org_id, connection_id, user_id, subject, linked_at, last_used_at)
        values (%s, %s, %s, 'admin', now(), now())"""
    await house.set(insert, house.org, house.connection.id, admin.id)
    own = "/app/account/identities"
    assert "Acme" in (await browser.open(own)).text
    assert leads_to(await browser.submit(f"{own}/connections/{house.connection.id}/unlink", own)) == own
    assert await house.known() == []
    assert await browser.is_in(), "it was no session of the connection"
