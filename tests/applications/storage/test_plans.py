"""Statements about plans: fields, order, deletion, and isolation."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.applications.model.plans import Plan
from core.kernel.causes import SYSTEM
from tests.support.builders import add_organization, run_sql
from tests.support.rows import DAY, HOUR, NOW, within
from tests.support.services import add_service


def plan(org: UUID, service: UUID, **changes: Any) -> Plan:
    default = Plan(
        id=uuid4(),
        org_id=org,
        service_id=service,
        name="Gold",
        price_cents=999,
        currency="eur",
        features=("b", "a"),
        billing_price_id="price_1",
        created_at=NOW - DAY,
        updated_at=NOW - HOUR,
    )
    return replace(default, **changes)


async def put(storage: Postgres, *plans: Plan) -> Plan:
    async with storage.transaction(by=SYSTEM) as tx:
        for plan in plans:
            await tx.plans.add(plan)
    return plans[0]


async def by_id(storage: Postgres, plan: Plan) -> Plan | None:
    async with storage.reading() as read:
        return await read.plans.by_id(plan.org_id, plan.service_id, plan.id)


@pytest.fixture
async def home(pool: Pool) -> tuple[UUID, UUID]:
    """An organization's id and its service's id."""
    org = await add_organization(pool, "acme")
    return org, await add_service(pool, org)


@pytest.mark.parametrize("changes", [{}, {"features": (), "billing_price_id": None, "price_cents": 2**31 - 1}], ids=["full", "bare"])
async def test_all_fields_of_a_plan_are_stored_and_returned(storage: Postgres, home: tuple[UUID, UUID], changes: dict[str, Any]) -> None:
    one = await put(storage, plan(*home, **changes), plan(*home, name="Other"))
    assert await by_id(storage, one) == one


async def test_a_plan_is_found_only_in_its_service_and_organization(storage: Postgres, pool: Pool, home: tuple[UUID, UUID]) -> None:
    org, service = home
    foreign = await add_organization(pool, "foreign")
    other = await add_service(pool, org, "other")
    one = await put(storage, plan(org, service))
    async with storage.reading() as read:
        for of, within_service, id_ in ((foreign, service, one.id), (org, other, one.id), (org, service, uuid4())):
            assert await read.plans.by_id(of, within_service, id_) is None
        assert await read.plans.list_after(foreign, service, None, 100) == []
        assert await read.plans.list_after(org, other, None, 100) == []


async def test_plans_are_listed_oldest_first_from_any_plan_on(storage: Postgres, home: tuple[UUID, UUID]) -> None:
    ages = [3, 2, 2, 2, 1]
    plans = [plan(*home, created_at=NOW - age * HOUR, id=UUID(int=number)) for number, age in enumerate(ages, 1)]
    await put(storage, *reversed(plans))
    async with storage.reading() as read:
        assert await read.plans.list_after(*home, None, 100) == plans
        assert await read.plans.list_after(*home, None, 2) == plans[:2]
        for number, one in enumerate(plans):
            assert await read.plans.list_after(*home, one, 100) == plans[number + 1 :]
        assert await read.plans.list_after(*home, plans[0], 2) == plans[1:3]


async def test_saving_writes_only_the_fields_that_can_change(storage: Postgres, home: tuple[UUID, UUID]) -> None:
    one, other = plan(*home), plan(*home)
    await put(storage, one, other)
    new_plan = plan(
        *home,
        id=one.id,
        name="Silver",
        price_cents=0,
        currency="usd",
        features=("c",),
        billing_price_id=None,
        updated_at=NOW,
    )
    await within(storage, lambda tx: tx.plans.save(replace(new_plan, service_id=uuid4(), created_at=NOW)))
    assert await by_id(storage, one) == new_plan
    await within(storage, lambda tx: tx.plans.save(replace(new_plan, org_id=uuid4(), name="Foreign")))
    assert await by_id(storage, one) == new_plan
    assert await by_id(storage, other) == other


async def test_a_deleted_plan_is_not_found_but_stays_in_the_table(storage: Postgres, pool: Pool, home: tuple[UUID, UUID]) -> None:
    one, other = plan(*home), plan(*home)
    await put(storage, one, other)
    await within(storage, lambda tx: tx.plans.remove(uuid4(), one.id, NOW))
    assert await by_id(storage, one) == one
    await within(storage, lambda tx: tx.plans.remove(one.org_id, one.id, NOW))
    await within(storage, lambda tx: tx.plans.remove(one.org_id, one.id, NOW + DAY))
    assert await by_id(storage, one) is None
    async with storage.reading() as read:
        assert await read.plans.list_after(*home, None, 100) == [other]
    assert await run_sql(pool, "select removed_at from plans where id = %s", one.id) == [(NOW,)]


async def test_the_database_refuses_negative_prices(storage: Postgres, home: tuple[UUID, UUID]) -> None:
    with pytest.raises(Exception, match="price_cents"):
        await put(storage, plan(*home, price_cents=-1))
