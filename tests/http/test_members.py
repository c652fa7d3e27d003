"""Members over HTTP: the list, roles, removal, the transfer of ownership, and all of these at once (organizations.md sections 3 and 4.4;
decisions, points 9, 11, 13, 16 to 18, 155 and 199 to 201; security.md sections 8, 9 and 21)."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.pool import Pool
from core.access import SYSTEM, Role
from core.accounts import Account
from core.invitations import Invitation, InvitationStatus
from core.organizations import Membership
from core.values import Email, digest, new_id
from ports import Ports
from tests.builders import Answer, Api, SignedIn, add_account, add_organization, everyone, impersonate, meanwhile, run_sql, sign_in
from tests.fakes.outside import FakeClock

CAST: Mapping[str, Role] = {"owner": Role.OWNER, "admin": Role.ADMIN, "deputy": Role.ADMIN, "member": Role.MEMBER, "further": Role.MEMBER}


@dataclass(slots=True)
class Team:
    """An organization and its people, by what they are called; each has a session that has selected it."""

    org: UUID
    slug: str
    people: dict[str, Account] = field(default_factory=dict)
    sessions: dict[str, SignedIn] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"/api/organizations/{self.slug}"

    def id(self, name: str) -> str:
        return str(self.people[name].id)

    def token(self, name: str) -> str:
        return self.sessions[name].access_token


class Tenancy:
    """Makes teams, and asks about them."""

    def __init__(self, api: Api, ports: Ports, pool: Pool, clock: FakeClock) -> None:
        self.api, self.ports, self.pool, self.clock = api, ports, pool, clock

    async def team(self, slug: str, cast: Mapping[str, Role] = CAST) -> Team:
        team = Team(await add_organization(self.pool, slug), slug)
        for name, role in cast.items():
            account = await add_account(self.ports, f"{name}@{slug}.example", None)
            await self.join(team, name, account, role)
        return team

    async def join(self, team: Team, name: str, account: Account, role: Role = Role.MEMBER) -> None:
        self.clock.advance(timedelta(milliseconds=1))
        now = self.clock.now()
        async with self.ports.storage.transaction(by=SYSTEM) as tx:
            await tx.members.add(Membership(id=new_id(), org_id=team.org, user_id=account.id, role=role, created_at=now, confirmed_at=now))
        team.people[name] = account
        team.sessions[name] = await sign_in(self.ports, account, team.org)

    async def invite(self, team: Team, inviter: str, email: str, role: Role) -> str:
        invitation = Invitation(
            id=new_id(),
            org_id=team.org,
            email=Email(email),
            role=role,
            invited_by=team.people[inviter].id,
            status=InvitationStatus.PENDING,
            token_hash=digest(str(new_id())),
            expires_at=self.clock.now() + timedelta(days=7),
            created_at=self.clock.now(),
        )
        async with self.ports.storage.transaction(by=SYSTEM) as tx:
            await tx.invitations.add(invitation)
        return str(invitation.id)

    async def set_role(self, team: Team, by: str, whom: str, role: str) -> Answer:
        return await self.api.patch(f"{team.path}/members/{team.id(whom)}", {"role": role}, token=team.token(by))

    async def remove(self, team: Team, by: str, whom: str) -> Answer:
        return await self.api.post(f"{team.path}/members/{team.id(whom)}", token=team.token(by))

    async def transfer(self, team: Team, by: str, whom: str) -> Answer:
        return await self.api.post(f"{team.path}/transfer-ownership", {"new_owner_user_id": team.id(whom)}, token=team.token(by))

    async def roles(self, team: Team) -> dict[str, str]:
        """Who is what in the organization, as the database has it."""
        names = {account.id: name for name, account in team.people.items()}
        rows = await run_sql(self.pool, "select user_id, role from memberships where org_id = %s", team.org)
        return {names[user]: role for user, role in rows}

    async def check(self, team: Team) -> dict[str, str]:
        """What must be true of every organization at any time; who is what in it."""
        roles = await self.roles(team)
        assert list(roles.values()).count("owner") == 1
        assert await run_sql(self.pool, "select member_count from organizations where id = %s", team.org) == [(len(roles),)]
        return roles

    async def log(self, team: Team) -> list[tuple[Any, ...]]:
        """The audit log, the oldest entry first."""
        return await run_sql(
            self.pool,
            "select action, target_type, target_id, actor_id, details from audit_log where org_id = %s order by created_at",
            team.org,
        )

    async def everything(self) -> list[tuple[Any, ...]]:
        """All that a refused request must leave alone."""
        return [
            *await run_sql(self.pool, "select id, org_id, user_id, role, created_at from memberships order by id"),
            *await run_sql(self.pool, "select id, member_count from organizations order by id"),
            *await run_sql(self.pool, "select id, status from invitations order by id"),
            *await run_sql(self.pool, "select id, ended_at from sessions order by id"),
            *await run_sql(self.pool, "select count(*) from audit_log"),
            *await run_sql(self.pool, "select count(*) from events"),
        ]


@pytest.fixture
def tenancy(api: Api, ports: Ports, pool: Pool, clock: FakeClock) -> Tenancy:
    return Tenancy(api, ports, pool, clock)


@pytest.fixture
async def acme(tenancy: Tenancy) -> Team:
    return await tenancy.team("acme")


@pytest.fixture
async def twin(tenancy: Tenancy) -> Team:
    return await tenancy.team("twin")


# The list


async def test_a_member_is_shown_with_the_account_the_membership_and_nothing_else(tenancy: Tenancy) -> None:
    acme = await tenancy.team("acme", {"owner": Role.OWNER})
    await run_sql(tenancy.pool, "update users set is_platform_owner = true where id = %s", acme.people["owner"].id)
    [(membership, created_at)] = await run_sql(tenancy.pool, "select id, created_at from memberships")
    answer = await tenancy.api.get(f"{acme.path}/members", token=acme.token("owner"))
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
async def test_every_member_sees_all_members_the_oldest_first_and_nobody_elses(tenancy: Tenancy, acme: Team, twin: Team, name: str) -> None:
    answer = await tenancy.api.get(f"{acme.path}/members", token=acme.token(name))
    shown = [(one["user"]["email"], one["membership"]["role"]) for one in answer.json["members"]]
    assert shown == [(f"{name}@acme.example", role) for name, role in CAST.items()]
    assert answer.json["pagination"]["total"] == len(CAST)
    assert "twin" not in answer.text


async def test_pages_are_cut_in_one_order(tenancy: Tenancy, acme: Team, twin: Team) -> None:
    async def page(query: str) -> tuple[list[str], dict[str, Any]]:
        answer = await tenancy.api.get(f"{acme.path}/members?{query}", token=acme.token("member"))
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
        answer = await tenancy.api.get(f"{acme.path}/members?{query}", token=acme.token("member"))
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), query


async def test_a_role_as_filter_narrows_list_and_total(tenancy: Tenancy, acme: Team, twin: Team) -> None:
    for role in Role:
        emails = [f"{name}@acme.example" for name, has in CAST.items() if has is role]
        for page, shown in (("limit=50", emails), ("limit=1&page=2", emails[1:2])):
            answer = await tenancy.api.get(f"{acme.path}/members?role={role}&{page}", token=acme.token("member"))
            assert [one["user"]["email"] for one in answer.json["members"]] == shown
            assert {one["membership"]["role"] for one in answer.json["members"]} <= {role}
            assert answer.json["pagination"]["total"] == len(emails)


async def test_a_role_without_members_is_an_empty_list(tenancy: Tenancy) -> None:
    acme = await tenancy.team("acme", {"owner": Role.OWNER})
    answer = await tenancy.api.get(f"{acme.path}/members?role=admin", token=acme.token("owner"))
    assert (answer.status, answer.json["members"]) == (200, [])
    assert answer.json["pagination"] == {"page": 1, "limit": 50, "total": 0, "total_pages": 0, "has_next": False, "has_prev": False}


async def test_another_filter_is_refused_and_the_allowed_ones_are_named(tenancy: Tenancy, acme: Team) -> None:
    for role in ("boss", "", "Owner", "owner%20", "null", "members"):
        answer = await tenancy.api.get(f"{acme.path}/members?role={role}", token=acme.token("member"))
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), role
        assert all(allowed in answer.json["error"] for allowed in ("owner", "admin", "member"))


async def test_the_limit_says_where_it_comes_from(tenancy: Tenancy) -> None:
    acme, twin = await tenancy.team("acme", {"owner": Role.OWNER}), await tenancy.team("twin", {"owner": Role.OWNER})

    async def limits(team: Team) -> tuple[int, str]:
        shown = (await tenancy.api.get(f"{team.path}/members", token=team.token("owner"))).json["limits"]
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
        await run_sql(tenancy.pool, f"update organizations set {change} where id = %s", acme.org)  # noqa: S608
        assert await limits(acme) == expected, change
        assert await limits(twin) == (100, "tier")


# Roles


async def test_a_member_becomes_an_admin_and_a_member_again(tenancy: Tenancy, acme: Team) -> None:
    [(id_, created_at)] = await run_sql(tenancy.pool, "select id, created_at from memberships where user_id = %s", acme.people["member"].id)
    for role in ("admin", "member"):
        tenancy.clock.advance(timedelta(seconds=1))
        answer = await tenancy.set_role(acme, "owner", "member", role)
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
        assert await tenancy.check(acme) == {**CAST, "member": role}
    owner, target = acme.people["owner"].id, acme.id("member")
    assert await tenancy.log(acme) == [
        ("user.role_updated", "user", target, owner, {"old_role": "member", "new_role": "admin"}),
        ("user.role_updated", "user", target, owner, {"old_role": "admin", "new_role": "member"}),
    ]


@pytest.mark.parametrize(("name", "role"), [("admin", "admin"), ("member", "member")])
async def test_the_same_role_again_changes_and_records_nothing(tenancy: Tenancy, acme: Team, name: str, role: str) -> None:
    await tenancy.invite(acme, name, "guest@example.com", Role.ADMIN)
    before = await tenancy.everything()
    answer = await tenancy.set_role(acme, "owner", name, role)
    assert (answer.status, answer.json["membership"]["role"]) == (200, role)
    assert await tenancy.everything() == before


async def test_only_admin_and_member_can_be_given(tenancy: Tenancy, acme: Team) -> None:
    before = await tenancy.everything()
    for role in ("owner", "boss", "", "Admin", "admin ", "service", "x" * 2000):
        answer = await tenancy.set_role(acme, "owner", "member", role)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), role
    assert await tenancy.everything() == before


async def test_the_owner_keeps_the_own_role(tenancy: Tenancy, acme: Team) -> None:
    before = await tenancy.everything()
    for role in ("admin", "member", "owner"):
        answer = await tenancy.set_role(acme, "owner", "owner", role)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), role
    assert await tenancy.everything() == before


@pytest.mark.parametrize("caller", ["admin", "member"])
async def test_only_the_owner_gives_roles(tenancy: Tenancy, acme: Team, caller: str) -> None:
    before = await tenancy.everything()
    for whom, role in (("member", "admin"), ("further", "member"), ("deputy", "member"), ("owner", "member"), (caller, "owner")):
        answer = await tenancy.set_role(acme, caller, whom, role)
        assert (answer.status, answer.code) == (403, "FORBIDDEN"), whom
    assert await tenancy.everything() == before


async def test_whoever_is_no_member_here_has_no_role_to_change(tenancy: Tenancy, acme: Team, twin: Team) -> None:
    stranger = await add_account(tenancy.ports, "stranger@example.com", None)
    before = await tenancy.everything()
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
            answer = await tenancy.api.patch(f"{acme.path}/members/{name}", {"role": role}, token=acme.token("owner"))
            assert (answer.status, answer.code) == (404, "NOT_FOUND"), (name, role)
    assert await tenancy.everything() == before


async def test_a_role_is_changed_in_the_organization_of_the_path_only(tenancy: Tenancy, acme: Team, twin: Team) -> None:
    await tenancy.join(twin, "both", acme.people["member"])
    assert (await tenancy.set_role(acme, "owner", "member", "admin")).status == 200
    assert (await tenancy.roles(acme))["member"] == "admin"
    assert (await tenancy.roles(twin))["both"] == "member"
    assert await tenancy.log(twin) == []


# Removal


@pytest.mark.parametrize(("caller", "whom"), [("owner", "member"), ("owner", "admin"), ("admin", "member"), ("admin", "deputy")])
async def test_those_who_manage_members_remove_them(tenancy: Tenancy, acme: Team, caller: str, whom: str) -> None:
    answer = await tenancy.remove(acme, caller, whom)
    assert (answer.status, answer.json) == (200, {"message": "The member was removed."})
    assert await tenancy.check(acme) == {name: role for name, role in CAST.items() if name != whom}
    entry = ("user.removed", "user", acme.id(whom), acme.people[caller].id, {"role": CAST[whom].value})
    assert await tenancy.log(acme) == [entry]
    again = await tenancy.remove(acme, caller, whom)
    assert (again.status, again.code) == (404, "NOT_FOUND")
    assert await tenancy.log(acme) == [entry]


async def test_neither_oneself_nor_the_owner_can_be_removed(tenancy: Tenancy, acme: Team) -> None:
    before = await tenancy.everything()
    for caller, whom in (("owner", "owner"), ("admin", "admin"), ("admin", "owner")):
        answer = await tenancy.remove(acme, caller, whom)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), (caller, whom)
    assert await tenancy.everything() == before


async def test_members_remove_nobody(tenancy: Tenancy, acme: Team) -> None:
    before = await tenancy.everything()
    for whom in ("owner", "admin", "member", "further"):
        answer = await tenancy.remove(acme, "member", whom)
        assert (answer.status, answer.code) == (403, "FORBIDDEN"), whom
    assert await tenancy.everything() == before


async def test_whoever_is_no_member_here_cannot_be_removed(tenancy: Tenancy, acme: Team, twin: Team) -> None:
    before = await tenancy.everything()
    for name in (twin.id("member"), twin.id("owner"), str(new_id()), "x", acme.id("member").upper()):
        answer = await tenancy.api.post(f"{acme.path}/members/{name}", token=acme.token("admin"))
        assert (answer.status, answer.code) == (404, "NOT_FOUND"), name
    assert await tenancy.everything() == before


async def test_removal_ends_the_sessions_in_this_organization_at_once_and_no_others(tenancy: Tenancy, acme: Team, twin: Team) -> None:
    member = acme.people["member"]
    steward = await add_account(tenancy.ports, "steward@example.com", None, is_platform_owner=True)
    await tenancy.join(twin, "both", member)
    second = await sign_in(tenancy.ports, member, acme.org)
    acted = await impersonate(tenancy.ports, steward, member, acme.org)
    plain = (await sign_in(tenancy.ports, member)).access_token
    assert (await tenancy.remove(acme, "admin", "member")).status == 200
    for token in (acme.token("member"), second.access_token, acted):
        for path in (f"{acme.path}/members", "/api/user", f"{twin.path}/members"):
            answer = await tenancy.api.get(path, token=token)
            assert (answer.status, answer.code) == (401, "UNAUTHORIZED"), path
    refreshed = await tenancy.api.post("/api/auth/refresh", {"refresh_token": acme.sessions["member"].refresh_token})
    assert refreshed.status == 401
    # A session that had not selected this organization lives, and opens nothing here.
    answer = await tenancy.api.get(f"{acme.path}/members", token=plain)
    assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert (await tenancy.api.get("/api/user", token=plain)).status == 200
    for token in (plain, twin.token("both")):
        assert (await tenancy.api.get(f"{twin.path}/members", token=token)).status == 200
    assert (await tenancy.api.get(f"{acme.path}/members", token=acme.token("further"))).status == 200
    assert (await tenancy.check(twin))["both"] == "member"


async def test_a_removed_member_can_come_back_as_somebody_new(tenancy: Tenancy, acme: Team) -> None:
    assert (await tenancy.remove(acme, "owner", "deputy")).status == 200
    await tenancy.join(acme, "deputy", acme.people["deputy"])
    assert (await tenancy.check(acme))["deputy"] == "member"
    answer = await tenancy.remove(acme, "deputy", "member")
    assert (answer.status, answer.code) == (403, "FORBIDDEN")


# The transfer of ownership


@pytest.mark.parametrize("name", ["admin", "member"])
async def test_a_transfer_swaps_owner_and_member(tenancy: Tenancy, acme: Team, twin: Team, name: str) -> None:
    answer = await tenancy.transfer(acme, "owner", name)
    assert answer.status == 200
    assert answer.json == {
        "message": "The ownership was transferred.",
        "old_owner": {"user_id": acme.id("owner"), "new_role": "admin"},
        "new_owner": {"user_id": acme.id(name), "role": "owner"},
    }
    assert await tenancy.check(acme) == {**CAST, "owner": "admin", name: "owner"}
    assert await tenancy.check(twin) == CAST
    owner = acme.people["owner"].id
    assert await tenancy.log(acme) == [
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
    told = await run_sql(tenancy.pool, "select name from events where org_id = %s order by created_at", acme.org)
    assert told == [("user.role_updated",), ("user.role_updated",), ("organization.owner.changed",)]


async def test_after_a_transfer_the_new_owner_owns_and_the_old_one_manages(tenancy: Tenancy, acme: Team) -> None:
    assert (await tenancy.transfer(acme, "owner", "member")).status == 200
    refused = await tenancy.set_role(acme, "owner", "further", "admin")
    assert (refused.status, refused.code) == (403, "FORBIDDEN")
    assert (await tenancy.transfer(acme, "owner", "admin")).status == 403
    assert (await tenancy.remove(acme, "owner", "further")).status == 200
    assert (await tenancy.remove(acme, "owner", "member")).status == 400
    assert (await tenancy.set_role(acme, "member", "owner", "member")).status == 200
    assert (await tenancy.transfer(acme, "member", "owner")).status == 200
    assert (await tenancy.check(acme))["owner"] == "owner"


async def test_a_transfer_names_another_active_member_of_this_organization(tenancy: Tenancy, acme: Team, twin: Team) -> None:
    stranger = await add_account(tenancy.ports, "stranger@example.com", None)
    for name, column in (("admin", "deactivated_at"), ("deputy", "anonymized_at")):
        await run_sql(tenancy.pool, f"update users set {column} = now() where id = %s", acme.people[name].id)  # noqa: S608
    before = await tenancy.everything()
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
        answer = await tenancy.api.post(f"{acme.path}/transfer-ownership", {"new_owner_user_id": target}, token=acme.token("owner"))
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), target
    assert (await tenancy.api.post(f"{acme.path}/transfer-ownership", token=acme.token("owner"))).status == 400
    assert await tenancy.everything() == before


async def test_nobody_can_tell_who_has_an_account_by_naming_them_as_the_new_owner(tenancy: Tenancy, acme: Team, twin: Team) -> None:
    answers = [
        await tenancy.api.post(f"{acme.path}/transfer-ownership", {"new_owner_user_id": name}, token=acme.token("owner"))
        for name in (twin.id("member"), str(new_id()))
    ]
    assert answers[0].json["error"] == answers[1].json["error"]


@pytest.mark.parametrize("caller", ["admin", "member"])
async def test_only_the_owner_transfers(tenancy: Tenancy, acme: Team, caller: str) -> None:
    before = await tenancy.everything()
    for whom in ("admin", "member", "further", "owner"):
        answer = await tenancy.transfer(acme, caller, whom)
        assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert await tenancy.everything() == before


# Who may come near any of it

CALLS: dict[str, Callable[[Tenancy, Team, str, str], Awaitable[Answer]]] = {
    "list": lambda tenancy, team, token, whom: tenancy.api.get(f"{team.path}/members", token=token),
    "role": lambda tenancy, team, token, whom: tenancy.api.patch(f"{team.path}/members/{whom}", {"role": "admin"}, token=token),
    "removal": lambda tenancy, team, token, whom: tenancy.api.post(f"{team.path}/members/{whom}", token=token),
    "transfer": lambda tenancy, team, token, whom: tenancy.api.post(
        f"{team.path}/transfer-ownership", {"new_owner_user_id": whom}, token=token
    ),
}


@pytest.mark.parametrize("call", CALLS)
async def test_nobody_from_outside_gets_in(tenancy: Tenancy, call: str) -> None:
    acme, twin = [await tenancy.team(slug, {"owner": Role.OWNER, "member": Role.MEMBER}) for slug in ("acme", "twin")]
    steward = await add_account(tenancy.ports, "steward@example.com", None, is_platform_owner=True)
    outside = [(await sign_in(tenancy.ports, account)).access_token for account in (steward, twin.people["owner"])]
    before = await tenancy.everything()
    for token in (twin.token("owner"), *outside):
        answer = await CALLS[call](tenancy, acme, token, acme.id("member"))
        assert (answer.status, answer.code) == (403, "FORBIDDEN")
        unknown = await CALLS[call](tenancy, Team(new_id(), "nothing-there"), token, acme.id("member"))
        assert (unknown.status, unknown.code) == (404, "NOT_FOUND")
    assert await tenancy.everything() == before


@pytest.mark.parametrize("status", ["suspended", "pending", "rejected"])
@pytest.mark.parametrize("call", CALLS)
async def test_nothing_is_done_in_an_organization_that_is_not_active(tenancy: Tenancy, acme: Team, call: str, status: str) -> None:
    await run_sql(tenancy.pool, "update organizations set status = %s where id = %s", status, acme.org)
    before = await tenancy.everything()
    answer = await CALLS[call](tenancy, acme, acme.token("owner"), acme.id("member"))
    assert (answer.status, answer.code) == (403, "ORGANIZATION_NOT_ACTIVE")
    assert await tenancy.everything() == before


@pytest.mark.parametrize("call", CALLS)
async def test_ownership_is_not_transferred_while_impersonating_and_all_else_names_both(tenancy: Tenancy, acme: Team, call: str) -> None:
    steward = await add_account(tenancy.ports, "steward@example.com", None, is_platform_owner=True)
    token = await impersonate(tenancy.ports, steward, acme.people["owner"], acme.org)
    before = await tenancy.everything()
    answer = await CALLS[call](tenancy, acme, token, acme.id("member"))
    if call == "transfer":
        assert (answer.status, answer.code) == (403, "FORBIDDEN")
        assert await tenancy.everything() == before
        return
    assert answer.status == 200
    actors = await run_sql(tenancy.pool, "select actor_id, impersonator_id from audit_log")
    assert actors == ([] if call == "list" else [(acme.people["owner"].id, steward.id)])


# Invitations of somebody who may not make them any more (security.md R-4)


async def _invitations(tenancy: Tenancy, acme: Team, twin: Team, inviter: str) -> dict[str, str]:
    """Some of everything; by the person's name and what it is about, with its id."""
    await tenancy.join(twin, "same", acme.people[inviter], Role.ADMIN)
    made = {
        "admin": await tenancy.invite(acme, inviter, "new-admin@example.com", Role.ADMIN),
        "member": await tenancy.invite(acme, inviter, "new-member@example.com", Role.MEMBER),
        "accepted": await tenancy.invite(acme, inviter, "accepted@example.com", Role.ADMIN),
        "past its time": await tenancy.invite(acme, inviter, "late@example.com", Role.ADMIN),
        "another's": await tenancy.invite(acme, "deputy", "another@example.com", Role.ADMIN),
        "elsewhere": await tenancy.invite(twin, "same", "new-admin@example.com", Role.ADMIN),
    }
    await run_sql(tenancy.pool, "update invitations set status = 'accepted', ended_at = now() where id = %s", made["accepted"])
    await run_sql(tenancy.pool, "update invitations set expires_at = %s where id = %s", tenancy.clock.now(), made["past its time"])
    return made


