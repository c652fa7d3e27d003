"""What a directory sees of people who left, or whom it has put away, and what it can do about them (security.md C-1, C-5 and C-6)."""

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
from tests.support.builders import PASSWORD, Answer, add_account, add_member, everyone, run_sql, sign_in
from tests.support.scim import GRACE, Directory, directory_of, problem
from tests.support.services import add_api_key, add_service, add_service_user
from tests.support.tenants import Tenant
from tests.tenancy.api.invitations import accept

PRIVATE = "grace@home.example"


@pytest.fixture
async def grace(acme: Tenant, directory: Directory) -> str:
    """Whom the directory has made, who has a password by now, and is a member of nothing else."""
    user_id: str = (await directory.create_user())["id"]
    hashed = await acme.ports.passwords.hash(PASSWORD)
    await run_sql(acme.pool, "update users set password_hash = %s where id = %s", hashed, UUID(user_id))
    async with acme.ports.storage.reading() as read:
        account = await read.accounts.by_id(UUID(user_id))
    assert account is not None
    acme.people["grace"] = account
    await acme.sign_in("grace")
    return user_id


async def change_account_email(acme: Tenant, user_id: str, email: str = PRIVATE) -> None:
    """The person's own doing."""
    async with acme.ports.storage.reading() as read:
        account = await read.accounts.by_id(UUID(user_id))
    assert account is not None
    session = await sign_in(acme.ports, account)
    answer = await acme.api.patch("/api/user", {"email": email}, token=session.access_token)
    assert answer.status == 200, answer.text


async def leave(tenant: Tenant, user_id: str) -> None:
    answer = await tenant.api.post(f"{tenant.path}/members/{user_id}", token=tenant.token("owner"))
    assert answer.status == 200, answer.text


async def closed(acme: Tenant, user_id: str) -> bool:
    [(found,)] = await run_sql(acme.pool, "select deactivated_at is not null from users where id = %s", UUID(user_id))
    return bool(found)


# Deactivating once more


@pytest.mark.parametrize("how", ["patch", "put"])
async def test_deactivating_again_closes_what_is_the_organizations_alone_by_now(
    acme: Tenant, twin: Tenant, directory: Directory, grace: str, how: str
) -> None:
    await add_member(twin.pool, twin.org, UUID(grace))
    await directory.deactivate(grace)
    assert not await closed(acme, grace)
    await leave(twin, grace)

    async def again() -> Answer:
        return await (directory.deactivate(grace) if how == "patch" else directory.put(grace, userName=GRACE, active=False))

    answer = await again()
    assert (answer.status, answer.json["active"]) == (200, False)
    assert await closed(acme, grace)
    assert (await acme.api.login(GRACE)).status == 401
    deactivations = [entry["details"] for entry in await acme.log() if entry["action"] == "user.deactivated"]
    assert deactivations == [{"whole_account": False}, {"whole_account": True}]
    assert (await again()).json == answer.json
    assert [entry["action"] for entry in await acme.log()].count("user.deactivated") == 2
    assert (await directory.activate(grace)).json["active"] is True
    assert (await acme.members())[GRACE] == ("member", True)  # as before the first time
    assert (await acme.api.login(GRACE)).status == 200


async def test_whom_others_have_closed_is_put_away_here_too(acme: Tenant, directory: Directory) -> None:
    user_id = str((await add_account(acme.ports, "ada@example.com")).id)
    await add_member(acme.pool, acme.org, UUID(user_id), confirmed=True)
    await run_sql(acme.pool, "update users set deactivated_at = now() where id = %s", UUID(user_id))
    assert (await directory.get(f"/Users/{user_id}"))["active"] is False
    assert (await directory.deactivate(user_id)).status == 200
    await run_sql(acme.pool, "update users set deactivated_at = null where id = %s", UUID(user_id))
    assert "ada@example.com" not in await acme.members()
    assert (await directory.get(f"/Users/{user_id}"))["active"] is False


async def test_a_patch_that_says_nothing_of_it_deactivates_nobody_once_more(
    acme: Tenant, twin: Tenant, directory: Directory, grace: str
) -> None:
    await add_member(twin.pool, twin.org, UUID(grace))
    await directory.deactivate(grace)
    await leave(twin, grace)
    answer = await directory.patch(grace, {"op": "replace", "path": "displayName", "value": "Grace"})
    assert (answer.status, answer.json["displayName"], answer.json["active"]) == (200, "Grace", False)
    assert not await closed(acme, grace)
    assert [entry["action"] for entry in await acme.log()].count("user.deactivated") == 1


