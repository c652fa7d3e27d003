"""Service accounts that try to gain rights over every route that changes something.

No row that a service account writes gives it or a user more than it has itself, and no route
changes service accounts, their credentials, owners or platform owners. What may be written at all, and with which
right, is in RIGHTS.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.applications.model.api_keys import grantable_permissions
from core.kernel.roles import (
    ADMIN,
    CUSTOMIZABLE,
    GRANTABLE,
    OWNER,
    ROLES,
    Capability,
    Permission,
    Role,
    RoleName,
    custom_role,
    find_role,
    rights_of,
)
from core.tenancy.model import members
from tests.proof.access.attempts import TABLE, fields_of_body
from tests.proof.access.calls import Request, call, prepare, without_variant
from tests.proof.access.refusals import refused_alike
from tests.proof.access.robots import Robot
from tests.proof.access.robots_table import ALL_ROBOTS, DEAD_ROBOTS
from tests.proof.access.state import Changes, changes_since, mark, undo
from tests.proof.access.table import REQUESTS
from tests.proof.access.world import Caller, World

pytestmark = pytest.mark.slow

PIECES = 6  # so that a test run's workers share the routes
# No other route reads access tokens. The matrix shows that a service account gets there what any client gets.
CHANGING: Final = tuple(route for route, row in TABLE.items() if not route.startswith("GET") and row["revoked-robot"] == "401")

Content = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Gain:
    """A row that a request wrote, and the content that it had before (empty if it is new)."""

    table: str
    old: Content
    new: Content

    def changes(self, *columns: str) -> bool:
        return any(self.old.get(column) != self.new.get(column) for column in columns)


def has_grant(robot: Robot, capability: Capability) -> bool:
    """Return whether an owner granted this capability by name. Without it, no effect outlives the account."""
    return capability in robot.granted & GRANTABLE.keys()


def role_of(gain: Gain) -> Role | None:
    """Return the role in a row: a built-in role, or the organization's auditor."""
    name = str(gain.new["role"])
    return custom_role(name, name, [Capability.AUDIT_VIEW]) if name.endswith("-auditor") else find_role(name)


def may_set_role(robot: Robot, gain: Gain) -> bool:
    """The first role comes from an invitation that the account accepts for someone. It never writes owners."""
    assert robot.role is not None
    role, is_new = RoleName(gain.new["role"]), not gain.old
    is_owner = OWNER in (role, gain.old.get("role"))
    granted = has_grant(robot, Capability.MEMBERS_MANAGE if is_new else Capability.ROLES_MANAGE)
    return granted and not is_owner and members.may_invite(rights_of(robot.role), role_of(gain))


def may_invite(robot: Robot, gain: Gain) -> bool:
    assert robot.role is not None
    is_member = Capability.MEMBERS_MANAGE in rights_of(robot.role)
    return is_member and (gain.new["status"] != "pending" or members.may_invite(rights_of(robot.role), role_of(gain)))


def may_define_role(robot: Robot, gain: Gain) -> bool:
    return has_grant(robot, Capability.ROLES_MANAGE) and set(gain.new["capabilities"]) <= rights_of(robot.role)


def may_change_user(robot: Robot, gain: Gain) -> bool:
    """The platform deactivates users and removes second factors. No password, address or ownership changes."""
    kept = not gain.changes("password_hash", "email", "is_platform_owner", "email_verified_at")
    return bool(gain.old) and kept and has_grant(robot, Capability.PLATFORM_USERS_MANAGE)


def may_change_group(robot: Robot, gain: Gain) -> bool:
    """No program lets a group give a role. A group role stops when the member who answers for it is deactivated."""
    changed = {column for column in gain.new if gain.changes(column)}
    is_stopped = bool(gain.old) and changed == {"mapping_stopped_at"} and gain.new["mapping_stopped_at"] is not None
    return is_stopped or (has_grant(robot, Capability.GROUPS_MANAGE) and not changed & {"role", "mapped_by"} - empty(gain))


