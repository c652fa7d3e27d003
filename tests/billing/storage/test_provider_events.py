"""Every statement about customers, checkouts and cancellations that names an organization reads and changes nothing of another one; those
that name what is the provider's alone do so only where an event names no organization."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, LiteralString
from uuid import UUID, uuid4

import pytest

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
from tests.support.rows import ADA, DAY, EVE, HOUR, NOW, SECOND, account, add, rows_looked_at, within
from tests.support.services import add_plan, add_service

PRICE = "price_gold"
TABLES = (
    *("billing_customers", "billing_deleted_customers", "billing_payment_methods", "billing_checkouts", "billing_facts"),
    *("billing_cancellations", "subscriptions"),
)


@dataclass(frozen=True, slots=True)
class Shop:
    """A service of an organization with one of everything. What the provider calls it ends with the organization's slug."""

    slug: str
    meant: CheckoutMetadata
    checkout: UUID
    key: UUID
    subscription: UUID

    def name(self, kind: str) -> str:
        return f"{kind}_{self.slug}"

    @property
    def org(self) -> UUID:
        return self.meant.org_id

    @property
    def cancellation(self) -> Cancellation:
        return Cancellation(self.name("gone"), self.subscription, self.org, self.meant.service_id, NOW)

    @property
    def sold(self) -> Subscription:
        return Subscription(
            id=self.subscription,
            org_id=self.org,
            service_id=self.meant.service_id,
            user_id=self.meant.user_id,
            plan=SubscribedPlan(self.meant.plan_id, self.meant.service_id, "Gold", ("exports",), False, PRICE),
            status=SubscriptionStatus.ACTIVE,
            current_period_end=NOW + DAY,
            provider_subscription_id=self.name("sub"),
            created_at=NOW - DAY,
        )


async def open_shop(storage: Postgres, pool: Pool, slug: str, user: UUID) -> Shop:
    org = await add_organization(pool, slug)
    service = await add_service(pool, org)
    shop = Shop(slug, CheckoutMetadata(org, service, user, await add_plan(pool, service, price=PRICE)), uuid4(), uuid4(), uuid4())
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.customers.find_or_add(org, shop.key, NOW)
        await tx.customers.save(org, shop.key, shop.name("cus"))
        await tx.customers.save_user(org, shop.name("cus"), user, NOW)
        await tx.customers.attach_payment_method(shop.name("cus"), shop.name("pm"), NOW, NOW)
        await tx.checkouts.add(
            Checkout(id=shop.checkout, metadata=shop.meant, price_id=PRICE, success_url="", cancel_url="", created_at=NOW), NOW + HOUR
        )
        await tx.checkouts.save_session(org, shop.checkout, shop.name("cs"), shop.name("cus"))
        other = Checkout(id=uuid4(), metadata=shop.meant, price_id=PRICE, success_url="", cancel_url="", created_at=NOW)
        await tx.checkouts.add(other, NOW + HOUR)
        await tx.checkouts.complete(other.id, shop.name("cs_other"), shop.name("sub"), None, None)
        await tx.subscriptions.add(shop.sold)
        facts = await tx.billing.lock_facts(shop.name("sub"), NOW)
        await tx.billing.save_facts(replace(facts, org_id=org, customer_id=shop.name("cus")), NOW, check_at=NOW + DAY)
        await tx.cancellations.request(shop.cancellation)
    return shop


@pytest.fixture
async def shop(storage: Postgres, pool: Pool) -> Shop:
    return await open_shop(storage, pool, "acme", (await add(storage, account(ADA))).id)


@pytest.fixture
async def twin(storage: Postgres, pool: Pool) -> Shop:
    return await open_shop(storage, pool, "twin", (await add(storage, account(EVE))).id)


async def everything(pool: Pool) -> list[Any]:
    return [sorted(await run_sql(pool, f"select t::text from {table} t")) for table in TABLES]  # noqa: S608