async def _voided(tenancy: Tenancy, made: Mapping[str, str]) -> set[str]:
    rows = await run_sql(tenancy.pool, "select id, status, ended_at is not null from invitations")
    status = {str(row[0]): row[1] for row in rows}
    assert status[made["accepted"]] == "accepted"
    assert all((row[1] == "pending") != row[2] for row in rows)
    return {name for name, id_ in made.items() if status[id_] == "cancelled"}


async def _revocations(tenancy: Tenancy) -> dict[str, tuple[Any, ...]]:
    rows = await run_sql(
        tenancy.pool,
        "select target_id, org_id, target_type, actor_id, details from audit_log where action = 'invitation.revoked'",
    )
    told = await run_sql(tenancy.pool, "select target_id from events where name = 'invitation.revoked'")
    assert {row[0] for row in told} == {row[0] for row in rows}
    assert len(told) == len(rows)
    return {row[0]: row[1:] for row in rows}


async def test_demotion_voids_what_the_demoted_had_invited(tenancy: Tenancy, acme: Team, twin: Team) -> None:
    made = await _invitations(tenancy, acme, twin, "admin")
    assert (await tenancy.set_role(acme, "owner", "admin", "member")).status == 200
    assert await _voided(tenancy, made) == {"admin", "member"}
    owner = acme.people["owner"].id
    assert await _revocations(tenancy) == {
        made[role]: (acme.org, "invitation", owner, {"invited_email": f"new-{role}@example.com", "role": role})
        for role in ("admin", "member")
    }


