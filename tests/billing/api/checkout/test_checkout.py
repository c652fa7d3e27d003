"""Starting a hosted checkout: customers, refusals and provider failures (security H-6)."""

import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import trio
from structlog.testing import capture_logs

from adapters.http.payments import HttpPayments
from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.billing.api.billing import Till, open_till
from tests.billing.api.checkout.buying import begin
from tests.fakes.http_server import TRAP, in_json
from tests.fakes.http_server import Answer as FakeAnswer
from tests.fakes.outside import FakeClock
from tests.fakes.payments import API_KEY, FakePayments
from tests.support.builders import Answer, add_account, run_concurrently, run_sql
from tests.support.refusals import BAD, FORBIDDEN, MISSING, refused
from tests.support.services import add_plan, add_service, add_subscription, sign_in_to
from tests.support.tenants import Tenant
from tests.support.waiting import eventually

OFF = (500, "BILLING_ERROR")
INACTIVE = (403, "ORGANIZATION_NOT_ACTIVE")


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
    """For a day, the provider repeats a failure to the same idempotency key."""
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
    removed_plan = await add_plan(pool, till.service, "Old", price="price_old")
    await run_sql(pool, "update plans set removed_at = now() where id = %s", removed_plan)
    other_plan = await add_plan(pool, await add_service(pool, till.tenant.org, "other"), price="price_other")
    foreign = (await open_till(other_tenant, clock)).gold
    refusals = [(await till.begin(plan_id=str(plan))) for plan in (uuid4(), removed_plan, foreign)]
    assert {refused(answer) for answer in refusals} == {BAD}
    assert len({answer.json["error"] for answer in refusals}) == 1, "plans of other organizations look as if they did not exist"
    assert "price" in (await till.begin(plan_id=str(free))).json["error"]
    other = await till.begin(plan_id=str(other_plan))
    assert refused(other) == BAD
    assert "another application" in other.json["error"]
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
    body = {"plan_id": str(till.gold), "success_url": "http://localhost/a", "cancel_url": "http://localhost/b"}
    for name in body:
        assert refused(await till.tenant.api.post(path, {**body, name: None}, token=token)) == BAD
    extra = {"price_id": "price_cheap", "customer": "cus_x", "user_id": str(uuid4()), "org_id": str(uuid4()), "mode": "payment"}
    assert (await till.tenant.api.post(path, {**body, **extra}, token=token)).status == 200
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


@pytest.mark.parametrize(("status", "is_allowed"), [("active", False), ("past_due", False), ("cancelled", True), ("expired", True)])
async def test_a_member_with_a_live_subscription_cannot_buy_another(
    till: Till, ports: Ports, pool: Pool, provider: FakePayments, status: str, is_allowed: bool
) -> None:
    member = till.tenant.people["member"].id
    await add_subscription(ports, pool, till.service, member, till.silver, status, ends=till.clock.now() + timedelta(days=1))
    answer = await till.begin()
    assert (answer.status == 200) == is_allowed
    if not is_allowed:
        assert refused(answer) == BAD
        assert "subscription" in answer.json["error"]
        assert provider.requests == []
    assert (await till.begin(by="owner")).status == 200, "other members can buy"


async def test_an_overdue_subscription_does_not_prevent_a_checkout(till: Till, ports: Ports, pool: Pool) -> None:
    await add_subscription(ports, pool, till.service, till.tenant.people["member"].id, till.silver, ends=till.clock.now())
    assert (await till.begin()).status == 200


# Provider failures

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
    """For a day, the provider refuses an idempotency key that comes with a different request."""
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
    assert (refused(answer), answer.json["error"]) == (
        (501, "NOT_IMPLEMENTED"),
        "Billing is not configured on this installation. Ask the operator of Gatehouse to set it up.",
    )
    assert [line for line in logs if line["log_level"] in ("warning", "error", "critical")] == []
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
        # The provider handles one request, and answers the others that the same request is in
        # progress.
        await eventually(lambda: provider.counted["POST customers"] >= 20)
        provider.gate.set()
    assert [answer.status for answer in answers] == [200] * 20
    assert len(provider.customers) == 1
    assert len(provider.sessions) == 20
    assert await run_sql(till.tenant.pool, "select count(*) from billing_customers") == [(1,)]
