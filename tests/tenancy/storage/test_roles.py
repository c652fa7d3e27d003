"""Organizations' roles in the database, and the statements that read rights."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.kernel.roles import holds, is_admin, rights_array, rights_columns, to_rights
from adapters.postgres.storage import Postgres
from core.kernel import roles
from core.kernel.causes import SYSTEM
from core.kernel.roles import ADMIN, CUSTOMIZABLE, MEMBER, OWNER, ROLES, Capability, RoleName, custom_rights, rights_of
from core.kernel.values import Email
from core.tenancy.model.invitations import InvitationStatus
from core.tenancy.model.roles import HolderKind, MemberCount, OrganizationRole, RoleHolder, RoleSlugTaken
from tests.support.builders import add_member, run_sql
from tests.support.programs import add_service_account
from tests.support.rows import DAY, NOW, account, add, within

AUDITOR = RoleName("auditor")


def role(org: UUID, slug: str = AUDITOR, **changes: Any) -> OrganizationRole:
    default = OrganizationRole(
        id=uuid4(),
        org_id=org,
        slug=RoleName(slug),
        name=slug.title(),
        description=f"What {slug} does",
        capabilities=frozenset({Capability.AUDIT_VIEW, Capability.MEMBERS_VIEW}),
        created_at=NOW,
        updated_at=NOW,
    )
    return replace(default, **changes)


async def store(storage: Postgres, *rows: OrganizationRole) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        for row in rows:
            await tx.roles.add(row)


async def add_person(storage: Postgres, pool: Pool, org: UUID, name: str, role_name: str) -> UUID:
    person = account(f"{name}@example.com")
    await add(storage, person)
    await add_member(pool, org, person.id, role_name, confirmed=True)
    return person.id


async def invite(pool: Pool, org: UUID, by: UUID, role_name: str, status: str = "pending", days: int = 1) -> UUID:
    id_ = uuid4()
    await run_sql(
        pool,
        "insert into invitations (id, org_id, email, role, invited_by, status, token_hash, expires_at, created_at, ended_at) "
        "values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        *(
            id_,
            org,
            f"{id_}@example.com",
            role_name,
            by,
            status,
            id_.bytes,
            NOW + days * DAY,
            NOW - DAY,
            None if status == "pending" else NOW,
        ),
    )
    return id_


async def test_a_role_is_stored_changed_and_found_in_its_organization_only(storage: Postgres, acme: UUID, other_tenant: UUID) -> None:
    one, reader, foreign = role(acme), role(acme, "reader", name="a reader"), role(other_tenant, name="Foreign")
    await store(storage, one, reader, foreign)
    async with storage.reading() as read:
        assert await read.roles.own(acme) == [reader, one], "by name, without regard to case"
        assert await read.roles.by_slug(acme, AUDITOR) == one
        assert await read.roles.by_slug(acme, "boss") is None
        assert await read.roles.find(acme, AUDITOR) == one.role
        assert await read.roles.find(acme, ADMIN) == ROLES[ADMIN]
        assert await read.roles.find(other_tenant, "reader") is None
        assert await read.roles.all(acme) == [*ROLES.values(), reader.role, one.role]
    changed = replace(one, name="Spy", description="", capabilities=frozenset(), version=2, updated_at=NOW + DAY)
    await within(storage, lambda tx: tx.roles.save(replace(changed, org_id=other_tenant)))
    await within(storage, lambda tx: tx.roles.save(changed))
    await within(storage, lambda tx: tx.roles.remove(other_tenant, reader.id))
    async with storage.reading() as read:
        assert await read.roles.own(acme) == [reader, changed]
        assert await read.roles.own(other_tenant) == [foreign]
    with pytest.raises(RoleSlugTaken):
        await store(storage, role(acme))


async def test_unknown_capabilities_of_a_later_release_are_left_out(storage: Postgres, pool: Pool, acme: UUID) -> None:
    await store(storage, role(acme))
    await run_sql(pool, "update organization_roles set capabilities = array['audit.view', 'rockets.launch']")
    async with storage.reading() as read:
        found = await read.roles.by_slug(acme, AUDITOR)
    assert found is not None
    assert found.capabilities == {Capability.AUDIT_VIEW}


@pytest.mark.parametrize(
    ("column", "value"), [("slug", "owner"), ("slug", "Auditor"), ("slug", ""), ("slug", "a" * 51), ("capabilities", ["organization.own"])]
)
async def test_the_database_refuses_roles_that_are_not_valid(storage: Postgres, pool: Pool, acme: UUID, column: str, value: Any) -> None:
    await store(storage, role(acme))
    with pytest.raises(psycopg.errors.CheckViolation):
        await run_sql(pool, f"update organization_roles set {column} = %s", value)  # noqa: S608  (a column)


async def test_a_trigger_refers_to_the_role_that_a_row_names(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    one = role(acme)
    await store(storage, one, role(other_tenant, "reader"))
    user = await add_person(storage, pool, acme, "ada", MEMBER)
    ids = "select role_id from memberships where user_id = %s"
    for named, expected in ((AUDITOR, one.id), (MEMBER, None), (AUDITOR, one.id), (ADMIN, None)):
        await run_sql(pool, "update memberships set role = %s where user_id = %s", named, user)
        assert await run_sql(pool, ids, user) == [(expected,)]
    for name in ("reader", "boss"):
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            await run_sql(pool, "update memberships set role = %s where user_id = %s", name, user)
    await run_sql(pool, "update memberships set role = %s where user_id = %s", AUDITOR, user)
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        await within(storage, lambda tx: tx.roles.remove(acme, one.id))


async def test_the_holders_are_counted_and_the_first_are_named(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    one, foreign = role(acme), role(other_tenant)
    await store(storage, one, foreign)
    owner = await add_person(storage, pool, acme, "owner", OWNER)
    people = [await add_person(storage, pool, acme, f"user-{number:02}", AUDITOR) for number in range(21)]
    invited = await invite(pool, acme, owner, AUDITOR)
    await invite(pool, acme, owner, AUDITOR, days=-1)
    await invite(pool, acme, owner, AUDITOR, InvitationStatus.ACCEPTED)
    robot = await add_service_account(pool, acme, owner, AUDITOR, name="Robot")
    group = await add_group(pool, acme, AUDITOR)
    async with storage.reading() as read:
        found = await read.roles.holders(acme, one.id, NOW)
        assert found.counts == {HolderKind.MEMBER: 21, HolderKind.INVITATION: 1, HolderKind.SERVICE_ACCOUNT: 1, HolderKind.GROUP: 1}
        assert (found.total, found.more, len(found.first)) == (24, 4, 20)
        assert found.first[0] == RoleHolder(HolderKind.MEMBER, people[0], Email("user-00@example.com"))
        nothing = await read.roles.holders(acme, foreign.id, NOW)
        assert (nothing.total, nothing.first) == (0, [])
        assert await read.roles.counts(acme) == {OWNER: MemberCount(1), AUDITOR: MemberCount(21)}
    await run_sql(pool, "delete from memberships where role = 'auditor'")
    async with storage.reading() as read:
        found = await read.roles.holders(acme, one.id, NOW)
    assert [(holder.kind, holder.id) for holder in found.first] == [
        (HolderKind.INVITATION, invited),
        (HolderKind.SERVICE_ACCOUNT, robot),
        (HolderKind.GROUP, group),
    ]


async def add_group(pool: Pool, org: UUID, role: RoleName) -> UUID:
    """Add a group that gives the role."""
    group = uuid4()
    await run_sql(
        pool,
        "insert into groups (id, org_id, name, name_key, role, created_at, updated_at, members_changed_at) "
        "values (%s, %s, 'Group', 'group', %s, now(), now(), now())",
        *(group, org, role),
    )
    return group


async def test_the_givers_have_given_something_that_can_end(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    await store(storage, role(acme), role(other_tenant))
    names: dict[str, RoleName] = {
        "inviter": AUDITOR,
        "owner-of-account": AUDITOR,
        "maker": AUDITOR,
        "idle": AUDITOR,
        "inviter-to-it": ADMIN,
        "other": ADMIN,
    }
    people = {name: await add_person(storage, pool, acme, name, has) for name, has in names.items()}
    await invite(pool, acme, people["inviter"], MEMBER)
    await invite(pool, acme, people["idle"], MEMBER, InvitationStatus.ACCEPTED)
    await invite(pool, acme, people["inviter-to-it"], AUDITOR)
    await invite(pool, acme, people["other"], MEMBER)
    await invite(pool, acme, uuid4(), AUDITOR)
    account_id = await add_service_account(pool, acme, people["owner-of-account"], MEMBER)
    insert = """
        insert into credentials (id, client_id, org_id, kind, name, secret_hash, created_by, created_at)
        values (%s, %s, %s, %s, %s, %s, %s, %s)"""
    await run_sql(pool, insert, uuid4(), account_id, acme, "secret", "Main", uuid4().bytes, people["maker"], NOW)
    async with storage.transaction(by=SYSTEM) as tx:
        givers = await tx.roles.givers(acme, AUDITOR)
        assert await tx.roles.givers(other_tenant, AUDITOR) == []
    assert givers == sorted(people[name] for name in ("inviter", "owner-of-account", "maker", "inviter-to-it"))


async def test_a_role_is_replaced_in_one_organization(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    one = role(acme)
    await store(storage, one, role(other_tenant))
    person, other = [await add_person(storage, pool, org, name, AUDITOR) for org, name in ((acme, "ada"), (other_tenant, "eve"))]
    pending = await invite(pool, acme, person, AUDITOR)
    ended = await invite(pool, acme, person, AUDITOR, InvitationStatus.CANCELLED)
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.roles.replace_of_members(acme, AUDITOR, MEMBER, promoted_by=None) == [person]
        await tx.roles.replace_of_invitations(acme, AUDITOR, MEMBER)
        await tx.roles.remove(acme, one.id)
    assert set(await run_sql(pool, "select user_id, role, role_id is null from memberships")) == {
        (person, MEMBER, True),
        (other, AUDITOR, False),
    }
    assert set(await run_sql(pool, "select id, role, role_id from invitations")) == {(pending, MEMBER, None), (ended, AUDITOR, None)}


@pytest.mark.parametrize(
    ("name", "capabilities"),
    [
        *((name, ()) for name in ROLES),
        (AUDITOR, ()),
        (AUDITOR, (Capability.MEMBERS_VIEW,)),
        (AUDITOR, (Capability.AUDIT_VIEW,)),
        (AUDITOR, (Capability.MEMBERS_MANAGE, Capability.ROLES_MANAGE)),
        (AUDITOR, tuple(CUSTOMIZABLE)),
    ],
)
async def test_statements_read_the_rights(
    storage: Postgres, pool: Pool, acme: UUID, name: RoleName, capabilities: tuple[Capability, ...]
) -> None:
    await store(storage, role(acme, capabilities=frozenset(capabilities)))
    await add_person(storage, pool, acme, "ada", name)
    columns = rights_columns("m", "o").sql
    tables = "from memberships m join organizations o on o.id = m.org_id"
    for sees in (True, False):
        await run_sql(pool, "update organizations set members_see_end_users = %s", sees)
        rights = rights_of(name, members_see_end_users=sees) if name in ROLES else custom_rights(capabilities)
        assert to_rights((await run_sql(pool, f"select {columns} {tables}"))[0]) == rights
        assert set((await run_sql(pool, f"select {rights_array('m')} {tables}"))[0][0]) == set(rights)
        assert await run_sql(pool, f"select {is_admin('m', 'o.id')} {tables}") == [(roles.is_admin(rights),)]
        for capability in sorted(CUSTOMIZABLE):
            assert await run_sql(pool, f"select {holds(capability, 'm', 'o.id')} {tables}") == [(capability in rights,)]
