"""Members with their organization's roles, at every API route about an organization.

A role per capability, and a role with all but this capability, call the routes. A role is refused exactly where its rights do not suffice,
and with the route's rights it gets what the owner gets. No member gains a right, or acts on a member who has a right that they lack.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import ADMIN, CUSTOMIZABLE, MEMBER, OWNER, ROLES, Capability, Rights, custom_rights, rights_of
from core.kernel.values import new_id
from entrypoints.http.edge.access.declaration import Access, access_of
from tests.proof.access.attempts import fields_of_body
from tests.proof.access.calls import Request, call, prepare, routes, without_variant
from tests.proof.access.state import Changes, changes_since, mark, undo
from tests.proof.access.table import ORG, REQUESTS, read_matrix
from tests.proof.access.world import Tenant, World
from tests.support.builders import run_sql

pytestmark = pytest.mark.slow

TABLE: Final = read_matrix()
# The slugs of the caller's role, and of another member's three roles: by a group, by the member itself, and by another group
OWN_ROLE, OTHER_ROLE, SMALL_ROLE, SHARED_ROLE = "custom", "target", "small", "shared"
# The rights in the last two roles, which all callers have
HELD: Final[Mapping[str, Rights]] = {
    SMALL_ROLE: custom_rights([Capability.WEBHOOKS_MANAGE]),
    SHARED_ROLE: custom_rights([Capability.BILLING_MANAGE]),
}
ABOUT_DELIVERIES: Final = (
    f"POST {ORG}/webhooks",
    f"PATCH {ORG}/webhooks/<webhook_id>",
    f"GET {ORG}/webhooks/<webhook_id>/deliveries",
    f"GET {ORG}/webhooks/<webhook_id>/deliveries/<delivery_id>",
    f"POST {ORG}/webhooks/<webhook_id>/deliveries/<delivery_id>/replay",
)
# The rights that some routes ask for beside their own
MORE: Final[Mapping[str, Rights]] = {
    f"GET {ORG}/analytics/recent-logins": frozenset({Capability.END_USERS_VIEW}),
    f"GET {ORG}/api-resources/<resource_id>/assignments": frozenset({Capability.END_USERS_VIEW}),
    f"GET {ORG}/api-resources/<resource_id>/groups": frozenset({Capability.END_USERS_VIEW}),
    f"GET {ORG}/api-resources/<resource_id>/external-clients/grants": frozenset({Capability.END_USERS_VIEW}),
    f"POST {ORG}/connections/<connection_slug>/groups": frozenset({Capability.GROUPS_MANAGE}),  # a connection fills the group
    f"DELETE {ORG}/connections/<connection_slug>/groups/<mapping_id>": frozenset({Capability.GROUPS_MANAGE}),
    f"POST {ORG}/siem": frozenset({Capability.AUDIT_VIEW}),  # the SIEM gets the log
    f"POST {ORG}/services/<service_slug>/api-keys": frozenset({Capability.END_USERS_VIEW}),  # for `read:users`
    **dict.fromkeys(ABOUT_DELIVERIES, frozenset({Capability.AUDIT_VIEW})),  # deliveries have what the log has
}
# Routes about members, service accounts and roles ask for every right that these persons have, or that the given role has. In the table,
# the members are members, and the service accounts have the role admin.
ABOUT_MEMBERS: Final = (
    "/members/<user_id>",
    "/directory-blocks/<user_id>",
    "/users/<user_id>",
    "/personal-tokens/<",
    "/invitations",
    "/members",
)
ABOUT_ACCOUNTS: Final = f"{ORG}/service-accounts"
ABOUT_ROLES_OF_GROUPS: Final = f"{ORG}/groups/<group_id>/role"
# They need all admin rights, because a directory, or an identity provider, acts like an admin (security C-3, S-12)
EMPOWERING: Final = (
    f"POST {ORG}/scim-tokens",
    f"PATCH {ORG}/scim-tokens/<token_id>",
    f"POST {ORG}/setup-links/<setup_link_id>/parts/<setup_part>/apply",  # for a directory
    f"POST {ORG}/connections/<connection_slug>/activate",
    f"POST {ORG}/connections/<connection_slug>/certificates",
    f"POST {ORG}/connections/<connection_slug>/metadata",
)
# They act on all members in the group, as a member's removal acts on a single member
ABOUT_GROUPS: Final = (f"DELETE {ORG}/groups/<group_id>", f"PATCH {ORG}/groups/<group_id>/attributes")
ABOUT_ROLES: Final = f"{ORG}/roles"
# The tables with rows about users that change if someone acts on the user
ABOUT_USERS: Final[Mapping[str, str]] = {
    "memberships": "user_id",
    "sessions": "user_id",
    "account_recoveries": "user_id",
    "group_members": "user_id",
    "end_user_blocks": "user_id",
    "mfa": "user_id",
    "passkeys": "user_id",
    "one_time_tokens": "user_id",
    "users": "id",
}
# Side effects if a refusal is recorded
RECORDS: Final = frozenset({"audit_log", "audit_totals", "events", "siem_queue", "webhook_deliveries"})
LACKED: Final = (
    Capability.AUDIT_VIEW,
    Capability.END_USERS_VIEW,  # the role member gives it if the organization says so, which it does not at first
    Capability.ROLES_MANAGE,
    Capability.MEMBERS_MANAGE,
    Capability.END_USERS_MANAGE,
    Capability.SERVICE_ACCOUNTS_MANAGE,
)


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


@cache
def operations(app: QuartTrio) -> tuple[tuple[str, Access], ...]:
    """Return the table's rows for routes that members call."""
    views = dict(routes(app))
    rules = ((route, access_of(views[without_variant(route)])) for route in TABLE)
    return tuple(
        (route, access)
        for route, access in rules
        if access.name == "member" and access.capability is not None and TABLE[route]["owner"] not in ("401", "403*")
    )


