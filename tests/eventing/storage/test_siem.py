"""The queue of what is forwarded to SIEMs: nothing is skipped, whoever commits when; and leases, one for each organization."""

import random
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import trio

from adapters.postgres.engine.listen import listen
from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from adapters.postgres.eventing.siem import CLAIM, WAITING
from adapters.postgres.maintenance.housekeeping import SWEEPS
from core.eventing import siem, siem_rules
from core.eventing.siem_rules import MAX_BYTES, ClaimedSiemQueue, QueuedEntry, SiemAttempt, SiemProvider, SiemResult
from core.kernel.event_catalog import EVENT_KINDS, Event
from core.kernel.principals import SYSTEM
from core.maintenance import housekeeping, housekeeping_rules
from core.maintenance.housekeeping_rules import SIEM_BACKLOGS_KEPT, Sweep
from core.tenancy import organizations
from ports import Ports
from ports.storage import Storage
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.support.builders import add_member, add_organization, add_person, everyone, run_sql
from tests.support.rows import DAY, NOW, SECOND, in_another_task, plan_nodes, rows_of, within
from tests.support.siem import TOKEN, configure, make_sink, queued, record


async def claim(ports: Ports, *, struggling: bool = True) -> ClaimedSiemQueue | None:
    return await siem.claim_queue(ports, struggling=struggling)


async def claimed(ports: Ports) -> ClaimedSiemQueue:
    found = await claim(ports)
    assert found is not None
    return found


async def waiting(ports: Ports, of: ClaimedSiemQueue, limit: int = 500, most_bytes: int = MAX_BYTES) -> list[QueuedEntry]:
    async with ports.storage.reading() as read:
        return await read.siem.waiting(of.org_id, of.id, limit, most_bytes)


async def take(ports: Ports, limit: int = 500) -> list[str]:
    """What one that is due gives away, and has no more then: the targets of its entries."""
    one = await claimed(ports)
    found = await waiting(ports, one, limit)
    await siem.settle(ports, one, SiemAttempt(SiemResult.GOOD, [each.position for each in found], len(found)), slow=False, spread=0.5)
    return [each.entry.target_id for each in found if each.entry is not None]


# What is queued


async def test_entries_of_those_who_forward_are_queued_in_their_order_and_no_others(
    ports: Ports, pool: Pool, acme: UUID, twin: UUID
) -> None:
    other = await add_organization(pool, "other")
    await configure(ports, make_sink(acme))
    await configure(ports, make_sink(twin, enabled=False))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for number in range(20):
            for org in (acme, twin, other, None):
                tx.record(Event(EVENT_KINDS["plan.created"], str(number), org_id=org))
            tx.record(Event(EVENT_KINDS["user.login.success"], "no entry", org_id=acme))
    assert await queued(pool, acme) == [str(number) for number in range(20)]
    assert await run_sql(pool, "select count(*) from siem_queue") == [(20,)]


async def test_what_concerns_a_person_is_queued_for_each_organization(ports: Ports, pool: Pool, acme: UUID, twin: UUID) -> None:
    account, _ = await add_person(ports, pool, "ada")
    for org in (acme, twin):
        await add_member(pool, org, account.id, confirmed=True)
        await configure(ports, make_sink(org))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        tx.record(Event(EVENT_KINDS["security.password.changed"], str(account.id), of_person=account.id))
    assert await queued(pool, acme) == await queued(pool, twin) == [str(account.id)]


async def test_what_is_rolled_back_is_not_queued(ports: Ports, pool: Pool, acme: UUID) -> None:
    await configure(ports, make_sink(acme))
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 (what comes before the error is the point)
        async with ports.storage.transaction(by=SYSTEM) as tx:
            tx.record(Event(EVENT_KINDS["plan.created"], "x", org_id=acme))
            raise ZeroDivisionError
    assert await queued(pool, acme) == []


