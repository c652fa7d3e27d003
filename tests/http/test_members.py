"""Members over HTTP: the list, roles, removal, the transfer of ownership, and all of these at once (organizations.md sections 3 and 4.4;
decisions, points 9, 11, 13, 16 to 18, 155 and 199 to 201; security.md sections 8, 9 and 21)."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from core.access import Role
from core.values import new_id
from tests.builders import Answer, add_account, add_platform_owner, everyone, impersonate, meanwhile, run_sql, sign_in
from tests.fakes.outside import FakeClock
from tests.tenants import Tenant, Tenants

CAST: Mapping[str, Role] = {"owner": Role.OWNER, "admin": Role.ADMIN, "deputy": Role.ADMIN, "member": Role.MEMBER, "further": Role.MEMBER}


@pytest.fixture
def cast() -> Mapping[str, Role]:
    return CAST


# The list


async def test_a_member_is_shown_with_the_account_the_membership_and_nothing_else(tenants: Tenants) -> None:
    acme = await tenants.add("acme", cast={"owner": Role.OWNER})
    await run_sql(tenants.pool, "update users set is_platform_owner = true where id = %s", acme.people["owner"].id)
    [(membership, created_at)] = await run_sql(tenants.pool, "select id, created_at from memberships")
    answer = await tenants.api.get(f"{acme.path}/members", token=acme.token("owner"))
    assert answer.status == 200
    assert answer.json == {
        "members": [
            {
                "user": {"id": acme.id("owner"), "email": "owner@acme.example", "is_platform_owner": True},
                "membership": {"id": str(membership), "role": "owner", "created_at": created_at.isoformat().replace("+00:00", "Z")},
            }
        ],
        "pagination": {"page": 1, "limit": 50, "total": 1, "total_pages": 1, "has_next": False, "has_prev": False},
        "limits": {"max_users": 100, "source": "tier"},
    }


@pytest.mark.parametrize("name", ["owner", "admin", "member"])
async def test_every_member_sees_all_members_the_oldest_first_and_nobody_elses(
    tenants: Tenants, acme: Tenant, twin: Tenant, name: str
) -> None:
    answer = await tenants.api.get(f"{acme.path}/members", token=acme.token(name))
    shown = [(one["user"]["email"], one["membership"]["role"]) for one in answer.json["members"]]
    assert shown == [(f"{name}@acme.example", role) for name, role in CAST.items()]
    assert answer.json["pagination"]["total"] == len(CAST)
    assert "twin" not in answer.text


async def test_pages_are_cut_in_one_order(tenants: Tenants, acme: Tenant, twin: Tenant) -> None:
    async def page(query: str) -> tuple[list[str], dict[str, Any]]:
        answer = await tenants.api.get(f"{acme.path}/members?{query}", token=acme.token("member"))
        assert answer.status == 200
        return [one["user"]["email"].partition("@")[0] for one in answer.json["members"]], answer.json["pagination"]

    names = list(CAST)
    plain = {"page": 1, "limit": 2, "total": 5, "total_pages": 3, "has_next": True, "has_prev": False}
    assert await page("limit=2") == (names[:2], plain)
    assert await page("limit=2&page=2") == (names[2:4], plain | {"page": 2, "has_prev": True})
    assert await page("limit=2&page=3") == (names[4:], plain | {"page": 3, "has_next": False, "has_prev": True})
    assert await page("limit=2&page=4") == ([], plain | {"page": 4, "has_next": False, "has_prev": True})
    whole = {"page": 1, "limit": 100, "total": 5, "total_pages": 1, "has_next": False, "has_prev": False}
    assert await page("limit=1000&page=0") == (names, whole)
    assert await page("limit=-5&page=-1") == (names[:1], whole | {"limit": 1, "total_pages": 5, "has_next": True})
    far = await page(f"page={10**30}&limit={10**30}")
    assert (far[0], far[1]["limit"], far[1]["has_next"]) == ([], 100, False)
    for query in ("limit=ten", "page=1.5", "page=", "limit=0x10"):
        answer = await tenants.api.get(f"{acme.path}/members?{query}", token=acme.token("member"))
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), query


async def test_a_role_as_filter_narrows_list_and_total(tenants: Tenants, acme: Tenant, twin: Tenant) -> None:
    for role in Role:
        emails = [f"{name}@acme.example" for name, has in CAST.items() if has is role]
        for page, shown in (("limit=50", emails), ("limit=1&page=2", emails[1:2])):
            answer = await tenants.api.get(f"{acme.path}/members?role={role}&{page}", token=acme.token("member"))
            assert [one["user"]["email"] for one in answer.json["members"]] == shown
            assert {one["membership"]["role"] for one in answer.json["members"]} <= {role}
            assert answer.json["pagination"]["total"] == len(emails)


async def test_a_role_without_members_is_an_empty_list(tenants: Tenants) -> None:
    acme = await tenants.add("acme", cast={"owner": Role.OWNER})
    answer = await tenants.api.get(f"{acme.path}/members?role=admin", token=acme.token("owner"))
    assert (answer.status, answer.json["members"]) == (200, [])
    assert answer.json["pagination"] == {"page": 1, "limit": 50, "total": 0, "total_pages": 0, "has_next": False, "has_prev": False}


async def test_another_filter_is_refused_and_the_allowed_ones_are_named(tenants: Tenants, acme: Tenant) -> None:
    for role in ("boss", "", "Owner", "owner%20", "null", "members"):
        answer = await tenants.api.get(f"{acme.path}/members?role={role}", token=acme.token("member"))
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), role
        assert all(allowed in answer.json["error"] for allowed in ("owner", "admin", "member"))


async def test_the_limit_says_where_it_comes_from(tenants: Tenants) -> None:
    acme, twin = await tenants.add("acme", cast={"owner": Role.OWNER}), await tenants.add("twin", cast={"owner": Role.OWNER})

    async def limits(team: Tenant) -> tuple[int, str]:
        shown = (await tenants.api.get(f"{team.path}/members", token=team.token("owner"))).json["limits"]
        assert shown.keys() == {"max_users", "source"}
        return shown["max_users"], shown["source"]

    changes = {
        "max_users = 3": (3, "organization"),
        "max_users = 0": (0, "organization"),
        "max_users = null, tier_id = (select id from tiers where name = 'professional')": (1000, "tier"),
        "tier_id = null": (5, "default"),
        "max_users = 7": (7, "organization"),
    }
    for change, expected in changes.items():
        await run_sql(tenants.pool, f"update organizations set {change} where id = %s", acme.org)  # noqa: S608
        assert await limits(acme) == expected, change
        assert await limits(twin) == (100, "tier")


# Roles


async def test_a_member_becomes_an_admin_and_a_member_again(tenants: Tenants, acme: Tenant, clock: FakeClock) -> None:
    [(id_, created_at)] = await run_sql(tenants.pool, "select id, created_at from memberships where user_id = %s", acme.people["member"].id)
    for role in ("admin", "member"):
        clock.advance(timedelta(seconds=1))
        answer = await acme.set_role("owner", "member", role)
        assert answer.status == 200
        assert answer.json == {
            "user": {"id": acme.id("member"), "email": "member@acme.example"},
            "membership": {
                "id": str(id_),
                "org_id": str(acme.org),
                "user_id": acme.id("member"),
                "role": role,
                "created_at": created_at.isoformat().replace("+00:00", "Z"),
            },
        }
        assert await acme.check() == {**CAST, "member": role}
    owner, target = acme.people["owner"].id, acme.id("member")
    assert await acme.recorded() == [
        ("user.role_updated", "user", target, owner, {"old_role": "member", "new_role": "admin"}),
        ("user.role_updated", "user", target, owner, {"old_role": "admin", "new_role": "member"}),
    ]


@pytest.mark.parametrize(("name", "role"), [("admin", "admin"), ("member", "member")])
async def test_the_same_role_again_changes_and_records_nothing(tenants: Tenants, acme: Tenant, name: str, role: str) -> None:
    await acme.has_invited(name, "guest@example.com", Role.ADMIN)
    before = await tenants.everything()
    answer = await acme.set_role("owner", name, role)
    assert (answer.status, answer.json["membership"]["role"]) == (200, role)
    assert await tenants.everything() == before


async def test_only_admin_and_member_can_be_given(tenants: Tenants, acme: Tenant) -> None:
    before = await tenants.everything()
    for role in ("owner", "boss", "", "Admin", "admin ", "service", "x" * 2000):
        answer = await acme.set_role("owner", "member", role)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), role
    assert await tenants.everything() == before


async def test_the_owner_keeps_the_own_role(tenants: Tenants, acme: Tenant) -> None:
    before = await tenants.everything()
    for role in ("admin", "member", "owner"):
        answer = await acme.set_role("owner", "owner", role)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), role
    assert await tenants.everything() == before


@pytest.mark.parametrize("caller", ["admin", "member"])
async def test_only_the_owner_gives_roles(tenants: Tenants, acme: Tenant, caller: str) -> None:
    before = await tenants.everything()
    for whom, role in (("member", "admin"), ("further", "member"), ("deputy", "member"), ("owner", "member"), (caller, "owner")):
        answer = await acme.set_role(caller, whom, role)
        assert (answer.status, answer.code) == (403, "FORBIDDEN"), whom
    assert await tenants.everything() == before


async def test_whoever_is_no_member_here_has_no_role_to_change(tenants: Tenants, acme: Tenant, twin: Tenant) -> None:
    stranger = await add_account(tenants.ports, "stranger@example.com", None)
    before = await tenants.everything()
    names = [
        str(stranger.id),
        twin.id("member"),
        twin.id("owner"),
        str(new_id()),
        "x",
        acme.id("member").upper(),
        f"{acme.id('member')}%20",
    ]
    for name in names:
        # Whether there is anybody comes before what the body says (decisions, point 16).
        for role in ("admin", "owner", "boss"):
            answer = await tenants.api.patch(f"{acme.path}/members/{name}", {"role": role}, token=acme.token("owner"))
            assert (answer.status, answer.code) == (404, "NOT_FOUND"), (name, role)
    assert await tenants.everything() == before


async def test_a_role_is_changed_in_the_organization_of_the_path_only(tenants: Tenants, acme: Tenant, twin: Tenant) -> None:
    await twin.join("both", acme.people["member"])
    assert (await acme.set_role("owner", "member", "admin")).status == 200
    assert (await acme.roles())["member"] == "admin"
    assert (await twin.roles())["both"] == "member"
    assert await twin.recorded() == []


# Removal


@pytest.mark.parametrize(("caller", "whom"), [("owner", "member"), ("owner", "admin"), ("admin", "member"), ("admin", "deputy")])
async def test_those_who_manage_members_remove_them(tenants: Tenants, acme: Tenant, caller: str, whom: str) -> None:
    answer = await acme.remove(caller, whom)
    assert (answer.status, answer.json) == (200, {"message": "The member was removed."})
    assert await acme.check() == {name: role for name, role in CAST.items() if name != whom}
    entry = ("user.removed", "user", acme.id(whom), acme.people[caller].id, {"role": CAST[whom].value})
    assert await acme.recorded() == [entry]
    again = await acme.remove(caller, whom)
    assert (again.status, again.code) == (404, "NOT_FOUND")
    assert await acme.recorded() == [entry]


async def test_neither_oneself_nor_the_owner_can_be_removed(tenants: Tenants, acme: Tenant) -> None:
    before = await tenants.everything()
    for caller, whom in (("owner", "owner"), ("admin", "admin"), ("admin", "owner")):
        answer = await acme.remove(caller, whom)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), (caller, whom)
    assert await tenants.everything() == before


async def test_members_remove_nobody(tenants: Tenants, acme: Tenant) -> None:
    before = await tenants.everything()
    for whom in ("owner", "admin", "member", "further"):
        answer = await acme.remove("member", whom)
        assert (answer.status, answer.code) == (403, "FORBIDDEN"), whom
    assert await tenants.everything() == before


async def test_whoever_is_no_member_here_cannot_be_removed(tenants: Tenants, acme: Tenant, twin: Tenant) -> None:
    before = await tenants.everything()
    for name in (twin.id("member"), twin.id("owner"), str(new_id()), "x", acme.id("member").upper()):
        answer = await tenants.api.post(f"{acme.path}/members/{name}", token=acme.token("admin"))
        assert (answer.status, answer.code) == (404, "NOT_FOUND"), name
    assert await tenants.everything() == before


async def test_removal_ends_the_sessions_in_this_organization_at_once_and_no_others(tenants: Tenants, acme: Tenant, twin: Tenant) -> None:
    member = acme.people["member"]
    steward = await add_platform_owner(tenants.ports)
    await twin.join("both", member)
    second = await sign_in(tenants.ports, member, acme.org)
    acted = await impersonate(tenants.ports, steward, member, acme.org)
    plain = (await sign_in(tenants.ports, member)).access_token
    assert (await acme.remove("admin", "member")).status == 200
    for token in (acme.token("member"), second.access_token, acted):
        for path in (f"{acme.path}/members", "/api/user", f"{twin.path}/members"):
            answer = await tenants.api.get(path, token=token)
            assert (answer.status, answer.code) == (401, "UNAUTHORIZED"), path
    refreshed = await tenants.api.post("/api/auth/refresh", {"refresh_token": acme.sessions["member"].refresh_token})
    assert refreshed.status == 401
    # A session that had not selected this organization lives, and opens nothing here.
    answer = await tenants.api.get(f"{acme.path}/members", token=plain)
    assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert (await tenants.api.get("/api/user", token=plain)).status == 200
    for token in (plain, twin.token("both")):
        assert (await tenants.api.get(f"{twin.path}/members", token=token)).status == 200
    assert (await tenants.api.get(f"{acme.path}/members", token=acme.token("further"))).status == 200
    assert (await twin.check())["both"] == "member"


async def test_a_removed_member_can_come_back_as_somebody_new(tenants: Tenants, acme: Tenant) -> None:
    assert (await acme.remove("owner", "deputy")).status == 200
    await acme.join("deputy", acme.people["deputy"])
    assert (await acme.check())["deputy"] == "member"
    answer = await acme.remove("deputy", "member")
    assert (answer.status, answer.code) == (403, "FORBIDDEN")


# The transfer of ownership


@pytest.mark.parametrize("name", ["admin", "member"])
async def test_a_transfer_swaps_owner_and_member(tenants: Tenants, acme: Tenant, twin: Tenant, name: str) -> None:
    answer = await acme.transfer("owner", name)
    assert answer.status == 200
    assert answer.json == {
        "message": "The ownership was transferred.",
        "old_owner": {"user_id": acme.id("owner"), "new_role": "admin"},
        "new_owner": {"user_id": acme.id(name), "role": "owner"},
    }
    assert await acme.check() == {**CAST, "owner": "admin", name: "owner"}
    assert await twin.check() == CAST
    owner = acme.people["owner"].id
    assert await acme.recorded() == [
        ("user.role_updated", "user", acme.id("owner"), owner, {"old_role": "owner", "new_role": "admin"}),
        ("user.role_updated", "user", acme.id(name), owner, {"old_role": CAST[name].value, "new_role": "owner"}),
        (
            "organization.owner.changed",
            "organization",
            str(acme.org),
            owner,
            {"old_owner_id": acme.id("owner"), "new_owner_id": acme.id(name)},
        ),
    ]
    told = await run_sql(tenants.pool, "select name from events where org_id = %s order by created_at", acme.org)
    assert told == [("user.role_updated",), ("user.role_updated",), ("organization.owner.changed",)]


async def test_after_a_transfer_the_new_owner_owns_and_the_old_one_manages(tenants: Tenants, acme: Tenant) -> None:
    assert (await acme.transfer("owner", "member")).status == 200
    refused = await acme.set_role("owner", "further", "admin")
    assert (refused.status, refused.code) == (403, "FORBIDDEN")
    assert (await acme.transfer("owner", "admin")).status == 403
    assert (await acme.remove("owner", "further")).status == 200
    assert (await acme.remove("owner", "member")).status == 400
    assert (await acme.set_role("member", "owner", "member")).status == 200
    assert (await acme.transfer("member", "owner")).status == 200
    assert (await acme.check())["owner"] == "owner"


async def test_a_transfer_names_another_active_member_of_this_organization(tenants: Tenants, acme: Tenant, twin: Tenant) -> None:
    stranger = await add_account(tenants.ports, "stranger@example.com", None)
    for name, column in (("admin", "deactivated_at"), ("deputy", "anonymized_at")):
        await run_sql(tenants.pool, f"update users set {column} = now() where id = %s", acme.people[name].id)  # noqa: S608
    before = await tenants.everything()
    targets: list[object] = [
        acme.id("owner"),
        acme.id("admin"),
        acme.id("deputy"),
        str(stranger.id),
        twin.id("member"),
        twin.id("owner"),
        str(new_id()),
        "x",
        "",
        acme.id("member").upper(),
        f"{{{acme.id('member')}}}",
        f" {acme.id('member')}",
        None,
        5,
        [acme.id("member")],
    ]
    for target in targets:
        answer = await tenants.api.post(f"{acme.path}/transfer-ownership", {"new_owner_user_id": target}, token=acme.token("owner"))
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), target
    assert (await tenants.api.post(f"{acme.path}/transfer-ownership", token=acme.token("owner"))).status == 400
    assert await tenants.everything() == before


async def test_nobody_can_tell_who_has_an_account_by_naming_them_as_the_new_owner(tenants: Tenants, acme: Tenant, twin: Tenant) -> None:
    answers = [
        await tenants.api.post(f"{acme.path}/transfer-ownership", {"new_owner_user_id": name}, token=acme.token("owner"))
        for name in (twin.id("member"), str(new_id()))
    ]
    assert answers[0].json["error"] == answers[1].json["error"]


@pytest.mark.parametrize("caller", ["admin", "member"])
async def test_only_the_owner_transfers(tenants: Tenants, acme: Tenant, caller: str) -> None:
    before = await tenants.everything()
    for whom in ("admin", "member", "further", "owner"):
        answer = await acme.transfer(caller, whom)
        assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert await tenants.everything() == before


# Who may come near any of it

CALLS: dict[str, Callable[[Tenants, Tenant, str, str], Awaitable[Answer]]] = {
    "list": lambda tenants, team, token, whom: tenants.api.get(f"{team.path}/members", token=token),
    "role": lambda tenants, team, token, whom: tenants.api.patch(f"{team.path}/members/{whom}", {"role": "admin"}, token=token),
    "removal": lambda tenants, team, token, whom: tenants.api.post(f"{team.path}/members/{whom}", token=token),
    "transfer": lambda tenants, team, token, whom: tenants.api.post(
        f"{team.path}/transfer-ownership", {"new_owner_user_id": whom}, token=token
    ),
}


@pytest.mark.parametrize("call", CALLS)
async def test_nobody_from_outside_gets_in(tenants: Tenants, call: str) -> None:
    acme, twin = [await tenants.add(slug, cast={"owner": Role.OWNER, "member": Role.MEMBER}) for slug in ("acme", "twin")]
    steward = await add_platform_owner(tenants.ports)
    outside = [(await sign_in(tenants.ports, account)).access_token for account in (steward, twin.people["owner"])]
    before = await tenants.everything()
    for token in (twin.token("owner"), *outside):
        answer = await CALLS[call](tenants, acme, token, acme.id("member"))
        assert (answer.status, answer.code) == (403, "FORBIDDEN")
        unknown = await CALLS[call](tenants, replace(acme, org=new_id(), slug="nothing-there"), token, acme.id("member"))
        assert (unknown.status, unknown.code) == (404, "NOT_FOUND")
    assert await tenants.everything() == before


@pytest.mark.parametrize("status", ["suspended", "pending", "rejected"])
@pytest.mark.parametrize("call", CALLS)
async def test_nothing_is_done_in_an_organization_that_is_not_active(tenants: Tenants, acme: Tenant, call: str, status: str) -> None:
    await run_sql(tenants.pool, "update organizations set status = %s where id = %s", status, acme.org)
    before = await tenants.everything()
    answer = await CALLS[call](tenants, acme, acme.token("owner"), acme.id("member"))
    assert (answer.status, answer.code) == (403, "ORGANIZATION_NOT_ACTIVE")
    assert await tenants.everything() == before


@pytest.mark.parametrize("call", CALLS)
async def test_ownership_is_not_transferred_while_impersonating_and_all_else_names_both(tenants: Tenants, acme: Tenant, call: str) -> None:
    steward = await add_platform_owner(tenants.ports)
    token = await impersonate(tenants.ports, steward, acme.people["owner"], acme.org)
    before = await tenants.everything()
    answer = await CALLS[call](tenants, acme, token, acme.id("member"))
    if call == "transfer":
        assert (answer.status, answer.code) == (403, "FORBIDDEN")
        assert await tenants.everything() == before
        return
    assert answer.status == 200
    actors = await run_sql(tenants.pool, "select actor_id, impersonator_id from audit_log")
    assert actors == ([] if call == "list" else [(acme.people["owner"].id, steward.id)])


# Invitations of somebody who may not make them any more (security.md R-4)


async def _invitations(tenants: Tenants, acme: Tenant, twin: Tenant, inviter: str) -> dict[str, str]:
    """Some of everything; by the person's name and what it is about, with its id."""
    await twin.join("same", acme.people[inviter], Role.ADMIN)
    made = {
        "admin": await acme.has_invited(inviter, "new-admin@example.com", Role.ADMIN),
        "member": await acme.has_invited(inviter, "new-member@example.com", Role.MEMBER),
        "accepted": await acme.has_invited(inviter, "accepted@example.com", Role.ADMIN),
        "past its time": await acme.has_invited(inviter, "late@example.com", Role.ADMIN),
        "another's": await acme.has_invited("deputy", "another@example.com", Role.ADMIN),
        "elsewhere": await twin.has_invited("same", "new-admin@example.com", Role.ADMIN),
    }
    await run_sql(tenants.pool, "update invitations set status = 'accepted', ended_at = now() where id = %s", made["accepted"])
    await run_sql(tenants.pool, "update invitations set expires_at = %s where id = %s", tenants.ports.clock.now(), made["past its time"])
    return made


