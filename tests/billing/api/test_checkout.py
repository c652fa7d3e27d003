"""Hosted checkout, from the start to the subscription, and cancellation at the provider.

The rules are decisions 115, 159, 162, 163, 164, 229, and security H-5, H-6, Z-6. The module is
longer than 400 lines, because its tests share fixtures and helpers.
"""

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import jwt
import pytest
import trio
from structlog.testing import capture_logs

from adapters.http.payments import HttpPayments
from adapters.postgres.engine.pool import Pool
from core.applications import cancellations, cancellations_rules
from core.billing import reconciliation, reconciliation_rules
from core.billing.provider_facts import SOON
from core.kernel.errors import StorageDown
from core.kernel.principals import SYSTEM
from core.kernel.values import new_id
from entrypoints.http.app import Edge
from ports import Ports
from tests.billing.api.billing import Till, open_till
from tests.fakes.http_server import TRAP, in_json
from tests.fakes.http_server import Answer as FakeAnswer
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.fakes.payments import API_KEY, SECRET, FakePayments, Object, event
from tests.support.builders import Answer, add_account, make_edge, make_ports, run_concurrently, run_sql
from tests.support.refusals import BAD, FORBIDDEN, MISSING, refused
from tests.support.services import add_plan, add_service, add_subscription, sign_in_to
from tests.support.tenants import Tenant
from tests.support.waiting import eventually

SECOND = timedelta(seconds=1)
OFF = (500, "BILLING_ERROR")
INACTIVE = (403, "ORGANIZATION_NOT_ACTIVE")


@pytest.fixture
def provider(clock: FakeClock) -> Iterator[FakePayments]:
    with FakePayments(now=lambda: clock.now().timestamp()) as running:
        yield running


@pytest.fixture
async def ports(pool: Pool, clock: FakeClock, sent: FakeMailTransport, metrics: FakeMetrics, provider: FakePayments) -> Ports:
    return await make_ports(pool, clock, sent, metrics, payments=HttpPayments(provider.settings, clock))


@pytest.fixture
def edge() -> Edge:
    return make_edge(billing_secrets=(SECRET,))


@pytest.fixture
async def till(acme: Tenant, clock: FakeClock) -> Till:
    return await open_till(acme, clock)


async def begin(till: Till, **changes: Any) -> str:
    """Start a checkout, and return the id of the provider's session."""
    answer = await till.begin(**changes)
    assert answer.status == 200, answer.text
    return str(answer.json["session_id"])


async def buy(till: Till, provider: FakePayments, by: str = "member") -> Object:
    """Buy a subscription, and deliver the provider's events about it."""
    subscription = provider.complete(await begin(till, by=by))
    await provider.deliver(till.send_for_status)
    return subscription


# Starting a checkout


async def test_a_checkout_returns_a_page_of_the_provider(till: Till, provider: FakePayments) -> None:
    answer = await till.begin(success_url="https://shop.example.com/thanks?session={CHECKOUT_SESSION_ID}")
    session = answer.json["session_id"]
    assert (answer.status, answer.json) == (200, {"checkout_url": f"{provider.address}/pay/{session}", "session_id": session})
    (_, first, customer), (_, second, sent) = provider.requests
    assert (first, second) == ("customers", "checkout/sessions")
    assert customer == {"name": "Acme", "metadata[org_id]": str(till.tenant.org)}
    [(checkout_id,)] = await run_sql(till.tenant.pool, "select id::text from billing_checkouts")
    metadata = till.metadata()
    assert sent == {
        "mode": "subscription",
        "customer": next(iter(provider.customers)),
        "line_items[0][price]": "price_gold",
        "line_items[0][quantity]": "1",
        "success_url": "https://shop.example.com/thanks?session={CHECKOUT_SESSION_ID}",
        "cancel_url": "https://shop.example.com/",
        "client_reference_id": checkout_id,
        **{f"metadata[{name}]": value for name, value in metadata.items()},
        **{f"subscription_data[metadata][{name}]": value for name, value in metadata.items()},
    }
    for headers in provider.headers:
        assert headers["authorization"] == f"Bearer {API_KEY}"
        assert headers["content-type"] == "application/x-www-form-urlencoded"
        assert headers["idempotency-key"]


