"""Kept forms, which were sent with a sign-in that was too old: what keeps, sends and ends them (security G-2)."""

import re
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from quart_trio import QuartTrio

import core
from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.authentication.model.sessions import KEPT_FOR, MAX_KEPT
from entrypoints.http.edge.size_limits import MAX_BODY
from tests.fakes.outside import FakeClock
from tests.support.browser import ACCOUNT, FakeBrowser, form_token, hidden_fields, leads_to, main_of
from tests.support.builders import NEW_PASSWORD, PASSWORD, Answer, run_concurrently, run_sql
from tests.support.connections.proofs import connection_proof, older_sessions, write_proofs
from tests.support.saml.browser import SamlBrowser
from tests.support.tenants import Tenant

PAGE = "/app/reauthenticate"
NEW_TOKEN = f"{ACCOUNT}/personal-tokens/new"
FILLED = {"name": "Nightly <export>", "scope:account:read": "yes", "expires_in_days": "30"}
OLD = older_sessions("1 day")
TEN_MINUTES = timedelta(minutes=10, seconds=1)


@pytest.fixture
async def browser(browser: SamlBrowser, clock: FakeClock, user: Account) -> SamlBrowser:
    """A browser with a session that needs a reauthentication."""
    await browser.sign_in()
    clock.advance(TEN_MINUTES)
    return browser


async def confirm(browser: FakeBrowser, answer: Answer) -> Answer:
    """Follow a refusal to the page that asks, enter the password there, and return the page that follows."""
    asking = leads_to(answer)
    assert asking.startswith(f"{PAGE}?"), asking
    fields = hidden_fields(await browser.open(asking))
    return await browser.open(leads_to(await browser.send(PAGE, **fields, password=PASSWORD)))


async def count(pool: Pool) -> int:
    return int((await run_sql(pool, "select count(*) from kept_forms"))[0][0])


async def tokens(pool: Pool) -> list[str]:
    return [name for (name,) in await run_sql(pool, "select name from personal_tokens")]


async def test_the_page_with_the_button_shows_nothing_of_what_was_typed(browser: SamlBrowser, pool: Pool) -> None:
    page = await confirm(browser, await browser.submit(NEW_TOKEN, NEW_TOKEN, **FILLED))
    assert ("Create a personal access token" in page.text, "Nightly" in page.text, await tokens(pool)) == (True, False, [])
    assert (await browser.send(NEW_TOKEN, **hidden_fields(page))).status == 200
    assert (await tokens(pool), await count(pool)) == (["Nightly <export>"], 0)


async def test_a_form_for_the_account_waits_for_a_way_of_its_own(browser: SamlBrowser, pool: Pool, clock: FakeClock, user: Account) -> None:
    opened = hidden_fields(await browser.open(NEW_TOKEN))
    await write_proofs(pool, user.id, (connection_proof(UUID(int=1), clock.now()),))
    refused = await browser.send(NEW_TOKEN, **opened, **FILLED)
    asking = await browser.open(leads_to(refused))
    assert "with a way of your own account" in asking.text
    page = await confirm(browser, refused)
    assert (await browser.send(NEW_TOKEN, **hidden_fields(page))).status == 200
    assert (await tokens(pool), await count(pool)) == (["Nightly <export>"], 0)


async def test_a_button_that_was_clicked_too_late_keeps_what_was_typed(browser: SamlBrowser, pool: Pool, clock: FakeClock) -> None:
    page = await confirm(browser, await browser.submit(NEW_TOKEN, NEW_TOKEN, **FILLED))
    clock.advance(TEN_MINUTES)
    page = await confirm(browser, await browser.send(NEW_TOKEN, **hidden_fields(page)))
    assert (await browser.send(NEW_TOKEN, **hidden_fields(page))).status == 200
    assert await tokens(pool) == ["Nightly <export>"]


async def test_a_form_of_another_site_is_not_kept(browser: SamlBrowser, pool: Pool) -> None:
    token = form_token(await browser.open(NEW_TOKEN))
    foreign = [
        await browser.send(NEW_TOKEN, **FILLED),
        await browser.send(NEW_TOKEN, form_token="0" * 64, **FILLED),
        await browser.send(NEW_TOKEN, (b"sec-fetch-site", b"cross-site"), form_token=token, **FILLED),
    ]
    assert [answer.status for answer in foreign] == [403, 403, 403]
    assert await count(pool) == 0


async def test_another_session_of_the_same_user_cannot_send_a_form(app: QuartTrio, browser: SamlBrowser, pool: Pool) -> None:
    page = await confirm(browser, await browser.submit(NEW_TOKEN, NEW_TOKEN, **FILLED))
    other = FakeBrowser(app)
    await other.sign_in()
    kept = hidden_fields(page)["kept_form"]
    assert (await other.open(f"{PAGE}?form={kept}")).status == 400
    assert "was already sent, or has expired" in (await other.open(leads_to(await other.submit(NEW_TOKEN, kept_form=kept)))).text
    assert (await tokens(pool), await count(pool)) == ([], 1)


async def test_a_form_that_has_ended_leads_to_its_page(browser: SamlBrowser, pool: Pool, clock: FakeClock) -> None:
    answer = await browser.submit(NEW_TOKEN, NEW_TOKEN, **FILLED)
    asking = leads_to(answer)
    fields = hidden_fields(await confirm(browser, answer))
    clock.advance(KEPT_FOR)
    await browser.submit(PAGE, asking.partition("form=")[0] + "next=/app/account", password=PASSWORD)
    ended = await browser.open(leads_to(await browser.send(NEW_TOKEN, **fields)))
    assert (ended.status, f'href="{NEW_TOKEN}"' in ended.text) == (400, True)
    above = f"{ACCOUNT}/two-factor"
    ended = await browser.open(leads_to(await browser.submit(f"{above}/setup", kept_form=fields["kept_form"])))
    assert (ended.status, f'href="{above}"' in ended.text) == (400, True)
    assert await tokens(pool) == []


