"""A user's second subscription waits until the first subscription ends."""

from datetime import timedelta

import pytest
import trio

from adapters.postgres.engine.pool import Pool
from core.billing import provider_events, subscriptions
from core.billing.model import provider_events as provider_events_model
from core.billing.model.provider_facts import CHECK_INTERVAL, SOON
from core.kernel.causes import SYSTEM
from ports import Ports
from tests.actors.reconciler.helpers import HOLDER, active_subscriptions, buy, buy_twice, reconcile
from tests.billing.api.billing import Till
from tests.fakes.http_server import Answer
from tests.fakes.payments import FakePayments, event, invoice
from tests.support.builders import run_concurrently, run_sql
from tests.support.services import add_subscription


@pytest.mark.parametrize("delivered", [True, False])
async def test_a_duplicate_becomes_active_when_the_first_subscription_ends(
    till: Till, provider: FakePayments, ports: Ports, *, delivered: bool
) -> None:
    first, second = await buy_twice(till, provider)
    bill = {"id": "in_2", "object": "invoice", "subscription": second["id"], "customer": second["customer"]}
    await till.deliver("invoice.paid", bill, till.now + 1)  # it names no organization
    if delivered:
        ended = provider.change(first["id"], status="canceled")
        await till.deliver("customer.subscription.deleted", ended, till.now + 2)
    else:
        provider.subscriptions[first["id"]]["status"] = "canceled"
        till.clock.advance(CHECK_INTERVAL + SOON)
    for _ in range(2):
        await reconcile(ports)
    assert sorted(status for status, _, _ in await till.rows()) == ["active", "cancelled"]
    assert await active_subscriptions(till) == [second["id"]]


@pytest.mark.parametrize("status", [None, "cancelled", "expired"])
@pytest.mark.parametrize("is_down", [False, True])
async def test_a_duplicate_becomes_active_when_an_api_key_ends_the_first_subscription(
    till: Till, provider: FakePayments, ports: Ports, status: str | None, *, is_down: bool
) -> None:
    """This needs no event, and it does not matter whether the provider has processed the cancellation."""
    first, second = await buy_twice(till, provider)
    if is_down:
        provider.answers[f"subscriptions/{first['id']}"] = Answer(500)
    answer = await till.by_key("DELETE") if status is None else await till.by_key(status=status)
    assert answer.status == (204 if status is None else 200)
    await reconcile(ports)
    assert await active_subscriptions(till) == [second["id"]]


async def test_a_purchase_becomes_active_when_the_organizations_own_subscription_ends(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    member = till.tenant.people["member"].id
    for end in ("time", "key", "statement"):
        subscription = provider.complete((await till.begin()).json["session_id"])
        await add_subscription(ports, pool, till.service, member, till.silver, ends=till.clock.now() + timedelta(minutes=1))
        await provider.deliver(till.send_for_status)
        assert [row[:2] for row in await till.rows()] == [("active", "Silver")]
        match end:
            case "time":
                till.clock.advance(timedelta(minutes=1))
                await subscriptions.sweep(ports, HOLDER)
            case "key":
                assert (await till.by_key("DELETE")).status == 204
            case _:
                await run_sql(pool, "delete from subscriptions")
        await reconcile(ports)
        assert await active_subscriptions(till) == [subscription["id"]]
        await run_sql(pool, "delete from subscriptions")
        await reconcile(ports)
        provider.events.clear()


async def test_a_duplicate_without_metadata_is_checked_once_and_again_when_the_first_ends(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    _, second = await buy_twice(till, provider)
    await run_sql(pool, "delete from billing_checkouts")  # as after some time
    provider.subscriptions[second["id"]]["metadata"] = {}

    async def count_requests() -> int:
        provider.requests.clear()
        for _ in range(24):
            till.clock.advance(timedelta(hours=1))
            await reconcile(ports)
        return [path for _, path, _ in provider.requests].count(f"subscriptions/{second['id']}")

    assert [await count_requests() for _ in range(3)] == [1, 0, 0]
    assert (await till.by_key("DELETE")).status == 204
    assert [await count_requests() for _ in range(2)] == [1, 0]
    assert await till.status() == "cancelled"


async def test_a_duplicate_without_a_customer_becomes_active_too(till: Till, provider: FakePayments, ports: Ports) -> None:
    subscription = await buy(till, provider, delivered=True)
    second = {**till.subscription("sub_second"), "customer": None}
    provider.subscriptions["sub_second"] = second
    await till.deliver("customer.subscription.created", second)
    provider.subscriptions[subscription["id"]]["status"] = "canceled"
    await till.deliver("customer.subscription.deleted", provider.subscriptions[subscription["id"]])
    await reconcile(ports)
    assert sorted(row[0] for row in await till.rows()) == ["active", "cancelled"]


@pytest.mark.parametrize("is_paid", [False, True])
async def test_a_revived_subscription_is_checked_when_the_other_one_ends(
    till: Till, provider: FakePayments, ports: Ports, *, is_paid: bool
) -> None:
    """An event without a status in between does not change that."""
    subscription = await buy(till, provider, delivered=True)
    provider.change(subscription["id"], status="incomplete_expired")
    await provider.deliver(till.send_for_status)
    other = await buy(till, provider, delivered=True)
    provider.change(subscription["id"], status="active")
    till.clock.advance(timedelta(seconds=1))
    await till.deliver("customer.subscription.updated", provider.subscriptions[subscription["id"]])
    provider.events.clear()
    if is_paid:
        await till.deliver("invoice.paid", invoice(subscription["id"], till.ends, customer=subscription["customer"]))
    assert await active_subscriptions(till) == [other["id"]]
    till.clock.advance(timedelta(seconds=1))
    assert (await till.by_key("DELETE")).status == 204
    await reconcile(ports)
    assert await active_subscriptions(till) == [subscription["id"]]


async def test_a_duplicate_with_an_event_at_the_end_of_the_first_is_checked_soon(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    _, second = await buy_twice(till, provider)
    await run_sql(pool, "update billing_checkouts set check_at = null")  # as after some days
    till.clock.advance(SOON)
    await reconcile(ports)
    bill = provider_events_model.read_event(event("invoice.paid", invoice(second["id"], till.ends, customer=second["customer"]), till.now))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        locked = await tx.billing.lock_subscription(second["id"], till.clock.now())
        _, handler = provider_events.SUBSCRIPTION_HANDLERS[bill.type]
        await handler(tx, bill, locked, till.clock.now())
        with trio.fail_after(5):
            await run_concurrently(1, lambda _: till.by_key("DELETE"))
    till.clock.advance(SOON)
    await reconcile(ports)
    assert await active_subscriptions(till) == [second["id"]]
