"""Webhooks over HTTP: creation, changes, access and secrets (security T-5, W-3, W-5, Z-5)."""

import base64
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from core.eventing.model.webhooks import OVERLAP
from core.kernel.event_catalog import AUDIT_ACTIONS
from core.kernel.policy import Policy
from tests.eventing.api.webhooks import FULL, call, create_webhook, list_deliveries, patch, record_events, refusal
from tests.fakes.outside import FakeClock
from tests.support.builders import impersonate, run_during, run_sql
from tests.support.impersonator import Support
from tests.support.refusals import BAD, MISSING
from tests.support.tenants import Tenant
from tests.tenancy.organizations import NOT_ACTIVE, NOW

FIELDS = ["id", "name", "url", "events", "is_active", "created_at", "updated_at"]
# The event types that are not audit actions.
WEBHOOK_ONLY_TYPES = {"user.login.failed", "user.signup.success", "user.mfa.enabled", "user.mfa.disabled"}

MAX_WEBHOOKS = Policy().webhooks_per_organization


def without_secret(webhook: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in webhook.items() if name != "secret"}


def as_read(webhook: Mapping[str, Any]) -> dict[str, Any]:
    """Return the webhook as it is read before anything was sent."""
    unused = {"state": "unused", "attempted": 0, "delivered": 0, "success_rate": None, "last_failure": None}
    health = unused if webhook["is_active"] else {**unused, "state": "off"}
    return {**without_secret(webhook), "health": health}


# Creating, reading, changing, deleting


@pytest.mark.parametrize("by", ["owner", "admin"])
async def test_owners_and_admins_create_webhooks_and_see_the_secret_once(acme: Tenant, other_tenant: Tenant, by: str) -> None:
    webhook = await create_webhook(acme, by)
    assert list(webhook) == [*FIELDS, "secret"]
    assert without_secret(webhook) == {"id": webhook["id"], **FULL, "is_active": True, "created_at": NOW, "updated_at": NOW}
    prefix, _, key = webhook["secret"].partition("_")
    assert (prefix, len(base64.b64decode(key, validate=True))) == ("whsec", 32)
    assert (await call(acme, "GET", f"/{webhook['id']}", by=by)).json == as_read(webhook)
    assert (await call(acme, "GET", by=by)).json == {"webhooks": [as_read(webhook)], "total": 1}
    assert (await call(other_tenant, "GET")).json == {"webhooks": [], "total": 0}
    entry = await acme.entry("webhook.created")
    assert (entry["target_type"], entry["target_id"], entry["actor_id"], entry["details"]) == (
        "organization",
        webhook["id"],
        acme.people[by].id,
        {"webhook_name": "Billing", "url": "https://hooks.acme.example", "events": FULL["events"]},
    )
    records = json.dumps([*await acme.log(), *await acme.webhook_events()], default=str)
    assert webhook["secret"] not in records
    assert "s3cr3t" not in records
    rows = await run_sql(acme.pool, "select true from webhooks where encode(secret, 'escape') like %s", f"%{key[:20]}%")
    assert rows == []


BAD_CHANGES: list[dict[str, Any]] = [
    *({"name": name} for name in ("", "  ", None, 5, "x" * 101, "a\nb")),
    *({"url": url} for url in ("", "ftp://a.example", "https://", "https://user@a.example", "https://a.example:22/", "/in", None, 5)),
    *(
        {"url": url}
        for url in (f"https://a.example/{'x' * 2048}", "https://a.example/#x", "https://a.example/\r\nx", "javascript:alert(1)")
    ),
    *({"events": names} for names in ([], None, "user.invited", [5], ["nothing.like_that"], ["*"], ["user.*"], ["webhook.ping"])),
    *({"events": [name]} for name in ("organization.deleted", "impersonation.request", "platform.owner.promoted", "User.Invited")),
]


async def test_values_that_are_not_valid_are_refused(acme: Tenant) -> None:
    webhook = await create_webhook(acme)
    for changes in BAD_CHANGES:
        assert refusal(await call(acme, "POST", "", {**FULL, "name": "Another", **changes})) == BAD, changes
        assert refusal(await patch(acme, webhook, changes)) == BAD, changes
    for missing in FULL:
        assert refusal(await call(acme, "POST", "", {name: value for name, value in FULL.items() if name != missing})) == BAD
    assert (await call(acme, "GET")).json["webhooks"] == [as_read(webhook)]
    assert len(await acme.log()) == 1


async def test_an_unknown_event_type_is_refused_with_the_list_of_types(acme: Tenant) -> None:
    answer = await call(acme, "POST", "", {**FULL, "events": ["user.invited", "user.invented"]})
    assert refusal(answer) == BAD
    types = (await call(acme, "GET", "/event-types")).json
    for kind in types:
        assert kind["value"] in answer.json["error"]
    assert "organization.deleted" not in answer.json["error"]