async def test_any_member_can_buy_and_the_organization_has_one_customer(till: Till, provider: FakePayments) -> None:
    for name in ("owner", "admin", "member"):
        await begin(till, by=name)
    assert len(provider.customers) == 1
    assert [session["metadata"]["user_id"] for session in provider.sessions.values()] == [
        till.tenant.id(name) for name in ("owner", "admin", "member")
    ]


async def test_a_customer_can_be_created_after_a_failure_of_the_provider(till: Till, provider: FakePayments) -> None:
    """The provider repeats a failure for one day to the same idempotency key."""
    provider.answers["customers"] = FakeAnswer(500)
    assert refused(await till.begin()) == (500, "BILLING_ERROR")
    del provider.answers["customers"]
    await begin(till)
    await begin(till)
    assert len(provider.customers) == 1


async def test_each_organization_has_a_separate_customer(
    till: Till, other_tenant: Tenant, clock: FakeClock, provider: FakePayments
) -> None:
    other = await open_till(other_tenant, clock)
    await begin(till)
    await begin(other)
    assert sorted(customer["name"] for customer in provider.customers.values()) == ["Acme", "Twin"]


async def test_only_existing_plans_of_the_service_with_a_price_can_be_bought(
    till: Till, other_tenant: Tenant, pool: Pool, clock: FakeClock, provider: FakePayments
) -> None:
    free = await add_plan(pool, till.service, "Free")
    removed = await add_plan(pool, till.service, "Old", price="price_old")
    await run_sql(pool, "update plans set removed_at = now() where id = %s", removed)
    elsewhere = await add_plan(pool, await add_service(pool, till.tenant.org, "other"), price="price_other")
    foreign = (await open_till(other_tenant, clock)).gold
    unknown = [(await till.begin(plan_id=str(plan))) for plan in (uuid4(), removed, foreign)]
    assert {refused(answer) for answer in unknown} == {BAD}
    assert len({answer.json["error"] for answer in unknown}) == 1, "plans of other organizations look as if they did not exist"
    assert "price" in (await till.begin(plan_id=str(free))).json["error"]
    other = await till.begin(plan_id=str(elsewhere))
    assert refused(other) == BAD
    assert "another service" in other.json["error"]
    assert provider.requests == []
    assert await run_sql(pool, "select 1 from billing_checkouts") == []


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("plan_id", ["", "x", 5, None, str(uuid4()).upper()]),
        (
            "success_url",
            ["", "x", "/thanks", "//shop.example.com", "ftp://shop.example.com", "javascript:alert(1)", "https://", "https:///x", "http:x",
             5, None, "https://shop.example.com/\n", "https://shop.example.com/\u0000", "https://shop.example.com/a b", "https://[::1",
             "https://h:x/",
             "https://shop.example.com\\@evil.example/", f"https://shop.example.com/{'x' * 2048}"],
        ),
    ],
)  # fmt: skip
async def test_malformed_fields_are_refused(till: Till, provider: FakePayments, name: str, values: list[Any]) -> None:
    for value in values:
        assert refused(await till.begin(**{name: value})) == BAD, value
        if name == "success_url":
            assert refused(await till.begin(cancel_url=value)) == BAD, value
    assert provider.requests == []


async def test_the_refusal_of_a_url_with_a_space_says_why(till: Till) -> None:
    assert "without spaces" in (await till.begin(cancel_url="https://shop.example.com/a b")).json["error"]


async def test_all_fields_are_required_and_other_fields_are_ignored(till: Till, provider: FakePayments) -> None:
    path, token = f"{till.tenant.path}/services/shop/checkout", till.tenant.token("member")
    good = {"plan_id": str(till.gold), "success_url": "http://localhost/a", "cancel_url": "http://localhost/b"}
    for name in good:
        assert refused(await till.tenant.api.post(path, {**good, name: None}, token=token)) == BAD
    extra = {"price_id": "price_cheap", "customer": "cus_x", "user_id": str(uuid4()), "org_id": str(uuid4()), "mode": "payment"}
    assert (await till.tenant.api.post(path, {**good, **extra}, token=token)).status == 200
    assert provider.requests[-1][2]["line_items[0][price]"] == "price_gold"