async def test_nor_does_it_put_away_whom_others_have_closed(acme: Tenant, directory: Directory) -> None:
    user_id = str((await add_account(acme.ports, "ada@example.com")).id)
    await add_member(acme.pool, acme.org, UUID(user_id), confirmed=True)
    await run_sql(acme.pool, "update users set deactivated_at = now() where id = %s", UUID(user_id))
    answer = await directory.patch(user_id, {"op": "replace", "path": "displayName", "value": "Ada"})
    assert (answer.status, answer.json["active"]) == (200, False)
    await run_sql(acme.pool, "update users set deactivated_at = null where id = %s", UUID(user_id))
    assert "ada@example.com" in await acme.members()
    assert (await directory.get(f"/Users/{user_id}"))["active"] is True


async def test_an_account_of_somebodys_own_is_the_organizations_as_long_as_they_are_a_member(acme: Tenant, directory: Directory) -> None:
    """Somebody who took part is deactivated as a whole, and then out of the group: so it is the membership that is deleted."""
    user_id = str((await add_account(acme.ports, "ada@example.com", PASSWORD)).id)
    await add_member(acme.pool, acme.org, UUID(user_id), confirmed=True)
    await directory.deactivate(user_id)
    assert (await directory.remove_member(user_id)).status == 200
    assert await closed(acme, user_id)
    assert (await directory.delete(user_id)).status == 204
    assert (await acme.api.login("ada@example.com")).status == 200
    assert problem(await directory.call("GET", f"/Users/{user_id}")) == (404, None)


async def test_who_comes_back_to_the_group_has_not_taken_part_since(acme: Tenant, directory: Directory) -> None:
    user_id = str((await add_account(acme.ports, "ada@example.com", PASSWORD)).id)
    await add_member(acme.pool, acme.org, UUID(user_id), confirmed=True)
    await directory.deactivate(user_id)
    await directory.remove_member(user_id)
    assert (await directory.deactivate(user_id)).json["active"] is False  # of the membership alone by now
    assert not await closed(acme, user_id)


async def test_an_account_that_the_directory_made_is_deleted_whether_out_of_the_group_or_not(acme: Tenant, directory: Directory) -> None:
    for out in (False, True):
        user_id = (await directory.create_user())["id"]
        await directory.deactivate(user_id)
        if out:
            await directory.remove_member(user_id)
        assert (await directory.delete(user_id)).status == 204
        assert await run_sql(acme.pool, "select 1 from users where id = %s", UUID(user_id)) == []


async def test_who_is_made_inactive_needs_no_room(acme: Tenant, directory: Directory) -> None:
    await acme.allow(3)
    made = await directory.create_user(active=False)
    assert made["active"] is False
    assert problem(await directory.activate(made["id"])) == (400, None)
    assert problem(await directory.try_create_user("ada@acme.example")) == (400, None)
    await acme.check()


# Who left


async def test_whom_the_organization_removed_the_directory_knows_no_more_and_does_not_take_back(
    acme: Tenant, directory: Directory, grace: str
) -> None:
    await leave(acme, grace)
    await change_account_email(acme, grace)
    assert problem(await directory.call("GET", f"/Users/{grace}")) == (404, None)
    for email in (GRACE, PRIVATE):
        assert await directory.find_user_names(f'userName eq "{email}"') == []
    for answer in (await directory.activate(grace), await directory.put(grace, userName=GRACE, active=True), await directory.delete(grace)):
        assert problem(answer) == (404, None)
    for answer in (await directory.add_members(grace), await directory.put_group(grace, *(acme.id(name) for name in ("admin", "member")))):
        assert problem(answer) == (400, "invalidValue")
    assert "grace" not in await acme.check()
    assert (await directory.list_users())["totalResults"] == 3
    await acme.invite(PRIVATE)  # which is how they come back


async def test_whom_the_directory_put_away_and_the_organization_removed_stays_out(acme: Tenant, directory: Directory, grace: str) -> None:
    await directory.deactivate(grace)
    await leave(acme, grace)
    assert problem(await directory.add_members(grace)) == (400, "invalidValue")
    assert (await directory.get(f"/Users/{grace}"))["active"] is False
    assert await closed(acme, grace)
    answer = await directory.put(grace, userName=GRACE, active=True)
    assert (answer.status, answer.json["active"]) == (200, True)
    assert not await closed(acme, grace)
    assert problem(await directory.call("GET", f"/Users/{grace}")) == (404, None)
    assert problem(await directory.add_members(grace)) == (400, "invalidValue")
    assert "grace" not in await acme.check()


