"""Permissions, inactive organizations and concurrent requests (security K-2, Z-1, Z-5)."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from core.applications.model.api_keys import ApiKeyInvalid
from core.billing import subscriptions
from core.kernel.callers import OrganizationStatus
from core.kernel.errors import OrganizationNotActive
from core.kernel.roles import Permission
from ports import Ports
from tests.billing.api.subscriptions.shop import DAY, MONTH, PATH, Shop, format_time
from tests.fakes.outside import FakeClock
from tests.support.builders import Api, run_concurrently, run_during, run_sql
from tests.support.refusals import MISSING, refused
from tests.support.services import add_api_key

OWN = [Permission.READ_SUBSCRIPTIONS, Permission.WRITE_SUBSCRIPTIONS, Permission.DELETE_SUBSCRIPTIONS]


@pytest.mark.parametrize("permissions", [*[{one} for one in OWN], set(Permission) - {*OWN}], ids=[*OWN, "all others"])
async def test_each_route_requires_its_permission(shop: Shop, api: Api, pool: Pool, permissions: set[Permission]) -> None:
    await shop.create(shop.user, shop.gold)
    headers = {"X-Api-Key": await add_api_key(pool, shop.service, permissions)}
    body = {"user_id": str(shop.other_user), "plan_id": str(shop.gold)}
    answers = [
        (Permission.READ_SUBSCRIPTIONS, 200, await api.get(PATH, headers=headers)),
        (Permission.READ_SUBSCRIPTIONS, 200, await api.get(f"{PATH}/{shop.user}", headers=headers)),
        (Permission.WRITE_SUBSCRIPTIONS, 200, await api.post(PATH, body, headers=headers)),
        (Permission.WRITE_SUBSCRIPTIONS, 200, await api.patch(f"{PATH}/{shop.user}", {"status": "past_due"}, headers=headers)),
        (Permission.DELETE_SUBSCRIPTIONS, 204, await api.delete(f"{PATH}/{shop.user}", headers=headers)),
        # The permission is checked before everything else.
        (Permission.READ_SUBSCRIPTIONS, 404, await api.get(f"{PATH}/{uuid4()}", headers=headers)),
        (Permission.WRITE_SUBSCRIPTIONS, 400, await api.post(PATH, {}, headers=headers)),
        (Permission.DELETE_SUBSCRIPTIONS, 404, await api.delete(f"{PATH}/{uuid4()}", headers=headers)),
    ]
    for needed, success, answer in answers:
        assert answer.status == (success if needed in permissions else 403)


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_the_service_api_refuses_inactive_organizations(shop: Shop, status: str) -> None:
    await shop.create(shop.user, shop.gold)
    await shop.tenant.set_status(status)
    for answer in (
        await shop.list_subscriptions(),
        await shop.get(shop.user),
        await shop.subscribe(shop.other_user, shop.gold),
        await shop.update(shop.user, status="expired"),
        await shop.end(shop.user),
    ):
        assert refused(answer) == (403, "ORGANIZATION_NOT_ACTIVE")
    assert await shop.stored_rows() == [("active", shop.gold)]


async def test_the_key_is_checked_again_inside_the_transaction(shop: Shop, ports: Ports, pool: Pool) -> None:
    """The organization is suspended, or the key deleted, after the request was authenticated."""
    subscription, caller = await shop.create(shop.user, shop.gold), await shop.caller()

    async def attempts(refusal: type[Exception]) -> None:
        with pytest.raises(refusal):
            await subscriptions.create(ports, caller, shop.other_user, shop.gold)
        with pytest.raises(refusal):
            await subscriptions.update(ports, caller, shop.user, plan_id=shop.silver)
        with pytest.raises(refusal):
            await subscriptions.end(ports, caller, shop.user)

    assert caller.service.status is OrganizationStatus.ACTIVE
    await shop.tenant.set_status("suspended")
    await attempts(OrganizationNotActive)
    await shop.tenant.set_status("active")
    await run_sql(pool, "delete from api_keys")
    await attempts(ApiKeyInvalid)
    assert await run_sql(pool, "select id from subscriptions") == [(UUID(subscription["id"]),)]


async def test_a_subscription_for_a_concurrently_removed_user_is_refused(shop: Shop, pool: Pool) -> None:
    changes = [
        ("select 1 from organizations where id = %s for no key update", (shop.tenant.org,)),
        ("delete from service_users where user_id = %s", (shop.user,)),
    ]
    assert refused(await run_during(pool, changes, lambda: shop.subscribe(shop.user, shop.gold))) == MISSING


async def test_an_update_that_waits_for_the_sweeper_sees_its_change(shop: Shop, pool: Pool, clock: FakeClock) -> None:
    await shop.create(shop.user, shop.gold, current_period_end=format_time(clock.now() + DAY))
    expiry = ("update subscriptions set status = 'expired' where user_id = %s", (shop.user,))
    answer = await run_during(pool, [expiry], lambda: shop.update(shop.user, current_period_end=format_time(clock.now() + MONTH)))
    assert answer.json["status"] == "expired"


# Concurrency


@pytest.mark.slow
async def test_of_twenty_concurrent_requests_one_subscribes_the_user(shop: Shop, foreign: Shop) -> None:
    answers = await run_concurrently(20, lambda number: shop.subscribe(shop.user, shop.gold, status=["active", "past_due"][number % 2]))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19
    assert {answer.code for answer in answers if answer.status == 400} == {"BAD_REQUEST"}
    [(status, plan)] = await shop.stored_rows()
    assert (status, plan) == (next(answer.json["status"] for answer in answers if answer.status == 200), shop.gold)
    assert await shop.tenant.actions() == {"subscription.created": 1}


@pytest.mark.slow
async def test_of_twenty_concurrent_requests_one_replaces_an_overdue_subscription(shop: Shop, clock: FakeClock) -> None:
    await shop.create(shop.user, shop.gold, current_period_end=format_time(clock.now() + DAY))
    clock.advance(DAY)
    answers = await run_concurrently(20, lambda _: shop.subscribe(shop.user, shop.silver))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19
    assert await shop.stored_rows() == [("expired", shop.gold), ("active", shop.silver)]
    assert await shop.tenant.actions() == {"subscription.created": 2, "subscription.updated": 1}


@pytest.mark.slow
async def test_concurrent_changes_keep_the_counter_and_at_most_one_live_subscription(shop: Shop, ports: Ports, clock: FakeClock) -> None:
    def act(number: int) -> Any:
        user = (shop.user, shop.other_user)[number % 2]
        match number % 5:
            case 0 | 1:
                return shop.subscribe(user, shop.gold)
            case 2:
                return shop.end(user)
            case 3:
                return shop.update(user, status=("cancelled", "active")[number % 3 % 2])
        return shop.list_subscriptions()

    answers = await run_concurrently(40, act)
    assert {answer.status for answer in answers} <= {200, 204, 400, 404}
    stored_rows = await shop.stored_rows()
    assert sum(status == "active" for status, _ in stored_rows) <= 2
    await shop.tenant.actions()