async def test_a_role_with_one_capability_opens_its_routes(app: QuartTrio, pool: Pool, world: World) -> None:
    wrong: list[str] = []
    for capability in sorted(CUSTOMIZABLE):
        called = [(route, access) for route, access in operations(app) if access.capability is capability]
        wrong += await call_all(called, [capability], app, pool, world)
    assert not wrong, "\n".join(wrong)


async def test_no_other_capability_opens_the_routes_of_a_capability(app: QuartTrio, pool: Pool, world: World) -> None:
    """A role with every other capability calls them."""
    wrong: list[str] = []
    for capability in sorted(CUSTOMIZABLE):
        called = [(route, access) for route, access in operations(app) if access.capability is capability]
        wrong += await call_all(called, CUSTOMIZABLE - {capability}, app, pool, world)
    assert not wrong, "\n".join(wrong)


async def test_all_capabilities_open_all_routes_but_those_of_the_owner(app: QuartTrio, pool: Pool, world: World) -> None:
    """The caller's own role is member. The owner gave the role to a group. Outside the group, the caller has lost every right."""
    home, wrong, rights = world.home, list[str](), custom_rights(CUSTOMIZABLE)
    await give_role(pool, home, "further", OWN_ROLE, CUSTOMIZABLE)
    group, member = home.things["mapped_group_id"], home.people["member"].id
    await run_sql(pool, "update groups set role = %s where id = %s", OWN_ROLE, group)
    await run_sql(pool, "insert into group_members values (%s, %s, %s, now())", home.organization.id, group, member)
    base = await mark(pool)
    one_of_each = {(access.capability, route.startswith("GET")): route for route, access in operations(app)}
    for route, access in operations(app):
        if finding := await difference(route, access, rights, app, pool, world):
            wrong.append(f"{route} in the group: {finding}")
        await undo(pool, base)
        if route not in one_of_each.values() or access.capability in ROLES[MEMBER].rights:
            continue
        await run_sql(pool, "delete from group_members where user_id = %s", member)
        if finding := await difference(route, access, ROLES[MEMBER].rights, app, pool, world):
            wrong.append(f"{route} after the member left the group: {finding}")
        await undo(pool, base)
    await undo(pool)
    assert not wrong, "\n".join(wrong)