async def test_the_event_types_are_the_audit_actions_and_four_more(acme: Tenant) -> None:
    answer = await call(acme, "GET", "/event-types", by="admin")
    assert answer.status == 200
    assert [list(kind) for kind in answer.json] == [["value", "label", "category"]] * len(answer.json)
    names = [kind["value"] for kind in answer.json]
    assert len(names) == len(set(names))
    assert set(names) == WEBHOOK_ONLY_TYPES | set(AUDIT_ACTIONS)
    assert (await call(acme, "POST", "", {**FULL, "events": names})).json["events"] == names


async def test_a_duplicate_event_type_counts_once(acme: Tenant) -> None:
    assert (await create_webhook(acme, events=["user.joined", "user.invited", "user.joined"]))["events"] == ["user.joined", "user.invited"]


async def test_a_name_is_unique_in_its_organization(acme: Tenant, other_tenant: Tenant) -> None:
    await create_webhook(acme)
    other = await create_webhook(acme, name="Other")
    assert refusal(await call(acme, "POST", "", FULL)) == BAD
    assert refusal(await patch(acme, other, {"name": " Billing "})) == BAD
    assert (await patch(acme, other, {"name": "Other"})).json == without_secret(other)
    await create_webhook(other_tenant)


async def test_an_organization_has_at_most_fifty_webhooks(acme: Tenant, other_tenant: Tenant) -> None:
    insert = """
        insert into webhooks (id, org_id, name, url, events, is_active, secret, created_at, updated_at)
        select gen_random_uuid(), %s, 'hook ' || n, 'https://x.example', '{user.invited}', false, '', now(), now()
        from generate_series(1, %s) n"""
    await run_sql(acme.pool, insert, acme.org, MAX_WEBHOOKS - 1)
    webhook = await create_webhook(acme)
    answer = await call(acme, "POST", "", {**FULL, "name": "One more"})
    assert refusal(answer) == BAD
    assert "50" in answer.json["error"]
    assert (await call(acme, "GET")).json["total"] == MAX_WEBHOOKS
    await create_webhook(other_tenant)
    await call(acme, "DELETE", f"/{webhook['id']}")
    await create_webhook(acme)


async def test_each_field_can_be_changed_alone_and_the_change_is_recorded(acme: Tenant, clock: FakeClock) -> None:
    webhook = await create_webhook(acme)
    expected: dict[str, Any] = {}
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
    for change, details in changes:
        clock.advance(timedelta(seconds=1))
        expected |= change
        answer = await patch(acme, webhook, change, "admin")
        updated_at = answer.json["updated_at"]
        assert (answer.status, answer.json) == (200, {**without_secret(webhook), **expected, "updated_at": updated_at})
        assert updated_at > webhook["updated_at"]
        assert (await acme.log())[-1]["details"]["changes"] == details
        assert (await call(acme, "GET", f"/{webhook['id']}")).json == as_read(answer.json)
    before = len(await acme.log())
    assert (await patch(acme, webhook, expected)).json["updated_at"] == updated_at  # no change, so no event
    assert len(await acme.log()) == before
    for empty in ({}, {"id": str(uuid4()), "secret": "whsec_x"}):
        assert refusal(await patch(acme, webhook, empty)) == BAD
    for field in FULL:
        assert refusal(await patch(acme, webhook, {field: None})) == BAD
    assert refusal(await patch(acme, webhook, {"is_active": "no"})) == BAD


async def test_deleting_a_webhook_deletes_its_deliveries(acme: Tenant, other_tenant: Tenant, pool: Pool) -> None:
    webhook, other_webhook = await create_webhook(acme), await create_webhook(acme, name="Kept")
    twins_webhook = await create_webhook(other_tenant)
    for tenant in (acme, other_tenant):
        await record_events(tenant, "user.invited")
    answer = await call(acme, "DELETE", f"/{webhook['id']}", by="admin")
    assert (answer.status, answer.json) == (200, {})
    for method, path, body in calls_about(webhook["id"]):
        assert refusal(await call(acme, method, path, body)) == MISSING, path
    rows = await run_sql(pool, "select webhook_id from webhook_deliveries order by webhook_id")
    assert rows == sorted([(UUID(other_webhook["id"]),), (UUID(twins_webhook["id"]),)])
    entry = await acme.entry("webhook.deleted")
    assert (entry["target_id"], entry["details"]) == (webhook["id"], {"webhook_name": "Billing", "url": "https://hooks.acme.example"})


def calls_about(webhook_id: str, delivery_id: object = None) -> list[tuple[str, str, Any]]:
    """Return all requests about a webhook."""
    return [
        ("GET", f"/{webhook_id}", None),
        ("PATCH", f"/{webhook_id}", {"name": "New"}),
        ("DELETE", f"/{webhook_id}", None),
        ("POST", f"/{webhook_id}/rotate-secret", None),
        ("GET", f"/{webhook_id}/deliveries", None),
        ("POST", f"/{webhook_id}/test", None),
        ("POST", f"/{webhook_id}/deliveries/{delivery_id or uuid4()}/replay", None),
    ]


