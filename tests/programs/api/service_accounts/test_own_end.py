"""When a person leaves or deletes their account, their service accounts go on for 72 hours, and no longer (security #own-end)."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from core.accounts.model.accounts import Account
from core.kernel.roles import ADMIN, ROLES, Capability
from core.kernel.values import digest, new_id
from core.programs import service_accounts
from core.programs.model.service_accounts import ServiceAccountEnds, TakenOverCredentials
from core.provisioning.model.schemas import USER_URN
from ports import Ports
from tests.accounts.email_changes import undo
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.programs.service_accounts import Robot, add_robot, sign_token, try_add_credential
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import Answer, add_account, deliver, run_concurrently, run_sql, sign_in
from tests.support.platform import Platform
from tests.support.programs import Program
from tests.support.scim import Directory, directory_of
from tests.support.services import add_api_resource
from tests.support.tenants import Tenant

GRANTS: Final[dict[str, Any]] = {"role": "chief", "granted_capabilities": ["roles.manage", "members.manage", "integrations.manage"]}
CHIEF: Final = ROLES[ADMIN].rights - {Capability.ORGANIZATION_VIEW} | {Capability.ROLES_MANAGE}
LINK: Final = {"name": "Globex", "kind": "mailed", "recipient": "it@globex.example", "days": 7, "parts": ["domain"]}
GOES_ON: Final = timedelta(hours=72)
UNDO: Final = str(new_id())
End = Callable[[Tenant], Awaitable[Answer]]


async def leave(acme: Tenant) -> Answer:
    return await acme.api.post(f"{acme.path}/leave", token=acme.token("admin"))


async def delete_account(acme: Tenant) -> Answer:
    return await acme.api.delete("/api/user", token=acme.token("admin"))


async def delete_account_that_can_be_undone(acme: Tenant) -> Answer:
    """Close the account: a link in an email from the last 72 hours can undo a change."""
    await run_sql(
        acme.pool,
        "insert into security_notices (id, user_id, kind, address, created_at, undo_until, undo_token_hash) "
        "values (%s, %s, 'password_changed', %s, %s, %s, %s)",
        new_id(),
        acme.people["admin"].id,
        acme.people["admin"].email,
        acme.ports.clock.now(),
        acme.ports.clock.now() + GOES_ON,
        digest(UNDO),
    )
    return await delete_account(acme)


OWN_ENDS: Final = (leave, delete_account, delete_account_that_can_be_undone)


async def add_robot_of_admin(acme: Tenant, **fields: Any) -> Robot:
    """Add a service account that the admin answers for, with the admin's secret. The owner granted its capabilities.

    The admin may also give roles.
    """
    role = {"slug": "chief", "name": "Chief", "capabilities": sorted(CHIEF)}
    assert (await acme.api.post(f"{acme.path}/roles", role, token=acme.token("owner"))).status == 201
    assert (await acme.set_role("owner", "admin", "chief")).status == 200
    robot = await add_robot(acme, "owner", **{**GRANTS, "owner_id": acme.id("admin"), **fields})
    await run_sql(acme.pool, "update credentials set created_by = %s where client_id = %s", acme.people["admin"].id, robot.id)
    return robot


def renewed(robot: Robot) -> Robot:
    """Return the account with a new access token, as it gets a token at any time."""
    return replace(robot, token=sign_token(robot.tenant.ports, robot.tenant, robot.id, robot.credential_id))


async def status(robot: Robot, path: str = "/members") -> int:
    return (await renewed(robot).call("GET", path)).status


async def listed(robot: Robot) -> dict[str, Any]:
    return dict((await robot.tenant.api.get(robot.path, token=robot.tenant.token("owner"))).json)


async def links(acme: Tenant) -> list[str | None]:
    """Return how the set-up links ended."""
    return [row[0] for row in await run_sql(acme.pool, "select ended_by from setup_links")]


async def settle(ports: Ports) -> None:
    await service_accounts.end_due(ports, new_id())


@pytest.mark.parametrize("end", OWN_ENDS)
async def test_the_accounts_go_on_for_72_hours_as_they_were(
    acme: Tenant, other_tenant: Tenant, ports: Ports, clock: FakeClock, sent: FakeMailTransport, end: End
) -> None:
    robot, other = await add_robot_of_admin(acme), await add_robot(acme, "owner", role="member")
    elsewhere = await add_robot(other_tenant, "admin", role="member")
    assert (await robot.invite("ada@example.com", "admin")).status == 200
    assert (await robot.set_role("member", "admin")).status == 200
    assert (await robot.call("POST", "/setup-links", LINK)).status == 201
    ended_at = clock.now()
    assert (await end(acme)).status in (200, 204)
    assert [await status(each) for each in (robot, other, elsewhere)] == [200, 200, 200]
    shown = await listed(robot)
    assert (shown["ends_at"], shown["is_active"], sorted(shown["granted_capabilities"])) == (
        (ended_at + GOES_ON).isoformat().replace("+00:00", "Z"),
        True,
        ["integrations.manage", "members.manage", "roles.manage"],
    )
    assert (await listed(other))["ends_at"] is None
    assert (await renewed(robot).invite("bob@example.com", "admin")).status == 200, "with the rights that it had"

    await deliver(ports)
    mails = {str(mail.to) for mail in sent.emails if mail.subject.startswith("Robot will end in 72 hours")}
    assert mails == {str(acme.people[name].email) for name in ("owner", "member")}, "the person who left gets none"
    overview = await acme.api.get(f"{acme.path}/overview", token=acme.token("owner"))
    assert {"task": "service_accounts_ending", "count": 1} in overview.json["pending_tasks"]

    clock.advance(GOES_ON - timedelta(seconds=1))
    await settle(ports)
    assert (await status(robot), (await acme.roles())["member"], await links(acme)) == (200, "admin", [None])
    clock.advance(timedelta(seconds=1))
    assert [await status(each) for each in (robot, other, elsewhere)] == [401, 200, 200]
    await acme.sign_in("owner")
    assert (await listed(robot))["is_active"] is False
    await settle(ports)
    assert [await status(each) for each in (robot, other, elsewhere)] == [401, 200, 200]
    assert await acme.statuses() == {"ada@example.com": "cancelled", "bob@example.com": "cancelled"}
    assert ((await acme.roles())["member"], await links(acme)) == ("member", ["rights"])
    actions = [entry["action"] for entry in await acme.log() if entry["target_id"] == str(robot.id)]
    assert [action for action in actions if action.endswith(("ending", "ended"))][:2] == ["service_account.ending", "service_account.ended"]
    assert (await listed(robot))["ends_at"] is None
    assert await run_sql(acme.pool, "select 1 from credentials where client_id = %s", robot.id) == [], "its maker knows them"


async def add_credential(robot: Robot) -> Answer:
    return await try_add_credential(robot.tenant, robot.path)


async def patch(robot: Robot, **fields: Any) -> Answer:
    return await robot.tenant.api.patch(robot.path, fields, token=robot.tenant.token("owner"))


async def test_the_accounts_get_nothing_new(acme: Tenant) -> None:
    role: dict[str, Any] = {"slug": "reader", "name": "Reader", "capabilities": ["members.view", "integrations.manage"]}
    assert (await acme.api.post(f"{acme.path}/roles", role, token=acme.token("owner"))).status == 201
    robot = await add_robot_of_admin(acme, role="reader", granted_capabilities=[], scopes=["members:read", "members:write"])
    assert (await leave(acme)).status == 204
    refused = [
        await add_credential(robot),
        await patch(robot, scopes=["members:read", "members:write", "integrations:read"]),
        await patch(robot, scopes=None),
        await patch(robot, granted_capabilities=["integrations.manage"]),
    ]
    assert [(answer.status, answer.json["error"]) for answer in refused] == [(400, ServiceAccountEnds.__doc__)] * 4
    assert (await patch(robot, role="admin")).status == 400
    assert (await patch(robot, name="Renamed")).status == 200
    capabilities = {"capabilities": [*role["capabilities"], "members.manage"]}
    assert await status(robot, "/invitations") == 403
    widened = await acme.api.patch(f"{acme.path}/roles/reader", capabilities, token=acme.token("owner"))
    assert (widened.status, await status(robot, "/invitations")) == (200, 403), "its role has the right, and the account does not"
    assert await status(robot) == 200


@pytest.mark.parametrize("end", OWN_ENDS)
async def test_rights_can_be_taken_away(acme: Tenant, end: End) -> None:
    role: dict[str, Any] = {"slug": "reader", "name": "Reader", "capabilities": ["members.view", "members.manage"]}
    assert (await acme.api.post(f"{acme.path}/roles", role, token=acme.token("owner"))).status == 201
    robot = await add_robot_of_admin(acme)
    resource = await add_api_resource(acme.pool, acme.org, scopes={"orders:read": "Read.", "orders:write": "Write."})

    async def give(*scopes: str) -> int:
        return (await acme.api.call("PUT", f"{robot.path}/api-resources/{resource}", {"scopes": scopes}, token=acme.token("owner"))).status

    assert await give("orders:read", "orders:write") == 200
    await end(acme)
    steps: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
        ({"granted_capabilities": ["members.manage", "integrations.manage"]}, {"granted_capabilities": GRANTS["granted_capabilities"]}),
        ({"role": "admin"}, {"role": "chief"}),
        ({"scopes": ["members:read", "members:write"]}, {"scopes": None}),
        ({"role": "reader"}, {"role": "admin"}),
        ({"scopes": ["members:read"]}, {"scopes": ["members:read", "members:write"]}),
        ({"granted_capabilities": []}, {"granted_capabilities": ["members.manage"]}),
    )
    for less, more in steps:
        assert ((await patch(robot, **less)).status, (await patch(robot, **more)).status) == (200, 400), less
    assert (await give("orders:read"), await give("orders:read", "orders:write"), await give("orders:write")) == (200, 400, 400)
    assert await status(robot) == 200, "it goes on"
    assert (await acme.api.delete(f"{robot.path}/api-resources/{resource}", token=acme.token("owner"))).status == 204
    assert await give("orders:read") == 400


async def test_no_token_outlives_an_account_that_ends(acme: Tenant, clock: FakeClock) -> None:
    robot = await add_robot_of_admin(acme)
    secret = (await try_add_credential(acme, robot.path, "admin")).json
    program = Program(acme.api, robot.id, secret["secret"], UUID(secret["id"]))
    assert (await leave(acme)).status == 204
    clock.advance(GOES_ON - timedelta(minutes=1))
    assert (await program.ask()).json["expires_in"] == 60
    await acme.sign_in("owner")
    await acme.join("admin", acme.people["admin"], ADMIN)
    assert (await acme.set_role("owner", "admin", "chief")).status == 200
    assert (await program.ask()).json["expires_in"] > 60, "the owner is back, and the account does not end"


@pytest.mark.parametrize("end", OWN_ENDS)
async def test_a_member_takes_an_account_over(acme: Tenant, ports: Ports, clock: FakeClock, end: End) -> None:
    robot = await add_robot_of_admin(acme, role="admin", granted_capabilities=["members.manage"])
    await acme.join("ada", await add_account(acme.ports, "ada@acme.example"), ADMIN)
    await end(acme)
    taken = await acme.api.patch(robot.path, {"owner_id": acme.id("ada")}, token=acme.token("ada"))
    assert (taken.status, taken.json["ends_at"], taken.json["is_active"]) == (200, None, True)
    assert taken.json["credentials_notice"] == TakenOverCredentials.END_LATER
    assert (await try_add_credential(acme, robot.path, "ada")).status == 201
    assert await status(robot) == 200
    clock.advance(GOES_ON)
    await settle(ports)
    assert await status(robot) == 401, "the former owner knows its earlier secret"
    await acme.sign_in("owner")
    assert (await listed(robot))["is_active"] is True


async def widen_own_role(acme: Tenant, robot: Robot) -> Answer:
    capabilities = {"capabilities": ["members.view", "members.manage", "integrations.manage"]}
    return await acme.api.patch(f"{acme.path}/roles/reader", capabilities, token=acme.token("owner"))


async def give_resource_scopes(acme: Tenant, robot: Robot) -> Answer:
    resource = await add_api_resource(acme.pool, acme.org, scopes={"orders:read": "Read."})
    return await acme.api.call("PUT", f"{robot.path}/api-resources/{resource}", {"scopes": ["orders:read"]}, token=acme.token("owner"))


WIDENINGS: Final[tuple[Callable[[Tenant, Robot], Awaitable[Answer]], ...]] = (
    lambda _, robot: patch(robot, role="admin"),
    lambda _, robot: patch(robot, scopes=None),
    lambda _, robot: patch(robot, granted_capabilities=["integrations.manage"]),
    widen_own_role,
    give_resource_scopes,
)


@pytest.mark.parametrize("end", [leave, delete_account_that_can_be_undone])
@pytest.mark.parametrize("widen", WIDENINGS)
async def test_the_former_owner_gets_nothing_that_the_account_gets_later(
    acme: Tenant, end: End, widen: Callable[[Tenant, Robot], Awaitable[Answer]]
) -> None:
    role: dict[str, Any] = {"slug": "reader", "name": "Reader", "capabilities": ["members.view", "integrations.manage"]}
    assert (await acme.api.post(f"{acme.path}/roles", role, token=acme.token("owner"))).status == 201
    robot = await add_robot_of_admin(acme, role="reader", granted_capabilities=[], scopes=["members:read"])
    await end(acme)
    assert (await patch(robot, owner_id=acme.id("owner"))).status == 200
    assert (await add_credential(robot)).status == 201
    assert await status(robot) == 200, "the program goes on"
    widened = await widen(acme, robot)
    assert (widened.status, await status(robot)) == (200, 401), widened.text
    assert len(await run_sql(acme.pool, "select 1 from credentials where client_id = %s", robot.id)) == 1, "that of the new owner"


async def remove_again(acme: Tenant, platform: Platform) -> None:
    """Remove the person after they have come back."""
    await run_sql(acme.pool, "delete from memberships where user_id = %s", acme.people["admin"].id)
    await acme.join("admin", acme.people["admin"], ADMIN)
    assert (await acme.remove("owner", "admin")).status == 200


async def remove_too_late(acme: Tenant, platform: Platform) -> None:
    """Remove the person who has left just before. A member with fewer rights cannot."""
    role: dict[str, Any] = {"slug": "remover", "name": "Remover", "capabilities": ["members.manage"]}
    assert (await acme.api.post(f"{acme.path}/roles", role, token=acme.token("owner"))).status == 201
    assert (await acme.set_role("owner", "member", "remover")).status == 200
    path = f"{acme.path}/members/{acme.people['admin'].id}"
    [(active,)] = await run_sql(acme.pool, "select count(*) from service_accounts where ends_at > %s", acme.ports.clock.now())
    statuses = [(await acme.api.post(path, {}, token=acme.token(by))).status for by in ("member", "owner", "owner")]
    assert (active, statuses) == (1, [404, 200, 404])
    assert await run_sql(acme.pool, "select actor_id from audit_log where action = 'service_account.ended'") == [(acme.people["owner"].id,)]


async def block(acme: Tenant, platform: Platform) -> None:
    token = await acme.api.post(f"{acme.path}/scim-tokens", {"name": "Okta"}, token=acme.token("owner"))
    change = {
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
        "Operations": [{"op": "replace", "path": "active", "value": False}],
    }
    answer = await acme.api.patch(f"/scim/v2/Users/{acme.id('admin')}", change, token=token.json["token"])
    assert answer.status == 200, answer.text


async def remove(acme: Tenant, platform: Platform) -> None:
    assert (await acme.remove("owner", "admin")).status == 200


async def demote(acme: Tenant, platform: Platform) -> None:
    assert (await acme.set_role("owner", "admin", "member")).status == 200


async def deactivate(acme: Tenant, platform: Platform) -> None:
    path = f"/api/platform/users/{acme.id('admin')}/deactivate"
    assert (await platform.api.post(path, {"reason": "stolen"}, token=platform.token)).status == 200


async def anonymize(acme: Tenant, platform: Platform) -> None:
    assert (await platform.api.delete(f"/api/privacy/forget/{acme.id('admin')}", token=platform.token)).status in (200, 204)


async def end_now(acme: Tenant, platform: Platform) -> None:
    [(account,)] = await run_sql(acme.pool, "select id from service_accounts")
    answers = await run_concurrently(
        5, lambda _: acme.api.post(f"{acme.path}/service-accounts/{account}/end", {}, token=acme.token("owner"))
    )
    assert {answer.status for answer in answers} == {204}
    assert len(await run_sql(acme.pool, "select 1 from audit_log where action = 'service_account.ended'")) == 1


@pytest.mark.parametrize("others", [remove_again, remove_too_late, deactivate, anonymize, end_now])
async def test_acts_by_others_end_the_accounts_at_once(
    acme: Tenant, platform: Platform, ports: Ports, others: Callable[..., Awaitable[None]]
) -> None:
    robot = await add_robot_of_admin(acme)
    assert (await robot.invite("ada@example.com", "admin")).status == 200
    await leave(acme)
    assert await status(robot) == 200
    await others(acme, platform)
    assert await status(robot) == 401
    await settle(ports)
    assert (await acme.statuses())["ada@example.com"] == "cancelled"
    assert await run_sql(acme.pool, "select 1 from credentials where client_id = %s", robot.id) == []


@pytest.mark.parametrize("others", [remove, demote, block, deactivate, anonymize, end_now])
async def test_acts_by_others_end_the_accounts_of_a_deleted_person(
    acme: Tenant, platform: Platform, others: Callable[..., Awaitable[None]]
) -> None:
    robot = await add_robot_of_admin(acme)
    await delete_account_that_can_be_undone(acme)
    assert await status(robot) == 200
    await others(acme, platform)
    assert await status(robot) == 401


async def test_the_button_works_also_if_the_person_is_back(acme: Tenant, ports: Ports) -> None:
    robot = await add_robot_of_admin(acme)
    assert (await robot.invite("ada@example.com", "admin")).status == 200
    await leave(acme)
    await acme.join("admin", acme.people["admin"], ADMIN)
    assert (await acme.set_role("owner", "admin", "chief")).status == 200
    assert await status(robot) == 200
    ended = await acme.api.post(f"{robot.path}/end", {}, token=acme.token("owner"))
    assert (ended.status, await status(robot), (await listed(robot))["ends_at"]) == (204, 401, None)
    assert (await acme.statuses())["ada@example.com"] == "cancelled"
    assert (await add_credential(robot)).status == 201, "the person answers for it again, and begins anew"


async def put_inactive(directory: Directory, person: Account) -> Answer:
    return await directory.call("PUT", f"/Users/{person.id}", {"schemas": [USER_URN], "userName": person.email, "active": False})


OFFBOARDINGS: Final[tuple[tuple[Callable[[Directory, Account], Awaitable[Answer]], int], ...]] = (
    (lambda directory, person: directory.deactivate(person.id), 404),
    (put_inactive, 404),
    (lambda directory, person: directory.delete(person.id), 404),
    (lambda directory, person: directory.try_create_user(person.email, active=False), 409),
)


@pytest.mark.parametrize(("offboard", "refusal"), OFFBOARDINGS)
async def test_the_directory_ends_the_accounts_of_a_person_who_has_left(
    acme: Tenant, other_tenant: Tenant, ports: Ports, offboard: Callable[[Directory, Account], Awaitable[Answer]], refusal: int
) -> None:
    robot, person = await add_robot_of_admin(acme), acme.people["admin"]
    await leave(acme)
    directory, elsewhere = await directory_of(acme), await directory_of(other_tenant)
    await offboard(elsewhere, person)
    assert (await directory.activate(person.id)).status == 404, "the directory has forgotten the person"
    assert (await directory.try_create_user(person.email)).status == 409
    assert await status(robot) == 200
    assert ((await offboard(directory, person)).status, await status(robot)) == (refusal, 401)
    assert await run_sql(acme.pool, "select actor_kind from audit_log where action = 'service_account.ended'") == [("scim_token",)]
    await settle(ports)
    assert await run_sql(acme.pool, "select 1 from credentials where client_id = %s", robot.id) == []


async def test_an_undone_deletion_leaves_everything_as_before(acme: Tenant, ports: Ports, clock: FakeClock) -> None:
    robot = await add_robot_of_admin(acme)
    await delete_account_that_can_be_undone(acme)
    clock.advance(timedelta(hours=1))
    assert (await undo(acme.api, UNDO)).status == 200
    await settle(ports)
    await acme.sign_in("owner")
    shown = await listed(robot)
    assert (shown["ends_at"], shown["is_active"], (await add_credential(robot)).status) == (None, True, 201)
    clock.advance(GOES_ON)
    await settle(ports)
    assert await status(robot) == 200
    await acme.sign_in("owner")
    assert (await acme.remove("owner", "admin")).status == 200
    assert await status(robot) == 401, "a removal ends it at once, as before"


async def test_of_leaving_twice_and_a_deletion_at_once_one_takes_effect(acme: Tenant, ports: Ports, clock: FakeClock) -> None:
    robot = await add_robot_of_admin(acme)
    answers = await run_concurrently(6, lambda number: (leave, leave, delete_account)[number % 3](acme))
    assert all(answer.status in (200, 204, 401, 403, 404) for answer in answers), [answer.status for answer in answers]
    assert await status(robot) == 200
    assert len(await run_sql(acme.pool, "select 1 from audit_log where action = 'service_account.ending'")) == 1
    clock.advance(GOES_ON)
    assert await status(robot) == 401
    await run_concurrently(5, lambda _: settle(ports))
    assert len(await run_sql(acme.pool, "select 1 from audit_log where action = 'service_account.ended'")) == 1


async def test_the_page_shows_the_end_and_has_the_button(acme: Tenant, app: QuartTrio) -> None:
    robot = await add_robot_of_admin(acme, role="admin", granted_capabilities=["members.manage"])
    await acme.join("ada", await add_account(acme.ports, "ada@acme.example"), ADMIN)
    await leave(acme)
    browser = FakeBrowser(app)
    await browser.sign_in("ada@acme.example")
    page = f"/app/organizations/acme/service-accounts/{robot.id}"
    assert "A service account ends soon" in (await browser.open("/app/organizations/acme")).text
    assert "Ends" in (await browser.open("/app/organizations/acme/service-accounts")).text
    shown = (await browser.open(page)).text
    assert ("The owner of this service account has left" in shown, "End now" in shown) == (True, True)
    credential = {"kind": "secret", "name": "Spare"}
    refused = await browser.submit(f"{page}/credentials/new", f"{page}/credentials/new", **credential)
    assert (refused.status, "Make yourself its owner first" in refused.text) == (400, True)
    ended = await browser.submit(f"{page}/end", page)
    assert (ended.status, await status(robot)) == (303, 401)
    assert "stopped" in (await browser.open(page)).text


async def test_the_button_ends_no_account_that_a_member_has_taken_over(acme: Tenant, app: QuartTrio) -> None:
    """The page with the button was opened before."""
    robot = await add_robot_of_admin(acme, role="admin", granted_capabilities=["members.manage"])
    await acme.join("ada", await add_account(acme.ports, "ada@acme.example"), ADMIN)
    await leave(acme)
    assert (await patch(robot, owner_id=acme.id("owner"))).status == 200
    browser = FakeBrowser(app)
    await browser.sign_in("ada@acme.example")
    page = f"/app/organizations/acme/service-accounts/{robot.id}"
    shown = (await browser.open(leads_to(await browser.submit(f"{page}/end", page)))).text
    assert ("it has another owner" in shown, "Service account ended." in shown) == (True, False)
    assert await status(robot) == 200


async def test_the_pages_before_an_own_end_name_the_accounts(acme: Tenant, other_tenant: Tenant, app: QuartTrio) -> None:
    ada, bob = [await add_account(acme.ports, f"{name}@acme.example") for name in ("ada", "bob")]
    await acme.join("ada", ada, ADMIN)
    await acme.join("bob", bob, ADMIN)
    await other_tenant.join("guest", ada, ADMIN)
    for tenant, by, name in ((acme, "ada", "Import <b>"), (acme, "owner", "Of the owner"), (other_tenant, "guest", "Elsewhere")):
        await add_robot(tenant, by, name=name)
    browser = FakeBrowser(app)
    await browser.sign_in("ada@acme.example")
    leaving = (await browser.open("/app/account/organizations/acme/leave")).text
    deletion = (await browser.open("/app/account/delete")).text
    shown = [[name in page for name in ("Import &lt;b&gt;", "Elsewhere", "Of the owner")] for page in (leaving, deletion)]
    assert shown == [[True, False, False], [True, True, False]]
    browser = FakeBrowser(app)
    await browser.sign_in("bob@acme.example")
    assert "for 72 hours" not in (await browser.open("/app/account/organizations/acme/leave")).text


async def test_two_parts_of_a_person_end_at_their_own_times(acme: Tenant, other_tenant: Tenant, clock: FakeClock) -> None:
    first = await add_robot_of_admin(acme)
    await other_tenant.join("guest", acme.people["admin"], ADMIN)
    second = await add_robot(other_tenant, "guest")
    left_at = clock.now()
    assert (await leave(acme)).status == 204
    assert ((await listed(first))["ends_at"] is not None, (await listed(second))["ends_at"]) == (True, None)
    clock.advance(timedelta(hours=24))
    await other_tenant.sign_in("guest")
    assert (await other_tenant.api.delete("/api/user", token=other_tenant.token("guest"))).status == 200
    ends = dict(await run_sql(acme.pool, "select id, ends_at from service_accounts"))
    assert ends == {first.id: left_at + GOES_ON, second.id: left_at + timedelta(hours=24) + GOES_ON}
    clock.advance(timedelta(hours=48))
    assert [await status(each) for each in (first, second)] == [401, 200]


async def accept_as_chief(robot: Robot, person: str) -> None:
    """Let the account invite a person to the role `chief`, who accepts."""
    acme = robot.tenant
    invited = await renewed(robot).invite(str(acme.people[person].email), "chief")
    session = await sign_in(acme.ports, acme.people[person], None)
    assert (await acme.api.post("/api/invitations/accept", {"token": invited.json["token"]}, token=session.access_token)).status == 200
    await acme.sign_in(person)


async def take_over(robot: Robot, person: str) -> Answer:
    return await robot.tenant.api.patch(robot.path, {"owner_id": robot.tenant.id(person)}, token=robot.tenant.token(person))


@pytest.mark.parametrize("ends_by", ["time", "end now"])
async def test_an_account_does_not_keep_itself_by_a_role_that_it_gave(acme: Tenant, ports: Ports, clock: FakeClock, ends_by: str) -> None:
    """Their first service account gives a friend a role. The friend takes over the second account, which brings the person back."""
    first = await add_robot_of_admin(acme)
    second = await add_robot(acme, "owner", **{**GRANTS, "owner_id": acme.id("admin")})
    acme.people["friend"] = await add_account(ports, "friend@example.com")
    assert (await leave(acme)).status == 204
    await accept_as_chief(first, "friend")
    assert (await take_over(first, "friend")).status == 400, "the friend has the role from this account"
    assert (await take_over(second, "friend")).status == 200
    await accept_as_chief(second, "admin")
    assert (await take_over(second, "admin")).status == 400
    if ends_by == "time":
        clock.advance(GOES_ON)
        await settle(ports)
        await acme.sign_in("owner")
    else:
        assert (await acme.api.post(f"{first.path}/end", {}, token=acme.token("owner"))).status == 204
    assert await acme.roles() == {"owner": "owner", "admin": "member", "member": "member", "friend": "member"}
    assert [await status(first), await status(second)] == [401, 401]


async def test_an_account_does_not_go_on_for_longer_by_a_second_leaving(acme: Tenant, ports: Ports, clock: FakeClock) -> None:
    """It brings its owner back, who leaves again before the role ends that it gave."""
    robot = await add_robot_of_admin(acme)
    assert (await leave(acme)).status == 204
    clock.advance(GOES_ON - timedelta(hours=1))
    await accept_as_chief(robot, "admin")
    assert (await leave(acme)).status == 204
    assert await status(robot) == 401
    assert len(await run_sql(acme.pool, "select 1 from audit_log where action = 'service_account.ending'")) == 1
    await settle(ports)
    assert await status(robot) == 401
