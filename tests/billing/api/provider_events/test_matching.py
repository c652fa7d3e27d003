"""The subscription that an event belongs to: metadata, customer and price (decisions 164, 167; security H-5)."""

from uuid import uuid4

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.billing.api.billing import CREATED, DELETED, UPDATED, Till, open_till
from tests.fakes.outside import FakeClock
from tests.fakes.payments import invoice
from tests.support.builders import add_account, run_sql
from tests.support.services import add_plan, add_service, add_subscription
from tests.support.tenants import Tenant


async def test_contradicting_metadata_is_acknowledged_without_effect(till: Till, other_tenant: Tenant, clock: FakeClock) -> None:
    other = await open_till(other_tenant, clock)
    contradictions = [{name: str(uuid4())} for name in ("org_id", "service_id", "user_id", "plan_id")]
    contradictions += [{name: other.metadata()[name]} for name in ("org_id", "service_id", "plan_id")]
    for metadata in contradictions:
        await till.deliver(CREATED, till.subscription(metadata=till.metadata(**metadata)))
        assert await till.rows() == [], metadata
        await till.reset()
    assert await till.recorded() == []


async def test_an_update_with_a_plan_of_another_service_has_no_effect(till: Till, other_tenant: Tenant, clock: FakeClock) -> None:
    other = await open_till(other_tenant, clock)
    await till.deliver(CREATED, till.subscription())
    for plan, status in ((other.gold, "active"), (till.silver, "past_due")):
        metadata = till.metadata(plan_id=plan)
        await till.deliver(UPDATED, till.subscription(metadata=metadata, status="past_due"), till.now + 1)
        assert await till.status() == status


async def test_an_unpaid_checkout_does_not_make_other_prices_valid(till: Till, pool: Pool) -> None:
    checkout = """
        insert into billing_checkouts (id, org_id, service_id, user_id, plan_id, price_id, created_at)
        values (gen_random_uuid(), %(org_id)s, %(service_id)s, %(user_id)s, %(plan_id)s, 'price_before', now())"""
    async with pool.connection() as connection:
        await connection.execute(checkout, till.metadata())
    for price, status in (("price_of_nothing", None), ("price_before", "active")):
        await till.deliver(CREATED, till.subscription(price=price))
        assert await till.status() == status


async def test_the_price_must_be_that_of_the_plan(till: Till) -> None:
    for price in ("price_silver", "price_of_nothing", None):
        await till.deliver(CREATED, till.subscription(price=price))
        assert await till.rows() == []


async def test_a_subscription_of_another_organizations_customer_has_no_effect(till: Till, other_tenant: Tenant, pool: Pool) -> None:
    customer = "insert into billing_customers (org_id, idempotency_key, customer_id, created_at) values (%s, gen_random_uuid(), %s, now())"
    await run_sql(pool, customer, other_tenant.org, "cus_twin")
    await till.deliver(CREATED, till.subscription(customer="cus_twin"))
    assert await till.rows() == []
    await run_sql(pool, customer, till.tenant.org, "cus_1")
    await till.deliver(CREATED, till.subscription(customer="cus_else"), till.now + 1)
    assert await till.rows() == []
    await till.deliver(CREATED, till.subscription(), till.now + 2)
    assert await till.status() == "active"


async def test_no_event_moves_a_subscription_to_another_owner(till: Till, other_tenant: Tenant, clock: FakeClock, pool: Pool) -> None:
    other = await open_till(other_tenant, clock)
    await till.deliver(CREATED, till.subscription())
    before = await run_sql(pool, "select * from subscriptions")
    facts = await run_sql(pool, "select status, customer_id, org_id from billing_facts")
    for changes in (
        {"metadata": other.metadata()},
        {"metadata": till.metadata(user_id=other_tenant.id("member"))},
        {"metadata": till.metadata(service_id=other.service)},
        {"customer": "cus_2"},
    ):
        for type_, status in ((UPDATED, "past_due"), (DELETED, "canceled")):
            await till.deliver(type_, till.subscription(status=status, **changes), till.now + 1)
    await till.deliver("invoice.payment_failed", invoice("sub_1", customer="cus_2"), till.now + 1)
    assert await run_sql(pool, "select * from subscriptions") == before
    assert await run_sql(pool, "select status, customer_id, org_id from billing_facts") == facts