async def test_removal_voids_what_the_removed_had_invited(tenancy: Tenancy, acme: Team, twin: Team) -> None:
    made = await _invitations(tenancy, acme, twin, "admin")
    assert (await tenancy.remove(acme, "deputy", "admin")).status == 200
    assert await _voided(tenancy, made) == {"admin", "member"}
    assert {id_: entry[2] for id_, entry in (await _revocations(tenancy)).items()} == {
        made[role]: acme.people["deputy"].id for role in ("admin", "member")
    }


async def test_a_transfer_voids_what_only_an_owner_may_invite_to(tenancy: Tenancy, acme: Team, twin: Team) -> None:
    made = await _invitations(tenancy, acme, twin, "owner")
    assert (await tenancy.transfer(acme, "owner", "admin")).status == 200
    assert await _voided(tenancy, made) == {"admin"}
    assert (await _revocations(tenancy)).keys() == {made["admin"]}


async def test_whoever_rises_loses_no_invitation(tenancy: Tenancy, acme: Team) -> None:
    await tenancy.invite(acme, "admin", "new-member@example.com", Role.MEMBER)
    assert (await tenancy.transfer(acme, "owner", "admin")).status == 200
    assert await run_sql(tenancy.pool, "select status from invitations") == [("pending",)]
    assert await _revocations(tenancy) == {}


