"""Every statement about subscriptions: each field, what counts of several, what each status is now, each lock, and that it touches no other
service and no other organization."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from core.applications.plans_rules import FREE_PLAN_NAME
from core.billing.subscriptions_rules import AlreadySubscribed, Entitlement, SubscribedPlan, Subscription, SubscriptionStatus
from core.kernel.principals import SYSTEM
from core.kernel.values import PageResult
from tests.support.builders import add_organization, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, MICROSECOND, NOW, SECOND, account, add, is_locked, within
from tests.support.services import add_plan, add_service

ACTIVE, CANCELLED = SubscriptionStatus.ACTIVE, SubscriptionStatus.CANCELLED
EXPIRED, PAST_DUE = SubscriptionStatus.EXPIRED, SubscriptionStatus.PAST_DUE


@dataclass(frozen=True, slots=True)
class Shop:
    """A service of an organization with a plan."""

    org: UUID
    service: UUID
    plan: SubscribedPlan

    @property
    def both(self) -> tuple[UUID, UUID]:
        return self.org, self.service

    def subscription(self, user: UUID, **changes: Any) -> Subscription:
        plain = Subscription(
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
        return replace(plain, **changes)


async def add_shop(pool: Pool, org: UUID, slug: str = "shop") -> Shop:
    service = await add_service(pool, org, slug)
    plan = await add_plan(pool, service, f"Gold of {slug}", features=("exports", slug))
    return Shop(org, service, SubscribedPlan(plan, service, f"Gold of {slug}", ("exports", slug), False, None))


@pytest.fixture
async def shop(pool: Pool) -> Shop:
    return await add_shop(pool, await add_organization(pool, "acme"))


@pytest.fixture
async def other(pool: Pool, shop: Shop) -> Shop:
    """Another service of the same organization."""
    return await add_shop(pool, shop.org, "other")


@pytest.fixture
async def twin(pool: Pool) -> Shop:
    """A service of another organization."""
    return await add_shop(pool, await add_organization(pool, "twin"))


@pytest.fixture
async def ada(storage: Postgres) -> UUID:
    return (await add(storage, account(ADA))).id


@pytest.fixture
async def eve(storage: Postgres) -> UUID:
    return (await add(storage, account(EVE))).id


async def store(storage: Postgres, *made: Subscription) -> Subscription:
    async with storage.transaction(by=SYSTEM) as tx:
        for one in made:
            await tx.subscriptions.add(one)
    return made[0]


async def statuses(pool: Pool) -> dict[UUID, str]:
    return dict(await run_sql(pool, "select id, status from subscriptions"))


async def counters(pool: Pool) -> dict[UUID, int]:
    return dict(await run_sql(pool, "select id, subscription_count from services"))


async def listed(
    storage: Postgres, shop: Shop, status: SubscriptionStatus | None, limit: int = 50, offset: int = 0
) -> PageResult[Subscription]:
    async with storage.reading() as read:
        return await read.subscriptions.page(*shop.both, status, limit, offset, NOW)


async def entitlement(storage: Postgres, shop: Shop, user: UUID, now: datetime = NOW) -> Entitlement:
    async with storage.reading() as read:
        return await read.subscriptions.entitlement(shop.service, user, now)


@pytest.mark.parametrize("status", list(SubscriptionStatus))
async def test_every_field_comes_back_from_every_question(storage: Postgres, shop: Shop, ada: UUID, status: SubscriptionStatus) -> None:
    one = await store(storage, shop.subscription(ada, status=status, provider_subscription_id="sub_1"))
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.subscriptions.of_user(*shop.both, ada, NOW) == one
        assert await tx.subscriptions.lock_of_user(*shop.both, ada, NOW) == one
    for wanted in (status, None):
        assert await listed(storage, shop, wanted) == PageResult([one], 1)


async def test_a_change_is_kept_and_only_what_can_change(storage: Postgres, pool: Pool, shop: Shop, ada: UUID, eve: UUID) -> None:
    one, untouched = shop.subscription(ada), shop.subscription(eve)
    await store(storage, one, untouched)
    silver = await add_plan(pool, shop.service, "Silver", features=())
    wanted = replace(
        one,
        plan=SubscribedPlan(silver, shop.service, "Silver", (), False, None),
        status=PAST_DUE,
        current_period_end=NOW + 2 * DAY,
        provider_subscription_id="sub_1",
        user_id=eve,
        created_at=NOW,
    )
    await within(storage, lambda tx: tx.subscriptions.save(wanted, NOW))
    async with storage.reading() as read:
        changed = await read.subscriptions.of_user(*shop.both, ada, NOW)
        assert await read.subscriptions.of_user(*shop.both, eve, NOW) == untouched
    assert changed == replace(wanted, provider_subscription_id=None, user_id=ada, created_at=one.created_at)
    assert await run_sql(pool, "select updated_at from subscriptions where id = %s", one.id) == [(NOW,)]


async def test_another_service_and_another_organization_have_nothing_to_do_with_it(
    storage: Postgres, pool: Pool, shop: Shop, other: Shop, twin: Shop, ada: UUID
) -> None:
    one = await store(storage, shop.subscription(ada, current_period_end=NOW), shop.subscription(ada, status=EXPIRED))
    # Ids of one beside ids of another are nobody's, either.
    for elsewhere in (other, twin, Shop(twin.org, shop.service, shop.plan), Shop(shop.org, twin.service, shop.plan)):
        async with storage.transaction(by=SYSTEM) as tx:
            assert await tx.subscriptions.of_user(*elsewhere.both, ada, NOW) is None
            assert await tx.subscriptions.lock_of_user(*elsewhere.both, ada, NOW) is None
            assert await tx.subscriptions.expire_of_user(*elsewhere.both, ada, NOW) == []
            assert set((await tx.subscriptions.counts(*elsewhere.both, NOW)).values()) == {0}
            for status in (None, *SubscriptionStatus):
                assert await tx.subscriptions.page(*elsewhere.both, status, 50, 0, NOW) == PageResult([], 0)
    for elsewhere in (other, twin):
        assert await entitlement(storage, elsewhere, ada) == Entitlement()
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.subscriptions.save(replace(one, org_id=twin.org, status=CANCELLED), NOW)
        await tx.subscriptions.remove(twin.org, one.id)
        assert not await tx.subscriptions.uses_plan(twin.org, shop.plan.id, NOW - DAY)
    assert (await statuses(pool))[one.id] == "active"
    assert await counters(pool) == {shop.service: 2, other.service: 0, twin.service: 0}


async def test_adding_and_removing_is_counted(storage: Postgres, pool: Pool, shop: Shop, other: Shop, ada: UUID, eve: UUID) -> None:
    one = await store(storage, shop.subscription(ada), shop.subscription(eve), other.subscription(ada))
    assert await counters(pool) == {shop.service: 2, other.service: 1}
    await within(storage, lambda tx: tx.subscriptions.remove(shop.org, one.id))
    assert await counters(pool) == {shop.service: 1, other.service: 1}
    assert one.id not in await statuses(pool)
    await within(storage, lambda tx: tx.subscriptions.remove(shop.org, one.id))
    assert await counters(pool) == {shop.service: 1, other.service: 1}


@pytest.mark.parametrize("first", [ACTIVE, PAST_DUE])
@pytest.mark.parametrize("second", [ACTIVE, PAST_DUE])
async def test_a_second_live_one_is_refused_when_added_and_when_saved(
    storage: Postgres, pool: Pool, shop: Shop, other: Shop, ada: UUID, first: SubscriptionStatus, second: SubscriptionStatus
) -> None:
    ended = shop.subscription(ada, status=CANCELLED)
    await store(storage, shop.subscription(ada, status=first), ended, other.subscription(ada, status=second))
    with pytest.raises(AlreadySubscribed):
        await store(storage, shop.subscription(ada, status=second))
    with pytest.raises(AlreadySubscribed):
        await within(storage, lambda tx: tx.subscriptions.save(replace(ended, status=second), NOW))
    assert await counters(pool) == {shop.service: 2, other.service: 1}
    await store(storage, shop.subscription(ada, status=EXPIRED), shop.subscription(ada, status=CANCELLED))


async def test_only_an_account_that_there_is_can_be_subscribed(storage: Postgres, shop: Shop) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        await store(storage, shop.subscription(uuid4()))


# What counts of several


async def test_the_live_one_comes_first_and_then_the_newest(storage: Postgres, shop: Shop, ada: UUID) -> None:
    ages = {CANCELLED: 1, EXPIRED: 2, PAST_DUE: 4}
    made = {status: shop.subscription(ada, status=status, created_at=NOW - age * HOUR) for status, age in ages.items()}
    ran_out = shop.subscription(ada, created_at=NOW - 5 * HOUR, current_period_end=NOW)
    await store(storage, *made.values())
    async with storage.reading() as read:
        assert await read.subscriptions.of_user(*shop.both, ada, NOW) == made[PAST_DUE]
    await within(storage, lambda tx: tx.subscriptions.remove(shop.org, made[PAST_DUE].id))
    await store(storage, ran_out)
    async with storage.reading() as read:
        assert await read.subscriptions.of_user(*shop.both, ada, NOW - MICROSECOND) == ran_out
        assert await read.subscriptions.of_user(*shop.both, ada, NOW) == made[CANCELLED]


async def test_who_is_locked_is_locked(storage: Postgres, pool: Pool, shop: Shop, ada: UUID, eve: UUID) -> None:
    one, another = shop.subscription(ada), shop.subscription(eve)
    await store(storage, one, another)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.subscriptions.lock_of_user(*shop.both, ada, NOW)
        assert await is_locked(pool, "subscriptions", "id = %s", one.id)
        assert not await is_locked(pool, "subscriptions", "id = %s", another.id)
        assert not await is_locked(pool, "plans", "id = %s", shop.plan.id, mode="for update")


# What a person has of a service


@pytest.mark.parametrize("status", [ACTIVE, PAST_DUE, CANCELLED, EXPIRED])
async def test_a_subscription_entitles_to_its_plan_and_says_its_status(
    storage: Postgres, pool: Pool, shop: Shop, ada: UUID, status: SubscriptionStatus
) -> None:
    await add_plan(pool, shop.service, FREE_PLAN_NAME, features=("nothing",))
    await store(storage, shop.subscription(ada, status=status))
    assert await entitlement(storage, shop, ada) == Entitlement("Gold of shop", status, ("exports", "shop"))


async def test_what_has_run_out_says_so_unless_a_provider_looks_after_it(storage: Postgres, shop: Shop, ada: UUID, eve: UUID) -> None:
    await store(
        storage,
        shop.subscription(ada, current_period_end=NOW),
        shop.subscription(eve, current_period_end=NOW, provider_subscription_id="sub_1"),
    )
    assert (await entitlement(storage, shop, ada, NOW - MICROSECOND)).status is ACTIVE
    assert (await entitlement(storage, shop, ada)).status is EXPIRED
    assert (await entitlement(storage, shop, eve)).status is ACTIVE


async def test_of_several_the_live_one_entitles_and_then_the_newest(storage: Postgres, pool: Pool, shop: Shop, ada: UUID) -> None:
    silver = SubscribedPlan(await add_plan(pool, shop.service, "Silver", features=()), shop.service, "Silver", (), False, None)
    live = shop.subscription(ada, current_period_end=NOW + SECOND)
    await store(storage, live, shop.subscription(ada, plan=silver, status=CANCELLED, created_at=NOW))
    assert await entitlement(storage, shop, ada) == Entitlement("Gold of shop", ACTIVE, ("exports", "shop"))
    assert await entitlement(storage, shop, ada, NOW + SECOND) == Entitlement("Silver", CANCELLED, ())


async def test_without_a_subscription_there_is_the_free_plan_by_its_name_while_there_is_one(
    storage: Postgres, pool: Pool, shop: Shop, other: Shop, ada: UUID
) -> None:
    assert await entitlement(storage, shop, ada) == Entitlement()
    await add_plan(pool, other.service, FREE_PLAN_NAME)
    await add_plan(pool, shop.service, FREE_PLAN_NAME.lower())
    assert await entitlement(storage, shop, ada) == Entitlement()
    free = await add_plan(pool, shop.service, FREE_PLAN_NAME, features=("basics",))
    assert await entitlement(storage, shop, ada) == Entitlement(FREE_PLAN_NAME, None, ("basics",))
    await run_sql(pool, "update plans set removed_at = now() where id = %s", free)
    assert await entitlement(storage, shop, ada) == Entitlement()


async def test_a_removed_plan_still_names_what_somebody_had(storage: Postgres, pool: Pool, shop: Shop, ada: UUID) -> None:
    await store(storage, shop.subscription(ada, status=CANCELLED))
    await run_sql(pool, "update plans set removed_at = now()")
    assert await entitlement(storage, shop, ada) == Entitlement("Gold of shop", CANCELLED, ("exports", "shop"))
    async with storage.reading() as read:
        plan = await read.subscriptions.plan(shop.plan.id)
        assert plan == replace(shop.plan, is_removed=True)
        found = await read.subscriptions.of_user(*shop.both, ada, NOW)
    assert found is not None
    assert found.plan == plan


# What the owner of plans asks, and the one who subscribes


@pytest.mark.parametrize(
    ("status", "ends", "provider", "used"),
    [
        (ACTIVE, NOW + MICROSECOND, None, True),
        (ACTIVE, NOW, None, False),
        (ACTIVE, NOW, "sub_1", True),
        (PAST_DUE, NOW, None, True),
        (CANCELLED, NOW + DAY, None, False),
        (EXPIRED, NOW + DAY, None, False),
    ],
)
async def test_a_plan_is_used_by_those_who_are_subscribed_to_it_now(
    storage: Postgres, pool: Pool, shop: Shop, ada: UUID, status: SubscriptionStatus, ends: datetime, provider: str | None, used: bool
) -> None:
    silver = await add_plan(pool, shop.service, "Silver")
    await store(storage, shop.subscription(ada, status=status, current_period_end=ends, provider_subscription_id=provider))
    async with storage.reading() as read:
        assert await read.subscriptions.uses_plan(shop.org, shop.plan.id, NOW) is used
        assert not await read.subscriptions.uses_plan(shop.org, silver, NOW)
        assert not await read.subscriptions.uses_plan(uuid4(), shop.plan.id, NOW)


async def test_a_plan_is_found_whatever_service_it_is_of(storage: Postgres, shop: Shop, twin: Shop) -> None:
    async with storage.reading() as read:
        assert await read.subscriptions.plan(shop.plan.id) == shop.plan
        assert await read.subscriptions.plan(twin.plan.id) == twin.plan
        assert await read.subscriptions.plan(uuid4()) is None


# Lists and figures


async def test_pages_are_oldest_first_and_tell_the_total(storage: Postgres, shop: Shop, other: Shop, ada: UUID) -> None:
    made = [shop.subscription(ada, status=CANCELLED, created_at=NOW - age * SECOND) for age in (3, 1, 5, 2, 4)]
    await store(storage, *made, other.subscription(ada))
    oldest = sorted(made, key=lambda one: one.created_at)
    for offset, expected in ((0, oldest[:2]), (2, oldest[2:4]), (4, oldest[4:]), (6, []), (2**31 - 1, [])):
        for status in (None, CANCELLED):
            assert await listed(storage, shop, status, 2, offset) == PageResult(expected, 5)


async def test_the_status_of_this_moment_is_what_is_filtered_counted_and_shown(
    storage: Postgres, shop: Shop, other: Shop, ada: UUID, eve: UUID
) -> None:
    ran_out = shop.subscription(ada, current_period_end=NOW, created_at=NOW - 2 * DAY)
    expired = shop.subscription(ada, status=EXPIRED)
    backed = shop.subscription(eve, current_period_end=NOW, provider_subscription_id="sub_1")
    await store(storage, ran_out, expired, backed, other.subscription(ada))
    assert await listed(storage, shop, EXPIRED) == PageResult([replace(ran_out, status=EXPIRED), expired], 2)
    assert await listed(storage, shop, EXPIRED, 1, 1) == PageResult([expired], 2)
    assert await listed(storage, shop, ACTIVE) == PageResult([backed], 1)
    async with storage.reading() as read:
        assert await read.subscriptions.counts(*shop.both, NOW) == {ACTIVE: 1, EXPIRED: 2, CANCELLED: 0, PAST_DUE: 0}
        assert await read.subscriptions.counts(*shop.both, NOW - MICROSECOND) == {ACTIVE: 2, EXPIRED: 1, CANCELLED: 0, PAST_DUE: 0}


# What runs out


async def test_what_has_run_out_is_marked_the_longest_ago_first(
    storage: Postgres, pool: Pool, shop: Shop, twin: Shop, ada: UUID, eve: UUID
) -> None:
    first = twin.subscription(ada, current_period_end=NOW - HOUR)
    second = shop.subscription(ada, current_period_end=NOW)
    await store(storage, second, first, shop.subscription(eve, current_period_end=NOW + MICROSECOND))
    assert await within(storage, lambda tx: tx.subscriptions.expire(NOW, 1)) == [replace(first, status=EXPIRED)]
    assert await within(storage, lambda tx: tx.subscriptions.expire(NOW, 1)) == [replace(second, status=EXPIRED)]
    assert await within(storage, lambda tx: tx.subscriptions.expire(NOW, 1)) == []
    assert sorted((await statuses(pool)).values()) == ["active", "expired", "expired"]


async def test_of_one_person_what_has_run_out_is_marked_for_that_person(
    storage: Postgres, pool: Pool, shop: Shop, ada: UUID, eve: UUID
) -> None:
    one, another = shop.subscription(ada, current_period_end=NOW), shop.subscription(eve, current_period_end=NOW)
    await store(storage, one, another)
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.subscriptions.expire_of_user(*shop.both, ada, NOW - MICROSECOND) == []
        assert await tx.subscriptions.expire_of_user(*shop.both, ada, NOW) == [replace(one, status=EXPIRED)]
        assert await tx.subscriptions.expire_of_user(*shop.both, ada, NOW) == []
    assert await statuses(pool) == {one.id: "expired", another.id: "active"}
