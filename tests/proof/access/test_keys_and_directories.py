"""API keys and directories that try to gain rights over every route that reads them, for every user, group and role."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import MEMBER
from tests.proof.access.attempts import TABLE
from tests.proof.access.calls import Request, call, prepare
from tests.proof.access.state import changes_since, mark, undo
from tests.proof.access.table import REQUESTS
from tests.proof.access.test_escalation import RIGHTS, Gain, gains
from tests.proof.access.world import World

pytestmark = pytest.mark.slow

# No other route reads API keys and SCIM tokens, as the matrix shows.
READERS: Final = {"key": "/api/service/", "directory": "/scim/v2/"}
CHANGING: Final = [
    (route, name) for route in TABLE for name, start in READERS.items() if f" {start}" in route and not route.startswith("GET")
]
KEPT_OF_USERS: Final = ("password_hash", "is_platform_owner", "mfa_enabled_at")
KEPT_OF_GROUPS: Final = ("role", "role_id", "mapped_by", "mapped_at", "scim_token_id")


def keeps(*columns: str) -> Callable[[Gain, World], bool]:
    """Allow changes, and new rows in which these columns have no value."""
    return lambda gain, _: not any(gain.old.get(column) != gain.new[column] and gain.new[column] for column in columns)


def is_member(gain: Gain, _: World) -> bool:
    return gain.new["role"] == gain.old.get("role", MEMBER) and (not gain.old or not gain.changes("user_id", "org_id"))


def is_counted(gain: Gain, _: World) -> bool:
    return {column for column in gain.new if gain.changes(column)} == {"member_count"}


def is_ended(gain: Gain, _: World) -> bool:
    return bool(gain.old) and not gain.changes("user_id", "org_id", "service_id", "expires_at", "role")


# The tables in RIGHTS with rows that these callers may write, and the rules. No row in the other tables may be
# written.
OF_BOTH: Final[Mapping[str, Callable[[Gain, World], bool]]] = {
    "users": keeps(*KEPT_OF_USERS),
    "sessions": is_ended,
    "attribute_values": lambda *_: True,
    "service_users": lambda *_: True,
}
OF_KEYS: Final = {
    **OF_BOTH,
    "services": keeps("client_secret_hash"),
    "service_permissions": lambda *_: True,
    "groups": is_counted,
    "service_roles": lambda *_: True,
    "service_role_users": lambda *_: True,
    "service_role_groups": lambda gain, world: gain.new["group_id"] == world.home.things["group_id"],  # assigned to the service
}
OF_DIRECTORIES: Final = {
    **OF_BOTH,
    "memberships": is_member,
    "invitations": is_ended,
    "organizations": keeps("status", "tier_id", "slug", "maps_groups"),
    "groups": keeps(*KEPT_OF_GROUPS[:4]),
    "group_members": lambda gain, world: gain.new["group_id"] not in (world.home.things["group_id"], world.home.things["mapped_group_id"]),
}


async def test_no_key_and_no_directory_gains_rights(app: QuartTrio, pool: Pool, world: World) -> None:
    findings, accepted = list[str](), set[str]()
    for route, name in CHANGING:
        rules = OF_DIRECTORIES if name == "directory" else OF_KEYS
        caller = world.callers[name]
        for request, what in ambitions(route, world):
            await prepare(pool, request, caller)
            before = await mark(pool)
            answer = await call(app, route, request, caller)
            accepted |= {name} if answer.status < 300 else set()
            for gain in gains(await changes_since(pool, before)):
                is_free = gain.table not in RIGHTS and gain.table != "credentials"
                is_foreign = gain.new.get("org_id") not in (None, str(world.home.organization.id))
                if is_foreign or not (rules[gain.table](gain, world) if gain.table in rules else is_free):
                    changed = {column: value for column, value in gain.new.items() if gain.changes(column)}
                    findings.append(f"{route} as {name} with {what}: {answer.status}, {gain.table} {changed}")
            await undo(pool)
    assert accepted == set(READERS)
    assert not findings, "\n".join(findings[:40])


def ambitions(route: str, world: World) -> Iterator[tuple[Request, str]]:
    """Yield the valid request, and requests about every user, every group and a role in the organization."""
    plain, things = REQUESTS.get(route, Request()), world.home.things
    yield plain, "nothing"
    accounts = [world.home.people[name] for name in ("owner", "admin", "further", "former", "end-user")]
    accounts += [account for name in ("stranger", "platform") if (account := world.callers[name].account) is not None]
    groups = ("group_id", "pushed_group_id", "mapped_group_id", "org_id", "service_id") if "<group_id>" in route else ("",)
    for group in groups:
        chosen = {**plain.things, **({"group_id": things[group]} if group else {})}
        for account in accounts:
            yield replace(plain, things={**chosen, "user_id": str(account.id)}), f"{account.email} in {group or 'no group'}"
    if "<role_slug>" in route:
        yield replace(plain, things={**plain.things, "role_slug": things["role_name"]}), "a role of the organization"
