"""What events that never came have left behind is repaired: the provider is asked, in bounded batches, by one process at a time, and may be
away (decisions, points 165 and 169; security.md N-9)."""

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


async def paid(till: Till, provider: FakePayments, *, heard: bool) -> Object:
    """What the member has bought, and whether we have heard of it."""
    made = provider.complete((await till.begin()).json["session_id"])
    if heard:
        await provider.deliver(till.sent)
    provider.events.clear()
    provider.asked.clear()
    return made


async def reconcile(ports: Ports) -> dict[str, int]:
    done = await reconciliation.reconcile(ports, HOLDER)
    assert done is not None, "nobody else is at it"
    return dict(done)


async def rounds(till: Till, ports: Ports, count: int, pause: timedelta) -> list[Mapping[str, int]]:
    """What comes of so many, where anything does."""
    done = []
    for _ in range(count):
        till.clock.advance(pause)
        done.append(await actor.reconcile(ports, HOLDER))
    return [each for each in done if each]


async def alive(till: Till) -> list[str | None]:
    """What the provider calls those that are active, if it looks after them."""
    found = await run_sql(till.tenant.pool, "select provider_subscription_id from subscriptions where status = 'active'")
    return [name for (name,) in found]


async def fails_for(till: Till, provider: FakePayments, name: str, since: datetime) -> None:
    """A subscription of that name to ask the provider about, which then fails."""
    facts = "insert into billing_facts (provider_subscription_id, org_id, heard_at, check_at) values (%s, %s, %s, %s)"
    await run_sql(till.tenant.pool, facts, name, till.tenant.org, since, since)
    provider.answers[f"subscriptions/{name}"] = Answer(500)


async def test_a_checkout_that_was_completed_and_never_heard_of_is_found(till: Till, provider: FakePayments, ports: Ports) -> None:
    await paid(till, provider, heard=False)
    assert await reconcile(ports) == {}, "it may be heard of yet"
    till.clock.advance(SOON)
    assert await reconcile(ports) == {"checkouts": 1, "changed": 1}
    assert [row[:2] for row in await till.rows()] == [("active", "Gold")]
    assert await till.recorded() == ["subscription.created"]
    till.clock.advance(SOON)
    assert await reconcile(ports) == {}


async def test_a_checkout_that_nobody_completes_is_asked_about_for_some_days(till: Till, provider: FakePayments, ports: Ports) -> None:
    assert (await till.begin()).status == 200
    asked = 0
    for _ in range(100):
        till.clock.advance(timedelta(hours=1))
        asked += (await reconcile(ports)).get("checkouts", 0)
    assert asked == 72 + 1
    assert await till.rows() == []


async def test_a_subscription_of_which_only_the_checkout_was_told_is_asked_about(till: Till, provider: FakePayments, ports: Ports) -> None:
    provider.complete((await till.begin()).json["session_id"])
    await till.sent(provider.events[-1])
    assert await till.rows() == []
    till.clock.advance(SOON)
    await reconcile(ports)
    assert await till.status() == "active"


@pytest.mark.parametrize(("theirs", "ours"), [("past_due", "past_due"), ("canceled", "cancelled"), ("incomplete_expired", "expired")])
async def test_missed_news_is_learnt_within_a_day(till: Till, provider: FakePayments, ports: Ports, theirs: str, ours: str) -> None:
    made = await paid(till, provider, heard=True)
    provider.subscriptions[made["id"]]["status"] = theirs
    till.clock.advance(CHECK_INTERVAL - timedelta(seconds=10))
    assert await reconcile(ports) == {}
    till.clock.advance(timedelta(seconds=10))
    assert await reconcile(ports) == {"subscriptions": 1, "changed": 1}
    assert await till.status() == ours
    till.clock.advance(CHECK_INTERVAL)
    assert await reconcile(ports) == ({"subscriptions": 1} if ours == "past_due" else {}), "what is over is asked about no more"


