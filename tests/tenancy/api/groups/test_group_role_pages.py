"""The page for the role that a group gives, and the overview's notice about a stopped role."""

import pytest
from quart_trio import QuartTrio

from core.kernel.roles import MEMBER, ROLES, Capability, RoleName
from tests.support.browser import FakeBrowser, leads_to, main_of
from tests.support.builders import PASSWORD, add_account, run_sql
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin

pytestmark = pytest.mark.slow

PAGES = "/app/organizations/acme"
KEEPER = sorted(ROLES[MEMBER].rights - {Capability.ORGANIZATION_VIEW} | {Capability.ROLES_MANAGE, Capability.AUDIT_VIEW})


async def browser_of(app: QuartTrio, acme: Tenant, name: str) -> FakeBrowser:
    """Return a browser in which this member is signed in."""
    await run_sql(
        acme.pool, "update users set password_hash = %s where id = %s", await acme.ports.passwords.hash(PASSWORD), acme.people[name].id
    )
    browser = FakeBrowser(app)
    await browser.sign_in(acme.people[name].email, PASSWORD)
    return browser


async def test_a_role_is_given_stops_is_given_again_and_taken_on_pages(acme: Tenant, app: QuartTrio) -> None:
    for slug, capabilities in (("auditor", ["audit.view"]), ("keeper", KEEPER)):
        body = {"slug": slug, "name": slug.title(), "capabilities": capabilities}
        assert (await acme.api.post(f"{acme.path}/roles", body, token=acme.token("owner"))).status == 201
    await acme.join("keeper", await add_account(acme.ports, "keeper@acme.example", None), RoleName("keeper"))
    group = await GroupAdmin(acme).create("Auditors")
    await GroupAdmin(acme).add(group, acme.id("member"))
    path = f"{PAGES}/groups/{group}/role"
    keeper, owner, member = [await browser_of(app, acme, name) for name in ("keeper", "owner", "member")]
    choices = main_of(await owner.open(path))
    assert choices.index('value="auditor"') < choices.index('value="admin"'), "the form starts with the narrowest role"
    page = main_of(await keeper.open(path))
    assert 'value="auditor"' in page
    assert 'value="admin"' not in page, "the keeper lacks rights of it"
    assert leads_to(await keeper.submit(path, path, role="auditor")) == path
    wrong = await keeper.submit(path, path, role="admin")
    assert (wrong.status, "you may not give" in wrong.text) == (403, True)
    page = main_of(await keeper.open(path))
    assert "Auditor</bdi>" in page
    assert "keeper@acme.example" in page
    assert "Roles by groups" in main_of(await owner.open(f"{PAGES}/members/{acme.id('member')}"))
    assert "<form" not in main_of(await member.open(path)), "members see the role, and change nothing"
    assert "no longer gives" not in main_of(await owner.open(PAGES))
    assert (await acme.set_role("owner", "keeper", "member")).status == 200
    assert "A group no longer gives its role" in main_of(await owner.open(PAGES))
    assert "stopped" in main_of(await owner.open(f"{PAGES}/groups"))
    page = main_of(await owner.open(path))
    assert "This group no longer gives the role" in page
    assert "Give again" in page
    assert leads_to(await owner.submit(path, path, role="auditor")) == path
    assert "no longer gives" not in main_of(await owner.open(PAGES))
    assert leads_to(await owner.submit(f"{path}/remove", path)) == path
    assert await run_sql(acme.pool, "select role from groups") == [(None,)]


async def test_pages_offer_no_change_that_a_stronger_member_prevents(acme: Tenant, app: QuartTrio) -> None:
    """A keeper has all rights in the role, and another holder has one more right."""
    auditor = {"slug": "auditor", "name": "Auditor", "capabilities": ["audit.view"]}
    for body in (auditor, {"slug": "keeper", "name": "Keeper", "capabilities": [*KEEPER, "groups.manage"]}):
        assert (await acme.api.post(f"{acme.path}/roles", body, token=acme.token("owner"))).status == 201
    attribute = {"name": "team", "label": "Team", "kind": "text"}
    assert (await acme.api.post(f"{acme.path}/attributes", attribute, token=acme.token("owner"))).status == 201
    await acme.join("keeper", await add_account(acme.ports, "keeper@acme.example", None), RoleName("keeper"))
    admin = GroupAdmin(acme, "owner")
    group = await admin.create("Auditors")
    assert (await admin.call("PUT", f"/{group}/role", {"role": "auditor"})).status == 200
    keeper = await browser_of(app, acme, "keeper")
    path, role = f"{PAGES}/groups/{group}", f"{PAGES}/roles/auditor"
    offered = {
        f"{path}/role": "Save role",
        f"{path}/settings": "Delete group",
        f"{path}/attributes": "Save attributes",
        role: "Delete role",
    }

    async def shown() -> list[bool]:
        return [button in main_of(await keeper.open(page)) for page, button in offered.items()]

    assert await shown() == [True] * 4
    assert (await admin.add(group, acme.id("admin"))).status == 204
    assert await shown() == [False] * 4
    for page in offered:
        assert "has rights that you do not have yourself" in main_of(await keeper.open(page)), page
    assert (await keeper.open(f"{role}/delete")).status == 403
    for page in (path, role):
        assert (await keeper.open(page)).status == 200
    assert leads_to(await keeper.open(f"{path}?search=a&page=9")) == f"{path}?search=a", "a page after the last one"
