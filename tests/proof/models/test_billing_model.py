"""The payment provider's events against a simple model: out of order, twice, late, and within a second.

The state follows from the newest event per kind (security H-3, H-4, decision 166).
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from adapters.postgres.engine.pool import Pool
from core.billing import provider_events
from core.billing.model import provider_events as provider_events_model
from core.billing.model.provider_events import BillingEvent, Effect
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.fakes.payments import event, invoice, subscription
from tests.support.background import Background
from tests.support.builders import add_account, add_organization, make_ports, run_sql
from tests.support.services import add_plan, add_service

if TYPE_CHECKING:
    from uuid import UUID

T = TypeVar("T")

START = 1_773_500_000
STATUSES = {
    "active": "active",
    "trialing": "active",
    "past_due": "past_due",
    "unpaid": "past_due",
    "incomplete": "past_due",
    "incomplete_expired": "expired",
    "canceled": "cancelled",
}
PLANS = {"price_gold": "Gold", "price_silver": "Silver"}
# Few seconds, so that many events share a second.
SECONDS = st.integers(START, START + 4)
ENDS = st.integers(START + 10, START + 14)
METHODS = st.sampled_from(["a", "b", "c"])


@dataclass(frozen=True)
class ReceivedEvent:
    """A received event in the model. `number` says in which order they arrived."""

    number: int
    type: str
    created: int
    status: str = ""
    price: str = ""
    ends: int = 0  # the event does not have it

    @property
    def age(self) -> tuple[int, bool, int]:
        """How the events are ordered.

        A creation comes first in its second. All other events come in their order of arrival.
        """
        return (self.created, self.type != "customer.subscription.created", self.number)


def expected_state(events: list[ReceivedEvent]) -> tuple[str, str | None, datetime | None] | None:
    """Return the subscription's status, plan and period end after these events.

    Unknown values are None. A canceled subscription has only a status.
    """
    objects = [one for one in events if one.status]
    if not objects:
        return None
    if any(one.status == "canceled" or one.type.endswith("deleted") for one in objects):
        return ("cancelled", None, None)
    newest = max(objects, key=lambda one: one.age)
    latest = max((one for one in events if one.type != "invoice.payment_action_required"), key=lambda one: one.age)
    status = STATUSES[newest.status]
    if latest.type == "invoice.payment_failed":
        status = "past_due"
    elif latest.type == "invoice.paid" and status == "past_due":
        status = "active"
    since = max((one for one in objects if one.ends), key=lambda one: one.age, default=None)
    paid = [one.ends for one in events if one.type == "invoice.paid" and (since is None or one.created >= since.created)]
    ends = max(since.ends if since else 0, *paid, 0)
    return (status, PLANS[newest.price], datetime.fromtimestamp(ends, UTC) if ends else None)


@dataclass(frozen=True)
class ReceivedMethodEvent:
    """A received event about a payment method. `customer` is None after it was detached."""

    number: int
    method: str
    created: int
    customer: str | None

    @property
    def age(self) -> tuple[int, bool, int]:
        """How the events are ordered: attaching comes before detaching in the same second."""
        return (self.created, self.customer is None, self.number)


def expected_method(events: list[ReceivedMethodEvent], customer: str) -> str | None:
    """Return the customer's payment method after these events."""
    newest = {one.method: one for one in sorted(events, key=lambda one: one.age)}.values()
    attached = [one for one in newest if one.customer == customer]
    return max(attached, key=lambda one: one.age).method if attached else None


EVENTS = Bundle("events")
# Most events arrive at once. All can arrive again, or for the first time, at any later time.
LATE = st.sampled_from([False, False, True])


