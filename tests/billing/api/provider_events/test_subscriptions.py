"""Events about a subscription: status, plan and period, whatever their order and repetition.

The rules are decisions 166, 167, and security H-3, H-4, Z-4.
"""

import itertools
from datetime import UTC, datetime

import pytest

from adapters.postgres.engine.pool import Pool
from core.billing import events
from ports import Ports
from tests.billing.api.billing import CREATED, DAY, DELETED, UPDATED, Till
from tests.fakes.outside import FakeMailTransport
from tests.fakes.payments import event, invoice
from tests.support.builders import deliver, run_concurrently, run_sql
from tests.support.refusals import refused


async def test_a_subscription_of_the_provider_creates_ours(till: Till, pool: Pool) -> None:
    await till.deliver(CREATED, till.subscription())
    assert await till.rows() == [("active", "Gold", "2026-04-13T15:09:26Z")]
    rows = await run_sql(pool, "select org_id, service_id, user_id::text, provider_subscription_id from subscriptions")
    assert rows == [(till.tenant.org, till.service, till.tenant.id("member"), "sub_1")]
    assert await run_sql(pool, "select subscription_count from services") == [(1,)]
    entry = await run_sql(pool, "select action, actor_id, address from audit_log where target_type = 'subscription'")
    assert entry == [("subscription.created", None, None)]
    assert await run_sql(pool, "select name, org_id from events") == [("subscription.created", till.tenant.org)]


async def test_each_status_of_the_provider_maps_to_one_of_four(till: Till) -> None:
    expected = {
        "active": "active",
        "trialing": "active",
        "past_due": "past_due",
        "unpaid": "past_due",
        "incomplete": "past_due",
        "canceled": "cancelled",
        "incomplete_expired": "expired",
        "ended": "expired",
        "something new": "past_due",
    }
    statuses = {}
    for provider_status in expected:
        await till.reset()
        await till.deliver(CREATED, till.subscription(status="active"))
        await till.deliver(UPDATED, till.subscription(status=provider_status), till.now + 1)
        statuses[provider_status] = await till.status()
    assert statuses == expected


async def test_an_update_changes_plan_status_and_period(till: Till) -> None:
    await till.deliver(CREATED, till.subscription())
    end = till.ends + DAY
    await till.deliver(UPDATED, till.subscription(status="past_due", price="price_silver", current_period_end=end), till.now + 1)
    [(status, plan, ends)] = await till.rows()
    assert (status, plan, ends) == ("past_due", "Silver", "2026-04-14T15:09:26Z")
    assert await till.recorded() == ["subscription.created", "subscription.updated"]
    await till.deliver(UPDATED, till.subscription(price="price_of_nothing", current_period_end=end), till.now + 2)
    assert [row[:2] for row in await till.rows()] == [("active", "Silver")], "an unknown price keeps the plan"


async def test_the_period_can_be_in_the_item(till: Till) -> None:
    subscription = till.subscription(current_period_end=None)
    subscription["items"]["data"][0]["current_period_end"] = till.ends
    await till.deliver(CREATED, subscription)
    assert (await till.rows())[0][2] == "2026-04-13T15:09:26Z"


async def test_a_deletion_is_final(till: Till) -> None:
    await till.deliver(CREATED, till.subscription())
    await till.deliver(DELETED, till.subscription(status="canceled"), till.now + 1)
    assert await till.status() == "cancelled"
    await till.deliver(UPDATED, till.subscription(), till.now + 2)
    await till.deliver("invoice.paid", invoice("sub_1", till.ends), till.now + 3)
    await till.deliver("invoice.payment_failed", invoice("sub_1"), till.now + 4)
    assert await till.status() == "cancelled"
    assert await till.recorded() == ["subscription.created", "subscription.canceled"]


async def test_older_events_change_nothing_and_events_of_the_same_second_do(till: Till) -> None:
    await till.deliver(CREATED, till.subscription())
    await till.deliver(UPDATED, till.subscription(status="past_due"), till.now + 10)
    await till.deliver(UPDATED, till.subscription(status="active"), till.now + 9)
    assert await till.status() == "past_due"
    await till.deliver(UPDATED, till.subscription(status="active"), till.now + 10)
    assert await till.status() == "active"
    await till.deliver("invoice.payment_failed", invoice("sub_1"), till.now + 9)
    assert await till.status() == "active"
    await till.deliver("invoice.payment_failed", invoice("sub_1"), till.now + 10)
    assert await till.status() == "past_due"
    await till.deliver(CREATED, till.subscription(status="active"), till.now + 10)
    assert await till.status() == "past_due", "the creation event precedes all others of its second"


