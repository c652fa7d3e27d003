"""The webhook dispatcher with hanging receivers, crashes, outages and at shutdown (security W-1, W-2, W-3, W-4, W-5, W-6, Z-4)."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
import trio
import trio.testing

import actors.dispatching
from actors.dispatching import webhook_dispatcher
from actors.mailbox import Mailbox
from adapters.postgres.engine.pool import Pool
from core.eventing import deliveries
from core.eventing.model import webhooks as deliveries_model
from core.eventing.model.webhooks import LEASE_MARGIN, MAX_LOST_CLAIMS, DeliveryFailure, DispatchCapacity
from core.kernel.outbound import Reply, SendFailure
from ports import Ports
from tests.actors.dispatcher.helpers import all_attempted, all_delivered, dispatching
from tests.actors.helpers import capture_log, wait_until_idle
from tests.actors.mailing import ShakyStorage
from tests.fakes.outside import FakeClock
from tests.fakes.receiver import Receiver, answer_after, drip, hang
from tests.support.builders import add_organization, run_sql
from tests.support.waiting import eventually
from tests.support.webhooks import add_webhook, happen, queue


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for hanging receivers at a test's end."""
    monkeypatch.setattr(actors.dispatching, "GRACE", 0.02)


@pytest.mark.usefixtures("no_grace")
async def test_hanging_receivers_do_not_delay_others(ports: Ports, pool: Pool, receiver: Receiver, acme: UUID) -> None:
    """This holds for other organizations and the same organization, and for any number of deliveries to hanging receivers."""
    other_tenant = await add_organization(pool, "twin")
    for path in ("/hangs", "/drips"):
        await add_webhook(ports, acme, receiver.url(path), ["user.joined"])
    receiver.answers |= {"/hangs": hang, "/drips": drip}
    await happen(ports, acme, 30, "user.joined")
    async with dispatching(ports, slots=16) as [inbox]:
        await receiver.wait_for_requests("/hangs")
        await receiver.wait_for_requests("/drips")
        await wait_until_idle(inbox)
        await add_webhook(ports, acme, receiver.url("/beside"))
        await add_webhook(ports, other_tenant, receiver.url("/elsewhere"))
        for org in (acme, other_tenant):
            await happen(ports, org, 10)
            inbox.post()
        await receiver.wait_for_answered(10, "/beside")
        await receiver.wait_for_answered(10, "/elsewhere")
        assert receiver.most["/hangs"] + receiver.most["/drips"] <= 16 / 4
        assert receiver.started["/hangs"] < 30


@pytest.mark.usefixtures("no_grace")
async def test_webhooks_without_deliveries_in_flight_come_first(ports: Ports, pool: Pool, receiver: Receiver, acme: UUID) -> None:
    for number in range(8):
        await add_webhook(ports, acme, receiver.url(f"/{number}"))
        receiver.answers[f"/{number}"] = hang
    await happen(ports, acme, 4)
    async with dispatching(ports, slots=12) as [inbox]:
        await eventually(lambda: sum(receiver.open.values()) == 6, "half of the slots are in use")
        inbox.post()
        await wait_until_idle(inbox)
        assert sum(receiver.started.values()) == len(receiver.started) == 6


# Crashes, outages and shutdown


async def test_deliveries_of_a_killed_process_are_sent_after_their_lease(
    ports: Ports, pool: Pool, receiver: Receiver, acme: UUID, clock: FakeClock
) -> None:
    await add_webhook(ports, acme, receiver.url())
    await happen(ports, acme)
    batch = await deliveries.record_and_claim(ports, [], DispatchCapacity.remaining(10, []))
    assert len(batch.claimed) == 1
    lease = ports.policy.webhook_timeout + LEASE_MARGIN
    async with dispatching(ports) as [inbox]:
        clock.advance(lease - timedelta(milliseconds=1))
        inbox.post()
        await wait_until_idle(inbox)
        assert not receiver.started
        clock.advance(timedelta(milliseconds=1))
        inbox.post()
        [row] = await all_delivered(pool)
    assert (row["claims"], row["attempt_count"]) == (2, 1)


async def test_a_delivery_that_crashes_the_process_is_given_up(ports: Ports, pool: Pool, receiver: Receiver, acme: UUID) -> None:
    await add_webhook(ports, acme, receiver.url())
    await happen(ports, acme)
    await run_sql(pool, "update webhook_deliveries set claims = %s", MAX_LOST_CLAIMS)
    async with dispatching(ports):
        [row] = await all_attempted(pool)
    assert (row["status"], row["delivery_error"]) == ("done", DeliveryFailure.LOST)
    assert not receiver.started