async def test_a_period_that_ended_without_news_is_asked_about_soon(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await paid(till, provider, heard=True)
    till.clock.advance(timedelta(seconds=MONTH) - timedelta(hours=1))
    await reconcile(ports)
    provider.subscriptions[made["id"]]["current_period_end"] = till.now + 2 * MONTH
    till.clock.advance(timedelta(hours=1) + AFTER_PERIOD)
    assert await reconcile(ports) == {"subscriptions": 1, "changed": 1}
    assert (await till.rows())[0][2] > "2026-06"


async def test_what_the_provider_does_not_know_any_more_ends_with_its_period(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await paid(till, provider, heard=True)
    del provider.subscriptions[made["id"]]
    till.clock.advance(CHECK_INTERVAL)
    await reconcile(ports)
    assert await till.status() == "active"
    till.clock.advance(timedelta(seconds=MONTH))
    assert (await reconcile(ports))["lapsed"] == 1
    assert await till.status() == "expired"
    till.clock.advance(CHECK_INTERVAL)
    assert await reconcile(ports) == {}


async def test_what_the_provider_does_not_know_is_told_of_once_a_day_while_it_is_live_here(
    till: Till, provider: FakePayments, ports: Ports
) -> None:
    """An operator with the key of another account or mode hears of nothing else."""
    made = await paid(till, provider, heard=True)
    del provider.subscriptions[made["id"]]
    with structlog.testing.capture_logs() as log:
        done = await rounds(till, ports, 3 * 24, timedelta(hours=1))
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
    provider.answers[f"subscriptions/{made['id']}"] = Answer(500)  # so that it stays for now that it was ended here
    assert (await till.by_key("DELETE")).status == 204
    provider.answers.clear()
    till.clock.advance(CHECK_INTERVAL)
    assert "unknown" not in await reconcile(ports)


async def test_what_was_paid_for_last_is_its_period_also_when_the_provider_does_not_know_it_any_more(
    till: Till, provider: FakePayments, ports: Ports
) -> None:
    made = await paid(till, provider, heard=True)
    ends = till.now + 2 * MONTH
    await till.tell("invoice.paid", invoice(made["id"], ends, customer=made["customer"]), till.now + 1)
    del provider.subscriptions[made["id"]]
    till.clock.advance(timedelta(seconds=2 * MONTH) + AFTER_PERIOD)
    assert (await reconcile(ports))["lapsed"] == 1
    assert [(row[0], row[2]) for row in await till.rows()] == [("expired", rfc3339(datetime.fromtimestamp(ends, UTC)))]


async def test_what_was_read_is_newer_than_what_comes_late(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await paid(till, provider, heard=True)
    provider.change(made["id"], status="past_due")  # which is on its way for two days
    till.clock.advance(CHECK_INTERVAL)
    provider.subscriptions[made["id"]]["status"] = "active"
    provider.subscriptions[made["id"]]["current_period_end"] += MONTH
    await reconcile(ports)
    await provider.deliver(till.sent)
    assert await till.status() == "active"


async def test_each_that_something_is_learnt_of_is_told_with_whose_it_is(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await paid(till, provider, heard=True)
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


async def test_what_is_read_counts_whatever_a_key_has_made_of_it_if_it_is_news(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await paid(till, provider, heard=True)
    provider.change(made["id"], status="past_due")
    till.clock.advance(timedelta(seconds=1))
    await provider.deliver(till.sent)
    for theirs, done, ours in (("past_due", {}, "active"), ("unpaid", {"changed": 1}, "past_due"), ("unpaid", {}, "active")):
        assert (await till.by_key(status="active")).status == 200
        provider.subscriptions[made["id"]]["status"] = theirs
        till.clock.advance(CHECK_INTERVAL)
        assert await reconcile(ports) == {"subscriptions": 1, **done}
        assert await till.status() == ours


async def test_what_does_not_agree_with_what_is_stored_is_told_of_once_a_day(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await paid(till, provider, heard=True)
    provider.subscriptions[made["id"]]["metadata"] = till.metadata(user_id=till.tenant.id("owner"))
    told = []
    for _ in range(3 * 24):
        till.clock.advance(timedelta(hours=1))
        told.append((await reconcile(ports)).get("mismatch", 0))
    assert sum(told) == 3


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_second_page_that_is_paid_for_and_never_heard_of_is_found(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool, *, is_known: bool
) -> None:
    """Whether it is known which page the first subscription came of or not; and it is told of once a day."""
    pages = [(await till.begin()).json["session_id"] for _ in range(2)]
    first = provider.complete(pages[0])
    if not is_known:
        provider.events = [one for one in provider.events if one["type"] != "checkout.session.completed"]
    await provider.deliver(till.sent)
    open_ = [session for (session,) in await run_sql(pool, "select session_id from billing_checkouts where check_at is not null")]
    assert sorted(open_) == sorted(pages[1:] if is_known else pages)
    till.clock.advance(SOON)
    assert await reconcile(ports) == {"checkouts": len(open_)}, "there is nothing new"
    second = provider.complete(pages[1])
    provider.events.clear()
    told = []
    for _ in range(5 * 24):
        till.clock.advance(timedelta(hours=1))
        told.append((await reconcile(ports)).get("duplicate_subscription", 0))
    assert (sum(told), told[0]) == (5, 1)
    assert await run_sql(pool, "select 1 from billing_checkouts where check_at is not null") == []
    assert await alive(till) == [first["id"]]
    assert (await till.by_key("DELETE")).status == 204
    await reconcile(ports)
    assert await alive(till) == [second["id"]]


async def test_of_two_that_were_never_heard_of_the_first_lives(till: Till, provider: FakePayments, ports: Ports) -> None:
    pages = [(await till.begin()).json["session_id"] for _ in range(2)]
    first, _ = [provider.complete(page) for page in pages]
    provider.events.clear()
    till.clock.advance(SOON)
    assert await reconcile(ports) == {"checkouts": 2, "changed": 1, "duplicate_subscription": 1}
    assert await alive(till) == [first["id"]]


async def test_which_page_it_came_of_may_be_heard_first_or_last(till: Till, provider: FakePayments, pool: Pool) -> None:
    for name, order in (("member", 1), ("owner", -1)):
        provider.complete((await till.begin(by=name)).json["session_id"])
        for one in provider.events[::order]:
            assert await till.sent(one) == 200
        provider.events.clear()
        assert await run_sql(pool, "select 1 from billing_checkouts where check_at is not null") == []
    assert [row[0] for row in await till.rows()] == ["active"] * 2


async def test_what_is_found_and_does_not_agree_is_told_of_once_a_day(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await paid(till, provider, heard=False)
    provider.subscriptions[made["id"]]["items"]["data"][0]["price"]["id"] = "price_of_nothing"
    told = []
    for _ in range(5 * 24):
        till.clock.advance(timedelta(hours=1))
        told.append((await reconcile(ports)).get("mismatch", 0))
    assert (sum(told[:24]), sum(told[24:48]), sum(told[48:72]), sum(told[96:])) == (1, 1, 1, 0)


async def test_one_process_does_it(till: Till, provider: FakePayments, ports: Ports) -> None:
    await reconcile(ports)
    assert await reconciliation.reconcile(ports, new_id()) is None
    till.clock.advance(reconciliation_rules.LEASE)
    assert await reconciliation.reconcile(ports, new_id()) == {}


async def test_what_fails_holds_back_nothing_else(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await paid(till, provider, heard=True)
    provider.subscriptions[made["id"]]["status"] = "past_due"
    for name in ("sub_a", "sub_b"):
        await fails_for(till, provider, name, till.clock.now())
    till.clock.advance(CHECK_INTERVAL)
    assert await reconcile(ports) == {"subscriptions": 3, "changed": 1, "failed": 2}
    assert await reconcile(ports) == {}
    till.clock.advance(reconciliation_rules.RETRY_INTERVAL)
    assert await reconcile(ports) == {"subscriptions": 2, "failed": 2}


async def test_one_that_cannot_be_read_holds_up_nobody(till: Till, provider: FakePayments, ports: Ports) -> None:
    """It is told of by name, asked about again after some minutes, and no reason to wait for the provider."""
    made = await paid(till, provider, heard=True)
    provider.answers[f"subscriptions/{made['id']}"] = Answer(200, b"{{{")
    till.clock.advance(CHECK_INTERVAL)
    provider.asked.clear()
    with structlog.testing.capture_logs() as log:
        done = await rounds(till, ports, 60, timedelta(minutes=1))
    assert done == [{"subscriptions": 1, "failed": 1}] * 12
    assert len(provider.asked) == 12
    assert {line["subscription"] for line in log if line["event"] == "billing_learnt" and line["effect"] == "failed"} == {made["id"]}
    provider.answers.clear()
    till.clock.advance(reconciliation_rules.RETRY_INTERVAL)
    assert await reconcile(ports) == {"subscriptions": 1}


async def test_where_nobody_can_be_asked_what_is_not_prolonged_ends_after_its_period(till: Till, ports: Ports, clock: FakeClock) -> None:
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


async def a_second_one(till: Till, provider: FakePayments) -> tuple[Object, Object]:
    """Two checkouts that were begun by one person, both paid for: the one that was heard of first, which is ours, and the other."""
    sessions = [(await till.begin()).json["session_id"] for _ in range(2)]
    made = {one["id"]: one for one in [provider.complete(session) for session in sessions]}
    await provider.deliver(till.sent)
    [ours] = await alive(till)
    provider.events.clear()
    return made.pop(ours), next(iter(made.values()))


@pytest.mark.parametrize("told", [True, False])
async def test_one_that_is_paid_for_beside_another_takes_its_place_when_that_ends(
    till: Till, provider: FakePayments, ports: Ports, *, told: bool
) -> None:
    first, second = await a_second_one(till, provider)
    bill = {"id": "in_2", "object": "invoice", "subscription": second["id"], "customer": second["customer"]}
    await till.tell("invoice.paid", bill, till.now + 1)  # says nothing of whose it is
    if told:
        ended = provider.change(first["id"], status="canceled")
        await till.tell("customer.subscription.deleted", ended, till.now + 2)
    else:
        provider.subscriptions[first["id"]]["status"] = "canceled"
        till.clock.advance(CHECK_INTERVAL + SOON)
    for _ in range(2):
        await reconcile(ports)
    assert sorted(status for status, _, _ in await till.rows()) == ["active", "cancelled"]
    assert await alive(till) == [second["id"]]


@pytest.mark.parametrize("status", [None, "cancelled", "expired"])
@pytest.mark.parametrize("is_away", [False, True])
async def test_one_takes_the_place_of_one_that_was_ended_here_at_once(
    till: Till, provider: FakePayments, ports: Ports, status: str | None, *, is_away: bool
) -> None:
    """Whether the provider has heard that the first one is to end or not, and without any news of it."""
    first, second = await a_second_one(till, provider)
    if is_away:
        provider.answers[f"subscriptions/{first['id']}"] = Answer(500)
    answer = await till.by_key("DELETE") if status is None else await till.by_key(status=status)
    assert answer.status == (204 if status is None else 200)
    await reconcile(ports)
    assert await alive(till) == [second["id"]]


async def test_one_takes_the_place_of_the_organizations_own_when_that_ends(
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
        assert await alive(till) == [made["id"]]
        await run_sql(pool, "delete from subscriptions")
        await reconcile(ports)
        provider.events.clear()


async def test_one_of_which_nobody_says_any_more_whose_it_is_is_asked_about_no_more_until_the_other_ends(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    _, second = await a_second_one(till, provider)
    await run_sql(pool, "delete from billing_checkouts")  # which go after some time
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


async def test_one_of_which_no_customer_is_known_takes_the_place_as_well(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await paid(till, provider, heard=True)
    second = {**till.subscription("sub_second"), "customer": None}
    provider.subscriptions["sub_second"] = second
    await till.tell("customer.subscription.created", second)
    provider.subscriptions[made["id"]]["status"] = "canceled"
    await till.tell("customer.subscription.deleted", provider.subscriptions[made["id"]])
    await reconcile(ports)
    assert sorted(row[0] for row in await till.rows()) == ["active", "cancelled"]


@pytest.mark.parametrize("is_paid", [False, True])
async def test_one_that_came_to_life_beside_another_is_asked_about_when_that_ends(
    till: Till, provider: FakePayments, ports: Ports, *, is_paid: bool
) -> None:
    """Also when something is heard of it meanwhile that says nothing of how it is."""
    made = await paid(till, provider, heard=True)
    provider.change(made["id"], status="incomplete_expired")
    await provider.deliver(till.sent)
    other = await paid(till, provider, heard=True)
    provider.change(made["id"], status="active")
    till.clock.advance(timedelta(seconds=1))
    await till.tell("customer.subscription.updated", provider.subscriptions[made["id"]])
    provider.events.clear()
    if is_paid:
        await till.tell("invoice.paid", invoice(made["id"], till.ends, customer=made["customer"]))
    assert await alive(till) == [other["id"]]
    till.clock.advance(timedelta(seconds=1))
    assert (await till.by_key("DELETE")).status == 204
    await reconcile(ports)
    assert await alive(till) == [made["id"]]


async def test_one_of_which_something_is_heard_in_the_moment_when_the_other_ends_is_asked_about_soon(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    _, second = await a_second_one(till, provider)
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
    assert await alive(till) == [second["id"]]


# What an API key does


@pytest.mark.parametrize("status", ["cancelled", "expired"])
async def test_what_a_key_ends_ends_there_and_stays_what_it_was_made(till: Till, provider: FakePayments, ports: Ports, status: str) -> None:
    made = await paid(till, provider, heard=True)
    assert (await till.by_key(status=status)).json["status"] == status
    assert provider.subscriptions[made["id"]]["status"] == "canceled"
    rows, before = await till.rows(), await till.recorded()
    await provider.deliver(till.sent)
    await till.tell("invoice.paid", invoice(made["id"], till.ends + MONTH, customer=made["customer"]))  # late
    assert (await till.begin()).status == 200, "nothing is paid for beside what they buy now"
    till.clock.advance(CHECK_INTERVAL)
    await reconcile(ports)
    assert await till.rows() == rows
    assert await till.recorded() == before


async def test_what_a_key_has_ended_stays_so_while_the_provider_is_away(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await paid(till, provider, heard=True)
    provider.answers[f"subscriptions/{made['id']}"] = Answer(500)
    assert (await till.by_key(status="expired")).status == 200
    till.clock.advance(timedelta(seconds=1))
    await till.tell("customer.subscription.updated", {**made, "status": "past_due"})
    assert await till.status() == "expired", "that is no reason to let it live, and somebody pay for it"
    provider.answers.clear()
    till.clock.advance(cancellations_rules.LEASE)
    await reconcile(ports)
    assert provider.subscriptions[made["id"]]["status"] == "canceled"
    await provider.deliver(till.sent)
    assert await till.status() == "expired"


async def test_what_a_key_has_expired_that_was_over_there_is_not_asked_to_end(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    made = await paid(till, provider, heard=True)
    provider.change(made["id"], status="canceled")
    await provider.deliver(till.sent)
    assert (await till.by_key(status="expired")).status == 200
    assert await run_sql(pool, "select 1 from billing_cancellations") == []


async def test_what_a_key_makes_live_again_before_it_was_cancelled_there_goes_on_there(
    till: Till, provider: FakePayments, ports: Ports
) -> None:
    made = await paid(till, provider, heard=True)
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


async def test_what_a_key_makes_live_again_while_it_is_cancelled_there_is_the_organizations_own(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    made = await paid(till, provider, heard=True)

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


@pytest.mark.parametrize("what", ["service", "person", "use"])
async def test_all_that_somebody_pays_for_ends_there_with_what_it_was_for(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool, what: str
) -> None:
    made = await a_second_one(till, provider)
    if what == "service":
        path = f"{till.tenant.path}/services/shop"
        assert (await till.tenant.api.delete(path, token=till.tenant.token("owner"))).status == 204
    else:
        await run_sql(pool, "delete from subscriptions")
    if what == "person":
        await run_sql(pool, "delete from memberships where user_id = %s", till.tenant.id("member"))
        await run_sql(pool, "delete from users where id = %s", till.tenant.id("member"))
    for _ in range(2):
        till.clock.advance(SOON)
        await reconcile(ports)
    assert [provider.subscriptions[one["id"]]["status"] for one in made] == ["canceled"] * 2
    for _ in range(2):
        till.clock.advance(reconciliation_rules.CHECKOUT_CHECK_PERIOD)
        done = await reconcile(ports)
    assert done == {}, "nobody asks for ever"


@pytest.mark.parametrize("what", ["services", "users", "organizations"])
async def test_what_waited_ends_there_with_what_it_was_for_though_no_checkout_tells_of_it(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool, what: str
) -> None:
    """That it waited says that it is ours. Of what was only heard of after all that was gone, nobody can tell."""
    made = await paid(till, provider, heard=True)
    names = ("sub_second", "sub_else")
    for name in names:
        provider.subscriptions[name] = till.subscription(name, customer=made["customer"])
    await till.tell("customer.subscription.created", provider.subscriptions["sub_second"])
    await run_sql(pool, "delete from billing_checkouts")  # which go after some time, and those of others are not here at all
    if what == "users":
        await run_sql(pool, "delete from subscriptions")
        await run_sql(pool, "delete from memberships where user_id = %s", till.tenant.id("member"))
        await run_sql(pool, "delete from users where id = %s", till.tenant.id("member"))
    else:
        await run_sql(pool, "delete from services" if what == "services" else "delete from organizations")
    await till.tell("customer.subscription.created", provider.subscriptions["sub_else"])
    done = await reconcile(ports)
    assert (done["orphaned"], done.get("mismatch")) == (1, None)
    till.clock.advance(cancellations_rules.RETRY_INTERVAL)
    await reconcile(ports)
    assert [provider.subscriptions[name]["status"] for name in (made["id"], *names)] == ["canceled", "canceled", "active"]
    with structlog.testing.capture_logs() as log:
        await provider.deliver(till.sent)
    assert [line["effect"] for line in log if line["event"] == "billing_event"] == ["not_managed_here"] * 2, (
        "there is nothing left to look after"
    )


async def test_what_was_never_paid_for_needs_no_end_there_with_what_it_was_for(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    made = await paid(till, provider, heard=True)
    provider.change(made["id"], status="incomplete_expired")
    await provider.deliver(till.sent)
    assert (await till.tenant.api.delete(f"{till.tenant.path}/services/shop", token=till.tenant.token("owner"))).status == 204
    till.clock.advance(cancellations_rules.LEASE)
    assert "failed" not in await reconcile(ports)
    assert await run_sql(pool, "select 1 from billing_cancellations") == []


async def test_an_event_of_the_same_second_counts_more_than_what_was_asked(till: Till, provider: FakePayments, ports: Ports) -> None:
    made = await paid(till, provider, heard=True)
    till.clock.advance(CHECK_INTERVAL)
    await till.tell("customer.subscription.updated", {**made, "status": "past_due"})
    async with ports.storage.transaction(by=SYSTEM) as tx:
        seen = parse_subscription(made)
        await provider_state.apply_provider_state(tx, seen, till.clock.now().replace(microsecond=0), till.clock.now(), at_creation=True)
    assert await till.status() == "past_due"


async def test_many_checkouts_of_one_customer_are_one_question(till: Till, provider: FakePayments, ports: Ports) -> None:
    for _ in range(5):
        assert (await till.begin()).status == 200
    provider.asked.clear()
    till.clock.advance(SOON)
    assert await reconcile(ports) == {"checkouts": 5}
    assert len(provider.asked) == 1


async def test_that_is_so_also_where_they_were_begun_one_after_the_other(till: Till, provider: FakePayments, ports: Ports) -> None:
    """But who has begun one just now is given the time to complete it."""
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


async def test_what_the_provider_does_not_know_is_not_taken_for_cancelled(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    """With a key of the other mode it knows nothing, and goes on charging."""
    made = await paid(till, provider, heard=True)
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


async def test_what_the_provider_goes_on_not_to_know_is_given_up(till: Till, provider: FakePayments, ports: Ports, pool: Pool) -> None:
    made = await paid(till, provider, heard=True)
    provider.subscriptions.pop(made["id"])
    assert (await till.tenant.api.delete(f"{till.tenant.path}/services/shop", token=till.tenant.token("owner"))).status == 204
    await run_sql(pool, "update billing_cancellations set asked_at = %s", till.clock.now())
    till.clock.advance(cancellations_rules.GIVE_UP_AFTER + timedelta(hours=1))
    await reconcile(ports)
    assert await run_sql(pool, "select 1 from billing_cancellations") == []


async def test_while_the_provider_is_away_it_is_waited_for(till: Till, provider: FakePayments, ports: Ports) -> None:
    """And it is gone on with what was not asked about yet, then with what has just failed; nothing waits for an hour."""
    names = [f"sub_{number}" for number in range(8)]
    for number, name in enumerate(names):
        await fails_for(till, provider, name, till.clock.now() - timedelta(minutes=10 - number))
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


async def test_what_always_fails_does_not_stand_before_everything_else(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    made = await paid(till, provider, heard=True)
    for number in range(reconciliation_rules.MAX_CONSECUTIVE_FAILURES):
        await fails_for(till, provider, f"sub_bad_{number}", till.clock.now())
    await run_sql(pool, "update billing_facts set check_at = %s where provider_subscription_id = %s", till.clock.now() + SOON, made["id"])
    till.clock.advance(SOON)
    assert await reconcile(ports) == {"subscriptions": 3, "failed": 3, "held_up": 1}
    assert await reconcile(ports) == {"subscriptions": 1}
    till.clock.advance(reconciliation_rules.RETRY_INTERVAL)
    assert await reconcile(ports) == {"subscriptions": 3, "failed": 3, "held_up": 1}


async def test_an_event_that_comes_while_the_provider_fails_says_when_to_ask(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    made = await paid(till, provider, heard=True)
    till.clock.advance(CHECK_INTERVAL)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        until = till.clock.now() + reconciliation_rules.RECHECK_INTERVAL
        assert await tx.billing.claim_check(till.clock.now(), until) == made["id"]
    await till.tell("customer.subscription.updated", made)
    said = await run_sql(pool, "select check_at from billing_facts")
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.billing.reschedule_check(made["id"], until, till.clock.now())
    assert await run_sql(pool, "select check_at from billing_facts") == said


async def test_checkouts_are_asked_about_as_soon_as_the_provider_is_back(till: Till, provider: FakePayments, ports: Ports) -> None:
    """Also those that are so old by then that they are asked about for the last time."""
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


async def test_a_checkout_that_is_heard_of_while_the_provider_fails_is_not_asked_about_again(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
    await paid(till, provider, heard=True)
    ids = [id_ for (id_,) in await run_sql(pool, "select id from billing_checkouts")]
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.checkouts.reschedule(ids, till.clock.now(), till.clock.now() - reconciliation_rules.CHECKOUT_CHECK_PERIOD)
    assert await run_sql(pool, "select 1 from billing_checkouts where check_at is not null") == []


async def test_who_cannot_be_asked_about_checkouts_and_cancellations_holds_back_no_more_than_that(
    till: Till, provider: FakePayments, ports: Ports, pool: Pool
) -> None:
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