# All at once (security.md section 21)


async def crowd(tenancy: Tenancy, size: int, role: Role = Role.MEMBER) -> Team:
    return await tenancy.team("acme", {"owner": Role.OWNER} | {f"n{number}": role for number in range(size)})


@pytest.mark.slow
async def test_of_twenty_transfers_to_different_members_one_wins(tenancy: Tenancy) -> None:
    acme = await crowd(tenancy, 20)
    answers = await everyone(20, lambda number: tenancy.transfer(acme, "owner", f"n{number}"))
    assert sorted(answer.status for answer in answers) == [200] + [403] * 19
    [won] = [answer.json for answer in answers if answer.status == 200]
    roles = await tenancy.check(acme)
    assert roles["owner"] == "admin"
    assert [acme.id(name) for name, role in roles.items() if role == "owner"] == [won["new_owner"]["user_id"]]
    assert [entry[0] for entry in await tenancy.log(acme)].count("organization.owner.changed") == 1


@pytest.mark.slow
async def test_whoever_gets_it_gives_it_back_while_nineteen_others_ask(tenancy: Tenancy) -> None:
    """Ownership wanders: everybody who might own the organization transfers it to the next, all at once."""
    acme = await crowd(tenancy, 19, Role.ADMIN)
    names = list(acme.people)
    for _ in range(3):
        answers = await everyone(20, lambda number: tenancy.transfer(acme, names[number], names[(number + 1) % 20]))
        assert {answer.status for answer in answers} <= {200, 403}
        assert [answer.status for answer in answers].count(200) >= 1
        roles = await tenancy.check(acme)
        assert list(roles.values()).count("admin") == 19


