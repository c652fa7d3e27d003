"""Events about a subscription that an API key has changed (decision 116)."""

from datetime import timedelta
from uuid import uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from core.billing.subscriptions import sweep
from core.kernel.values import rfc3339
from ports import Ports
from tests.billing.api.billing import CREATED, DAY, DELETED, UPDATED, Till
from tests.fakes.payments import invoice
from tests.support.builders import run_sql


async def test_a_change_by_an_api_key_stays_until_the_provider_reports_another_state(till: Till, pool: Pool) -> None:
    await till.deliver(CREATED, till.subscription())
    await run_sql(pool, "update subscriptions set status = 'expired'")
    await till.deliver(UPDATED, till.subscription(), till.now + 1)
    assert await till.status() == "expired", "the event reports nothing new"
    await till.deliver(UPDATED, till.subscription(status="past_due"), till.now + 2)
    assert await till.status() == "past_due"


async def test_newer_facts_about_the_status_override_an_api_key(till: Till) -> None:
    """This holds even for a status that was known before, but not for repeated or older events."""
    start, ends = till.now, till.ends
    await till.deliver(CREATED, till.subscription())
    await till.deliver("invoice.paid", invoice("sub_1", ends), start + 1)
    past_due, unpaid = (till.subscription(status=status, current_period_end=ends) for status in ("past_due", "unpaid"))
    failed, paid = invoice("sub_1"), invoice("sub_1", ends)
    for at, type_, subject, provider_status, our_status in (
        (10, "invoice.payment_failed", failed, "past_due", "active"),
        (20, "invoice.payment_failed", failed, "past_due", "active"),
        (30, UPDATED, past_due, "past_due", "active"),
        (40, UPDATED, unpaid, "past_due", "active"),
        (50, "invoice.paid", paid, "active", "past_due"),
        (60, "invoice.paid", paid, "active", "past_due"),
    ):
        assert (await till.by_key(status=our_status)).status == 200
        assert await till.deliver_for_effects(type_, subject, start + at) == ["done"]
        assert await till.status() == provider_status
        assert (await till.by_key(status=our_status)).status == 200
        for repeated_at in (start + at, start + at - 1):
            assert await till.deliver_for_effects(type_, subject, repeated_at) == ["unchanged"]
        if type_ == UPDATED:
            assert await till.deliver_for_effects(type_, subject, start + at + 1) == ["unchanged"]
        assert await till.status() == our_status


async def test_an_event_overrides_only_the_fields_that_it_reports(till: Till) -> None:
    await till.deliver(CREATED, till.subscription())
    assert (await till.by_key(plan_id=str(till.silver))).status == 200
    await till.deliver("invoice.paid", invoice("sub_1", till.ends + 30 * DAY), till.now + 1)
    assert await till.rows() == [("active", "Silver", "2026-05-13T15:09:26Z")], "an invoice does not report the plan"
    assert (await till.by_key(current_period_end="2026-12-24T00:00:00Z")).status == 200
    await till.deliver("invoice.payment_failed", invoice("sub_1"), till.now + 2)
    assert await till.rows() == [("past_due", "Silver", "2026-12-24T00:00:00Z")], "a failed invoice does not report the period"
    await till.deliver(UPDATED, till.subscription(current_period_end=till.ends + DAY), till.now + 3)
    assert await till.rows() == [("active", "Silver", "2026-04-14T15:09:26Z")], "the price is unchanged at the provider"
    for price, plan in (("price_silver", "Silver"), ("price_gold", "Gold")):
        await till.deliver(UPDATED, till.subscription(price=price, current_period_end=till.ends + DAY), till.now + 4)
        assert [row[1] for row in await till.rows()] == [plan]


@pytest.mark.parametrize("provider_status", ["canceled", "incomplete_expired"])
async def test_an_ended_subscription_that_a_key_reactivates_is_detached_from_the_provider(
    till: Till, ports: Ports, pool: Pool, provider_status: str
) -> None:
    await till.deliver(CREATED, till.subscription())
    await till.deliver(DELETED if provider_status == "canceled" else UPDATED, till.subscription(status=provider_status), till.now + 1)
    assert (await till.by_key(status="active")).status == 200
    before = await till.rows()
    assert [row[0] for row in before] == ["active"]
    assert await run_sql(pool, "select provider_subscription_id from subscriptions") == [(None,)]
    # Later events for the old subscription change nothing. If it is live again, the user still
    # pays, which is reported.
    effect = "not_managed_here" if provider_status == "canceled" else "mismatch"
    assert await till.deliver_for_effects(UPDATED, till.subscription(status="past_due"), till.now + 2) == [effect]
    for type_, subject in ((DELETED, till.subscription(status="canceled")), ("invoice.paid", invoice("sub_1", till.ends + DAY))):
        assert await till.deliver_for_effects(type_, subject, till.now + 3) == ["not_managed_here"]
    assert await till.rows() == before
    ends = till.clock.now() + timedelta(seconds=3)
    assert (await till.by_key(current_period_end=rfc3339(ends))).json["status"] == "active"
    till.clock.advance(timedelta(seconds=4))
    assert (await till.by_key("GET")).json["status"] == "expired"
    await sweep(ports, uuid4())
    assert await till.status() == "expired"
    assert (await till.by_key("DELETE")).status == 204
    assert await till.rows() == []
    assert await run_sql(pool, "select 1 from billing_cancellations") == []


async def test_a_live_subscription_that_a_key_reactivates_stays_at_the_provider(till: Till, pool: Pool) -> None:
    await till.deliver(CREATED, till.subscription())
    for status in ("cancelled", "expired"):
        assert (await till.by_key(status=status)).status == 200
        assert (await till.by_key(status="active")).status == 200
    assert await run_sql(pool, "select provider_subscription_id from subscriptions") == [("sub_1",)]
    await till.deliver(UPDATED, till.subscription(status="past_due"), till.now + 1)
    assert await till.status() == "past_due"
