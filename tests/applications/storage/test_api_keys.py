"""Statements about API keys: fields, order, conditions, and isolation."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from core.applications.model.api_keys import ApiKey, ApiKeyRecord
from core.kernel.callers import OrganizationStatus, ServiceContext, ServiceKey
from core.kernel.causes import SYSTEM
from core.kernel.event_catalog import EVENT_KINDS, Event
from core.kernel.roles import Permission
from core.kernel.values import PageResult, digest
from tests.support.builders import run_sql
from tests.support.rows import DAY, HOUR, MICROSECOND, NOW, SECOND
from tests.support.services import add_service, service_context


def key(org: UUID, service: UUID, **changes: Any) -> ApiKey:
    default = ApiKey(
        id=uuid4(),
        org_id=org,
        service_id=service,
        name="Robot",
        prefix="sk_abcdef",
        permissions=(Permission.WRITE_USERS, Permission.READ_USERS),
        last_used_at=NOW - SECOND,
        expires_at=NOW + DAY,
        created_by=uuid4(),
        created_at=NOW - HOUR,
    )
    return replace(default, **changes)


async def store(storage: Postgres, *keys: ApiKey) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        for key in keys:
            await tx.api_keys.add(key, digest(str(key.id)))


async def test_all_fields_of_a_key_are_stored_and_returned(storage: Postgres, pool: Pool, acme: UUID) -> None:
    service = await add_service(pool, acme)
    full, bare = key(acme, service), key(acme, service, permissions=tuple(Permission), last_used_at=None, expires_at=None, created_at=NOW)
    await store(storage, full, bare)
    async with storage.reading() as read:
        assert await read.api_keys.by_id(acme, service, full.id) == full
        assert await read.api_keys.by_id(acme, service, bare.id) == bare
        assert await read.api_keys.page(acme, service, 50, 0) == PageResult([bare, full], 2)
        assert await read.api_keys.page(acme, service, 1, 1) == PageResult([full], 2)
        assert await read.api_keys.page(acme, service, 50, 2) == PageResult([], 2)
    assert await run_sql(pool, "select key_hash from api_keys where id = %s", full.id) == [(digest(str(full.id)),)]


async def test_the_record_of_a_key_is_found_by_the_whole_hash(storage: Postgres, pool: Pool, acme: UUID) -> None:
    service = await add_service(pool, acme, "shop", "mobile")
    [(client,)] = await run_sql(pool, "select client_id from services")
    one = key(acme, service)
    await store(storage, one)
    context = ServiceContext(
        id=service, slug="shop", client_id=client, is_public=True, org_id=acme, org_slug="acme", status=OrganizationStatus.ACTIVE
    )
    async with storage.reading() as read:
        record = ApiKeyRecord(one.id, digest(str(one.id)), frozenset(one.permissions), NOW - SECOND, context)
        assert await read.api_keys.by_hash(digest(str(one.id)), NOW) == record
        assert await read.api_keys.by_hash(digest(str(one.id)), NOW + DAY - MICROSECOND) == record
        assert await read.api_keys.by_hash(digest(str(one.id)), NOW + DAY) is None
        assert await read.api_keys.by_hash(digest(str(one.id))[:31], NOW) is None
        assert await read.api_keys.by_hash(digest("x"), NOW) is None
        for is_returned, at in ((True, NOW + DAY - MICROSECOND), (False, NOW + DAY)):
            assert await read.api_keys.is_live(service, one.id, at) == is_returned
        assert not await read.api_keys.is_live(uuid4(), one.id, NOW)
    await run_sql(pool, "update organizations set status = 'suspended'")
    async with storage.reading() as read:
        stored_record = await read.api_keys.by_hash(digest(str(one.id)), NOW)
        assert stored_record is not None
        assert stored_record.service.status is OrganizationStatus.SUSPENDED


async def test_a_key_is_found_and_removed_only_with_its_service_and_organization(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID
) -> None:
    services = [await add_service(pool, org, slug) for org, slug in ((acme, "shop"), (acme, "second"), (other_tenant, "shop"))]
    keys = [key(org, service) for org, service in zip((acme, acme, other_tenant), services, strict=True)]
    await store(storage, *keys)
    wrong_owners = [(acme, services[1]), (other_tenant, services[0]), (other_tenant, services[2]), (uuid4(), services[0]), (acme, uuid4())]
    async with storage.transaction(by=SYSTEM) as tx:
        for org, service in wrong_owners:
            assert await tx.api_keys.by_id(org, service, keys[0].id) is None
            await tx.api_keys.remove(org, service, keys[0].id)
        for one in keys:
            assert await tx.api_keys.page(one.org_id, one.service_id, 50, 0) == PageResult([one], 1)
        assert await tx.api_keys.page(other_tenant, services[0], 50, 0) == PageResult([], 0)
        await tx.api_keys.remove(acme, services[0], keys[0].id)
        assert [await tx.api_keys.by_id(one.org_id, one.service_id, one.id) for one in keys] == [None, *keys[1:]]


async def test_events_are_stored_with_the_key_as_actor(storage: Postgres, pool: Pool, acme: UUID) -> None:
    context = await service_context(pool, await add_service(pool, acme))
    robot = ServiceKey(key_id=uuid4(), permissions=frozenset(), service=context, address="203.0.113.9", agent="robot/1.0")
    async with storage.transaction(by=robot) as tx:
        tx.record(Event(EVENT_KINDS["user.removed"], "x", org_id=acme))
    for table in ("audit_log", "events"):
        assert await run_sql(pool, f"select actor_id, actor_kind, impersonator_id from {table}") == [(robot.key_id, "api_key", None)]  # noqa: S608
    assert await run_sql(pool, "select address, agent from audit_log") == [("203.0.113.9", "robot/1.0")]
