"""The rights that groups give, in every statement that asks for rights."""

import itertools
from collections import defaultdict
from typing import LiteralString
from uuid import UUID

import pytest

from adapters.postgres.accounts.devices import MATCH
from adapters.postgres.authentication.openid import FACTS_OF_USER
from adapters.postgres.authentication.refresh_tokens import ROTATE, ROTATE_PLAIN
from adapters.postgres.authentication.session_contexts import (
    LOAD_BROWSER_SESSION,
    LOAD_SESSION_CONTEXT,
    LOAD_SESSION_CONTEXT_IN,
    LOAD_USERINFO,
    LOAD_USERINFO_OF_SERVICE,
    LOAD_WITH_PROFILE,
)
from adapters.postgres.engine.pool import Pool
from adapters.postgres.kernel.roles import holds, is_admin, member_rights_array
from adapters.postgres.storage import Postgres
from core.kernel.causes import SYSTEM
from core.kernel.roles import ADMIN, MEMBER, OWNER, ROLES, Capability, Rights, RoleName, custom_rights
from core.kernel.roles import is_admin as counts_as_admin
from core.kernel.values import new_id
from core.tenancy import grants
from core.tenancy.model.roles import MemberCount
from tests.proof.volume.plans import plan_nodes
from tests.support.builders import run_sql
from tests.support.rows import NOW, within

pytestmark = pytest.mark.slow

AUDITOR = RoleName("auditor")
FLAWS = ("", "unconfirmed", "platform owner", "stopped", "elsewhere")  # why a member gets nothing by a group
OF_GROUP: dict[RoleName, Rights] = {
    ADMIN: ROLES[ADMIN].rights,
    MEMBER: ROLES[MEMBER].rights,
    AUDITOR: custom_rights([Capability.AUDIT_VIEW]),
}


async def add_person(pool: Pool, org: UUID, name: str, *, role: str = MEMBER, confirmed: bool = True, platform: bool = False) -> UUID:
    user = new_id()
    await run_sql(
        pool,
        "insert into users (id, email, origin, is_platform_owner, created_at, updated_at) values (%s, %s, 'platform', %s, now(), now())",
        *(user, f"{name}@example.com", platform),
    )
    await run_sql(
        pool,
        "insert into memberships (id, org_id, user_id, role, created_at, confirmed_at) values (%s, %s, %s, %s, now(), %s)",
        *(new_id(), org, user, role, NOW if confirmed else None),
    )
    return user


async def add_group(pool: Pool, org: UUID, role: str | None, *users: UUID, stopped: bool = False) -> UUID:
    group = new_id()
    await run_sql(
        pool,
        "insert into groups (id, org_id, name, name_key, role, mapping_stopped_at, created_at, updated_at, members_changed_at) "
        "values (%s, %s, %s, %s, %s, %s, now(), now(), now())",
        *(group, org, str(group), str(group), role, NOW if stopped else None),
    )
    await run_sql(pool, "insert into group_members select %s, %s, u, now() from unnest(%s::uuid[]) u", org, group, list(users))
    await run_sql(pool, "update organizations set maps_groups = true where id = %s", org)
    return group


async def add_role(pool: Pool, org: UUID) -> None:
    await run_sql(
        pool,
        "insert into organization_roles (id, org_id, slug, name, description, capabilities, created_at, updated_at) "
        "values (%s, %s, 'auditor', 'Auditor', '', '{audit.view}', now(), now())",
        *(new_id(), org),
    )


