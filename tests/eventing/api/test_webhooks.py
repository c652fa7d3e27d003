"""Webhooks over HTTP (organizations.md sections 2.7 and 4.8; decisions, points 214 to 226; security.md L-3, T-5, W-3, W-5, W-6 and Z-5)."""

import base64
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from core.eventing.webhooks_rules import OVERLAP
from core.kernel import event_catalog
from core.kernel.event_catalog import AUDIT_ACTIONS, EVENT_KINDS
from core.kernel.policy import Policy
from core.kernel.principals import SYSTEM
from core.kernel.values import rfc3339
from tests.fakes.outside import FakeClock
from tests.support.builders import Answer, impersonate, meanwhile, run_sql
from tests.support.impersonator import Support
from tests.support.refusals import BAD, MISSING
from tests.support.tenants import Tenant
from tests.tenancy.api.organizations import NOT_ACTIVE, NOW

URL = "https://hooks.acme.example/in?token=s3cr3t"
FULL = {"name": "Billing", "url": URL, "events": ["user.login.success", "user.invited"]}
FIELDS = ["id", "name", "url", "events", "is_active", "created_at", "updated_at"]
DELIVERY = [
    *("id", "webhook_id", "webhook_name", "event_type", "payload", "response_status_code", "response_body", "attempt_count"),
    *("max_attempts", "next_retry_at", "delivered", "delivery_error", "created_at", "updated_at"),
]
# The types of the documents and of decisions, points 216 and 226, that webhooks knew first.
SEEN = {"user.login.success", "user.signup.success", "user.mfa.enabled", "user.mfa.disabled"}

MOST = Policy().webhooks_per_organization


async def call(acme: Tenant, method: str, path: str = "", body: Any = None, by: str = "owner") -> Answer:
    return await acme.api.call(method, f"{acme.path}/webhooks{path}", body, token=acme.token(by))


async def make(acme: Tenant, by: str = "owner", **changes: Any) -> dict[str, Any]:
    answer = await call(acme, "POST", "", {**FULL, **changes}, by)
    assert answer.status == 200, answer.text
    made: dict[str, Any] = answer.json
    return made


async def patch(acme: Tenant, made: Mapping[str, Any], body: Any, by: str = "owner") -> Answer:
    return await call(acme, "PATCH", f"/{made['id']}", body, by)


async def happen(acme: Tenant, *names: str) -> None:
    """Events in one transaction of nobody's."""
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        for name in names:
            tx.record(event_catalog.Event(EVENT_KINDS[name], "x", org_id=acme.org, details={"n": 1}))


async def history(acme: Tenant, made: Mapping[str, Any], query: str = "") -> Any:
    answer = await call(acme, "GET", f"/{made['id']}/deliveries{query}")
    assert answer.status == 200, answer.text
    return answer.json


