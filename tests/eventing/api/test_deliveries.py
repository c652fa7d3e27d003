"""Webhook deliveries over HTTP: payloads, lists, tests and replays (security L-3, W-6)."""

import json
from datetime import timedelta
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.values import rfc3339
from tests.eventing.api.webhooks import call, create_webhook, list_deliveries, patch, record_events, refusal
from tests.fakes.outside import FakeClock
from tests.programs.service_accounts import add_robot
from tests.support.builders import run_sql
from tests.support.refusals import BAD
from tests.support.tenants import Tenant
from tests.tenancy.organizations import NOW

DELIVERY = [
    *("id", "webhook_id", "webhook_name", "event_type", "payload", "response_status_code", "response_body", "attempt_count"),
    *("max_attempts", "next_retry_at", "delivered", "delivery_error", "created_at", "updated_at", "attempts"),
]


async def test_a_delivery_to_an_inactive_webhook_has_no_time_of_the_next_attempt(acme: Tenant, pool: Pool, clock: FakeClock) -> None:
    webhook = await create_webhook(acme)
    await record_events(acme, "user.invited")
    at = clock.now() + timedelta(minutes=5)
    await run_sql(pool, "update webhook_deliveries set status = 'waiting', due_at = %s, next_retry_at = %s", at, at)
    for is_active, shown_at in ((True, rfc3339(at)), (False, None), (True, rfc3339(at))):
        assert (await call(acme, "PATCH", f"/{webhook['id']}", {"is_active": is_active})).status == 200
        [delivery] = (await list_deliveries(acme, webhook))["deliveries"]
        assert delivery["next_retry_at"] == shown_at


async def test_an_event_is_delivered_to_the_webhooks_that_subscribe_to_it(
    acme: Tenant, other_tenant: Tenant, pool: Pool, clock: FakeClock
) -> None:
    webhook, other = await create_webhook(acme), await create_webhook(acme, name="Other", events=["user.joined", "webhook.deleted"])
    await create_webhook(other_tenant)
    await record_events(acme, "user.invited", "user.joined", "user.removed")
    deliveries = await list_deliveries(acme, webhook)
    assert list(deliveries) == ["deliveries", "pagination"]
    [delivery] = deliveries["deliveries"]
    assert list(delivery) == DELIVERY
    assert delivery == {
        "id": delivery["id"],
        "webhook_id": webhook["id"],
        "webhook_name": "Billing",
        "event_type": "user.invited",
        "payload": {
            "event": "user.invited",
            "timestamp": NOW,
            "organization_id": str(acme.org),
            "actor_user_id": None,
            "actor_email": None,
            "actor": {"kind": "system", "id": None, "name": None},
            "data": {"target_type": "invitation", "target_id": "x", "n": 1},
        },
        "response_status_code": None,
        "response_body": None,
        "attempt_count": 0,
        "max_attempts": 5,
        "next_retry_at": None,
        "delivered": False,
        "delivery_error": None,
        "created_at": NOW,
        "updated_at": NOW,
        "attempts": [],
    }
    [delivery] = (await list_deliveries(acme, other))["deliveries"]
    assert delivery["event_type"] == "user.joined"
    assert await run_sql(pool, "select count(*) from webhook_deliveries where org_id = %s", other_tenant.org) == [(0,)]
    clock.advance(timedelta(seconds=1))
    await call(acme, "DELETE", f"/{webhook['id']}")
    [delivery, _] = (await list_deliveries(acme, other))["deliveries"]
    assert (delivery["payload"]["actor_user_id"], delivery["payload"]["actor_email"]) == (acme.id("owner"), "owner@acme.example")
    assert delivery["payload"]["data"] == {
        "target_type": "organization",
        "target_id": webhook["id"],
        "webhook_name": "Billing",
        "url": "https://hooks.acme.example",
    }


async def test_a_payload_is_stored_with_the_order_of_its_members(acme: Tenant, pool: Pool) -> None:
    await create_webhook(acme)
    await record_events(acme, "user.invited")
    [(text,)] = await run_sql(pool, "select payload::text from webhook_deliveries")
    assert list(json.loads(text)) == ["event", "timestamp", "organization_id", "actor_user_id", "actor_email", "actor", "data"]


@pytest.mark.parametrize("change", ["is_active", "events", "status"])
async def test_nothing_is_queued_for_inactive_or_unsubscribed_webhooks(acme: Tenant, pool: Pool, change: str) -> None:
    webhook = await create_webhook(acme)
    if change == "status":
        await acme.set_status("suspended")
    else:
        await patch(acme, webhook, {change: {"is_active": False, "events": ["user.joined"]}[change]})
    await record_events(acme, "user.invited")
    assert await run_sql(pool, "select count(*) from webhook_deliveries") == [(0,)]


