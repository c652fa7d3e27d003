"""Removing a member: the page names the applications that stay open, and blocks the person there (security T-3, decision 462)."""

import pytest
from lxml import html

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.roles import ADMIN, MEMBER, Capability, rights_of
from tests.applications.api.end_users.applications import Applications
from tests.fakes.outside import FakeClock
from tests.support.browser import FakeBrowser, leads_to, main_of
from tests.support.builders import PASSWORD, Answer, add_account, add_member, run_sql
from tests.support.refusals import refused
from tests.support.services import add_consent

MEMBERS = "/app/organizations/acme/members"
LABEL = "Block from all applications of Acme"
MISSING, INVALID = (404, "NOT_FOUND"), (400, "BAD_REQUEST")


@pytest.fixture
async def member(apps: Applications, pool: Pool, clock: FakeClock) -> Account:
    """A member who can sign in at the applications of both organizations."""
    account = apps.people["ada"] = await add_account(apps.acme.ports, "ada@people.example", PASSWORD)
    await add_member(pool, apps.acme.org, account.id, confirmed=True)
    await run_sql(pool, "update memberships set created_at = '2000-01-01' where user_id = %s", account.id)
    return account


@pytest.fixture
async def admin(apps: Applications, pool: Pool, browser: FakeBrowser) -> FakeBrowser:
    """The browser of an admin."""
    account = await add_account(apps.acme.ports, "grace@people.example", PASSWORD)
    await add_member(pool, apps.acme.org, account.id, ADMIN, confirmed=True)
    await browser.sign_in(account.email, PASSWORD)
    return browser


async def log_in(apps: Applications, service: str, org: str = "acme") -> int:
    body = {"email": apps.people["ada"].email, "password": PASSWORD, "org_slug": org, "service_slug": service}
    return (await apps.acme.api.post("/api/auth/login", body)).status


def box(page: Answer) -> bool | None:
    """Return whether the box that blocks is checked, or None without a box."""
    boxes = html.document_fromstring(page.text).xpath("//input[@name='block']")
    return None if not boxes else boxes[0].get("checked") is not None


async def remove(browser: FakeBrowser, member: Account, **fields: str) -> Answer:
    path = f"{MEMBERS}/{member.id}/remove"
    return await browser.submit(path, path, confirmation=member.email, **fields)


async def test_a_removed_and_blocked_member_is_out_of_every_application_at_once(
    apps: Applications, member: Account, admin: FakeBrowser, pool: Pool
) -> None:
    await run_sql(pool, "update services set access_policy = 'members' where slug = 'wiki'")
    ended, kept = await apps.session("ada", "shop"), await apps.session("ada", "other")
    for service in ("shop", "other"):
        await add_consent(pool, apps.services[service], member.id)
    page = await admin.open(f"{MEMBERS}/{member.id}/remove")
    text = main_of(page)
    assert ("<bdi>Shop</bdi>" in text, "Wiki" in text, LABEL in text, "They lose access" in text) == (True, False, True, False)
    assert box(page) is True
    assert leads_to(await remove(admin, member, block="yes")) == MEMBERS
    assert await apps.live_sessions(ended, kept) == [False, True]
    assert [await log_in(apps, "shop"), await log_in(apps, "wiki"), await log_in(apps, "shop", "twin")] == [403, 403, 200]
    assert await run_sql(pool, "select org_id from consents") == [(apps.other_tenant.org,)]
    assert await run_sql(pool, "select org_id, email from end_user_blocks") == [(apps.acme.org, member.email)]
    logged = [(entry["action"], entry["target_id"]) for entry in await apps.acme.log()]
    assert [each for each in logged if each[1] == str(member.id)][-2:] == [
        ("user.removed", str(member.id)),
        ("user.blocked", str(member.id)),
    ]
    assert await apps.other_tenant.log() == []


async def test_without_the_block_only_applications_without_a_membership_stay_open(
    apps: Applications, member: Account, admin: FakeBrowser, pool: Pool
) -> None:
    await run_sql(pool, "update services set access_policy = 'members' where slug = 'wiki'")
    assert leads_to(await remove(admin, member)) == MEMBERS
    assert [await log_in(apps, "shop"), await log_in(apps, "wiki")] == [200, 403]
    assert await run_sql(pool, "select count(*) from end_user_blocks") == [(0,)]


async def test_the_page_says_so_if_no_application_stays_open(apps: Applications, member: Account, admin: FakeBrowser, pool: Pool) -> None:
    for policy in ("members", "assigned", "members_and_assigned"):
        await run_sql(pool, "update services set access_policy = %s", policy)
        text = main_of(await admin.open(f"{MEMBERS}/{member.id}/remove"))
        assert ("They lose access to all applications" in text, "Shop" in text, LABEL in text) == (True, False, True), policy