def refusal(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.code


def shown(made: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in made.items() if name != "secret"}


# Creating, looking, changing, deleting


@pytest.mark.parametrize("by", ["owner", "admin"])
async def test_its_managers_make_one_whose_secret_is_told_only_then(acme: Tenant, twin: Tenant, by: str) -> None:
    made = await make(acme, by)
    assert list(made) == [*FIELDS, "secret"]
    assert shown(made) == {"id": made["id"], **FULL, "is_active": True, "created_at": NOW, "updated_at": NOW}
    prefix, _, key = made["secret"].partition("_")
    assert (prefix, len(base64.b64decode(key, validate=True))) == ("whsec", 32)
    assert (await call(acme, "GET", f"/{made['id']}", by=by)).json == shown(made)
    assert (await call(acme, "GET", by=by)).json == {"webhooks": [shown(made)], "total": 1}
    assert (await call(twin, "GET")).json == {"webhooks": [], "total": 0}
    entry = await acme.entry("webhook.created")
    assert (entry["target_type"], entry["target_id"], entry["actor_id"], entry["details"]) == (
        "organization",
        made["id"],
        acme.people[by].id,
        {"webhook_name": "Billing", "url": "https://hooks.acme.example", "events": FULL["events"]},
    )
    everything = json.dumps([*await acme.log(), *await acme.told()], default=str)
    assert made["secret"] not in everything
    assert "s3cr3t" not in everything
    stored = await run_sql(acme.pool, "select true from webhooks where encode(secret, 'escape') like %s", f"%{key[:20]}%")
    assert stored == []


NOT_USABLE: list[dict[str, Any]] = [
    *({"name": name} for name in ("", "  ", None, 5, "x" * 101, "a\nb")),
    *({"url": url} for url in ("", "ftp://a.example", "https://", "https://user@a.example", "https://a.example:22/", "/in", None, 5)),
    *(
        {"url": url}
        for url in (f"https://a.example/{'x' * 2048}", "https://a.example/#x", "https://a.example/\r\nx", "javascript:alert(1)")
    ),
    *({"events": names} for names in ([], None, "user.invited", [5], ["nothing.like_that"], ["*"], ["user.*"], ["webhook.ping"])),
    *({"events": [name]} for name in ("organization.deleted", "impersonation.request", "platform.owner.promoted", "User.Invited")),
]


async def test_what_cannot_be_used_is_refused(acme: Tenant) -> None:
    made = await make(acme)
    for changes in NOT_USABLE:
        assert refusal(await call(acme, "POST", "", {**FULL, "name": "Another", **changes})) == BAD, changes
        assert refusal(await patch(acme, made, changes)) == BAD, changes
    for left_out in FULL:
        assert refusal(await call(acme, "POST", "", {name: value for name, value in FULL.items() if name != left_out})) == BAD
    assert (await call(acme, "GET")).json["webhooks"] == [shown(made)]
    assert len(await acme.log()) == 1


async def test_what_is_no_type_of_event_is_refused_with_all_that_are(acme: Tenant) -> None:
    answer = await call(acme, "POST", "", {**FULL, "events": ["user.invited", "user.invented"]})
    assert refusal(answer) == BAD
    listed = (await call(acme, "GET", "/event-types")).json
    for kind in listed:
        assert kind["value"] in answer.json["error"]
    assert "organization.deleted" not in answer.json["error"]


async def test_the_types_are_those_of_the_log_and_four_more(acme: Tenant) -> None:
    answer = await call(acme, "GET", "/event-types", by="admin")
    assert answer.status == 200
    assert [list(kind) for kind in answer.json] == [["value", "label", "category"]] * len(answer.json)
    names = [kind["value"] for kind in answer.json]
    assert len(names) == len(set(names))
    assert set(names) == SEEN | set(AUDIT_ACTIONS)
    assert (await call(acme, "POST", "", {**FULL, "events": names})).json["events"] == names


async def test_a_type_that_is_named_twice_counts_once(acme: Tenant) -> None:
    assert (await make(acme, events=["user.joined", "user.invited", "user.joined"]))["events"] == ["user.joined", "user.invited"]


async def test_a_name_is_an_organizations_only_once(acme: Tenant, twin: Tenant) -> None:
    await make(acme)
    other = await make(acme, name="Other")
    assert refusal(await call(acme, "POST", "", FULL)) == BAD
    assert refusal(await patch(acme, other, {"name": " Billing "})) == BAD
    assert (await patch(acme, other, {"name": "Other"})).json == shown(other)
    await make(twin)


async def test_an_organization_has_fifty_at_most(acme: Tenant, twin: Tenant) -> None:
    insert = """
        insert into webhooks (id, org_id, name, url, events, is_active, secret, created_at, updated_at)
        select gen_random_uuid(), %s, 'hook ' || n, 'https://x.example', '{user.invited}', false, '', now(), now()
        from generate_series(1, %s) n"""
    await run_sql(acme.pool, insert, acme.org, MOST - 1)
    made = await make(acme)
    answer = await call(acme, "POST", "", {**FULL, "name": "One more"})
    assert refusal(answer) == BAD
    assert "50" in answer.json["error"]
    assert (await call(acme, "GET")).json["total"] == MOST
    await make(twin)
    await call(acme, "DELETE", f"/{made['id']}")
    await make(acme)


async def test_each_field_is_changed_alone_and_what_changed_is_recorded(acme: Tenant, clock: FakeClock) -> None:
    made = await make(acme)
    wanted: dict[str, Any] = {}
    other, hidden = "http://other.example:8080", {"url_path": {"old": "(hidden)", "new": "(hidden)"}}
    changes: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"name": "Sales"}, {"name": {"old": "Billing", "new": "Sales"}}),
        ({"url": f"{other}/a?s3cr3t=1"}, {"url": {"old": "https://hooks.acme.example", "new": other}, **hidden}),
        ({"url": f"{other}/b?s3cr3t=1"}, hidden),
        ({"url": f"{other}/b?s3cr3t=2"}, hidden),
        ({"url": "https://hooks.acme.example/b?s3cr3t=2"}, {"url": {"old": other, "new": "https://hooks.acme.example"}}),
        ({"events": ["user.joined"]}, {"events": {"old": FULL["events"], "new": ["user.joined"]}}),
        ({"is_active": False}, {"is_active": {"old": True, "new": False}}),
    ]
    for change, recorded in changes:
        clock.advance(timedelta(seconds=1))
        wanted |= change
        answer = await patch(acme, made, change, "admin")
        moment = answer.json["updated_at"]
        assert (answer.status, answer.json) == (200, {**shown(made), **wanted, "updated_at": moment})
        assert moment > made["updated_at"]
        assert (await acme.log())[-1]["details"]["changes"] == recorded
        assert (await call(acme, "GET", f"/{made['id']}")).json == answer.json
    before = len(await acme.log())
    assert (await patch(acme, made, wanted)).json["updated_at"] == moment  # nothing changes, so nothing is recorded
    assert len(await acme.log()) == before
    for empty in ({}, {"id": str(uuid4()), "secret": "whsec_x"}):
        assert refusal(await patch(acme, made, empty)) == BAD
    for field in FULL:
        assert refusal(await patch(acme, made, {field: None})) == BAD
    assert refusal(await patch(acme, made, {"is_active": "no"})) == BAD


