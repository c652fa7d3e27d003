"""The billing reconciler repairs the effects of lost events.

It asks the payment provider in bounded batches, in one process at a time, and the provider may be down (decisions 165, 169;
security N-9).
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

import pytest
import structlog
import trio

from actors import billing_reconciler as actor
from adapters.http.payments import HttpPayments
from adapters.postgres.engine.pool import Pool
from core.applications import cancellations_rules
from core.billing import provider_events, provider_events_rules, provider_state, reconciliation, reconciliation_rules, subscriptions
from core.billing.provider_facts import AFTER_PERIOD, CHECK_INTERVAL, LATE_EVENTS, SOON
from core.billing.provider_objects import parse_subscription
from core.kernel.principals import SYSTEM, Role
from core.kernel.values import new_id, rfc3339
from entrypoints.http.app import create_app
from ports import Ports
from tests.billing.api.billing import Till, open_till
from tests.fakes.http_server import Answer
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.fakes.payments import MONTH, SECRET, FakePayments, Object, event, invoice
from tests.support.builders import Api, everyone, make_edge, make_ports, run_sql
from tests.support.services import add_subscription
from tests.support.tenants import Tenants

if TYPE_CHECKING:
    from quart_trio.testing import TrioClient

HOLDER = new_id()


@pytest.fixture
def provider(clock: FakeClock) -> Iterator[FakePayments]:
    with FakePayments(now=lambda: clock.now().timestamp()) as running:
        yield running


@pytest.fixture
async def ports(pool: Pool, clock: FakeClock, sent: FakeMailTransport, metrics: FakeMetrics, provider: FakePayments) -> Ports:
    return await make_ports(pool, clock, sent, metrics, payments=HttpPayments(provider.settings, clock))


@pytest.fixture
async def till(ports: Ports, pool: Pool, clock: FakeClock) -> Till:
    app = create_app(
        ports, make_edge(billing_secrets=(SECRET,)), observe=lambda _: None, exposition=lambda: b"", exposition_type="text/plain"
    )
    acme = await Tenants(Api(cast("TrioClient", app.test_client())), ports, pool).add(
        "acme", cast={"owner": Role.OWNER, "member": Role.MEMBER}
    )
    return await open_till(acme, clock)


async def buy(till: Till, provider: FakePayments, *, heard: bool) -> Object:
    """Let the member buy a subscription, and deliver its events if `heard`."""
    made = provider.complete((await till.begin()).json["session_id"])
    if heard:
        await provider.deliver(till.sent)
    provider.events.clear()
    provider.asked.clear()
    return made


async def reconcile(ports: Ports) -> dict[str, int]:
    done = await reconciliation.reconcile(ports, HOLDER)
    assert done is not None, "no other process has the lease"
    return dict(done)


async def run_rounds(till: Till, ports: Ports, count: int, pause: timedelta) -> list[Mapping[str, int]]:
    """Reconcile `count` times with a pause before each, and return the results that are not empty."""
    done = []
    for _ in range(count):
        till.clock.advance(pause)
        done.append(await actor.reconcile(ports, HOLDER))
    return [each for each in done if each]


async def active_subscriptions(till: Till) -> list[str | None]:
    """Return the provider's ids of the active subscriptions, with None for those without a provider."""
    found = await run_sql(till.tenant.pool, "select provider_subscription_id from subscriptions where status = 'active'")
    return [name for (name,) in found]


async def add_failing_check(till: Till, provider: FakePayments, name: str, since: datetime) -> None:
    """Add a subscription with this id to check, and let the provider fail for it."""
    facts = "insert into billing_facts (provider_subscription_id, org_id, heard_at, check_at) values (%s, %s, %s, %s)"
    await run_sql(till.tenant.pool, facts, name, till.tenant.org, since, since)
    provider.answers[f"subscriptions/{name}"] = Answer(500)


async def test_a_completed_checkout_without_events_is_found(till: Till, provider: FakePayments, ports: Ports) -> None:
    await buy(till, provider, heard=False)
    assert await reconcile(ports) == {}, "its events may still arrive"
    till.clock.advance(SOON)
    assert await reconcile(ports) == {"checkouts": 1, "changed": 1}
    assert [row[:2] for row in await till.rows()] == [("active", "Gold")]
    assert await till.recorded() == ["subscription.created"]
    till.clock.advance(SOON)
    assert await reconcile(ports) == {}


