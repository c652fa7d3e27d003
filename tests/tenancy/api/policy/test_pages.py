"""The sign-in policy pages: the same form saves and previews, and every refusal stands beside its field."""

import re
from dataclasses import replace
from datetime import timedelta
from html import unescape
from uuid import uuid4

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.authentication.model.identities import ServiceOAuthCredentials
from core.kernel.causes import SYSTEM
from core.kernel.connections import CODEHOST, WEBSUITE, PlatformCredentials, platform_connection
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.browser import FakeBrowser, form_token, hidden_fields, leads_to
from tests.support.builders import PASSWORD, Answer, add_account, add_member, run_sql
from tests.support.direct import set_up
from tests.support.identities import NOWHERE
from tests.support.services import add_service, add_service_user

PAGE = "/app/organizations/acme/sign-in-policy"
ALL_METHODS = {
    f"method:{name}": "yes"
    for name in ("password", "email", "passkey", "totp", "provider:codehost", "provider:websuite", "provider:officesuite")
}


def text_of(page: Answer) -> str:
    return " ".join(unescape(re.sub("<[^>]+>", " ", page.text.partition("<main")[2])).split())


def offered(page: Answer) -> list[str]:
    """Return the methods that the form has."""
    return re.findall('name="method:([^"]+)"', page.text)


async def save(browser: FakeBrowser, page: str = PAGE, **fields: str) -> Answer:
    version = hidden_fields(await browser.open(page))["version"]
    return await browser.submit(page, page, **{"version": version, **ALL_METHODS, **fields})


async def submit_methods(browser: FakeBrowser, page: str, methods: list[str]) -> Answer:
    version = hidden_fields(await browser.open(page))["version"]
    return await browser.submit(page, page, version=version, session_idle_minutes="60", **{f"method:{name}": "yes" for name in methods})


async def preview(browser: FakeBrowser, page: str = PAGE, **fields: str) -> Answer:
    return await browser.submit(f"{page}/preview", page, **{**ALL_METHODS, **fields})


async def leave_for_later(browser: FakeBrowser, page: str) -> Answer:
    """Open a page about the organization, which first leads to the page that asks for a factor, and choose "Not now"."""
    asks = await browser.open(leads_to(await browser.open(page)))
    assert "Acme requires a passkey. You have until 28 March 2026 at 15:09 UTC" in text_of(asks)
    return await browser.send("/app/enroll", form_token=form_token(asks), org="acme", next=hidden_fields(asks)["next"])


async def test_an_admin_previews_and_saves_each_rule_and_sees_it_again(owner_browser: FakeBrowser, pool: Pool) -> None:
    rules = {
        "second_factor": "admins",
        "high_risk": "yes",
        "phishing_resistant": "admins",
        "grace_days": "14",
        "min_password_length": "14",
        "session_lifetime_minutes": "720",
        "session_idle_minutes": "45",  # not among the page's values, as over the API
        "device_trust_days": "0",
        "admin_networks": " 0.0.0.0/0 \n\n::/0",
        "invited_domains": "acme.com\nExample.org",
    }
    shown = await preview(owner_browser, **rules)
    assert shown.status == 200, shown.text
    assert "Nothing is saved yet." in text_of(shown)
    assert await run_sql(pool, "select from sign_in_policies") == []
    saved = await save(owner_browser, **rules)
    assert leads_to(saved) == PAGE, saved.text
    [(stored,)] = await run_sql(pool, "select rules from sign_in_policies")
    due = stored.pop("due_at")
    assert due.keys() == {"second_factor", "phishing_resistant"}
    assert stored == {
        "second_factor": ["admins", "high_risk"],
        "phishing_resistant": ["admins"],
        "grace_days": 14,
        "min_password_length": 14,
        "session_lifetime_minutes": 720,
        "session_idle_minutes": 45,
        "device_trust_days": 0,
        "admin_networks": ["0.0.0.0/0", "::/0"],
        "invited_domains": ["acme.com", "example.org"],
    }
    assert leads_to(await leave_for_later(owner_browser, PAGE)) == PAGE
    page = await owner_browser.open(PAGE)
    assert re.findall(r'<option value="([^"]*)" selected>', page.text) == ["admins", "admins", "720", "45", "0"]
    assert page.text.count('type="checkbox" value="yes" checked') == len(offered(page)) + 1
    assert "Second factor: the stricter rule starts on" in text_of(page)
    assert "0.0.0.0/0\n::/0</textarea>" in page.text


async def test_the_console_asks_once_a_day_for_what_a_rule_asks_for_later(owner_browser: FakeBrowser, clock: FakeClock) -> None:
    assert leads_to(await save(owner_browser, phishing_resistant="everyone", grace_days="14")) == PAGE
    for _ in range(2):
        members = "/app/organizations/acme/members"
        assert leads_to(await leave_for_later(owner_browser, members)) == members
        assert (await owner_browser.open(members)).status == 200
        clock.advance(timedelta(hours=2))
        assert (await owner_browser.open(members)).status == 200, "the answer counts for a day"
        clock.advance(timedelta(hours=23))


