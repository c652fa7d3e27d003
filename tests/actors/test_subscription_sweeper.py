"""Subscriptions expire once, in bounded batches, with any number of processes (decision 116; security N-9)."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
import structlog
import trio

from actors.mailbox import TimedMailbox
from actors.sweep_jobs import SUBSCRIPTION_EXPIRY, sweeper
from adapters.postgres.engine.pool import Pool
from core.billing import subscriptions
from core.billing.model import subscriptions as model_subscriptions
from core.billing.model import subscriptions as subscriptions_model
from core.kernel.values import new_id
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.support.builders import add_account, add_organization, run_concurrently, run_during, run_sql
from tests.support.services import add_plan, add_service, add_service_user, add_subscription
from tests.support.waiting import PATIENCE, eventually


async def add_plan_of_a_service(pool: Pool, slug: str = "acme", status: str = "active") -> tuple[UUID, UUID]:
    """Add a service in a new organization, and a plan for it."""
    service = await add_service(pool, await add_organization(pool, slug, status))
    return service, await add_plan(pool, service)


async def subscribe(ports: Ports, pool: Pool, plan: tuple[UUID, UUID], count: int, ends: datetime, **fields: Any) -> set[UUID]:
    """Add `count` active subscriptions for different users that end at this time."""
    subscription_ids = set()
    for _ in range(count):
        user = await add_account(ports, f"{new_id()}@example.com", None)
        await add_service_user(ports, plan[0], user.id)
        subscription_ids.add(await add_subscription(ports, pool, plan[0], user.id, plan[1], ends=ends, **fields))
    return subscription_ids


async def expired(pool: Pool) -> set[UUID]:
    return {id_ for (id_,) in await run_sql(pool, "select id from subscriptions where status = 'expired'")}


async def recorded(pool: Pool) -> list[tuple[Any, ...]]:
    return await run_sql(
        pool, "select org_id, action, target_type, target_id, actor_id, address, details from audit_log order by target_id"
    )


async def test_overdue_subscriptions_expire_and_the_system_is_the_actor(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    plans = [await add_plan_of_a_service(pool), await add_plan_of_a_service(pool, "acme-two", "suspended")]
    late = set[UUID]()
    for plan in plans:
        late |= await subscribe(ports, pool, plan, 1, clock.now())
        await subscribe(ports, pool, plan, 1, clock.now() + timedelta(microseconds=1))
        await subscribe(ports, pool, plan, 1, clock.now(), provider=f"sub_{plan[0]}")  # the payment provider reports its end
        for status in ("past_due", "cancelled"):
            await subscribe(ports, pool, plan, 1, clock.now(), status=status)
    before = await run_sql(pool, "select id, subscription_count from services order by id")
    assert await subscriptions.sweep(ports, new_id()) == {"subscriptions": 2}
    assert await expired(pool) == late
    assert await run_sql(pool, "select id, subscription_count from services order by id") == before
    assert await run_sql(pool, "select updated_at from subscriptions where status = 'expired'") == [(clock.now(),)] * 2
    rows = await run_sql(pool, "select org_id, id::text, service_id::text, user_id::text from subscriptions where status = 'expired'")
    assert await recorded(pool) == sorted(
        [
            (
                org,
                "subscription.updated",
                "subscription",
                id_,
                None,
                None,
                {"service_id": service, "user_id": user, "status": {"old": "active", "new": "expired"}},
            )
            for org, id_, service, user in rows
        ],
        key=lambda entry: entry[3],
    )
    assert await run_sql(pool, "select count(*), count(distinct target_id) from events where name = 'subscription.updated'") == [(2, 2)]


async def test_a_sweep_without_overdue_subscriptions_changes_nothing(ports: Ports, pool: Pool) -> None:
    assert await subscriptions.sweep(ports, new_id()) == {}
    assert await recorded(pool) == []


@pytest.mark.slow
async def test_a_backlog_expires_in_batches(ports: Ports, pool: Pool, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_subscriptions, "EXPIRY_BATCH", 4)
    late = await subscribe(ports, pool, await add_plan_of_a_service(pool), 10, clock.now())
    assert await subscriptions.sweep(ports, new_id()) == {"subscriptions": 10}
    assert await expired(pool) == late
    assert len(await recorded(pool)) == 10


async def test_one_process_at_a_time_sweeps(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    one, other = new_id(), new_id()
    assert await subscriptions.sweep(ports, one) == {}
    await subscribe(ports, pool, await add_plan_of_a_service(pool), 1, clock.now())
    assert await subscriptions.sweep(ports, other) is None
    assert await expired(pool) == set()
    clock.advance(subscriptions_model.LEASE - timedelta(seconds=1))
    assert await subscriptions.sweep(ports, one) == {"subscriptions": 1}  # a living process keeps its lease
    clock.advance(timedelta(seconds=1))
    assert await subscriptions.sweep(ports, other) is None
    clock.advance(subscriptions_model.LEASE)
    assert await subscriptions.sweep(ports, other) == {}


async def test_locked_subscriptions_are_left_for_the_next_sweep(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    plan = await add_plan_of_a_service(pool)
    [locked] = await subscribe(ports, pool, plan, 1, clock.now())
    late = await subscribe(ports, pool, plan, 1, clock.now())
    async with pool.connection() as connection, connection.transaction():
        await connection.execute("select 1 from subscriptions where id = %s for no key update", (locked,))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(subscriptions.sweep, ports, new_id())
    assert await expired(pool) == late


async def test_a_subscription_that_is_renewed_during_the_sweep_does_not_expire(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    plan = await add_plan_of_a_service(pool)
    await subscribe(ports, pool, plan, 1, clock.now())
    renewal = ("update subscriptions set current_period_end = %s", (clock.now() + timedelta(days=1),))
    lease = ("lock table leases", ())  # the sweeper waits for it
    holder = new_id()
    await subscriptions.sweep(ports, holder)  # takes the lease
    await run_sql(pool, "update subscriptions set status = 'active'")
    assert await run_during(pool, [lease, renewal], lambda: subscriptions.sweep(ports, holder)) == {}
    assert await expired(pool) == set()


@pytest.mark.slow
async def test_each_subscription_expires_once_with_many_sweepers(
    ports: Ports, pool: Pool, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_subscriptions, "EXPIRY_BATCH", 7)
    # The lease ends at once, so the sweepers compete as often as possible.
    monkeypatch.setattr(model_subscriptions, "LEASE", timedelta())
    late = set[UUID]()
    for slug in ("acme", "acme-two", "acme-three"):
        late |= await subscribe(ports, pool, await add_plan_of_a_service(pool, slug), 20, clock.now())
    swept = await run_concurrently(8, lambda _: subscriptions.sweep(ports, new_id()))
    last_counts = await subscriptions.sweep(ports, new_id())
    assert sum(counts["subscriptions"] for counts in [*swept, last_counts] if counts) == 60
    assert await expired(pool) == late
    assert [UUID(entry[3]) for entry in await recorded(pool)] == sorted(late)
    assert await run_sql(pool, "select count(*) from events") == [(60,)]


async def test_the_actor_logs_its_work(ports: Ports, pool: Pool, clock: FakeClock, metrics: FakeMetrics) -> None:
    await subscribe(ports, pool, await add_plan_of_a_service(pool), 2, clock.now())
    with structlog.testing.capture_logs() as log, trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sweeper, ports, replace(SUBSCRIPTION_EXPIRY, period=0.01), TimedMailbox(), new_id())
            await eventually(lambda: log)
            nursery.cancel_scope.cancel()
    assert [(line["event"], line["job"], line["subscriptions"]) for line in log] == [("swept", "subscription_expiry", 2)]
    assert {job for job, _ in metrics.jobs} == {"subscription_expiry"}
