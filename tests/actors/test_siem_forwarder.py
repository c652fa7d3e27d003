"""The SIEM forwarder: entries arrive in order despite outages, slow SIEMs, crashes and several processes."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from uuid import UUID

import pytest
import trio

import actors.siem_forwarder
from actors.mailbox import Mailbox
from actors.siem_forwarder import siem_forwarder
from adapters.clock import SystemClock
from adapters.postgres.engine.pool import Pool
from core.eventing import siem
from core.eventing.model import siem as model_siem
from core.eventing.model import siem as siem_model
from core.eventing.model.siem import ClaimedSiemQueue
from ports import Ports
from tests.actors.helpers import capture_log, run_actors, wait_until_idle
from tests.actors.mailing import ShakyStorage
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.fakes.siem_sink import FakeSiem, siem_sink
from tests.support.builders import add_organization, run_sql, with_loopback_sender
from tests.support.siem import TOKEN, configure, forward, make_sink, queued, record
from tests.support.waiting import PATIENCE, eventually


@pytest.fixture(autouse=True)
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the poll interval longer than any test, so that polling does not do a message's work."""
    monkeypatch.setattr(actors.siem_forwarder, "POLL", 10 * PATIENCE)


@pytest.fixture
def ports(ports: Ports) -> Ports:
    """Ports that can send to the loopback interface, where the SIEM listens."""
    return with_loopback_sender(ports)


@pytest.fixture
async def acme(pool: Pool) -> UUID:
    return await add_organization(pool, "acme")


@pytest.fixture
async def other_tenant(pool: Pool) -> UUID:
    return await add_organization(pool, "twin")


@pytest.fixture
async def sink() -> AsyncIterator[FakeSiem]:
    async with siem_sink() as fake:
        yield fake


forwarding = partial(run_actors, siem_forwarder)


async def wait_until_empty(pool: Pool, org: UUID) -> None:
    async def is_empty() -> bool:
        return not await queued(pool, org)

    await eventually(is_empty, "the queue is empty")


def targets(sink: FakeSiem, path: str | None = None) -> list[str]:
    return [entry["target_id"] for entry in sink.entries(path)]


async def test_queued_entries_are_forwarded_in_order(ports: Ports, pool: Pool, acme: UUID, sink: FakeSiem, metrics: FakeMetrics) -> None:
    await configure(ports, make_sink(acme, sink.url()))
    await record(ports, acme, "1", "2")
    with capture_log() as log:
        async with forwarding(ports) as [inbox]:
            await wait_until_empty(pool, acme)
            await wait_until_idle(inbox)
            await record(ports, acme, "3")
            inbox.post()
            await wait_until_empty(pool, acme)
    assert targets(sink) == ["1", "2", "3"]
    assert len(sink.posts) == 2
    assert [job for job, _ in metrics.jobs] == ["siem_forwarding"] * 2
    assert [(entry["event"], entry["entries"]) for entry in log] == [("siem_forwarded", 2), ("siem_forwarded", 1)]
    assert TOKEN not in str(log)