async def test_other_callers_are_refused(till: Till, other_tenant: Tenant, ports: Ports, pool: Pool, provider: FakePayments) -> None:
    api, path = till.tenant.api, f"{till.tenant.path}/services/shop/checkout"
    body = {"plan_id": str(till.gold), "success_url": "http://localhost/a", "cancel_url": "http://localhost/b"}
    assert refused(await api.post(path, body)) == (401, "UNAUTHORIZED")
    assert refused(await api.post(path, body, token=other_tenant.token("owner"))) == FORBIDDEN
    end_user = await add_account(ports, "end@example.com", None)
    application = await sign_in_to(ports, pool, till.service, end_user)
    assert refused(await api.post(path, body, token=application.access_token)) == FORBIDDEN
    missing = f"{till.tenant.path}/services/none/checkout"
    assert refused(await api.post(missing, {}, token=till.tenant.token("member"))) == MISSING
    for status in ("suspended", "pending", "rejected"):
        await run_sql(pool, "update organizations set status = %s where slug = 'acme'", status)
        assert refused(await till.begin()) == INACTIVE
    assert provider.requests == []


@pytest.mark.parametrize(("status", "may"), [("active", False), ("past_due", False), ("cancelled", True), ("expired", True)])
async def test_a_member_with_a_live_subscription_cannot_buy_another(
    till: Till, ports: Ports, pool: Pool, provider: FakePayments, status: str, may: bool
) -> None:
    member = till.tenant.people["member"].id
    await add_subscription(ports, pool, till.service, member, till.silver, status, ends=till.clock.now() + timedelta(days=1))
    answer = await till.begin()
    assert (answer.status == 200) == may
    if not may:
        assert refused(answer) == BAD
        assert "subscription" in answer.json["error"]
        assert provider.requests == []
    assert (await till.begin(by="owner")).status == 200, "other members can buy"


async def test_an_overdue_subscription_does_not_prevent_a_checkout(till: Till, ports: Ports, pool: Pool) -> None:
    await add_subscription(ports, pool, till.service, till.tenant.people["member"].id, till.silver, ends=till.clock.now())
    assert (await till.begin()).status == 200


# Failures of the provider

FAILURES: dict[str, FakeAnswer] = {
    "server error": FakeAnswer(500, TRAP.encode()),
    "refusal": in_json({"error": {"message": TRAP}}, 402),
    "no JSON": FakeAnswer(200, TRAP.encode()),
    "list": in_json([1]),
    "no id": in_json({"url": "https://provider.example/pay"}),
    "no URL": in_json({"id": "cs_1", "url": None}),
    "unsafe URL": in_json({"id": "cs_1", "url": "javascript:alert(1)"}),
    "too long": FakeAnswer(200, b'{"id": "' + b"x" * 70_000 + b'"}'),
}


async def test_failures_of_the_provider_are_reported_without_its_text(till: Till, provider: FakePayments) -> None:
    for name, failure in FAILURES.items():
        provider.answers["checkout/sessions"] = failure
        answer = await till.begin()
        assert refused(answer) == OFF, name
        assert "ry again" in answer.json["error"], name
        assert TRAP not in answer.text, name
        del provider.answers["checkout/sessions"]
        assert (await till.begin()).status == 200, name
    assert len(provider.customers) == 1


async def test_a_customer_is_not_created_twice_if_the_response_was_lost(till: Till, provider: FakePayments) -> None:
    provider.lost.add("customers")
    assert refused(await till.begin()) == OFF
    assert await run_sql(till.tenant.pool, "select customer_id from billing_customers") == [(None,)]
    provider.lost.clear()
    assert (await till.begin()).status == 200
    assert len(provider.customers) == 1


async def test_an_organization_renamed_after_a_lost_response_gets_another_customer(till: Till, provider: FakePayments) -> None:
    """For one day the provider refuses an idempotency key that comes with another request."""
    provider.lost.add("customers")
    assert refused(await till.begin()) == OFF
    provider.lost.clear()
    await run_sql(till.tenant.pool, "update organizations set name = 'Apex'")
    assert refused(await till.begin()) == OFF
    await begin(till)
    await begin(till)
    assert [customer["name"] for customer in provider.customers.values()] == ["Acme", "Apex"]


async def test_a_deleted_customer_is_replaced(till: Till, provider: FakePayments) -> None:
    await begin(till)
    provider.customers.clear()
    assert refused(await till.begin()) == OFF
    assert (await till.begin()).status == 200
    assert len(provider.customers) == 1


