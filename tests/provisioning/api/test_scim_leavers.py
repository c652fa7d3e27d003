"""Former members and deactivated users in the directory (security C-1, C-5, C-6).

The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import pytest

from core.kernel.principals import SYSTEM, Role
from core.kernel.values import new_id
from core.tenancy.organizations_rules import Membership
from tests.fakes.outside import FakeClock
from tests.support.builders import PASSWORD, Answer, add_account, add_member, run_concurrently, run_sql, sign_in
from tests.support.scim import GRACE, Directory, directory_of, problem
from tests.support.services import add_api_key, add_service, add_service_user
from tests.support.tenants import Tenant
from tests.tenancy.invitations import accept

PRIVATE = "grace@home.example"


@pytest.fixture
async def leaver_id(acme: Tenant, directory: Directory) -> str:
    """The id of a provisioned user with a password and no other membership."""
    user_id: str = (await directory.create_user())["id"]
    hashed = await acme.ports.passwords.hash(PASSWORD)
    await run_sql(acme.pool, "update users set password_hash = %s where id = %s", hashed, UUID(user_id))
    async with acme.ports.storage.reading() as read:
        account = await read.accounts.by_id(UUID(user_id))
    assert account is not None
    acme.people["grace"] = account
    await acme.sign_in("grace")
    return user_id


async def change_own_email(acme: Tenant, user_id: str, email: str = PRIVATE) -> None:
    """Change the email address of an account, as its user."""
    async with acme.ports.storage.reading() as read:
        account = await read.accounts.by_id(UUID(user_id))
    assert account is not None
    session = await sign_in(acme.ports, account)
    answer = await acme.api.patch("/api/user", {"email": email}, token=session.access_token)
    assert answer.status == 200, answer.text


async def leave(tenant: Tenant, user_id: str) -> None:
    answer = await tenant.api.post(f"{tenant.path}/members/{user_id}", token=tenant.token("owner"))
    assert answer.status == 200, answer.text


async def is_deactivated(acme: Tenant, user_id: str) -> bool:
    [(value,)] = await run_sql(acme.pool, "select deactivated_at is not null from users where id = %s", UUID(user_id))
    return bool(value)


# A second deactivation


@pytest.mark.parametrize("method", ["patch", "put"])
async def test_a_second_deactivation_covers_an_account_that_is_now_used_only_here(
    acme: Tenant, other_tenant: Tenant, directory: Directory, leaver_id: str, method: str
) -> None:
    await add_member(other_tenant.pool, other_tenant.org, UUID(leaver_id))
    await directory.deactivate(leaver_id)
    assert not await is_deactivated(acme, leaver_id)
    await leave(other_tenant, leaver_id)

    async def again() -> Answer:
        return await (directory.deactivate(leaver_id) if method == "patch" else directory.put(leaver_id, userName=GRACE, active=False))

    answer = await again()
    assert (answer.status, answer.json["active"]) == (200, False)
    assert await is_deactivated(acme, leaver_id)
    assert (await acme.api.login(GRACE)).status == 401
    deactivations = [entry["details"] for entry in await acme.log() if entry["action"] == "user.deactivated"]
    assert deactivations == [{"whole_account": False}, {"whole_account": True}]
    assert (await again()).json == answer.json
    assert [entry["action"] for entry in await acme.log()].count("user.deactivated") == 2
    assert (await directory.activate(leaver_id)).json["active"] is True
    assert (await acme.members())[GRACE] == ("member", True)  # as before the first deactivation
    assert (await acme.api.login(GRACE)).status == 200


async def test_deactivating_suspends_the_membership_of_an_account_deactivated_elsewhere(acme: Tenant, directory: Directory) -> None:
    user_id = str((await add_account(acme.ports, "ada@example.com")).id)
    await add_member(acme.pool, acme.org, UUID(user_id), confirmed=True)
    await run_sql(acme.pool, "update users set deactivated_at = now() where id = %s", UUID(user_id))
    assert (await directory.get(f"/Users/{user_id}"))["active"] is False
    assert (await directory.deactivate(user_id)).status == 200
    await run_sql(acme.pool, "update users set deactivated_at = null where id = %s", UUID(user_id))
    assert "ada@example.com" not in await acme.members()
    assert (await directory.get(f"/Users/{user_id}"))["active"] is False


async def test_a_patch_without_active_does_not_deactivate_again(
    acme: Tenant, other_tenant: Tenant, directory: Directory, leaver_id: str
) -> None:
    await add_member(other_tenant.pool, other_tenant.org, UUID(leaver_id))
    await directory.deactivate(leaver_id)
    await leave(other_tenant, leaver_id)
    answer = await directory.patch(leaver_id, {"op": "replace", "path": "displayName", "value": "Grace"})
    assert (answer.status, answer.json["displayName"], answer.json["active"]) == (200, "Grace", False)
    assert not await is_deactivated(acme, leaver_id)
    assert [entry["action"] for entry in await acme.log()].count("user.deactivated") == 1


async def test_a_patch_without_active_does_not_suspend_a_membership(acme: Tenant, directory: Directory) -> None:
    user_id = str((await add_account(acme.ports, "ada@example.com")).id)
    await add_member(acme.pool, acme.org, UUID(user_id), confirmed=True)
    await run_sql(acme.pool, "update users set deactivated_at = now() where id = %s", UUID(user_id))
    answer = await directory.patch(user_id, {"op": "replace", "path": "displayName", "value": "Ada"})
    assert (answer.status, answer.json["active"]) == (200, False)
    await run_sql(acme.pool, "update users set deactivated_at = null where id = %s", UUID(user_id))
    assert "ada@example.com" in await acme.members()
    assert (await directory.get(f"/Users/{user_id}"))["active"] is True


async def test_the_directory_controls_an_account_only_during_its_confirmed_membership(acme: Tenant, directory: Directory) -> None:
    """The whole account was deactivated.

    Outside the group, only the membership can be deleted, and the account is active again.
    """
    user_id = str((await add_account(acme.ports, "ada@example.com", PASSWORD)).id)
    await add_member(acme.pool, acme.org, UUID(user_id), confirmed=True)
    await directory.deactivate(user_id)
    assert (await directory.remove_member(user_id)).status == 200
    assert await is_deactivated(acme, user_id)
    assert (await directory.delete(user_id)).status == 204
    assert (await acme.api.login("ada@example.com")).status == 200
    assert problem(await directory.call("GET", f"/Users/{user_id}")) == (404, None)


async def test_leaving_the_group_ends_the_confirmation_of_the_membership(acme: Tenant, directory: Directory) -> None:
    user_id = str((await add_account(acme.ports, "ada@example.com", PASSWORD)).id)
    await add_member(acme.pool, acme.org, UUID(user_id), confirmed=True)
    await directory.deactivate(user_id)
    await directory.remove_member(user_id)
    assert (await directory.deactivate(user_id)).json["active"] is False  # only the membership now
    assert not await is_deactivated(acme, user_id)


async def test_a_provisioned_account_is_deleted_inside_and_outside_the_group(acme: Tenant, directory: Directory) -> None:
    for out in (False, True):
        user_id = (await directory.create_user())["id"]
        await directory.deactivate(user_id)
        if out:
            await directory.remove_member(user_id)
        assert (await directory.delete(user_id)).status == 204
        assert await run_sql(acme.pool, "select 1 from users where id = %s", UUID(user_id)) == []


async def test_a_user_created_inactive_does_not_count_as_a_member(acme: Tenant, directory: Directory) -> None:
    await acme.set_member_limit(3)
    user = await directory.create_user(active=False)
    assert user["active"] is False
    assert problem(await directory.activate(user["id"])) == (400, None)
    assert problem(await directory.try_create_user("ada@acme.example")) == (400, None)
    await acme.check()


# Former members


async def test_the_directory_forgets_and_cannot_restore_a_member_that_the_organization_removed(
    acme: Tenant, directory: Directory, leaver_id: str
) -> None:
    await leave(acme, leaver_id)
    await change_own_email(acme, leaver_id)
    assert problem(await directory.call("GET", f"/Users/{leaver_id}")) == (404, None)
    for email in (GRACE, PRIVATE):
        assert await directory.find_user_names(f'userName eq "{email}"') == []
    for answer in (
        await directory.activate(leaver_id),
        await directory.put(leaver_id, userName=GRACE, active=True),
        await directory.delete(leaver_id),
    ):
        assert problem(answer) == (404, None)
    for answer in (
        await directory.add_members(leaver_id),
        await directory.put_group(leaver_id, *(acme.id(name) for name in ("admin", "member"))),
    ):
        assert problem(answer) == (400, "invalidValue")
    assert "grace" not in await acme.check()
    assert (await directory.list_users())["totalResults"] == 3
    await acme.invite(PRIVATE)  # the user can join again by an invitation


async def test_a_deactivated_user_removed_by_the_organization_cannot_be_restored(
    acme: Tenant, directory: Directory, leaver_id: str
) -> None:
    await directory.deactivate(leaver_id)
    await leave(acme, leaver_id)
    assert problem(await directory.add_members(leaver_id)) == (400, "invalidValue")
    assert (await directory.get(f"/Users/{leaver_id}"))["active"] is False
    assert await is_deactivated(acme, leaver_id)
    answer = await directory.put(leaver_id, userName=GRACE, active=True)
    assert (answer.status, answer.json["active"]) == (200, True)
    assert not await is_deactivated(acme, leaver_id)
    assert problem(await directory.call("GET", f"/Users/{leaver_id}")) == (404, None)
    assert problem(await directory.add_members(leaver_id)) == (400, "invalidValue")
    assert "grace" not in await acme.check()


@pytest.mark.parametrize("reason", ["out of the group", "deactivated"])
async def test_the_directory_does_not_see_the_new_address_of_a_former_member(
    acme: Tenant, other_tenant: Tenant, directory: Directory, clock: FakeClock, leaver_id: str, reason: str
) -> None:
    await add_member(other_tenant.pool, other_tenant.org, UUID(leaver_id))
    await (directory.remove_member(leaver_id) if reason == "out of the group" else directory.deactivate(leaver_id))
    before = await directory.get(f"/Users/{leaver_id}")
    clock.advance(timedelta(minutes=1))
    await change_own_email(acme, leaver_id)
    assert await directory.get(f"/Users/{leaver_id}") == before
    assert before in (await directory.list_users())["Resources"]
    assert await directory.find_user_names(f'userName eq "{GRACE}"') == [GRACE]
    for filter_ in (
        f'userName eq "{PRIVATE}"',
        'userName ew "home.example"',
        f'id eq "{leaver_id}" and meta.lastModified gt "{before["meta"]["lastModified"]}"',
    ):
        assert await directory.find_user_names(filter_) == []
    changed = await directory.patch(leaver_id, {"op": "add", "path": "displayName", "value": "Grace"})
    assert (changed.json["userName"], changed.json["displayName"]) == (GRACE, "Grace")
    assert PRIVATE not in (await directory.put(leaver_id, userName=GRACE)).text
    assert problem(await directory.put(leaver_id, userName="else@acme.example")) == (403, None)
    at_twin = await (await directory_of(other_tenant)).get(f"/Users/{leaver_id}")  # a member there
    assert at_twin["userName"] == PRIVATE
    if reason == "deactivated":  # activating restores the membership, and members have their present address
        await directory.activate(leaver_id)
        assert (await directory.get(f"/Users/{leaver_id}"))["userName"] == PRIVATE
        assert await directory.find_user_names(f'userName eq "{PRIVATE}"') == [PRIVATE]
        return
    for answer in (await directory.add_members(leaver_id), await directory.put_group(leaver_id)):
        assert problem(answer) == (400, "invalidValue")
    assert (await directory.get(f"/Users/{leaver_id}"))["userName"] == GRACE
    await run_sql(acme.pool, "update users set email = %s where id = %s", GRACE, UUID(leaver_id))
    assert (await directory.add_members(leaver_id)).status == 200


async def test_anonymizing_removes_the_old_address_of_a_deactivated_user(acme: Tenant, directory: Directory, leaver_id: str) -> None:
    await directory.deactivate(leaver_id)
    answer = await acme.api.delete(f"/api/privacy/forget/{leaver_id}", token=acme.token("owner"))
    assert answer.status == 200, answer.text
    assert (await directory.get(f"/Users/{leaver_id}"))["userName"].startswith("anonymized-")
    assert await run_sql(acme.pool, "select 1 from scim_users where email = %s", GRACE) == []


async def test_the_directory_changes_the_address_of_a_deactivated_user(acme: Tenant, directory: Directory) -> None:
    user = await directory.create_user()
    await directory.deactivate(user["id"])
    answer = await directory.put(user["id"], userName="hopper@acme.example")
    assert (answer.status, answer.json["userName"], answer.json["active"]) == (200, "hopper@acme.example", False)
    assert await directory.find_user_names('userName eq "hopper@acme.example"') == ["hopper@acme.example"]


async def test_deleting_an_organization_by_the_platform_reactivates_its_deactivated_accounts(
    acme: Tenant, directory: Directory, leaver_id: str
) -> None:
    owner = await add_account(acme.ports, "root@platform.example")
    await run_sql(acme.pool, "update users set is_platform_owner = true where id = %s", owner.id)
    await directory.deactivate(leaver_id)
    assert await is_deactivated(acme, leaver_id)
    session = await sign_in(acme.ports, owner)
    answer = await acme.api.delete(f"/api/platform/organizations/{acme.org}", token=session.access_token)
    assert answer.status == 204, answer.text
    assert not await is_deactivated(acme, leaver_id)
    assert (await acme.api.login(GRACE)).status == 200


# Unique user names (RFC 7643 section 4.1.1)


async def by_creating(acme: Tenant, directory: Directory) -> Answer:
    return await directory.try_create_user(GRACE)


async def by_renaming(acme: Tenant, directory: Directory) -> Answer:
    other = await directory.create_user("hopper@acme.example")
    return await directory.put(other["id"], userName=GRACE)


async def by_activating(acme: Tenant, directory: Directory) -> Answer:
    """Give the address to a deactivated user, and activate them."""
    other = await directory.create_user("hopper@acme.example")
    await directory.deactivate(other["id"])
    await run_sql(acme.pool, "update users set email = %s where id = %s", GRACE, UUID(other["id"]))
    return await directory.activate(other["id"])


CLAIMS: Final = [by_creating, by_renaming, by_activating]


@pytest.mark.parametrize("claim", CLAIMS)
async def test_a_former_member_is_forgotten_when_another_user_gets_the_user_name(
    acme: Tenant, directory: Directory, leaver_id: str, claim: Callable[[Tenant, Directory], Awaitable[Answer]]
) -> None:
    await directory.remove_member(leaver_id)
    await change_own_email(acme, leaver_id)
    answer = await claim(acme, directory)
    assert answer.status in (200, 201), answer.text
    assert await directory.find_user_names(f'userName eq "{GRACE}"') == [GRACE]
    assert (await directory.get(f"/Users/{answer.json['id']}"))["userName"] == GRACE
    assert problem(await directory.call("GET", f"/Users/{leaver_id}")) == (404, None)
    assert problem(await directory.add_members(leaver_id)) == (400, "invalidValue")
    await acme.invite(PRIVATE)  # the user can join again by an invitation


@pytest.mark.parametrize("claim", CLAIMS)
async def test_the_user_name_of_a_deactivated_former_user_is_reserved(
    acme: Tenant, other_tenant: Tenant, directory: Directory, leaver_id: str, claim: Callable[[Tenant, Directory], Awaitable[Answer]]
) -> None:
    await add_member(other_tenant.pool, other_tenant.org, UUID(leaver_id))  # the account stays active
    await directory.deactivate(leaver_id)
    await change_own_email(acme, leaver_id)
    answer = await claim(acme, directory)
    assert problem(answer) == (409, "uniqueness")
    assert "Delete that user first" in answer.json["detail"]
    assert await directory.find_user_names(f'userName eq "{GRACE}"') == [GRACE]
    assert (await directory.delete(leaver_id)).status == 204
    assert (await directory.list_users(filter=f'userName eq "{GRACE}"'))["totalResults"] == 0


async def test_a_user_name_is_reserved_in_its_own_organization_only(
    acme: Tenant, other_tenant: Tenant, directory: Directory, leaver_id: str
) -> None:
    await add_member(other_tenant.pool, other_tenant.org, UUID(leaver_id))  # the account stays active
    await directory.deactivate(leaver_id)
    await change_own_email(acme, leaver_id)
    assert problem(await directory.try_create_user()) == (409, "uniqueness")
    assert (await (await directory_of(other_tenant)).try_create_user()).status == 201


async def test_a_former_member_is_forgotten_when_a_new_member_has_the_user_name(acme: Tenant, directory: Directory, leaver_id: str) -> None:
    await directory.remove_member(leaver_id)
    await change_own_email(acme, leaver_id)
    other = await add_account(acme.ports, GRACE)
    membership = Membership(
        id=new_id(), org_id=acme.org, user_id=other.id, role=Role.MEMBER, created_at=acme.ports.clock.now(), confirmed_at=None
    )
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.members.add(membership)
    assert (await directory.list_users(filter=f'userName eq "{GRACE}"'))["Resources"][0]["id"] == str(other.id)
    assert problem(await directory.call("GET", f"/Users/{leaver_id}")) == (404, None)


async def test_activating_forgets_a_former_user_if_a_member_has_the_user_name(
    acme: Tenant, other_tenant: Tenant, directory: Directory, leaver_id: str
) -> None:
    await add_member(other_tenant.pool, other_tenant.org, UUID(leaver_id))
    await directory.remove_member(leaver_id)
    await directory.deactivate(leaver_id)
    await change_own_email(acme, leaver_id)
    other = await add_account(acme.ports, GRACE)
    await add_member(acme.pool, acme.org, other.id)  # by an invitation, which a reserved user name does not prevent
    assert (await directory.activate(leaver_id)).status == 200
    assert await directory.find_user_names(f'userName eq "{GRACE}"') == [GRACE]
    assert problem(await directory.call("GET", f"/Users/{leaver_id}")) == (404, None)


async def test_one_of_several_concurrent_requests_gets_the_user_name_of_a_former_member(
    acme: Tenant, directory: Directory, leaver_id: str
) -> None:
    others = [await directory.create_user(f"p{number}@acme.example") for number in range(3)]
    await directory.remove_member(leaver_id)
    await change_own_email(acme, leaver_id)

    async def claim(number: int) -> Answer:
        return await (directory.put(others[number]["id"], userName=GRACE) if number < 3 else directory.try_create_user())

    answers = await run_concurrently(6, claim)
    assert Counter(answer.status // 100 for answer in answers) == {2: 1, 4: 5}
    assert {problem(answer) for answer in answers if answer.status >= 400} == {(409, "uniqueness")}
    assert await directory.find_user_names(f'userName eq "{GRACE}"') == [GRACE]


# Times


def times(user: dict[str, Any]) -> tuple[str, str]:
    return user["meta"]["created"], user["meta"]["lastModified"]


async def test_created_stays_and_last_modified_follows_each_change_of_a_user(acme: Tenant, directory: Directory, clock: FakeClock) -> None:
    user = await directory.create_user()
    created, modified = times(user)
    user_id = user["id"]
    actions: list[Any] = [
        lambda: directory.patch(user_id, {"op": "add", "path": "displayName", "value": "Grace"}),
        lambda: directory.put(user_id, userName="hopper@acme.example"),
        lambda: change_own_email(acme, user_id, PRIVATE),
        lambda: directory.deactivate(user_id),
        lambda: directory.activate(user_id),
        lambda: directory.remove_member(user_id),
        lambda: directory.add_members(user_id),
    ]
    for number, action in enumerate(actions):
        clock.advance(timedelta(seconds=1))
        await action()
        before, modified = modified, times(await directory.get(f"/Users/{user_id}"))[1]
        assert modified > before, number
        assert times(await directory.get(f"/Users/{user_id}"))[0] == created, number
        assert await directory.find_user_names(f'meta.lastModified gt "{before}" and meta.created eq "{created}"') != []
    clock.advance(timedelta(seconds=1))
    await directory.patch_group({"op": "add", "path": "members", "value": [{"value": user_id}]})  # already a member
    assert times(await directory.get(f"/Users/{user_id}")) == (created, modified)


async def test_created_stays_and_last_modified_follows_each_change_of_the_group(
    acme: Tenant, directory: Directory, clock: FakeClock
) -> None:
    async def now() -> tuple[str, str]:
        return times(await directory.get(f"{directory.group_path}?excludedAttributes=members"))

    since = clock.now() - timedelta(days=1)
    await run_sql(acme.pool, "update organizations set created_at = %s, updated_at = %s", since, since)
    created, modified = await now()
    user_id = (await directory.create_user())["id"]
    inactive = [(await directory.create_user(f"away-{number}@acme.example"))["id"] for number in range(3)]
    shop = await add_service(acme.pool, acme.org)
    key = await add_api_key(acme.pool, shop)
    await add_service_user(acme.ports, shop, UUID(inactive[2]))
    for inactive_id in inactive:
        await directory.deactivate(inactive_id)
    actions: list[Any] = [
        lambda: directory.create_user("ada@acme.example"),
        lambda: directory.remove_member(user_id),
        lambda: directory.add_members(user_id),
        lambda: directory.delete(user_id),
        lambda: acme.remove("owner", "member"),
        lambda: leave(acme, inactive[0]),
        lambda: directory.delete(inactive[1]),
        lambda: acme.api.delete(f"/api/service/users/{inactive[2]}", headers={"X-API-Key": key}),
    ]
    for number, action in enumerate(actions):
        clock.advance(timedelta(seconds=1))
        await action()
        before, (created_now, modified) = modified, await now()
        assert (created_now, modified > before) == (created, True), number
        groups = (await directory.try_list("Groups", filter=f'meta.lastModified gt "{before}"', excludedAttributes="members")).json
        assert groups["totalResults"] == 1
    clock.advance(timedelta(seconds=1))
    await directory.put_group(acme.id("admin"), *(await directory.group_member_ids()))
    assert await now() == (created, modified)


# Invitations from before the user left


async def removed_from_the_group(acme: Tenant, directory: Directory, user_id: str) -> None:
    assert (await directory.remove_member(user_id)).status == 200


async def removed_by_an_owner(acme: Tenant, directory: Directory, user_id: str) -> None:
    await leave(acme, user_id)


async def deleted(acme: Tenant, directory: Directory, user_id: str) -> None:
    assert (await directory.delete(user_id)).status == 204


async def deactivated(acme: Tenant, directory: Directory, user_id: str) -> None:
    assert (await directory.deactivate(user_id)).status == 200


@pytest.mark.parametrize("leave_somehow", [removed_from_the_group, removed_by_an_owner, deleted, deactivated])
async def test_an_invitation_before_provisioning_is_revoked_when_the_user_leaves(
    acme: Tenant, directory: Directory, leave_somehow: Callable[[Tenant, Directory, str], Awaitable[None]]
) -> None:
    invitation = await acme.invite(GRACE, "admin")
    user_id = (await directory.create_user())["id"]
    await leave_somehow(acme, directory, user_id)
    assert (await accept(acme.api, invitation["invitation"]["token"])).status == 400
    assert GRACE not in await acme.check()
    entry = await acme.entry("invitation.revoked")
    assert entry["target_id"] == invitation["invitation"]["id"]


async def test_deleting_a_user_revokes_earlier_invitations_and_allows_new_ones(
    acme: Tenant, other_tenant: Tenant, directory: Directory, leaver_id: str
) -> None:
    await add_member(other_tenant.pool, other_tenant.org, UUID(leaver_id))
    assert (await directory.remove_member(leaver_id)).status == 200
    invitation = await acme.invite(GRACE)
    await deleted(acme, directory, leaver_id)
    assert (await accept(acme.api, invitation["invitation"]["token"])).status == 400
    await acme.sign_in("grace")
    assert (await accept(acme.api, (await acme.invite(GRACE))["invitation"]["token"], token=acme.token("grace"))).status == 200
