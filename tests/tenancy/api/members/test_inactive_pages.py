"""The pages for an organization that is not active: its owner and admins learn why, and its members are told to ask them."""

from html import unescape

import pytest

from tests.federation.api.relying import RelyingParty, add_relying_party, sign_in_browser
from tests.support.browser import FakeBrowser
from tests.support.builders import run_sql
from tests.support.tenants import Tenant

PAGE = "/app/organizations/acme/applications"
REASON = "The invoice of <b>March</b> is not paid."


@pytest.fixture
async def shop(acme: Tenant, browser: FakeBrowser) -> RelyingParty:
    await run_sql(acme.pool, "update organizations set status = 'suspended', suspended_reason = %s where id = %s", REASON, acme.org)
    return await add_relying_party(acme, browser)


@pytest.mark.parametrize("who", ["owner", "admin"])
async def test_its_owner_and_admins_are_told_why_it_is_suspended(shop: RelyingParty, who: str) -> None:
    await sign_in_browser(shop, shop.tenant.people[who])
    page = await shop.browser.open(PAGE)
    assert (page.status, "has suspended Acme" in page.text, REASON in unescape(page.text), REASON in page.text) == (403, True, True, False)
    assert "<h1>This organization isn't active</h1>" in unescape(page.text)


async def test_other_members_are_told_only_whom_to_ask(shop: RelyingParty) -> None:
    await sign_in_browser(shop, shop.tenant.people["member"])
    page = unescape((await shop.browser.open(PAGE)).text)
    assert ("Ask its owner or one of its admins." in page, REASON in page, "suspended" in page) == (True, False, False)


async def test_others_do_not_learn_that_it_exists(shop: RelyingParty, other_tenant: Tenant) -> None:
    await sign_in_browser(shop, other_tenant.people["owner"])
    assert (await shop.browser.open(PAGE)).status == 404


@pytest.mark.parametrize(
    ("status", "column", "text"), [("pending", None, "waits for the approval"), ("rejected", "rejected_reason", "did not approve Acme")]
)
async def test_its_owner_is_told_too_that_it_was_not_approved(shop: RelyingParty, status: str, column: str | None, text: str) -> None:
    reason = "" if column is None else f", {column} = 'Not a customer.'"
    await run_sql(shop.tenant.pool, f"update organizations set status = %s, suspended_reason = null{reason}", status)  # noqa: S608
    await sign_in_browser(shop, shop.tenant.people["owner"])
    page = await shop.browser.open(PAGE)
    assert (page.status, text in page.text, "Not a customer." in page.text) == (403, True, column is not None)


@pytest.mark.parametrize("who", ["owner", "admin", "member", "other", None])
async def test_the_sign_in_to_an_application_says_why_it_is_closed_to_those_who_manage_it(
    shop: RelyingParty, other_tenant: Tenant, who: str | None
) -> None:
    if who is not None:
        await sign_in_browser(shop, other_tenant.people["owner"] if who == "other" else shop.tenant.people[who])
    page = await shop.browser.open(shop.request())
    text = unescape(page.text)
    learns = who in ("owner", "admin")
    assert (page.status, "has suspended Acme" in text, REASON in text) == (403, learns, learns)
    assert ("Ask the people who run it." in text) is not learns
    assert "operator of Gatehouse about" not in text