async def test_the_forwarders_of_all_processes_are_woken(ports: Ports, conninfo: str, acme: UUID, twin: UUID) -> None:
    await configure(ports, make_sink(acme))
    async with listen(conninfo, ["siem", "end"]) as notifications:
        await record(ports, twin, "for nobody")
        await record(ports, acme, "x", "y")
        assert await anext(notifications) == "siem"


# Nothing is skipped


async def test_an_entry_that_is_committed_after_a_later_one_was_taken_is_not_skipped(ports: Ports, pool: Pool, acme: UUID) -> None:
    await configure(ports, make_sink(acme))
    storage = ports.storage
    async with storage.transaction(by=SYSTEM) as first:
        first.record(Event(EVENT_KINDS["plan.created"], "first", org_id=acme))
        await first.write_records()  # type: ignore[attr-defined]
        first._events.clear()  # type: ignore[attr-defined]
        assert await first.organizations.by_id(acme) is not None  # it is written by now, before all others

        async def second() -> list[str]:
            await record(ports, acme, "second", name="plan.updated")  # which nobody has to wait for, as there is no common total
            return await take(ports)

        assert await in_another_task(second) == ["second"]
    await record(ports, acme, "third")
    assert await take(ports) == ["first", "third"]
    assert await queued(pool, acme) == []


@pytest.mark.slow
async def test_of_many_who_record_at_once_all_arrive_once_and_each_in_its_order(ports: Ports, pool: Pool, acme: UUID) -> None:
    """Each goes on as soon as its entry is committed, so its next one must come after that; while entries are being taken all the time."""
    await configure(ports, make_sink(acme))
    storage, dice, names = ports.storage, random.Random(11), sorted(name for name, kind in EVENT_KINDS.items() if kind.audited)  # noqa: S311
    taken: list[str] = []
    ended = False

    async def take_all() -> None:
        while True:
            last = ended
            one = await claim(ports)
            if one is None:
                if last:
                    return
                await trio.lowlevel.checkpoint()
                continue
            found = await waiting(ports, one, 7)
            taken.extend(each.entry.target_id for each in found if each.entry)
            await siem.settle(ports, one, SiemAttempt(SiemResult.GOOD, [each.position for each in found], 1), slow=False, spread=0.5)

    async def write(number: int) -> None:
        for step in range(12):
            async with storage.transaction(by=SYSTEM) as tx:
                for part in range(dice.randrange(1, 3)):
                    tx.record(Event(EVENT_KINDS[names[(number * 5 + step) % len(names)]], f"{number}/{step}/{part}", org_id=acme))
                if number % 2:  # what was recorded is written, and then it takes a while until it is committed
                    await tx.write_records()  # type: ignore[attr-defined]
                    tx._events.clear()  # type: ignore[attr-defined]
                    for _ in range(dice.randrange(4)):
                        await tx.organizations.by_id(acme)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_all)
        await everyone(16, write)
        ended = True
    written = [row[0] for row in await run_sql(pool, "select target_id from audit_log where org_id = %s", acme)]
    assert sorted(taken) == sorted(written)
    for number in range(16):
        own = [target for target in taken if target.startswith(f"{number}/")]
        assert own == sorted(own, key=lambda target: [int(part) for part in target.split("/")])


async def test_twenty_who_record_for_several_that_forward_do_not_wait_in_a_circle(ports: Ports, pool: Pool) -> None:
    orgs = [await add_organization(pool, f"org-{number}") for number in range(3)]
    for org in orgs:
        await configure(ports, make_sink(org))

    async def write(number: int) -> None:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            for org in orgs if number % 2 else orgs[::-1]:
                tx.record(Event(EVENT_KINDS["plan.created"], str(number), org_id=org))

    await everyone(20, write)
    for org in orgs:
        assert sorted(await queued(pool, org), key=int) == [str(number) for number in range(20)]


# Reading