async def test_without_a_provider_no_checkout_can_start(
    till: Till, pool: Pool, ports: Ports, clock: FakeClock, provider: FakePayments
) -> None:
    object.__setattr__(ports, "payments", HttpPayments(None, clock))
    with capture_logs() as logs:
        answer = await till.begin()
    assert (refused(answer), answer.json["error"]) == (OFF, "Billing is not configured on this installation. Contact its operator.")
    assert [line["error"] for line in logs if line["event"] == "outage"] == ["SSO_BILLING_API_URL and SSO_BILLING_API_KEY are not set"]
    assert refused(await till.begin(success_url="x")) == BAD
    assert await run_sql(pool, "select 1 from billing_checkouts union all select 1 from billing_customers") == []


# Concurrency


@pytest.mark.slow
async def test_twenty_concurrent_checkouts_create_one_customer(till: Till, provider: FakePayments) -> None:
    provider.gate = threading.Event()

    async def begin(_: int) -> Answer:
        return await till.begin()

    async with trio.open_nursery() as nursery:
        answers: list[Answer] = []

        async def all_of_them() -> None:
            answers.extend(await run_concurrently(20, begin))

        nursery.start_soon(all_of_them)
        # The provider tells all but one that the same request is in progress.
        await eventually(lambda: provider.counted["POST customers"] >= 20)
        provider.gate.set()
    assert [answer.status for answer in answers] == [200] * 20
    assert len(provider.customers) == 1
    assert len(provider.sessions) == 20
    assert await run_sql(till.tenant.pool, "select count(*) from billing_customers") == [(1,)]


# Purchases


@pytest.mark.parametrize("seed", range(3))
async def test_a_purchase_is_applied_for_any_order_of_events(till: Till, provider: FakePayments, seed: int) -> None:
    provider.complete(await begin(till))
    answers = await provider.deliver(till.send_for_status, seed, copies=3)
    assert answers == {200: 12}
    assert [row[:2] for row in await till.rows()] == [("active", "Gold")]
    assert await run_sql(till.tenant.pool, "select provider_subscription_id, check_at from billing_checkouts") == [
        (next(iter(provider.subscriptions)), None)
    ]
    assert refused(await till.begin()) == BAD


async def test_a_purchase_is_applied_even_if_the_plan_changed_its_price_or_was_deleted(till: Till, provider: FakePayments) -> None:
    session, other = await begin(till), await begin(till, by="owner", plan_id=str(till.silver))
    await run_sql(till.tenant.pool, "update plans set billing_price_id = 'price_new' where id = %s", till.gold)
    await run_sql(till.tenant.pool, "update plans set removed_at = now() where id = %s", till.silver)
    provider.complete(session)
    provider.complete(other)
    await provider.deliver(till.send_for_status)
    assert sorted(row[:2] for row in await till.rows()) == [("active", "Gold"), ("active", "Silver")]


async def test_a_session_that_contradicts_its_checkout_has_no_effect(till: Till, provider: FakePayments, pool: Pool) -> None:
    session = provider.sessions[await begin(till)]
    fields = {name: value for name, value in session.items() if not name.startswith("_")} | {"subscription": "sub_1"}
    for wrong in (
        {"metadata": till.metadata(plan_id=till.silver)},
        {"customer": "cus_else"},
        {"client_reference_id": str(uuid4())},
        {"client_reference_id": "x"},
        {"subscription": None},
        {"id": "cs_else"},
    ):
        await till.deliver("checkout.session.completed", {**fields, **wrong})
        assert await run_sql(pool, "select 1 from billing_checkouts where provider_subscription_id is not null") == []
    await till.deliver("checkout.session.completed", fields)
    # The checkout was for gold, so metadata with another plan contradicts it.
    other_plan = till.subscription(customer=session["customer"], metadata=till.metadata(plan_id=till.silver), price="price_silver")
    await till.deliver("customer.subscription.created", other_plan)
    assert await till.rows() == []
    await till.deliver("customer.subscription.created", till.subscription(customer=session["customer"]))
    assert await till.status() == "active"


async def test_a_session_event_can_arrive_before_its_response(till: Till, provider: FakePayments, pool: Pool) -> None:
    provider.complete(await begin(till))
    await run_sql(pool, "update billing_checkouts set session_id = null, customer_id = null")
    await provider.deliver(till.send_for_status)
    assert await till.status() == "active"