async def test_an_abandoned_checkout_is_checked_for_some_days(till: Till, provider: FakePayments, ports: Ports) -> None:
    assert (await till.begin()).status == 200
    asked = 0
    for _ in range(100):
        till.clock.advance(timedelta(hours=1))
        asked += (await reconcile(ports)).get("checkouts", 0)
    assert asked == 72 + 1
    assert await till.rows() == []


async def test_a_subscription_is_checked_if_only_its_checkout_event_arrived(till: Till, provider: FakePayments, ports: Ports) -> None:
    provider.complete((await till.begin()).json["session_id"])
    await till.sent(provider.events[-1])
    assert await till.rows() == []
    till.clock.advance(SOON)
    await reconcile(ports)
    assert await till.status() == "active"


@pytest.mark.parametrize(("theirs", "ours"), [("past_due", "past_due"), ("canceled", "cancelled"), ("incomplete_expired", "expired")])
async def test_a_change_without_an_event_is_found_within_a_day(
    till: Till, provider: FakePayments, ports: Ports, theirs: str, ours: str
) -> None:
    made = await buy(till, provider, heard=True)
    provider.subscriptions[made["id"]]["status"] = theirs
    till.clock.advance(CHECK_INTERVAL - timedelta(seconds=10))
    assert await reconcile(ports) == {}
    till.clock.advance(timedelta(seconds=10))
    assert await reconcile(ports) == {"subscriptions": 1, "changed": 1}
    assert await till.status() == ours
    till.clock.advance(CHECK_INTERVAL)
    assert await reconcile(ports) == ({"subscriptions": 1} if ours == "past_due" else {}), "an ended subscription is not checked again"


