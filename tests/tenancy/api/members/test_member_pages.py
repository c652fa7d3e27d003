"""The member pages and the console's search: what an admin finds, and what the pages say without results."""

import re

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import ADMIN, MEMBER, ROLES, Capability
from ports import Ports
from tests.support.browser import FakeBrowser, leads_to, main_of
from tests.support.builders import PASSWORD, add_account, add_member, add_organization, run_sql
from tests.support.services import add_service, add_service_user
from tests.tenancy.groups import add_group

MEMBERS, SEARCH = "/app/organizations/acme/members", "/app/organizations/acme/search"
HOSTILE = "<b>ada</b>"


@pytest.fixture
async def admin(app: QuartTrio, ports: Ports, pool: Pool) -> FakeBrowser:
    """A browser for an admin at acme, which has two more members."""
    acme = await add_organization(pool, "acme")
    for email, role in (("grace@example.com", ADMIN), ("zoe@example.com", MEMBER), ("ada@example.com", MEMBER)):
        user = await add_account(ports, email, PASSWORD)
        await add_member(pool, acme, user.id, role, confirmed=True)
    browser = FakeBrowser(app)
    await browser.sign_in("grace@example.com", PASSWORD)
    return browser


async def test_members_are_found_by_a_part_of_the_address_and_sorted(admin: FakeBrowser) -> None:
    everyone = (await admin.open(MEMBERS)).text
    assert everyone.index("zoe@example.com") < everyone.index("ada@example.com")
    by_address = (await admin.open(f"{MEMBERS}?sort=email")).text
    assert by_address.index("ada@example.com") < by_address.index("zoe@example.com")
    found = (await admin.open(f"{MEMBERS}?search=ZOE&sort=email")).text
    assert "1 member matches." in found
    assert "ada@example.com" not in found
    assert '<input type="hidden" name="sort" value="email">' in found, "a filter keeps the order"
    nothing = (await admin.open(f"{MEMBERS}?search={HOSTILE}")).text
    assert "No member matches these filters." in nothing
    assert HOSTILE not in nothing
    assert (await admin.open(f"{MEMBERS}?sort=age")).status == 400


async def test_the_list_has_second_factors_last_sign_ins_and_pending_invitations(admin: FakeBrowser) -> None:
    path = "/app/organizations/acme/invitations/new"
    await admin.submit(path, path, addresses="new@example.com", role="member")
    page = main_of(await admin.open(MEMBERS))
    assert page.index("new@example.com") < page.index("zoe@example.com"), "pending invitations come first"
    assert page.count('data-label="Protection"') == page.count('data-label="Last sign-in"') == 3
    by_role = {role: main_of(await admin.open(f"{MEMBERS}?role={role}&sort=email")) for role in ("admin", "member")}
    assert ("new@example.com" in by_role["admin"], "new@example.com" in by_role["member"]) == (False, True)
    assert [f"search={text}" for text in ("zoe", "new@") if "new@" in main_of(await admin.open(f"{MEMBERS}?search={text}"))] == [
        "search=new@"
    ]
    assert "new@example.com" not in main_of(await admin.open(f"{MEMBERS}?page=2&limit=1")), "only before the first page"
    without = main_of(await admin.open(f"{MEMBERS}?state=admins_without_mfa"))
    assert [text in without for text in ("1 member matches.", "grace@example.com", "zoe@", "new@")] == [True, True, False, False]
    overview = main_of(await admin.open("/app/organizations/acme"))
    assert f'href="{MEMBERS}?state=admins_with_password_alone"' in overview


async def test_only_those_who_manage_members_see_second_factors(app: QuartTrio, admin: FakeBrowser) -> None:
    member = FakeBrowser(app)
    await member.sign_in("zoe@example.com", PASSWORD)
    page = main_of(await member.open(MEMBERS))
    assert ("grace@example.com" in page, "Protection" in page, "Last sign-in" in page) == (True, False, False)
    assert (await member.open(f"{MEMBERS}?state=without_mfa")).status == 403


async def test_each_action_on_a_member_has_a_page(admin: FakeBrowser) -> None:
    [zoe] = re.findall(rf'href="({MEMBERS}/[^"]+)">zoe@', (await admin.open(MEMBERS)).text)
    page = main_of(await admin.open(zoe))
    assert re.findall(f'href="{zoe}/([a-z-]+)"', page) == ["attributes", "end-sessions", "password-reset", "remove"], (
        "only owners change roles, and acme did not create this account"
    )
    assert "<form" not in page
    for action in ("end-sessions", "password-reset"):
        assert leads_to(await admin.submit(f"{zoe}/{action}", f"{zoe}/{action}")) == zoe


