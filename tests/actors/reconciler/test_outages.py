"""Checks while the payment provider fails, and checks that compete with events."""

from datetime import timedelta

import structlog

from adapters.postgres.engine.pool import Pool
from core.applications.model import plans
from core.billing import provider_state
from core.billing.model import provider_events
from core.billing.model.provider_facts import CHECK_INTERVAL, SOON
from core.billing.model.provider_objects import parse_subscription
from core.kernel.causes import SYSTEM
from ports import Ports
from tests.actors.reconciler.helpers import add_failing_check, buy, reconcile
from tests.billing.api.billing import Till
from tests.fakes.http_server import Answer
from tests.fakes.payments import FakePayments
from tests.support.builders import run_sql


async def test_an_event_overrides_a_check_of_the_same_second(till: Till, provider: FakePayments, ports: Ports) -> None:
    subscription = await buy(till, provider, delivered=True)
    till.clock.advance(CHECK_INTERVAL)
    await till.deliver("customer.subscription.updated", {**subscription, "status": "past_due"})
    async with ports.storage.transaction(by=SYSTEM) as tx:
        state, now = parse_subscription(subscription), till.clock.now()
        locked = await tx.billing.lock_subscription(state.id, now)
        await provider_state.apply_provider_state(tx, locked, state, now.replace(microsecond=0), now, at_creation=True)
    assert await till.status() == "past_due"


async def test_many_checkouts_of_one_customer_take_one_request(till: Till, provider: FakePayments, ports: Ports) -> None:
    for _ in range(5):
        assert (await till.begin()).status == 200
    provider.requests.clear()
    till.clock.advance(SOON)
    assert await reconcile(ports) == {"checkouts": 5}
    assert len(provider.requests) == 1


async def test_checkouts_started_one_after_the_other_take_one_request(till: Till, provider: FakePayments, ports: Ports) -> None:
    """A checkout that has just started gets some time first."""
    for _ in range(5):
        assert (await till.begin()).status == 200
        till.clock.advance(timedelta(minutes=1))
    assert await reconcile(ports) == {"checkouts": 1}
    till.clock.advance(SOON)
    assert await reconcile(ports) == {"checkouts": 5}
    provider.requests.clear()
    for _ in range(60):
        till.clock.advance(timedelta(minutes=1))
        await reconcile(ports)
    assert len(provider.requests) == 1