def empty(gain: Gain) -> set[str]:
    """Return the row's columns that have no value."""
    return {column for column, value in gain.new.items() if value is None}


def may_change_organization(robot: Robot, gain: Gain) -> bool:
    if robot.org_id is None:
        return has_grant(robot, Capability.PLATFORM_ORGANIZATIONS_MANAGE)
    governed = ("status", "tier_id", "max_services", "max_users", "slug", "approved_at")
    return bool(gain.old) and not gain.changes(*governed)


def may_have_key(robot: Robot, gain: Gain) -> bool:
    own = rights_of(robot.role) - (GRANTABLE.keys() - robot.granted)
    return has_grant(robot, Capability.API_KEYS_MANAGE) and set(gain.new["permissions"]) <= set(grantable_permissions(own))


def may_have_credential(robot: Robot, gain: Gain, accounts: frozenset[str]) -> bool:
    return has_grant(robot, Capability.RESOURCES_MANAGE) and gain.new["client_id"] not in accounts


def may_trust(robot: Robot, gain: Gain) -> bool:
    """The identity provider of an active connection acts as any of its users, also as an admin."""
    is_active = gain.table == "connection_certificates" or gain.new["state"] == "active"
    needed = ROLES[ADMIN].rights & GRANTABLE.keys() if is_active and gain.changes("state", "settings", "mapping", "fingerprint") else set()
    return has_grant(robot, Capability.INTEGRATIONS_MANAGE) and needed <= robot.granted


def loses_values(gain: Gain) -> bool:
    """The attribute's declaration was deleted, and its values with it."""
    return bool(gain.old) and gain.new["attributes"].items() <= gain.old["attributes"].items()


def with_grant(capability: Capability) -> Callable[[Robot, Gain], bool]:
    return lambda robot, _: has_grant(robot, capability)


def never(*_: object) -> bool:
    return False


# The tables with rows that give rights, and the rule for a row that a service account writes. A rule sees the
# old and the new content.
RIGHTS: Final[Mapping[str, Callable[[Robot, Gain], bool]]] = {
    "service_accounts": never,
    "api_resource_service_accounts": lambda _, gain: set(gain.new["own_scopes"]) <= set(gain.old.get("own_scopes", ())),
    "sessions": lambda _, gain: bool(gain.old) and not gain.changes("user_id", "org_id", "service_id", "expires_at", "browser_hash"),
    "refresh_tokens": never,
    "passkeys": never,
    "former_passkeys": never,
    "account_recoveries": never,
    "identities": never,
    "consents": never,
    "memberships": may_set_role,
    "invitations": may_invite,
    "organization_roles": may_define_role,
    "users": may_change_user,
    "organizations": may_change_organization,
    "api_keys": may_have_key,
    "api_resources": with_grant(Capability.RESOURCES_MANAGE),
    "api_resource_clients": with_grant(Capability.RESOURCES_MANAGE),
    "api_resource_assignments": with_grant(Capability.RESOURCES_MANAGE),
    "api_resource_groups_assigned": with_grant(Capability.RESOURCES_MANAGE),
    "service_permissions": with_grant(Capability.SERVICES_MANAGE),
    "service_roles": with_grant(Capability.SERVICES_MANAGE),
    "service_role_users": with_grant(Capability.SERVICE_ROLES_ASSIGN),
    "service_role_groups": with_grant(Capability.SERVICE_ROLES_ASSIGN),
    "groups": may_change_group,
    "group_members": with_grant(Capability.GROUPS_MANAGE),
    "service_groups_assigned": with_grant(Capability.END_USERS_MANAGE),
    "scim_tokens": with_grant(Capability.INTEGRATIONS_MANAGE),
    "setup_links": lambda robot, gain: gain.new["ended_at"] is not None or has_grant(robot, Capability.INTEGRATIONS_MANAGE),
    "setup_proposals": with_grant(Capability.INTEGRATIONS_MANAGE),
    "registration_tokens": with_grant(Capability.SERVICES_CREATE),
    "webhooks": with_grant(Capability.WEBHOOKS_MANAGE),
    "service_claims": with_grant(Capability.SERVICES_MANAGE),
    "group_attribute_values": lambda robot, gain: loses_values(gain) or has_grant(robot, Capability.GROUPS_MANAGE),
    "attribute_values": lambda robot, gain: (
        loses_values(gain) or has_grant(robot, Capability.MEMBERS_MANAGE) or has_grant(robot, Capability.END_USERS_MANAGE)
    ),
    "services": lambda robot, _: has_grant(robot, Capability.SERVICES_MANAGE) or has_grant(robot, Capability.SERVICES_CREATE),
    # Users who are deactivated are marked there.
    "service_users": lambda robot, gain: bool(gain.old) or has_grant(robot, Capability.END_USERS_MANAGE),
    "domains": with_grant(Capability.INTEGRATIONS_MANAGE),
    "connections": may_trust,
    "connection_groups": with_grant(Capability.INTEGRATIONS_MANAGE),
    "connection_identities": with_grant(Capability.INTEGRATIONS_MANAGE),
    "connection_keys": with_grant(Capability.INTEGRATIONS_MANAGE),
    "connection_certificates": may_trust,
    "smtp_configurations": with_grant(Capability.INTEGRATIONS_MANAGE),
    "siem_configurations": with_grant(Capability.INTEGRATIONS_MANAGE),
    "oauth_credentials": with_grant(Capability.SERVICES_MANAGE),
    "saml_configurations": with_grant(Capability.INTEGRATIONS_MANAGE),
    "saml_certificates": with_grant(Capability.INTEGRATIONS_MANAGE),
}