async def test_tokens_contain_the_plan_and_status(till: Till, provider: FakePayments, ports: Ports, pool: Pool) -> None:
    subscription = await buy(till, provider)
    member = till.tenant.people["member"]

    async def claims() -> tuple[Any, ...]:
        session = await sign_in_to(ports, pool, till.service, member)
        answer = await till.tenant.api.post("/api/auth/refresh", {"refresh_token": session.refresh_token})
        payload = jwt.decode(answer.json["access_token"], options={"verify_signature": False})
        return payload.get("plan"), payload.get("subscription_status"), payload.get("features")

    assert await claims() == ("Gold", "active", ["exports"])
    for theirs, ours in (("trialing", "active"), ("past_due", "past_due"), ("unpaid", "past_due"), ("canceled", "cancelled")):
        till.clock.advance(SECOND)
        provider.change(subscription["id"], status=theirs)
        await provider.deliver(till.send_for_status)
        assert await claims() == ("Gold", ours, ["exports"])


# Cancellation


async def canceled_ids(provider: FakePayments) -> list[str]:
    return [path.rpartition("/")[2] for method, path, _ in provider.requests if method == "DELETE"]


async def test_a_subscription_ended_by_an_api_key_is_canceled_at_the_provider(till: Till, provider: FakePayments, pool: Pool) -> None:
    subscription = await buy(till, provider)
    assert (await till.by_key("DELETE")).status == 204
    assert await canceled_ids(provider) == [subscription["id"]]
    assert await till.status() == "cancelled"
    assert refused(await till.by_key("DELETE")) == MISSING
    await provider.deliver(till.send_for_status)
    assert (await till.recorded()).count("subscription.canceled") == 1
    assert await run_sql(pool, "select 1 from billing_cancellations") == []
    assert (await till.begin()).status == 200, "another subscription can be bought"


async def test_deleting_a_service_cancels_its_subscriptions_at_the_provider(till: Till, provider: FakePayments, pool: Pool) -> None:
    subscription_ids = [(await buy(till, provider, name))["id"] for name in ("member", "owner")]
    answer = await till.tenant.api.delete(f"{till.tenant.path}/services/shop", token=till.tenant.token("owner"))
    assert answer.status == 204
    assert sorted(await canceled_ids(provider)) == sorted(subscription_ids)
    entries = await run_sql(pool, "select details from audit_log where action = 'subscription.canceled'")
    assert entries == [({"service_id": str(till.service), "at_provider": True},)] * 2
    await provider.deliver(till.send_for_status)
    assert await run_sql(pool, "select 1 from billing_cancellations") == []


async def test_a_failed_cancellation_is_retried_later(till: Till, provider: FakePayments, pool: Pool, ports: Ports) -> None:
    subscription = await buy(till, provider)
    path = f"subscriptions/{subscription['id']}"
    provider.answers[path] = FakeAnswer(500, TRAP.encode())
    answer = await till.tenant.api.delete(f"{till.tenant.path}/services/shop", token=till.tenant.token("owner"))
    assert answer.status == 204, "the service is deleted"
    assert provider.subscriptions[subscription["id"]]["status"] == "active"
    del provider.answers[path]
    assert await reconciliation.reconcile(ports, new_id()) == {}
    till.clock.advance(cancellations_rules.LEASE)
    assert await reconciliation.reconcile(ports, new_id()) is None, "another process holds the lease"
    till.clock.advance(reconciliation_rules.LEASE)
    assert await reconciliation.reconcile(ports, new_id()) == {"cancelled": 1}
    assert provider.subscriptions[subscription["id"]]["status"] == "canceled"
    assert await run_sql(pool, "select count(*) from audit_log where action = 'subscription.canceled'") == [(1,)]


@pytest.mark.parametrize("removed", ["organizations", "users", "subscriptions"])
async def test_removing_a_subscription_in_any_way_cancels_it_at_the_provider(
    till: Till, provider: FakePayments, pool: Pool, ports: Ports, removed: str
) -> None:
    subscription = await buy(till, provider)
    if removed == "organizations":
        assert (await till.tenant.api.delete(till.tenant.path, token=till.tenant.token("owner"))).status == 204
    elif removed == "users":
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await tx.service_users.remove_everywhere(UUID(till.tenant.id("member")))
    else:
        await run_sql(pool, "delete from subscriptions")
    till.clock.advance(SECOND)
    assert (await reconciliation.reconcile(ports, new_id()) or {})["cancelled"] == 1
    assert provider.subscriptions[subscription["id"]]["status"] == "canceled"
    await provider.deliver(till.send_for_status)
    assert await till.rows() == []