async def test_the_block_is_not_proposed_for_a_person_who_was_an_end_user_before(
    apps: Applications, member: Account, admin: FakeBrowser, pool: Pool
) -> None:
    await apps.use("ada", "shop")
    since = "update end_users e set created_at = m.created_at + %s * interval '1 day' from memberships m where m.user_id = e.user_id"
    await run_sql(pool, since, 1)
    assert box(await admin.open(f"{MEMBERS}/{member.id}/remove")) is True, "they used it as a member"
    await run_sql(pool, since, -1)
    page = await admin.open(f"{MEMBERS}/{member.id}/remove")
    assert (box(page), "They used an application before they were members" in main_of(page)) == (False, True)
    wrong = await admin.submit(f"{MEMBERS}/{member.id}/remove", f"{MEMBERS}/{member.id}/remove", confirmation="wrong", block="yes")
    assert (wrong.status, box(wrong)) == (400, True), "the answer stays"


async def test_the_page_offers_no_block_that_exists_or_that_the_admin_may_not_make(
    apps: Applications, member: Account, admin: FakeBrowser, pool: Pool
) -> None:
    block = "insert into end_user_blocks (org_id, user_id, email, since) values (%s, %s, 'x', now())"
    await run_sql(pool, block, apps.acme.org, member.id)
    page = await admin.open(f"{MEMBERS}/{member.id}/remove")
    assert (box(page), "blocked from all applications already" in main_of(page)) == (None, True)
    await run_sql(pool, "delete from end_user_blocks")
    role = await apps.acme.api.post(
        f"{apps.acme.path}/roles",
        {
            "slug": "keeper",
            "name": "Keeper",
            "capabilities": sorted((rights_of(MEMBER) | {Capability.MEMBERS_MANAGE}) - {Capability.ORGANIZATION_VIEW}),
        },
        token=apps.acme.token("owner"),
    )
    assert role.status == 201, role.text
    [(keeper,)] = await run_sql(pool, "select id from users where email = 'grace@people.example'")
    assert (
        await apps.acme.api.patch(f"{apps.acme.path}/members/{keeper}", {"role": "keeper"}, token=apps.acme.token("owner"))
    ).status == 200
    page = await admin.open(f"{MEMBERS}/{member.id}/remove")
    assert (box(page), "Ask an admin who manages users to block them there." in main_of(page)) == (None, True)
    assert (await remove(admin, member, block="yes")).status == 403
    assert await run_sql(pool, "select count(*) from memberships where user_id = %s", member.id) == [(1,)], "nothing was removed"
    assert leads_to(await remove(admin, member)) == MEMBERS


async def test_several_members_are_removed_and_blocked(apps: Applications, member: Account, admin: FakeBrowser, pool: Pool) -> None:
    other = apps.acme.people["member"]
    people = {f"user:{each.id}": "yes" for each in (member, other)}
    query = "&".join([f"{name}=yes" for name in people])
    page = await admin.open(f"/app/organizations/acme/selected-people?action=remove&{query}")
    assert (box(page), "<bdi>Shop</bdi>" in main_of(page)) == (True, True)
    form = {**people, "confirmation": "2 members", "block": "yes"}
    done = await admin.submit(
        "/app/organizations/acme/selected-people/remove", f"/app/organizations/acme/selected-people?action=remove&{query}", **form
    )
    assert leads_to(done) == MEMBERS
    blocked = await run_sql(pool, "select user_id from end_user_blocks where org_id = %s", apps.acme.org)
    assert {user for (user,) in blocked} == {member.id, other.id}


async def test_the_api_blocks_members_and_former_members_of_the_own_organization_only(
    apps: Applications, member: Account, pool: Pool
) -> None:
    path = f"{apps.acme.path}/users/{member.id}/block"
    token, stranger = apps.acme.token("admin"), apps.other_tenant.token("owner")
    foreign = f"{apps.other_tenant.path}/users/{member.id}/block"
    assert refused(await apps.acme.api.call("PUT", foreign, token=stranger)) == MISSING
    assert (await apps.acme.api.call("PUT", path, token=token)).status == 204
    assert (await apps.acme.api.delete(path, token=token)).status == 204
    removed = await apps.acme.api.post(f"{apps.acme.path}/members/{member.id}", token=token)
    assert (removed.status, removed.json) == (200, {"message": "The member was removed."})
    await run_sql(pool, "update users set email = 'later@example.com' where id = %s", member.id)
    assert refused(await apps.acme.api.call("PUT", foreign, token=stranger)) == MISSING
    assert (await apps.acme.api.call("PUT", path, token=token)).status == 204
    listed = await apps.acme.api.get(f"{apps.acme.path}/users?blocked=true", token=token)
    assert member.email in {user["email"] for user in listed.json["users"]}
    assert "later@example.com" not in listed.text