@pytest.mark.slow
async def test_transfers_removals_and_changes_of_role_at_once_leave_one_owner_and_a_true_count(tenancy: Tenancy, twin: Team) -> None:
    acme = await crowd(tenancy, 10)
    await tenancy.join(acme, "admin", await add_account(tenancy.ports, "admin@acme.example", None), Role.ADMIN)
    for number in range(10):
        await tenancy.invite(acme, "owner", f"guest-{number}@example.com", Role.ADMIN if number % 2 else Role.MEMBER)

    async def act(number: int) -> Answer:
        name = f"n{number % 10}"
        match number % 4:
            case 0:
                return await tenancy.transfer(acme, "owner", name)
            case 1:
                return await tenancy.remove(acme, "admin", name)
            case 2:
                return await tenancy.set_role(acme, "owner", name, "admin")
        return await tenancy.remove(acme, "admin", "owner")

    answers = await everyone(20, act)
    assert {answer.status for answer in answers} <= {200, 400, 403, 404}
    removed = sum(answer.status == 200 and answer.json.get("message") == "The member was removed." for answer in answers)
    roles = await tenancy.check(acme)
    assert len(roles) == 12 - removed
    if roles.get("owner") != "owner":
        assert await run_sql(
            tenancy.pool, "select count(*) from invitations where status = 'pending' and role = 'admin' and org_id = %s", acme.org
        ) == [(0,)]
    log = [entry[0] for entry in await tenancy.log(acme)]
    assert log.count("user.removed") == removed
    assert await tenancy.check(twin) == CAST