class BillingMachine(RuleBasedStateMachine):
    """A user with a subscription at the provider. Subclasses store the received events."""

    background: ClassVar[Background]
    ports: ClassVar[Ports]
    clock: ClassVar[FakeClock]
    pool: ClassVar[Pool]
    number: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.received_ids: set[str] = set()
        self.checked = -1  # how many events were received until the last check
        self.id = self.customer = ""
        self.metadata: dict[str, str] = {}

    def run(self, act: Callable[..., Awaitable[T]], *args: object) -> T:
        return self.background.run(act, *args)

    @initialize()
    def begin(self) -> None:
        BillingMachine.number += 1
        self.id, self.customer = f"sub_{self.number}", f"cus_{self.number}"
        self.metadata = self.run(self._prepare)

    async def _prepare(self) -> dict[str, str]:
        org = await add_organization(self.pool, f"acme-{self.number}")
        service = await add_service(self.pool, org)
        gold = await add_plan(self.pool, service, "Gold", price="price_gold")
        await add_plan(self.pool, service, "Silver", price="price_silver")
        user = (await add_account(self.ports, f"{self.number}@example.com", None)).id
        checkout = """
            insert into billing_checkouts (id, org_id, service_id, user_id, plan_id, price_id, created_at)
            values (gen_random_uuid(), %s, %s, %s, %s, 'price_gold', now())"""
        await run_sql(self.pool, checkout, org, service, user, gold)
        ids: Mapping[str, UUID] = {"org_id": org, "service_id": service, "user_id": user, "plan_id": gold}
        return {name: str(id_) for name, id_ in ids.items()}

    def deliver_unless_late(self, one: Mapping[str, Any], *, late: bool) -> Mapping[str, Any]:
        if not late:
            self._receive(one)
        return one

    @rule(one=EVENTS)
    def receive(self, one: Mapping[str, Any]) -> None:
        self._receive(one)

    def _receive(self, one: Mapping[str, Any]) -> None:
        billing_event: BillingEvent = provider_events_model.read_event(one)
        effect = self.run(provider_events.receive, self.ports, billing_event)
        assert (effect is Effect.DUPLICATE) == (billing_event.id in self.received_ids)
        if effect is Effect.DUPLICATE:
            self.checked = -1  # a repeated event must not change anything either
        else:
            self.store(len(self.received_ids), billing_event.type, one["created"], one["data"]["object"])
            self.received_ids.add(billing_event.id)
            self.clock.advance(timedelta(seconds=1))

    def store(self, number: int, type_: str, created: int, payload: Mapping[str, Any]) -> None:
        raise NotImplementedError

    @invariant()
    def the_database_agrees(self) -> None:
        if self.id and self.checked != len(self.received_ids):  # an event that has not arrived changes nothing
            self.checked = len(self.received_ids)
            self.check()

    def check(self) -> None:
        raise NotImplementedError


class SubscriptionMachine(BillingMachine):
    """Events about the subscription."""

    def __init__(self) -> None:
        super().__init__()
        self.received: list[ReceivedEvent] = []

    @rule(
        target=EVENTS,
        type_=st.sampled_from(["created", "updated", "updated", "updated", "updated", "trial_will_end"]),
        created=SECONDS,
        status=st.sampled_from([status for status in STATUSES if status != "canceled"]),
        price=st.sampled_from(list(PLANS)),
        ends=st.one_of(st.none(), ENDS, ENDS, ENDS),
        late=LATE,
    )
    def of_subscription(self, type_: str, created: int, status: str, price: str, ends: int | None, *, late: bool) -> Mapping[str, Any]:
        payload = subscription(self.id, status=status, price=price, current_period_end=ends, metadata=self.metadata, customer=self.customer)
        return self.deliver_unless_late(event(f"customer.subscription.{type_}", payload, created), late=late)

    @rule(target=EVENTS, created=SECONDS, type_=st.sampled_from(["updated", "deleted"]))
    def end(self, created: int, type_: str) -> Mapping[str, Any]:
        """End the subscription. It counts forever, so it always arrives late."""
        payload = subscription(self.id, status="canceled", current_period_end=START, metadata=self.metadata, customer=self.customer)
        return event(f"customer.subscription.{type_}", payload, created)

    @rule(
        target=EVENTS,
        type_=st.sampled_from(["invoice.paid", "invoice.paid", "invoice.payment_failed", "invoice.payment_action_required"]),
        created=SECONDS,
        ends=ENDS,
        late=LATE,
    )
    def of_invoice(self, type_: str, created: int, ends: int, *, late: bool) -> Mapping[str, Any]:
        return self.deliver_unless_late(event(type_, invoice(self.id, ends, customer=self.customer), created), late=late)

    def store(self, number: int, type_: str, created: int, payload: Mapping[str, Any]) -> None:
        if "items" in payload:
            [item] = payload["items"]["data"]
            self.received.append(
                ReceivedEvent(number, type_, created, payload["status"], item["price"]["id"], payload.get("current_period_end", 0))
            )
        else:
            self.received.append(ReceivedEvent(number, type_, created, ends=payload["lines"]["data"][0]["period"]["end"]))

    def check(self) -> None:
        query = """
            select s.status, p.name, s.current_period_end from subscriptions s join plans p on p.id = s.plan_id
            where s.provider_subscription_id = %s"""
        rows = self.run(run_sql, self.pool, query, self.id)
        expected = expected_state(self.received)
        if expected is None or not rows:
            assert (expected, rows) == (None, [])
        elif expected[0] == "cancelled":
            assert [row[0] for row in rows] == ["cancelled"]
        else:
            # Without a time in the event, its arrival time counts approximately.
            assert [row if expected[2] else (*row[:2], None) for row in rows] == [expected]


