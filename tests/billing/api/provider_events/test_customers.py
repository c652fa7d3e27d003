"""Events about customers and payment methods (decision 164; security H-4)."""

from typing import Any
from uuid import uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from tests.billing.api.billing import CREATED, Till
from tests.fakes.payments import event
from tests.federation.api.relying import add_relying_party, sign_in_browser
from tests.support.browser import FakeBrowser
from tests.support.builders import run_concurrently, run_sql
from tests.support.tenants import Tenant


async def customers(pool: Pool) -> list[tuple[Any, ...]]:
    return await run_sql(
        pool,
        """
        select org_id, customer_id, user_id::text, payment_method_id
        from billing_customers left join billing_default_payment_methods using (org_id) order by customer_id""",
    )


async def test_a_customer_belongs_to_its_organization_and_is_linked_to_a_user(till: Till, other_tenant: Tenant, pool: Pool) -> None:
    org, member = till.tenant.org, till.tenant.id("member")
    customer = {"id": "cus_1", "metadata": {"org_id": str(org), "user_id": member}}
    await till.deliver("customer.created", customer)
    assert await customers(pool) == [(org, "cus_1", member, None)]
    await till.deliver("customer.updated", {"id": "cus_1", "metadata": {"user_id": till.tenant.id("owner")}}, till.now + 2)
    await till.deliver("customer.updated", customer, till.now + 1)
    assert await customers(pool) == [(org, "cus_1", till.tenant.id("owner"), None)]
    await till.deliver("customer.updated", {"id": "cus_1", "metadata": {"user_id": str(uuid4())}}, till.now + 3)
    assert await customers(pool) == [(org, "cus_1", None, None)]
    for wrong in ({"id": "cus_2", "metadata": customer["metadata"]}, {"id": "cus_1", "metadata": {"org_id": str(other_tenant.org)}},
                  {"id": "cus_3", "metadata": {"org_id": str(uuid4())}}, {"id": "cus_4"}):  # fmt: skip
        await till.deliver("customer.created", wrong, till.now + 4)
    assert await customers(pool) == [(org, "cus_1", None, None)]


async def test_members_see_what_the_provider_said_about_the_customer(till: Till, browser: FakeBrowser) -> None:
    """Members see it in the subscription list, and on the customer's page. Every event changes what they see."""
    tenant, subject = till.tenant, {"id": "cus_1", "metadata": {"org_id": str(till.tenant.org), "user_id": till.tenant.id("member")}}
    party = await add_relying_party(tenant, browser, "console")
    await sign_in_browser(party, tenant.people["member"])
    path = f"organizations/{tenant.slug}/services/{party.slug}/subscriptions"

    async def seen() -> dict[str, Any] | None:
        answer = await tenant.api.get(f"/api/{path}", token=tenant.token("member"))
        assert answer.status == 200, answer.text
        customer: dict[str, Any] | None = answer.json["customer"]
        page = (await browser.open(f"/app/{path.replace('/services/', '/applications/')}")).text
        assert [text in page for text in ("cus_1", "pm_1")] == [bool(customer), bool(customer and customer["payment_method_id"])]
        return customer

    assert await seen() is None
    linked = {"id": "cus_1", "user_id": tenant.id("member"), "payment_method_id": None}
    steps: tuple[tuple[str, dict[str, Any], dict[str, Any] | None], ...] = (
        ("customer.created", subject, linked),
        ("payment_method.attached", {"id": "pm_1", "customer": "cus_1"}, {**linked, "payment_method_id": "pm_1"}),
        ("payment_method.detached", {"id": "pm_1", "customer": None}, linked),
        ("customer.updated", {"id": "cus_1"}, {**linked, "user_id": None}),
        ("customer.deleted", subject, None),
    )
    for number, (type_, body, expected) in enumerate(steps):
        await till.deliver(type_, body, till.now + number)
        assert await seen() == expected, type_


async def test_a_deleted_customer_is_unlinked_and_its_subscriptions_are_checked(till: Till, other_tenant: Tenant, pool: Pool) -> None:
    customer = {"id": "cus_1", "metadata": {"org_id": str(till.tenant.org)}}
    await till.deliver("customer.created", customer)
    await till.deliver(CREATED, till.subscription())
    [(key,)] = await run_sql(pool, "select idempotency_key from billing_customers")
    await till.deliver("customer.deleted", {**customer, "metadata": {"org_id": str(other_tenant.org)}}, till.now + 5)
    assert await customers(pool) == [(till.tenant.org, "cus_1", None, None)], "the event names another organization"
    assert await run_sql(pool, "select 1 from billing_facts where check_at <= %s", till.clock.now()) == []
    await till.deliver("customer.deleted", customer, till.now + 5)
    assert await customers(pool) == [(till.tenant.org, None, None, None)]
    assert await run_sql(pool, "select 1 from billing_customers where idempotency_key = %s", key) == [], (
        "the next customer is created with another key"
    )
    assert await till.status() == "active", "the provider sends an event per subscription, and each is checked"
    assert await run_sql(pool, "select provider_subscription_id from billing_facts where check_at <= %s", till.clock.now()) == [("sub_1",)]
    await till.deliver("customer.updated", customer, till.now + 4)
    assert await customers(pool) == [(till.tenant.org, None, None, None)]


