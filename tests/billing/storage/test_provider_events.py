"""Isolation, triggers and costs of the statements about customers, checkouts, facts and cancellations.

Statements with an organization read and change nothing of another one. Statements with only an id
of the provider are used where an event names no organization. The module is longer than 400 lines,
because its tests share fixtures and helpers.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import LiteralString
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.driver import Connection
from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres, Repositories, Transaction
from core.applications.cancellations_rules import Cancellation
from core.billing.checkout_rules import Checkout
from core.billing.provider_objects import CheckoutMetadata
from core.billing.subscriptions_rules import SubscribedPlan, Subscription, SubscriptionStatus
from core.kernel.principals import SYSTEM
from core.maintenance.housekeeping_rules import Sweep
from ports.signals import NoSignals
from tests.support.builders import add_organization, make_vault, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, NOW, SECOND, account, add, rows_looked_at, within, without_foreign_keys
from tests.support.services import add_plan, add_service

PRICE = "price_gold"
TABLES = (
    *("billing_customers", "billing_deleted_customers", "billing_payment_methods", "billing_checkouts", "billing_facts"),
    *("billing_cancellations", "subscriptions"),
)


@dataclass(frozen=True, slots=True)
class Shop:
    """A service with one object of each kind. Ids of the provider end with the organization's slug."""

    slug: str
    metadata: CheckoutMetadata
    checkout: UUID
    key: UUID
    subscription: UUID

    def ref(self, kind: str) -> str:
        return f"{kind}_{self.slug}"

    @property
    def org(self) -> UUID:
        return self.metadata.org_id

    @property
    def cancellation(self) -> Cancellation:
        return Cancellation(self.ref("gone"), self.subscription, self.org, self.metadata.service_id, NOW)

    @property
    def sold(self) -> Subscription:
        return Subscription(
            id=self.subscription,
            org_id=self.org,
            service_id=self.metadata.service_id,
            user_id=self.metadata.user_id,
            plan=SubscribedPlan(self.metadata.plan_id, self.metadata.service_id, "Gold", ("exports",), False, PRICE),
            status=SubscriptionStatus.ACTIVE,
            current_period_end=NOW + DAY,
            provider_subscription_id=self.ref("sub"),
            created_at=NOW - DAY,
        )


async def open_shop(storage: Postgres, pool: Pool, slug: str, user: UUID) -> Shop:
    org = await add_organization(pool, slug)
    service = await add_service(pool, org)
    shop = Shop(slug, CheckoutMetadata(org, service, user, await add_plan(pool, service, price=PRICE)), uuid4(), uuid4(), uuid4())
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.customers.find_or_add(org, shop.key, NOW)
        await tx.customers.save(org, shop.key, shop.ref("cus"))
        await tx.customers.save_user(org, shop.ref("cus"), user, NOW)
        await tx.customers.attach_payment_method(shop.ref("cus"), shop.ref("pm"), NOW, NOW)
        await tx.checkouts.add(
            Checkout(id=shop.checkout, metadata=shop.metadata, price_id=PRICE, success_url="", cancel_url="", created_at=NOW), NOW + HOUR
        )
        await tx.checkouts.save_session(org, shop.checkout, shop.ref("cs"), shop.ref("cus"))
        other = Checkout(id=uuid4(), metadata=shop.metadata, price_id=PRICE, success_url="", cancel_url="", created_at=NOW)
        await tx.checkouts.add(other, NOW + HOUR)
        await tx.checkouts.complete(other.id, shop.ref("cs_other"), shop.ref("sub"), None, None)
        await tx.subscriptions.add(shop.sold)
        facts = await tx.billing.lock_facts(shop.ref("sub"), NOW)
        await tx.billing.save_facts(replace(facts, org_id=org, customer_id=shop.ref("cus")), NOW, check_at=NOW + DAY)
        await tx.cancellations.request(shop.cancellation)
    return shop


@pytest.fixture
async def shop(storage: Postgres, pool: Pool) -> Shop:
    return await open_shop(storage, pool, "acme", (await add(storage, account(ADA))).id)


@pytest.fixture
async def other_tenant(storage: Postgres, pool: Pool) -> Shop:
    return await open_shop(storage, pool, "twin", (await add(storage, account(EVE))).id)


Statement = Callable[[Transaction, Shop, Shop], Awaitable[object]]


