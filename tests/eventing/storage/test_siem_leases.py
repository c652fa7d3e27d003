"""SIEM queue leases, and their cleanup."""

from datetime import datetime, timedelta
from uuid import UUID, uuid4

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.eventing import siem
from core.eventing.model import siem as siem_model
from core.eventing.model.siem import SiemAttempt, SiemProvider, SiemResult
from core.kernel.causes import SYSTEM
from core.maintenance import housekeeping
from core.maintenance.model import housekeeping as housekeeping_model
from core.maintenance.model.housekeeping import SIEM_BACKLOGS_KEPT, Sweep
from core.tenancy import organizations
from ports import Ports
from tests.eventing.storage.siem_queues import claim, claim_existing, queued_entries
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.support.builders import run_concurrently, run_sql
from tests.support.rows import DAY, NOW, SECOND, within
from tests.support.siem import TOKEN, configure, fill_queue, make_sink, queued, record, remove_configuration

# Leases


async def test_one_of_ten_concurrent_claims_gets_the_queue(ports: Ports, acme: UUID) -> None:
    await configure(ports, make_sink(acme))
    await record(ports, acme, "x")
    claims = await run_concurrently(10, lambda _: claim(ports))
    assert len([queue for queue in claims if queue is not None]) == 1


async def test_an_expired_lease_can_only_remove_accepted_entries(ports: Ports, pool: Pool, acme: UUID, clock: FakeClock) -> None:
    await configure(ports, make_sink(acme))
    await record(ports, acme, "one", "two")
    first = await claim_existing(ports)
    assert first.sink is not None
    assert first.sink.token == TOKEN
    clock.advance(siem_model.LEASE - SECOND)
    assert await claim(ports) is None
    clock.advance(SECOND)
    second = await claim_existing(ports)
    assert second.claims == first.claims + 1
    batch = await queued_entries(ports, second)
    await siem.settle(ports, first, SiemAttempt(SiemResult.FAILED), slow=False, spread=0.5)
    await siem.settle(ports, first, SiemAttempt(SiemResult.GOOD, [batch[0].position], 1), slow=False, spread=0.5)
    assert await claim(ports) is None  # the second lease continues
    assert await queued(pool, acme) == ["two"]
    async with ports.storage.reading() as read:
        status = await read.siem.status(acme)
    assert status is not None
    assert (status.last_failure, status.last_success_at) == (None, None)


async def test_a_queue_that_is_disabled_suspended_empty_or_not_due_is_not_claimed(
    ports: Ports, pool: Pool, acme: UUID, clock: FakeClock
) -> None:
    await configure(ports, make_sink(acme))
    assert await claim(ports) is None
    await record(ports, acme, "x")
    for status in ("suspended", "pending", "rejected"):
        await run_sql(pool, "update organizations set status = %s", status)
        assert await claim(ports) is None
    await run_sql(pool, "update organizations set status = 'active'")
    await configure(ports, make_sink(acme, enabled=False))
    assert await claim(ports) is None
    await configure(ports, make_sink(acme))
    due_at = await siem.settle(ports, await claim_existing(ports), SiemAttempt(SiemResult.FAILED), slow=False, spread=0.5)
    assert due_at == clock.now() + timedelta(seconds=5)
    clock.advance(timedelta(seconds=4.9))
    assert await claim(ports) is None
    clock.advance(timedelta(seconds=0.1))
    assert await claim(ports) is not None


async def test_due_queues_take_turns(ports: Ports, acme: UUID, other_tenant: UUID, clock: FakeClock) -> None:
    for org in (acme, other_tenant):
        await configure(ports, make_sink(org))
        await record(ports, org, *(str(number) for number in range(4)))
        clock.advance(SECOND)
    turns = []
    for _ in range(4):
        queue = await claim_existing(ports)
        turns.append(queue.org_id)
        batch = await queued_entries(ports, queue, 1)
        clock.advance(SECOND)
        await siem.settle(ports, queue, SiemAttempt(SiemResult.GOOD, [item.position for item in batch], 1), slow=False, spread=0.5)
    assert turns == [acme, other_tenant, acme, other_tenant]


async def test_a_queue_is_struggling_after_a_slow_or_failed_attempt(ports: Ports, acme: UUID, clock: FakeClock) -> None:
    await configure(ports, make_sink(acme))
    await record(ports, acme, *(str(number) for number in range(4)))
    outcomes: list[tuple[SiemResult, bool, bool]] = [
        (SiemResult.FAILED, False, True),
        (SiemResult.GOOD, True, True),
        (SiemResult.GOOD, False, False),
    ]
    queue = await claim_existing(ports)
    assert not queue.is_struggling
    for result, slow, struggles in outcomes:
        await siem.settle(ports, queue, SiemAttempt(result, [], 1), slow=slow, spread=0.5)
        clock.advance(DAY)
        assert (await claim(ports, struggling=False) is None) is struggles
        clock.advance(DAY)
        queue = await claim_existing(ports)
        assert queue.is_struggling is struggles


async def test_a_new_configuration_keeps_the_lease(ports: Ports, acme: UUID) -> None:
    await configure(ports, make_sink(acme))
    await record(ports, acme, "x")
    queue = await claim_existing(ports)
    await configure(ports, make_sink(acme, provider=SiemProvider.DATADOG))
    assert await claim(ports) is None
    await siem.settle(ports, queue, SiemAttempt(SiemResult.GOOD, [], 0), slow=False, spread=0.5)
    second_claim = await claim_existing(ports)
    assert second_claim.id == queue.id
    assert second_claim.sink == make_sink(acme, provider=SiemProvider.DATADOG)


