"""The billing reconciler repairs what lost events left.

It asks the payment provider in bounded batches, in a single process at a time (security N-9).
"""

from datetime import UTC, datetime, timedelta

import pytest
import structlog

from actors import sweep_jobs as actor
from adapters.http.payments import HttpPayments
from adapters.postgres.engine.pool import Pool
from core.billing import reconciliation
from core.billing.model import provider_events as reconciliation_model
from core.billing.model.provider_facts import AFTER_PERIOD, CHECK_INTERVAL, LATE_EVENTS, SOON
from core.kernel.values import new_id, rfc3339
from ports import Ports
from tests.actors.reconciler.helpers import HOLDER, active_subscriptions, add_failing_check, buy, reconcile, run_rounds
from tests.billing.api.billing import Till
from tests.fakes.http_server import Answer
from tests.fakes.outside import FakeClock
from tests.fakes.payments import MONTH, FakePayments, invoice
from tests.support.builders import run_sql


async def test_a_completed_checkout_without_events_is_found(till: Till, provider: FakePayments, ports: Ports) -> None:
    await buy(till, provider, delivered=False)
    assert await reconcile(ports) == {}, "its events may still arrive"
    till.clock.advance(SOON)
    assert await reconcile(ports) == {"checkouts": 1, "changed": 1}
    assert [row[:2] for row in await till.rows()] == [("active", "Gold")]
    assert await till.recorded() == ["subscription.created"]
    till.clock.advance(SOON)
    assert await reconcile(ports) == {}


async def test_an_abandoned_checkout_is_checked_for_some_days(till: Till, provider: FakePayments, ports: Ports) -> None:
    assert (await till.begin()).status == 200
    check_count = 0
    for _ in range(100):
        till.clock.advance(timedelta(hours=1))
        check_count += (await reconcile(ports)).get("checkouts", 0)
    assert check_count == 72 + 1
    assert await till.rows() == []


async def test_a_subscription_is_checked_if_only_its_checkout_event_arrived(till: Till, provider: FakePayments, ports: Ports) -> None:
    provider.complete((await till.begin()).json["session_id"])
    await till.send_for_status(provider.events[-1])
    assert await till.rows() == []
    till.clock.advance(SOON)
    await reconcile(ports)
    assert await till.status() == "active"


@pytest.mark.parametrize(("theirs", "ours"), [("past_due", "past_due"), ("canceled", "cancelled"), ("incomplete_expired", "expired")])
async def test_a_change_without_an_event_is_found_within_a_day(
    till: Till, provider: FakePayments, ports: Ports, theirs: str, ours: str
) -> None:
    subscription = await buy(till, provider, delivered=True)
    provider.subscriptions[subscription["id"]]["status"] = theirs
    till.clock.advance(CHECK_INTERVAL - timedelta(seconds=10))
    assert await reconcile(ports) == {}
    till.clock.advance(timedelta(seconds=10))
    assert await reconcile(ports) == {"subscriptions": 1, "changed": 1}
    assert await till.status() == ours
    till.clock.advance(CHECK_INTERVAL)
    assert await reconcile(ports) == ({"subscriptions": 1} if ours == "past_due" else {}), "an ended subscription is not checked again"


async def test_a_period_that_ended_without_an_event_is_checked_soon(till: Till, provider: FakePayments, ports: Ports) -> None:
    subscription = await buy(till, provider, delivered=True)
    till.clock.advance(timedelta(seconds=MONTH) - timedelta(hours=1))
    await reconcile(ports)
    provider.subscriptions[subscription["id"]]["current_period_end"] = till.now + 2 * MONTH
    till.clock.advance(timedelta(hours=1) + AFTER_PERIOD)
    assert await reconcile(ports) == {"subscriptions": 1, "changed": 1}
    assert (await till.rows())[0][2] > "2026-06"


async def test_a_subscription_unknown_to_the_provider_ends_with_its_period(till: Till, provider: FakePayments, ports: Ports) -> None:
    subscription = await buy(till, provider, delivered=True)
    del provider.subscriptions[subscription["id"]]
    till.clock.advance(CHECK_INTERVAL)
    await reconcile(ports)
    assert await till.status() == "active"
    till.clock.advance(timedelta(seconds=MONTH))
    assert (await reconcile(ports))["lapsed"] == 1
    assert await till.status() == "expired"
    till.clock.advance(CHECK_INTERVAL)
    assert await reconcile(ports) == {}


async def test_an_unknown_subscription_is_reported_once_a_day_while_it_is_active(till: Till, provider: FakePayments, ports: Ports) -> None:
    """Nothing else shows that the API key belongs to another account or mode."""
    subscription = await buy(till, provider, delivered=True)
    del provider.subscriptions[subscription["id"]]
    with structlog.testing.capture_logs() as log:
        counts = await run_rounds(till, ports, 3 * 24, timedelta(hours=1))
    assert counts == [{"subscriptions": 1, "unknown": 1}] * 3
    assert [line for line in log if line["event"] == "billing_checked"] == [
        {
            "event": "billing_checked",
            "subscription": subscription["id"],
            "org_id": str(till.tenant.org),
            "effect": "unknown",
            "log_level": "warning",
        }
    ] * 3
    provider.answers[f"subscriptions/{subscription['id']}"] = Answer(500)  # so that the cancellation stays pending
    assert (await till.by_key("DELETE")).status == 204
    provider.answers.clear()
    till.clock.advance(CHECK_INTERVAL)
    assert "unknown" not in await reconcile(ports)