async def _voided(tenants: Tenants, made: Mapping[str, str]) -> set[str]:
    rows = await run_sql(tenants.pool, "select id, status, ended_at is not null from invitations")
    status = {str(row[0]): row[1] for row in rows}
    assert status[made["accepted"]] == "accepted"
    assert all((row[1] == "pending") != row[2] for row in rows)
    return {name for name, id_ in made.items() if status[id_] == "cancelled"}


async def _revocations(tenants: Tenants) -> dict[str, tuple[Any, ...]]:
    rows = await run_sql(
        tenants.pool,
        "select target_id, org_id, target_type, actor_id, details from audit_log where action = 'invitation.revoked'",
    )
    told = await run_sql(tenants.pool, "select target_id from events where name = 'invitation.revoked'")
    assert {row[0] for row in told} == {row[0] for row in rows}
    assert len(told) == len(rows)
    return {row[0]: row[1:] for row in rows}


async def test_demotion_voids_what_the_demoted_had_invited(tenants: Tenants, acme: Tenant, twin: Tenant) -> None:
    made = await _invitations(tenants, acme, twin, "admin")
    assert (await acme.set_role("owner", "admin", "member")).status == 200
    assert await _voided(tenants, made) == {"admin", "member"}
    owner = acme.people["owner"].id
    assert await _revocations(tenants) == {
        made[role]: (acme.org, "invitation", owner, {"invited_email": f"new-{role}@example.com", "role": role})
        for role in ("admin", "member")
    }


