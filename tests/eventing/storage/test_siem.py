"""The queues of entries for SIEMs, and their leases. Concurrent commits must not skip an entry.

The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

import random
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest
import trio

from adapters.postgres.engine.listen import listen
from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from core.eventing import siem, siem_rules
from core.eventing.siem_rules import MAX_BYTES, ClaimedSiemQueue, QueuedEntry, SiemAttempt, SiemProvider, SiemResult
from core.kernel.event_catalog import EVENT_KINDS, Event
from core.kernel.principals import SYSTEM
from core.maintenance import housekeeping, housekeeping_rules
from core.maintenance.housekeeping_rules import SIEM_BACKLOGS_KEPT, Sweep
from core.tenancy import organizations
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.support.builders import add_member, add_organization, add_person, run_concurrently, run_sql
from tests.support.rows import DAY, NOW, SECOND, in_another_task, within
from tests.support.siem import TOKEN, configure, fill_queue, make_sink, queued, record, remove_configuration


async def claim(ports: Ports, *, struggling: bool = True) -> ClaimedSiemQueue | None:
    return await siem.claim_queue(ports, struggling=struggling)


async def claim_existing(ports: Ports) -> ClaimedSiemQueue:
    queue = await claim(ports)
    assert queue is not None
    return queue


async def waiting(ports: Ports, queue: ClaimedSiemQueue, limit: int = 500, most_bytes: int = MAX_BYTES) -> list[QueuedEntry]:
    async with ports.storage.reading() as read:
        return await read.siem.waiting(queue.org_id, queue.id, limit, most_bytes)


async def take_batch(ports: Ports, limit: int = 500) -> list[str]:
    """Claim a due queue, remove its first entries, and return their targets."""
    queue = await claim_existing(ports)
    batch = await waiting(ports, queue, limit)
    await siem.settle(ports, queue, SiemAttempt(SiemResult.GOOD, [item.position for item in batch], len(batch)), slow=False, spread=0.5)
    return [item.entry.target_id for item in batch if item.entry is not None]


# Queueing


async def test_entries_are_queued_in_order_for_organizations_that_forward(ports: Ports, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    other = await add_organization(pool, "other")
    await configure(ports, make_sink(acme))
    await configure(ports, make_sink(other_tenant, enabled=False))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for number in range(20):
            for org in (acme, other_tenant, other, None):
                tx.record(Event(EVENT_KINDS["plan.created"], str(number), org_id=org))
            tx.record(Event(EVENT_KINDS["user.login.success"], "no entry", org_id=acme))
    assert await queued(pool, acme) == [str(number) for number in range(20)]
    assert await run_sql(pool, "select count(*) from siem_queue") == [(20,)]


async def test_an_entry_about_a_person_is_queued_for_each_organization(ports: Ports, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    account, _ = await add_person(ports, pool, "ada")
    for org in (acme, other_tenant):
        await add_member(pool, org, account.id, confirmed=True)
        await configure(ports, make_sink(org))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        tx.record(Event(EVENT_KINDS["security.password.changed"], str(account.id), of_person=account.id))
    assert await queued(pool, acme) == await queued(pool, other_tenant) == [str(account.id)]


async def test_a_rolled_back_entry_is_not_queued(ports: Ports, pool: Pool, acme: UUID) -> None:
    await configure(ports, make_sink(acme))
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 (the statements before the error are under test)
        async with ports.storage.transaction(by=SYSTEM) as tx:
            tx.record(Event(EVENT_KINDS["plan.created"], "x", org_id=acme))
            raise ZeroDivisionError
    assert await queued(pool, acme) == []


async def test_recording_an_entry_notifies_the_forwarders_of_other_processes(
    ports: Ports, conninfo: str, acme: UUID, other_tenant: UUID
) -> None:
    await configure(ports, make_sink(acme))
    async with listen(conninfo, ["siem", "end"]) as notifications:
        await record(ports, other_tenant, "for nobody")
        await record(ports, acme, "x", "y")
        assert await anext(notifications) == ("siem", "")


# Concurrent commits


async def test_an_entry_committed_after_a_later_one_was_sent_is_not_skipped(ports: Ports, pool: Pool, acme: UUID) -> None:
    await configure(ports, make_sink(acme))
    storage = ports.storage
    async with storage.transaction(by=SYSTEM) as first:
        first.record(Event(EVENT_KINDS["plan.created"], "first", org_id=acme))
        await first.write_events()  # type: ignore[attr-defined]
        first._events.clear()  # type: ignore[attr-defined]
        assert await first.organizations.by_id(acme) is not None  # writes the event before all others

        async def second() -> list[str]:
            await record(ports, acme, "second", name="plan.updated")  # an action with another total, so that it does not wait for the lock
            return await take_batch(ports)

        assert await in_another_task(second) == ["second"]
    await record(ports, acme, "third")
    assert await take_batch(ports) == ["first", "third"]
    assert await queued(pool, acme) == []


@pytest.mark.slow
async def test_concurrent_entries_all_arrive_once_and_in_the_order_of_each_writer(ports: Ports, pool: Pool, acme: UUID) -> None:
    """The queue is read while the writers record entries. Each writer commits before it records its next entry."""
    await configure(ports, make_sink(acme))
    storage, dice = ports.storage, random.Random(11)  # noqa: S311
    names = sorted(name for name, kind in EVENT_KINDS.items() if kind.audited)
    received: list[str] = []
    ended = False

    async def receive_all() -> None:
        while True:
            last = ended
            queue = await claim(ports)
            if queue is None:
                if last:
                    return
                await trio.lowlevel.checkpoint()
                continue
            batch = await waiting(ports, queue, 7)
            received.extend(item.entry.target_id for item in batch if item.entry)
            await siem.settle(ports, queue, SiemAttempt(SiemResult.GOOD, [item.position for item in batch], 1), slow=False, spread=0.5)

    async def write(number: int) -> None:
        for step in range(12):
            async with storage.transaction(by=SYSTEM) as tx:
                for part in range(dice.randrange(1, 3)):
                    tx.record(Event(EVENT_KINDS[names[(number * 5 + step) % len(names)]], f"{number}/{step}/{part}", org_id=acme))
                if number % 2:  # writes the events some time before the commit
                    await tx.write_events()  # type: ignore[attr-defined]
                    tx._events.clear()  # type: ignore[attr-defined]
                    for _ in range(dice.randrange(4)):
                        await tx.organizations.by_id(acme)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive_all)
        await run_concurrently(16, write)
        ended = True
    written = [row[0] for row in await run_sql(pool, "select target_id from audit_log where org_id = %s", acme)]
    assert sorted(received) == sorted(written)
    for number in range(16):
        own = [target for target in received if target.startswith(f"{number}/")]
        assert own == sorted(own, key=lambda target: [int(part) for part in target.split("/")])


async def test_concurrent_writers_for_several_organizations_do_not_deadlock(ports: Ports, pool: Pool) -> None:
    orgs = [await add_organization(pool, f"org-{number}") for number in range(3)]
    for org in orgs:
        await configure(ports, make_sink(org))

    async def write(number: int) -> None:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            for org in orgs if number % 2 else orgs[::-1]:
                tx.record(Event(EVENT_KINDS["plan.created"], str(number), org_id=org))

    await run_concurrently(20, write)
    for org in orgs:
        assert sorted(await queued(pool, org), key=int) == [str(number) for number in range(20)]


# Reading


async def test_reading_the_queue_respects_both_limits(ports: Ports, acme: UUID, other_tenant: UUID) -> None:
    await configure(ports, make_sink(acme))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for number in range(6):
            tx.record(Event(EVENT_KINDS["plan.created"], str(number), org_id=acme, details={"note": "x" * 1000}))
    queue = await claim_existing(ports)
    assert [item.entry and item.entry.target_id for item in await waiting(ports, queue, 2)] == ["0", "1"]
    assert len(await waiting(ports, queue, 500, 2500)) == 3
    assert len(await waiting(ports, queue, 500, 1)) == 1
    assert await waiting(ports, replace(queue, org_id=other_tenant)) == []
    assert await waiting(ports, replace(queue, id=uuid4())) == []


async def test_a_removed_entry_keeps_its_position(ports: Ports, pool: Pool, acme: UUID) -> None:
    await configure(ports, make_sink(acme))
    await record(ports, acme, "one", "two", "three")
    await run_sql(pool, "delete from audit_log where target_id = 'two'")
    assert [item.entry and item.entry.target_id for item in await waiting(ports, await claim_existing(ports))] == ["one", None, "three"]


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
    clock.advance(siem_rules.LEASE - SECOND)
    assert await claim(ports) is None
    clock.advance(SECOND)
    second = await claim_existing(ports)
    assert second.claims == first.claims + 1
    batch = await waiting(ports, second)
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
        batch = await waiting(ports, queue, 1)
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
    again = await claim_existing(ports)
    assert again.id == queue.id
    assert again.sink == make_sink(acme, provider=SiemProvider.DATADOG)


async def test_the_count_of_queued_entries_has_a_maximum(ports: Ports, pool: Pool, acme: UUID) -> None:
    await configure(ports, make_sink(acme))
    await fill_queue(pool, acme, siem_rules.PENDING_CAP + 1)
    async with ports.storage.reading() as read:
        status = await read.siem.status(acme)
    assert status is not None
    assert status.pending == siem_rules.PENDING_CAP


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
        """Sweep, and return the number of remaining rows of the removed queue and of removed configurations."""
        await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.SIEM_QUEUES, before, limit))
        [(waiting, removed)] = await run_sql(
            pool, "select (select count(*) from siem_queue), (select count(*) from removed_siem_configurations)"
        )
        return waiting - 7, removed

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
    clock.advance(2 * SECOND + housekeeping_rules.LEASE)
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
        again = await claim(ports, struggling=False)
        assert again is not None
        await siem.settle(ports, again, SiemAttempt(SiemResult.GOOD), slow=False, spread=0.5)