async def test_the_last_paid_period_counts_for_a_subscription_unknown_to_the_provider(
    till: Till, provider: FakePayments, ports: Ports
) -> None:
    subscription = await buy(till, provider, delivered=True)
    ends = till.now + 2 * MONTH
    await till.deliver("invoice.paid", invoice(subscription["id"], ends, customer=subscription["customer"]), till.now + 1)
    del provider.subscriptions[subscription["id"]]
    till.clock.advance(timedelta(seconds=2 * MONTH) + AFTER_PERIOD)
    assert (await reconcile(ports))["lapsed"] == 1
    assert [(row[0], row[2]) for row in await till.rows()] == [("expired", rfc3339(datetime.fromtimestamp(ends, UTC)))]


async def test_a_check_is_newer_than_a_late_event(till: Till, provider: FakePayments, ports: Ports) -> None:
    subscription = await buy(till, provider, delivered=True)
    provider.change(subscription["id"], status="past_due")  # its event arrives two days late
    till.clock.advance(CHECK_INTERVAL)
    provider.subscriptions[subscription["id"]]["status"] = "active"
    provider.subscriptions[subscription["id"]]["current_period_end"] += MONTH
    await reconcile(ports)
    await provider.deliver(till.send_for_status)
    assert await till.status() == "active"


async def test_each_finding_is_logged_with_its_organization(till: Till, provider: FakePayments, ports: Ports) -> None:
    subscription = await buy(till, provider, delivered=True)
    for price, effect, level in (("price_silver", "done", "info"), ("price_of_nothing", "mismatch", "warning")):
        provider.change(subscription["id"], price=price)
        till.clock.advance(CHECK_INTERVAL)
        with structlog.testing.capture_logs() as log:
            counts = await actor.reconcile_subscriptions(ports, HOLDER)
        assert counts == {"subscriptions": 1, {"done": "changed", "mismatch": "mismatch"}[effect]: 1}
        assert [line for line in log if line["event"] == "billing_checked"] == [
            {
                "event": "billing_checked",
                "subscription": subscription["id"],
                "org_id": str(till.tenant.org),
                "effect": effect,
                "log_level": level,
            }
        ]
    till.clock.advance(CHECK_INTERVAL)
    assert await actor.reconcile_subscriptions(ports, HOLDER) == {"subscriptions": 1}
    assert [row[:2] for row in await till.rows()] == [("active", "Silver")]


async def test_a_new_state_at_the_provider_overrides_a_change_by_an_api_key(till: Till, provider: FakePayments, ports: Ports) -> None:
    subscription = await buy(till, provider, delivered=True)
    provider.change(subscription["id"], status="past_due")
    till.clock.advance(timedelta(seconds=1))
    await provider.deliver(till.send_for_status)
    for theirs, counts, ours in (("past_due", {}, "active"), ("unpaid", {"changed": 1}, "past_due"), ("unpaid", {}, "active")):
        assert (await till.by_key(status="active")).status == 200
        provider.subscriptions[subscription["id"]]["status"] = theirs
        till.clock.advance(CHECK_INTERVAL)
        assert await reconcile(ports) == {"subscriptions": 1, **counts}
        assert await till.status() == ours


async def test_a_mismatch_with_stored_data_is_reported_once_a_day(till: Till, provider: FakePayments, ports: Ports) -> None:
    subscription = await buy(till, provider, delivered=True)
    provider.subscriptions[subscription["id"]]["metadata"] = till.metadata(user_id=till.tenant.id("owner"))
    reports = []
    for _ in range(3 * 24):
        till.clock.advance(timedelta(hours=1))
        reports.append((await reconcile(ports)).get("mismatch", 0))
    assert sum(reports) == 3


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_second_paid_checkout_without_events_is_found(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool, *, is_known: bool
) -> None:
    """It is reported once a day, whether or not the first subscription's checkout is known."""
    pages = [(await till.begin()).json["session_id"] for _ in range(2)]
    first = provider.complete(pages[0])
    if not is_known:
        provider.events = [one for one in provider.events if one["type"] != "checkout.session.completed"]
    await provider.deliver(till.send_for_status)
    open_ = [session for (session,) in await run_sql(pool, "select session_id from billing_checkouts where check_at is not null")]
    assert sorted(open_) == sorted(pages[1:] if is_known else pages)
    till.clock.advance(SOON)
    assert await reconcile(ports) == {"checkouts": len(open_)}, "the provider has no news"
    second = provider.complete(pages[1])
    provider.events.clear()
    reports = []
    for _ in range(5 * 8):
        till.clock.advance(timedelta(hours=3))
        reports.append((await reconcile(ports)).get("duplicate_subscription", 0))
    assert (sum(reports), reports[0]) == (5, 1)
    assert await run_sql(pool, "select 1 from billing_checkouts where check_at is not null") == []
    assert await active_subscriptions(till) == [first["id"]]
    assert (await till.by_key("DELETE")).status == 204
    await reconcile(ports)
    assert await active_subscriptions(till) == [second["id"]]