async def test_removal_voids_what_the_removed_had_invited(tenants: Tenants, acme: Tenant, twin: Tenant) -> None:
    made = await _invitations(tenants, acme, twin, "admin")
    assert (await acme.remove("deputy", "admin")).status == 200
    assert await _voided(tenants, made) == {"admin", "member"}
    assert {id_: entry[2] for id_, entry in (await _revocations(tenants)).items()} == {
        made[role]: acme.people["deputy"].id for role in ("admin", "member")
    }


async def test_a_transfer_voids_what_only_an_owner_may_invite_to(tenants: Tenants, acme: Tenant, twin: Tenant) -> None:
    made = await _invitations(tenants, acme, twin, "owner")
    assert (await acme.transfer("owner", "admin")).status == 200
    assert await _voided(tenants, made) == {"admin"}
    assert (await _revocations(tenants)).keys() == {made["admin"]}


async def test_whoever_rises_loses_no_invitation(tenants: Tenants, acme: Tenant) -> None:
    await acme.has_invited("admin", "new-member@example.com", Role.MEMBER)
    assert (await acme.transfer("owner", "admin")).status == 200
    assert await run_sql(tenants.pool, "select status from invitations") == [("pending",)]
    assert await _revocations(tenants) == {}


# All at once (security.md section 21)