async def test_one_that_is_deleted_is_gone_with_what_it_was_told(acme: Tenant, twin: Tenant, pool: Pool) -> None:
    made, kept = await make(acme), await make(acme, name="Kept")
    theirs = await make(twin)
    for tenant in (acme, twin):
        await happen(tenant, "user.invited")
    answer = await call(acme, "DELETE", f"/{made['id']}", by="admin")
    assert (answer.status, answer.json) == (200, {})
    for method, path, body in ways(made["id"]):
        assert refusal(await call(acme, method, path, body)) == MISSING, path
    left = await run_sql(pool, "select webhook_id from webhook_deliveries order by webhook_id")
    assert left == sorted([(UUID(kept["id"]),), (UUID(theirs["id"]),)])
    entry = await acme.entry("webhook.deleted")
    assert (entry["target_id"], entry["details"]) == (made["id"], {"webhook_name": "Billing", "url": "https://hooks.acme.example"})


def ways(webhook_id: str, delivery_id: object = None) -> list[tuple[str, str, Any]]:
    """Every call about one webhook."""
    return [
        ("GET", f"/{webhook_id}", None),
        ("PATCH", f"/{webhook_id}", {"name": "New"}),
        ("DELETE", f"/{webhook_id}", None),
        ("POST", f"/{webhook_id}/rotate-secret", None),
        ("GET", f"/{webhook_id}/deliveries", None),
        ("POST", f"/{webhook_id}/test", None),
        ("POST", f"/{webhook_id}/deliveries/{delivery_id or uuid4()}/replay", None),
    ]


