"""Statements about permissions, roles and their users: fields, order, conditions, and isolation."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID, uuid4

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.applications.model.authorization import (
    AuthorizationDocument,
    DeclaredPermission,
    FirstHolders,
    HolderCount,
    RoleDefinition,
    RoleOfUser,
    ServiceAuthorization,
    ServiceRoleHolder,
    StoredRole,
)
from core.kernel.causes import SYSTEM
from core.kernel.values import Email, Page, PageResult
from tests.support.builders import run_sql
from tests.support.rows import HOUR, NOW, SECOND, account, add
from tests.support.services import add_service

DOCUMENT: Final = AuthorizationDocument.parse(
    (DeclaredPermission("b:write", "Write"), DeclaredPermission("a-b"), DeclaredPermission("a.b")),
    (RoleDefinition("z", "Last", "Description", ("a.b", "b:write")), RoleDefinition("a_1", "First")),
)


async def save(
    storage: Postgres, org: UUID, service: UUID, document: AuthorizationDocument = DOCUMENT, ids: Mapping[str, UUID] | None = None
) -> Mapping[str, UUID]:
    """Store the document, and return its role ids."""
    ids = ids or {role.slug: uuid4() for role in document.roles}
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.authorizations.save(org, service, document, ids, NOW)
    return ids


async def test_the_document_is_stored_and_returned_with_its_version(storage: Postgres, pool: Pool, acme: UUID) -> None:
    service = await add_service(pool, acme)
    async with storage.reading() as read:
        assert await read.authorizations.find(acme, service) == ServiceAuthorization(0, AuthorizationDocument())
    ids = await save(storage, acme, service)
    roles = tuple(StoredRole(ids[role.slug], role, NOW, NOW) for role in DOCUMENT.roles)
    async with storage.reading() as read:
        assert await read.authorizations.find(acme, service) == ServiceAuthorization(1, DOCUMENT, roles)
        assert await read.authorizations.find_role(acme, service, "z") == roles[1]
        assert await read.authorizations.find_role(acme, service, "b") is None


async def test_a_role_that_stays_keeps_its_id_and_one_that_does_not_change_its_time(storage: Postgres, pool: Pool, acme: UUID) -> None:
    service = await add_service(pool, acme)
    ids = await save(storage, acme, service)
    changed = AuthorizationDocument.parse(DOCUMENT.permissions, (DOCUMENT.roles[0], RoleDefinition("z", "Renamed")))
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.authorizations.save(acme, service, changed, {slug: uuid4() for slug in ids}, NOW + HOUR) == 2
    async with storage.reading() as read:
        found = await read.authorizations.find(acme, service)
    assert found is not None
    assert [(role.id, role.created_at, role.updated_at) for role in found.roles] == [(ids["a_1"], NOW, NOW), (ids["z"], NOW, NOW + HOUR)]


async def test_documents_of_other_services_and_organizations_stay(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    mine, second, foreign = [await add_service(pool, *place) for place in ((acme,), (acme, "second"), (other_tenant,))]
    for org, service in ((acme, mine), (acme, second), (other_tenant, foreign)):
        await save(storage, org, service)
    await save(storage, acme, mine, AuthorizationDocument())
    await save(storage, other_tenant, second, AuthorizationDocument())
    async with storage.reading() as read:
        versions = [await read.authorizations.find(*place) for place in ((acme, mine), (acme, second), (other_tenant, foreign))]
        assert [(found.version, found.document) for found in versions if found] == [
            *((2, AuthorizationDocument()), (1, DOCUMENT), (1, DOCUMENT))
        ]
        assert await read.authorizations.find(other_tenant, second) is None
        assert await read.authorizations.find_role(other_tenant, second, "z") is None


async def test_users_of_a_role_are_counted_listed_and_searched(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    service = await add_service(pool, acme)
    ids = await save(storage, acme, service)
    users = [account(Email(f"{name}@example.com")) for name in ("ada", "bea", "eve")]
    await add(storage, *users)
    async with storage.transaction(by=SYSTEM) as tx:
        for number, user in enumerate(reversed(users)):
            await tx.role_assignments.add(acme, service, ids["z"], user.id, NOW + number * SECOND)
        await tx.role_assignments.add(acme, service, ids["a_1"], users[0].id, NOW - SECOND)
    holders = [ServiceRoleHolder(user.id, user.email, NOW + number * SECOND) for number, user in enumerate(reversed(users))]
    async with storage.reading() as read:
        assert await read.authorizations.count_holders(acme, service) == {"z": HolderCount(3), "a_1": HolderCount(1)}
        assert await read.authorizations.count_holders(other_tenant, service) == {}
        assert await read.authorizations.first_holders(acme, service, ["z"], 2) == FirstHolders([users[2].email, users[1].email], [])
        by_age = FirstHolders([user.email for user in (users[0], users[2], users[1])], [])
        assert await read.authorizations.first_holders(acme, service, ["z", "a_1"], 9) == by_age
        assert await read.authorizations.first_holders(other_tenant, service, ["z"], 2) == FirstHolders([], [])
        assignments = read.role_assignments
        assert await assignments.page(acme, ids["z"], Page(1, 2)) == PageResult(holders[:2], 3)
        assert await assignments.page(acme, ids["z"], Page(2, 2)) == PageResult(holders[2:], 3)
        assert await assignments.page(acme, ids["z"], Page(3, 2)) == PageResult([], 3)
        assert await assignments.page(acme, ids["z"], Page(1, 2), search="ea@") == PageResult([holders[1]], 1)
        assert await assignments.page(acme, ids["z"], Page(1, 2), search="%") == PageResult([], 0)
        assert await assignments.page(other_tenant, ids["z"], Page(1, 2)) == PageResult([], 0)
        assert await assignments.find(acme, ids["z"], users[1].id) == holders[1]
        assert await assignments.find(acme, ids["a_1"], users[1].id) is None
        assert await assignments.find(other_tenant, ids["z"], users[1].id) is None
        assert await assignments.count_of_user(acme, users[0].id) == 2
        assert await assignments.count_of_user(other_tenant, users[0].id) == 0


async def test_roles_of_a_user_are_sorted_and_of_one_organization(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    user = account()
    await add(storage, user)
    for org, slug in ((acme, "shop"), (acme, "desk"), (other_tenant, "shop")):
        service = await add_service(pool, org, slug)
        ids = await save(storage, org, service)
        async with storage.transaction(by=SYSTEM) as tx:
            for role in ids.values():
                await tx.role_assignments.add(org, service, role, user.id, NOW)
    [(shop,)] = await run_sql(pool, "select id from services where org_id = %s and slug = 'shop'", acme)
    async with storage.reading() as read:
        roles = await read.role_assignments.of_user(acme, user.id)
        assert [(role.service_slug, role.slug) for role in roles] == [("desk", "a_1"), ("desk", "z"), ("shop", "a_1"), ("shop", "z")]
        assert roles[1] == RoleOfUser("desk", "Desk", "z", "Last", ("a.b", "b:write"), NOW)
        assert await read.role_assignments.of_user(acme, user.id, shop) == roles[2:]
        assert await read.role_assignments.of_user(other_tenant, user.id, shop) == []


async def test_a_role_is_taken_from_one_user(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    service = await add_service(pool, acme)
    ids = await save(storage, acme, service)
    users = [account(Email(f"{name}@example.com")) for name in ("ada", "bea")]
    await add(storage, *users)
    async with storage.transaction(by=SYSTEM) as tx:
        for user in users:
            await tx.role_assignments.add(acme, service, ids["z"], user.id, NOW)
        assert not await tx.role_assignments.remove(other_tenant, ids["z"], users[0].id)
        assert not await tx.role_assignments.remove(acme, ids["a_1"], users[0].id)
        assert await tx.role_assignments.remove(acme, ids["z"], users[0].id)
        assert not await tx.role_assignments.remove(acme, ids["z"], users[0].id)
    assert await run_sql(pool, "select user_id from service_role_users") == [(users[1].id,)]