async def test_a_period_that_ended_without_an_event_is_checked_soon(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await buy(till, provider, heard=True)
    till.clock.advance(timedelta(seconds=MONTH) - timedelta(hours=1))
    await reconcile(ports)
    provider.subscriptions[made["id"]]["current_period_end"] = till.now + 2 * MONTH
    till.clock.advance(timedelta(hours=1) + AFTER_PERIOD)
    assert await reconcile(ports) == {"subscriptions": 1, "changed": 1}
    assert (await till.rows())[0][2] > "2026-06"


async def test_a_subscription_unknown_to_the_provider_ends_with_its_period(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await buy(till, provider, heard=True)
    del provider.subscriptions[made["id"]]
    till.clock.advance(CHECK_INTERVAL)
    await reconcile(ports)
    assert await till.status() == "active"
    till.clock.advance(timedelta(seconds=MONTH))
    assert (await reconcile(ports))["lapsed"] == 1
    assert await till.status() == "expired"
    till.clock.advance(CHECK_INTERVAL)
    assert await reconcile(ports) == {}


async def test_an_unknown_subscription_is_reported_once_a_day_while_it_is_active(till: Till, provider: FakePayments, ports: Ports) -> None:
    """This is the only sign of an API key of another account or mode."""
    made = await buy(till, provider, heard=True)
    del provider.subscriptions[made["id"]]
    with structlog.testing.capture_logs() as log:
        done = await run_rounds(till, ports, 3 * 24, timedelta(hours=1))
    assert done == [{"subscriptions": 1, "unknown": 1}] * 3
    assert [line for line in log if line["event"] == "billing_learnt"] == [
        {
            "event": "billing_learnt",
            "subscription": made["id"],
            "org_id": str(till.tenant.org),
            "effect": "unknown",
            "log_level": "warning",
        }
    ] * 3
    provider.answers[f"subscriptions/{made['id']}"] = Answer(500)  # so that the cancellation stays pending
    assert (await till.by_key("DELETE")).status == 204
    provider.answers.clear()
    till.clock.advance(CHECK_INTERVAL)
    assert "unknown" not in await reconcile(ports)


async def test_the_last_paid_period_counts_for_a_subscription_unknown_to_the_provider(
    till: Till, provider: FakePayments, ports: Ports
) -> None:
    made = await buy(till, provider, heard=True)
    ends = till.now + 2 * MONTH
    await till.tell("invoice.paid", invoice(made["id"], ends, customer=made["customer"]), till.now + 1)
    del provider.subscriptions[made["id"]]
    till.clock.advance(timedelta(seconds=2 * MONTH) + AFTER_PERIOD)
    assert (await reconcile(ports))["lapsed"] == 1
    assert [(row[0], row[2]) for row in await till.rows()] == [("expired", rfc3339(datetime.fromtimestamp(ends, UTC)))]


async def test_a_check_is_newer_than_a_late_event(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await buy(till, provider, heard=True)
    provider.change(made["id"], status="past_due")  # its event arrives two days late
    till.clock.advance(CHECK_INTERVAL)
    provider.subscriptions[made["id"]]["status"] = "active"
    provider.subscriptions[made["id"]]["current_period_end"] += MONTH
    await reconcile(ports)
    await provider.deliver(till.sent)
    assert await till.status() == "active"


async def test_each_finding_is_logged_with_its_organization(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await buy(till, provider, heard=True)
    for price, effect, level in (("price_silver", "done", "info"), ("price_of_nothing", "mismatch", "warning")):
        provider.change(made["id"], price=price)
        till.clock.advance(CHECK_INTERVAL)
        with structlog.testing.capture_logs() as log:
            done = await actor.reconcile(ports, HOLDER)
        assert done == {"subscriptions": 1, {"done": "changed", "mismatch": "mismatch"}[effect]: 1}
        assert [line for line in log if line["event"] == "billing_learnt"] == [
            {"event": "billing_learnt", "subscription": made["id"], "org_id": str(till.tenant.org), "effect": effect, "log_level": level}
        ]
    till.clock.advance(CHECK_INTERVAL)
    assert await actor.reconcile(ports, HOLDER) == {"subscriptions": 1}
    assert [row[:2] for row in await till.rows()] == [("active", "Silver")]


async def test_a_new_state_at_the_provider_overrides_a_change_by_an_api_key(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await buy(till, provider, heard=True)
    provider.change(made["id"], status="past_due")
    till.clock.advance(timedelta(seconds=1))
    await provider.deliver(till.sent)
    for theirs, done, ours in (("past_due", {}, "active"), ("unpaid", {"changed": 1}, "past_due"), ("unpaid", {}, "active")):
        assert (await till.by_key(status="active")).status == 200
        provider.subscriptions[made["id"]]["status"] = theirs
        till.clock.advance(CHECK_INTERVAL)
        assert await reconcile(ports) == {"subscriptions": 1, **done}
        assert await till.status() == ours


async def test_a_mismatch_with_stored_data_is_reported_once_a_day(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await buy(till, provider, heard=True)
    provider.subscriptions[made["id"]]["metadata"] = till.metadata(user_id=till.tenant.id("owner"))
    reports = []
    for _ in range(3 * 24):
        till.clock.advance(timedelta(hours=1))
        reports.append((await reconcile(ports)).get("mismatch", 0))
    assert sum(reports) == 3


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_second_paid_checkout_without_events_is_found(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool, *, is_known: bool
) -> None:
    """It is reported once a day, whether or not the checkout of the first subscription is known."""
    pages = [(await till.begin()).json["session_id"] for _ in range(2)]
    first = provider.complete(pages[0])
    if not is_known:
        provider.events = [one for one in provider.events if one["type"] != "checkout.session.completed"]
    await provider.deliver(till.sent)
    open_ = [session for (session,) in await run_sql(pool, "select session_id from billing_checkouts where check_at is not null")]
    assert sorted(open_) == sorted(pages[1:] if is_known else pages)
    till.clock.advance(SOON)
    assert await reconcile(ports) == {"checkouts": len(open_)}, "the provider has no news"
    second = provider.complete(pages[1])
    provider.events.clear()
    reports = []
    for _ in range(5 * 24):
        till.clock.advance(timedelta(hours=1))
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
            assert await till.sent(one) == 200
        provider.events.clear()
        assert await run_sql(pool, "select 1 from billing_checkouts where check_at is not null") == []
    assert [row[0] for row in await till.rows()] == ["active"] * 2


async def test_a_mismatch_of_a_found_purchase_is_reported_once_a_day(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await buy(till, provider, heard=False)
    provider.subscriptions[made["id"]]["items"]["data"][0]["price"]["id"] = "price_of_nothing"
    reports = []
    for _ in range(5 * 24):
        till.clock.advance(timedelta(hours=1))
        reports.append((await reconcile(ports)).get("mismatch", 0))
    assert (sum(reports[:24]), sum(reports[24:48]), sum(reports[48:72]), sum(reports[96:])) == (1, 1, 1, 0)


async def test_one_process_at_a_time_reconciles(till: Till, provider: FakePayments, ports: Ports) -> None:
    await reconcile(ports)
    assert await reconciliation.reconcile(ports, new_id()) is None
    till.clock.advance(reconciliation_rules.LEASE)
    assert await reconciliation.reconcile(ports, new_id()) == {}


async def test_failing_checks_do_not_delay_others(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await buy(till, provider, heard=True)
    provider.subscriptions[made["id"]]["status"] = "past_due"
    for name in ("sub_a", "sub_b"):
        await add_failing_check(till, provider, name, till.clock.now())
    till.clock.advance(CHECK_INTERVAL)
    assert await reconcile(ports) == {"subscriptions": 3, "changed": 1, "failed": 2}
    assert await reconcile(ports) == {}
    till.clock.advance(reconciliation_rules.RETRY_INTERVAL)
    assert await reconcile(ports) == {"subscriptions": 2, "failed": 2}


async def test_an_unreadable_subscription_delays_no_others(till: Till, provider: FakePayments, ports: Ports) -> None:
    """It is reported by its id and checked again after some minutes. The provider does not count as down."""
    made = await buy(till, provider, heard=True)
    provider.answers[f"subscriptions/{made['id']}"] = Answer(200, b"{{{")
    till.clock.advance(CHECK_INTERVAL)
    provider.asked.clear()
    with structlog.testing.capture_logs() as log:
        done = await run_rounds(till, ports, 60, timedelta(minutes=1))
    assert done == [{"subscriptions": 1, "failed": 1}] * 12
    assert len(provider.asked) == 12
    assert {line["subscription"] for line in log if line["event"] == "billing_learnt" and line["effect"] == "failed"} == {made["id"]}
    provider.answers.clear()
    till.clock.advance(reconciliation_rules.RETRY_INTERVAL)
    assert await reconcile(ports) == {"subscriptions": 1}


async def test_without_a_provider_a_subscription_that_is_not_renewed_ends_after_its_period(
    till: Till, ports: Ports, clock: FakeClock
) -> None:
    object.__setattr__(ports, "payments", HttpPayments(None, clock))
    for id_ in ("sub_1", "sub_else"):
        metadata = till.metadata() if id_ == "sub_1" else {}
        await till.tell("customer.subscription.created", till.subscription(id_, metadata=metadata))
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


async def buy_twice(till: Till, provider: FakePayments) -> tuple[Object, Object]:
    """Let the member complete two checkouts. Return the subscription that became ours, and the duplicate."""
    sessions = [(await till.begin()).json["session_id"] for _ in range(2)]
    made = {one["id"]: one for one in [provider.complete(session) for session in sessions]}
    await provider.deliver(till.sent)
    [ours] = await active_subscriptions(till)
    provider.events.clear()
    return made.pop(ours), next(iter(made.values()))


@pytest.mark.parametrize("heard", [True, False])
async def test_a_duplicate_becomes_active_when_the_first_subscription_ends(
    till: Till, provider: FakePayments, ports: Ports, *, heard: bool
) -> None:
    first, second = await buy_twice(till, provider)
    bill = {"id": "in_2", "object": "invoice", "subscription": second["id"], "customer": second["customer"]}
    await till.tell("invoice.paid", bill, till.now + 1)  # it names no organization
    if heard:
        ended = provider.change(first["id"], status="canceled")
        await till.tell("customer.subscription.deleted", ended, till.now + 2)
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
        made = provider.complete((await till.begin()).json["session_id"])
        await add_subscription(ports, pool, till.service, member, till.silver, ends=till.clock.now() + timedelta(minutes=1))
        await provider.deliver(till.sent)
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
        assert await active_subscriptions(till) == [made["id"]]
        await run_sql(pool, "delete from subscriptions")
        await reconcile(ports)
        provider.events.clear()


async def test_a_duplicate_without_metadata_is_checked_once_and_again_when_the_first_ends(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    _, second = await buy_twice(till, provider)
    await run_sql(pool, "delete from billing_checkouts")  # as after some time
    provider.subscriptions[second["id"]]["metadata"] = {}

    async def asked() -> int:
        provider.asked.clear()
        for _ in range(24):
            till.clock.advance(timedelta(hours=1))
            await reconcile(ports)
        return [path for _, path, _ in provider.asked].count(f"subscriptions/{second['id']}")

    assert [await asked() for _ in range(3)] == [1, 0, 0]
    assert (await till.by_key("DELETE")).status == 204
    assert [await asked() for _ in range(2)] == [1, 0]
    assert await till.status() == "cancelled"


async def test_a_duplicate_without_a_customer_becomes_active_too(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await buy(till, provider, heard=True)
    second = {**till.subscription("sub_second"), "customer": None}
    provider.subscriptions["sub_second"] = second
    await till.tell("customer.subscription.created", second)
    provider.subscriptions[made["id"]]["status"] = "canceled"
    await till.tell("customer.subscription.deleted", provider.subscriptions[made["id"]])
    await reconcile(ports)
    assert sorted(row[0] for row in await till.rows()) == ["active", "cancelled"]


@pytest.mark.parametrize("is_paid", [False, True])
async def test_a_revived_subscription_is_checked_when_the_other_one_ends(
    till: Till, provider: FakePayments, ports: Ports, *, is_paid: bool
) -> None:
    """An event without a status in between does not change that."""
    made = await buy(till, provider, heard=True)
    provider.change(made["id"], status="incomplete_expired")
    await provider.deliver(till.sent)
    other = await buy(till, provider, heard=True)
    provider.change(made["id"], status="active")
    till.clock.advance(timedelta(seconds=1))
    await till.tell("customer.subscription.updated", provider.subscriptions[made["id"]])
    provider.events.clear()
    if is_paid:
        await till.tell("invoice.paid", invoice(made["id"], till.ends, customer=made["customer"]))
    assert await active_subscriptions(till) == [other["id"]]
    till.clock.advance(timedelta(seconds=1))
    assert (await till.by_key("DELETE")).status == 204
    await reconcile(ports)
    assert await active_subscriptions(till) == [made["id"]]


async def test_a_duplicate_with_an_event_at_the_end_of_the_first_is_checked_soon(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    _, second = await buy_twice(till, provider)
    await run_sql(pool, "update billing_checkouts set check_at = null")  # as after some days
    till.clock.advance(SOON)
    await reconcile(ports)
    bill = provider_events_rules.read_event(event("invoice.paid", invoice(second["id"], till.ends, customer=second["customer"]), till.now))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await provider_events.HANDLERS[bill.type](tx, bill, till.clock.now())
        with trio.fail_after(5):
            await everyone(1, lambda _: till.by_key("DELETE"))
    till.clock.advance(SOON)
    await reconcile(ports)
    assert await active_subscriptions(till) == [second["id"]]


# Changes by an API key


@pytest.mark.parametrize("status", ["cancelled", "expired"])
async def test_a_subscription_ended_by_a_key_is_canceled_at_the_provider_and_stays_ended(
    till: Till, provider: FakePayments, ports: Ports, status: str
) -> None:
    made = await buy(till, provider, heard=True)
    assert (await till.by_key(status=status)).json["status"] == status
    assert provider.subscriptions[made["id"]]["status"] == "canceled"
    rows, before = await till.rows(), await till.recorded()
    await provider.deliver(till.sent)
    await till.tell("invoice.paid", invoice(made["id"], till.ends + MONTH, customer=made["customer"]))  # late
    assert (await till.begin()).status == 200, "the user pays for nothing else"
    till.clock.advance(CHECK_INTERVAL)
    await reconcile(ports)
    assert await till.rows() == rows
    assert await till.recorded() == before


async def test_a_subscription_ended_by_a_key_stays_ended_while_the_provider_is_down(
    till: Till, provider: FakePayments, ports: Ports
) -> None:
    made = await buy(till, provider, heard=True)
    provider.answers[f"subscriptions/{made['id']}"] = Answer(500)
    assert (await till.by_key(status="expired")).status == 200
    till.clock.advance(timedelta(seconds=1))
    await till.tell("customer.subscription.updated", {**made, "status": "past_due"})
    assert await till.status() == "expired", "otherwise the user would pay for an ended subscription"
    provider.answers.clear()
    till.clock.advance(cancellations_rules.LEASE)
    await reconcile(ports)
    assert provider.subscriptions[made["id"]]["status"] == "canceled"
    await provider.deliver(till.sent)
    assert await till.status() == "expired"


async def test_a_subscription_already_ended_at_the_provider_is_not_canceled_there(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    made = await buy(till, provider, heard=True)
    provider.change(made["id"], status="canceled")
    await provider.deliver(till.sent)
    assert (await till.by_key(status="expired")).status == 200
    assert await run_sql(pool, "select 1 from billing_cancellations") == []


async def test_a_subscription_reactivated_before_its_cancellation_stays_active_at_the_provider(
    till: Till, provider: FakePayments, ports: Ports
) -> None:
    made = await buy(till, provider, heard=True)
    provider.answers[f"subscriptions/{made['id']}"] = Answer(500)
    for status in ("cancelled", "active", "expired", "active"):
        assert (await till.by_key(status=status)).status == 200
    provider.answers.clear()
    till.clock.advance(cancellations_rules.LEASE + cancellations_rules.RETRY_INTERVAL)
    await reconcile(ports)
    assert provider.subscriptions[made["id"]]["status"] == "active"
    provider.change(made["id"], status="past_due")
    await provider.deliver(till.sent)
    assert await till.status() == "past_due"


async def test_a_subscription_reactivated_during_its_cancellation_is_detached_from_the_provider(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    made = await buy(till, provider, heard=True)

    class Slow(HttpPayments):
        async def cancel(self, id_: str) -> bool:
            done = await super().cancel(id_)
            assert (await till.by_key(status="active")).status == 200
            return done

    object.__setattr__(ports, "payments", Slow(provider.settings, clock))
    assert (await till.by_key("DELETE")).status == 204
    assert provider.subscriptions[made["id"]]["status"] == "canceled"
    await provider.deliver(till.sent)
    assert await run_sql(pool, "select status, provider_subscription_id from subscriptions") == [("active", None)]
    till.clock.advance(timedelta(seconds=MONTH))
    await subscriptions.sweep(ports, HOLDER)
    assert await till.status() == "expired"


@pytest.mark.parametrize("deleted", ["service", "user", "subscription"])
async def test_all_purchases_are_canceled_when_their_service_or_user_is_deleted(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool, deleted: str
) -> None:
    made = await buy_twice(till, provider)
    if deleted == "service":
        path = f"{till.tenant.path}/services/shop"
        assert (await till.tenant.api.delete(path, token=till.tenant.token("owner"))).status == 204
    else:
        await run_sql(pool, "delete from subscriptions")
    if deleted == "user":
        await run_sql(pool, "delete from memberships where user_id = %s", till.tenant.id("member"))
        await run_sql(pool, "delete from users where id = %s", till.tenant.id("member"))
    for _ in range(2):
        till.clock.advance(SOON)
        await reconcile(ports)
    assert [provider.subscriptions[one["id"]]["status"] for one in made] == ["canceled"] * 2
    for _ in range(2):
        till.clock.advance(reconciliation_rules.CHECKOUT_CHECK_PERIOD)
        done = await reconcile(ports)
    assert done == {}, "the checks end"


@pytest.mark.parametrize("deleted", ["services", "users", "organizations"])
async def test_a_waiting_duplicate_is_canceled_with_its_service_even_without_a_checkout(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool, deleted: str
) -> None:
    """A waiting duplicate is known to be ours. A purchase first heard of after the deletion may belong to another installation."""
    made = await buy(till, provider, heard=True)
    names = ("sub_second", "sub_else")
    for name in names:
        provider.subscriptions[name] = till.subscription(name, customer=made["customer"])
    await till.tell("customer.subscription.created", provider.subscriptions["sub_second"])
    await run_sql(pool, "delete from billing_checkouts")  # as after some time, and as in another installation
    if deleted == "users":
        await run_sql(pool, "delete from subscriptions")
        await run_sql(pool, "delete from memberships where user_id = %s", till.tenant.id("member"))
        await run_sql(pool, "delete from users where id = %s", till.tenant.id("member"))
    else:
        await run_sql(pool, "delete from services" if deleted == "services" else "delete from organizations")
    await till.tell("customer.subscription.created", provider.subscriptions["sub_else"])
    done = await reconcile(ports)
    assert (done["orphaned"], done.get("mismatch")) == (1, None)
    till.clock.advance(cancellations_rules.RETRY_INTERVAL)
    await reconcile(ports)
    assert [provider.subscriptions[name]["status"] for name in (made["id"], *names)] == ["canceled", "canceled", "active"]
    with structlog.testing.capture_logs() as log:
        await provider.deliver(till.sent)
    assert [line["effect"] for line in log if line["event"] == "billing_event"] == ["not_managed_here"] * 2, "nothing is left to manage"


async def test_an_unpaid_purchase_is_not_canceled_with_its_service(till: Till, provider: FakePayments, ports: Ports, pool: Pool) -> None:
    made = await buy(till, provider, heard=True)
    provider.change(made["id"], status="incomplete_expired")
    await provider.deliver(till.sent)
    assert (await till.tenant.api.delete(f"{till.tenant.path}/services/shop", token=till.tenant.token("owner"))).status == 204
    till.clock.advance(cancellations_rules.LEASE)
    assert "failed" not in await reconcile(ports)
    assert await run_sql(pool, "select 1 from billing_cancellations") == []


async def test_an_event_overrides_a_check_of_the_same_second(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await buy(till, provider, heard=True)
    till.clock.advance(CHECK_INTERVAL)
    await till.tell("customer.subscription.updated", {**made, "status": "past_due"})
    async with ports.storage.transaction(by=SYSTEM) as tx:
        seen = parse_subscription(made)
        await provider_state.apply_provider_state(tx, seen, till.clock.now().replace(microsecond=0), till.clock.now(), at_creation=True)
    assert await till.status() == "past_due"


async def test_many_checkouts_of_one_customer_take_one_request(till: Till, provider: FakePayments, ports: Ports) -> None:
    for _ in range(5):
        assert (await till.begin()).status == 200
    provider.asked.clear()
    till.clock.advance(SOON)
    assert await reconcile(ports) == {"checkouts": 5}
    assert len(provider.asked) == 1


async def test_checkouts_started_one_after_the_other_take_one_request(till: Till, provider: FakePayments, ports: Ports) -> None:
    """A checkout that has just started gets some time first."""
    for _ in range(5):
        assert (await till.begin()).status == 200
        till.clock.advance(timedelta(minutes=1))
    assert await reconcile(ports) == {"checkouts": 1}
    till.clock.advance(SOON)
    assert await reconcile(ports) == {"checkouts": 5}
    provider.asked.clear()
    for _ in range(60):
        till.clock.advance(timedelta(minutes=1))
        await reconcile(ports)
    assert len(provider.asked) == 1


async def test_a_subscription_unknown_to_the_provider_does_not_count_as_canceled(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    """With an API key of the other mode, the provider knows no subscription and continues to charge."""
    made = await buy(till, provider, heard=True)
    hidden = provider.subscriptions.pop(made["id"])
    assert (await till.tenant.api.delete(f"{till.tenant.path}/services/shop", token=till.tenant.token("owner"))).status == 204
    recorded = "select 1 from audit_log where action = 'subscription.canceled'"
    till.clock.advance(cancellations_rules.LEASE)
    await reconcile(ports)
    assert await run_sql(pool, recorded) == []
    provider.subscriptions[made["id"]] = hidden
    till.clock.advance(cancellations_rules.RETRY_INTERVAL)
    await reconcile(ports)
    assert hidden["id"] == made["id"]
    assert provider.subscriptions[made["id"]]["status"] == "canceled"
    assert await run_sql(pool, recorded) == [(1,)]


async def test_the_cancellation_of_a_permanently_unknown_subscription_is_given_up(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    made = await buy(till, provider, heard=True)
    provider.subscriptions.pop(made["id"])
    assert (await till.tenant.api.delete(f"{till.tenant.path}/services/shop", token=till.tenant.token("owner"))).status == 204
    await run_sql(pool, "update billing_cancellations set asked_at = %s", till.clock.now())
    till.clock.advance(cancellations_rules.GIVE_UP_AFTER + timedelta(hours=1))
    await reconcile(ports)
    assert await run_sql(pool, "select 1 from billing_cancellations") == []


async def test_reconciliation_waits_while_the_provider_is_down(till: Till, provider: FakePayments, ports: Ports) -> None:
    """It continues with the checks that were not tried yet, then with the failed ones. No check waits for an hour."""
    names = [f"sub_{number}" for number in range(8)]
    for number, name in enumerate(names):
        await add_failing_check(till, provider, name, till.clock.now() - timedelta(minutes=10 - number))
    provider.asked.clear()
    with structlog.testing.capture_logs() as log:
        assert await reconcile(ports) == {"subscriptions": 3, "failed": 3, "held_up": 1}
    assert ["sub_" in str(line) for line in log if line["event"] == "payments_failed"] == [False] * 3
    assert [path for _, path, _ in provider.asked] == [f"subscriptions/{name}" for name in names[:3]]
    assert await reconcile(ports) == {"subscriptions": 3, "failed": 3, "held_up": 1}
    provider.answers.clear()
    assert await reconcile(ports) == {"subscriptions": 2}
    assert [path for _, path, _ in provider.asked] == [f"subscriptions/{name}" for name in names]
    till.clock.advance(reconciliation_rules.RETRY_INTERVAL)
    assert await reconcile(ports) == {"subscriptions": 6}


async def test_permanently_failing_checks_do_not_block_others(till: Till, provider: FakePayments, ports: Ports, pool: Pool) -> None:
    made = await buy(till, provider, heard=True)
    for number in range(reconciliation_rules.MAX_CONSECUTIVE_FAILURES):
        await add_failing_check(till, provider, f"sub_bad_{number}", till.clock.now())
    await run_sql(pool, "update billing_facts set check_at = %s where provider_subscription_id = %s", till.clock.now() + SOON, made["id"])
    till.clock.advance(SOON)
    assert await reconcile(ports) == {"subscriptions": 3, "failed": 3, "held_up": 1}
    assert await reconcile(ports) == {"subscriptions": 1}
    till.clock.advance(reconciliation_rules.RETRY_INTERVAL)
    assert await reconcile(ports) == {"subscriptions": 3, "failed": 3, "held_up": 1}


async def test_an_event_during_a_failing_check_sets_the_next_check(till: Till, provider: FakePayments, ports: Ports, pool: Pool) -> None:
    made = await buy(till, provider, heard=True)
    till.clock.advance(CHECK_INTERVAL)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        until = till.clock.now() + reconciliation_rules.RECHECK_INTERVAL
        assert await tx.billing.claim_check(till.clock.now(), until) == made["id"]
    await till.tell("customer.subscription.updated", made)
    check_at = await run_sql(pool, "select check_at from billing_facts")
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.billing.reschedule_check(made["id"], until, till.clock.now())
    assert await run_sql(pool, "select check_at from billing_facts") == check_at


async def test_checkouts_are_checked_once_the_provider_is_back(till: Till, provider: FakePayments, ports: Ports) -> None:
    """This includes checkouts that are old enough for their last check."""
    for _ in range(2):
        provider.complete((await till.begin()).json["session_id"])
    till.clock.advance(reconciliation_rules.CHECKOUT_CHECK_PERIOD + SOON)
    provider.answers["subscriptions"] = Answer(500)
    assert await reconcile(ports) == {"checkouts": 2, "failed": 1}
    assert await reconcile(ports) == {}
    provider.answers.clear()
    till.clock.advance(reconciliation_rules.RETRY_INTERVAL)
    assert (await reconcile(ports))["checkouts"] == 2
    assert await till.status() == "active"
    till.clock.advance(reconciliation_rules.RECHECK_INTERVAL)
    assert "checkouts" not in await reconcile(ports)


async def test_a_checkout_with_an_event_during_a_failing_check_is_not_checked_again(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    await buy(till, provider, heard=True)
    ids = [id_ for (id_,) in await run_sql(pool, "select id from billing_checkouts")]
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.checkouts.reschedule(ids, till.clock.now(), till.clock.now() - reconciliation_rules.CHECKOUT_CHECK_PERIOD)
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