@pytest.mark.parametrize("piece", range(PIECES))
async def test_no_service_account_gains_rights(piece: int, app: QuartTrio, pool: Pool, world: World) -> None:
    accounts = frozenset(str(caller.robot.id) for caller in world.callers.values() if caller.robot is not None)
    accounts |= {world.home.things["account_id"], world.rival.things["account_id"], world.home.things["platform_account_id"]}
    findings: list[str] = []
    repeated = refused_alike(app, CHANGING, {name: world.callers[name] for name in ALL_ROBOTS})
    for route in CHANGING[piece::PIECES]:
        for name in (each for each in ALL_ROBOTS if each not in repeated[route]):
            caller = world.callers[name]
            for request, what in ambitions(route, name, world):
                await prepare(pool, request, caller)
                before = await mark(pool) if request.setup_sql else 0
                answer = await call(app, route, request, caller)
                changes = await changes_since(pool, before)
                findings += [f"{route} as {name} with {what}: {answer.status}, {gain}" for gain in forbidden(changes, caller, accounts)]
                if changes or before:
                    await undo(pool)
    assert not findings, "\n".join(findings[:40])


async def test_the_rules_find_each_kind_of_gain(world: World) -> None:
    """Without grants nothing in RIGHTS may be written, and with all grants nothing that is marked as never."""
    robots = {name: world.callers[name] for name in ("owner-robot", "granted-robot", "member-robot")}
    org = str(world.home.organization.id)
    rows: dict[str, Content] = {
        "service_accounts": {"org_id": org},
        "credentials": {"org_id": org, "client_id": str(robots["granted-robot"].robot.id)},  # type: ignore[union-attr]
        "memberships": {"org_id": org, "role": "owner"},
        "users": {"is_platform_owner": True},
        "sessions": {"org_id": org},
    }
    accounts = frozenset(str(caller.robot.id) for caller in robots.values() if caller.robot is not None)
    for name, caller in robots.items():
        for table, content in rows.items():
            changes = Changes(got=frozenset({(table, json.dumps({"id": "1", **content}))}))
            assert list(forbidden(changes, caller, accounts)), f"{table} by {name}"
    invitation = {"id": "1", "org_id": org, "role": "admin", "status": "pending"}
    written = Changes(got=frozenset({("invitations", json.dumps(invitation))}))
    assert [bool(list(forbidden(written, caller, accounts))) for caller in robots.values()] == [False, False, True]


