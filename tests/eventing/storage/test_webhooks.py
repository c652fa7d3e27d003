"""Storing webhooks and deliveries: slot shares, and cleanup."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.listen import listen
from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.eventing import deliveries
from core.eventing.model import webhooks
from core.eventing.model import webhooks as deliveries_model
from core.eventing.model.webhooks import FORMER_SECRETS_KEPT, OVERLAP, ClaimedDelivery, DispatchCapacity, new_signing_secret
from core.kernel.callers import Person
from core.kernel.causes import SYSTEM
from core.kernel.event_catalog import EVENT_KINDS, Event
from core.kernel.values import Email
from core.maintenance import housekeeping
from core.maintenance.model.housekeeping import DELIVERIES_KEPT, Sweep
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import add_organization, make_vault, run_sql
from tests.support.webhooks import SECRET, add_webhook, happen, queue

URL = "https://hooks.example/in"


async def claim(ports: Ports, slots: int, in_flight: list[ClaimedDelivery] | None = None) -> list[ClaimedDelivery]:
    """Claim deliveries, and add them to the deliveries in flight."""
    in_flight = [] if in_flight is None else in_flight
    claimed_deliveries = (await deliveries.record_and_claim(ports, [], DispatchCapacity.remaining(slots, in_flight))).claimed
    in_flight.extend(claimed_deliveries)
    return list(claimed_deliveries)


def by_organization(deliveries: list[ClaimedDelivery]) -> Counter[UUID]:
    return Counter(delivery.org_id for delivery in deliveries)


async def test_a_single_organization_gets_at_most_a_quarter_of_the_slots(ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    await add_webhook(ports, org, URL)
    await happen(ports, org, 200)
    in_flight: list[ClaimedDelivery] = []
    while await claim(ports, 100, in_flight):
        pass
    assert 10 <= len(in_flight) <= 100 / 4


@pytest.mark.parametrize("busy", [1, 2, 5, 20])
async def test_a_webhook_without_deliveries_in_flight_gets_a_slot_beside_busy_ones(ports: Ports, pool: Pool, busy: int) -> None:
    claimed_deliveries: list[ClaimedDelivery] = []
    for number in range(busy):
        org = await add_organization(pool, f"hog-{number}")
        for _ in range(4):
            await add_webhook(ports, org, URL)
        await happen(ports, org, 40)
    while await claim(ports, 100, claimed_deliveries):
        pass
    assert len(claimed_deliveries) < 100
    assert max(by_organization(claimed_deliveries).values()) <= 100 - len(claimed_deliveries) + 1
    other_webhook = await add_webhook(ports, claimed_deliveries[0].org_id, URL, ["user.joined"])
    await happen(ports, other_webhook.org_id, name="user.joined")
    newcomer = await add_organization(pool, "newcomer")
    await add_webhook(ports, newcomer, URL)
    await happen(ports, newcomer)
    assert newcomer in {delivery.org_id for delivery in await claim(ports, 100, claimed_deliveries)}
    if busy < 20:  # with more in flight than free slots, an organization has to wait
        assert other_webhook.id in {delivery.webhook_id for delivery in claimed_deliveries}


async def test_organizations_take_turns_for_any_size_of_their_backlogs(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    orgs = [await add_organization(pool, slug) for slug in ("acme", "twin", "third")]
    for number, org in enumerate(orgs):
        await add_webhook(ports, org, URL)
        await happen(ports, org, 60 - 20 * number)
        clock.advance(timedelta(seconds=1))
    deliveries = await claim(ports, 12)
    assert by_organization(deliveries) == dict.fromkeys(orgs, 1)


async def test_deliveries_of_one_webhook_are_claimed_in_the_order_of_the_events(ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    await add_webhook(ports, org, URL)
    await happen(ports, org, 5)
    rows = await queue(pool)
    assert [delivery.id for delivery in await claim(ports, 100)] == [row["id"] for row in rows]


async def test_a_claimed_delivery_is_not_claimed_again(ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    await add_webhook(ports, org, URL)
    await happen(ports, org, 3)
    assert len(await claim(ports, 100)) == 3
    assert await claim(ports, 100) == []


async def test_a_batch_has_the_time_of_the_next_due_delivery(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    org = await add_organization(pool, "acme")
    await add_webhook(ports, org, URL)
    assert (await deliveries.record_and_claim(ports, [], DispatchCapacity.remaining(100, []))).next_due is None
    await happen(ports, org)
    batch = await deliveries.record_and_claim(ports, [], DispatchCapacity.remaining(100, []))
    assert batch.next_due is None, "the time is read before the claim"
    batch = await deliveries.record_and_claim(ports, [], DispatchCapacity.remaining(100, []))
    assert batch.next_due == clock.now() + ports.policy.webhook_timeout + deliveries_model.LEASE_MARGIN


async def test_a_setting_delays_the_first_attempt(pool: Pool, ports: Ports, clock: FakeClock) -> None:
    org = await add_organization(pool, "acme")
    await add_webhook(ports, org, URL)
    delayed = Postgres(pool, make_vault(), clock, timedelta(seconds=3))
    async with delayed.transaction(by=SYSTEM) as tx:
        tx.record(Event(EVENT_KINDS["user.invited"], "x", org_id=org))
    assert await claim(ports, 10) == []
    clock.advance(timedelta(seconds=3))
    assert len(await claim(ports, 10)) == 1


async def test_a_replaced_secret_signs_until_its_overlap_ends_and_is_then_deleted(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    org = await add_organization(pool, "acme")
    webhook = await add_webhook(ports, org, URL)
    renewed = new_signing_secret()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.webhooks.rotate(webhook, renewed, clock.now() + OVERLAP)
    for moment, secrets in ((OVERLAP - timedelta(seconds=1), [renewed, SECRET]), (timedelta(seconds=1), [renewed])):
        clock.advance(moment)
        await happen(ports, org)
        [delivery] = await claim(ports, 10)
        assert delivery.secrets == secrets
        await run_sql(pool, "delete from webhook_deliveries")
    assert SECRET not in repr(delivery)
    clock.advance(timedelta(seconds=1))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        assert await tx.housekeeping.sweep(Sweep.FORMER_WEBHOOK_SECRETS, clock.now(), 10) == 1
    assert await run_sql(pool, "select 1 from former_webhook_secrets") == []


async def test_up_to_ten_replaced_secrets_sign_for_a_day_each(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    """A second rotation keeps the secret for receivers that have not applied the first rotation."""
    org = await add_organization(pool, "acme")
    webhook, other = [await add_webhook(ports, org, URL) for _ in range(2)]
    secrets = [SECRET, *(new_signing_secret() for _ in range(FORMER_SECRETS_KEPT + 2))]

    async def signing() -> Sequence[str]:
        await happen(ports, org)
        secrets_by_webhook = {delivery.webhook_id: delivery.secrets for delivery in await claim(ports, 10)}
        assert secrets_by_webhook[other.id] == [SECRET]
        await run_sql(pool, "delete from webhook_deliveries")
        return secrets_by_webhook[webhook.id]

    for number, secret in enumerate(secrets[1:], 1):
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await tx.webhooks.rotate(webhook, secret, clock.now() + OVERLAP)
        assert await signing() == secrets[max(number - FORMER_SECRETS_KEPT, 0) : number + 1][::-1]
        clock.advance(timedelta(hours=1))
    assert await run_sql(pool, "select count(*) from former_webhook_secrets") == [(FORMER_SECRETS_KEPT,)]
    # Every secret has its own time. The oldest kept secret was replaced this many hours ago.
    clock.advance(OVERLAP - timedelta(hours=FORMER_SECRETS_KEPT))
    assert await signing() == secrets[-FORMER_SECRETS_KEPT:][::-1]
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.webhooks.delete(org, webhook.id, clock.now())
    assert await run_sql(pool, "select 1 from former_webhook_secrets") == []


async def test_activating_a_webhook_notifies_the_dispatchers(ports: Ports, pool: Pool, conninfo: str) -> None:
    webhook = await add_webhook(ports, await add_organization(pool, "acme"), URL)

    async def save(*, is_active: bool) -> None:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await tx.webhooks.save(replace(webhook, is_active=is_active))

    async with listen(conninfo, ["webhooks", "over"]) as notified:
        await save(is_active=False)
        await run_sql(pool, "notify over")
        assert await anext(notified) == ("over", "")
        await save(is_active=True)
        assert await anext(notified) == ("webhooks", "")


async def test_deliveries_are_kept_for_thirty_days(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    org = await add_organization(pool, "acme")
    await add_webhook(ports, org, URL)
    await happen(ports, org, 2)
    clock.advance(DELIVERIES_KEPT - timedelta(hours=1))
    await housekeeping.sweep(ports, uuid4())
    assert len(await queue(pool)) == 2
    clock.advance(timedelta(hours=1, seconds=1))
    swept = await housekeeping.sweep(ports, uuid4())
    assert swept is not None
    assert swept["webhook_deliveries"] == 2
    assert await queue(pool) == []


async def test_due_work_counts_deliveries_of_active_organizations(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    org, idle = [await add_organization(pool, slug) for slug in ("acme", "idle")]
    await add_webhook(ports, org, URL)
    await add_webhook(ports, idle, URL)
    await happen(ports, org, 2)
    await happen(ports, idle, 3)
    await run_sql(pool, "update organizations set status = 'suspended' where slug = 'idle'")

    async def due() -> int:
        async with ports.storage.reading() as read:
            [deliveries] = [each for each in await read.platform.queues(clock.now()) if each.name == "webhook_deliveries"]
            assert deliveries.age >= timedelta()
            jobs = await read.platform.due_jobs(clock.now())
        assert deliveries.depth == jobs
        return jobs

    assert await due() == 2
    await claim(ports, 100)
    assert await due() == 0
    clock.advance(timedelta(minutes=1))  # the leases expire
    assert await due() == 2


async def test_redaction_removes_the_actors_email_from_payloads(ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    await add_webhook(ports, org, URL)
    user = Person(user_id=uuid4(), email=Email("ada@example.com"), session_id=uuid4())
    eve = Person(user_id=uuid4(), email=Email("eve@example.com"), session_id=uuid4())
    for person in (user, eve):
        async with ports.storage.transaction(by=person, in_session=False) as tx:
            tx.record(Event(EVENT_KINDS["user.invited"], "x", org_id=org))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.privacy.redact_deliveries(user.user_id)
    emails = {row["payload"]["actor_user_id"]: row["payload"]["actor_email"] for row in await queue(pool)}
    assert emails == {str(user.user_id): None, str(eve.user_id): "eve@example.com"}


async def test_deliveries_beyond_the_wake_limit_are_due_immediately(
    ports: Ports, pool: Pool, acme: UUID, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise deliveries of a suspended organization would delay those of others."""
    monkeypatch.setattr(webhooks, "WAKE_LIMIT", 2)
    await add_webhook(ports, acme, "https://hooks.example")
    await happen(ports, acme, 3)
    await run_sql(pool, "update webhook_deliveries set status = 'waiting', due_at = %s", clock.now())
    await run_sql(pool, "update organizations set status = 'suspended'")
    clock.advance(timedelta(seconds=1))
    batch = await deliveries.record_and_claim(ports, [], DispatchCapacity.remaining(100, []))
    assert batch.claimed == []
    assert batch.next_due is not None
    assert batch.next_due < clock.now()
    assert (await deliveries.record_and_claim(ports, [], DispatchCapacity.remaining(100, []))).next_due is None
