"""The webhook dispatcher with a real queue and real receivers.

Deliveries arrive signed, at least once and normally exactly once, and slow receivers do not delay other receivers.

Sources: decisions 219, 220; security W-1, W-2, W-3, W-4, W-5, W-6, Z-4.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from standardwebhooks import Webhook as Verifier

from adapters.clock import SystemClock
from adapters.postgres.engine.pool import Pool
from core.eventing.model.webhooks import OVERLAP, DeliveryFailure, new_signing_secret
from core.kernel.causes import SYSTEM
from core.kernel.outbound import Reply, SendFailure
from ports import Ports
from tests.actors.dispatcher.helpers import all_attempted, all_delivered, attempts_of, dispatching
from tests.actors.helpers import capture_log, wait_until_idle
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.fakes.receiver import Receiver, answer, drip, hang
from tests.support.builders import run_sql
from tests.support.webhooks import SECRET, add_webhook, happen

# Content


async def test_an_event_arrives_signed_and_unchanged(
    ports: Ports, pool: Pool, receiver: Receiver, acme: UUID, metrics: FakeMetrics
) -> None:
    ports = replace(ports, clock=SystemClock())  # receivers check the timestamp
    webhook = await add_webhook(ports, acme, receiver.url("/in?token=s3cr3t"))
    await happen(ports, acme)
    receiver.answers["/in?token=s3cr3t"] = answer(201, b"thanks")
    with capture_log() as log:
        async with dispatching(ports):
            [delivery] = await receiver.wait_for_answered(1)
            [row] = await all_delivered(pool)
    assert Verifier(SECRET).verify(delivery.body, delivery.headers) == row["payload"]
    assert await run_sql(pool, "select payload::text from webhook_deliveries") == [(delivery.body.decode(),)]
    assert delivery.headers["content-type"] == "application/json"
    assert delivery.id == str(row["id"])
    assert (row["status"], row["claims"], row["attempt_count"], row["next_retry_at"]) == ("done", 1, 1, None)
    assert (row["response_status_code"], row["response_body"], row["delivery_error"]) == (201, "thanks", None)
    assert [job for job, _ in metrics.jobs] == ["webhook_delivery"]
    assert len(metrics.deliveries) == 1
    [entry] = log
    assert (entry["event"], entry["job_id"], entry["webhook"]) == ("webhook_delivered", str(row["id"]), str(webhook.id))
    for secret in ("s3cr3t", SECRET, "target 0", "127.0.0.1"):
        assert secret not in str(log)


async def test_both_secrets_sign_during_a_rotation(ports: Ports, pool: Pool, receiver: Receiver, acme: UUID) -> None:
    ports = replace(ports, clock=SystemClock())
    webhook = await add_webhook(ports, acme, receiver.url())
    renewed = new_signing_secret()
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.webhooks.rotate(webhook, renewed, now + OVERLAP)
    async with dispatching(ports) as [inbox]:
        await happen(ports, acme)
        inbox.post()
        [first] = await receiver.wait_for_answered(1)
        await run_sql(pool, "update former_webhook_secrets set until = %s", now)
        await happen(ports, acme)
        inbox.post()
        second = (await receiver.wait_for_answered(2))[1]
        await all_delivered(pool)
    for secret in (SECRET, renewed):
        assert Verifier(secret).verify(first.body, first.headers)
    assert Verifier(renewed).verify(second.body, second.headers)
    assert len(second.headers["webhook-signature"].split(" ")) == 1


async def test_a_post_wakes_the_dispatcher_and_deliveries_run_in_parallel(ports: Ports, pool: Pool, receiver: Receiver, acme: UUID) -> None:
    await add_webhook(ports, acme, receiver.url())
    async with dispatching(ports) as [inbox]:
        await wait_until_idle(inbox)
        await happen(ports, acme, 40)
        inbox.post()
        rows = await all_delivered(pool)
    assert sorted(delivery.id for delivery in receiver.got) == sorted(str(row["id"]) for row in rows)
    assert {row["claims"] for row in rows} == {1}


async def test_two_dispatchers_post_each_delivery_once(ports: Ports, pool: Pool, receiver: Receiver, acme: UUID) -> None:
    for number in range(3):
        await add_webhook(ports, acme, receiver.url(f"/{number}"))
    await happen(ports, acme, 20)
    async with dispatching(ports, count=2, slots=6):
        rows = await all_delivered(pool)
    assert sorted(delivery.id for delivery in receiver.got) == sorted(str(row["id"]) for row in rows)
    assert {row["claims"] for row in rows} == {1}


# Failures


async def test_a_failure_is_retried_after_the_documented_delays(
    ports: Ports, pool: Pool, receiver: Receiver, acme: UUID, clock: FakeClock
) -> None:
    await add_webhook(ports, acme, receiver.url())
    receiver.answers["/"] = answer(500, b"no")
    await happen(ports, acme)
    with capture_log() as log:
        async with dispatching(ports) as [inbox]:
            for attempt, delay in enumerate((5, 300, 1800, 7200), 1):
                row = await attempts_of(pool, inbox, attempt)
                assert (row["response_status_code"], row["response_body"], row["delivered"]) == (500, "no", False)
                assert row["delivery_error"] == DeliveryFailure.NOT_ACCEPTED
                wait = row["next_retry_at"] - clock.now()
                assert 1 <= wait.total_seconds() / delay <= 1.2
                clock.advance(wait - timedelta(milliseconds=1))
                inbox.post()
                await wait_until_idle(inbox)
                assert receiver.started["/"] == attempt  # not too early
                clock.advance(timedelta(milliseconds=1))
                inbox.post()
            row = await attempts_of(pool, inbox, 5)
    assert (row["status"], row["delivered"], row["next_retry_at"]) == ("done", False, None)
    assert len({(delivery.id, delivery.body) for delivery in receiver.got}) == 1
    assert len({delivery.headers["webhook-timestamp"] for delivery in receiver.got}) == 5
    assert [entry["event"] for entry in log] == ["delivery_attempt_failed"] * 4 + ["delivery_given_up"]


async def test_the_dispatcher_wakes_by_itself_for_a_retry(ports: Ports, pool: Pool, receiver: Receiver, acme: UUID) -> None:
    soon = (timedelta(), *[timedelta(milliseconds=20)] * 4)
    ports = replace(ports, clock=SystemClock(), policy=replace(ports.policy, webhook_retry_delays=soon))
    await add_webhook(ports, acme, receiver.url())
    receiver.answers["/"] = answer(503)
    await happen(ports, acme)
    async with dispatching(ports):
        await receiver.wait_for_answered(2)  # without a post
        receiver.answers["/"] = answer(200)
        [row] = await all_delivered(pool)
    assert row["attempt_count"] >= 3
    assert row["delivery_error"] is None


FAILURES: dict[str, tuple[Any, int | None, str | None, str]] = {
    "a redirect": (answer(302, b"", "Location: /elsewhere"), 302, "", DeliveryFailure.NOT_ACCEPTED),
    "a body of strange bytes": (answer(400, b"\xff\x00 no"), 400, "\ufffd\ufffd no", DeliveryFailure.NOT_ACCEPTED),
    "a long body": (answer(400, b"x" * 5000), 400, "x" * 4096, DeliveryFailure.NOT_ACCEPTED),
    "no HTTP": (b"hello\r\n\r\n", None, None, SendFailure.BROKEN),
    "no answer": (hang, None, None, SendFailure.TIMED_OUT),
    "an answer without end": (drip, None, None, SendFailure.TIMED_OUT),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_the_response_or_the_failure_is_stored(ports: Ports, pool: Pool, receiver: Receiver, acme: UUID, case: str) -> None:
    response, status, body, error = FAILURES[case]
    # Only responses without an end need a short timeout. All other responses get the normal
    # timeout, for busy machines.
    timeout = timedelta(seconds=0.1) if error is SendFailure.TIMED_OUT else ports.policy.webhook_timeout
    ports = replace(ports, policy=replace(ports.policy, webhook_timeout=timeout))
    await add_webhook(ports, acme, receiver.url())
    receiver.answers["/"] = response
    await happen(ports, acme)
    async with dispatching(ports):
        [row] = await all_attempted(pool)
    assert (row["response_status_code"], row["response_body"], row["delivery_error"]) == (status, body, error)
    assert receiver.started.keys() <= {"/"}


@pytest.mark.parametrize(
    ("url", "failure"),
    [
        ("http://127.0.0.2:{port}/", SendFailure.NOT_ALLOWED),
        ("http://10.1.2.3/", SendFailure.NOT_ALLOWED),
        ("http://[::1]:{port}/", SendFailure.NOT_ALLOWED),
        ("http://[::ffff:10.0.0.1]/", SendFailure.NOT_ALLOWED),
        ("http://nothing.invalid/", SendFailure.NOT_RESOLVED),
    ],
)
async def test_nothing_is_sent_to_forbidden_addresses(
    ports: Ports, pool: Pool, receiver: Receiver, acme: UUID, url: str, failure: SendFailure
) -> None:
    await add_webhook(ports, acme, url.format(port=receiver.port))
    await happen(ports, acme)
    async with dispatching(ports):
        [row] = await all_attempted(pool)
    assert (row["response_status_code"], row["response_body"], row["delivery_error"]) == (None, None, failure)
    assert not receiver.started


async def test_a_receiver_that_answers_gone_gets_no_more_deliveries(ports: Ports, pool: Pool, receiver: Receiver, acme: UUID) -> None:
    webhook = await add_webhook(ports, acme, receiver.url())
    receiver.answers["/"] = answer(410)
    await happen(ports, acme)
    async with dispatching(ports) as [inbox]:
        await all_attempted(pool)
        assert await run_sql(pool, "select is_active from webhooks") == [(False,)]
        await happen(ports, acme)
        inbox.post()
        await wait_until_idle(inbox)
    assert receiver.started["/"] == 1
    [entry] = await run_sql(pool, "select target_id, actor_id, details->'changes' from audit_log where action = 'webhook.updated'")
    assert entry == (str(webhook.id), None, {"is_active": {"old": True, "new": False}})


async def test_gone_from_an_old_url_does_not_deactivate_a_webhook_with_a_new_one(ports: Ports, pool: Pool, acme: UUID) -> None:
    class Sender:
        async def post(self, url: str, body: bytes, headers: Mapping[str, str], within: float, **_: Any) -> Reply:
            await run_sql(pool, "update webhooks set url = 'https://new.example.com/'")  # by a member, during the request
            return Reply(410, b"")

        async def get(self, url: str, within: float, **_: Any) -> Reply:
            return await ports.sender.get(url, within)

    await add_webhook(ports, acme, "https://old.example.com/")
    await happen(ports, acme)
    async with dispatching(replace(ports, sender=Sender())):
        await all_attempted(pool)
    assert await run_sql(pool, "select is_active from webhooks") == [(True,)]


async def test_a_webhook_with_an_unreadable_secret_is_sent_nothing(ports: Ports, pool: Pool, receiver: Receiver, acme: UUID) -> None:
    await add_webhook(ports, acme, receiver.url("/broken"))
    await run_sql(pool, "update webhooks set secret = 'x'")
    await add_webhook(ports, acme, receiver.url("/good"))
    await happen(ports, acme)
    async with dispatching(ports):
        rows = await all_attempted(pool)
    assert sorted((row["delivered"], row["delivery_error"]) for row in rows) == [(False, DeliveryFailure.NOT_SIGNED), (True, None)]
    assert receiver.started == {"/good": 1}


async def test_a_defect_does_not_affect_other_deliveries(ports: Ports, pool: Pool, receiver: Receiver, acme: UUID) -> None:
    class Sender:
        async def post(self, url: str, body: bytes, headers: Mapping[str, str], within: float, **_: Any) -> Reply:
            if url.endswith("/broken"):
                raise RuntimeError("a defect")
            return await ports.sender.post(url, body, headers, within)

        async def get(self, url: str, within: float, **_: Any) -> Reply:
            return await ports.sender.get(url, within)

    for path in ("/broken", "/good"):
        await add_webhook(ports, acme, receiver.url(path))
    await happen(ports, acme)
    with capture_log() as log:
        async with dispatching(replace(ports, sender=Sender())):
            rows = await all_attempted(pool)
    assert sorted((row["delivered"], row["delivery_error"]) for row in rows) == [(False, DeliveryFailure.NOT_SENT), (True, None)]
    assert [entry["event"] for entry in log if entry["log_level"] == "error"] == ["delivery_not_made"]


# Inactive and deleted webhooks


@pytest.mark.parametrize("inactive", ["webhook", "organization"])
async def test_deliveries_wait_until_webhook_and_organization_are_active(
    ports: Ports, pool: Pool, receiver: Receiver, acme: UUID, clock: FakeClock, inactive: str
) -> None:
    off, on = {
        "webhook": ("update webhooks set is_active = false", "update webhooks set is_active = true"),
        "organization": ("update organizations set status = 'suspended'", "update organizations set status = 'active'"),
    }[inactive]
    await add_webhook(ports, acme, receiver.url())
    receiver.answers["/"] = answer(500)
    await happen(ports, acme)
    async with dispatching(ports) as [inbox]:
        await attempts_of(pool, inbox, 1)
        await happen(ports, acme)  # queued but not sent
        await run_sql(pool, off)
        clock.advance(timedelta(hours=1))
        inbox.post()
        await wait_until_idle(inbox)
        assert receiver.started["/"] == 1
        receiver.answers["/"] = answer(200)
        await run_sql(pool, on)
        inbox.post()
        rows = await all_delivered(pool)
    assert sorted(row["attempt_count"] for row in rows) == [1, 2]
    for row in rows:
        assert len(row["attempts"]) == row["attempt_count"]
        assert row["attempts"][-1]["status"] == row["response_status_code"]
        assert all(attempt["milliseconds"] >= 0 for attempt in row["attempts"] if attempt["status"])
    assert receiver.started["/"] == 3


async def test_deliveries_to_a_deleted_webhook_are_not_sent(ports: Ports, pool: Pool, receiver: Receiver, acme: UUID) -> None:
    webhook = await add_webhook(ports, acme, receiver.url("/gone"))
    await add_webhook(ports, acme, receiver.url("/there"))
    await happen(ports, acme)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.webhooks.delete(acme, webhook.id, ports.clock.now())
    async with dispatching(ports) as [inbox]:
        await receiver.wait_for_answered(1)
        await wait_until_idle(inbox)
    assert receiver.started == {"/there": 1}