class CustomerMachine(BillingMachine):
    """Events about the customer and the payment methods."""

    def __init__(self) -> None:
        super().__init__()
        self.received: list[ReceivedMethodEvent] = []
        self.is_linked = self.is_deleted = False

    @rule(target=EVENTS, created=SECONDS, type_=st.sampled_from(["created", "updated"]), late=LATE)
    def link(self, created: int, type_: str, *, late: bool) -> Mapping[str, Any]:
        return self.deliver_unless_late(self._of_customer(type_, created), late=late)

    @rule(target=EVENTS, created=SECONDS, is_named=st.booleans())
    def delete(self, created: int, *, is_named: bool) -> Mapping[str, Any]:
        """Delete the customer.

        It counts forever, so it always arrives late. The event can name the customer.
        """
        return self._of_customer("deleted", created, is_named=is_named)

    def _of_customer(self, type_: str, created: int, *, is_named: bool = True) -> Mapping[str, Any]:
        metadata = {"org_id": self.metadata["org_id"]} if is_named else {}
        return event(f"customer.{type_}", {"id": self.customer, "metadata": metadata}, created)

    @rule(
        target=EVENTS, created=SECONDS, method=METHODS, is_detached=st.booleans(), is_ours=st.sampled_from([True, True, False]), late=LATE
    )
    def of_payment_method(self, created: int, method: str, *, is_detached: bool, is_ours: bool, late: bool) -> Mapping[str, Any]:
        customer = self.customer if is_ours else f"{self.customer}_else"
        payload = {"id": f"pm_{self.number}_{method}", "object": "payment_method", "customer": None if is_detached else customer}
        method_event = event(f"payment_method.{'detached' if is_detached else 'attached'}", payload, created)
        if is_detached:
            method_event["data"]["previous_attributes"] = {"customer": customer}
        return self.deliver_unless_late(method_event, late=late)

    def store(self, number: int, type_: str, created: int, payload: Mapping[str, Any]) -> None:
        if "customer" in payload:
            self.received.append(ReceivedMethodEvent(number, payload["id"], created, payload["customer"]))
        elif type_ == "customer.deleted":
            self.is_linked, self.is_deleted = False, True
        else:
            self.is_linked = not self.is_deleted

    def check(self) -> None:
        query = """
            select customer_id, payment_method_id from billing_customers left join billing_default_payment_methods using (org_id)
            where org_id = %s and customer_id is not null"""
        expected = [(self.customer, expected_method(self.received, self.customer))] if self.is_linked else []
        assert self.run(run_sql, self.pool, query, self.metadata["org_id"]) == expected


@pytest.mark.slow
@pytest.mark.parametrize("machine", [SubscriptionMachine, CustomerMachine])
def test_the_state_follows_from_the_newest_events(conninfo: str, machine: type[BillingMachine]) -> None:
    with Background() as background:
        BillingMachine.background = background
        BillingMachine.clock = FakeClock()
        BillingMachine.pool = Pool(conninfo, size=2)
        BillingMachine.ports = background.run(make_ports, BillingMachine.pool, BillingMachine.clock, FakeMailTransport(), FakeMetrics())
        try:
            # The e2e test for billing delivers events in random orders too, and the storage tests prove every rule.
            steady = settings(max_examples=75, stateful_step_count=40)
            run_state_machine_as_test(machine, settings=steady)
        finally:
            background.run(BillingMachine.pool.aclose)