async def crowd(tenants: Tenants, size: int, role: Role = Role.MEMBER) -> Tenant:
    return await tenants.add("acme", cast={"owner": Role.OWNER} | {f"n{number}": role for number in range(size)})


@pytest.mark.slow
async def test_of_twenty_transfers_to_different_members_one_wins(tenants: Tenants) -> None:
    acme = await crowd(tenants, 20)
    answers = await everyone(20, lambda number: acme.transfer("owner", f"n{number}"))
    assert sorted(answer.status for answer in answers) == [200] + [403] * 19
    [won] = [answer.json for answer in answers if answer.status == 200]
    roles = await acme.check()
    assert roles["owner"] == "admin"
    assert [acme.id(name) for name, role in roles.items() if role == "owner"] == [won["new_owner"]["user_id"]]
    assert [entry[0] for entry in await acme.recorded()].count("organization.owner.changed") == 1


@pytest.mark.slow
async def test_whoever_gets_it_gives_it_back_while_nineteen_others_ask(tenants: Tenants) -> None:
    """Ownership wanders: everybody who might own the organization transfers it to the next, all at once."""
    acme = await crowd(tenants, 19, Role.ADMIN)
    names = list(acme.people)
    for _ in range(3):
        answers = await everyone(20, lambda number: acme.transfer(names[number], names[(number + 1) % 20]))
        assert {answer.status for answer in answers} <= {200, 403}
        assert [answer.status for answer in answers].count(200) >= 1
        roles = await acme.check()
        assert list(roles.values()).count("admin") == 19