async def delete(till: Till, removed: str) -> None:
    path = till.tenant.path if removed == "organization" else f"{till.tenant.path}/services/shop"
    assert (await till.tenant.api.delete(path, token=till.tenant.token("owner"))).status == 204


@pytest.mark.parametrize("removed", ["service", "organization"])
@pytest.mark.parametrize("events_arrive", [True, False])
async def test_a_purchase_for_a_deleted_service_is_canceled_at_the_provider(
    till: Till, provider: FakePayments, pool: Pool, ports: Ports, removed: str, *, events_arrive: bool
) -> None:
    session, holder = await begin(till), new_id()
    await delete(till, removed)
    subscription = provider.complete(session)
    if events_arrive:
        assert set(await provider.deliver(till.send_for_status, seed=1, copies=2)) == {200}
    else:
        provider.events.clear()
    for _ in range(2):  # without events the first round asks the provider
        till.clock.advance(SOON)
        await reconciliation.reconcile(ports, holder)
    assert provider.subscriptions[subscription["id"]]["status"] == "canceled"
    if events_arrive:
        await provider.deliver(till.send_for_status)
        await till.deliver("customer.subscription.updated", subscription)  # late
        till.clock.advance(SOON)
        assert "orphaned" not in (await reconciliation.reconcile(ports, holder) or {})
    assert await canceled_ids(provider) == [subscription["id"]]
    assert await till.rows() == []
    entries = await run_sql(pool, "select org_id, details from audit_log where action = 'subscription.canceled'")
    details = {"service_id": str(till.service), "at_provider": True}
    assert entries == ([(till.tenant.org, details)] if removed == "service" else []), "a deleted organization has no audit log"


async def test_subscriptions_of_other_installations_are_not_canceled(till: Till, provider: FakePayments, pool: Pool) -> None:
    """The same provider account may serve other installations with other services."""
    subscription = provider.complete(await begin(till))
    provider.events.clear()
    await delete(till, "service")
    for changes in ({"service_id": uuid4()}, {"org_id": uuid4()}, {"plan_id": till.silver}, {"user_id": till.tenant.id("owner")}):
        for id_ in ("sub_else", subscription["id"]):
            await till.deliver("customer.subscription.created", till.subscription(id_, metadata=till.metadata(**changes)))
    await till.deliver("customer.subscription.created", {**subscription, "customer": "cus_else"})
    assert await run_sql(pool, "select 1 from billing_cancellations") == []
    await till.deliver("customer.subscription.created", {**subscription, "status": "incomplete_expired"})
    assert await run_sql(pool, "select 1 from billing_cancellations") == [], "it has already ended"


async def test_a_cancellation_that_cannot_be_recorded_is_reported_and_recorded_later(
    till: Till, provider: FakePayments, pool: Pool, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription = await buy(till, provider)

    async def fails(*_: object) -> None:
        raise StorageDown

    with monkeypatch.context() as patch:
        patch.setattr(cancellations, "_record", fails)
        answer = await till.tenant.api.delete(f"{till.tenant.path}/services/shop", token=till.tenant.token("owner"))
    assert refused(answer) == (500, "AUDIT_ERROR")
    assert provider.subscriptions[subscription["id"]]["status"] == "canceled"
    assert await run_sql(pool, "select 1 from services") == []
    till.clock.advance(cancellations_rules.LEASE)
    assert await reconciliation.reconcile(ports, new_id()) == {"cancelled": 1}
    assert await run_sql(pool, "select count(*) from audit_log where action = 'subscription.canceled'") == [(1,)]


async def test_an_event_cannot_move_a_purchase_to_another_member(till: Till, provider: FakePayments) -> None:
    """Two members have checkouts. The purchase of one cannot become the other's."""
    subscription = provider.complete(await begin(till))
    await begin(till, by="owner")
    stolen = {**subscription, "metadata": till.metadata(user_id=till.tenant.id("owner"))}
    await provider.deliver(till.send_for_status)
    assert await till.send_for_status(json.loads(json.dumps(event("customer.subscription.updated", stolen, till.now + 5)))) == 200
    assert await run_sql(till.tenant.pool, "select user_id::text from subscriptions") == [(till.tenant.id("member"),)]