async def test_deliveries_are_listed_by_page_type_and_outcome(acme: Tenant, pool: Pool, clock: FakeClock) -> None:
    webhook = await create_webhook(acme, events=["user.invited", "user.joined"])
    for number in range(5):
        clock.advance(timedelta(seconds=1))
        await record_events(acme, "user.invited" if number % 2 else "user.joined")
    await run_sql(pool, "update webhook_deliveries set delivered = true where event_type = 'user.invited'")
    all_deliveries = (await list_deliveries(acme, webhook))["deliveries"]
    assert [delivery["created_at"] for delivery in all_deliveries] == sorted(
        (delivery["created_at"] for delivery in all_deliveries), reverse=True
    )
    second = await list_deliveries(acme, webhook, "?page=2&limit=2")
    assert second["deliveries"] == all_deliveries[2:4]
    assert second["pagination"] == {"page": 2, "limit": 2, "total": 5, "total_pages": 3, "has_next": True, "has_prev": True}
    totals = {
        "?event_type=user.invited": 2,
        "?event_type=user.joined": 3,
        "?event_type=nothing": 0,
        "?delivered=true": 2,
        "?delivered=false": 3,
        "?delivered=false&event_type=user.invited": 0,
        "?delivered=true&event_type=user.invited&limit=1": 2,
        "?page=9": 5,
        "?limit=0&page=-1": 5,
    }
    for query, total in totals.items():
        assert (await list_deliveries(acme, webhook, query))["pagination"]["total"] == total, query
    for query in ("?delivered=perhaps", "?page=x", "?limit=1.5"):
        assert refusal(await call(acme, "GET", f"/{webhook['id']}/deliveries{query}")) == BAD, query
    for query in ("?delivered=maybe", "?delivered="):
        answer = await call(acme, "GET", f"/{webhook['id']}/deliveries{query}")
        assert answer.json["error"] == "The field \"delivered\" is not valid: it must be 'true' or 'false'."
    member = await call(acme, "GET", f"/{webhook['id']}/deliveries?limit=1000")
    assert member.json["pagination"]["limit"] == 100


async def test_a_test_delivery_needs_no_subscription_to_an_event_type(acme: Tenant) -> None:
    webhook = await create_webhook(acme)
    await create_webhook(acme, name="Other")
    answer = await call(acme, "POST", f"/{webhook['id']}/test", by="admin")
    assert (answer.status, list(answer.json)) == (200, DELIVERY)
    assert answer.json["payload"] == {
        "event": "webhook.ping",
        "timestamp": NOW,
        "organization_id": str(acme.org),
        "actor_user_id": acme.id("admin"),
        "actor_email": "admin@acme.example",
        "actor": {"kind": "user", "id": acme.id("admin"), "name": None},
        "data": {"webhook_id": webhook["id"], "webhook_name": "Billing"},
    }
    assert (await list_deliveries(acme, webhook, "?event_type=webhook.ping"))["deliveries"] == [answer.json]
    assert await run_sql(acme.pool, "select count(*) from webhook_deliveries") == [(1,)]


async def test_the_payload_names_the_service_account_that_acted(acme: Tenant) -> None:
    webhook, robot = await create_webhook(acme), await add_robot(acme, name="Onboarding", granted_capabilities=["members.manage"])
    assert (await robot.invite("ada@example.com", "member")).status == 200
    assert (await robot.call("POST", f"/webhooks/{webhook['id']}/test")).status == 200
    deliveries = (await list_deliveries(acme, webhook))["deliveries"]
    assert {delivery["event_type"] for delivery in deliveries} == {"user.invited", "webhook.ping"}
    for delivery in deliveries:
        payload = delivery["payload"]
        assert payload["actor"] == {"kind": "service_account", "id": str(robot.id), "name": "Onboarding"}
        assert (payload["actor_user_id"], payload["actor_email"]) == (None, None)


async def test_a_replay_is_a_new_delivery(acme: Tenant, pool: Pool, clock: FakeClock) -> None:
    webhook = await create_webhook(acme)
    await record_events(acme, "user.invited")
    await run_sql(pool, "update webhook_deliveries set status = 'done', delivered = true, attempt_count = 1, response_status_code = 204")
    [first] = (await list_deliveries(acme, webhook))["deliveries"]
    clock.advance(timedelta(minutes=10))
    answer = await call(acme, "POST", f"/{webhook['id']}/deliveries/{first['id']}/replay")
    assert answer.status == 200
    replay = answer.json
    assert replay["id"] != first["id"]
    assert (replay["payload"], replay["event_type"]) == (first["payload"], first["event_type"])
    assert (replay["attempt_count"], replay["delivered"], replay["response_status_code"]) == (0, False, None)
    assert (await list_deliveries(acme, webhook))["deliveries"] == [replay, first]
    texts = await run_sql(pool, "select distinct payload::text from webhook_deliveries")
    assert len(texts) == 1


async def test_an_inactive_webhook_gets_no_test_and_no_replay(acme: Tenant) -> None:
    webhook = await create_webhook(acme)
    await record_events(acme, "user.invited")
    [delivery] = (await list_deliveries(acme, webhook))["deliveries"]
    await patch(acme, webhook, {"is_active": False})
    for path in ("test", f"deliveries/{delivery['id']}/replay"):
        answer = await call(acme, "POST", f"/{webhook['id']}/{path}")
        assert refusal(answer) == BAD
        assert "Turn it on first" in answer.json["error"]
    assert (await list_deliveries(acme, webhook))["pagination"]["total"] == 1


async def test_deleting_an_organization_deletes_its_webhooks_and_deliveries(acme: Tenant, other_tenant: Tenant, pool: Pool) -> None:
    webhook, twins_webhook = await create_webhook(acme), await create_webhook(other_tenant)
    for tenant in (acme, other_tenant):
        await record_events(tenant, "user.invited")
    await acme.api.delete(acme.path, token=acme.token("owner"))
    assert await run_sql(pool, "select id from webhooks") == [(UUID(twins_webhook["id"]),)]
    assert await run_sql(pool, "select id from deleted_webhooks") == [(UUID(webhook["id"]),)]
    assert (await list_deliveries(other_tenant, twins_webhook))["pagination"]["total"] == 1