async def test_outcomes_are_stored_once_the_database_is_back(
    ports: Ports, pool: Pool, receiver: Receiver, acme: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.dispatching, "OUTAGE_PAUSE", 0.01)
    shaky = ShakyStorage(ports.storage)
    gate = trio.Event()
    await add_webhook(ports, acme, receiver.url())
    receiver.answers["/"] = answer_after(gate)
    await happen(ports, acme, 3)
    with capture_log() as log:
        async with dispatching(replace(ports, storage=shaky)):
            await receiver.wait_for_requests("/", 3)
            shaky.outages = 3
            gate.set()
            rows = await all_delivered(pool)
    assert {(row["claims"], row["attempt_count"]) for row in rows} == {(1, 1)}
    assert receiver.started["/"] == 3
    assert [entry["event"] for entry in log].count("deliveries_not_claimed") == 3


async def test_an_outcome_that_is_stored_twice_counts_once(ports: Ports, pool: Pool, acme: UUID, receiver: Receiver) -> None:
    """This happens if the database goes down during the commit."""
    await add_webhook(ports, acme, receiver.url())
    await happen(ports, acme)
    [delivery] = (await deliveries.record_and_claim(ports, [], DispatchCapacity.remaining(10, []))).claimed
    failed = deliveries_model.failed_outcome(ports.policy, delivery, SendFailure.BROKEN, ports.clock.now(), 0)
    for _ in range(2):
        await deliveries.record_outcomes(ports, [failed])
    [row] = await queue(pool)
    assert (row["attempt_count"], row["status"]) == (1, "waiting")
    assert row["next_retry_at"] == ports.clock.now() + timedelta(seconds=5)


async def test_a_failure_after_the_end_of_its_lease_does_not_count_but_a_success_does(
    ports: Ports, pool: Pool, acme: UUID, receiver: Receiver, clock: FakeClock
) -> None:
    await add_webhook(ports, acme, receiver.url())
    await happen(ports, acme)
    [first] = (await deliveries.record_and_claim(ports, [], DispatchCapacity.remaining(10, []))).claimed
    clock.advance(timedelta(minutes=1))
    [second] = (await deliveries.record_and_claim(ports, [], DispatchCapacity.remaining(10, []))).claimed
    assert (first.id, second.claims) == (second.id, 2)
    await deliveries.record_outcomes(ports, [deliveries_model.failed_outcome(ports.policy, first, SendFailure.BROKEN, clock.now(), 0)])
    assert [row["attempt_count"] for row in await queue(pool)] == [0]
    await deliveries.record_outcomes(ports, [deliveries_model.answered_outcome(ports.policy, first, Reply(200, b""), clock.now(), 0)])
    assert [row["delivered"] for row in await queue(pool)] == [True]


async def test_attempts_in_flight_finish_when_the_process_stops(ports: Ports, pool: Pool, receiver: Receiver, acme: UUID) -> None:
    gate = trio.Event()
    await add_webhook(ports, acme, receiver.url())
    receiver.answers["/"] = answer_after(gate)
    await happen(ports, acme, 2)
    inbox = Mailbox()
    async with trio.open_nursery() as outside, trio.open_nursery() as nursery:
        nursery.start_soon(webhook_dispatcher, ports, inbox)
        await receiver.wait_for_requests("/", 2)
        outside.start_soon(_open_later, gate, nursery)
        nursery.cancel_scope.cancel()
    rows = await queue(pool)
    assert [(row["delivered"], row["attempt_count"]) for row in rows] == [(True, 1)] * 2


async def _open_later(gate: trio.Event, nursery: trio.Nursery) -> None:
    await trio.testing.wait_all_tasks_blocked()
    assert nursery.cancel_scope.cancel_called
    gate.set()


@pytest.mark.usefixtures("no_grace")
async def test_a_hanging_attempt_is_left_to_its_lease_when_the_process_stops(
    ports: Ports, pool: Pool, receiver: Receiver, acme: UUID
) -> None:
    await add_webhook(ports, acme, receiver.url())
    receiver.answers["/"] = hang
    await happen(ports, acme)
    async with dispatching(ports):
        await receiver.wait_for_requests("/")
    [row] = await queue(pool)
    assert (row["status"], row["claims"], row["attempt_count"]) == ("waiting", 1, 0)