class _RolledBackError(Exception):
    """Rolls a transaction back."""


async def contents(tx: Transaction) -> list[str]:
    """Return all rows of TABLES as text."""
    rows: list[str] = []
    for table in TABLES:
        rows += sorted(row for (row,) in await tx.connection.rows(f"select t::text from {table} t"))  # noqa: S608
    return rows


async def run_and_roll_back(storage: Postgres, statement: Statement, shop: Shop, owner: Shop) -> tuple[object, list[str], list[str]]:
    """Run a statement, and return its result and the rows before and after it."""
    with suppress(_RolledBackError):
        async with storage.transaction(by=SYSTEM) as tx:
            before = await contents(tx)
            result = await statement(tx, shop, owner)
            after = await contents(tx)
            raise _RolledBackError
    return result, before, after


# Statements that combine ids of `shop` with the organization of `owner`, and their results if the
# owner is another organization.
STATEMENTS: dict[str, tuple[Statement, object]] = {
    "save a customer": (lambda tx, shop, owner: tx.customers.save(owner.org, shop.key, "cus_new"), None),
    "check the owner of a customer": (lambda tx, shop, owner: tx.customers.may_belong_to(owner.org, shop.ref("cus")), False),
    "link a customer": (lambda tx, shop, owner: tx.customers.link(owner.org, shop.ref("cus"), uuid4(), NOW), False),
    "save the user of a customer": (
        lambda tx, shop, owner: tx.customers.save_user(owner.org, shop.ref("cus"), None, NOW + SECOND),
        False,
    ),
    "delete a customer": (lambda tx, shop, owner: tx.customers.mark_deleted(owner.org, shop.ref("cus"), uuid4(), NOW), False),
    "check the subscriptions of a customer": (
        lambda tx, shop, owner: tx.billing.check_subscriptions_of_customer(owner.org, shop.ref("cus"), NOW),
        None,
    ),
    "find the plan of a price": (
        lambda tx, shop, owner: tx.billing.plan_of_price(owner.org, shop.metadata.service_id, PRICE, shop.metadata.plan_id),
        None,
    ),
    "save the session of a checkout": (
        lambda tx, shop, owner: tx.checkouts.save_session(owner.org, shop.checkout, "cs_new", "cus_new"),
        None,
    ),
    "complete a checkout": (
        lambda tx, shop, owner: tx.checkouts.complete(
            shop.checkout, shop.ref("cs"), "sub_new", replace(shop.metadata, org_id=owner.org), shop.ref("cus")
        ),
        False,
    ),
    "complete a checkout for another customer": (
        lambda tx, shop, owner: tx.checkouts.complete(shop.checkout, shop.ref("cs"), "sub_new", shop.metadata, owner.ref("cus")),
        False,
    ),
    "match a checkout": (
        lambda tx, shop, owner: tx.checkouts.match("sub_new", replace(shop.metadata, org_id=owner.org), PRICE),
        None,
    ),
    "stop the checks of a checkout": (lambda tx, shop, owner: tx.checkouts.stop_checks(owner.org, shop.ref("sub")), None),
    "lock a subscription": (lambda tx, shop, owner: tx.subscriptions.lock_of_provider(owner.org, shop.ref("sub")), None),
    "look for a subscription": (lambda tx, shop, owner: tx.subscriptions.exists(owner.org, shop.subscription), False),
    "detach a subscription from the provider": (
        lambda tx, shop, owner: tx.subscriptions.detach_from_provider(owner.org, shop.subscription, NOW),
        None,
    ),
    "look for a cancellation": (lambda tx, shop, owner: tx.cancellations.is_requested(owner.org, shop.ref("gone")), False),
    "claim the cancellations of a service": (
        lambda tx, shop, owner: tx.cancellations.claim_of_service(owner.org, shop.metadata.service_id, NOW + SECOND, NOW + HOUR, 10),
        [],
    ),
    "complete a cancellation": (lambda tx, shop, owner: tx.cancellations.complete(replace(shop.cancellation, org_id=owner.org)), False),
}


async def test_statements_with_the_id_of_another_organization_find_and_change_nothing(
    storage: Postgres, shop: Shop, other_tenant: Shop
) -> None:
    findings = []
    for name, (statement, expected) in STATEMENTS.items():
        result, before, after = await run_and_roll_back(storage, statement, shop, other_tenant)
        if result != expected or before != after:
            findings.append((name, result, {*before} ^ {*after}))
    assert findings == []