async def call_all(
    called: Iterable[tuple[str, Access]], capabilities: Collection[Capability], app: QuartTrio, pool: Pool, world: World
) -> list[str]:
    """Call these routes as a member with these capabilities, and return the wrong answers."""
    wrong = []
    await give_role(pool, world.home, "member", OWN_ROLE, capabilities)
    base = await mark(pool)
    for route, access in called:
        if finding := await difference(route, access, custom_rights(capabilities), app, pool, world):
            wrong.append(f"{route} with {len(capabilities)} capabilities, such as {min(capabilities)}: {finding}")
        await undo(pool, base)
    await undo(pool)
    return wrong


async def difference(route: str, access: Access, rights: Rights, app: QuartTrio, pool: Pool, world: World) -> str | None:
    """Call the route as the member, and return how the answer differs from what these rights give."""
    request, caller = REQUESTS.get(route, Request()), world.callers["member"]
    await prepare(pool, request, caller)
    await run_sql(pool, "delete from rates")  # a caller may write twenty entries an hour
    before = await mark(pool)
    answer = await call(app, route, request, caller)
    assert access.capability is not None
    if access.capability not in rights or not MORE.get(route, frozenset()) <= rights:
        changes = await changes_since(pool, before)
        changed = sorted({table for table, _ in changes.got | changes.lost} - RECORDS)
        return (
            None if (answer.status, changed) == (403, []) else f"{answer.status} instead of 403, and changed {changed}: {answer.text[:200]}"
        )
    expected = {TABLE[route][name][:3] for name in ("owner", "member")}  # the caller, who may leave
    if str(answer.status) in expected and answer.status != 403:
        return None
    if answer.status == 403 and needs_more(route, access.capability, rights):
        return None
    return f"{answer.status} instead of {expected}: {answer.text[:200]}"


def needs_more(route: str, capability: Capability, rights: Rights) -> bool:
    """Return whether the route's object has a right that the caller lacks."""
    if route.endswith(("#owner", "#granted")):
        return True
    admin, member = ROLES[ADMIN].rights, ROLES[MEMBER].rights
    if ABOUT_ACCOUNTS in route:
        return not admin <= rights
    if route in EMPOWERING:
        return not admin <= rights
    if route in ABOUT_GROUPS:
        return not member <= rights
    if ABOUT_ROLES in route:
        return not {Capability.AUDIT_VIEW, Capability.MEMBERS_VIEW} <= rights
    if ABOUT_ROLES_OF_GROUPS in route:
        return not (member if route.startswith("DELETE") else {Capability.AUDIT_VIEW, Capability.MEMBERS_VIEW}) <= rights
    if any(part in route for part in ABOUT_MEMBERS):
        needed = admin | {Capability.ROLES_MANAGE} if "admin" in route else member
        return not needed <= rights or (capability is Capability.ROLES_MANAGE and not admin <= rights)
    return False


# Escalation


CONFIRMATIONS: Final[Sequence[Mapping[str, str]]] = ({}, *({"confirm": "true", "replacement": role} for role in (ADMIN, MEMBER)))
PEOPLE: Final = {OWNER: "owner", ADMIN: "admin", SMALL_ROLE: "further"}