async def test_of_two_purchases_without_events_the_first_becomes_active(till: Till, provider: FakePayments, ports: Ports) -> None:
    pages = [(await till.begin()).json["session_id"] for _ in range(2)]
    first, _ = [provider.complete(page) for page in pages]
    provider.events.clear()
    till.clock.advance(SOON)
    assert await reconcile(ports) == {"checkouts": 2, "changed": 1, "duplicate_subscription": 1}
    assert await active_subscriptions(till) == [first["id"]]


async def test_the_checkout_event_may_arrive_first_or_last(till: Till, provider: FakePayments, pool: Pool) -> None:
    for name, order in (("member", 1), ("owner", -1)):
        provider.complete((await till.begin(by=name)).json["session_id"])
        for one in provider.events[::order]:
            assert await till.send_for_status(one) == 200
        provider.events.clear()
        assert await run_sql(pool, "select 1 from billing_checkouts where check_at is not null") == []
    assert [row[0] for row in await till.rows()] == ["active"] * 2


async def test_a_mismatch_of_a_found_purchase_is_reported_once_a_day(till: Till, provider: FakePayments, ports: Ports) -> None:
    subscription = await buy(till, provider, delivered=False)
    provider.subscriptions[subscription["id"]]["items"]["data"][0]["price"]["id"] = "price_of_nothing"
    reports = []
    for _ in range(5 * 8):
        till.clock.advance(timedelta(hours=3))
        reports.append((await reconcile(ports)).get("mismatch", 0))
    assert (sum(reports[:8]), sum(reports[8:16]), sum(reports[16:24]), sum(reports[32:])) == (1, 1, 1, 0)


async def test_one_process_at_a_time_reconciles(till: Till, provider: FakePayments, ports: Ports) -> None:
    await reconcile(ports)
    assert await reconciliation.reconcile(ports, new_id()) is None
    till.clock.advance(reconciliation_model.LEASE)
    assert await reconciliation.reconcile(ports, new_id()) == {}


async def test_failing_checks_do_not_delay_others(till: Till, provider: FakePayments, ports: Ports) -> None:
    subscription = await buy(till, provider, delivered=True)
    provider.subscriptions[subscription["id"]]["status"] = "past_due"
    for name in ("sub_a", "sub_b"):
        await add_failing_check(till, provider, name, till.clock.now())
    till.clock.advance(CHECK_INTERVAL)
    assert await reconcile(ports) == {"subscriptions": 3, "changed": 1, "failed": 2}
    assert await reconcile(ports) == {}
    till.clock.advance(reconciliation_model.RETRY_INTERVAL)
    assert await reconcile(ports) == {"subscriptions": 2, "failed": 2}


async def test_an_unreadable_subscription_delays_no_others(till: Till, provider: FakePayments, ports: Ports) -> None:
    """It is reported by its id and checked again after some minutes. The provider does not count as down."""
    subscription = await buy(till, provider, delivered=True)
    provider.answers[f"subscriptions/{subscription['id']}"] = Answer(200, b"{{{")
    till.clock.advance(CHECK_INTERVAL)
    provider.requests.clear()
    with structlog.testing.capture_logs() as log:
        counts = await run_rounds(till, ports, 60, timedelta(minutes=1))
    assert counts == [{"subscriptions": 1, "failed": 1}] * 12
    assert len(provider.requests) == 12
    assert {line["subscription"] for line in log if line["event"] == "billing_checked" and line["effect"] == "failed"} == {
        subscription["id"]
    }
    provider.answers.clear()
    till.clock.advance(reconciliation_model.RETRY_INTERVAL)
    assert await reconcile(ports) == {"subscriptions": 1}


async def test_without_a_provider_a_subscription_that_is_not_renewed_ends_after_its_period(
    till: Till, ports: Ports, clock: FakeClock
) -> None:
    object.__setattr__(ports, "payments", HttpPayments(None, clock))
    for id_ in ("sub_1", "sub_else"):
        metadata = till.metadata() if id_ == "sub_1" else {}
        await till.deliver("customer.subscription.created", till.subscription(id_, metadata=metadata))
    for moment, status in (
        (timedelta(seconds=MONTH), "active"),
        (LATE_EVENTS - timedelta(hours=1), "active"),
        (timedelta(hours=2), "expired"),
    ):
        clock.advance(moment)
        await reconcile(ports)
        assert await till.status() == status
    clock.advance(CHECK_INTERVAL)
    assert await reconcile(ports) == {}