@pytest.mark.parametrize("names_organization", [True, False])
async def test_a_late_creation_event_does_not_bring_back_a_deleted_customer(till: Till, pool: Pool, *, names_organization: bool) -> None:
    """This holds whether or not the deletion names the organization, and for any times: ids are never used twice."""
    customer = {"id": "cus_1", "metadata": {"org_id": str(till.tenant.org)}}
    await till.deliver("customer.deleted", customer if names_organization else {"id": "cus_1"}, till.now + 5)
    for at in (till.now, till.now + 5, till.now + 6):
        await till.deliver("customer.created", customer, at)
        assert await customers(pool) == []
    await till.deliver("customer.created", {**customer, "id": "cus_2"}, till.now + 1)
    assert await customers(pool) == [(till.tenant.org, "cus_2", None, None)]
    await till.deliver("customer.deleted", customer, till.now + 7)
    assert await customers(pool) == [(till.tenant.org, "cus_2", None, None)], "the deletion was of the other customer"


async def test_a_deletion_counts_even_if_newer_events_arrived_before(till: Till, pool: Pool) -> None:
    customer = {"id": "cus_1", "metadata": {"org_id": str(till.tenant.org), "user_id": till.tenant.id("member")}}
    await till.deliver("customer.created", customer, till.now + 5)
    await till.deliver("customer.deleted", {"id": "cus_1"}, till.now)
    await till.deliver("customer.updated", customer, till.now + 6)
    assert await customers(pool) == [(till.tenant.org, None, None, None)]
    await till.deliver("customer.created", {**customer, "id": "cus_2"}, till.now + 1)
    assert await customers(pool) == [(till.tenant.org, "cus_2", till.tenant.id("member"), None)], "the new customer starts afresh"


async def test_a_customer_created_and_deleted_concurrently_is_not_linked(till: Till, pool: Pool) -> None:
    for number in range(10):
        customer = {"id": f"cus_{number}", "metadata": {"org_id": str(till.tenant.org)}}
        events = [event("customer.created", customer, till.now), event("customer.deleted", {"id": customer["id"]}, till.now + 1)]
        assert await run_concurrently(2, lambda number, events=events: till.send_for_status(events[number])) == [200] * 2  # type: ignore[misc]
        assert [row[1] for row in await customers(pool)] in ([], [None])


async def test_the_current_payment_method_is_the_one_attached_last(till: Till, pool: Pool) -> None:
    await till.deliver("customer.created", {"id": "cus_1", "metadata": {"org_id": str(till.tenant.org)}})

    async def current_method() -> object:
        return (await customers(pool))[0][3]

    await till.deliver("payment_method.attached", {"id": "pm_1", "customer": "cus_1"}, till.now + 1)
    assert await current_method() == "pm_1"
    await till.deliver("payment_method.attached", {"id": "pm_3", "customer": "cus_1"}, till.now + 3)
    await till.deliver("payment_method.attached", {"id": "pm_2", "customer": "cus_1"}, till.now + 2)
    await till.deliver("payment_method.detached", {"id": "pm_1", "customer": None}, till.now + 4)
    assert await current_method() == "pm_3"
    await till.deliver("payment_method.detached", {"id": "pm_3", "customer": None}, till.now + 4)
    assert await current_method() == "pm_2", "it is still attached"
    await till.deliver("payment_method.detached", {"id": "pm_2", "customer": None}, till.now + 4)
    assert await current_method() is None
    await till.deliver("payment_method.attached", {"id": "pm_4", "customer": "cus_9"}, till.now + 4)
    await till.deliver("payment_method.attached", {"id": "pm_4"}, till.now + 4)
    assert await current_method() is None


async def test_a_late_attachment_event_does_not_bring_back_a_payment_method(till: Till, pool: Pool) -> None:
    await till.deliver("customer.created", {"id": "cus_1", "metadata": {"org_id": str(till.tenant.org)}})
    detachment = event("payment_method.detached", {"id": "pm_1", "customer": None}, till.now + 2)
    detachment["data"]["previous_attributes"] = {"customer": "cus_1"}
    assert await till.send_for_status(detachment) == 200
    for at in (till.now + 1, till.now + 2):
        await till.deliver("payment_method.attached", {"id": "pm_1", "customer": "cus_1"}, at)
        assert (await customers(pool))[0][3] is None
    await till.deliver("payment_method.attached", {"id": "pm_1", "customer": "cus_1"}, till.now + 3)
    assert (await customers(pool))[0][3] == "pm_1"


async def test_a_payment_method_can_arrive_before_its_customer(till: Till, pool: Pool) -> None:
    await till.deliver("payment_method.attached", {"id": "pm_1", "customer": "cus_1"})
    await till.deliver("customer.created", {"id": "cus_1", "metadata": {"org_id": str(till.tenant.org)}})
    assert (await customers(pool))[0][3] == "pm_1"
