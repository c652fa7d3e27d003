"""Members with roles of their organization, at every route of the API of an organization.

One role for each capability, and one with all but each, call the routes. A role is refused exactly where its rights do not
suffice, and with the rights of the route it gets what the owner gets. No member gains a right, or acts on a member who has
a right that they lack.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.callers import OrganizationStatus
from core.kernel.roles import ADMIN, CUSTOMIZABLE, MEMBER, OWNER, Capability, Rights, custom_rights, find_role, may_give
from core.kernel.values import new_id
from entrypoints.http.edge.access.declaration import Access, access_of
from tests.proof.access.calls import Request, call, prepare, routes, without_variant
from tests.proof.access.state import Changes, changes_since, mark, undo
from tests.proof.access.table import ORG, REQUESTS, read_matrix
from tests.proof.access.world import Caller, Tenant, World
from tests.support.builders import run_sql

pytestmark = pytest.mark.slow

TABLE: Final = read_matrix()
PIECES: Final = 6
OWN_ROLE, OTHER_ROLE = "custom", "target"  # the slugs of the caller's role, and of that of another member
# Routes that ask for more rights than that of the route, and the reason.
ASKS_FOR_MORE: Final[Mapping[str, str]] = {
    f"POST {ORG}/invitations": "the inviter has every right of the role (security R-1)",
    f"POST {ORG}/invitations#admin": "the inviter has every right of the role, and roles.manage",
    f"POST {ORG}/invitations/bulk": "the inviter has every right of the role",
    f"POST {ORG}/invitations/bulk#admin": "the inviter has every right of the role, and roles.manage",
    f"POST {ORG}/invitations/<invitation_id>/resend": "the sender has every right of the role",
    f"POST {ORG}/invitations/<invitation_id>/resend#admin": "the sender has every right of the role, and roles.manage",
    f"POST {ORG}/invitations/<invitation_id>/accept": "the member who accepts has every right of the role",
    f"POST {ORG}/invitations/<invitation_id>/accept#admin": "the member who accepts has every right of the role",
}
# The tables that name a user, with the column, whose rows change if someone acts on the user.
ABOUT_USERS: Final[Mapping[str, str]] = {
    "memberships": "user_id",
    "sessions": "user_id",
    "account_recoveries": "user_id",
    "end_user_blocks": "user_id",
    "personal_tokens": "user_id",
    "mfa": "user_id",
    "passkeys": "user_id",
    "one_time_tokens": "user_id",
    "users": "id",
}


async def give_role(pool: Pool, tenant: Tenant, person: str, slug: str, capabilities: Iterable[Capability]) -> None:
    """Give a member a new role with these capabilities."""
    org = tenant.organization.id
    await run_sql(
        pool,
        "insert into organization_roles (id, org_id, slug, name, description, capabilities, created_at, updated_at) "
        "values (%s, %s, %s, %s, '', %s, now(), now())",
        *(new_id(), org, slug, slug, sorted(capabilities)),
    )
    await run_sql(pool, "update memberships set role = %s where org_id = %s and user_id = %s", slug, org, tenant.people[person].id)


def operations(app: QuartTrio) -> Iterator[tuple[str, Access]]:
    """Yield the rows of the table for routes that members call."""
    views = dict(routes(app))
    for route in TABLE:
        access = access_of(views[without_variant(route)])
        if access.name == "member" and access.capability is not None and TABLE[route]["owner"] not in ("401", "403*"):
            yield route, access


@pytest.mark.parametrize("piece", range(PIECES))
async def test_a_role_with_one_capability_opens_its_routes_only(piece: int, app: QuartTrio, pool: Pool, world: World) -> None:
    wrong: list[str] = []
    for capability in sorted(CUSTOMIZABLE)[piece::PIECES]:
        await give_role(pool, world.home, "member", OWN_ROLE, [capability])
        base, rights = await mark(pool), custom_rights([capability])
        for route, access in operations(app):
            if finding := await difference(route, access, rights, app, pool, world):
                wrong.append(f"{route} with {capability} only: {finding}")
            await undo(pool, base)
        await undo(pool)
    assert not wrong, "\n".join(wrong)


async def test_a_role_without_a_capability_does_not_open_its_routes(app: QuartTrio, pool: Pool, world: World) -> None:
    wrong: list[str] = []
    for capability in sorted(CUSTOMIZABLE):
        kept = CUSTOMIZABLE - {capability}
        await give_role(pool, world.home, "member", OWN_ROLE, kept)
        base = await mark(pool)
        for route, access in operations(app):
            if access.capability is capability:
                if finding := await difference(route, access, custom_rights(kept), app, pool, world):
                    wrong.append(f"{route} without {capability}: {finding}")
                await undo(pool, base)
        await undo(pool)
    assert not wrong, "\n".join(wrong)


async def test_a_role_with_all_capabilities_opens_all_routes_but_those_of_the_owner(app: QuartTrio, pool: Pool, world: World) -> None:
    wrong: list[str] = []
    await give_role(pool, world.home, "member", OWN_ROLE, CUSTOMIZABLE)
    base = await mark(pool)
    for route, access in operations(app):
        if finding := await difference(route, access, custom_rights(CUSTOMIZABLE), app, pool, world):
            wrong.append(f"{route}: {finding}")
        await undo(pool, base)
    await undo(pool)
    assert not wrong, "\n".join(wrong)


async def difference(route: str, access: Access, rights: Rights, app: QuartTrio, pool: Pool, world: World) -> str | None:
    """Call the route as the member, and return how the answer differs from what these rights give."""
    request, caller = REQUESTS.get(route, Request()), caller_of(world)
    await prepare(pool, request, caller)
    await run_sql(pool, "delete from rates")  # a caller may write twenty entries an hour
    before = await mark(pool)
    answer = await call(app, route, request, caller)
    changes = await changes_since(pool, before)
    assert access.capability is not None
    if access.capability not in rights:
        if answer.status != 403:
            return f"{answer.status} instead of 403: {answer.text[:200]}"
        rows = [row for table, row in changes.got if table not in ("audit_log", "events", "siem_queue", "audit_totals")]
        return (
            f"it was refused, but changed {rows}" if rows or (changes.lost - changes.got and not route.startswith("GET") and rows) else None
        )
    expected = TABLE[route]["owner"][:3]
    if str(answer.status) == expected or (answer.status == 403 and needs_more(route, rights)):
        return None
    return f"{answer.status} instead of {expected}: {answer.text[:200]}"


def needs_more(route: str, rights: Rights) -> bool:
    """Return whether a rule refuses members with these rights, although the route does not."""
    if route in ASKS_FOR_MORE:
        return not may_give(rights, find_role(ADMIN if route.endswith("#admin") else MEMBER))
    return (Capability.ORGANIZATION_OWN not in rights and without_variant(route).startswith(tuple(OF_OWNERS))) or acts_on_member(
        route, rights
    )


def acts_on_member(route: str, rights: Rights) -> bool:
    """Return whether the route acts on a member who has rights that the caller lacks. The targets of the table are members."""
    of_member = custom_rights(()) if (member := find_role(MEMBER)) is None else member.rights
    return (
        any(part in route for part in ("<user_id>", "<personal_token_id>", "roles")) and not of_member <= rights
    ) or "#of-admin" in route


# Routes whose requests ask for what only owners grant.
OF_OWNERS: Final = (f"POST {ORG}/service-accounts", f"PATCH {ORG}/service-accounts/<account_id>")


def caller_of(world: World) -> Caller:
    return world.callers["member"]


# Escalation


PEOPLE: Final = {OWNER: "owner", ADMIN: "admin", OTHER_ROLE: "further"}


@pytest.mark.parametrize("piece", range(PIECES))
async def test_no_member_gains_a_right_or_acts_on_a_member_with_more_rights(piece: int, app: QuartTrio, pool: Pool, world: World) -> None:
    """The caller has all rights but one. The targets are the owner, an admin, and a member whose role has this right alone."""
    found: list[str] = []
    for capability in sorted(CUSTOMIZABLE)[piece::PIECES]:
        rights = custom_rights(CUSTOMIZABLE - {capability})
        await give_role(pool, world.home, "member", OWN_ROLE, CUSTOMIZABLE - {capability})
        await give_role(pool, world.home, "further", OTHER_ROLE, [capability])
        base = await mark(pool)
        for route, access in operations(app):
            if route.startswith("GET") or access.capability not in rights:
                continue
            for request, what in ambitions(route, world):
                await prepare(pool, request, caller_of(world))
                await run_sql(pool, "delete from rates")
                before = await mark(pool)
                answer = await call(app, route, request, caller_of(world))
                changes = await changes_since(pool, before)
                found += [
                    f"{route} without {capability} with {what}: {answer.status}, {each}"
                    for each in forbidden(changes, rights, world, capability, what)
                ]
                await undo(pool, base)
        await undo(pool)
    assert not found, "\n".join(found[:40])


def ambitions(route: str, world: World) -> Iterator[tuple[Request, str]]:
    """Yield the request of the table, and those about each target and with each role."""
    plain = REQUESTS.get(route, Request())
    yield plain, "nothing"
    for role, person in PEOPLE.items():
        if "<user_id>" in route:
            yield replace(plain, things={**plain.things, "user_id": str(world.home.people[person].id)}), f"user_id of {role}"
    if isinstance(plain.body, Mapping):
        for field, value in tempting(plain.body):
            yield replace(plain, body={**plain.body, field: value}), f"{field}={value}"
    if without_variant(route).endswith(f"{ORG}/roles/<role_slug>"):
        for slug in (OTHER_ROLE, OWN_ROLE, OWNER):
            yield replace(plain, things={**plain.things, "role_slug": slug}), f"role {slug}"


def tempting(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for role in (OWNER, ADMIN, OTHER_ROLE):
        if "role" in body:
            yield "role", role
        if "invitations" in body:
            yield "invitations", [{"email": f"{role}@new.example", "role": role}]
    if "capabilities" in body:
        yield "capabilities", sorted(CUSTOMIZABLE)
    if "granted_capabilities" in body:
        yield "granted_capabilities", sorted(CUSTOMIZABLE)


def forbidden(changes: Changes, rights: Rights, world: World, missing: Capability, what: str) -> Iterator[str]:
    """Yield the rows that a caller with these rights must not write."""
    home = world.home
    powerful = {str(home.people["owner"].id), str(home.people["admin"].id), str(home.people["further"].id)}
    roles = {OWN_ROLE: rights, OTHER_ROLE: custom_rights([missing])}
    for table, row in changes.got:
        content = json.loads(row)
        if table in ("memberships", "service_accounts") or (table == "invitations" and content["status"] == "pending"):
            built_in = find_role(content["role"])
            given = roles.get(content["role"], frozenset()) if built_in is None else built_in.rights
            if not given <= rights:
                yield f"{table} gets {content['role']}"
        if table == "organization_roles" and not custom_rights(content["capabilities"]) <= rights:
            yield f"a role with {content['capabilities']}"
    for table, row in changes.lost | changes.got:
        content = json.loads(row)
        if table == "organization_roles" and not custom_rights(content["capabilities"]) <= rights:
            yield f"the role {content['slug']}"
        column = ABOUT_USERS.get(table)
        if column is not None and content.get(column) in powerful and is_about_power(table, content, world):
            yield f"{table} of a member with more rights: {what}"


def is_about_power(table: str, content: Mapping[str, Any], world: World) -> bool:
    """Return whether a row is about the user as a member. Their sessions at applications end with what admins do to these."""
    return table != "sessions" or (content["org_id"] in (None, str(world.home.organization.id)) and content["service_id"] is None)


def test_the_world_is_active(world: World) -> None:
    assert world.home.organization.status is OrganizationStatus.ACTIVE
