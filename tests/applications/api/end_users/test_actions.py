"""Admins' actions on an end user: reset links, blocks, and removing a second factor (decision 462)."""

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.roles import ADMIN
from tests.applications.api.end_users.applications import Applications
from tests.fakes.outside import FakeClock
from tests.support.browser import FakeBrowser, leads_to, main_of
from tests.support.builders import PASSWORD, Answer, add_account, add_member, run_concurrently, run_sql
from tests.support.mfa import add_mfa
from tests.support.refusals import refused

PICTURE = "insert into images (user_id, key, small, large, created_at) values (%s, 'key', '', '', now())"
NOT_ALLOWED, INVALID, MISSING = (403, "FORBIDDEN"), (400, "BAD_REQUEST"), (404, "NOT_FOUND")


async def act(apps: Applications, method: str, name: str, action: str, by: str = "admin") -> Answer:
    path = f"{apps.acme.path}/users/{apps.people[name].id}/{action}"
    return await apps.acme.api.call(method, path, token=apps.acme.token(by))


async def with_password(apps: Applications, name: str, *services: str) -> Account:
    """Add an end user who uses these services and can sign in."""
    account = apps.people[name] = await add_account(apps.acme.ports, f"{name}@people.example", PASSWORD)
    for service in services:
        await apps.use(name, service)
    return account


async def log_in(apps: Applications, name: str, service: str = "shop", org: str = "acme") -> Answer:
    body = {"email": apps.people[name].email, "password": PASSWORD, "org_slug": org, "service_slug": service}
    return await apps.acme.api.post("/api/auth/login", body)


async def test_a_blocked_user_is_refused_at_the_services_of_the_organization_only(apps: Applications, pool: Pool) -> None:
    user = await with_password(apps, "ada", "shop", "wiki", "other")
    ended, kept = await apps.session("ada", "shop"), await apps.session("ada", "other")
    assert (await log_in(apps, "ada")).status == 200
    assert (await act(apps, "PUT", "ada", "block")).status == 204
    assert await apps.live_sessions(ended, kept) == [False, True]
    assert [(await log_in(apps, "ada", service)).status for service in ("shop", "wiki")] == [403, 403]
    assert (await log_in(apps, "ada", "shop", "twin")).status == 200
    reasons = "select distinct reason from login_events where not success and user_id = %s"
    assert await run_sql(pool, reasons, user.id) == [("blocked",)]
    assert (await apps.show("ada", by="admin")).json["blocked_at"] is not None
    assert [user["blocked"] for user in (await apps.page(by="admin")).json["users"]] == [True]
    assert (await act(apps, "PUT", "ada", "block")).status == 204, "nothing changes"
    assert (await act(apps, "DELETE", "ada", "block")).status == 204
    assert (await act(apps, "DELETE", "ada", "block")).status == 204
    assert (await log_in(apps, "ada")).status == 200
    entries = [(entry["action"], entry["target_id"], entry["details"]) for entry in await apps.acme.log()]
    assert sorted(entries) == [("user.blocked", str(user.id), {}), ("user.unblocked", str(user.id), {"whole_account": False})]
    assert await apps.other_tenant.log() == []


async def test_the_block_of_a_user_who_left_the_services_is_listed_and_ended(apps: Applications, browser: FakeBrowser, pool: Pool) -> None:
    user = await with_password(apps, "ada", "shop")
    await apps.person("bob", "shop")
    admin = await with_password(apps, "grace")
    await add_member(pool, apps.acme.org, admin.id, ADMIN, confirmed=True)
    assert (await act(apps, "PUT", "ada", "block")).status == 204
    await add_mfa(apps.acme.ports, user)
    await run_sql(pool, "delete from services where slug = 'shop'")
    await run_sql(pool, "delete from end_users where user_id = %s", user.id)
    await run_sql(pool, "update users set email = 'private@example.com' where id = %s", user.id)
    assert (await log_in(apps, "ada", "wiki")).status == 401, "the address has changed"
    listed = (await apps.acme.api.get(f"{apps.acme.path}/users?blocked=true", token=apps.acme.token("admin"))).json["users"]
    assert [(each["email"], each["services"], each["mfa_enabled"], each["blocked"]) for each in listed] == [(user.email, [], False, True)]
    assert refused(await act(apps, "PUT", "ada", "block")) == MISSING
    await browser.sign_in(admin.email, PASSWORD)
    users = "/app/organizations/acme/users"
    assert user.email in main_of(await browser.open(f"{users}?blocked=true"))
    path = f"{users}/{user.id}/unblock"
    assert leads_to(await browser.submit(path, path)) == users
    assert refused(await act(apps, "DELETE", "ada", "block")) == MISSING, "there is neither a block nor a service"
    assert (await apps.acme.actions())["user.unblocked"] == 1
    assert await run_sql(pool, "select count(*) from end_user_blocks") == [(0,)]


