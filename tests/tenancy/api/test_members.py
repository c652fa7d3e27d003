"""Members: list, roles, removal, permissions (decisions 155, 199; security R-1, R-6)."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from core.kernel.roles import ADMIN, MEMBER, OWNER, ROLES, RoleName
from core.kernel.values import new_id
from tests.fakes.outside import FakeClock
from tests.support.builders import add_account, add_platform_owner, impersonate, run_sql, sign_in
from tests.support.tenants import Tenant, Tenants
from tests.tenancy.members import CALLS, CAST


@pytest.fixture
def cast() -> Mapping[str, RoleName]:
    return CAST


# List


async def test_a_listed_member_has_exactly_these_fields(tenants: Tenants) -> None:
    acme = await tenants.add("acme", cast={"owner": OWNER})
    await run_sql(tenants.pool, "update users set is_platform_owner = true where id = %s", acme.people["owner"].id)
    [(membership, created_at)] = await run_sql(tenants.pool, "select id, created_at from memberships")
    answer = await tenants.api.get(f"{acme.path}/members", token=acme.token("owner"))
    assert answer.status == 200
    assert answer.json == {
        "members": [
            {
                "user": {"id": acme.id("owner"), "email": "owner@acme.example", "is_platform_owner": True, "name": None},
                "membership": {
                    "id": str(membership),
                    "role": "owner",
                    "roles": ["owner"],
                    "created_at": created_at.isoformat().replace("+00:00", "Z"),
                },
            }
        ],
        "pagination": {"page": 1, "limit": 50, "total": 1, "total_pages": 1, "has_next": False, "has_prev": False},
        "limits": {"max_users": 100, "source": "tier"},
    }


@pytest.mark.parametrize("name", ["owner", "admin", "member"])
async def test_every_member_sees_the_members_of_their_organization_oldest_first(
    tenants: Tenants, acme: Tenant, other_tenant: Tenant, name: str
) -> None:
    answer = await tenants.api.get(f"{acme.path}/members", token=acme.token(name))
    members = [(member["user"]["email"], member["membership"]["role"]) for member in answer.json["members"]]
    assert members == [(f"{name}@acme.example", role) for name, role in CAST.items()]
    assert answer.json["pagination"]["total"] == len(CAST)
    assert "twin" not in answer.text


async def test_pages_follow_one_order(tenants: Tenants, acme: Tenant, other_tenant: Tenant) -> None:
    async def page(query: str) -> tuple[list[str], dict[str, Any]]:
        answer = await tenants.api.get(f"{acme.path}/members?{query}", token=acme.token("member"))
        assert answer.status == 200
        return [member["user"]["email"].partition("@")[0] for member in answer.json["members"]], answer.json["pagination"]

    names = list(CAST)
    expected = {"page": 1, "limit": 2, "total": 5, "total_pages": 3, "has_next": True, "has_prev": False}
    assert await page("limit=2") == (names[:2], expected)
    assert await page("limit=2&page=2") == (names[2:4], expected | {"page": 2, "has_prev": True})
    assert await page("limit=2&page=3") == (names[4:], expected | {"page": 3, "has_next": False, "has_prev": True})
    assert await page("limit=2&page=4") == ([], expected | {"page": 4, "has_next": False, "has_prev": True})
    whole = {"page": 1, "limit": 100, "total": 5, "total_pages": 1, "has_next": False, "has_prev": False}
    assert await page("limit=1000&page=0") == (names, whole)
    assert await page("limit=-5&page=-1") == (names[:1], whole | {"limit": 1, "total_pages": 5, "has_next": True})
    far = await page(f"page={10**30}&limit={10**30}")
    assert (far[0], far[1]["limit"], far[1]["has_next"]) == ([], 100, False)
    for query in ("limit=ten", "page=1.5", "page=", "limit=0x10"):
        answer = await tenants.api.get(f"{acme.path}/members?{query}", token=acme.token("member"))
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), query


async def test_a_role_filter_applies_to_list_and_total(tenants: Tenants, acme: Tenant, other_tenant: Tenant) -> None:
    for role in ROLES:
        emails = [f"{name}@acme.example" for name, has in CAST.items() if has is role]
        for page, expected in (("limit=50", emails), ("limit=1&page=2", emails[1:2])):
            answer = await tenants.api.get(f"{acme.path}/members?role={role}&{page}", token=acme.token("member"))
            assert [member["user"]["email"] for member in answer.json["members"]] == expected
            assert {member["membership"]["role"] for member in answer.json["members"]} <= {role}
            assert answer.json["pagination"]["total"] == len(emails)


async def test_a_role_without_members_gives_an_empty_list(tenants: Tenants) -> None:
    acme = await tenants.add("acme", cast={"owner": OWNER})
    answer = await tenants.api.get(f"{acme.path}/members?role=admin", token=acme.token("owner"))
    assert (answer.status, answer.json["members"]) == (200, [])
    assert answer.json["pagination"] == {"page": 1, "limit": 50, "total": 0, "total_pages": 0, "has_next": False, "has_prev": False}


async def test_an_unknown_role_filter_is_refused_and_the_error_names_the_valid_ones(tenants: Tenants, acme: Tenant) -> None:
    for role in ("boss", "", "Owner", "owner%20", "null", "members"):
        answer = await tenants.api.get(f"{acme.path}/members?role={role}", token=acme.token("member"))
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), role
        assert all(allowed in answer.json["error"] for allowed in ("owner", "admin", "member"))


async def test_the_limit_has_its_source(tenants: Tenants) -> None:
    acme, other_tenant = await tenants.add("acme", cast={"owner": OWNER}), await tenants.add("twin", cast={"owner": OWNER})

    async def limits(team: Tenant) -> tuple[int, str]:
        member_limits = (await tenants.api.get(f"{team.path}/members", token=team.token("owner"))).json["limits"]
        assert member_limits.keys() == {"max_users", "source"}
        return member_limits["max_users"], member_limits["source"]

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
        assert await limits(other_tenant) == (100, "tier")


# Roles


async def test_the_owner_promotes_and_demotes_a_member(tenants: Tenants, acme: Tenant, clock: FakeClock) -> None:
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
                "roles": [role],
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
    await acme.add_pending_invitation(name, "guest@example.com", ADMIN)
    before = await tenants.everything()
    answer = await acme.set_role("owner", name, role)
    assert (answer.status, answer.json["membership"]["role"]) == (200, role)
    assert await tenants.everything() == before


async def test_only_the_roles_admin_and_member_can_be_assigned(tenants: Tenants, acme: Tenant) -> None:
    before = await tenants.everything()
    for role in ("owner", "boss", "", "Admin", "admin ", "service", "x" * 2000):
        answer = await acme.set_role("owner", "member", role)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), role
    assert await tenants.everything() == before


async def test_the_owner_cannot_change_their_own_role(tenants: Tenants, acme: Tenant) -> None:
    before = await tenants.everything()
    for role in ("admin", "member", "owner"):
        answer = await acme.set_role("owner", "owner", role)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), role
    assert await tenants.everything() == before


@pytest.mark.parametrize("caller", ["admin", "member"])
async def test_only_the_owner_can_change_roles(tenants: Tenants, acme: Tenant, caller: str) -> None:
    before = await tenants.everything()
    for member, role in (("member", "admin"), ("further", "member"), ("deputy", "member"), ("owner", "member"), (caller, "owner")):
        answer = await acme.set_role(caller, member, role)
        assert (answer.status, answer.code) == (403, "FORBIDDEN"), member
    assert await tenants.everything() == before


async def test_changing_the_role_of_a_non_member_answers_404(tenants: Tenants, acme: Tenant, other_tenant: Tenant) -> None:
    stranger = await add_account(tenants.ports, "stranger@example.com", None)
    before = await tenants.everything()
    names = [
        str(stranger.id),
        other_tenant.id("member"),
        other_tenant.id("owner"),
        str(new_id()),
        "x",
        acme.id("member").upper(),
        f"{acme.id('member')}%20",
    ]
    for name in names:
        # 404 comes before errors about the body.
        for role in ("admin", "owner", "boss"):
            answer = await tenants.api.patch(f"{acme.path}/members/{name}", {"role": role}, token=acme.token("owner"))
            assert (answer.status, answer.code) == (404, "NOT_FOUND"), (name, role)
    assert await tenants.everything() == before


async def test_a_non_member_answers_404_before_the_body_is_parsed(tenants: Tenants, acme: Tenant) -> None:
    bodies: list[tuple[bytes | None, dict[str, str]]] = [
        (b"{", {}),
        (b'{"role": 5}', {}),
        (b"x", {"Content-Type": "text/plain"}),
        (None, {}),
    ]
    answers = [
        await tenants.api.call("PATCH", f"{acme.path}/members/{name}", raw=raw, token=acme.token("owner"), headers=headers)
        for name in (str(new_id()), "xyz", acme.id("admin").upper())
        for raw, headers in bodies
    ]
    assert {(answer.status, answer.code) for answer in answers} == {(404, "NOT_FOUND")}
    assert len({answer.json["error"] for answer in answers}) == 1, "malformed and unknown ids give the same error"


async def test_a_role_changes_only_in_the_organization_of_the_path(tenants: Tenants, acme: Tenant, other_tenant: Tenant) -> None:
    await other_tenant.join("both", acme.people["member"])
    assert (await acme.set_role("owner", "member", "admin")).status == 200
    assert (await acme.roles())["member"] == "admin"
    assert (await other_tenant.roles())["both"] == "member"
    assert await other_tenant.recorded() == []


# Removal


@pytest.mark.parametrize(("caller", "member"), [("owner", "member"), ("owner", "admin"), ("admin", "member"), ("admin", "deputy")])
async def test_owners_and_admins_remove_members(tenants: Tenants, acme: Tenant, caller: str, member: str) -> None:
    answer = await acme.remove(caller, member)
    assert (answer.status, answer.json) == (200, {"message": "The member was removed."})
    assert await acme.check() == {name: role for name, role in CAST.items() if name != member}
    entry = ("user.removed", "user", acme.id(member), acme.people[caller].id, {"role": CAST[member]})
    assert await acme.recorded() == [entry]
    second_answer = await acme.remove(caller, member)
    assert (second_answer.status, second_answer.code) == (404, "NOT_FOUND")
    assert await acme.recorded() == [entry]


async def test_neither_the_caller_nor_the_owner_can_be_removed(tenants: Tenants, acme: Tenant) -> None:
    before = await tenants.everything()
    for caller, member in (("owner", "owner"), ("admin", "admin"), ("admin", "owner")):
        answer = await acme.remove(caller, member)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), (caller, member)
    assert await tenants.everything() == before


async def test_members_cannot_remove_anyone(tenants: Tenants, acme: Tenant) -> None:
    before = await tenants.everything()
    for member in ("owner", "admin", "member", "further"):
        answer = await acme.remove("member", member)
        assert (answer.status, answer.code) == (403, "FORBIDDEN"), member
    assert await tenants.everything() == before


async def test_removing_a_non_member_answers_404(tenants: Tenants, acme: Tenant, other_tenant: Tenant) -> None:
    before = await tenants.everything()
    for name in (other_tenant.id("member"), other_tenant.id("owner"), str(new_id()), "x", acme.id("member").upper()):
        answer = await tenants.api.post(f"{acme.path}/members/{name}", token=acme.token("admin"))
        assert (answer.status, answer.code) == (404, "NOT_FOUND"), name
    assert await tenants.everything() == before


async def test_removal_ends_only_the_sessions_in_this_organization(tenants: Tenants, acme: Tenant, other_tenant: Tenant) -> None:
    member = acme.people["member"]
    steward = await add_platform_owner(tenants.ports)
    await other_tenant.join("both", member)
    second = await sign_in(tenants.ports, member, acme.org)
    acted = await impersonate(tenants.ports, steward, member, acme.org)
    own_token = (await sign_in(tenants.ports, member)).access_token
    assert (await acme.remove("admin", "member")).status == 200
    for token in (acme.token("member"), second.access_token, acted):
        for path in (f"{acme.path}/members", "/api/user", f"{other_tenant.path}/members"):
            answer = await tenants.api.get(path, token=token)
            assert (answer.status, answer.code) == (401, "UNAUTHORIZED"), path
    refreshed = await tenants.api.post("/api/auth/refresh", {"refresh_token": acme.sessions["member"].refresh_token})
    assert refreshed.status == 401
    # A session that has not selected this organization does not end, but gives no access to it.
    answer = await tenants.api.get(f"{acme.path}/members", token=own_token)
    assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert (await tenants.api.get("/api/user", token=own_token)).status == 200
    for token in (own_token, other_tenant.token("both")):
        assert (await tenants.api.get(f"{other_tenant.path}/members", token=token)).status == 200
    assert (await tenants.api.get(f"{acme.path}/members", token=acme.token("further"))).status == 200
    assert (await other_tenant.check())["both"] == "member"


async def test_members_leave_even_an_inactive_organization(tenants: Tenants, acme: Tenant, other_tenant: Tenant) -> None:
    await other_tenant.join("both", acme.people["member"])
    own_token = (await sign_in(tenants.ports, acme.people["member"])).access_token
    await run_sql(tenants.pool, "update organizations set status = 'suspended' where id = %s", acme.org)
    assert (await tenants.api.post(f"{acme.path}/leave", token=acme.token("member"))).status == 204
    assert "member" not in await acme.check()
    assert (await acme.recorded())[-1] == ("user.removed", "user", acme.id("member"), acme.people["member"].id, {"role": "member"})
    # The session in the organization ended. Another session lives, and no longer belongs to a
    # member.
    assert (await tenants.api.get("/api/user", token=acme.token("member"))).status == 401
    assert (await tenants.api.get(f"{other_tenant.path}/members", token=own_token)).status == 200
    again = await tenants.api.post(f"{acme.path}/leave", token=own_token)
    assert (again.status, again.code) == (403, "FORBIDDEN")


async def test_the_owner_cannot_leave_before_the_transfer(tenants: Tenants, acme: Tenant) -> None:
    before = await tenants.everything()
    answer = await tenants.api.post(f"{acme.path}/leave", token=acme.token("owner"))
    assert (answer.status, "Transfer the ownership" in answer.json["error"]) == (400, True)
    assert await tenants.everything() == before
    await CALLS["transfer"](acme, acme.token("owner"), acme.id("member"))
    assert (await tenants.api.post(f"{acme.path}/leave", token=acme.token("owner"))).status == 204
    assert (await acme.check())["member"] == "owner"


async def test_a_removed_member_can_join_again(tenants: Tenants, acme: Tenant) -> None:
    assert (await acme.remove("owner", "deputy")).status == 200
    await acme.join("deputy", acme.people["deputy"])
    assert (await acme.check())["deputy"] == "member"
    answer = await acme.remove("deputy", "member")
    assert (answer.status, answer.code) == (403, "FORBIDDEN")


# Permissions


async def test_non_members_cannot_call_these_routes(tenants: Tenants) -> None:
    acme, other_tenant = [await tenants.add(slug, cast={"owner": OWNER, "member": MEMBER}) for slug in ("acme", "twin")]
    steward = await add_platform_owner(tenants.ports)
    outside_tokens = [(await sign_in(tenants.ports, account)).access_token for account in (steward, other_tenant.people["owner"])]
    before = await tenants.everything()
    for name, call in CALLS.items():
        for token in (other_tenant.token("owner"), *outside_tokens):
            answer = await call(acme, token, acme.id("member"))
            assert (answer.status, answer.code) == (403, "FORBIDDEN"), name
            unknown = await call(replace(acme, org=new_id(), slug="nothing-there"), token, acme.id("member"))
            assert (unknown.status, unknown.code) == (404, "NOT_FOUND"), name
    assert await tenants.everything() == before


async def test_an_inactive_organization_refuses_all_calls(tenants: Tenants, acme: Tenant) -> None:
    for status in ("suspended", "pending", "rejected"):
        await run_sql(tenants.pool, "update organizations set status = %s where id = %s", status, acme.org)
        before = await tenants.everything()
        for name, call in CALLS.items():
            answer = await call(acme, acme.token("owner"), acme.id("member"))
            assert (answer.status, answer.code) == (403, "ORGANIZATION_NOT_ACTIVE"), (name, status)
        assert await tenants.everything() == before


@pytest.mark.parametrize("call", CALLS)
async def test_an_impersonator_can_only_list_members(tenants: Tenants, acme: Tenant, call: str) -> None:
    steward = await add_platform_owner(tenants.ports)
    token = await impersonate(tenants.ports, steward, acme.people["owner"], acme.org)
    before = await tenants.everything()
    answer = await CALLS[call](acme, token, acme.id("member"))
    if call == "list":
        assert answer.status == 200
    else:
        assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert await tenants.everything() == before