def forbidden(changes: Changes, caller: Caller, accounts: frozenset[str]) -> Iterator[str]:
    """Yield the rows that this service account must not write."""
    robot = caller.robot
    assert robot is not None
    for gain in gains(changes):
        org_id = gain.new.get("org_id")
        if robot.org_id is not None and org_id is not None and org_id != str(robot.org_id):
            yield f"{gain.table} of another organization: {gain.new}"
        elif gain.table == "credentials":
            if not may_have_credential(robot, gain, accounts):
                yield f"credentials: {gain.new}"
        elif gain.table == "group_members" and gain.new["group_id"] == caller.at.things["mapped_group_id"]:
            yield f"a user of a group with a role: {gain.new}"
        elif gain.table in RIGHTS and not (robot.is_live and may_write(robot, gain)):
            yield f"{gain.table}: {gain.old} -> {gain.new}"


def may_write(robot: Robot, gain: Gain) -> bool:
    needs_role = gain.table in ("memberships", "invitations")
    return (robot.role is not None or not needs_role) and RIGHTS[gain.table](robot, gain)


def gains(changes: Changes) -> Iterator[Gain]:
    """Yield the rows that were written, with their old content. Rows that are only gone give no right."""
    lost = {(table, key_of(content)): content for table, content in contents(changes.lost)}
    for table, content in contents(changes.got):
        yield Gain(table, lost.get((table, key_of(content)), {}), content)


def contents(rows: frozenset[tuple[str, str]]) -> Iterator[tuple[str, Content]]:
    for table, row in rows:
        yield table, json.loads(row)


def key_of(content: Content) -> str:
    names = ("id", "org_id", "resource_id", "service_id", "service_account_id", "user_id", "domain", "provider")
    return str(content["id"]) if "id" in content else json.dumps([content.get(name) for name in names])


# Requests


def ambitions(route: str, name: str, world: World) -> Iterator[tuple[Request, str]]:
    """Yield the valid request, and requests in which the service account asks for more, for itself or another account."""
    plain, caller = REQUESTS.get(route, Request()), world.callers[name]
    assert caller.robot is not None
    yield plain, "nothing"
    if name in DEAD_ROBOTS:
        return
    own_id = str(caller.robot.id)
    people: dict[str, str] = {role: str(world.home.people[role].id) for role in ROLES}
    ids = {"itself": own_id, **people}
    variables = [part[1:-1].partition(":")[2] or part[1:-1] for part in without_variant(route).split("/") if part.startswith("<")]
    for variable in {"account_id", "user_id", "client_id", "org_id"} & set(variables):
        for what, value in ids.items():
            yield replace(plain, things={**plain.things, variable: value}), f"{variable} of {what}"
    if "group_id" in variables:
        yield replace(plain, things={**plain.things, "group_id": "{mapped_group_id}"}), "a group with a role"
    if TABLE[route][name] in ("401", "403", "403*"):
        return  # the body does not matter
    for field in fields_of_body(route):
        for value in tempting(field, ids):
            yield replace(plain, body={**(plain.body or {}), field: value}), f"{field}={value}"
    extra = {
        "org_id": str(world.rival.organization.id),
        "role": "owner",
        "granted_capabilities": ["platform.own"],
        "is_platform_owner": True,
    }
    if plain.body is not None:
        yield replace(plain, body={**extra, **plain.body}), "fields that do not exist"


def tempting(field: str, ids: Mapping[str, str]) -> list[Any]:
    """Return values for a field that give more rights."""
    match field:
        case "role":
            return [*ROLES, "{role_name}", "platform"]
        case "invitations":
            return [[{"email": f"{role}@new.example", "role": role}] for role in ROLES]
        case "permissions":
            return [[*Permission], ["platform.own"]]
        case "user_id" | "owner_id" | "new_owner_user_id":
            return list(ids.values())
        case "client_id":
            return [ids["itself"]]
        case "capabilities":
            return [[*CUSTOMIZABLE], [Capability.ORGANIZATION_OWN]]
        case "scopes" | "granted_capabilities":
            return [["platform_users:write"], [*Capability]]
    return []