async def test_a_preview_names_who_would_be_stopped(owner_browser: FakeBrowser, ports: Ports, pool: Pool) -> None:
    [(acme,)] = await run_sql(pool, "select id from organizations")
    eve = await add_account(ports, "eve@example.com", PASSWORD)
    await add_member(pool, acme, eve.id, confirmed=True)
    await run_sql(pool, "update users set name = '<b>Eve</b>' where id = %s", eve.id)
    shown = await preview(owner_browser, second_factor="everyone")
    assert f'<a href="/app/organizations/acme/members/{eve.id}"><bdi>&lt;b&gt;Eve' in shown.text
    at_once = text_of(shown)
    assert "2 concerned. 0 can go on as before. 2 would be stopped at once." in at_once
    assert "<b>Eve</b> eve@example.com Member Second factor At once" in at_once
    assert (await owner_browser.open(f"/app/organizations/acme/members/{eve.id}")).status == 200, "the preview links to this page"
    later = text_of(await preview(owner_browser, second_factor="everyone", grace_days="7"))
    assert "2 would be stopped when a rule starts , unless they set up a factor by then." in later
    assert "At once" not in later.partition("Role Rule not met From")[2].partition("Allowed methods")[0]


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"admin_networks": "acme.com"}, "admin_networks", "is no network. Write an address, or as in 203.0.113.0/24."),
        ({"invited_domains": "not a domain"}, "invited_domains", "domain"),
        ({"min_password_length": "7"}, "min_password_length", "8"),
        ({"grace_days": "many"}, "grace_days", "Enter a whole number."),
        ({"second_factor": "some"}, "second_factor", "unknown"),
    ],
)
async def test_a_wrong_rule_is_named_beside_its_field(owner_browser: FakeBrowser, fields: dict[str, str], field: str, reason: str) -> None:
    for answer in (await save(owner_browser, **fields), await preview(owner_browser, **fields)):
        assert answer.status == 400
        match = re.search(rf'<p class="field-error" id="{field}-error">([^<]*)</p>', answer.text)
        assert match, answer.text
        assert reason in unescape(match[1])
        assert not unescape(match[1]).startswith(field)


async def test_rules_that_would_lock_users_out_are_refused_in_words(owner_browser: FakeBrowser, pool: Pool) -> None:
    locked_out = await save(owner_browser, second_factor="everyone")
    assert locked_out.status == 400
    assert "With these rules you could not sign in yourself. Set up the missing factor first, or give a grace period." in text_of(
        locked_out
    )
    outside = await save(owner_browser, admin_networks="198.51.100.0/24")
    assert "Your present address is 203.0.113.9." in text_of(outside)
    assert "is outside these networks. Add a network with it." in text_of(outside)
    version = hidden_fields(await owner_browser.open(PAGE))["version"]
    for methods in ({"method:totp": "yes"}, {}):
        refused = await owner_browser.submit(PAGE, PAGE, version=version, **methods)
        assert (refused.status, 'id="methods-error"' in refused.text) == (400, True)
    assert await run_sql(pool, "select from sign_in_policies") == []


async def test_of_two_admins_who_change_the_same_policy_one_keeps_their_form_and_loads_it_again(owner_browser: FakeBrowser) -> None:
    version = hidden_fields(await owner_browser.open(PAGE))["version"]
    assert leads_to(await save(owner_browser, session_idle_minutes="60")) == PAGE
    late = await owner_browser.submit(PAGE, PAGE, version=version, **ALL_METHODS, min_password_length="20")
    assert late.status == 409
    assert "The sign-in policy was changed by another request." in text_of(late)
    assert 'value="20"' in late.text
    assert "Saved by another request Longest idle time 1 hour The form below still has your rules. Load the saved policy" in text_of(late)
    assert f'<a href="{PAGE}">Load the saved policy</a>' in late.text
    again = await owner_browser.submit(PAGE, PAGE, version=hidden_fields(late)["version"], **ALL_METHODS, min_password_length="20")
    assert again.status == 409, "only a form of the saved policy replaces it"


async def test_a_policy_of_an_application_adds_to_that_of_its_organization(owner_browser: FakeBrowser, pool: Pool) -> None:
    [(acme,)] = await run_sql(pool, "select id from organizations")
    await add_service(pool, acme, "shop")
    page = "/app/organizations/acme/applications/shop/sign-in-policy"
    assert leads_to(await save(owner_browser, session_lifetime_minutes="720", invited_domains="acme.com")) == PAGE
    shown = await owner_browser.open(page)
    assert "Longest session 12 hours" in text_of(shown).partition("In force now")[2].partition("Allowed methods")[0]
    assert "Remove policy" not in shown.text
    assert 'name="admin_networks"' not in shown.text
    assert leads_to(await save(owner_browser, page, session_lifetime_minutes="60", phishing_resistant="everyone", grace_days="30")) == page
    shown = await owner_browser.open(page)
    assert "Longest session 1 hour" in text_of(shown).partition("In force now")[2].partition("Allowed methods")[0]
    assert "Passkey" in text_of(await preview(owner_browser, page, phishing_resistant="everyone"))
    assert leads_to(await owner_browser.submit(f"{page}/remove", page)) == page
    assert await run_sql(pool, "select count(*) from sign_in_policies where service_id is not null") == [(0,)]