@pytest.mark.slow
async def test_transfers_removals_and_changes_of_role_at_once_leave_one_owner_and_a_true_count(tenants: Tenants, twin: Tenant) -> None:
    acme = await crowd(tenants, 10)
    await acme.join("admin", await add_account(tenants.ports, "admin@acme.example", None), Role.ADMIN)
    for number in range(10):
        await acme.has_invited("owner", f"guest-{number}@example.com", Role.ADMIN if number % 2 else Role.MEMBER)

    async def act(number: int) -> Answer:
        name = f"n{number % 10}"
        match number % 4:
            case 0:
                return await acme.transfer("owner", name)
            case 1:
                return await acme.remove("admin", name)
            case 2:
                return await acme.set_role("owner", name, "admin")
        return await acme.remove("admin", "owner")

    answers = await everyone(20, act)
    assert {answer.status for answer in answers} <= {200, 400, 403, 404}
    removed = sum(answer.status == 200 and answer.json.get("message") == "The member was removed." for answer in answers)
    roles = await acme.check()
    assert len(roles) == 12 - removed
    if roles.get("owner") != "owner":
        assert await run_sql(
            tenants.pool, "select count(*) from invitations where status = 'pending' and role = 'admin' and org_id = %s", acme.org
        ) == [(0,)]
    log = [entry[0] for entry in await acme.recorded()]
    assert log.count("user.removed") == removed
    assert await twin.check() == CAST


