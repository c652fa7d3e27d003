"""Statements about a service's users: order, counters, removal, and isolation."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts import accounts
from core.applications.model.users import ServiceUser
from core.kernel.causes import SYSTEM
from core.kernel.values import PageResult
from tests.support.builders import run_during, run_sql
from tests.support.rows import DAY, EVE, NOW, SECOND, account, add, within
from tests.support.services import add_service, enroll_user


async def enroll(storage: Postgres, service: UUID, *users: UUID) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        for number, user in enumerate(users):
            assert await enroll_user(tx, service, user, NOW + number * SECOND)


async def test_users_are_listed_earliest_first(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    service, other = await add_service(pool, acme), await add_service(pool, other_tenant)
    people = [account(f"n{number}@example.com", created_at=NOW - number * DAY) for number in range(4)]
    await add(storage, *people)
    await enroll(storage, service, *(one.id for one in people[:3]))
    await enroll(storage, other, people[3].id, people[0].id)
    # Users with equal times are ordered by id.
    await run_sql(pool, "update service_users set created_at = %s where user_id = %s", NOW, people[1].id)
    first = sorted(people[:2], key=lambda one: one.id.bytes)
    expected = [ServiceUser(one.id, one.email, one.created_at) for one in [*first, people[2]]]
    async with storage.reading() as read:
        assert await read.service_users.page(acme, service, 50, 0) == PageResult(expected, 3)
        assert await read.service_users.page(acme, service, 2, 1) == PageResult(expected[1:], 3)
        assert await read.service_users.page(acme, service, 2, 3) == PageResult([], 3)
        assert await read.service_users.page(acme, service, 100, 2**31 - 1) == PageResult([], 3)
        assert await read.service_users.by_id(acme, service, people[2].id) == expected[2]
        assert await read.service_users.emails(acme, service, [one.id for one in people[1:]]) == {one.id: one.email for one in people[1:3]}
        assert await read.service_users.emails(other_tenant, service, [people[0].id]) == {}
        for org, service_id, user in ((other_tenant, service, people[2].id), (acme, other, people[2].id), (acme, service, people[3].id)):
            assert await read.service_users.by_id(org, service_id, user) is None
        for org, service_id in ((other_tenant, service), (acme, other), (uuid4(), service), (acme, uuid4())):
            assert await read.service_users.page(org, service_id, 50, 0) == PageResult([], 0)


async def relations(pool: Pool) -> set[tuple[Any, ...]]:
    return set(await run_sql(pool, "select service_id, user_id from service_users"))


async def counts(pool: Pool) -> dict[UUID, int]:
    return dict(
        [
            *await run_sql(pool, "select id, user_count from services"),
            *await run_sql(pool, "select org_id, total from end_user_totals"),
        ]
    )


async def test_removing_a_user_affects_only_that_user_service_and_organization(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID
) -> None:
    await add(storage, user := account(), eve := account(EVE))
    services = [await add_service(pool, org, slug) for org, slug in ((acme, "shop"), (acme, "second"), (other_tenant, "shop"))]
    for service in services:
        await enroll(storage, service, user.id, eve.id)
    before = await relations(pool)
    async with storage.transaction(by=SYSTEM) as tx:
        for org, service, target in ((other_tenant, services[0], user.id), (uuid4(), services[0], user.id), (acme, services[0], uuid4())):
            await tx.service_users.remove(org, service, target)
    assert await relations(pool) == before
    await within(storage, lambda tx: tx.service_users.remove(acme, services[0], user.id))
    assert await relations(pool) == before - {(services[0], user.id)}
    assert await counts(pool) == {services[0]: 1, services[1]: 2, services[2]: 2, acme: 2, other_tenant: 2}
    await within(storage, lambda tx: tx.service_users.remove(acme, services[1], user.id))
    assert await counts(pool) == {services[0]: 1, services[1]: 1, services[2]: 2, acme: 1, other_tenant: 2}
    await within(storage, lambda tx: tx.service_users.remove_everywhere(eve.id))
    assert await relations(pool) == {(services[2], user.id)}
    assert await counts(pool) == {services[0]: 0, services[1]: 0, services[2]: 1, acme: 0, other_tenant: 1}
    assert await run_sql(pool, "select org_id, user_id from end_users") == [(other_tenant, user.id)]


@pytest.mark.parametrize("purged", ["service_users", "end_users", None])
async def test_an_account_can_be_deleted_while_the_housekeeper_removes_its_old_rows(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID, purged: str | None
) -> None:
    user = await add(storage, account())
    for org in (acme, other_tenant):
        for slug in ("shop", "second"):
            await enroll(storage, await add_service(pool, org, slug), user.id)
    await run_sql(pool, "delete from organizations where id = %s", acme)

    async def erase() -> None:
        await within(storage, lambda tx: accounts.delete_account(tx, user.id, NOW))

    if purged is None:
        await erase()
    else:
        await run_during(pool, [(f"delete from {purged} where org_id = %s", (acme,))], erase)  # noqa: S608
    assert await relations(pool) == set()
    assert await run_sql(pool, "select * from end_users") == []
    assert await run_sql(pool, "select * from users") == []
    assert await run_sql(pool, "select total from end_user_totals where org_id = %s", other_tenant) == [(0,)]