# What it is, and what it gives to who asks of the shop's things by the names of the organization beside it.
Act = Callable[[Transaction, Shop, Shop], Awaitable[object]]
MIXED: dict[str, tuple[Act, object]] = {
    "a customer with a key": (lambda tx, shop, twin: tx.customers.save(twin.org, shop.key, "cus_new"), None),
    "whether it is a customer": (lambda tx, shop, twin: tx.customers.may_belong_to(twin.org, shop.name("cus")), False),
    "a link": (lambda tx, shop, twin: tx.customers.link(twin.org, shop.name("cus"), uuid4(), NOW), False),
    "a person": (lambda tx, shop, twin: tx.customers.save_user(twin.org, shop.name("cus"), None, NOW + SECOND), False),
    "a deletion": (lambda tx, shop, twin: tx.customers.mark_deleted(twin.org, shop.name("cus"), uuid4(), NOW), False),
    "what to ask": (lambda tx, shop, twin: tx.billing.check_subscriptions_of_customer(twin.org, shop.name("cus"), NOW), None),
    "a plan": (lambda tx, shop, twin: tx.billing.plan_of_price(twin.org, shop.meant.service_id, PRICE, shop.meant.plan_id), None),
    "a session": (lambda tx, shop, twin: tx.checkouts.save_session(twin.org, shop.checkout, "cs_new", "cus_new"), None),
    "a completion": (
        lambda tx, shop, twin: tx.checkouts.complete(
            shop.checkout, shop.name("cs"), "sub_new", replace(shop.meant, org_id=twin.org), shop.name("cus")
        ),
        False,
    ),
    "a completion for another customer": (
        lambda tx, shop, twin: tx.checkouts.complete(shop.checkout, shop.name("cs"), "sub_new", shop.meant, twin.name("cus")),
        False,
    ),
    "whether it is a checkout": (
        lambda tx, shop, twin: tx.checkouts.match("sub_new", replace(shop.meant, org_id=twin.org), PRICE),
        None,
    ),
    "the end of asking": (lambda tx, shop, twin: tx.checkouts.stop_checks(twin.org, shop.name("sub")), None),
    "a subscription": (lambda tx, shop, twin: tx.subscriptions.lock_of_provider(twin.org, shop.name("sub")), None),
    "whether there is a subscription": (lambda tx, shop, twin: tx.subscriptions.exists(twin.org, shop.subscription), False),
    "that no provider looks after it": (
        lambda tx, shop, twin: tx.subscriptions.detach_from_provider(twin.org, shop.subscription, NOW),
        None,
    ),
    "whether it is to be cancelled": (lambda tx, shop, twin: tx.cancellations.is_requested(twin.org, shop.name("gone")), False),
    "a cancellation": (
        lambda tx, shop, twin: tx.cancellations.claim_of_service(twin.org, shop.meant.service_id, NOW + SECOND, NOW + HOUR, 10),
        [],
    ),
    "what is cancelled": (lambda tx, shop, twin: tx.cancellations.complete(replace(shop.cancellation, org_id=twin.org)), False),
}


@pytest.mark.parametrize("what", MIXED)
async def test_nothing_is_found_or_changed_by_the_name_of_another_organization(
    storage: Postgres, pool: Pool, shop: Shop, twin: Shop, what: str
) -> None:
    act, given = MIXED[what]
    before = await everything(pool)
    assert await within(storage, lambda tx: act(tx, shop, twin)) == given
    assert await everything(pool) == before


@pytest.mark.parametrize("what", MIXED)
async def test_by_its_own_something_is(storage: Postgres, pool: Pool, shop: Shop, twin: Shop, what: str) -> None:
    """Else the test above would find out nothing."""
    if what == "a completion for another customer":
        return
    act, given = MIXED[what]
    before = await everything(pool)
    answer = await within(storage, lambda tx: act(tx, shop, shop))
    after = await everything(pool)
    assert answer != given or before != after
    untouched = await run_sql(pool, "select t::text from billing_customers t where org_id = %s", twin.org)
    assert untouched[0] in before[0]