async def test_the_page_of_a_member_shows_a_block_and_ends_it(apps: Applications, browser: FakeBrowser, pool: Pool) -> None:
    admin = await with_password(apps, "grace")
    await add_member(pool, apps.acme.org, admin.id, ADMIN, confirmed=True)
    member = apps.people["member"] = apps.acme.people["member"]
    await apps.use("member", "shop")
    await browser.sign_in(admin.email, PASSWORD)
    page, unblock = f"/app/organizations/acme/members/{member.id}", f"/app/organizations/acme/users/{member.id}/unblock"
    assert unblock not in main_of(await browser.open(page))
    assert (await act(apps, "PUT", "member", "block")).status == 204
    text = main_of(await browser.open(page))
    assert ("Blocked" in text, f'href="{unblock}"' in text) == (True, True)
    assert leads_to(await browser.submit(unblock, unblock)) == unblock.removesuffix("/unblock")


@pytest.mark.parametrize("policy", ["anyone", "members", "assigned"])
async def test_no_policy_admits_a_blocked_user(apps: Applications, pool: Pool, policy: str) -> None:
    user = await with_password(apps, "ada", "shop")
    await add_member(pool, apps.acme.org, user.id, confirmed=True)
    await run_sql(pool, "update service_users set enrolled_by = 'admin'")
    await run_sql(pool, "update services set access_policy = %s", policy)
    assert (await log_in(apps, "ada")).status == 200
    assert (await act(apps, "PUT", "ada", "block")).status == 204
    assert (await log_in(apps, "ada")).status == 403


async def test_owners_and_admins_cannot_be_blocked(apps: Applications) -> None:
    for name in ("owner", "admin"):
        apps.people[name] = apps.acme.people[name]
        await apps.use(name, "shop")
        assert refused(await act(apps, "PUT", name, "block")) == INVALID
    apps.people["member"] = apps.acme.people["member"]
    await apps.use("member", "shop")
    assert (await act(apps, "PUT", "member", "block")).status == 204


async def test_a_reset_link_goes_to_the_own_address_of_a_user_who_can_get_it(apps: Applications, pool: Pool) -> None:
    user = await apps.person("ada", "shop")
    assert (await act(apps, "POST", "ada", "password-reset")).status == 200
    assert await run_sql(pool, "select kind, address, org_id from mails") == [("member_reset", user.email, apps.acme.org)]
    await apps.person("eve", "shop", email_verified_at=None)
    await apps.person("bob", "other")
    apps.people["owner"] = apps.acme.people["owner"]
    await apps.use("owner", "shop")
    outcomes = {name: refused(await act(apps, "POST", name, "password-reset")) for name in ("eve", "bob", "owner")}
    assert outcomes == {"eve": INVALID, "bob": MISSING, "owner": INVALID}
    assert (await apps.acme.actions())["security.password.reset_sent"] == 1