@pytest.mark.slow
async def test_a_new_owner_is_not_removed_and_a_removed_member_does_not_become_the_owner(tenancy: Tenancy) -> None:
    acme = await tenancy.team("acme", {"owner": Role.OWNER, "admin": Role.ADMIN, "heir": Role.MEMBER})

    async def act(number: int) -> Answer:
        return await (tenancy.transfer(acme, "owner", "heir") if number % 2 else tenancy.remove(acme, "admin", "heir"))

    answers = await everyone(20, act)
    roles = await tenancy.check(acme)
    assert [answer.status for answer in answers].count(200) == 1
    if "heir" in roles:
        assert roles == {"owner": "admin", "admin": "admin", "heir": "owner"}
        assert sorted(answer.status for answer in answers) == [200] + [400] * 10 + [403] * 9
    else:
        assert roles == {"owner": "owner", "admin": "admin"}
        assert sorted(answer.status for answer in answers) == [200] + [400] * 10 + [404] * 9


@pytest.mark.slow
async def test_twenty_removals_of_one_member_count_once(tenancy: Tenancy, acme: Team) -> None:
    callers = ["owner", "admin", "deputy"]
    answers = await everyone(20, lambda number: tenancy.remove(acme, callers[number % 3], "member"))
    assert sorted(answer.status for answer in answers) == [200] + [404] * 19
    assert len(await tenancy.check(acme)) == len(CAST) - 1
    assert len(await tenancy.log(acme)) == 1