async def test_where_an_event_names_no_organization_the_customer_says_whose_it_is(
    storage: Postgres, pool: Pool, shop: Shop, twin: Shop
) -> None:
    name = shop.name("cus")
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.billing.check_subscriptions_of_customer(None, name, NOW)
        assert await tx.customers.save_user(None, name, twin.meant.user_id, NOW + SECOND)
        assert await tx.customers.attach_payment_method(name, "pm_new", NOW + SECOND, NOW)
        assert not await tx.customers.attach_payment_method("cus_nobodys", "pm_else", NOW + SECOND, NOW)
        assert not await tx.customers.detach_payment_method("pm_else", NOW + 2 * SECOND, NOW)
        assert not await tx.customers.detach_payment_method(shop.name("pm"), NOW - SECOND, NOW)
        assert await tx.customers.detach_payment_method(shop.name("pm"), NOW + SECOND, NOW)
        assert not await tx.customers.detach_payment_method(shop.name("pm"), NOW + SECOND, NOW)
    customers = """
        select customer_id, user_id, payment_method_id
        from billing_customers left join billing_default_payment_methods using (org_id) order by customer_id"""
    of_twin = (twin.name("cus"), twin.meant.user_id, twin.name("pm"))
    assert await run_sql(pool, customers) == [(name, twin.meant.user_id, "pm_new"), of_twin]
    due = "select provider_subscription_id from billing_facts where check_at <= %s"
    assert await run_sql(pool, due, NOW) == [(shop.name("sub"),)]
    assert await within(storage, lambda tx: tx.customers.mark_deleted(None, name, uuid4(), NOW))
    assert await run_sql(pool, customers) == [of_twin, (None, None, None)]


async def test_the_subscription_of_what_the_provider_has_is_that_of_the_organization_that_has_it(
    storage: Postgres, pool: Pool, shop: Shop, twin: Shop
) -> None:
    assert await within(storage, lambda tx: tx.billing.subscription(shop.name("sub"))) == shop.sold
    await run_sql(pool, "update billing_facts set org_id = %s", twin.org)
    assert await within(storage, lambda tx: tx.billing.subscription(shop.name("sub"))) is None


async def claimed(storage: Postgres) -> set[str]:
    """All cancellations that are due."""
    found = set()
    while each := await within(storage, lambda tx: tx.cancellations.claim(NOW + SECOND, NOW + HOUR)):
        found.add(each.provider_subscription_id)
    return found


async def test_what_lives_here_again_is_not_cancelled_and_only_its_own_organization_says_so(
    storage: Postgres, pool: Pool, shop: Shop, twin: Shop
) -> None:
    """Which cannot be told apart by the provider's name alone."""
    await run_sql(pool, "update billing_cancellations set provider_subscription_id = %s where org_id = %s", shop.name("sub"), twin.org)
    assert await claimed(storage) == {shop.name("gone"), shop.name("sub")}
    await run_sql(pool, "update billing_cancellations set org_id = %s, due_at = %s", shop.org, NOW)
    assert await claimed(storage) == {shop.name("gone")}


async def test_what_waits_for_one_is_asked_about_when_that_ends_whoever_ends_it(storage: Postgres, pool: Pool, shop: Shop) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        for name, waits_for in (("sub_waiting", shop.subscription), ("sub_else", uuid4())):
            facts = await tx.billing.lock_facts(name, NOW)
            await tx.billing.save_facts(replace(facts, waits_for=waits_for), NOW, check_at=NOW + DAY)
            assert (await tx.billing.lock_facts(name, NOW)).waits_for == waits_for

    async def asked(change: LiteralString) -> list[str]:
        async with pool.connection() as connection:
            connection.begin()
            await connection.run(change, {})
            rows = await connection.rows("select provider_subscription_id from billing_facts where check_at = '-infinity'")
            await connection.rollback()
        return [name for (name,) in rows]

    assert await asked("update subscriptions set status = 'past_due', current_period_end = now()") == []
    assert await asked("update subscriptions set status = 'cancelled'") == ["sub_waiting"]
    assert await asked("update subscriptions set status = 'expired'") == ["sub_waiting"]
    assert await asked("delete from subscriptions") == ["sub_waiting"]
    assert await asked("delete from services") == ["sub_waiting"]
    assert await asked("update subscriptions set updated_at = now()") == []


# How much it costs