@pytest.mark.parametrize("how", ["out of the group", "deactivated"])
async def test_of_who_left_the_directory_sees_nothing_new(
    acme: Tenant, twin: Tenant, directory: Directory, clock: FakeClock, grace: str, how: str
) -> None:
    await add_member(twin.pool, twin.org, UUID(grace))
    await (directory.remove_member(grace) if how == "out of the group" else directory.deactivate(grace))
    before = await directory.get(f"/Users/{grace}")
    clock.advance(timedelta(minutes=1))
    await change_account_email(acme, grace)
    assert await directory.get(f"/Users/{grace}") == before
    assert before in (await directory.list_users())["Resources"]
    assert await directory.find_user_names(f'userName eq "{GRACE}"') == [GRACE]
    for filter_ in (
        f'userName eq "{PRIVATE}"',
        'userName ew "home.example"',
        f'id eq "{grace}" and meta.lastModified gt "{before["meta"]["lastModified"]}"',
    ):
        assert await directory.find_user_names(filter_) == []
    described = await directory.patch(grace, {"op": "add", "path": "displayName", "value": "Grace"})
    assert (described.json["userName"], described.json["displayName"]) == (GRACE, "Grace")
    assert PRIVATE not in (await directory.put(grace, userName=GRACE)).text
    assert problem(await directory.put(grace, userName="else@acme.example")) == (403, None)
    others = await (await directory_of(twin)).get(f"/Users/{grace}")  # where they are a member
    assert others["userName"] == PRIVATE
    if how == "deactivated":  # what was put away comes back, and members have the address that they have
        await directory.activate(grace)
        assert (await directory.get(f"/Users/{grace}"))["userName"] == PRIVATE
        assert await directory.find_user_names(f'userName eq "{PRIVATE}"') == [PRIVATE]
        return
    for answer in (await directory.add_members(grace), await directory.put_group(grace)):
        assert problem(answer) == (400, "invalidValue")
    assert (await directory.get(f"/Users/{grace}"))["userName"] == GRACE
    await run_sql(acme.pool, "update users set email = %s where id = %s", GRACE, UUID(grace))
    assert (await directory.add_members(grace)).status == 200


async def test_who_was_anonymized_has_no_old_address_either(acme: Tenant, directory: Directory, grace: str) -> None:
    await directory.deactivate(grace)
    answer = await acme.api.delete(f"/api/privacy/forget/{grace}", token=acme.token("owner"))
    assert answer.status == 200, answer.text
    assert (await directory.get(f"/Users/{grace}"))["userName"].startswith("anonymized-")
    assert await run_sql(acme.pool, "select 1 from scim_users where email = %s", GRACE) == []


async def test_a_directory_gives_whom_it_has_put_away_another_address(acme: Tenant, directory: Directory) -> None:
    made = await directory.create_user()
    await directory.deactivate(made["id"])
    answer = await directory.put(made["id"], userName="hopper@acme.example")
    assert (answer.status, answer.json["userName"], answer.json["active"]) == (200, "hopper@acme.example", False)
    assert await directory.find_user_names('userName eq "hopper@acme.example"') == ["hopper@acme.example"]


async def test_with_an_organization_that_the_platform_deletes_go_the_closures_of_its_directory(
    acme: Tenant, directory: Directory, grace: str
) -> None:
    owner = await add_account(acme.ports, "root@platform.example")
    await run_sql(acme.pool, "update users set is_platform_owner = true where id = %s", owner.id)
    await directory.deactivate(grace)
    assert await closed(acme, grace)
    session = await sign_in(acme.ports, owner)
    answer = await acme.api.delete(f"/api/platform/organizations/{acme.org}", token=session.access_token)
    assert answer.status == 204, answer.text
    assert not await closed(acme, grace)
    assert (await acme.api.login(GRACE)).status == 200


# One user of each name (RFC 7643 section 4.1.1)


async def by_creating(acme: Tenant, directory: Directory) -> Answer:
    return await directory.try_create_user(GRACE)


async def by_renaming(acme: Tenant, directory: Directory) -> Answer:
    other = await directory.create_user("hopper@acme.example")
    return await directory.put(other["id"], userName=GRACE)


async def by_activating(acme: Tenant, directory: Directory) -> Answer:
    """Somebody who has taken the address while they were away."""
    other = await directory.create_user("hopper@acme.example")
    await directory.deactivate(other["id"])
    await run_sql(acme.pool, "update users set email = %s where id = %s", GRACE, UUID(other["id"]))
    return await directory.activate(other["id"])


