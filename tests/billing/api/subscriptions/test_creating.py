"""Creating and ending subscriptions in the service API (decisions 113, 115; security K-5, T-1)."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.billing.api.subscriptions.shop import DAY, PATH, SECOND, Shop, format_time
from tests.fakes.outside import FakeClock
from tests.support.builders import add_account, run_sql
from tests.support.refusals import BAD, FORBIDDEN, MISSING, refused
from tests.support.services import add_service_user, add_subscription


async def test_by_default_a_subscription_is_active_for_30_days(shop: Shop) -> None:
    subscription = await shop.create(shop.user, shop.gold)
    assert subscription == {
        "id": str(UUID(subscription["id"])),
        "user_id": str(shop.user),
        "plan_id": str(shop.gold),
        "plan_name": "Gold",
        "status": "active",
        "current_period_end": "2026-04-13T15:09:26.535897Z",
    }
    assert (await shop.get(shop.user)).json == subscription
    assert await shop.stored_rows() == [("active", shop.gold)]


@pytest.mark.parametrize("status", ["active", "cancelled", "expired", "past_due"])
async def test_a_subscription_can_start_with_any_status(shop: Shop, status: str) -> None:
    subscription = await shop.create(shop.user, shop.silver, status=status, current_period_end="2026-05-01T12:00:00+02:00")
    assert (subscription["status"], subscription["current_period_end"]) == (status, "2026-05-01T10:00:00Z")
    assert (await shop.get(shop.user)).json == subscription
    assert await shop.stored_rows() == [(status, shop.silver)]


async def test_optional_fields_can_be_null(shop: Shop) -> None:
    subscription = await shop.create(shop.user, shop.gold, status=None, current_period_end=None)
    assert (subscription["status"], subscription["current_period_end"]) == ("active", "2026-04-13T15:09:26.535897Z")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("status", ["", "Active", "canceled", "trial", 1, True, [], {}]),
        ("current_period_end", ["", "soon", "2026-05-01", "2026-05-01T12:00:00", 1777626000, "2026-02-30T12:00:00Z", True]),
        ("user_id", ["", "x", "00000000-0000-4000-8000-00000000000G", str(uuid4()).upper(), uuid4().hex, 5, None]),
        ("plan_id", ["", "x", f"{{{uuid4()}}}", 5, None, []]),
    ],
)
async def test_malformed_fields_are_refused(shop: Shop, name: str, values: list[Any]) -> None:
    good = {"user_id": str(shop.user), "plan_id": str(shop.gold)}
    for value in values:
        answer = await shop.api.post(PATH, {**good, name: value}, headers=shop.headers)
        assert refused(answer) == BAD, value
        assert name in answer.json["error"]
    assert await shop.stored_rows() == []


async def test_the_refusal_of_an_unknown_status_lists_all_statuses(shop: Shop) -> None:
    for answer in (
        await shop.subscribe(shop.user, shop.gold, status="trial"),
        await shop.list_subscriptions("?status=trial"),
    ):
        assert refused(answer) == BAD
        assert all(name in answer.json["error"] for name in ("active", "cancelled", "expired", "past_due"))


async def test_user_and_plan_are_required(shop: Shop) -> None:
    for body in ({}, {"user_id": str(shop.user)}, {"plan_id": str(shop.gold)}):
        assert refused(await shop.api.post(PATH, body, headers=shop.headers)) == BAD


async def test_a_body_cannot_set_the_owner_of_a_subscription(shop: Shop, foreign: Shop, pool: Pool) -> None:
    extra = {
        "id": str(uuid4()),
        "org_id": str(foreign.tenant.org),
        "service_id": str(foreign.service),
        "provider_subscription_id": "sub_1",
        "created_at": "2020-01-01T00:00:00Z",
    }
    await shop.create(shop.user, shop.gold, **extra)
    rows = await run_sql(pool, "select org_id, service_id, provider_subscription_id from subscriptions")
    assert rows == [(shop.tenant.org, shop.service, None)]
    assert (await shop.update(shop.user, status="past_due", **extra)).status == 200
    assert await run_sql(pool, "select org_id, service_id, provider_subscription_id from subscriptions") == rows


async def test_only_a_user_of_the_service_can_be_subscribed(shop: Shop, other: Shop, foreign: Shop, ports: Ports) -> None:
    stranger = await add_account(ports, "stranger@example.com", None)
    for user in (uuid4(), stranger.id, other.user, foreign.user, shop.tenant.people["owner"].id):
        assert refused(await shop.subscribe(user, shop.gold)) == MISSING
    assert await shop.stored_rows() == []


async def test_only_a_plan_of_the_service_can_be_subscribed_to(shop: Shop, other: Shop, foreign: Shop, pool: Pool) -> None:
    assert refused(await shop.subscribe(shop.user, uuid4())) == MISSING
    for plan in (other.gold, foreign.gold):
        assert refused(await shop.subscribe(shop.user, plan)) == FORBIDDEN
    await run_sql(pool, "update plans set removed_at = now()")
    for plan in (shop.gold, other.gold, foreign.gold):
        assert refused(await shop.subscribe(shop.user, plan)) == MISSING
    assert await shop.stored_rows() == []


@pytest.mark.parametrize((("existing", "new")), [("active", "past_due"), ("past_due", "active")])
async def test_a_user_has_at_most_one_live_subscription_per_service(shop: Shop, foreign: Shop, existing: str, new: str) -> None:
    await shop.create(shop.user, shop.gold, status=existing)
    answer = await shop.subscribe(shop.user, shop.silver, status=new)
    assert refused(answer) == BAD
    assert "past due" in answer.json["error"]
    assert await shop.stored_rows() == [(existing, shop.gold)]
    await shop.create(shop.other_user, shop.gold, status=new)
    await add_service_user(foreign.tenant.ports, foreign.service, shop.user)
    await foreign.create(shop.user, foreign.gold, status=new)  # the limit is per service


@pytest.mark.parametrize("status", ["cancelled", "expired"])
async def test_ended_subscriptions_do_not_prevent_a_live_one(shop: Shop, clock: FakeClock, status: str) -> None:
    await shop.create(shop.user, shop.gold, status=status)
    clock.advance(SECOND)
    live_subscription = await shop.create(shop.user, shop.silver)
    clock.advance(SECOND)
    await shop.create(shop.user, shop.gold, status=status)
    assert (await shop.get(shop.user)).json == live_subscription
    assert await shop.stored_rows() == [(status, shop.gold), ("active", shop.silver), (status, shop.gold)]


async def test_an_overdue_subscription_is_marked_expired_and_does_not_prevent_a_new_one(shop: Shop, clock: FakeClock) -> None:
    first = await shop.create(shop.user, shop.gold, current_period_end=format_time(clock.now() + DAY))
    clock.advance(DAY - SECOND)
    assert refused(await shop.subscribe(shop.user, shop.silver)) == BAD
    clock.advance(SECOND)
    await shop.create(shop.user, shop.silver)
    assert await shop.stored_rows() == [("expired", shop.gold), ("active", shop.silver)]
    expired = await shop.tenant.entry("subscription.updated")
    assert (expired["target_type"], expired["target_id"]) == ("subscription", first["id"])
    assert (expired["actor_id"], expired["address"]) == (None, None), "the expiry has no actor"
    assert expired["details"] == {
        "service_id": str(shop.service),
        "user_id": str(shop.user),
        "status": {"old": "active", "new": "expired"},
    }


async def test_a_past_due_subscription_does_not_expire(shop: Shop, clock: FakeClock) -> None:
    subscription = await shop.create(shop.user, shop.gold, status="past_due", current_period_end=format_time(clock.now() - DAY))
    assert subscription["status"] == "past_due"
    assert refused(await shop.subscribe(shop.user, shop.silver)) == BAD


async def test_a_subscription_created_after_its_period_is_expired(shop: Shop, clock: FakeClock) -> None:
    subscription = await shop.create(shop.user, shop.gold, current_period_end=format_time(clock.now()))
    assert subscription["status"] == "expired"
    assert (await shop.get(shop.user)).json == subscription
    [created] = await shop.tenant.log()
    assert (created["action"], created["details"]["status"]) == ("subscription.created", "expired"), "it was never active"
    await shop.create(shop.user, shop.gold)
    assert await shop.tenant.actions() == {"subscription.created": 2}


# Ending


async def test_ending_a_subscription_without_a_provider_deletes_it(shop: Shop) -> None:
    await shop.create(shop.user, shop.gold)
    answer = await shop.end(shop.user)
    assert (answer.status, answer.text) == (204, "")
    assert await shop.stored_rows() == []
    assert refused(await shop.get(shop.user)) == MISSING
    assert refused(await shop.end(shop.user)) == MISSING
    await shop.create(shop.user, shop.silver)


async def test_ending_a_subscription_with_a_provider_cancels_it(shop: Shop, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    await add_subscription(ports, pool, shop.service, shop.user, shop.gold, ends=clock.now() - DAY, provider="sub_1")
    assert (await shop.get(shop.user)).json["status"] == "active"
    assert (await shop.end(shop.user)).status == 204
    assert await shop.stored_rows() == [("cancelled", shop.gold)]
    assert (await shop.get(shop.user)).json["status"] == "cancelled"
    assert refused(await shop.end(shop.user)) == MISSING
    assert await shop.tenant.actions() == {"subscription.canceled": 1}
