"""Subscriptions that end here are canceled at the payment provider."""

from datetime import timedelta

import pytest
import structlog

from adapters.http.payments import HttpPayments
from adapters.postgres.engine.pool import Pool
from core.applications.model import plans
from core.billing import subscriptions
from core.billing.model import provider_events
from core.billing.model.provider_facts import CHECK_INTERVAL, SOON
from ports import Ports
from tests.actors.reconciler.helpers import HOLDER, buy, buy_twice, reconcile
from tests.billing.api.billing import Till
from tests.fakes.http_server import Answer
from tests.fakes.outside import FakeClock
from tests.fakes.payments import MONTH, FakePayments, invoice
from tests.support.builders import run_sql


@pytest.mark.parametrize("status", ["cancelled", "expired"])
async def test_a_subscription_ended_by_a_key_is_canceled_at_the_provider_and_stays_ended(
    till: Till, provider: FakePayments, ports: Ports, status: str
) -> None:
    subscription = await buy(till, provider, delivered=True)
    assert (await till.by_key(status=status)).json["status"] == status
    assert provider.subscriptions[subscription["id"]]["status"] == "canceled"
    rows, before = await till.rows(), await till.recorded()
    await provider.deliver(till.send_for_status)
    await till.deliver("invoice.paid", invoice(subscription["id"], till.ends + MONTH, customer=subscription["customer"]))  # late
    assert (await till.begin()).status == 200, "the user pays for nothing else"
    till.clock.advance(CHECK_INTERVAL)
    await reconcile(ports)
    assert await till.rows() == rows
    assert await till.recorded() == before


async def test_a_subscription_ended_by_a_key_stays_ended_while_the_provider_is_down(
    till: Till, provider: FakePayments, ports: Ports
) -> None:
    subscription = await buy(till, provider, delivered=True)
    provider.answers[f"subscriptions/{subscription['id']}"] = Answer(500)
    assert (await till.by_key(status="expired")).status == 200
    till.clock.advance(timedelta(seconds=1))
    await till.deliver("customer.subscription.updated", {**subscription, "status": "past_due"})
    assert await till.status() == "expired", "otherwise the user would pay for an ended subscription"
    provider.answers.clear()
    till.clock.advance(plans.LEASE)
    await reconcile(ports)
    assert provider.subscriptions[subscription["id"]]["status"] == "canceled"
    await provider.deliver(till.send_for_status)
    assert await till.status() == "expired"