async def test_a_large_queue_is_sent_in_several_posts(
    ports: Ports, pool: Pool, acme: UUID, sink: FakeSiem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(siem_model, "MAX_ENTRIES", 4)
    await configure(ports, make_sink(acme, sink.url()))
    names = [str(number) for number in range(10)]
    await record(ports, acme, *names)
    async with forwarding(ports):
        await wait_until_empty(pool, acme)
    assert targets(sink) == names
    assert [len(post.items) for post in sink.posts] == [4, 4, 2]


async def test_only_one_forwarder_at_a_time_sends_for_an_organization(
    ports: Ports, pool: Pool, acme: UUID, other_tenant: UUID, sink: FakeSiem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(siem_model, "MAX_ENTRIES", 1)
    names = [str(number) for number in range(12)]
    for org, path in ((acme, "/acme"), (other_tenant, "/twin")):
        await configure(ports, make_sink(org, sink.url(path)))
        await record(ports, org, *names)
    async with forwarding(ports, count=3) as inboxes:
        for org in (acme, other_tenant):
            await wait_until_empty(pool, org)
        for inbox in inboxes:
            inbox.post()
    assert targets(sink, "/acme") == targets(sink, "/twin") == names
    assert sink.busiest == {"/acme": 1, "/twin": 1}


async def test_a_failing_siem_gets_all_entries_later_and_small_posts_at_first(
    ports: Ports, pool: Pool, acme: UUID, sink: FakeSiem, clock: FakeClock, metrics: FakeMetrics
) -> None:
    await configure(ports, make_sink(acme, sink.url()))
    names = [str(number) for number in range(8)]
    await record(ports, acme, *names)

    async def wait_for_failures(count: int) -> None:
        async def have_failed() -> bool:
            return await run_sql(pool, "select failures from siem_configurations") == [(count,)]

        await eventually(have_failed, f"{count} failures")

    with capture_log() as log:
        async with forwarding(ports) as [inbox]:
            for number, status in enumerate((500, 429, 302, 401), 1):
                sink.status = status
                inbox.post()
                await wait_for_failures(number)
                await wait_until_idle(inbox)
                clock.advance(timedelta(seconds=3.7 * 2 ** (number - 1)))
                inbox.post()
                await wait_until_idle(inbox)
                assert len(sink.posts) == number  # not too early
                clock.advance(timedelta(seconds=2.6 * 2 ** (number - 1)))
            sink.close()
            inbox.post()
            await wait_for_failures(5)
            await wait_until_idle(inbox)
            clock.advance(timedelta(minutes=2))
            await sink.open()
            sink.status = 200
            inbox.post()
            await wait_until_empty(pool, acme)
    assert targets(sink) == names
    assert metrics.siem_failures == {"failed": 2, "redirected": 1, "token_refused": 1, "not_connected": 1}
    lines = [(entry["event"], entry.get("reason"), entry.get("failures")) for entry in log if entry["log_level"] != "debug"]
    assert lines == [
        ("siem_failed", "failed", 1),
        ("siem_failed", "failed", 2),
        ("siem_failed", "redirected", 3),
        ("siem_failed", "token_refused", 4),
        ("siem_failed", "not_connected", 5),
        ("siem_recovered", None, 5),
    ]
    assert {entry["organization"] for entry in log} == {str(acme)}


async def test_a_refused_entry_delays_only_later_entries(
    ports: Ports, pool: Pool, acme: UUID, sink: FakeSiem, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(siem_model, "MAX_ENTRIES", 4)
    await configure(ports, make_sink(acme, sink.url()))
    await record(ports, acme, "1", "2", "bad", "4")
    post = siem.post

    async def refuse_bad(ports: Ports, to: siem_model.SiemSink, content: bytes) -> siem_model.SiemResult:
        return siem_model.SiemResult.REFUSED if b'"bad"' in content else await post(ports, to, content)

    monkeypatch.setattr(siem, "post", refuse_bad)
    for _ in range(6):
        await forward(ports)
        clock.advance(siem_model.LONGEST_BACKOFF)
    assert targets(sink) == ["1", "2"]
    assert await queued(pool, acme) == ["bad", "4"]


@pytest.mark.slow
async def test_a_siem_that_hangs_does_not_delay_others(
    ports: Ports, pool: Pool, acme: UUID, other_tenant: UUID, sink: FakeSiem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many SIEMs hang as there are slots for slow SIEMs, plus another."""
    ports = replace(ports, clock=SystemClock())
    hanging = [acme, *[await add_organization(pool, f"stuck-{number}") for number in range(3)]]
    for org in hanging:
        await configure(ports, make_sink(org, sink.url("/stuck")))
        await record(ports, org, "x")
    await configure(ports, make_sink(other_tenant, sink.url("/twin")))
    await run_sql(pool, "update siem_configurations set is_slow = true where org_id = any(%s)", hanging)
    sink.gates["/stuck"] = trio.Event()
    async with forwarding(ports, slots=4, struggling_slots=3) as [inbox]:
        await sink.until(lambda: len(sink.posts) == 3, "all slots for struggling SIEMs are in use")
        for number in range(5):
            await record(ports, other_tenant, str(number))
            inbox.post()
            await wait_until_empty(pool, other_tenant)
        assert len([post for post in sink.posts if post.path == "/stuck"]) == 3
        sink.gates["/stuck"].set()
        for org in hanging:
            await wait_until_empty(pool, org)
    assert targets(sink, "/twin") == ["0", "1", "2", "3", "4"]


async def test_a_siem_that_never_answers_times_out(
    ports: Ports, pool: Pool, acme: UUID, sink: FakeSiem, metrics: FakeMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_siem, "POST_TIMEOUT", 0.05)
    await configure(ports, make_sink(acme, sink.url()))
    await record(ports, acme, "x")
    sink.gates["/collect"] = trio.Event()
    async with forwarding(ports):
        await eventually(lambda: metrics.siem_failures["timed_out"] == 1)


async def test_a_defect_counts_as_a_failure_and_does_not_affect_others(
    ports: Ports, pool: Pool, acme: UUID, other_tenant: UUID, sink: FakeSiem, metrics: FakeMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = siem_model.build_headers

    def defective(to: siem_model.SiemSink) -> dict[str, str]:
        assert to.org_id == other_tenant, "a defect"
        return headers(to)

    monkeypatch.setattr(model_siem, "build_headers", defective)
    for org, path in ((acme, "/acme"), (other_tenant, "/twin")):
        await configure(ports, make_sink(org, sink.url(path)))
        await record(ports, org, "x")
    with capture_log() as log:
        async with forwarding(ports):
            await wait_until_empty(pool, other_tenant)
            await eventually(lambda: metrics.siem_failures["not_sent"] == 1)
    assert "siem_not_sent" in [entry["event"] for entry in log if entry["log_level"] == "error"]
    assert await queued(pool, acme) == ["x"]


# Outages and shutdown


async def test_an_outage_of_the_database_loses_no_entry_and_repeats_none(ports: Ports, pool: Pool, acme: UUID, sink: FakeSiem) -> None:
    shaky = ShakyStorage(ports.storage)
    shaky_ports = replace(ports, storage=shaky)
    await configure(ports, make_sink(acme, sink.url()))
    await record(ports, acme, "x")
    sink.gates["/collect"] = trio.Event()
    with capture_log() as log:
        async with forwarding(shaky_ports) as [inbox]:
            await sink.until(lambda: sink.posts, "the entry is being sent")
            await wait_until_idle(inbox)
            shaky.outages = 1
            inbox.post()
            await eventually(lambda: shaky.outages == 0)
            shaky.outages = 1
            sink.gates["/collect"].set()
            await wait_until_empty(pool, acme)
    assert len(sink.posts) == 1
    assert {"siem_not_claimed", "siem_outcome_not_recorded"} <= {entry["event"] for entry in log}


async def test_an_attempt_in_progress_finishes_when_the_process_stops(ports: Ports, pool: Pool, acme: UUID, sink: FakeSiem) -> None:
    await configure(ports, make_sink(acme, sink.url()))
    await record(ports, acme, "x")
    sink.gates["/collect"] = trio.Event()
    async with trio.open_nursery() as nursery:
        stopping = trio.CancelScope()

        async def run() -> None:
            with stopping:
                await siem_forwarder(ports, Mailbox())

        nursery.start_soon(run)
        await sink.until(lambda: sink.posts, "the entry is being sent")
        stopping.cancel()
        sink.gates["/collect"].set()
    assert await queued(pool, acme) == []
    assert await run_sql(pool, "select leased_until from siem_configurations") == [(None,)]


async def test_the_queue_of_a_killed_process_is_sent_again_after_its_lease(
    ports: Ports, pool: Pool, acme: UUID, sink: FakeSiem, clock: FakeClock
) -> None:
    await configure(ports, make_sink(acme, sink.url()))
    await record(ports, acme, "x", "y")
    claimed = await siem.claim_queue(ports, struggling=True)
    assert claimed is not None
    await siem.attempt(ports, claimed)  # and the process is killed before it stores the outcome
    async with forwarding(ports) as [inbox]:
        await wait_until_idle(inbox)
        assert len(sink.posts) == 1
        clock.advance(siem_model.LEASE)
        inbox.post()
        await wait_until_empty(pool, acme)
    assert targets(sink) == ["x", "y", "x", "y"]


async def test_an_attempt_does_not_start_shortly_before_its_lease_ends(ports: Ports, acme: UUID, sink: FakeSiem, clock: FakeClock) -> None:
    await configure(ports, make_sink(acme, sink.url()))
    await record(ports, acme, "x")
    claimed = await siem.claim_queue(ports, struggling=True)
    assert isinstance(claimed, ClaimedSiemQueue)
    clock.advance(siem_model.LEASE - timedelta(seconds=siem_model.POST_TIMEOUT - 1))
    assert await siem.attempt(ports, claimed) is None
    assert sink.posts == []
