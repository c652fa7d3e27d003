"""Forms after their session has ended: sealed in the page, for the same user and organization, and only shown (decision 441)."""

from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from lxml import html

from adapters.postgres.engine.pool import Pool
from core.authentication.forms import MAX_SEALED, RESTORABLE_FOR
from core.kernel.roles import ADMIN
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.browser import ACCOUNT, FakeBrowser, action_of, hidden_fields, leads_to
from tests.support.builders import Answer, add_account, add_member, add_organization, run_sql
from tests.support.services import SCOPES, add_api_resource, add_service

ROOT = "/app/organizations/acme"
NEW = f"{ROOT}/applications/new"
FILLED = {
    "kind": "spa",
    "name": 'The <b>"Shop"</b> & Söhne\u202e',
    "redirect_uris": "https://shop.example/a\nhttps://shop.example/b",
    "policy": "members_and_assigned",
}
ENDED = "Your session has ended"
RESTORED = "Your session had ended, so nothing was sent."
GONE = "more than 15 minutes ago, or by another user"


async def end_session(pool: Pool) -> None:
    await run_sql(pool, "update sessions set ended_at = created_at where ended_at is null")


async def fill(browser: FakeBrowser, page: str = f"{NEW}?kind=spa", **fields: str) -> dict[str, str]:
    """Return this page's form fields, filled in."""
    return {**hidden_fields(await browser.open(page)), **(fields or FILLED)}


async def sign_in_again(browser: FakeBrowser, email: str | None = None) -> None:
    await browser.sign_in(**({} if email is None else {"email": email}))
    assert await browser.is_in()


async def show(browser: FakeBrowser, page: Answer) -> Answer:
    """Press the button on the page that keeps the form."""
    return await browser.send(action_of(page), sealed_form=hidden_fields(page)["sealed_form"])


def values(page: Answer) -> dict[str, str]:
    """Return what the page's fields show."""
    tree = html.document_fromstring(page.text)
    shown = tree.xpath("//main//input[@name][not(@type='hidden')][not(@type='radio') or @checked]")
    inputs = {str(each.get("name")): str(each.get("value") or "") for each in shown}
    return inputs | {str(each.get("name")): str(each.text_content()).strip() for each in tree.xpath("//main//textarea[@name]")}


async def rows(pool: Pool) -> list[Any]:
    return await run_sql(pool, "select id from services")


@pytest.mark.parametrize("loses_cookie", [False, True])
async def test_a_form_comes_back_as_it_was_and_is_not_sent(owner_browser: FakeBrowser, pool: Pool, loses_cookie: bool) -> None:
    form = await fill(owner_browser)
    await end_session(pool)
    if loses_cookie:  # the user signed out in another tab
        owner_browser.cookies.clear()
    page = await owner_browser.send(NEW, **form)
    assert (page.status, ENDED in page.text, "Shop" in page.text, "shop.example" in page.text) == (400, True, False, False)
    again = await show(owner_browser, page)
    assert (again.status, "You aren't signed in yet." in unescape(again.text)) == (400, True)
    await sign_in_again(owner_browser)
    shown = await show(owner_browser, again)
    assert (shown.status, RESTORED in shown.text) == (400, True)
    assert {name: text for name, text in values(shown).items() if text} == {
        name: FILLED[name] for name in ("name", "redirect_uris", "policy")
    }
    assert ("<b>" in shown.text, await rows(pool)) == (False, [])
    sent = await owner_browser.send(NEW, **{**hidden_fields(shown), **values(shown), "name": "Shop", "proposed": "yes"})
    assert (sent.status, len(await rows(pool))) == (200, 1)


async def test_a_user_who_is_signed_in_again_in_another_tab_sees_the_form_at_once(owner_browser: FakeBrowser, pool: Pool) -> None:
    form = await fill(owner_browser)
    await end_session(pool)
    await sign_in_again(owner_browser)
    shown = await owner_browser.send(NEW, **form)
    assert (shown.status, RESTORED in shown.text, values(shown)["name"], await rows(pool)) == (400, True, FILLED["name"], [])


async def test_boxes_that_the_user_cleared_come_back_cleared(owner_browser: FakeBrowser, pool: Pool) -> None:
    [(org,)] = await run_sql(pool, "select id from organizations")
    shop = await add_service(pool, org)
    api = await add_api_resource(pool, org, services=(shop,))
    [(client,)] = await run_sql(
        pool, "update api_resource_clients set own_scopes = %s returning (select client_id from services)", [*SCOPES]
    )
    path = f"{ROOT}/api-resources/{api}/applications/{client}"
    page = await owner_browser.open(path)
    await end_session(pool)
    await sign_in_again(owner_browser)
    shown = await owner_browser.send(path, **hidden_fields(page))  # a browser sends no cleared boxes
    assert (shown.status, RESTORED in shown.text) == (400, True)
    assert [each.text.count(" checked") for each in (page, shown)] == [len(SCOPES), 0]


async def test_another_user_does_not_see_the_form(owner_browser: FakeBrowser, pool: Pool, ports: Ports) -> None:
    other = await add_account(ports, "other@example.com")
    [(org,)] = await run_sql(pool, "select id from organizations")
    await add_member(pool, org, other.id, ADMIN, confirmed=True)
    form = await fill(owner_browser)
    await end_session(pool)
    page = await owner_browser.send(NEW, **form)
    await sign_in_again(owner_browser, "other@example.com")
    for answer in (await show(owner_browser, page), await owner_browser.send(NEW, **form)):
        assert (answer.status, GONE in answer.text, "Shop" in answer.text) == (400, True, False)
    assert await rows(pool) == []