@pytest.mark.slow
async def test_a_new_owner_is_not_removed_and_a_removed_member_does_not_become_the_owner(tenants: Tenants) -> None:
    acme = await tenants.add("acme", cast={"owner": Role.OWNER, "admin": Role.ADMIN, "heir": Role.MEMBER})

    async def act(number: int) -> Answer:
        return await (acme.transfer("owner", "heir") if number % 2 else acme.remove("admin", "heir"))

    answers = await everyone(20, act)
    roles = await acme.check()
    assert [answer.status for answer in answers].count(200) == 1
    if "heir" in roles:
        assert roles == {"owner": "admin", "admin": "admin", "heir": "owner"}
        assert sorted(answer.status for answer in answers) == [200] + [400] * 10 + [403] * 9
    else:
        assert roles == {"owner": "owner", "admin": "admin"}
        assert sorted(answer.status for answer in answers) == [200] + [400] * 10 + [404] * 9


@pytest.mark.slow
async def test_twenty_removals_of_one_member_count_once(tenants: Tenants, acme: Tenant) -> None:
    callers = ["owner", "admin", "deputy"]
    answers = await everyone(20, lambda number: acme.remove(callers[number % 3], "member"))
    assert sorted(answer.status for answer in answers) == [200] + [404] * 19
    assert len(await acme.check()) == len(CAST) - 1
    assert len(await acme.recorded()) == 1