@pytest.mark.parametrize("capability", LACKED)
async def test_no_member_gains_a_right_or_acts_on_a_member_with_more_rights(
    capability: Capability, app: QuartTrio, pool: Pool, world: World
) -> None:
    """The caller lacks a single right. The targets are the owner, an admin, and a member who has this right by a group only.

    All of them are also in a group that gives a role within the caller's rights. A directory counts as an admin. If a route's object has no
    rights, the callers with the right to call it take turns.
    """
    found: list[str] = []
    rights, caller = custom_rights(CUSTOMIZABLE - {capability}), world.callers["member"]
    await give_role(pool, world.home, "member", OWN_ROLE, CUSTOMIZABLE - {capability})
    await give_role(pool, world.home, "further", OTHER_ROLE, [capability])
    for slug in (SHARED_ROLE, SMALL_ROLE):
        await give_role(pool, world.home, "further", slug, HELD[slug] & CUSTOMIZABLE)
    await run_sql(pool, "update organizations set members_see_end_users = false")
    give = "update groups set role = %s, mapped_by = %s, mapped_at = now() where id = %s"
    for slug, group in ((OTHER_ROLE, "mapped_group_id"), (SHARED_ROLE, "group_id")):
        await run_sql(pool, give, slug, world.home.people["owner"].id, world.home.things[group])
    for person in PEOPLE.values():
        join = "insert into group_members values (%s, %s, %s, now()) on conflict do nothing"
        await run_sql(pool, join, world.home.organization.id, world.home.things["group_id"], world.home.people[person].id)
    base, held = await mark(pool), await rights_of_members(pool, world.home)
    for number, (route, access) in enumerate(operations(app)):
        if route.startswith("GET") or access.capability is None or access.capability not in rights:
            continue
        requests = list(ambitions(route, world))
        is_about_rights = len(requests) > 1 or needs_more(route, access.capability, frozenset())
        able = [each for each in LACKED if each is not access.capability]
        if not is_about_rights and able[number % len(able)] is not capability:
            continue
        for request, what in requests:
            await prepare(pool, request, caller)
            await run_sql(pool, "delete from rates")
            before = await mark(pool)
            answer = await call(app, route, request, caller)
            changes = await changes_since(pool, before)
            wrong = [*forbidden(changes, rights, world, capability)]
            if changes:
                wrong += differences(held, await rights_of_members(pool, world.home), rights)
            found += [f"{route} with {what}: {answer.status}, {each}" for each in wrong]
            await undo(pool, base)
    await undo(pool)
    assert not found, "\n".join(found[:40])


def ambitions(route: str, world: World) -> Iterator[tuple[Request, str]]:
    """Yield the table's request, and requests about every target and with every role."""
    plain = REQUESTS.get(route, Request())
    yield plain, "its request"
    for role, person in PEOPLE.items():
        if "<user_id>" in route:
            yield replace(plain, things={**plain.things, "user_id": str(world.home.people[person].id)}), f"user_id of {role}"
    if "<group_id>" in route:
        for group in ("mapped_group_id", "group_id"):
            yield replace(plain, things={**plain.things, "group_id": world.home.things[group]}), group
    bodies = [(plain.body, "its body")]
    if isinstance(plain.body, Mapping):
        bodies += [({**plain.body, field: value}, f"{field}={value}") for field, value in tempting(fields_of_body(route))]
    for body, what in bodies[1:]:
        yield replace(plain, body=body), what
    if "<role_name>" in route:
        for slug in (OTHER_ROLE, SMALL_ROLE, SHARED_ROLE, OWN_ROLE, OWNER):
            for query in CONFIRMATIONS:
                for body, what in bodies:
                    yield replace(plain, things={**plain.things, "role_name": slug}, query=query, body=body), f"role {slug}, {what}"


def tempting(fields: Collection[str]) -> Iterator[tuple[str, Any]]:
    for role in (OWNER, ADMIN, OTHER_ROLE, SMALL_ROLE):
        if "role" in fields:
            yield "role", role
        if "invitations" in fields:
            yield "invitations", [{"email": f"{role}@new.example", "role": role}]
    for field in ("capabilities", "granted_capabilities"):
        if field in fields:
            yield field, sorted(CUSTOMIZABLE)
            yield field, []
    if "oidc" in fields:
        yield "oidc", {"issuer": "https://192.0.2.1/{org_slug}", "client_id": "another"}
        yield "mapping", {"email": "nickname"}
    if "members_see_end_users" in fields:
        yield "members_see_end_users", True


