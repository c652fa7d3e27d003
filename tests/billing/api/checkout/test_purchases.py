"""Events from a completed checkout (security H-5)."""

import json
from typing import Any
from uuid import uuid4

import jwt
import pytest

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.billing.api.billing import Till
from tests.billing.api.checkout.buying import SECOND, begin, buy
from tests.fakes.payments import FakePayments, event
from tests.support.builders import run_sql
from tests.support.refusals import BAD, refused
from tests.support.services import sign_in_to


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
    for provider_status, our_status in (
        ("trialing", "active"),
        ("past_due", "past_due"),
        ("unpaid", "past_due"),
        ("canceled", "cancelled"),
    ):
        till.clock.advance(SECOND)
        provider.change(subscription["id"], status=provider_status)
        await provider.deliver(till.send_for_status)
        assert await claims() == ("Gold", our_status, ["exports"])


async def test_an_event_cannot_move_a_purchase_to_another_member(till: Till, provider: FakePayments) -> None:
    """Two members have checkouts."""
    subscription = provider.complete(await begin(till))
    await begin(till, by="owner")
    stolen = {**subscription, "metadata": till.metadata(user_id=till.tenant.id("owner"))}
    await provider.deliver(till.send_for_status)
    assert await till.send_for_status(json.loads(json.dumps(event("customer.subscription.updated", stolen, till.now + 5)))) == 200
    assert await run_sql(till.tenant.pool, "select user_id::text from subscriptions") == [(till.tenant.id("member"),)]