async def test_a_session_keeps_a_few_forms_within_the_limit_of_bodies(browser: SamlBrowser, pool: Pool) -> None:
    token = form_token(await browser.open(NEW_TOKEN))
    largest = "x" * (MAX_BODY - 500)
    await run_concurrently(20, lambda number: browser.send(NEW_TOKEN, form_token=token, name=f"{number}"))
    assert await count(pool) == MAX_KEPT
    leads_to(await browser.send(NEW_TOKEN, form_token=token, name=largest))
    assert (await browser.send(NEW_TOKEN, form_token=token, name=largest + "x" * 500)).status == 413
    assert await count(pool) == MAX_KEPT


async def test_the_end_of_the_session_ends_its_forms(browser: SamlBrowser, pool: Pool) -> None:
    leads_to(await browser.submit(NEW_TOKEN, NEW_TOKEN, **FILLED))
    assert await count(pool) == 1
    token = form_token(await browser.open(NEW_TOKEN))
    paths = ["/app/sign-out" if number == 5 else NEW_TOKEN for number in range(20)]
    answers = await run_concurrently(20, lambda number: browser.send(paths[number], form_token=token, name="Late"))
    assert {answer.status for answer in answers} == {303}
    assert await count(pool) == 0


async def test_a_form_is_kept_again_if_the_new_sign_in_gets_too_old(acme: Tenant, browser: SamlBrowser, pool: Pool, user: Account) -> None:
    await run_sql(pool, "update memberships set user_id = %s where org_id = %s and role = 'owner'", user.id, acme.org)
    await run_sql(pool, OLD)
    invitations = "/app/organizations/acme/invitations"
    admin = {"addresses": "new@example.com", "role": "admin"}
    page = await confirm(browser, await browser.submit(f"{invitations}/new", f"{invitations}/new", **admin))
    await run_sql(pool, OLD)
    page = await confirm(browser, await browser.send(f"{invitations}/new", **hidden_fields(page)))
    assert await run_sql(pool, "select 1 from invitations") == []
    assert (await browser.send(f"{invitations}/new", **hidden_fields(page))).status == 200
    assert await run_sql(pool, "select email, role from invitations") == [("new@example.com", "admin")]
    await run_sql(pool, OLD)
    [(invitation,)] = await run_sql(pool, "select id from invitations")
    resend = f"{invitations}/{invitation}/resend"
    page = await confirm(browser, await browser.submit(resend, invitations))
    assert f'href="{invitations}">Cancel' in page.text
    assert leads_to(await browser.send(resend, **hidden_fields(page))) == invitations
    assert await run_sql(pool, "select count(*) from invitations") == [(2,)]


async def test_settings_are_kept_too(acme: Tenant, browser: SamlBrowser, pool: Pool, user: Account) -> None:
    await run_sql(pool, "update memberships set user_id = %s where org_id = %s and role = 'owner'", user.id, acme.org)
    settings, body = "/app/organizations/acme/settings", {"name": "Acme", "device_trust_days": "90", "personal_tokens": "yes"}
    await run_sql(pool, OLD)
    page = await confirm(browser, await browser.submit(settings, settings, **body))
    assert leads_to(await browser.send(settings, **hidden_fields(page))) == settings
    assert await run_sql(pool, "select device_trust_days from organizations where id = %s", acme.org) == [(90,)]


# The use cases that ask for a younger sign-in than their routes, and where their pages are tested.
LATE = {
    "accounts/email_changes.py": "the route of the page needs the same sign-in: tests/proof/access/pages/test_old_sessions.py",
    "federation/connections/platform_requests.py": "tests/federation/api/social/links/test_link_over_api.py",
}


def test_every_use_case_that_asks_later_than_its_route_has_a_tested_page() -> None:
    root = Path(core.__file__ or "").parent
    asks = re.compile(r"\brequire_(fresh_)?sign_in\(")
    calls = {str(path.relative_to(root)) for path in root.rglob("*.py") if asks.search(path.read_text())}
    assert calls - {"kernel/access.py", "accounts/factor_changes.py"} == LATE.keys()


async def test_a_form_with_a_password_is_not_kept(browser: SamlBrowser, pool: Pool, clock: FakeClock) -> None:
    page = f"{ACCOUNT}/password"
    await confirm(browser, await browser.open(page))
    token = form_token(await browser.open(page))
    clock.advance(TEN_MINUTES)
    refused = await browser.send(page, form_token=token, current_password=PASSWORD, new_password=NEW_PASSWORD)
    assert (leads_to(refused), await count(pool)) == (f"{PAGE}?next=%2Fapp%2Faccount%2Fpassword&empty=yes", 0)
    assert "fill in the form again" in (await browser.open(leads_to(refused))).text
    assert leads_to(await confirm(browser, refused)) == page
    assert "Fill in the form again" in (await browser.open(page)).text


async def test_the_page_marks_the_field_that_is_wrong(browser: SamlBrowser) -> None:
    asking = leads_to(await browser.open(f"{ACCOUNT}/password"))
    for password, message in (("a wrong password", "The password is wrong."), ("", "Enter your password.")):
        page = await browser.submit(PAGE, asking, next=f"{ACCOUNT}/password", password=password)
        assert (message in page.text, main_of(page).count("aria-invalid"), "API" in page.text) == (True, 1, False)
