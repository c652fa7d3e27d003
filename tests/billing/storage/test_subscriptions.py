"""Statements about subscriptions: fields, the current subscription among several, current status, locks, and isolation."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.applications.model.plans import FREE_PLAN_NAME, Entitlement, SubscriptionStatus
from core.billing.model.subscriptions import AlreadySubscribed, SubscribedPlan, Subscription
from core.kernel.causes import SYSTEM
from core.kernel.values import PageResult
from tests.support.builders import add_organization, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, MICROSECOND, NOW, SECOND, account, add, is_locked, within
from tests.support.services import add_plan, add_service

ACTIVE, CANCELLED = SubscriptionStatus.ACTIVE, SubscriptionStatus.CANCELLED
EXPIRED, PAST_DUE = SubscriptionStatus.EXPIRED, SubscriptionStatus.PAST_DUE


@dataclass(frozen=True, slots=True)
class Shop:
    """A service with one plan."""

    org: UUID
    service: UUID
    plan: SubscribedPlan

    @property
    def ids(self) -> tuple[UUID, UUID]:
        return self.org, self.service

    def subscription(self, user: UUID, **changes: Any) -> Subscription:
        default = Subscription(
            id=uuid4(),
            org_id=self.org,
            service_id=self.service,
            user_id=user,
            plan=self.plan,
            status=ACTIVE,
            current_period_end=NOW + HOUR,
            provider_subscription_id=None,
            created_at=NOW - DAY,
        )
        return replace(default, **changes)


async def add_shop(pool: Pool, org: UUID, slug: str = "shop") -> Shop:
    service = await add_service(pool, org, slug)
    plan = await add_plan(pool, service, f"Gold of {slug}", features=("exports", slug))
    return Shop(org, service, SubscribedPlan(plan, service, f"Gold of {slug}", ("exports", slug), False, None))


@pytest.fixture
async def shop(pool: Pool) -> Shop:
    return await add_shop(pool, await add_organization(pool, "acme"))


@pytest.fixture
async def other(pool: Pool, shop: Shop) -> Shop:
    """Another service in the same organization."""
    return await add_shop(pool, shop.org, "other")


@pytest.fixture
async def other_tenant(pool: Pool) -> Shop:
    """A service in another organization."""
    return await add_shop(pool, await add_organization(pool, "other_tenant"))


@pytest.fixture
async def user(storage: Postgres) -> UUID:
    return (await add(storage, account(ADA))).id


@pytest.fixture
async def other_user(storage: Postgres) -> UUID:
    return (await add(storage, account(EVE))).id


async def add_subscriptions(storage: Postgres, *subscriptions: Subscription) -> Subscription:
    async with storage.transaction(by=SYSTEM) as tx:
        for subscription in subscriptions:
            await tx.subscriptions.add(subscription)
    return subscriptions[0]


async def statuses(pool: Pool) -> dict[UUID, str]:
    return dict(await run_sql(pool, "select id, status from subscriptions"))


async def counters(pool: Pool) -> dict[UUID, int]:
    return dict(await run_sql(pool, "select id, subscription_count from services"))


async def page_of(
    storage: Postgres, shop: Shop, status: SubscriptionStatus | None, limit: int = 50, offset: int = 0
) -> PageResult[Subscription]:
    async with storage.reading() as read:
        return await read.subscriptions.page(*shop.ids, status, limit, offset, NOW)


async def entitlement(storage: Postgres, shop: Shop, user: UUID, now: datetime = NOW) -> Entitlement:
    async with storage.reading() as read:
        return await read.subscriptions.entitlement(shop.service, user, now)


@pytest.mark.parametrize("status", list(SubscriptionStatus))
async def test_every_query_returns_all_fields(storage: Postgres, shop: Shop, user: UUID, status: SubscriptionStatus) -> None:
    one = await add_subscriptions(storage, shop.subscription(user, status=status, provider_subscription_id="sub_1"))
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.subscriptions.of_user(*shop.ids, user, NOW) == one
        assert await tx.subscriptions.lock_of_user(*shop.ids, user, NOW) == one
    for filter_ in (status, None):
        assert await page_of(storage, shop, filter_) == PageResult([one], 1)


async def test_saving_writes_only_the_fields_that_can_change(
    storage: Postgres, pool: Pool, shop: Shop, user: UUID, other_user: UUID
) -> None:
    one, untouched = shop.subscription(user), shop.subscription(other_user)
    await add_subscriptions(storage, one, untouched)
    silver = await add_plan(pool, shop.service, "Silver", features=())
    new_values = replace(
        one,
        plan=SubscribedPlan(silver, shop.service, "Silver", (), False, None),
        status=PAST_DUE,
        current_period_end=NOW + 2 * DAY,
        provider_subscription_id="sub_1",
        user_id=other_user,
        created_at=NOW,
    )
    await within(storage, lambda tx: tx.subscriptions.save(one, new_values, NOW))
    async with storage.reading() as read:
        stored = await read.subscriptions.of_user(*shop.ids, user, NOW)
        assert await read.subscriptions.of_user(*shop.ids, other_user, NOW) == untouched
    assert stored == replace(new_values, provider_subscription_id=None, user_id=user, created_at=one.created_at)
    assert await run_sql(pool, "select updated_at from subscriptions where id = %s", one.id) == [(NOW,)]


async def test_other_services_and_organizations_neither_see_nor_change_a_subscription(
    storage: Postgres, pool: Pool, shop: Shop, other: Shop, other_tenant: Shop, user: UUID
) -> None:
    one = await add_subscriptions(storage, shop.subscription(user, current_period_end=NOW), shop.subscription(user, status=EXPIRED))
    # The last two rows combine an organization with a service id from another organization.
    for condition in (
        other,
        other_tenant,
        Shop(other_tenant.org, shop.service, shop.plan),
        Shop(shop.org, other_tenant.service, shop.plan),
    ):
        async with storage.transaction(by=SYSTEM) as tx:
            assert await tx.subscriptions.of_user(*condition.ids, user, NOW) is None
            assert await tx.subscriptions.lock_of_user(*condition.ids, user, NOW) is None
            assert await tx.subscriptions.expire_of_user(*condition.ids, user, NOW) == []
            assert set((await tx.subscriptions.counts(*condition.ids, NOW)).values()) == {0}
            for status in (None, *SubscriptionStatus):
                assert await tx.subscriptions.page(*condition.ids, status, 50, 0, NOW) == PageResult([], 0)
    for condition in (other, other_tenant):
        assert await entitlement(storage, condition, user) == Entitlement()
    async with storage.transaction(by=SYSTEM) as tx:
        foreign = replace(one, org_id=other_tenant.org)
        await tx.subscriptions.save(foreign, replace(foreign, status=CANCELLED), NOW)
        await tx.subscriptions.remove(other_tenant.org, one.id)
        assert not await tx.subscriptions.uses_plan(other_tenant.org, shop.plan.id, NOW - DAY)
    assert (await statuses(pool))[one.id] == "active"
    assert await counters(pool) == {shop.service: 2, other.service: 0, other_tenant.service: 0}


async def test_adding_and_removing_updates_the_counter(
    storage: Postgres, pool: Pool, shop: Shop, other: Shop, user: UUID, other_user: UUID
) -> None:
    one = await add_subscriptions(storage, shop.subscription(user), shop.subscription(other_user), other.subscription(user))
    assert await counters(pool) == {shop.service: 2, other.service: 1}
    await within(storage, lambda tx: tx.subscriptions.remove(shop.org, one.id))
    assert await counters(pool) == {shop.service: 1, other.service: 1}
    assert one.id not in await statuses(pool)
    await within(storage, lambda tx: tx.subscriptions.remove(shop.org, one.id))
    assert await counters(pool) == {shop.service: 1, other.service: 1}


@pytest.mark.parametrize("existing", [ACTIVE, PAST_DUE])
@pytest.mark.parametrize("new", [ACTIVE, PAST_DUE])
async def test_a_second_live_subscription_is_refused_on_add_and_on_save(
    storage: Postgres, pool: Pool, shop: Shop, other: Shop, user: UUID, existing: SubscriptionStatus, new: SubscriptionStatus
) -> None:
    ended_subscription = shop.subscription(user, status=CANCELLED)
    await add_subscriptions(storage, shop.subscription(user, status=existing), ended_subscription, other.subscription(user, status=new))
    with pytest.raises(AlreadySubscribed):
        await add_subscriptions(storage, shop.subscription(user, status=new))
    with pytest.raises(AlreadySubscribed):
        await within(storage, lambda tx: tx.subscriptions.save(ended_subscription, replace(ended_subscription, status=new), NOW))
    assert await counters(pool) == {shop.service: 2, other.service: 1}
    await add_subscriptions(storage, shop.subscription(user, status=EXPIRED), shop.subscription(user, status=CANCELLED))


async def test_only_an_existing_account_can_be_subscribed(storage: Postgres, shop: Shop) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        await add_subscriptions(storage, shop.subscription(uuid4()))


async def test_the_live_subscription_comes_first_and_then_the_newest(storage: Postgres, shop: Shop, user: UUID) -> None:
    ages = {CANCELLED: 1, EXPIRED: 2, PAST_DUE: 4}
    subscriptions = {status: shop.subscription(user, status=status, created_at=NOW - age * HOUR) for status, age in ages.items()}
    overdue = shop.subscription(user, created_at=NOW - 5 * HOUR, current_period_end=NOW)
    await add_subscriptions(storage, *subscriptions.values())
    async with storage.reading() as read:
        assert await read.subscriptions.of_user(*shop.ids, user, NOW) == subscriptions[PAST_DUE]
    await within(storage, lambda tx: tx.subscriptions.remove(shop.org, subscriptions[PAST_DUE].id))
    await add_subscriptions(storage, overdue)
    async with storage.reading() as read:
        assert await read.subscriptions.of_user(*shop.ids, user, NOW - MICROSECOND) == overdue
        assert await read.subscriptions.of_user(*shop.ids, user, NOW) == subscriptions[CANCELLED]


async def test_locking_locks_only_the_subscription_of_the_user(
    storage: Postgres, pool: Pool, shop: Shop, user: UUID, other_user: UUID
) -> None:
    one, another = shop.subscription(user), shop.subscription(other_user)
    await add_subscriptions(storage, one, another)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.subscriptions.lock_of_user(*shop.ids, user, NOW)
        assert await is_locked(pool, "subscriptions", "id = %s", one.id)
        assert not await is_locked(pool, "subscriptions", "id = %s", another.id)
        assert not await is_locked(pool, "plans", "id = %s", shop.plan.id, mode="for update")


@pytest.mark.parametrize("status", [ACTIVE, PAST_DUE, CANCELLED, EXPIRED])
async def test_an_entitlement_has_the_plan_and_status_of_the_subscription(
    storage: Postgres, pool: Pool, shop: Shop, user: UUID, status: SubscriptionStatus
) -> None:
    await add_plan(pool, shop.service, FREE_PLAN_NAME, features=("nothing",))
    await add_subscriptions(storage, shop.subscription(user, status=status))
    assert await entitlement(storage, shop, user) == Entitlement("Gold of shop", status, ("exports", "shop"))


async def test_an_overdue_subscription_is_expired_unless_a_provider_manages_it(
    storage: Postgres, shop: Shop, user: UUID, other_user: UUID
) -> None:
    await add_subscriptions(
        storage,
        shop.subscription(user, current_period_end=NOW),
        shop.subscription(other_user, current_period_end=NOW, provider_subscription_id="sub_1"),
    )
    assert (await entitlement(storage, shop, user, NOW - MICROSECOND)).status is ACTIVE
    assert (await entitlement(storage, shop, user)).status is EXPIRED
    assert (await entitlement(storage, shop, other_user)).status is ACTIVE


async def test_the_live_subscription_gives_the_entitlement_and_then_the_newest(
    storage: Postgres, pool: Pool, shop: Shop, user: UUID
) -> None:
    silver = SubscribedPlan(await add_plan(pool, shop.service, "Silver", features=()), shop.service, "Silver", (), False, None)
    subscription = shop.subscription(user, current_period_end=NOW + SECOND)
    await add_subscriptions(storage, subscription, shop.subscription(user, plan=silver, status=CANCELLED, created_at=NOW))
    assert await entitlement(storage, shop, user) == Entitlement("Gold of shop", ACTIVE, ("exports", "shop"))
    assert await entitlement(storage, shop, user, NOW + SECOND) == Entitlement("Silver", CANCELLED, ())


async def test_without_a_subscription_the_free_plan_applies_if_the_service_has_one(
    storage: Postgres, pool: Pool, shop: Shop, other: Shop, user: UUID
) -> None:
    assert await entitlement(storage, shop, user) == Entitlement()
    await add_plan(pool, other.service, FREE_PLAN_NAME)
    await add_plan(pool, shop.service, FREE_PLAN_NAME.lower())
    assert await entitlement(storage, shop, user) == Entitlement()
    free = await add_plan(pool, shop.service, FREE_PLAN_NAME, features=("basics",))
    assert await entitlement(storage, shop, user) == Entitlement(FREE_PLAN_NAME, None, ("basics",))
    await run_sql(pool, "update plans set removed_at = now() where id = %s", free)
    assert await entitlement(storage, shop, user) == Entitlement()


async def test_a_deleted_plan_still_appears_in_its_subscriptions(storage: Postgres, pool: Pool, shop: Shop, user: UUID) -> None:
    await add_subscriptions(storage, shop.subscription(user, status=CANCELLED))
    await run_sql(pool, "update plans set removed_at = now()")
    assert await entitlement(storage, shop, user) == Entitlement("Gold of shop", CANCELLED, ("exports", "shop"))
    async with storage.reading() as read:
        plan = await read.subscriptions.plan(shop.plan.id)
        assert plan == replace(shop.plan, is_removed=True)
        subscription = await read.subscriptions.of_user(*shop.ids, user, NOW)
    assert subscription is not None
    assert subscription.plan == plan


@pytest.mark.parametrize(
    ("status", "ends", "provider", "is_used"),
    [
        (ACTIVE, NOW + MICROSECOND, None, True),
        (ACTIVE, NOW, None, False),
        (ACTIVE, NOW, "sub_1", True),
        (PAST_DUE, NOW, None, True),
        (CANCELLED, NOW + DAY, None, False),
        (EXPIRED, NOW + DAY, None, False),
    ],
)
async def test_a_plan_is_in_use_while_it_has_live_subscriptions(
    storage: Postgres, pool: Pool, shop: Shop, user: UUID, status: SubscriptionStatus, ends: datetime, provider: str | None, is_used: bool
) -> None:
    silver = await add_plan(pool, shop.service, "Silver")
    await add_subscriptions(storage, shop.subscription(user, status=status, current_period_end=ends, provider_subscription_id=provider))
    async with storage.reading() as read:
        assert await read.subscriptions.uses_plan(shop.org, shop.plan.id, NOW) is is_used
        assert not await read.subscriptions.uses_plan(shop.org, silver, NOW)
        assert not await read.subscriptions.uses_plan(uuid4(), shop.plan.id, NOW)


async def test_a_plan_is_found_regardless_of_its_service(storage: Postgres, shop: Shop, other_tenant: Shop) -> None:
    async with storage.reading() as read:
        assert await read.subscriptions.plan(shop.plan.id) == shop.plan
        assert await read.subscriptions.plan(other_tenant.plan.id) == other_tenant.plan
        assert await read.subscriptions.plan(uuid4()) is None


async def test_pages_are_oldest_first_and_have_the_total(storage: Postgres, shop: Shop, other: Shop, user: UUID) -> None:
    subscriptions = [shop.subscription(user, status=CANCELLED, created_at=NOW - age * SECOND) for age in (3, 1, 5, 2, 4)]
    await add_subscriptions(storage, *subscriptions, other.subscription(user))
    oldest = sorted(subscriptions, key=lambda one: one.created_at)
    for offset, expected in ((0, oldest[:2]), (2, oldest[2:4]), (4, oldest[4:]), (6, []), (2**31 - 1, [])):
        for status in (None, CANCELLED):
            assert await page_of(storage, shop, status, 2, offset) == PageResult(expected, 5)


async def test_lists_and_counts_use_the_current_status(storage: Postgres, shop: Shop, other: Shop, user: UUID, other_user: UUID) -> None:
    overdue = shop.subscription(user, current_period_end=NOW, created_at=NOW - 2 * DAY)
    expired = shop.subscription(user, status=EXPIRED)
    backed = shop.subscription(other_user, current_period_end=NOW, provider_subscription_id="sub_1")
    await add_subscriptions(storage, overdue, expired, backed, other.subscription(user))
    assert await page_of(storage, shop, EXPIRED) == PageResult([replace(overdue, status=EXPIRED), expired], 2)
    assert await page_of(storage, shop, EXPIRED, 1, 1) == PageResult([expired], 2)
    assert await page_of(storage, shop, ACTIVE) == PageResult([backed], 1)
    async with storage.reading() as read:
        assert await read.subscriptions.counts(*shop.ids, NOW) == {ACTIVE: 1, EXPIRED: 2, CANCELLED: 0, PAST_DUE: 0}
        assert await read.subscriptions.counts(*shop.ids, NOW - MICROSECOND) == {ACTIVE: 2, EXPIRED: 1, CANCELLED: 0, PAST_DUE: 0}


async def test_the_longest_overdue_subscriptions_expire_first(
    storage: Postgres, pool: Pool, shop: Shop, other_tenant: Shop, user: UUID, other_user: UUID
) -> None:
    first = other_tenant.subscription(user, current_period_end=NOW - HOUR)
    second = shop.subscription(user, current_period_end=NOW)
    await add_subscriptions(storage, second, first, shop.subscription(other_user, current_period_end=NOW + MICROSECOND))
    assert await within(storage, lambda tx: tx.subscriptions.expire(NOW, 1)) == [replace(first, status=EXPIRED)]
    assert await within(storage, lambda tx: tx.subscriptions.expire(NOW, 1)) == [replace(second, status=EXPIRED)]
    assert await within(storage, lambda tx: tx.subscriptions.expire(NOW, 1)) == []
    assert sorted((await statuses(pool)).values()) == ["active", "expired", "expired"]


async def test_expiring_one_user_leaves_other_users_unchanged(
    storage: Postgres, pool: Pool, shop: Shop, user: UUID, other_user: UUID
) -> None:
    one, another = shop.subscription(user, current_period_end=NOW), shop.subscription(other_user, current_period_end=NOW)
    await add_subscriptions(storage, one, another)
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.subscriptions.expire_of_user(*shop.ids, user, NOW - MICROSECOND) == []
        assert await tx.subscriptions.expire_of_user(*shop.ids, user, NOW) == [replace(one, status=EXPIRED)]
        assert await tx.subscriptions.expire_of_user(*shop.ids, user, NOW) == []
    assert await statuses(pool) == {one.id: "expired", another.id: "active"}