async def test_only_the_organization_that_alone_controls_an_account_removes_its_second_factor(apps: Applications, pool: Pool) -> None:
    user = await apps.person("ada", "shop")
    await add_mfa(apps.acme.ports, user)
    session = await apps.session("ada", "shop")
    assert refused(await act(apps, "DELETE", "ada", "mfa")) == NOT_ALLOWED, "the user created the account"
    await run_sql(pool, "update users set origin = 'api_key', origin_org_id = %s where id = %s", apps.acme.org, user.id)
    await apps.use("ada", "other")
    assert refused(await act(apps, "DELETE", "ada", "mfa")) == NOT_ALLOWED, "another organization uses it"
    await run_sql(pool, "delete from service_users where org_id <> %s", apps.acme.org)
    await run_sql(pool, "delete from end_users where org_id <> %s", apps.acme.org)
    await add_member(pool, apps.acme.org, user.id, "admin")
    by_admin = await act(apps, "DELETE", "ada", "mfa")
    assert refused(by_admin) == NOT_ALLOWED, "it is the account of an admin"
    assert "Owners and admins remove their second factor themselves" in by_admin.text
    await run_sql(pool, "update memberships set role = 'member' where user_id = %s", user.id)
    await run_sql(pool, "update users set deactivated_at = now() where id = %s", user.id)
    assert refused(await act(apps, "DELETE", "ada", "mfa")) == INVALID, "it is deactivated"
    await run_sql(pool, "update users set deactivated_at = null where id = %s", user.id)
    assert (await act(apps, "DELETE", "ada", "mfa")).status == 204
    assert await run_sql(pool, "select mfa_enabled_at from users where id = %s", user.id) == [(None,)]
    assert await apps.live_sessions(session) == [False]
    assert await run_sql(pool, "select kind, address from mails") == [("mfa_removed", user.email)]
    assert (await apps.acme.entry("security.mfa.disabled"))["details"] == {"forced": True, "factor": "totp"}
    assert (await act(apps, "DELETE", "ada", "mfa")).status == 204, "it is off already"
    names = [name for name, *_ in await apps.acme.webhook_events()]
    assert sorted(names) == ["security.mfa.disabled", "user.mfa.disabled"]


async def test_the_page_of_a_user_has_a_menu_with_a_page_for_each_action(
    apps: Applications, browser: FakeBrowser, pool: Pool, clock: FakeClock
) -> None:
    user = await apps.person("ada", "shop")
    own = "update users set mfa_enabled_at = now(), origin = 'api_key', origin_org_id = %s where id = %s"
    await run_sql(pool, own, apps.acme.org, user.id)
    admin = await with_password(apps, "grace")
    await add_member(pool, apps.acme.org, admin.id, ADMIN, confirmed=True)
    await browser.sign_in(admin.email, PASSWORD)
    path = f"/app/organizations/acme/users/{user.id}"
    await run_sql(pool, PICTURE, user.id)
    page = main_of(await browser.open(path))
    for each in (page, main_of(await browser.open("/app/organizations/acme/users"))):
        assert "<img" not in each, "an organization sees the pictures of its confirmed members only"
    for action in ("end-sessions", "password-reset", "second-factor", "block"):
        assert f'href="{path}/{action}"' in page
        assert f"<bdi>{user.email}</bdi>" in (await browser.open(f"{path}/{action}")).text
    await run_sql(pool, "update users set origin = 'platform', origin_org_id = null where id = %s", user.id)
    assert f'href="{path}/second-factor"' not in main_of(await browser.open(path)), "it would be refused"
    refused_page = await browser.submit(f"{path}/second-factor", f"{path}/second-factor")
    assert (refused_page.status, "does not manage this account alone" in refused_page.text) == (403, True)
    for action in ("end-sessions", "password-reset", "block"):
        assert leads_to(await browser.submit(f"{path}/{action}", f"{path}/{action}")) == path
    assert "Blocked" in main_of(await browser.open("/app/organizations/acme/users"))
    assert f'href="{path}/unblock"' in main_of(await browser.open(path))
    assert leads_to(await browser.submit(f"{path}/unblock", f"{path}/unblock")) == path


@pytest.mark.slow
async def test_no_session_of_a_concurrent_sign_in_survives_a_block(apps: Applications, pool: Pool) -> None:
    await with_password(apps, "ada", "shop")
    answers = await run_concurrently(12, lambda number: act(apps, "PUT", "ada", "block") if number == 6 else log_in(apps, "ada"))
    assert {answer.status for answer in answers} <= {200, 204, 403, 429}
    assert await run_sql(pool, "select count(*) from sessions where service_id = %s and ended_at is null", apps.services["shop"]) == [(0,)]