async def test_the_form_offers_the_methods_that_users_can_have_here(
    app: QuartTrio, owner_browser: FakeBrowser, ports: Ports, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    [(acme,)] = await run_sql(pool, "select id from organizations")
    shop, _ = await add_service(pool, acme, "shop"), await add_service(pool, acme, "desk")
    page, desk = "/app/organizations/acme/applications/shop/sign-in-policy", "/app/organizations/acme/applications/desk/sign-in-policy"
    least = ["password", "passkey", "totp"]
    assert [offered(await owner_browser.open(path)) for path in (PAGE, page, desk)] == [least] * 3
    settings = replace(NOWHERE, client_id=None)  # only an application has credentials
    await set_up(app, [PlatformCredentials(platform_connection(slug, settings), None) for slug in (CODEHOST, WEBSUITE)])
    await run_sql(pool, "update services set email_sign_in = true where id = %s", shop)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.oauth_credentials.put(acme, shop, ServiceOAuthCredentials(CODEHOST, "client", ports.clock.now()), "secret")
    more = ["password", "email", "passkey", "totp", "provider:codehost"]
    assert [offered(await owner_browser.open(path)) for path in (PAGE, page, desk)] == [more, more, least]
    assert leads_to(await submit_methods(owner_browser, desk, least)) == desk
    stored = "select rules from sign_in_policies where service_id is not null"
    assert await run_sql(pool, stored) == [({"session_idle_minutes": 60},)], "all that are offered are no rule"
    await run_sql(pool, """update sign_in_policies set rules = '{"methods": ["password", "passkey"]}' where service_id is null""")
    monkeypatch.setattr(type(ports.tokens), "issuer", "http://127.0.0.1:8080")
    assert offered(await owner_browser.open(desk)) == ["password", "totp"]
    assert offered(await owner_browser.open(PAGE)) == more, "a policy shows the methods that it names"


async def test_a_preview_names_the_methods_that_are_no_longer_set_up(owner_browser: FakeBrowser, pool: Pool) -> None:
    await save(owner_browser, session_idle_minutes="60")
    await run_sql(pool, """update sign_in_policies set rules = '{"methods": ["password", "totp", "provider:websuite"]}'""")
    kept = {"method:password": "yes", "method:totp": "yes", "method:provider:websuite": "yes"}
    warning = "No longer set up here, so no user can sign in this way: Websuite."
    assert warning in text_of(await owner_browser.submit(f"{PAGE}/preview", PAGE, **kept))
    assert warning not in text_of(await owner_browser.submit(f"{PAGE}/preview", PAGE, **{"method:password": "yes"}))
    version = hidden_fields(await owner_browser.open(PAGE))["version"]
    refused = await owner_browser.submit(PAGE, PAGE, **kept, **{"method:email": "yes"}, version=version)
    assert "No user can sign in with email here. Leave it out, or set it up first." in text_of(refused)


async def test_the_security_page_says_which_organization_or_application_asks_for_what(
    owner_browser: FakeBrowser, ports: Ports, pool: Pool
) -> None:
    async def asked() -> str:
        page = text_of(await owner_browser.open("/app/account/security"))
        return page.partition("Rules of your organizations and applications")[2].partition("Devices")[0]

    assert await asked() == ""
    rules = {"second_factor": "admins", "high_risk": "yes", "session_lifetime_minutes": "720", "invited_domains": "acme.com"}
    assert leads_to(await save(owner_browser, grace_days="14", **rules)) == PAGE
    later = "from 28 March 2026 at 15:09 UTC Longest session: 12 hours"
    assert f"Acme Second factor: for owners and admins and when the risk is high, {later}" in await asked()
    await run_sql(pool, "update memberships set role = 'member'")
    of_acme = f"Acme Second factor: when the risk is high, {later}"
    assert of_acme in await asked()
    [(org, user)] = await run_sql(pool, "select org_id, user_id from memberships")
    shop = await add_service(pool, org, "shop")
    put = "insert into sign_in_policies (id, org_id, service_id, rules, changed_at) values (%s, %s, %s, %s, now())"
    await run_sql(pool, put, uuid4(), org, shop, '{"phishing_resistant": ["everyone"]}')
    await run_sql(pool, "update services set access_policy = 'assigned'")
    assert "Shop" not in await asked(), "the user may not use it"
    await run_sql(pool, "update services set access_policy = 'anyone'")
    await add_service_user(ports, shop, user)
    assert [(await asked()).count(text) for text in (of_acme, "Shop Passkey: for everyone")] == [1, 1]
    await run_sql(pool, "delete from memberships")
    assert [(await asked()).count(text) for text in (of_acme, "Shop Passkey: for everyone")] == [1, 1], "an end user alone"
    await run_sql(pool, "update services set required_acr = 'mfa'")
    text = await asked()
    assert ("Shop Passkey: for everyone Second factor: for everyone" in text, text.count("Shop")) == (True, 1), "the settings, too"