async def rights_of_members(pool: Pool, tenant: Tenant) -> Mapping[str, Rights]:
    """Return every member's rights, by own roles and by groups."""
    org = tenant.organization.id
    [(sees,)] = await run_sql(pool, "select members_see_end_users from organizations where id = %s", org)
    own = await run_sql(pool, "select slug, capabilities from organization_roles where org_id = %s", org)
    rights = {name: rights_of(name, members_see_end_users=sees) for name in ROLES} | {slug: custom_rights(names) for slug, names in own}
    held: dict[str, Rights] = {}
    sql = """
        select user_id::text, role from memberships where org_id = %(org)s
        union all
        select i.user_id::text, g.role
        from groups g join group_members i on i.group_id = g.id join memberships m on m.org_id = g.org_id and m.user_id = i.user_id
        where g.org_id = %(org)s and g.role is not null and g.mapping_stopped_at is null and m.confirmed_at is not null"""
    for user, role in await run_sql(pool, sql.replace("%(org)s", f"'{org}'")):
        held[user] = held.get(user, frozenset()) | rights[role]
    return held


def differences(before: Mapping[str, Rights], after: Mapping[str, Rights], rights: Rights) -> Iterator[str]:
    """Yield the changes that a caller with these rights must not make: to members with more rights, and by rights that the caller lacks."""
    for user in {*before, *after}:
        old, new = before.get(user, frozenset()), after.get(user, frozenset())
        if not new - old <= rights:
            yield f"{user} gains {sorted(new - old - rights)}"
        if not old <= rights and not old <= new:
            yield f"{user} with more rights loses {sorted(old - new)}"


def trust_of(connection: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return the connection's values that decide which users it signs in, or None if it is not active."""
    return (connection["settings"], connection["mapping"]) if connection["state"] == "active" else None


def forbidden(changes: Changes, rights: Rights, world: World, missing: Capability) -> Iterator[str]:
    """Yield the rows that a caller with these rights must not write."""
    roles: dict[str, Rights] = {OWN_ROLE: rights, OTHER_ROLE: custom_rights([missing])}
    roles |= {name: role.rights for name, role in ROLES.items()}
    people = {str(world.home.people[person].id) for role, person in PEOPLE.items() if role == SMALL_ROLE or not roles[role] <= rights}
    roles |= HELD
    lost_trust = [trust_of(json.loads(row)) for table, row in changes.lost if table == "connections"]
    for table, row in changes.got:
        content = json.loads(row)
        if table == "scim_tokens" and not roles[ADMIN] <= rights:
            yield "a directory gets the power of an admin"
        # The tenant's connection is active, unless the route activates it.
        is_trusted = table == "connection_certificates" or (table == "connections" and trust_of(content) not in (None, *lost_trust))
        if is_trusted and not roles[ADMIN] <= rights:
            yield "an identity provider gets the power of an admin"
        # An attribute that is deleted takes its values with it.
        is_above = content.get("user_id") in people or content.get("group_id") == world.home.things["group_id"]
        if table in ("attribute_values", "group_attribute_values") and is_above and "New" in row:
            yield f"{table} of members with more rights"
        if table == "group_members" and content["group_id"] == world.home.things["mapped_group_id"]:
            yield "a user joins the group with more rights"
        if table == "groups" and (content["role"] is None or content["id"] == world.home.things["mapped_group_id"]):
            continue  # a new name gives nothing
        is_given = table in ("groups", "memberships", "service_accounts") or (table == "invitations" and content["status"] == "pending")
        has_ended_part = table == "service_accounts" and content["kept_rights"] is not None  # it keeps rights, and gets none
        if is_given and not has_ended_part and not roles.get(content["role"], frozenset()) <= rights:
            yield f"{table} gets {content['role']}"
    for table, row in changes.lost | changes.got:
        content = json.loads(row)
        if table == "organization_roles" and not custom_rights(content["capabilities"]) <= rights:
            yield f"the role {content['slug']} with {content['capabilities']}"
        column = ABOUT_USERS.get(table)
        if column is not None and content.get(column) in people:
            yield f"{table} of a member with more rights"
