"""Changing subscriptions in the service API, and the audit records (decision 116; security K-5)."""

from itertools import product
from uuid import uuid4

from adapters.postgres.engine.pool import Pool
from tests.billing.api.subscriptions.shop import DAY, MONTH, SECOND, Shop, format_time
from tests.fakes.outside import FakeClock
from tests.support.builders import run_sql
from tests.support.refusals import BAD, FORBIDDEN, MISSING, refused


async def test_status_period_and_plan_can_be_changed(shop: Shop) -> None:
    subscription = await shop.create(shop.user, shop.gold)
    answer = await shop.update(
        shop.user, status="past_due", current_period_end="2027-01-01T00:00:00.5+01:00", plan_id=str(shop.silver), id=str(uuid4())
    )
    assert answer.status == 200
    assert answer.json == subscription | {
        "plan_id": str(shop.silver),
        "plan_name": "Silver",
        "status": "past_due",
        "current_period_end": "2026-12-31T23:00:00.500000Z",
    }
    assert (await shop.get(shop.user)).json == answer.json
    assert await shop.stored_rows() == [("past_due", shop.silver)]


async def test_each_field_can_be_changed_alone(shop: Shop) -> None:
    subscription = await shop.create(shop.user, shop.gold)
    for update, fields in (
        ({"status": "cancelled"}, {"status": "cancelled"}),
        ({"current_period_end": "2026-05-01T10:00:00+02"}, {"current_period_end": "2026-05-01T08:00:00Z"}),
        ({"plan_id": str(shop.silver)}, {"plan_id": str(shop.silver), "plan_name": "Silver"}),
    ):
        subscription |= fields
        assert (await shop.update(shop.user, **update)).json == subscription
        assert (await shop.get(shop.user)).json == subscription


async def test_any_status_may_follow_any_other(shop: Shop) -> None:
    await shop.create(shop.user, shop.gold)
    for old, new in product(("active", "cancelled", "expired", "past_due"), repeat=2):
        for status in (old, new):
            answer = await shop.update(shop.user, status=status)
            assert (answer.status, answer.json["status"]) == (200, status)
    assert await shop.stored_rows() == [("past_due", shop.gold)]


async def test_an_empty_or_malformed_update_is_refused(shop: Shop) -> None:
    await shop.create(shop.user, shop.gold)
    assert refused(await shop.update(shop.user)) == BAD
    assert refused(await shop.update(shop.user, unknown=1)) == BAD
    for field_, values in {
        "status": [None, "trial", 1],
        "current_period_end": [None, "2026-05-01", 5],
        "plan_id": [None, "x", 5],
    }.items():
        for value in values:
            assert refused(await shop.update(shop.user, **{field_: value})) == BAD, (field_, value)


async def test_a_new_plan_must_be_an_existing_plan_of_the_service(shop: Shop, other: Shop, foreign: Shop, pool: Pool) -> None:
    await shop.create(shop.user, shop.gold)
    assert refused(await shop.update(shop.user, plan_id=str(uuid4()))) == MISSING
    for plan in (other.gold, foreign.gold):
        assert refused(await shop.update(shop.user, plan_id=str(plan))) == FORBIDDEN
    await run_sql(pool, "update plans set removed_at = now() where id = %s", shop.silver)
    assert refused(await shop.update(shop.user, plan_id=str(shop.silver))) == MISSING
    assert await shop.stored_rows() == [("active", shop.gold)]


async def test_a_subscription_to_a_deleted_plan_cannot_become_live(shop: Shop, pool: Pool) -> None:
    await shop.create(shop.user, shop.gold, status="cancelled")
    await run_sql(pool, "update plans set removed_at = now() where id = %s", shop.gold)
    for status in ("active", "past_due"):
        assert refused(await shop.update(shop.user, status=status)) == BAD
    assert (await shop.update(shop.user, status="expired", plan_id=str(shop.gold))).status == 200  # the current plan is allowed
    assert (await shop.get(shop.user)).json["plan_name"] == "Gold"
    assert (await shop.update(shop.user, status="active", plan_id=str(shop.silver))).status == 200
    assert await shop.stored_rows() == [("active", shop.silver)]


async def test_an_expired_subscription_stays_expired_until_its_status_is_set(shop: Shop, clock: FakeClock) -> None:
    await shop.create(shop.user, shop.gold, current_period_end=format_time(clock.now() + DAY))
    clock.advance(DAY)
    longer = format_time(clock.now() + MONTH)
    answer = await shop.update(shop.user, current_period_end=longer)
    assert (answer.json["status"], answer.json["current_period_end"]) == ("expired", longer)
    clock.advance(SECOND)
    assert (await shop.update(shop.user, status="active")).json["status"] == "active"
    assert await shop.stored_rows() == [("active", shop.gold)]
    changes = [entry["details"] for entry in await shop.tenant.log() if entry["action"] == "subscription.updated"]
    assert [details.get("status") for details in changes] == [
        {"old": "active", "new": "expired"},
        None,
        {"old": "expired", "new": "active"},
    ]


async def test_activating_a_subscription_after_its_period_leaves_it_expired(shop: Shop, clock: FakeClock) -> None:
    await shop.create(shop.user, shop.gold, status="cancelled", current_period_end=format_time(clock.now()))
    assert (await shop.update(shop.user, status="active")).json["status"] == "expired"
    changes = await shop.tenant.entry("subscription.updated")
    assert changes["details"]["status"] == {"old": "cancelled", "new": "expired"}
    for _ in range(2):
        assert (await shop.update(shop.user, status="active")).json["status"] == "expired"
    assert await shop.tenant.actions() == {"subscription.created": 1, "subscription.updated": 1}, "the status did not change again"


async def test_an_overdue_subscription_does_not_prevent_activating_a_later_one(shop: Shop, clock: FakeClock) -> None:
    await shop.create(shop.user, shop.gold, current_period_end=format_time(clock.now() + DAY))
    clock.advance(SECOND)
    await shop.create(shop.user, shop.silver, status="cancelled")
    clock.advance(DAY)
    assert (await shop.update(shop.user, status="active")).json["status"] == "active"
    assert await shop.stored_rows() == [("expired", shop.gold), ("active", shop.silver)]


# Records


async def test_each_change_is_recorded_and_sent_to_webhooks_with_the_key_as_actor(shop: Shop, clock: FakeClock) -> None:
    subscription = await shop.create(shop.user, shop.gold)
    clock.advance(SECOND)
    await shop.update(shop.user, plan_id=str(shop.silver))
    clock.advance(SECOND)
    await shop.update(shop.user, plan_id=str(shop.silver), status="active")  # changes nothing
    await shop.end(shop.user)
    key = (await shop.caller()).key_id
    owner = {"service_id": str(shop.service), "user_id": str(shop.user)}
    gold = {"plan_id": str(shop.gold), "plan_name": "Gold"}
    silver = {"plan_id": str(shop.silver), "plan_name": "Silver"}
    rest = {"status": "active", "current_period_end": subscription["current_period_end"]}
    changes = {name: {"old": gold[name], "new": silver[name]} for name in gold}
    assert await shop.tenant.recorded() == [
        ("subscription.created", "subscription", subscription["id"], key, owner | gold | rest),
        ("subscription.updated", "subscription", subscription["id"], key, owner | changes),
        ("subscription.canceled", "subscription", subscription["id"], key, owner | silver | rest),
    ]
    assert [(name, target) for name, target, _ in await shop.tenant.webhook_events()] == [
        (f"subscription.{change}", subscription["id"]) for change in ("created", "updated", "canceled")
    ]
    assert shop.key not in str(await shop.tenant.log())