async def test_the_same_statements_with_the_right_organization_find_or_change_something(
    storage: Postgres, shop: Shop, other_tenant: Shop
) -> None:
    findings = []
    for name, (statement, result_for_another) in STATEMENTS.items():
        if name == "complete a checkout for another customer":
            continue
        result, before, after = await run_and_roll_back(storage, statement, shop, shop)
        if result == result_for_another and before == after:
            findings.append((name, "no effect"))
        if [row for row in before if str(other_tenant.org) in row] != [row for row in after if str(other_tenant.org) in row]:
            findings.append((name, "changed the other organization"))
    assert findings == []


async def test_without_an_organization_the_customer_decides_which_rows_change(
    storage: Postgres, pool: Pool, shop: Shop, other_tenant: Shop
) -> None:
    customer_id = shop.ref("cus")
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.billing.check_subscriptions_of_customer(None, customer_id, NOW)
        assert await tx.customers.save_user(None, customer_id, other_tenant.metadata.user_id, NOW + SECOND)
        assert await tx.customers.attach_payment_method(customer_id, "pm_new", NOW + SECOND, NOW)
        assert not await tx.customers.attach_payment_method("cus_unknown", "pm_unknown", NOW + SECOND, NOW)
        assert not await tx.customers.detach_payment_method("pm_unknown", NOW + 2 * SECOND, NOW)
        assert not await tx.customers.detach_payment_method(shop.ref("pm"), NOW - SECOND, NOW)
        assert await tx.customers.detach_payment_method(shop.ref("pm"), NOW + SECOND, NOW)
        assert not await tx.customers.detach_payment_method(shop.ref("pm"), NOW + SECOND, NOW)
    customers = """
        select customer_id, user_id, payment_method_id
        from billing_customers left join billing_default_payment_methods using (org_id) order by customer_id"""
    twin_row = (other_tenant.ref("cus"), other_tenant.metadata.user_id, other_tenant.ref("pm"))
    assert await run_sql(pool, customers) == [(customer_id, other_tenant.metadata.user_id, "pm_new"), twin_row]
    due = "select provider_subscription_id from billing_facts where check_at <= %s"
    assert await run_sql(pool, due, NOW) == [(shop.ref("sub"),)]
    assert await within(storage, lambda tx: tx.customers.mark_deleted(None, customer_id, uuid4(), NOW))
    assert await run_sql(pool, customers) == [twin_row, (None, None, None)]


async def test_a_subscription_is_found_only_in_the_organization_of_its_facts(
    storage: Postgres, pool: Pool, shop: Shop, other_tenant: Shop
) -> None:
    assert await within(storage, lambda tx: tx.billing.subscription(shop.ref("sub"))) == shop.sold
    await run_sql(pool, "update billing_facts set org_id = %s", other_tenant.org)
    assert await within(storage, lambda tx: tx.billing.subscription(shop.ref("sub"))) is None


async def claim_all(storage: Postgres) -> set[str]:
    """Claim all due cancellations, and return their subscriptions."""
    ids = set()
    while cancellation := await within(storage, lambda tx: tx.cancellations.claim(NOW + SECOND, NOW + HOUR)):
        ids.add(cancellation.provider_subscription_id)
    return ids


async def test_a_cancellation_is_skipped_only_if_the_same_organization_reactivated_the_subscription(
    storage: Postgres, pool: Pool, shop: Shop, other_tenant: Shop
) -> None:
    """The id at the provider alone does not tell organizations apart."""
    await run_sql(
        pool, "update billing_cancellations set provider_subscription_id = %s where org_id = %s", shop.ref("sub"), other_tenant.org
    )
    assert await claim_all(storage) == {shop.ref("gone"), shop.ref("sub")}
    await run_sql(pool, "update billing_cancellations set org_id = %s, due_at = %s", shop.org, NOW)
    assert await claim_all(storage) == {shop.ref("gone")}