@pytest.mark.slow
async def test_no_session_survives_its_members_removal_by_being_renewed_or_made_meanwhile(tenancy: Tenancy, acme: Team) -> None:
    member = acme.people["member"]
    plain = [await sign_in(tenancy.ports, member) for _ in range(10)]
    chosen = [await sign_in(tenancy.ports, member, acme.org) for _ in range(9)]

    async def act(number: int) -> Answer:
        if number == 0:
            return await tenancy.remove(acme, "admin", "member")
        if number <= 10:
            return await tenancy.api.post(f"{acme.path}/select", token=plain[number - 1].access_token)
        return await tenancy.api.post("/api/auth/refresh", {"refresh_token": chosen[number - 11].refresh_token})

    answers = await everyone(20, act)
    assert {answer.status for answer in answers} <= {200, 401, 403}
    live = "select count(*) from sessions where org_id = %s and user_id = %s and ended_at is null"
    assert await run_sql(tenancy.pool, live, acme.org, member.id) == [(0,)]
    given = [answer.json["access_token"] for answer in answers if "access_token" in answer.json]
    assert {(await tenancy.api.get(f"{acme.path}/members", token=token)).status for token in given} <= {401}


@pytest.mark.slow
async def test_admins_who_remove_each_other_leave_one_of_them(tenancy: Tenancy) -> None:
    acme = await crowd(tenancy, 10, Role.ADMIN)

    async def act(number: int) -> Answer:
        return await tenancy.remove(acme, f"n{number % 10}", f"n{(number + 1 + number // 10) % 10}")

    answers = await everyone(20, act)
    # Who has been removed already is refused at the door, or under the lock.
    assert {answer.status for answer in answers} <= {200, 401, 403, 404}
    roles = await tenancy.check(acme)
    assert len(roles) == 11 - [answer.status for answer in answers].count(200) >= 2


@pytest.mark.slow
async def test_twenty_equal_changes_of_role_are_recorded_once(tenancy: Tenancy, acme: Team) -> None:
    answers = await everyone(20, lambda _: tenancy.set_role(acme, "owner", "member", "admin"))
    assert {answer.status for answer in answers} == {200}
    assert len(await tenancy.log(acme)) == 1


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
async def test_a_write_that_comes_second_obeys_what_came_first(tenancy: Tenancy, acme: Team, name: str) -> None:
    first, caller, call, status = SECOND[name]
    changes = [
        ("select 1 from organizations where id = %s for no key update", (acme.org,)),
        (first, {person: account.id for person, account in acme.people.items()}),
    ]
    answer = await meanwhile(tenancy.pool, changes, lambda: CALLS[call](tenancy, acme, acme.token(caller), acme.id("member")))
    assert answer.status == status
    assert await tenancy.log(acme) == []