@pytest.mark.slow
async def test_no_session_survives_its_members_removal_by_being_renewed_or_made_meanwhile(tenants: Tenants, acme: Tenant) -> None:
    member = acme.people["member"]
    plain = [await sign_in(tenants.ports, member) for _ in range(10)]
    chosen = [await sign_in(tenants.ports, member, acme.org) for _ in range(9)]

    async def act(number: int) -> Answer:
        if number == 0:
            return await acme.remove("admin", "member")
        if number <= 10:
            return await tenants.api.post(f"{acme.path}/select", token=plain[number - 1].access_token)
        return await tenants.api.post("/api/auth/refresh", {"refresh_token": chosen[number - 11].refresh_token})

    answers = await everyone(20, act)
    assert {answer.status for answer in answers} <= {200, 401, 403}
    live = "select count(*) from sessions where org_id = %s and user_id = %s and ended_at is null"
    assert await run_sql(tenants.pool, live, acme.org, member.id) == [(0,)]
    given = [answer.json["access_token"] for answer in answers if "access_token" in answer.json]
    assert {(await tenants.api.get(f"{acme.path}/members", token=token)).status for token in given} <= {401}


@pytest.mark.slow
async def test_admins_who_remove_each_other_leave_one_of_them(tenants: Tenants) -> None:
    acme = await crowd(tenants, 10, Role.ADMIN)

    async def act(number: int) -> Answer:
        return await acme.remove(f"n{number % 10}", f"n{(number + 1 + number // 10) % 10}")

    answers = await everyone(20, act)
    # Who has been removed already is refused at the door, or under the lock.
    assert {answer.status for answer in answers} <= {200, 401, 403, 404}
    roles = await acme.check()
    assert len(roles) == 11 - [answer.status for answer in answers].count(200) >= 2