CLAIMS: Final = [by_creating, by_renaming, by_activating]


@pytest.mark.parametrize("claim", CLAIMS)
async def test_whoever_left_is_forgotten_when_somebody_else_gets_the_name(
    acme: Tenant, directory: Directory, grace: str, claim: Callable[[Tenant, Directory], Awaitable[Answer]]
) -> None:
    await directory.remove_member(grace)
    await change_account_email(acme, grace)
    answer = await claim(acme, directory)
    assert answer.status in (200, 201), answer.text
    assert await directory.find_user_names(f'userName eq "{GRACE}"') == [GRACE]
    assert (await directory.get(f"/Users/{answer.json['id']}"))["userName"] == GRACE
    assert problem(await directory.call("GET", f"/Users/{grace}")) == (404, None)
    assert problem(await directory.add_members(grace)) == (400, "invalidValue")
    await acme.invite(PRIVATE)  # which is how they come back


@pytest.mark.parametrize("claim", CLAIMS)
async def test_a_name_stays_that_of_whom_the_directory_keeps_out(
    acme: Tenant, twin: Tenant, directory: Directory, grace: str, claim: Callable[[Tenant, Directory], Awaitable[Answer]]
) -> None:
    await add_member(twin.pool, twin.org, UUID(grace))  # so that they can sign in
    await directory.deactivate(grace)
    await change_account_email(acme, grace)
    answer = await claim(acme, directory)
    assert problem(answer) == (409, "uniqueness")
    assert "has to be deleted first" in answer.json["detail"]
    assert await directory.find_user_names(f'userName eq "{GRACE}"') == [GRACE]
    assert (await directory.delete(grace)).status == 204
    assert (await directory.list_users(filter=f'userName eq "{GRACE}"'))["totalResults"] == 0


async def test_whoever_left_is_forgotten_when_a_member_comes_who_has_the_name(acme: Tenant, directory: Directory, grace: str) -> None:
    await directory.remove_member(grace)
    await change_account_email(acme, grace)
    other = await add_account(acme.ports, GRACE)
    membership = Membership(
        id=new_id(), org_id=acme.org, user_id=other.id, role=Role.MEMBER, created_at=acme.ports.clock.now(), confirmed_at=None
    )
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.members.add(membership)
    assert (await directory.list_users(filter=f'userName eq "{GRACE}"'))["Resources"][0]["id"] == str(other.id)
    assert problem(await directory.call("GET", f"/Users/{grace}")) == (404, None)


async def test_whom_the_directory_lets_in_again_is_forgotten_where_a_member_has_the_name(
    acme: Tenant, twin: Tenant, directory: Directory, grace: str
) -> None:
    await add_member(twin.pool, twin.org, UUID(grace))
    await directory.remove_member(grace)
    await directory.deactivate(grace)
    await change_account_email(acme, grace)
    other = await add_account(acme.ports, GRACE)
    await add_member(acme.pool, acme.org, other.id)  # by an invitation, which nobody is refused for this
    assert (await directory.activate(grace)).status == 200
    assert await directory.find_user_names(f'userName eq "{GRACE}"') == [GRACE]
    assert problem(await directory.call("GET", f"/Users/{grace}")) == (404, None)