async def test_of_the_queue_no_more_is_read_than_is_asked_for(ports: Ports, acme: UUID, twin: UUID) -> None:
    await configure(ports, make_sink(acme))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for number in range(6):
            tx.record(Event(EVENT_KINDS["plan.created"], str(number), org_id=acme, details={"note": "x" * 1000}))
    one = await claimed(ports)
    assert [each.entry and each.entry.target_id for each in await waiting(ports, one, 2)] == ["0", "1"]
    assert len(await waiting(ports, one, 500, 2500)) == 3
    assert len(await waiting(ports, one, 500, 1)) == 1
    assert await waiting(ports, replace(one, org_id=twin)) == []
    assert await waiting(ports, replace(one, id=uuid4())) == []


async def test_an_entry_that_is_gone_leaves_its_place(ports: Ports, pool: Pool, acme: UUID) -> None:
    await configure(ports, make_sink(acme))
    await record(ports, acme, "one", "two", "three")
    await run_sql(pool, "delete from audit_log where target_id = 'two'")
    assert [each.entry and each.entry.target_id for each in await waiting(ports, await claimed(ports))] == ["one", None, "three"]


# Leases


async def test_of_ten_who_want_to_forward_for_one_organization_one_does(ports: Ports, acme: UUID) -> None:
    await configure(ports, make_sink(acme))
    await record(ports, acme, "x")
    found = await everyone(10, lambda _: claim(ports))
    assert len([one for one in found if one is not None]) == 1


async def test_a_lease_ends_and_whoever_lost_it_changes_nothing_but_what_was_taken(
    ports: Ports, pool: Pool, acme: UUID, clock: FakeClock
) -> None:
    await configure(ports, make_sink(acme))
    await record(ports, acme, "one", "two")
    first = await claimed(ports)
    assert first.sink is not None
    assert first.sink.token == TOKEN
    clock.advance(siem_rules.LEASE - SECOND)
    assert await claim(ports) is None
    clock.advance(SECOND)
    second = await claimed(ports)
    assert second.claims == first.claims + 1
    found = await waiting(ports, second)
    await siem.settle(ports, first, SiemAttempt(SiemResult.FAILED), slow=False, spread=0.5)
    await siem.settle(ports, first, SiemAttempt(SiemResult.GOOD, [found[0].position], 1), slow=False, spread=0.5)
    assert await claim(ports) is None  # the lease is the second one's
    assert await queued(pool, acme) == ["two"]
    async with ports.storage.reading() as read:
        standing = await read.siem.status(acme)
    assert standing is not None
    assert (standing.last_failure, standing.last_success_at) == (None, None)


async def test_nobody_claims_what_is_disabled_suspended_empty_or_not_due(ports: Ports, pool: Pool, acme: UUID, clock: FakeClock) -> None:
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
    due_at = await siem.settle(ports, await claimed(ports), SiemAttempt(SiemResult.FAILED), slow=False, spread=0.5)
    assert due_at == clock.now() + timedelta(seconds=5)
    clock.advance(timedelta(seconds=4.9))
    assert await claim(ports) is None
    clock.advance(timedelta(seconds=0.1))
    assert await claim(ports) is not None


async def test_those_that_are_due_take_turns(ports: Ports, acme: UUID, twin: UUID, clock: FakeClock) -> None:
    for org in (acme, twin):
        await configure(ports, make_sink(org))
        await record(ports, org, *(str(number) for number in range(4)))
        clock.advance(SECOND)
    turns = []
    for _ in range(4):
        one = await claimed(ports)
        turns.append(one.org_id)
        found = await waiting(ports, one, 1)
        clock.advance(SECOND)
        await siem.settle(ports, one, SiemAttempt(SiemResult.GOOD, [each.position for each in found], 1), slow=False, spread=0.5)
    assert turns == [acme, twin, acme, twin]


async def test_one_that_was_slow_or_failed_is_struggling_until_it_is_neither(ports: Ports, acme: UUID, clock: FakeClock) -> None:
    await configure(ports, make_sink(acme))
    await record(ports, acme, *(str(number) for number in range(4)))
    outcomes: list[tuple[SiemResult, bool, bool]] = [
        (SiemResult.FAILED, False, True),
        (SiemResult.GOOD, True, True),
        (SiemResult.GOOD, False, False),
    ]
    one = await claimed(ports)
    assert not one.is_struggling
    for result, slow, struggles in outcomes:
        await siem.settle(ports, one, SiemAttempt(result, [], 1), slow=slow, spread=0.5)
        clock.advance(DAY)
        assert (await claim(ports, struggling=False) is None) is struggles
        clock.advance(DAY)
        one = await claimed(ports)
        assert one.is_struggling is struggles