async def test_a_second_subscription_waits_until_the_first_has_ended(till: Till) -> None:
    await till.deliver(CREATED, till.subscription())
    second = till.subscription("sub_2", price="price_silver", metadata=till.metadata(plan_id=till.silver))
    await till.deliver(CREATED, second, till.now + 1)
    await till.deliver("invoice.paid", invoice("sub_2", till.ends), till.now + 2)
    assert [row[:2] for row in await till.rows()] == [("active", "Gold")]
    await till.deliver(DELETED, till.subscription(status="canceled"), till.now + 3)
    await till.deliver(UPDATED, second, till.now + 4)
    assert sorted(row[:2] for row in await till.rows()) == [("active", "Silver"), ("cancelled", "Gold")]


async def test_a_reactivated_subscription_waits_for_a_live_one(till: Till) -> None:
    await till.deliver(CREATED, till.subscription(status="incomplete_expired"))
    await till.deliver(CREATED, till.subscription("sub_2"), till.now + 1)
    await till.deliver(UPDATED, till.subscription(status="active"), till.now + 2)
    assert sorted(row[0] for row in await till.rows()) == ["active", "expired"]
    await till.deliver(DELETED, till.subscription("sub_2", status="canceled"), till.now + 3)
    await till.deliver(UPDATED, till.subscription(status="active"), till.now + 4)
    assert sorted(row[0] for row in await till.rows()) == ["active", "cancelled"]


async def test_an_overdue_subscription_does_not_prevent_a_new_one(till: Till, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    member = till.tenant.people["member"].id
    await add_subscription(ports, pool, till.service, member, till.silver, ends=clock.now())
    await till.deliver(CREATED, till.subscription())
    assert sorted(row[:2] for row in await till.rows()) == [("active", "Gold"), ("expired", "Silver")]


async def test_an_unknown_price_is_reported_once_and_changes_no_plan(
    till: Till, other_tenant: Tenant, clock: FakeClock, pool: Pool
) -> None:
    other = await add_service(pool, till.tenant.org, "other")
    await add_plan(pool, other, price="price_other")
    await open_till(other_tenant, clock)
    await run_sql(pool, "update plans set billing_price_id = 'price_twin' where org_id = %s", other_tenant.org)
    await till.deliver(CREATED, till.subscription())
    for number, price in enumerate(("price_of_nothing", "price_other", "price_twin")):
        subscription = till.subscription(price=price, status=("past_due", "active")[number % 2])
        assert await till.deliver_for_effects(UPDATED, subscription, till.now + 2 * number + 1) == ["mismatch"]
        assert [row[:2] for row in await till.rows()] == [(subscription["status"], "Gold")]
        assert await till.deliver_for_effects(UPDATED, subscription, till.now + 2 * number + 2) == ["unchanged"]
    assert await till.deliver_for_effects(UPDATED, till.subscription(price="price_silver", status="past_due"), till.now + 10) == ["done"]
    assert [row[:2] for row in await till.rows()] == [("past_due", "Silver")]


async def test_events_apply_while_the_organization_is_suspended(till: Till, pool: Pool) -> None:
    await till.deliver(CREATED, till.subscription())
    await run_sql(pool, "update organizations set status = 'suspended'")
    await till.deliver(UPDATED, till.subscription(status="past_due"), till.now + 1)
    await till.deliver(CREATED, till.subscription("sub_2", metadata=till.metadata(user_id=till.tenant.id("owner"))))
    assert sorted(row[0] for row in await till.rows()) == ["active", "past_due"]


async def test_events_about_a_deleted_service_create_nothing(till: Till, pool: Pool) -> None:
    await till.deliver(CREATED, till.subscription())
    await run_sql(pool, "delete from services")
    await till.deliver(UPDATED, till.subscription(status="past_due"), till.now + 1)
    await till.deliver(CREATED, till.subscription("sub_2"))
    assert await till.rows() == []


async def test_a_deleted_account_gets_no_subscription(till: Till, ports: Ports, pool: Pool) -> None:
    account = await add_account(ports, "gone@example.com", None)
    await run_sql(pool, "delete from users where id = %s", account.id)
    await till.deliver(CREATED, till.subscription(metadata=till.metadata(user_id=account.id)))
    assert await till.rows() == []