async def test_invoices_change_status_and_period(till: Till) -> None:
    await till.deliver(CREATED, till.subscription())
    await till.deliver("invoice.payment_failed", invoice("sub_1"), till.now + 1)
    assert await till.status() == "past_due"
    await till.deliver("invoice.paid", invoice("sub_1", till.ends + 30 * DAY), till.now + 2)
    [(status, _, ends)] = await till.rows()
    assert (status, ends) == ("active", "2026-05-13T15:09:26Z"), "the period is extended"
    newer = {"parent": {"subscription_details": {"subscription": "sub_1"}}}
    await till.deliver("invoice.payment_failed", {**invoice(None), **newer}, till.now + 3)
    assert await till.status() == "past_due", "newer API versions put the subscription below parent"


async def test_an_invoice_that_arrives_before_its_subscription_counts(till: Till) -> None:
    await till.deliver("invoice.paid", invoice("sub_1", till.ends + DAY), till.now + 1)
    assert await till.rows() == []
    await till.deliver(CREATED, till.subscription(status="incomplete"))
    [(status, _, ends)] = await till.rows()
    assert (status, ends) == ("active", "2026-04-14T15:09:26Z")


async def test_facts_without_metadata_are_stored_until_metadata_arrives(till: Till) -> None:
    findings = []
    for metadata in ({}, till.metadata(plan_id="x"), till.metadata(user_id=None), None, "text", 5):
        await till.reset()
        await till.deliver(CREATED, till.subscription(metadata=metadata))
        await till.deliver("invoice.payment_failed", invoice("sub_1"), till.now + 2)
        before = await till.rows()
        await till.deliver(UPDATED, till.subscription(), till.now + 1)
        if (before, await till.status()) != ([], "past_due"):
            findings.append(metadata)
    assert findings == []


async def test_events_without_metadata_match_by_subscription_id(till: Till) -> None:
    await till.deliver(CREATED, till.subscription())
    await till.deliver(UPDATED, till.subscription(metadata={}, status="unpaid"), till.now + 1)
    assert await till.status() == "past_due"


async def test_a_repeated_event_has_no_further_effect(till: Till, pool: Pool) -> None:
    one = event(CREATED, till.subscription(), till.now)
    other = event(UPDATED, till.subscription(status="past_due"), till.now + 1)
    for each in (one, other, one, {**one, "created": till.now + 5}, other):
        assert (await till.send(each)).json == {"status": "success"}
    assert await till.status() == "past_due"
    assert await till.recorded() == ["subscription.created", "subscription.updated"]


async def test_a_repeated_event_changes_no_row_even_if_its_object_is_unreadable(till: Till) -> None:
    one = event(CREATED, till.subscription(), till.now)
    assert await till.send_for_status(one) == 200
    before = await till.stored_rows()
    for subject in (till.subscription(), {}, {"id": "../customers", "status": "active"}, {"id": "sub_1"}):
        assert await till.send_for_status({**one, "data": {"object": subject}}) == 200, subject
    assert await till.stored_rows() == before


