"""The page with the user's organizations (security R-6)."""

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from tests.accounts.api.account_pages.paths import ORGANIZATIONS, next_page_text, page_text
from tests.support.browser import ACCOUNT, FakeBrowser
from tests.support.builders import add_member, add_organization, run_sql


async def test_a_member_leaves_an_organization_and_keeps_the_session(browser: FakeBrowser, user: Account, pool: Pool) -> None:
    acme, own = await add_organization(pool, "acme"), await add_organization(pool, "own")
    await add_member(pool, acme, user.id)
    await add_member(pool, own, user.id, "owner")
    assert "Acme member Own owner" in page_text(await browser.open(ACCOUNT))
    page = await browser.open(ORGANIZATIONS)
    assert "Leave Acme" in page_text(page)
    assert "Leave Own" not in page_text(page)
    answer = await browser.submit(f"{ORGANIZATIONS}/acme/leave", ORGANIZATIONS)
    text = await next_page_text(browser, answer)
    assert "You left the organization." in text
    assert "Acme" not in text
    assert await run_sql(pool, "select org_id from memberships where user_id = %s", user.id) == [(own,)]


async def test_the_owner_and_others_cannot_leave(browser: FakeBrowser, user: Account, pool: Pool) -> None:
    own = await add_organization(pool, "own")
    await add_member(pool, own, user.id, "owner")
    await add_organization(pool, "acme")
    for slug, status in (("own", 400), ("acme", 403), ("missing", 404)):
        assert (await browser.submit(f"{ORGANIZATIONS}/{slug}/leave", ACCOUNT)).status == status
    assert await run_sql(pool, "select org_id from memberships where user_id = %s", user.id) == [(own,)]


async def test_the_page_without_organizations(browser: FakeBrowser) -> None:
    for path in (ACCOUNT, ORGANIZATIONS):
        assert "You are not a member of any organization." in page_text(await browser.open(path))


async def test_a_member_confirms_a_membership_that_others_began(browser: FakeBrowser, user: Account, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    await add_member(pool, org, user.id)
    page = await browser.open(ORGANIZATIONS)
    assert "Confirm" in page.text
    answer = await browser.submit(f"{ORGANIZATIONS}/acme/confirm", ORGANIZATIONS)
    assert answer.status == 303, answer.text
    assert await run_sql(pool, "select confirmed_at is not null from memberships where user_id = %s", user.id) == [(True,)]
    assert "/confirm" not in (await browser.open(ORGANIZATIONS)).text
    await add_organization(pool, "other")
    for slug, status in (("other", 403), ("none", 404)):
        assert (await browser.submit(f"{ORGANIZATIONS}/{slug}/confirm", ACCOUNT)).status == status