async def test_webhooks_and_deliveries_of_other_organizations_are_not_found(acme: Tenant, other_tenant: Tenant) -> None:
    webhook, twins_webhook = await create_webhook(acme), await create_webhook(other_tenant)
    await record_events(other_tenant, "user.invited")
    delivery = (await list_deliveries(other_tenant, twins_webhook))["deliveries"][0]
    before = await acme.log()
    for unknown in (twins_webhook["id"], str(uuid4()), webhook["id"].upper(), "nothing"):
        for method, path, body in calls_about(unknown, delivery["id"]):
            assert refusal(await call(acme, method, path, body)) == MISSING, path
    # Another organization's delivery is not found under an own webhook either.
    assert refusal(await call(acme, "POST", f"/{webhook['id']}/deliveries/{delivery['id']}/replay")) == MISSING
    assert await acme.log() == before
    assert (await list_deliveries(other_tenant, twins_webhook))["pagination"]["total"] == 1


async def test_members_and_other_organizations_cannot_manage_webhooks(acme: Tenant, other_tenant: Tenant) -> None:
    webhook = await create_webhook(acme)
    calls = [("GET", "", None), ("POST", "", FULL), ("GET", "/event-types", None), *calls_about(webhook["id"])]
    for method, path, body in calls:
        assert (await call(acme, method, path, body, "member")).status == 403
        answer = await acme.api.call(method, f"{acme.path}/webhooks{path}", body, token=other_tenant.token("owner"))
        assert answer.status == 403
    assert (await call(acme, "GET", f"/{webhook['id']}")).json == as_read(webhook)


@pytest.mark.parametrize("status", NOT_ACTIVE)
async def test_an_organization_that_is_not_active_cannot_manage_webhooks(acme: Tenant, status: str) -> None:
    webhook = await create_webhook(acme)
    await acme.set_status(status)
    for method, path, body in [
        ("GET", "", None),
        ("POST", "", {**FULL, "name": "B"}),
        ("GET", "/event-types", None),
        *calls_about(webhook["id"]),
    ]:
        assert refusal(await call(acme, method, path, body)) == (403, "ORGANIZATION_NOT_ACTIVE")


async def test_an_impersonator_cannot_get_a_secret(acme: Tenant, support: Support) -> None:
    webhook = await create_webhook(acme)
    token = await impersonate(acme.ports, support.account, acme.people["owner"], acme.org)
    for path in ("", f"/{webhook['id']}/rotate-secret"):
        assert (await acme.api.post(f"{acme.path}/webhooks{path}", {**FULL, "name": "B"}, token=token)).status == 403
    assert (await acme.api.get(f"{acme.path}/webhooks/{webhook['id']}", token=token)).json == as_read(webhook)


@pytest.mark.parametrize("index", range(4))
async def test_an_admin_demoted_during_the_request_is_refused(acme: Tenant, pool: Pool, index: int) -> None:
    webhook = await create_webhook(acme)
    method, path, body = [("POST", "", {**FULL, "name": "B"}), *(call_ for call_ in calls_about(webhook["id"]) if call_[0] != "GET")][index]
    demotion = [
        ("select from organizations where id = %s for update", (acme.org,)),
        ("update memberships set role = 'member' where user_id = %s", (acme.people["admin"].id,)),
    ]
    answer = await run_during(pool, demotion, lambda: call(acme, method, path, body, "admin"))
    assert answer.status == 403
    assert (await call(acme, "GET")).json["webhooks"] == [as_read(webhook)]


# Secrets


async def test_the_old_secret_stays_valid_for_a_day_after_a_rotation(acme: Tenant, clock: FakeClock, pool: Pool) -> None:
    webhook = await create_webhook(acme)
    clock.advance(timedelta(seconds=1))
    answer = await call(acme, "POST", f"/{webhook['id']}/rotate-secret", by="admin")
    assert answer.status == 200
    assert list(answer.json) == [*FIELDS, "secret"]
    assert answer.json["secret"] != webhook["secret"]
    updated_at = answer.json["updated_at"]
    assert without_secret(answer.json) == {**without_secret(webhook), "updated_at": updated_at}
    [(until,)] = await run_sql(pool, "select until from former_webhook_secrets")
    assert until == clock.now() + OVERLAP
    entry = await acme.entry("webhook.secret.rotated")
    assert (entry["target_id"], entry["actor_id"]) == (webhook["id"], acme.people["admin"].id)
    assert answer.json["secret"] not in json.dumps([*await acme.log(), *await acme.webhook_events()], default=str)