async def test_pages_show_and_ask_only_what_the_api_would_allow(app: QuartTrio, admin: FakeBrowser, ports: Ports, pool: Pool) -> None:
    """The caller manages members and users, but has no admin rights, and does not see the users in groups."""
    rights = [*ROLES[MEMBER].rights - {Capability.ORGANIZATION_VIEW, Capability.END_USERS_VIEW}, "members.manage", "end_users.manage"]
    await run_sql(pool, "update organizations set members_see_end_users = false")
    role = """
        insert into organization_roles (id, org_id, slug, name, description, capabilities, created_at, updated_at)
        select gen_random_uuid(), id, 'keeper', 'Keeper', '', %s, now(), now() from organizations returning org_id"""
    [(org,)] = await run_sql(pool, role, sorted(rights))
    await run_sql(pool, "update memberships set role = 'keeper' where user_id = (select id from users where email like 'zoe@%%')")
    service = await add_service(pool, org)
    ids = {str(email): id_ for email, id_ in await run_sql(pool, "select split_part(email, '@', 1), id from users")}
    for name in ("grace", "ada"):
        await add_service_user(ports, service, ids[name])
    await add_group(pool, org, ids["ada"], name="Secret group")
    keeper = FakeBrowser(app)
    await keeper.sign_in("zoe@example.com", PASSWORD)
    assert "Secret group" not in main_of(await keeper.open(f"{MEMBERS}/{ids['ada']}"))
    assert "Secret group" in main_of(await admin.open(f"{MEMBERS}/{ids['ada']}"))
    both = ("end-sessions", "password-reset", "recovery", "recovery/cancel")
    of_members = [f"members/{{}}/{each}" for each in (*both, "remove", "attributes")]
    of_users = [f"users/{{}}/{each}" for each in (*both, "block", "second-factor")]

    async def statuses(action: str) -> list[int]:
        return [(await keeper.open(f"/app/organizations/acme/{action.format(ids[name])}")).status for name in ("grace", "ada")]

    assert {action: await statuses(action) for action in of_members} == {action: [403, 200] for action in of_members}
    assert {action: await statuses(action) for action in of_users} == {action: [403, 403] for action in of_users}
    await run_sql(pool, "update organization_roles set capabilities = capabilities || '{end_users.view}'")
    assert {action: await statuses(action) for action in of_users} == {action: [403, 200] for action in of_users}


async def test_invitations_are_found_by_a_part_of_the_address(admin: FakeBrowser) -> None:
    path = "/app/organizations/acme/invitations"
    assert "No invitations yet." in (await admin.open(path)).text
    sent = await admin.submit(f"{path}/new", f"{path}/new", addresses="new@example.com, other@example.com", role="member")
    assert sent.status == 200
    assert "new@example.com" in sent.text
    found = (await admin.open(f"{path}?search=NEW@")).text
    assert "new@example.com" in found
    assert "other@example.com" not in found
    assert "No invitation matches these filters." in (await admin.open(f"{path}?search=nothing&status=pending")).text


async def test_an_invitation_is_sent_again_with_a_button(admin: FakeBrowser) -> None:
    path = "/app/organizations/acme/invitations"
    await admin.submit(f"{path}/new", f"{path}/new", addresses="new@example.com", role="member")
    [button] = re.findall(rf'action="({path}/[^"/]+/resend)"', (await admin.open(path)).text)
    assert leads_to(await admin.submit(button)) == path
    page = (await admin.open(path)).text
    assert "Invitation sent again." in page
    assert page.count(">Pending</span>") == 1
    assert button not in page


async def test_the_search_finds_members_and_says_if_nothing_matches(admin: FakeBrowser) -> None:
    assert f'href="{MEMBERS}/' in (await admin.open(f"{SEARCH}?search=zoe")).text
    assert f'href="{MEMBERS}"' in (await admin.open(f"{SEARCH}?search=memb")).text
    [path] = set(re.findall(rf'href="({MEMBERS}/[^"]+)"', (await admin.open(f"{SEARCH}?search=zoe")).text))
    user_id = path.rpartition("/")[2]
    for text in (user_id, user_id.upper()):
        assert f'href="{path}"' in (await admin.open(f"{SEARCH}?search={text}")).text
    assert f'<code class="copied">{user_id}</code>' in (await admin.open(path)).text
    nothing = (await admin.open(f"{SEARCH}?search={HOSTILE}")).text
    assert "Nothing matches" in nothing
    assert HOSTILE not in nothing