async def test_the_form_comes_back_only_for_the_same_organization_and_path(owner_browser: FakeBrowser, pool: Pool) -> None:
    [(user,)] = await run_sql(pool, "select id from users")
    await add_member(pool, await add_organization(pool, "beta"), user, ADMIN, confirmed=True)
    form = await fill(owner_browser)
    await end_session(pool)
    sealed = hidden_fields(await owner_browser.send(NEW, **form))["sealed_form"]
    elsewhere = await owner_browser.send(f"{ROOT}/webhooks/new", sealed_form=sealed)
    assert leads_to(elsewhere).startswith("/app/sign-in?next=")
    await sign_in_again(owner_browser)
    for path in ("/app/organizations/beta/applications/new", f"{ROOT}/webhooks/new", f"{ACCOUNT}/profile"):
        answer = await owner_browser.send(path, sealed_form=sealed)
        assert (answer.status, GONE in answer.text, "Shop" in answer.text) == (400, True, False), path
    await run_sql(pool, "update organizations set slug = 'old' where slug = 'acme'")
    await run_sql(pool, "update organizations set slug = 'acme' where slug = 'beta'")
    assert (await owner_browser.send(NEW, sealed_form=sealed)).status == 400, "another organization with the same slug"


async def test_the_form_waits_for_fifteen_minutes(owner_browser: FakeBrowser, pool: Pool, clock: FakeClock) -> None:
    form = await fill(owner_browser)
    await end_session(pool)
    page = await owner_browser.send(NEW, **form)
    clock.advance(RESTORABLE_FOR - timedelta(seconds=1))
    page = await show(owner_browser, page)  # does not prolong it
    await sign_in_again(owner_browser)
    assert RESTORED in (await show(owner_browser, page)).text
    clock.advance(timedelta(seconds=1))
    assert GONE in (await show(owner_browser, page)).text
    await end_session(pool)
    assert leads_to(await show(owner_browser, page)).startswith("/app/sign-in?next=")


@pytest.mark.parametrize("sealed", ["", "x", "AAAA", "\u00e4", "x" * 5000, "e30="])
async def test_a_made_up_form_is_refused(owner_browser: FakeBrowser, pool: Pool, sealed: str) -> None:
    assert (await owner_browser.send(NEW, sealed_form=sealed)).status == 400
    assert (await owner_browser.send(NEW, form_token="0" * 64, form_of=sealed, **FILLED)).status == 403
    await end_session(pool)
    for fields in ({"sealed_form": sealed}, {"form_of": sealed, **FILLED}, FILLED):
        assert leads_to(await owner_browser.send(NEW, **fields)).startswith("/app/sign-in?next=")


async def test_a_form_of_another_site_is_not_kept(owner_browser: FakeBrowser, pool: Pool) -> None:
    form = await fill(owner_browser)
    await end_session(pool)
    answer = await owner_browser.send(NEW, (b"sec-fetch-site", b"cross-site"), **form)
    assert (answer.status, "Set-Cookie" in answer.headers) == (403, False), "no page says that a form was lost"


async def test_passwords_are_not_kept(owner_browser: FakeBrowser, pool: Pool, ports: Ports) -> None:
    page = f"{ROOT}/mail-server"
    sent = {
        "host": "smtp.example.com",
        "port": "587",
        "username": "mailer",
        "password": "a secret of the server",
        "from_address": "a@example.com",
    }
    form = await fill(owner_browser, page, **sent)
    await end_session(pool)
    kept = await owner_browser.send(page, **form)
    assert ENDED in kept.text, kept.headers
    await sign_in_again(owner_browser)
    shown = await show(owner_browser, kept)
    assert (values(shown)["host"], "a secret of" in shown.text) == ("smtp.example.com", False)


async def test_a_private_key_does_not_come_back(owner_browser: FakeBrowser, pool: Pool) -> None:
    form = await fill(owner_browser, **{**FILLED, "name": "-----BEGIN PRIVATE KEY-----"})
    await end_session(pool)
    page = await owner_browser.send(NEW, **form)
    await sign_in_again(owner_browser)
    shown = await show(owner_browser, page)
    assert RESTORED in shown.text
    assert {name: text for name, text in values(shown).items() if text} == {name: FILLED[name] for name in ("redirect_uris", "policy")}


async def test_nothing_is_stored(owner_browser: FakeBrowser, pool: Pool) -> None:
    form = await fill(owner_browser)
    await end_session(pool)
    tables = [name for (name,) in await run_sql(pool, "select tablename from pg_tables where schemaname = 'public'")]
    count = " union all ".join(f"select '{name}', count(*) from {name}" for name in tables if name not in ("rates",))  # noqa: S608
    before = sorted(await run_sql(pool, count))
    await show(owner_browser, await owner_browser.send(NEW, **form))
    assert sorted(await run_sql(pool, count)) == before


async def test_a_form_that_is_too_long_is_lost_and_the_page_says_so(owner_browser: FakeBrowser, pool: Pool) -> None:
    form = await fill(owner_browser)
    await end_session(pool)
    answer = await owner_browser.send(NEW, **{**form, "redirect_uris": "x" * MAX_SEALED})
    page = await owner_browser.open(answer.headers["Location"])
    assert "Your session had ended, so nothing was saved." in page.text