async def test_a_subscription_unknown_to_the_provider_does_not_count_as_canceled(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    """With an API key for the wrong mode, the provider knows no subscription and continues to charge."""
    subscription = await buy(till, provider, delivered=True)
    hidden = provider.subscriptions.pop(subscription["id"])
    assert (await till.tenant.api.delete(f"{till.tenant.path}/services/shop", token=till.tenant.token("owner"))).status == 204
    recorded = "select 1 from audit_log where action = 'subscription.canceled'"
    till.clock.advance(plans.LEASE)
    await reconcile(ports)
    assert await run_sql(pool, recorded) == []
    provider.subscriptions[subscription["id"]] = hidden
    till.clock.advance(plans.RETRY_INTERVAL)
    await reconcile(ports)
    assert hidden["id"] == subscription["id"]
    assert provider.subscriptions[subscription["id"]]["status"] == "canceled"
    assert await run_sql(pool, recorded) == [(1,)]


async def test_the_cancellation_of_a_permanently_unknown_subscription_is_given_up(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    subscription = await buy(till, provider, delivered=True)
    provider.subscriptions.pop(subscription["id"])
    assert (await till.tenant.api.delete(f"{till.tenant.path}/services/shop", token=till.tenant.token("owner"))).status == 204
    await run_sql(pool, "update billing_cancellations set asked_at = %s", till.clock.now())
    till.clock.advance(plans.GIVE_UP_AFTER + timedelta(hours=1))
    await reconcile(ports)
    assert await run_sql(pool, "select 1 from billing_cancellations") == []


async def test_reconciliation_waits_while_the_provider_is_down(till: Till, provider: FakePayments, ports: Ports) -> None:
    """It continues with the checks that were not tried yet, then with the failed checks. No check waits for an hour."""
    names = [f"sub_{number}" for number in range(8)]
    for number, name in enumerate(names):
        await add_failing_check(till, provider, name, till.clock.now() - timedelta(minutes=10 - number))
    provider.requests.clear()
    with structlog.testing.capture_logs() as log:
        assert await reconcile(ports) == {"subscriptions": 3, "failed": 3, "held_up": 1}
    assert ["sub_" in str(line) for line in log if line["event"] == "payments_failed"] == [False] * 3
    assert [path for _, path, _ in provider.requests] == [f"subscriptions/{name}" for name in names[:3]]
    assert await reconcile(ports) == {"subscriptions": 3, "failed": 3, "held_up": 1}
    provider.answers.clear()
    assert await reconcile(ports) == {"subscriptions": 2}
    assert [path for _, path, _ in provider.requests] == [f"subscriptions/{name}" for name in names]
    till.clock.advance(provider_events.RETRY_INTERVAL)
    assert await reconcile(ports) == {"subscriptions": 6}


async def test_only_failures_in_a_row_count_as_an_outage(till: Till, provider: FakePayments, ports: Ports) -> None:
    for number in range(5):
        await add_failing_check(till, provider, f"sub_{number}", till.clock.now() - timedelta(minutes=10 - number))
    del provider.answers["subscriptions/sub_2"]
    assert await reconcile(ports) == {"subscriptions": 5, "failed": 4}


async def test_permanently_failing_checks_do_not_block_others(till: Till, provider: FakePayments, ports: Ports, pool: Pool) -> None:
    subscription = await buy(till, provider, delivered=True)
    for number in range(provider_events.MAX_CONSECUTIVE_FAILURES):
        await add_failing_check(till, provider, f"sub_bad_{number}", till.clock.now())
    await run_sql(
        pool, "update billing_facts set check_at = %s where provider_subscription_id = %s", till.clock.now() + SOON, subscription["id"]
    )
    till.clock.advance(SOON)
    assert await reconcile(ports) == {"subscriptions": 3, "failed": 3, "held_up": 1}
    assert await reconcile(ports) == {"subscriptions": 1}
    till.clock.advance(provider_events.RETRY_INTERVAL)
    assert await reconcile(ports) == {"subscriptions": 3, "failed": 3, "held_up": 1}


async def test_an_event_during_a_failing_check_sets_the_next_check(till: Till, provider: FakePayments, ports: Ports, pool: Pool) -> None:
    subscription = await buy(till, provider, delivered=True)
    till.clock.advance(CHECK_INTERVAL)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        until = till.clock.now() + provider_events.RECHECK_INTERVAL
        assert await tx.billing.claim_check(till.clock.now(), until) == subscription["id"]
    await till.deliver("customer.subscription.updated", subscription)
    check_at = await run_sql(pool, "select check_at from billing_facts")
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.billing.reschedule_check(subscription["id"], until, till.clock.now())
    assert await run_sql(pool, "select check_at from billing_facts") == check_at


async def test_checkouts_are_checked_once_the_provider_is_back(till: Till, provider: FakePayments, ports: Ports) -> None:
    """This includes checkouts that are old enough for their last check."""
    for _ in range(2):
        provider.complete((await till.begin()).json["session_id"])
    till.clock.advance(provider_events.CHECKOUT_CHECK_PERIOD + SOON)
    provider.answers["subscriptions"] = Answer(500)
    assert await reconcile(ports) == {"checkouts": 2, "failed": 1}
    assert await reconcile(ports) == {}
    provider.answers.clear()
    till.clock.advance(provider_events.RETRY_INTERVAL)
    assert (await reconcile(ports))["checkouts"] == 2
    assert await till.status() == "active"
    till.clock.advance(provider_events.RECHECK_INTERVAL)
    assert "checkouts" not in await reconcile(ports)


async def test_a_checkout_with_an_event_during_a_failing_check_is_not_checked_again(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    await buy(till, provider, delivered=True)
    ids = [id_ for (id_,) in await run_sql(pool, "select id from billing_checkouts")]
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.checkouts.reschedule(ids, till.clock.now(), till.clock.now() - provider_events.CHECKOUT_CHECK_PERIOD)
    assert await run_sql(pool, "select 1 from billing_checkouts where check_at is not null") == []


async def test_failing_cancellations_delay_only_other_cancellations(till: Till, provider: FakePayments, ports: Ports, pool: Pool) -> None:
    for number in range(4):
        await run_sql(
            pool,
            """
            insert into billing_cancellations (provider_subscription_id, subscription_id, org_id, service_id, due_at)
            values (%s, gen_random_uuid(), %s, %s, '-infinity')""",
            f"sub_{number}",
            till.tenant.org,
            till.service,
        )
        provider.answers[f"subscriptions/sub_{number}"] = Answer(500)
    assert (await till.begin()).status == 200
    till.clock.advance(SOON)
    assert await reconcile(ports) == {"failed": 3, "checkouts": 1}
    assert await reconcile(ports) == {"failed": 1}
