"""Frequent statements about customers, checkouts, facts and cancellations do not scan large tables."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import LiteralString
from uuid import uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.repositories import Repositories
from adapters.postgres.storage import Postgres
from core.applications.model.plans import SubscriptionStatus
from core.maintenance.model.housekeeping import Sweep
from ports.signals import NoSignals
from tests.billing.storage.shops import PRICE, Shop, open_shop
from tests.proof.volume.plans import PLAN_MODES, Reads, count_reads, without_foreign_keys
from tests.support.builders import make_vault
from tests.support.rows import DAY, NOW, account, add

pytestmark = pytest.mark.slow

MANY = 4000
Query = Callable[[Repositories, Shop], Awaitable[object]]
# Frequent statements, with the table that they must not scan
FREQUENT: dict[str, tuple[str, Query]] = {
    "a repeated event": ("billing_events", lambda tx, shop: tx.billing.record_event("evt_7", NOW)),
    "facts": ("billing_facts", lambda tx, shop: tx.billing.lock_facts("sub_7", NOW)),
    "a locked subscription": ("subscriptions", lambda tx, shop: tx.billing.lock_subscription(shop.ref("sub"), NOW)),
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
        lambda tx, shop: tx.subscriptions.save(
            shop.owned_subscription, replace(shop.owned_subscription, status=SubscriptionStatus.CANCELLED), NOW
        ),
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
    """Add many rows to every table. Where rows have a due time, a few are due."""
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
        "many": MANY,
        "now": NOW,
        "user": shop.metadata.user_id,
        "org": shop.org,
        "service": shop.metadata.service_id,
        "plan": shop.metadata.plan_id,
    }
    numbers: LiteralString = "with numbers as (select n from generate_series(1, %(many)s) n)"
    async with without_foreign_keys(pool) as connection:
        for insert in inserts:
            statement = f"{numbers}, {insert.removeprefix('with ')}" if insert.startswith("with ") else f"{numbers} {insert}"
            await connection.execute(statement, values)
        await connection.execute("analyze")


async def test_frequent_statements_do_not_scan_the_rows_of_others(storage: Postgres, pool: Pool) -> None:
    shop = await open_shop(storage, pool, "acme", (await add(storage, account())).id)
    await fill(pool, shop)

    async def run(query: Query, mode: str) -> tuple[object, Reads]:
        async with pool.connection() as connection:
            repositories = Repositories(connection, make_vault(), NoSignals())
            return await count_reads(connection, mode, partial(query, repositories, shop))

    for mode in PLAN_MODES:
        runs = {name: await run(query, mode) for name, (_, query) in FREQUENT.items()}
        rows = {name: runs[name][1].rows[table] for name, (table, _) in FREQUENT.items()}
        assert {name: count for name, count in rows.items() if count > 100} == {}, mode
        assert [name for name in ("a due check", "due checkouts", "a due cancellation") if runs[name][0] is None] == [], mode