MANY = 20_000
Read = Callable[[Repositories, Shop], Awaitable[object]]
HOT: dict[str, tuple[str, Read]] = {
    "an event that came before": ("billing_events", lambda tx, shop: tx.billing.record_event("evt_7", NOW)),
    "what is known": ("billing_facts", lambda tx, shop: tx.billing.lock_facts("sub_7", NOW)),
    "what to ask": ("billing_facts", lambda tx, shop: tx.billing.claim_check(NOW, NOW + DAY)),
    "what to ask of a customer": (
        "billing_facts",
        lambda tx, shop: tx.billing.check_subscriptions_of_customer(None, shop.name("cus"), NOW),
    ),
    "a subscription": ("subscriptions", lambda tx, shop: tx.billing.subscription(shop.name("sub"))),
    "whose customer it is": ("billing_customers", lambda tx, shop: tx.customers.may_belong_to(shop.org, shop.name("cus"))),
    "whether it was deleted": (
        "billing_deleted_customers",
        lambda tx, shop: tx.customers.link(shop.org, shop.name("cus"), uuid4(), NOW),
    ),
    "a customer's payment method": (
        "billing_customers",
        lambda tx, shop: tx.customers.attach_payment_method(shop.name("cus"), "pm_new", NOW, NOW),
    ),
    "a payment method": (
        "billing_payment_methods",
        lambda tx, shop: tx.customers.detach_payment_method(shop.name("pm"), NOW, NOW),
    ),
    "a checkout": ("billing_checkouts", lambda tx, shop: tx.checkouts.match("sub_7", shop.meant, PRICE)),
    "what was bought": ("billing_checkouts", lambda tx, shop: tx.checkouts.metadata_of("sub_7")),
    "those that wait": (
        "billing_facts",
        lambda tx, shop: tx.subscriptions.save(replace(shop.sold, status=SubscriptionStatus.CANCELLED), NOW),
    ),
    "those that wait for one that goes": ("billing_facts", lambda tx, shop: tx.subscriptions.remove(shop.org, shop.subscription)),
    "what came of it": (
        "billing_checkouts",
        lambda tx, shop: tx.checkouts.complete(shop.checkout, shop.name("cs"), "sub_new", shop.meant, shop.name("cus")),
    ),
    "that nothing is to be asked": (
        "billing_checkouts",
        lambda tx, shop: tx.checkouts.stop_checks(shop.org, shop.name("sub")),
    ),
    "what is asked about": ("billing_facts", lambda tx, shop: tx.billing.is_checked_separately("sub_7", NOW)),
    "which checkouts to ask about": (
        "billing_checkouts",
        lambda tx, shop: tx.checkouts.claim(NOW, NOW + DAY, NOW - DAY, NOW),
    ),
    "what to cancel": ("billing_cancellations", lambda tx, shop: tx.cancellations.claim(NOW, NOW + DAY)),
    "what to cancel of a service": (
        "billing_cancellations",
        lambda tx, shop: tx.cancellations.claim_of_service(shop.org, shop.meant.service_id, NOW, NOW + DAY, 5),
    ),
    "old checkouts": ("billing_checkouts", lambda tx, shop: tx.housekeeping.sweep(Sweep.CHECKOUTS, NOW - 50 * DAY, 100)),
    "old payment methods": (
        "billing_payment_methods",
        lambda tx, shop: tx.housekeeping.sweep(Sweep.PAYMENT_METHODS, NOW - 50 * DAY, 100),
    ),
    "old deletions": (
        "billing_deleted_customers",
        lambda tx, shop: tx.housekeeping.sweep(Sweep.DELETED_CUSTOMERS, NOW - 50 * DAY, 100),
    ),
    "old facts": ("billing_facts", lambda tx, shop: tx.housekeeping.sweep(Sweep.BILLING_FACTS, NOW - 50 * DAY, 100)),
}


async def fill(pool: Pool, shop: Shop) -> None:
    """Many of everything, of others, with nothing to do but for a few."""
    many: tuple[LiteralString, ...] = (
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
    values = {"now": NOW, "user": shop.meant.user_id, "org": shop.org, "service": shop.meant.service_id, "plan": shop.meant.plan_id}
    async with pool.connection() as connection:
        for insert in many:
            head, _, rest = insert.partition("with ")
            numbers: LiteralString = "with numbers as (select n from generate_series(1, %(many)s) n)"
            statement = f"{numbers}, {rest}" if not head else f"{numbers} {insert}"
            await connection.execute(statement, {**values, "many": MANY})
        await connection.execute("analyze")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
async def test_nobody_reads_all_that_was_ever_bought(pool: Pool, shop: Shop, mode: str) -> None:
    await fill(pool, shop)
    reads: dict[str, tuple[object, int]] = {}
    for name, (table, statement) in HOT.items():
        run = partial(run_statement, statement, shop)
        reads[name] = await rows_looked_at(pool, table, mode, run)
    assert {name: read for name, read in reads.items() if read[1] > 100} == {}
    assert [name for name in ("a due check", "due checkouts", "a due cancellation") if reads[name][0] is None] == []