async def test_those_of_others_do_not_exist(acme: Tenant, twin: Tenant) -> None:
    made, theirs = await make(acme), await make(twin)
    await happen(twin, "user.invited")
    delivery = (await history(twin, theirs))["deliveries"][0]
    before = await acme.log()
    for unknown in (theirs["id"], str(uuid4()), made["id"].upper(), "nothing"):
        for method, path, body in ways(unknown, delivery["id"]):
            assert refusal(await call(acme, method, path, body)) == MISSING, path
    # Nor does their delivery by one's own webhook.
    assert refusal(await call(acme, "POST", f"/{made['id']}/deliveries/{delivery['id']}/replay")) == MISSING
    assert await acme.log() == before
    assert (await history(twin, theirs))["pagination"]["total"] == 1


async def test_members_and_strangers_have_no_say(acme: Tenant, twin: Tenant) -> None:
    made = await make(acme)
    calls = [("GET", "", None), ("POST", "", FULL), ("GET", "/event-types", None), *ways(made["id"])]
    for method, path, body in calls:
        assert (await call(acme, method, path, body, "member")).status == 403
        answer = await acme.api.call(method, f"{acme.path}/webhooks{path}", body, token=twin.token("owner"))
        assert answer.status == 403
    assert (await call(acme, "GET", f"/{made['id']}")).json == shown(made)


@pytest.mark.parametrize("status", NOT_ACTIVE)
async def test_an_organization_that_is_not_active_has_no_webhooks_to_manage(acme: Tenant, status: str) -> None:
    made = await make(acme)
    await acme.become(status)
    for method, path, body in [("GET", "", None), ("POST", "", {**FULL, "name": "B"}), ("GET", "/event-types", None), *ways(made["id"])]:
        assert refusal(await call(acme, method, path, body)) == (403, "ORGANIZATION_NOT_ACTIVE")


async def test_who_impersonates_somebody_gets_no_secret(acme: Tenant, support: Support) -> None:
    made = await make(acme)
    token = await impersonate(acme.ports, support.account, acme.people["owner"], acme.org)
    for path in ("", f"/{made['id']}/rotate-secret"):
        assert (await acme.api.post(f"{acme.path}/webhooks{path}", {**FULL, "name": "B"}, token=token)).status == 403
    assert (await acme.api.get(f"{acme.path}/webhooks/{made['id']}", token=token)).json == shown(made)


@pytest.mark.parametrize("way", range(4))
async def test_a_demotion_that_comes_first_counts(acme: Tenant, pool: Pool, way: int) -> None:
    made = await make(acme)
    method, path, body = [("POST", "", {**FULL, "name": "B"}), *(each for each in ways(made["id"]) if each[0] != "GET")][way]
    demotion = [
        ("select from organizations where id = %s for update", (acme.org,)),
        ("update memberships set role = 'member' where user_id = %s", (acme.people["admin"].id,)),
    ]
    answer = await meanwhile(pool, demotion, lambda: call(acme, method, path, body, "admin"))
    assert answer.status == 403
    assert (await call(acme, "GET")).json["webhooks"] == [shown(made)]


# Secrets


async def test_a_secret_is_replaced_and_the_one_before_it_stays_a_day(acme: Tenant, clock: FakeClock, pool: Pool) -> None:
    made = await make(acme)
    clock.advance(timedelta(seconds=1))
    answer = await call(acme, "POST", f"/{made['id']}/rotate-secret", by="admin")
    assert answer.status == 200
    assert list(answer.json) == [*FIELDS, "secret"]
    assert answer.json["secret"] != made["secret"]
    moment = answer.json["updated_at"]
    assert shown(answer.json) == {**shown(made), "updated_at": moment}
    [(until,)] = await run_sql(pool, "select until from former_webhook_secrets")
    assert until == clock.now() + OVERLAP
    entry = await acme.entry("webhook.secret.rotated")
    assert (entry["target_id"], entry["actor_id"]) == (made["id"], acme.people["admin"].id)
    assert answer.json["secret"] not in json.dumps([*await acme.log(), *await acme.told()], default=str)