async def test_a_waiting_subscription_is_checked_when_the_other_one_ends_in_any_way(storage: Postgres, pool: Pool, shop: Shop) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        for id_, waits_for in (("sub_waiting", shop.subscription), ("sub_other", uuid4())):
            facts = await tx.billing.lock_facts(id_, NOW)
            await tx.billing.save_facts(replace(facts, waits_for=waits_for), NOW, check_at=NOW + DAY)
            assert (await tx.billing.lock_facts(id_, NOW)).waits_for == waits_for

    async def due_after(change: LiteralString) -> list[str]:
        async with pool.connection() as connection:
            connection.begin()
            await connection.run(change, {})
            rows = await connection.rows("select provider_subscription_id from billing_facts where check_at = '-infinity'")
            await connection.rollback()
        return [id_ for (id_,) in rows]

    assert await due_after("update subscriptions set status = 'past_due', current_period_end = now()") == []
    assert await due_after("update subscriptions set status = 'cancelled'") == ["sub_waiting"]
    assert await due_after("update subscriptions set status = 'expired'") == ["sub_waiting"]
    assert await due_after("delete from subscriptions") == ["sub_waiting"]
    assert await due_after("delete from services") == ["sub_waiting"]
    assert await due_after("update subscriptions set updated_at = now()") == []


# Costs in a large database

MANY = 20_000
Query = Callable[[Repositories, Shop], Awaitable[object]]
# Frequent statements, each with the table that it must not scan
FREQUENT: dict[str, tuple[str, Query]] = {
    "a repeated event": ("billing_events", lambda tx, shop: tx.billing.record_event("evt_7", NOW)),
    "facts": ("billing_facts", lambda tx, shop: tx.billing.lock_facts("sub_7", NOW)),
    "a due check": ("billing_facts", lambda tx, shop: tx.billing.claim_check(NOW, NOW + DAY)),
    "checks of a customer": (
        "billing_facts",
        lambda tx, shop: tx.billing.check_subscriptions_of_customer(None, shop.ref("cus"), NOW),
    ),
    "a subscription by provider id": ("subscriptions", lambda tx, shop: tx.billing.subscription(shop.ref("sub"))),
    "the owner of a customer": ("billing_customers", lambda tx, shop: tx.customers.may_belong_to(shop.org, shop.ref("cus"))),
    "a deleted customer": (
        "billing_deleted_customers",
        lambda tx, shop: tx.customers.link(shop.org, shop.ref("cus"), uuid4(), NOW),
    ),
    "attaching a payment method": (
        "billing_customers",
        lambda tx, shop: tx.customers.attach_payment_method(shop.ref("cus"), "pm_new", NOW, NOW),
    ),
    "detaching a payment method": (
        "billing_payment_methods",
        lambda tx, shop: tx.customers.detach_payment_method(shop.ref("pm"), NOW, NOW),
    ),
    "matching a checkout": ("billing_checkouts", lambda tx, shop: tx.checkouts.match("sub_7", shop.metadata, PRICE)),
    "the metadata of a checkout": ("billing_checkouts", lambda tx, shop: tx.checkouts.metadata_of("sub_7")),
    "facts that wait for a canceled subscription": (
        "billing_facts",
        lambda tx, shop: tx.subscriptions.save(replace(shop.sold, status=SubscriptionStatus.CANCELLED), NOW),
    ),
    "facts that wait for a removed subscription": ("billing_facts", lambda tx, shop: tx.subscriptions.remove(shop.org, shop.subscription)),
    "completing a checkout": (
        "billing_checkouts",
        lambda tx, shop: tx.checkouts.complete(shop.checkout, shop.ref("cs"), "sub_new", shop.metadata, shop.ref("cus")),
    ),
    "stopping the checks of a checkout": (
        "billing_checkouts",
        lambda tx, shop: tx.checkouts.stop_checks(shop.org, shop.ref("sub")),
    ),
    "whether a check is planned": ("billing_facts", lambda tx, shop: tx.billing.is_checked_separately("sub_7", NOW)),
    "due checkouts": (
        "billing_checkouts",
        lambda tx, shop: tx.checkouts.claim(NOW, NOW + DAY, NOW - DAY, NOW),
    ),
    "a due cancellation": ("billing_cancellations", lambda tx, shop: tx.cancellations.claim(NOW, NOW + DAY)),
    "due cancellations of a service": (
        "billing_cancellations",
        lambda tx, shop: tx.cancellations.claim_of_service(shop.org, shop.metadata.service_id, NOW, NOW + DAY, 5),
    ),
    "old checkouts": ("billing_checkouts", lambda tx, shop: tx.housekeeping.sweep(Sweep.CHECKOUTS, NOW - 50 * DAY, 100)),
    "old payment methods": (
        "billing_payment_methods",
        lambda tx, shop: tx.housekeeping.sweep(Sweep.PAYMENT_METHODS, NOW - 50 * DAY, 100),
    ),
    "old deleted customers": (
        "billing_deleted_customers",
        lambda tx, shop: tx.housekeeping.sweep(Sweep.DELETED_CUSTOMERS, NOW - 50 * DAY, 100),
    ),
    "old facts": ("billing_facts", lambda tx, shop: tx.housekeeping.sweep(Sweep.BILLING_FACTS, NOW - 50 * DAY, 100)),
}