async def test_a_subscription_already_ended_at_the_provider_is_not_canceled_there(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    subscription = await buy(till, provider, delivered=True)
    provider.change(subscription["id"], status="canceled")
    await provider.deliver(till.send_for_status)
    assert (await till.by_key(status="expired")).status == 200
    assert await run_sql(pool, "select 1 from billing_cancellations") == []


async def test_a_subscription_reactivated_before_its_cancellation_stays_active_at_the_provider(
    till: Till, provider: FakePayments, ports: Ports
) -> None:
    subscription = await buy(till, provider, delivered=True)
    provider.answers[f"subscriptions/{subscription['id']}"] = Answer(500)
    for status in ("cancelled", "active", "expired", "active"):
        assert (await till.by_key(status=status)).status == 200
    provider.answers.clear()
    till.clock.advance(plans.LEASE + plans.RETRY_INTERVAL)
    await reconcile(ports)
    assert provider.subscriptions[subscription["id"]]["status"] == "active"
    provider.change(subscription["id"], status="past_due")
    await provider.deliver(till.send_for_status)
    assert await till.status() == "past_due"


async def test_a_subscription_reactivated_during_its_cancellation_is_detached_from_the_provider(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    subscription = await buy(till, provider, delivered=True)

    class Slow(HttpPayments):
        async def cancel(self, id_: str) -> bool:
            counts = await super().cancel(id_)
            assert (await till.by_key(status="active")).status == 200
            return counts

    object.__setattr__(ports, "payments", Slow(provider.settings, clock))
    assert (await till.by_key("DELETE")).status == 204
    assert provider.subscriptions[subscription["id"]]["status"] == "canceled"
    await provider.deliver(till.send_for_status)
    assert await run_sql(pool, "select status, provider_subscription_id from subscriptions") == [("active", None)]
    till.clock.advance(timedelta(seconds=MONTH))
    await subscriptions.sweep(ports, HOLDER)
    assert await till.status() == "expired"


@pytest.mark.parametrize("deleted", ["service", "user", "subscription"])
async def test_all_purchases_are_canceled_when_their_service_or_user_is_deleted(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool, deleted: str
) -> None:
    purchases = await buy_twice(till, provider)
    if deleted == "service":
        path = f"{till.tenant.path}/services/shop"
        assert (await till.tenant.api.delete(path, token=till.tenant.token("owner"))).status == 204
    else:
        await run_sql(pool, "delete from subscriptions")
    if deleted == "user":
        await run_sql(pool, "delete from memberships where user_id = %s", till.tenant.id("member"))
        await run_sql(pool, "delete from service_users where user_id = %s", till.tenant.id("member"))
        await run_sql(pool, "delete from end_users where user_id = %s", till.tenant.id("member"))
        await run_sql(pool, "delete from users where id = %s", till.tenant.id("member"))
    for _ in range(2):
        till.clock.advance(SOON)
        await reconcile(ports)
    assert [provider.subscriptions[subscription["id"]]["status"] for subscription in purchases] == ["canceled"] * 2
    for _ in range(2):
        till.clock.advance(provider_events.CHECKOUT_CHECK_PERIOD)
        counts = await reconcile(ports)
    assert counts == {}, "the checks end"


@pytest.mark.parametrize("deleted", ["services", "users", "organizations"])
async def test_a_waiting_duplicate_is_canceled_with_its_service_even_without_a_checkout(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool, deleted: str
) -> None:
    """A waiting duplicate is known to be ours. A purchase that is first reported after the deletion may belong to another installation."""
    subscription = await buy(till, provider, delivered=True)
    names = ("sub_second", "sub_else")
    for name in names:
        provider.subscriptions[name] = till.subscription(name, customer=subscription["customer"])
    await till.deliver("customer.subscription.created", provider.subscriptions["sub_second"])
    await run_sql(pool, "delete from billing_checkouts")  # as after some time, and as in another installation
    if deleted == "users":
        await run_sql(pool, "delete from subscriptions")
        await run_sql(pool, "delete from memberships where user_id = %s", till.tenant.id("member"))
        await run_sql(pool, "delete from service_users where user_id = %s", till.tenant.id("member"))
        await run_sql(pool, "delete from end_users where user_id = %s", till.tenant.id("member"))
        await run_sql(pool, "delete from users where id = %s", till.tenant.id("member"))
    else:
        await run_sql(pool, "delete from services" if deleted == "services" else "delete from organizations")
    await till.deliver("customer.subscription.created", provider.subscriptions["sub_else"])
    counts = await reconcile(ports)
    assert (counts["orphaned"], counts.get("mismatch")) == (1, None)
    till.clock.advance(plans.RETRY_INTERVAL)
    await reconcile(ports)
    assert [provider.subscriptions[name]["status"] for name in (subscription["id"], *names)] == ["canceled", "canceled", "active"]
    with structlog.testing.capture_logs() as log:
        await provider.deliver(till.send_for_status)
    assert [line["effect"] for line in log if line["event"] == "billing_event"] == ["not_managed_here"] * 2, "nothing is left to manage"


async def test_an_unpaid_purchase_is_not_canceled_with_its_service(till: Till, provider: FakePayments, ports: Ports, pool: Pool) -> None:
    subscription = await buy(till, provider, delivered=True)
    provider.change(subscription["id"], status="incomplete_expired")
    await provider.deliver(till.send_for_status)
    assert (await till.tenant.api.delete(f"{till.tenant.path}/services/shop", token=till.tenant.token("owner"))).status == 204
    till.clock.advance(plans.LEASE)
    assert "failed" not in await reconcile(ports)
    assert await run_sql(pool, "select 1 from billing_cancellations") == []