@pytest.mark.slow
async def test_twenty_equal_changes_of_role_are_recorded_once(tenants: Tenants, acme: Tenant) -> None:
    answers = await everyone(20, lambda _: acme.set_role("owner", "member", "admin"))
    assert {answer.status for answer in answers} == {200}
    assert len(await acme.recorded()) == 1


# A write that was let in at the door and then waited for another one: what that one left is what counts.
SECOND: dict[str, tuple[str, str, str, int]] = {
    "a demoted admin removes nobody": ("update memberships set role = 'member' where user_id = %(admin)s", "admin", "removal", 403),
    "a removed admin removes nobody": ("delete from memberships where user_id = %(admin)s", "admin", "removal", 403),
    "a former owner gives no roles": (SWAP := "update memberships set role = 'admin' where user_id = %(owner)s", "owner", "role", 403),
    "a former owner transfers nothing": (SWAP, "owner", "transfer", 403),
    "an admin removes nobody from a suspended organization": ("update organizations set status = 'suspended'", "admin", "removal", 403),
    "whoever was removed is not removed": ("delete from memberships where user_id = %(member)s", "admin", "removal", 404),
    "whoever was removed gets no role": ("delete from memberships where user_id = %(member)s", "owner", "role", 404),
    "whoever was removed does not become the owner": ("delete from memberships where user_id = %(member)s", "owner", "transfer", 400),
    "whoever was deactivated does not become the owner": (
        "update users set deactivated_at = now() where id = %(member)s",
        "owner",
        "transfer",
        400,
    ),
}


@pytest.mark.parametrize("name", SECOND)
async def test_a_write_that_comes_second_obeys_what_came_first(tenants: Tenants, acme: Tenant, name: str) -> None:
    first, caller, call, status = SECOND[name]
    changes = [
        ("select 1 from organizations where id = %s for no key update", (acme.org,)),
        (first, {person: account.id for person, account in acme.people.items()}),
    ]
    answer = await meanwhile(tenants.pool, changes, lambda: CALLS[call](tenants, acme, acme.token(caller), acme.id("member")))
    assert answer.status == status
    assert await acme.recorded() == []