async def fill(pool: Pool, shop: Shop) -> None:
    """Add many rows of other organizations to each table, of which a few are due."""
    inserts: tuple[LiteralString, ...] = (
        "insert into billing_events (id, received_at) select 'evt_' || n, %(now)s from numbers",
        """insert into billing_facts (provider_subscription_id, org_id, customer_id, heard_at, check_at, waits_for)
           select 'sub_' || n, gen_random_uuid(), 'cus_' || n, %(now)s, %(now)s + (n - 50) * interval '1 minute', gen_random_uuid()
           from numbers""",
        """insert into billing_checkouts (id, org_id, service_id, user_id, plan_id, price_id, customer_id, session_id,
                                          created_at, check_at)
           select gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), %(user)s, gen_random_uuid(), 'price', 'cus_' || n, 'cs_' || n,
                  %(now)s, %(now)s + (n - 50) * interval '1 minute'
           from numbers""",
        """insert into billing_cancellations (provider_subscription_id, subscription_id, org_id, service_id, due_at)
           select 'sub_' || n, gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), %(now)s + (n - 50) * interval '1 minute'
           from numbers""",
        """with orgs as (
             insert into organizations (id, slug, name, status, created_at, updated_at)
             select gen_random_uuid(), 'o' || n, 'x', 'active', now(), now() from numbers returning id, slug)
           insert into billing_customers (org_id, idempotency_key, customer_id, created_at)
           select id, id, 'cus_' || slug, %(now)s from orgs""",
        """insert into billing_payment_methods (payment_method_id, customer_id, said_at, heard_at)
           select 'pm_' || n, 'cus_o' || n, %(now)s, %(now)s from numbers""",
        "insert into billing_deleted_customers (customer_id, heard_at) select 'cus_gone_' || n, %(now)s from numbers",
        """with people as (
             insert into users (id, email, origin, created_at, updated_at)
             select gen_random_uuid(), 'n' || n || '@example.com', 'platform', now(), now() from numbers returning id)
           insert into subscriptions (id, org_id, service_id, user_id, plan_id, status, current_period_end, provider_subscription_id,
                                      created_at, updated_at)
           select id, %(org)s, %(service)s, id, %(plan)s, 'active', now(), 'sub_' || id, now(), now() from people""",
    )
    values = {
        "now": NOW,
        "user": shop.metadata.user_id,
        "org": shop.org,
        "service": shop.metadata.service_id,
        "plan": shop.metadata.plan_id,
    }
    async with without_foreign_keys(pool) as connection:
        for insert in inserts:
            head, _, rest = insert.partition("with ")
            numbers: LiteralString = "with numbers as (select n from generate_series(1, %(many)s) n)"
            statement = f"{numbers}, {rest}" if not head else f"{numbers} {insert}"
            await connection.execute(statement, {**values, "many": MANY})
        await connection.execute("analyze")


@pytest.mark.slow
async def test_frequent_statements_do_not_scan_the_rows_of_others(pool: Pool, shop: Shop) -> None:
    await fill(pool, shop)

    async def run(query: Query, connection: Connection) -> object:
        return await query(Repositories(connection, make_vault(), NoSignals()), shop)

    for mode in ("force_generic_plan", "force_custom_plan"):
        reads = {name: await rows_looked_at(pool, table, mode, partial(run, query)) for name, (table, query) in FREQUENT.items()}
        assert {name: (result, rows) for name, (result, rows) in reads.items() if rows > 100} == {}, mode
        assert [name for name in ("a due check", "due checkouts", "a due cancellation") if reads[name][0] is None] == [], mode