async def test_all_statements_agree_about_the_rights_of_groups(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    """Every own role with every group role, in every state. Only confirmed members without power over the platform get rights."""
    for org in (acme, other_tenant):
        await add_role(pool, org)
    own: dict[RoleName, Rights] = {**{name: role.rights for name, role in ROLES.items() if name != OWNER}, AUDITOR: OF_GROUP[AUDITOR]}
    expected: dict[UUID, Rights] = {}
    counts = defaultdict[RoleName, list[int]](lambda: [0, 0])  # members with the role as their own, and by groups
    for number, (role, given, flaw) in enumerate(itertools.product(own, OF_GROUP, FLAWS)):
        confirmed, platform, stopped, here = flaw != "unconfirmed", flaw == "platform owner", flaw == "stopped", flaw != "elsewhere"
        user = await add_person(pool, acme, f"user-{number}", role=role, confirmed=confirmed, platform=platform)
        await add_group(pool, acme if here else other_tenant, given, user, stopped=stopped)
        expected[user] = own[role] if flaw else own[role] | OF_GROUP[given]
        counts[role][0] += 1
        counts[given][1] += not flaw and role != given

    async def load(user: UUID) -> Rights:
        membership = await within(storage, lambda tx: tx.members.lock(acme, user))
        assert membership is not None
        assert membership.roles[0] == membership.role
        assert set(membership.roles) >= {membership.role}
        return membership.rights

    assert {user: await load(user) for user in expected} == expected
    async with storage.reading() as read:
        assert await read.roles.counts(acme) == {role: MemberCount(*numbers) for role, numbers in counts.items()}
    arrays = await run_sql(pool, f"select m.user_id, {member_rights_array('m')} from memberships m where m.org_id = %s", acme)  # noqa: S608
    assert {user: custom_rights(names) for user, names in arrays} == expected
    for capability in (Capability.AUDIT_VIEW, Capability.MEMBERS_VIEW, Capability.MEMBERS_MANAGE):
        held = await run_sql(
            pool,
            f"select m.user_id from memberships m, (select %s::uuid as id) o where m.org_id = o.id and {holds(capability, 'm', 'o.id')}",  # noqa: S608
            acme,
        )
        assert {user for (user,) in held} == {user for user, rights in expected.items() if capability in rights}, capability
    admins = await run_sql(
        pool,
        f"select m.user_id from memberships m, (select %s::uuid as id) o where m.org_id = o.id and {is_admin('m', 'o.id')}",  # noqa: S608
        acme,
    )
    assert {user for (user,) in admins} == {user for user, rights in expected.items() if counts_as_admin(rights)}


async def test_the_roles_of_groups_are_named_after_the_own_one(storage: Postgres, pool: Pool, acme: UUID) -> None:
    await add_role(pool, acme)
    user = await add_person(pool, acme, "ada")
    for role in (AUDITOR, ADMIN, MEMBER, AUDITOR, None):
        await add_group(pool, acme, role, user)
    await add_group(pool, acme, ADMIN)
    membership = await within(storage, lambda tx: tx.members.lock(acme, user))
    assert membership is not None
    assert membership.roles == (MEMBER, ADMIN, AUDITOR)


@pytest.mark.parametrize(
    "statement",
    [
        *(LOAD_SESSION_CONTEXT, LOAD_SESSION_CONTEXT_IN, LOAD_WITH_PROFILE, LOAD_BROWSER_SESSION),
        *(LOAD_USERINFO, LOAD_USERINFO_OF_SERVICE, FACTS_OF_USER, MATCH[False, False], ROTATE, ROTATE_PLAIN),
    ],
)
async def test_the_statements_of_each_request_start_no_scan_of_tables_that_few_organizations_need(
    pool: Pool, acme: UUID, storage: Postgres, statement: LiteralString
) -> None:
    """A scan that never runs is started, too: together they took a third of these statements' time."""
    del storage
    of_session = {"session_id": new_id(), "user_id": new_id(), "org_id": acme, "slug": "acme", "now": NOW, "browser_hash": b"browser"}
    of_token = {"old_hash": b"old", "new_hash": b"new", "expires_at": NOW, "key_thumbprint": None, "binds_refresh_token": False}
    of_client = {"client_id": new_id(), "service_id": new_id(), "with_groups": False, "is_named": False, "named_service_id": None}
    of_device = {"trust_hash": None, "client_hash": None, "browser": "Firefox", "os": "Linux", "device_type": "browser"}
    of_logins = {"connection_id": None, "failing_since": NOW, "failures": 5, "since": NOW, "habit": 10, "is_authenticated": False}
    nodes = await plan_nodes(pool, statement, of_session | of_token | of_client | of_device | of_logins, "force_generic_plan")
    tables = {node["Relation Name"] for node in nodes if "Relation Name" in node}
    assert "users" in tables or statement == MATCH[False, False]
    assert not {table for table in tables if "group" in table or "role" in table or "polic" in table or "attribute" in table}
    assert statement != ROTATE_PLAIN or "services" not in tables


async def test_the_end_of_the_grants_of_many_members_reads_the_roles_once(storage: Postgres, pool: Pool, acme: UUID) -> None:
    """Very many members can have given something when the rights in their role change."""
    await add_role(pool, acme)
    users = [await add_person(pool, acme, f"user-{number}") for number in range(6)]
    counter = "select coalesce(seq_scan, 0) + coalesce(idx_scan, 0) from pg_stat_xact_user_tables where relname = 'organization_roles'"

    async def count_scans(user_ids: list[UUID]) -> int:
        async with storage.transaction(by=SYSTEM) as tx:
            connection = tx.roles._connection
            [(before,)] = await connection.rows(counter, {})
            await grants.void_grants(tx, acme, user_ids, NOW)
            [(after,)] = await connection.rows(counter, {})
            return int(after - before)

    assert await count_scans(users) == await count_scans(users[:1]) == 1
