"""The queues with entries for SIEMs. Concurrent commits must not skip an entry."""

import random
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
import trio

from adapters.postgres.engine.listen import listen
from adapters.postgres.engine.pool import Pool
from core.eventing import siem
from core.eventing.model.siem import SiemAttempt, SiemResult
from core.kernel.causes import SYSTEM
from core.kernel.event_catalog import EVENT_KINDS, Event
from ports import Ports
from tests.eventing.storage.siem_queues import claim, claim_existing, queued_entries
from tests.support.builders import add_member, add_organization, add_person, run_concurrently, run_sql
from tests.support.rows import in_another_task
from tests.support.siem import configure, make_sink, queued, record


async def take_batch(ports: Ports, limit: int = 500) -> list[str]:
    """Claim a due queue, remove its first entries, and return their targets."""
    queue = await claim_existing(ports)
    batch = await queued_entries(ports, queue, limit)
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
            tx.record(Event(EVENT_KINDS["user.signup.success"], "no entry", org_id=acme))
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
        await record(ports, other_tenant, "without a destination")
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
        assert await first.organizations.by_id(acme) is not None  # writes the event before all other events

        async def second() -> list[str]:
            await record(ports, acme, "second", name="plan.updated")  # an action with another total, so that it does not wait for the lock
            return await take_batch(ports)

        assert await in_another_task(second) == ["second"]
    await record(ports, acme, "third")
    assert await take_batch(ports) == ["first", "third"]
    assert await queued(pool, acme) == []


@pytest.mark.slow
async def test_concurrent_entries_all_arrive_once_and_in_the_order_of_each_writer(ports: Ports, pool: Pool, acme: UUID) -> None:
    """The queue is read while the writers record entries. A writer commits before it records its next entry."""
    await configure(ports, make_sink(acme))
    storage, dice, details = ports.storage, random.Random(11), {"provider": "password"}  # noqa: S311
    names = sorted(name for name, kind in EVENT_KINDS.items() if kind.audited)
    received: list[str] = []
    is_finished = False

    async def receive_all() -> None:
        while True:
            last = is_finished
            queue = await claim(ports)
            if queue is None:
                if last:
                    return
                await trio.lowlevel.checkpoint()
                continue
            batch = await queued_entries(ports, queue, 7)
            received.extend(item.entry.target_id for item in batch if item.entry)
            await siem.settle(ports, queue, SiemAttempt(SiemResult.GOOD, [item.position for item in batch], 1), slow=False, spread=0.5)

    async def write(number: int) -> None:
        for step in range(12):
            async with storage.transaction(by=SYSTEM) as tx:
                for part in range(dice.randrange(1, 3)):
                    tx.record(
                        Event(EVENT_KINDS[names[(number * 5 + step) % len(names)]], f"{number}/{step}/{part}", org_id=acme, details=details)
                    )
                if number % 2:  # writes the events some time before the commit
                    await tx.write_events()  # type: ignore[attr-defined]
                    tx._events.clear()  # type: ignore[attr-defined]
                    for _ in range(dice.randrange(4)):
                        await tx.organizations.by_id(acme)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive_all)
        await run_concurrently(16, write)
        is_finished = True
    written = [row[0] for row in await run_sql(pool, "select target_id from audit_log where org_id = %s", acme)]
    assert sorted(received) == sorted(written)
    for number in range(16):
        own_targets = [target for target in received if target.startswith(f"{number}/")]
        assert own_targets == sorted(own_targets, key=lambda target: [int(part) for part in target.split("/")])


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
    assert [item.entry and item.entry.target_id for item in await queued_entries(ports, queue, 2)] == ["0", "1"]
    assert len(await queued_entries(ports, queue, 500, 2500)) == 3
    assert len(await queued_entries(ports, queue, 500, 1)) == 1
    assert await queued_entries(ports, replace(queue, org_id=other_tenant)) == []
    assert await queued_entries(ports, replace(queue, id=uuid4())) == []


async def test_a_removed_entry_keeps_its_position(ports: Ports, pool: Pool, acme: UUID) -> None:
    await configure(ports, make_sink(acme))
    await record(ports, acme, "one", "two", "three")
    await run_sql(pool, "delete from audit_log where target_id = 'two'")
    assert [item.entry and item.entry.target_id for item in await queued_entries(ports, await claim_existing(ports))] == [
        "one",
        None,
        "three",
    ]