async def test_the_count_of_queued_entries_has_a_maximum(ports: Ports, pool: Pool, acme: UUID) -> None:
    await configure(ports, make_sink(acme))
    await fill_queue(pool, acme, siem_model.PENDING_CAP + 1)
    async with ports.storage.reading() as read:
        status = await read.siem.status(acme)
    assert status is not None
    assert status.pending == siem_model.PENDING_CAP


# Cleanup


async def test_the_queue_of_a_removed_configuration_is_deleted_in_batches(
    storage: Postgres, ports: Ports, pool: Pool, acme: UUID, other_tenant: UUID
) -> None:
    for org in (acme, other_tenant):
        await configure(ports, make_sink(org))
        await fill_queue(pool, org, 5)
    await remove_configuration(storage, acme)
    await configure(ports, make_sink(acme))  # a new configuration with an empty queue
    assert (await claim_existing(ports)).org_id == other_tenant
    assert await claim(ports) is None
    await fill_queue(pool, acme, 2)

    async def sweep(before: datetime, limit: int) -> tuple[int, int]:
        """Sweep, and return how many rows remain from the removed queue and from removed configurations."""
        await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.SIEM_QUEUES, before, limit))
        [(queued_entries, removed_at)] = await run_sql(
            pool, "select (select count(*) from siem_queue), (select count(*) from removed_siem_configurations)"
        )
        return queued_entries - 7, removed_at

    assert [await sweep(NOW, 2) for _ in range(4)] == [(3, 1), (1, 1), (0, 1), (0, 1)]  # a transaction may still be writing to it
    assert await sweep(NOW + SECOND, 2) == (0, 0)
    assert await run_sql(pool, "select count(*) from siem_queue where org_id = %s", other_tenant) == [(5,)]


async def test_deleting_an_organization_deletes_its_queue(
    storage: Postgres, ports: Ports, pool: Pool, acme: UUID, other_tenant: UUID
) -> None:
    for org in (acme, other_tenant):
        await configure(ports, make_sink(org))
        await fill_queue(pool, org, 5)
    async with storage.transaction(by=SYSTEM) as tx:
        organization = await tx.organizations.lock(acme)
        assert organization is not None
        await organizations.delete_locked(tx, organization, NOW)
    assert await run_sql(pool, "select distinct org_id from siem_queue") == [(other_tenant,)]
    assert await run_sql(pool, "select org_id from siem_configurations") == [(other_tenant,)]


async def test_old_queued_entries_are_dropped_and_counted(
    ports: Ports, pool: Pool, acme: UUID, other_tenant: UUID, clock: FakeClock, metrics: FakeMetrics
) -> None:
    await configure(ports, make_sink(acme))
    await configure(ports, make_sink(other_tenant))
    await record(ports, acme, "1", "2")
    clock.advance(SIEM_BACKLOGS_KEPT - SECOND)
    await record(ports, acme, "3")
    await record(ports, other_tenant, "4")
    await fill_queue(pool, other_tenant, 1)  # behind a young position; its entry does not exist
    await configure(ports, make_sink(acme, enabled=False))
    assert "siem_backlogs" not in (await housekeeping.sweep(ports, uuid4()) or {})
    clock.advance(2 * SECOND + housekeeping_model.LEASE)
    assert (await housekeeping.sweep(ports, uuid4()) or {})["siem_backlogs"] == 2
    assert (await queued(pool, acme), await queued(pool, other_tenant), metrics.siem_drops) == (["3"], ["4"], 2)
    assert await run_sql(pool, "select count(*) from audit_log") == [(4,)], "the entries stay in the log"


async def test_old_queued_entries_are_dropped_in_batches(
    storage: Postgres, ports: Ports, pool: Pool, acme: UUID, other_tenant: UUID
) -> None:
    for org in (acme, other_tenant):
        await configure(ports, make_sink(org))
        await record(ports, org, *map(str, range(5)))

    async def sweep(before: datetime, limit: int) -> int:
        return int(await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.SIEM_BACKLOGS, before, limit)))

    assert await sweep(ports.clock.now(), 4) == 0
    later = ports.clock.now() + SECOND
    assert [await sweep(later, 4) for _ in range(4)] == [4, 4, 2, 0]


async def test_an_attempt_with_an_old_configuration_does_not_change_the_status_of_the_new_one(
    ports: Ports, acme: UUID, clock: FakeClock
) -> None:
    for result in (SiemResult.FAILED, SiemResult.GOOD):
        await configure(ports, make_sink(acme, "https://before.example"))
        await record(ports, acme, "one")
        old = await claim_existing(ports)
        await configure(ports, make_sink(acme, "https://now.example"))
        assert await claim(ports) is None  # the old lease continues
        await siem.settle(ports, old, SiemAttempt(result, sent=1), slow=True, spread=0.5)
        async with ports.storage.reading() as read:
            status = await read.siem.status(acme)
        assert status is not None
        assert (status.last_failure, status.failing_since, status.last_success_at) == (None, None, None)
        second_claim = await claim(ports, struggling=False)
        assert second_claim is not None
        await siem.settle(ports, second_claim, SiemAttempt(SiemResult.GOOD), slow=False, spread=0.5)