async def test_of_many_at_once_one_gets_the_name_of_somebody_who_left(acme: Tenant, directory: Directory, grace: str) -> None:
    others = [await directory.create_user(f"p{number}@acme.example") for number in range(3)]
    await directory.remove_member(grace)
    await change_account_email(acme, grace)

    async def claim(number: int) -> Answer:
        return await (directory.put(others[number]["id"], userName=GRACE) if number < 3 else directory.try_create_user())

    answers = await everyone(6, claim)
    assert Counter(answer.status // 100 for answer in answers) == {2: 1, 4: 5}
    assert {problem(answer) for answer in answers if answer.status >= 400} == {(409, "uniqueness")}
    assert await directory.find_user_names(f'userName eq "{GRACE}"') == [GRACE]


# Times


def times(user: dict[str, Any]) -> tuple[str, str]:
    return user["meta"]["created"], user["meta"]["lastModified"]


async def test_times_of_a_user(acme: Tenant, directory: Directory, clock: FakeClock) -> None:
    made = await directory.create_user()
    created, modified = times(made)
    user_id = made["id"]
    doings: list[Any] = [
        lambda: directory.patch(user_id, {"op": "add", "path": "displayName", "value": "Grace"}),
        lambda: directory.put(user_id, userName="hopper@acme.example"),
        lambda: change_account_email(acme, user_id, PRIVATE),
        lambda: directory.deactivate(user_id),
        lambda: directory.activate(user_id),
        lambda: directory.remove_member(user_id),
        lambda: directory.add_members(user_id),
    ]
    for number, doing in enumerate(doings):
        clock.advance(timedelta(seconds=1))
        await doing()
        before, modified = modified, times(await directory.get(f"/Users/{user_id}"))[1]
        assert modified > before, number
        assert times(await directory.get(f"/Users/{user_id}"))[0] == created, number
        assert await directory.find_user_names(f'meta.lastModified gt "{before}" and meta.created eq "{created}"') != []
    clock.advance(timedelta(seconds=1))
    await directory.patch_group({"op": "add", "path": "members", "value": [{"value": user_id}]})  # who is there
    assert times(await directory.get(f"/Users/{user_id}")) == (created, modified)


async def test_times_of_the_group(acme: Tenant, directory: Directory, clock: FakeClock) -> None:
    async def now() -> tuple[str, str]:
        return times(await directory.get(f"{directory.group_path}?excludedAttributes=members"))

    since = clock.now() - timedelta(days=1)
    await run_sql(acme.pool, "update organizations set created_at = %s, updated_at = %s", since, since)
    created, modified = await now()
    user_id = (await directory.create_user())["id"]
    put_away = [(await directory.create_user(f"away-{number}@acme.example"))["id"] for number in range(3)]
    shop = await add_service(acme.pool, acme.org)
    key = await add_api_key(acme.pool, shop)
    await add_service_user(acme.ports, shop, UUID(put_away[2]))
    for each in put_away:
        await directory.deactivate(each)
    doings: list[Any] = [
        lambda: directory.create_user("ada@acme.example"),
        lambda: directory.remove_member(user_id),
        lambda: directory.add_members(user_id),
        lambda: directory.delete(user_id),
        lambda: acme.remove("owner", "member"),
        lambda: leave(acme, put_away[0]),
        lambda: directory.delete(put_away[1]),
        lambda: acme.api.delete(f"/api/service/users/{put_away[2]}", headers={"X-API-Key": key}),
    ]
    for number, doing in enumerate(doings):
        clock.advance(timedelta(seconds=1))
        await doing()
        before, (there, modified) = modified, await now()
        assert (there, modified > before) == (created, True), number
        found = (await directory.try_list("Groups", filter=f'meta.lastModified gt "{before}"', excludedAttributes="members")).json
        assert found["totalResults"] == 1
    clock.advance(timedelta(seconds=1))
    await directory.put_group(acme.id("admin"), *(await directory.group_member_ids()))
    assert await now() == (created, modified)


# Invited before, and gone since


async def removed_from_the_group(acme: Tenant, directory: Directory, user_id: str) -> None:
    assert (await directory.remove_member(user_id)).status == 200


async def removed_by_people(acme: Tenant, directory: Directory, user_id: str) -> None:
    await leave(acme, user_id)


async def deleted(acme: Tenant, directory: Directory, user_id: str) -> None:
    assert (await directory.delete(user_id)).status == 204


async def deactivated(acme: Tenant, directory: Directory, user_id: str) -> None:
    assert (await directory.deactivate(user_id)).status == 200


@pytest.mark.parametrize("go", [removed_from_the_group, removed_by_people, deleted, deactivated])
async def test_an_invitation_from_before_somebody_was_provisioned_brings_them_back_in_no_way(
    acme: Tenant, directory: Directory, go: Callable[[Tenant, Directory, str], Awaitable[None]]
) -> None:
    made = await acme.invite(GRACE, "admin")
    user_id = (await directory.create_user())["id"]
    await go(acme, directory, user_id)
    assert (await accept(acme.api, made["invitation"]["token"])).status == 400
    assert GRACE not in await acme.check()
    entry = await acme.entry("invitation.revoked")
    assert entry["target_id"] == made["invitation"]["id"]


async def test_nor_does_one_from_before_the_directory_has_deleted_them(
    acme: Tenant, twin: Tenant, directory: Directory, grace: str
) -> None:
    await add_member(twin.pool, twin.org, UUID(grace))
    assert (await directory.remove_member(grace)).status == 200
    made = await acme.invite(GRACE)
    await deleted(acme, directory, grace)
    assert (await accept(acme.api, made["invitation"]["token"])).status == 400
    await acme.sign_in("grace")
    assert (await accept(acme.api, (await acme.invite(GRACE))["invitation"]["token"], token=acme.token("grace"))).status == 200