async def test_one_that_is_configured_anew_is_still_leased(ports: Ports, acme: UUID) -> None:
    await configure(ports, make_sink(acme))
    await record(ports, acme, "x")
    one = await claimed(ports)
    await configure(ports, make_sink(acme, provider=SiemProvider.DATADOG))
    assert await claim(ports) is None
    await siem.settle(ports, one, SiemAttempt(SiemResult.GOOD, [], 0), slow=False, spread=0.5)
    again = await claimed(ports)
    assert again.id == one.id
    assert again.sink == make_sink(acme, provider=SiemProvider.DATADOG)


async def test_the_count_of_what_waits_ends_somewhere(ports: Ports, pool: Pool, acme: UUID) -> None:
    await configure(ports, make_sink(acme))
    await fill(pool, acme, siem_rules.PENDING_CAP + 1)
    async with ports.storage.reading() as read:
        standing = await read.siem.status(acme)
    assert standing is not None
    assert standing.pending == siem_rules.PENDING_CAP


# What is left


async def fill(pool: Pool, org: UUID, count: int) -> None:
    insert = """
        insert into siem_queue (org_id, siem_id, entry_id)
        select org_id, id, gen_random_uuid() from siem_configurations, generate_series(1, %s) where org_id = %s"""
    await run_sql(pool, insert, count, org)


async def remove(storage: Storage, org: UUID) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        removed = await tx.siem.remove(org, NOW)
        assert removed is not None


async def test_the_queue_of_what_was_removed_goes_in_batches_and_nobody_elses(
    storage: Postgres, ports: Ports, pool: Pool, acme: UUID, twin: UUID
) -> None:
    for org in (acme, twin):
        await configure(ports, make_sink(org))
        await fill(pool, org, 5)
    await remove(storage, acme)
    await configure(ports, make_sink(acme))  # another one, which begins with an empty queue
    assert (await claimed(ports)).org_id == twin
    assert await claim(ports) is None
    await fill(pool, acme, 2)

    async def sweep(before: datetime, limit: int) -> tuple[int, int]:
        """How many rows are left that were the first one's, and how many tombstones."""
        await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.SIEM_QUEUES, before, limit))
        [(waiting, tombstones)] = await run_sql(
            pool, "select (select count(*) from siem_queue), (select count(*) from removed_siem_configurations)"
        )
        return waiting - 7, tombstones

    assert [await sweep(NOW, 2) for _ in range(4)] == [(3, 1), (1, 1), (0, 1), (0, 1)]  # somebody may still be writing
    assert await sweep(NOW + SECOND, 2) == (0, 0)
    assert await run_sql(pool, "select count(*) from siem_queue where org_id = %s", twin) == [(5,)]


async def test_an_organization_is_deleted_with_its_queue(storage: Postgres, ports: Ports, pool: Pool, acme: UUID, twin: UUID) -> None:
    for org in (acme, twin):
        await configure(ports, make_sink(org))
        await fill(pool, org, 5)
    async with storage.transaction(by=SYSTEM) as tx:
        organization = await tx.organizations.lock(acme)
        assert organization is not None
        await organizations.delete_locked(tx, organization, NOW)
    assert await run_sql(pool, "select distinct org_id from siem_queue") == [(twin,)]
    assert await run_sql(pool, "select org_id from siem_configurations") == [(twin,)]