async def test_a_failed_event_leaves_no_trace_and_can_be_repeated(till: Till, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    one, before = event(CREATED, till.subscription(), till.now), await till.stored_rows()
    with monkeypatch.context() as patch:
        patch.setattr(events, "subscription_created", broken)
        answer = await till.send(one)
    assert refused(answer) == (500, "INTERNAL_SERVER_ERROR")
    assert await till.stored_rows() == before
    assert await till.send_for_status(one) == 200
    assert await till.status() == "active"


async def test_one_time_purchases_on_an_invoice_do_not_extend_the_period(till: Till) -> None:
    await till.deliver(CREATED, till.subscription())
    bill = invoice("sub_1", till.ends + DAY)
    bill["lines"]["data"].append({"id": "il_2", "type": "invoiceitem", "period": {"start": 0, "end": till.ends + 300 * DAY}})
    await till.deliver("invoice.paid", bill, till.now + 1)
    assert await till.rows() == [("active", "Gold", "2026-04-14T15:09:26Z")]


async def test_the_longest_paid_period_counts_for_any_order_of_events(till: Till) -> None:
    """A newer object from the provider overrides the periods from earlier payments."""

    async def days_since(start: datetime) -> int:
        [(end,)] = await run_sql(till.tenant.pool, "select current_period_end from subscriptions")
        return int((end - start).days)

    for order in itertools.permutations(range(4)):
        await till.reset()
        facts = [
            event(CREATED, till.subscription(current_period_end=till.now), till.now),
            event("invoice.paid", invoice("sub_1", till.now + 30 * DAY), till.now + 1),
            event("invoice.paid", invoice("sub_1", till.now + 20 * DAY), till.now + 2),
            event("invoice.paid", invoice("sub_1", till.now + 10 * DAY), till.now + 3),
        ]
        start = datetime.fromtimestamp(till.now, UTC)
        for number in order:
            assert await till.send_for_status(facts[number]) == 200
        assert await days_since(start) == 30, order
        await till.deliver(UPDATED, till.subscription(current_period_end=till.now + DAY), till.now + 2)
        assert await days_since(start) == 20, "the longest period was paid before that object"
        await till.deliver(UPDATED, till.subscription(current_period_end=till.now + DAY), till.now + 4)
        assert await days_since(start) == 1


async def test_the_known_period_is_kept_for_any_order_of_events(till: Till) -> None:
    """A newer object without a period does not clear it, and an invoice for a shorter period does not shorten it."""
    for order in itertools.permutations(range(3)):
        await till.reset()
        facts = [
            event(CREATED, till.subscription(), till.now),
            event(UPDATED, till.subscription(current_period_end=None), till.now + 1),
            event("invoice.paid", invoice("sub_1", till.now - DAY), till.now + 2),
        ]
        end = datetime.fromtimestamp(till.ends, UTC)
        for number in order:
            assert await till.send_for_status(facts[number]) == 200
        assert await run_sql(till.tenant.pool, "select current_period_end from subscriptions") == [(end,)], order


# Concurrency


async def test_twenty_concurrent_copies_of_an_event_have_one_effect(till: Till, ports: Ports, sent: FakeMailTransport) -> None:
    await till.deliver(CREATED, till.subscription())
    one = event("invoice.payment_action_required", invoice("sub_1"), till.now)
    assert await run_concurrently(20, lambda _: till.send_for_status(one)) == [200] * 20
    await deliver(ports)
    assert len(sent.emails) == 1
    other = event(UPDATED, till.subscription(status="past_due"), till.now + 1)
    assert await run_concurrently(20, lambda _: till.send_for_status(other)) == [200] * 20
    assert await till.recorded() == ["subscription.created", "subscription.updated"]


async def test_concurrent_events_of_a_subscription_lead_to_one_state(till: Till, pool: Pool) -> None:
    events = [
        event(CREATED, till.subscription(status="incomplete"), till.now),
        event("invoice.paid", invoice("sub_1", till.ends), till.now),
        event(UPDATED, till.subscription(), till.now + 1),
        event(UPDATED, till.subscription(price="price_silver"), till.now + 2),
        event("invoice.payment_failed", invoice("sub_1"), till.now + 3),
        event("customer.subscription.trial_will_end", till.subscription(price="price_silver"), till.now + 2),
    ]
    assert await run_concurrently(18, lambda number: till.send_for_status(events[number % 6])) == [200] * 18
    assert [row[:2] for row in await till.rows()] == [("past_due", "Silver")]
    assert await run_sql(pool, "select subscription_count from services") == [(1,)]


async def test_only_one_of_the_concurrent_subscriptions_of_a_user_becomes_active(till: Till) -> None:
    events = [event(CREATED, till.subscription(f"sub_{number}"), till.now) for number in range(8)]
    assert await run_concurrently(8, lambda number: till.send_for_status(events[number])) == [200] * 8
    assert [row[0] for row in await till.rows()] == ["active"]