# What it was told


async def test_while_a_webhook_is_off_nothing_is_said_of_when_it_is_tried_again(acme: Tenant, pool: Pool, clock: FakeClock) -> None:
    """Whoever turned it off: a member, or its receiver, which has said that it is gone."""
    made = await make(acme)
    await happen(acme, "user.invited")
    at = clock.now() + timedelta(minutes=5)
    await run_sql(pool, "update webhook_deliveries set status = 'waiting', due_at = %s, next_retry_at = %s", at, at)
    for is_active, shown_at in ((True, rfc3339(at)), (False, None), (True, rfc3339(at))):
        assert (await call(acme, "PATCH", f"/{made['id']}", {"is_active": is_active})).status == 200
        [delivery] = (await history(acme, made))["deliveries"]
        assert delivery["next_retry_at"] == shown_at


async def test_what_happens_is_told_to_those_who_subscribe_to_it(acme: Tenant, twin: Tenant, pool: Pool, clock: FakeClock) -> None:
    made, other = await make(acme), await make(acme, name="Other", events=["user.joined", "webhook.deleted"])
    await make(twin)
    await happen(acme, "user.invited", "user.joined", "user.removed")
    listed = await history(acme, made)
    assert list(listed) == ["deliveries", "pagination"]
    [delivery] = listed["deliveries"]
    assert list(delivery) == DELIVERY
    assert delivery == {
        "id": delivery["id"],
        "webhook_id": made["id"],
        "webhook_name": "Billing",
        "event_type": "user.invited",
        "payload": {
            "event": "user.invited",
            "timestamp": NOW,
            "organization_id": str(acme.org),
            "actor_user_id": None,
            "actor_email": None,
            "data": {"target_type": "user", "target_id": "x", "n": 1},
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
    }
    [told] = (await history(acme, other))["deliveries"]
    assert told["event_type"] == "user.joined"
    assert await run_sql(pool, "select count(*) from webhook_deliveries where org_id = %s", twin.org) == [(0,)]
    clock.advance(timedelta(seconds=1))
    await call(acme, "DELETE", f"/{made['id']}")
    [told, _] = (await history(acme, other))["deliveries"]
    assert (told["payload"]["actor_user_id"], told["payload"]["actor_email"]) == (acme.id("owner"), "owner@acme.example")
    assert told["payload"]["data"] == {
        "target_type": "organization",
        "target_id": made["id"],
        "webhook_name": "Billing",
        "url": "https://hooks.acme.example",
    }


async def test_a_payload_is_kept_as_it_is_signed(acme: Tenant, pool: Pool) -> None:
    await make(acme)
    await happen(acme, "user.invited")
    [(text,)] = await run_sql(pool, "select payload::text from webhook_deliveries")
    assert list(json.loads(text)) == ["event", "timestamp", "organization_id", "actor_user_id", "actor_email", "data"]


@pytest.mark.parametrize("change", ["is_active", "events", "status"])
async def test_nothing_is_queued_for_who_wants_or_gets_nothing(acme: Tenant, pool: Pool, change: str) -> None:
    made = await make(acme)
    if change == "status":
        await acme.become("suspended")
    else:
        await patch(acme, made, {change: {"is_active": False, "events": ["user.joined"]}[change]})
    await happen(acme, "user.invited")
    assert await run_sql(pool, "select count(*) from webhook_deliveries") == [(0,)]


async def test_deliveries_are_listed_by_page_type_and_outcome(acme: Tenant, pool: Pool, clock: FakeClock) -> None:
    made = await make(acme, events=["user.invited", "user.joined"])
    for number in range(5):
        clock.advance(timedelta(seconds=1))
        await happen(acme, "user.invited" if number % 2 else "user.joined")
    await run_sql(pool, "update webhook_deliveries set delivered = true where event_type = 'user.invited'")
    whole = (await history(acme, made))["deliveries"]
    assert [each["created_at"] for each in whole] == sorted((each["created_at"] for each in whole), reverse=True)
    second = await history(acme, made, "?page=2&limit=2")
    assert second["deliveries"] == whole[2:4]
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
        assert (await history(acme, made, query))["pagination"]["total"] == total, query
    for query in ("?delivered=perhaps", "?page=x", "?limit=1.5"):
        assert refusal(await call(acme, "GET", f"/{made['id']}/deliveries{query}")) == BAD, query
    for query in ("?delivered=maybe", "?delivered="):
        answer = await call(acme, "GET", f"/{made['id']}/deliveries{query}")
        assert answer.json["error"] == "The field \"delivered\" is not valid: it must be 'true' or 'false'."
    member = await call(acme, "GET", f"/{made['id']}/deliveries?limit=1000")
    assert member.json["pagination"]["limit"] == 100


async def test_a_webhook_is_tried_out_whatever_it_subscribes_to(acme: Tenant) -> None:
    made = await make(acme)
    await make(acme, name="Other")
    answer = await call(acme, "POST", f"/{made['id']}/test", by="admin")
    assert (answer.status, list(answer.json)) == (200, DELIVERY)
    assert answer.json["payload"] == {
        "event": "webhook.ping",
        "timestamp": NOW,
        "organization_id": str(acme.org),
        "actor_user_id": acme.id("admin"),
        "actor_email": "admin@acme.example",
        "data": {"webhook_id": made["id"], "webhook_name": "Billing"},
    }
    assert (await history(acme, made, "?event_type=webhook.ping"))["deliveries"] == [answer.json]
    assert await run_sql(acme.pool, "select count(*) from webhook_deliveries") == [(1,)]


async def test_a_delivery_is_replayed_as_another_one(acme: Tenant, pool: Pool, clock: FakeClock) -> None:
    made = await make(acme)
    await happen(acme, "user.invited")
    await run_sql(pool, "update webhook_deliveries set status = 'done', delivered = true, attempt_count = 1, response_status_code = 204")
    [first] = (await history(acme, made))["deliveries"]
    clock.advance(timedelta(minutes=10))
    answer = await call(acme, "POST", f"/{made['id']}/deliveries/{first['id']}/replay")
    assert answer.status == 200
    again = answer.json
    assert again["id"] != first["id"]
    assert (again["payload"], again["event_type"]) == (first["payload"], first["event_type"])
    assert (again["attempt_count"], again["delivered"], again["response_status_code"]) == (0, False, None)
    assert (await history(acme, made))["deliveries"] == [again, first]
    texts = await run_sql(pool, "select distinct payload::text from webhook_deliveries")
    assert len(texts) == 1


async def test_nothing_is_sent_on_demand_to_one_that_is_not_active(acme: Tenant) -> None:
    made = await make(acme)
    await happen(acme, "user.invited")
    [delivery] = (await history(acme, made))["deliveries"]
    await patch(acme, made, {"is_active": False})
    for path in ("test", f"deliveries/{delivery['id']}/replay"):
        answer = await call(acme, "POST", f"/{made['id']}/{path}")
        assert refusal(answer) == BAD
        assert "is_active" in answer.json["error"]
    assert (await history(acme, made))["pagination"]["total"] == 1


async def test_nothing_is_left_of_those_of_an_organization_that_is_deleted(acme: Tenant, twin: Tenant, pool: Pool) -> None:
    made, theirs = await make(acme), await make(twin)
    for tenant in (acme, twin):
        await happen(tenant, "user.invited")
    await acme.api.delete(acme.path, token=acme.token("owner"))
    assert await run_sql(pool, "select id from webhooks") == [(UUID(theirs["id"]),)]
    assert await run_sql(pool, "select id from deleted_webhooks") == [(UUID(made["id"]),)]
    assert (await history(twin, theirs))["pagination"]["total"] == 1