async def test_what_has_waited_too_long_goes_and_is_counted(
    ports: Ports, pool: Pool, acme: UUID, twin: UUID, clock: FakeClock, metrics: FakeMetrics
) -> None:
    await configure(ports, make_sink(acme))
    await configure(ports, make_sink(twin))
    await record(ports, acme, "1", "2")
    clock.advance(SIEM_BACKLOGS_KEPT - SECOND)
    await record(ports, acme, "3")
    await record(ports, twin, "4")
    await fill(pool, twin, 1)  # behind one that is young, of an entry that is gone
    await configure(ports, make_sink(acme, enabled=False))
    assert "siem_backlogs" not in (await housekeeping.sweep(ports, uuid4()) or {})
    clock.advance(2 * SECOND + housekeeping_rules.LEASE)
    assert (await housekeeping.sweep(ports, uuid4()) or {})["siem_backlogs"] == 2
    assert (await queued(pool, acme), await queued(pool, twin), metrics.siem_drops) == (["3"], ["4"], 2)
    assert await run_sql(pool, "select count(*) from audit_log") == [(4,)], "they stay in the log"


async def test_what_has_waited_too_long_goes_in_batches(storage: Postgres, ports: Ports, pool: Pool, acme: UUID, twin: UUID) -> None:
    for org in (acme, twin):
        await configure(ports, make_sink(org))
        await record(ports, org, *map(str, range(5)))

    async def sweep(before: datetime, limit: int) -> int:
        return int(await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.SIEM_BACKLOGS, before, limit)))

    assert await sweep(ports.clock.now(), 4) == 0
    later = ports.clock.now() + SECOND
    assert [await sweep(later, 4) for _ in range(4)] == [4, 4, 2, 0]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_nobody_reads_a_large_queue_to_find_out_whether_it_is_empty(
    ports: Ports, pool: Pool, acme: UUID, twin: UUID, mode: str
) -> None:
    for org in (acme, twin):
        await configure(ports, make_sink(org))
    await fill(pool, acme, 50_000)
    await run_sql(pool, "analyze siem_queue, siem_configurations, organizations")

    async def looked_at(statement: str, **parameters: Any) -> float:
        nodes = await plan_nodes(pool, statement, parameters, mode)
        return sum(rows_of(node) for node in nodes if node.get("Relation Name") == "siem_queue")

    assert await looked_at(CLAIM, now=NOW, leased_until=NOW, struggling=True) <= 2
    [(siem_id,)] = await run_sql(pool, "select id from siem_configurations where org_id = %s", acme)
    assert await looked_at(WAITING, org_id=acme, siem_id=siem_id, limit=10, most_bytes=MAX_BYTES) == 10
    assert await looked_at(SWEEPS[Sweep.SIEM_QUEUES], before=NOW, limit=10) == 0
    # Its entries are gone, so it is as old as can be; of another one a look at the first is enough.
    assert await looked_at(SWEEPS[Sweep.SIEM_BACKLOGS], before=NOW, limit=10) <= 40
    await record(ports, twin, "young")
    await remove(ports.storage, acme)
    assert await looked_at(SWEEPS[Sweep.SIEM_BACKLOGS], before=NOW - DAY, limit=10) <= 1
    assert await looked_at(SWEEPS[Sweep.SIEM_QUEUES], before=NOW, limit=10) <= 30


async def test_what_comes_of_an_attempt_at_the_sink_before_says_nothing_of_the_new_one(ports: Ports, acme: UUID, clock: FakeClock) -> None:
    for result in (SiemResult.FAILED, SiemResult.GOOD):
        await configure(ports, make_sink(acme, "https://before.example"))
        await record(ports, acme, "one")
        before = await claimed(ports)
        await configure(ports, make_sink(acme, "https://now.example"))
        assert await claim(ports) is None  # nobody sends beside whoever is still at it
        await siem.settle(ports, before, SiemAttempt(result, sent=1), slow=True, spread=0.5)
        async with ports.storage.reading() as read:
            standing = await read.siem.status(acme)
        assert standing is not None
        assert (standing.last_failure, standing.failing_since, standing.last_success_at) == (None, None, None)
        again = await claim(ports, struggling=False)
        assert again is not None
        await siem.settle(ports, again, SiemAttempt(SiemResult.GOOD), slow=False, spread=0.5)
