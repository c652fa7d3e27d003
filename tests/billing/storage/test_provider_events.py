"""Statements about customers, checkouts, facts and cancellations: isolation and triggers.

Statements with an organization read and change nothing in another organization. Statements with only a provider's id
are used where an event names no organization.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import LiteralString
from uuid import uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres, Transaction
from core.kernel.causes import SYSTEM
from tests.billing.storage.shops import PRICE, Shop, open_shop
from tests.support.builders import run_concurrently, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, NOW, SECOND, account, add, within

TABLES = (
    *("billing_customers", "billing_deleted_customers", "billing_payment_methods", "billing_checkouts", "billing_facts"),
    *("billing_cancellations", "subscriptions"),
)


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
    """Return all rows from TABLES as text."""
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


# Statements that combine ids from `shop` with the organization in `owner`, and their results if the
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


async def test_the_same_statements_with_the_right_organization_find_or_change_rows(
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
    assert await within(storage, lambda tx: tx.billing.subscription(shop.ref("sub"))) == shop.owned_subscription
    locked = await within(storage, lambda tx: tx.billing.lock_subscription(shop.ref("sub"), NOW))
    assert (locked.facts.org_id, locked.subscription) == (shop.org, shop.owned_subscription)
    await run_sql(pool, "update billing_facts set org_id = %s", other_tenant.org)
    assert await within(storage, lambda tx: tx.billing.subscription(shop.ref("sub"))) is None
    locked = await within(storage, lambda tx: tx.billing.lock_subscription(shop.ref("sub"), NOW))
    assert (locked.facts.org_id, locked.subscription) == (other_tenant.org, None)


async def test_locking_a_subscription_locks_its_facts_its_organization_and_ours(storage: Postgres, pool: Pool, shop: Shop) -> None:
    rows = {
        "select 1 from billing_facts where provider_subscription_id = %s for no key update skip locked": shop.ref("sub"),
        "select 1 from organizations where id = %s for no key update skip locked": shop.org,
        "select 1 from subscriptions where id = %s for no key update skip locked": shop.subscription,
    }
    free: dict[str, bool] = {}

    async def look() -> None:
        for query, id_ in rows.items():
            free[query] = bool(await run_sql(pool, query, id_))

    async with storage.transaction(by=SYSTEM) as tx:
        await tx.billing.lock_subscription(shop.ref("sub"), NOW)
        await run_concurrently(1, lambda _: look())
    assert set(free.values()) == {False}
    await look()
    assert set(free.values()) == {True}


async def test_facts_without_an_organization_lock_nothing_else(storage: Postgres) -> None:
    locked = await within(storage, lambda tx: tx.billing.lock_subscription("sub_unknown", NOW))
    assert (locked.facts.id, locked.facts.org_id, locked.subscription) == ("sub_unknown", None, None)


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
