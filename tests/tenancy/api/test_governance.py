"""How organizations live, and what that means for members (decisions 207, 236, 238)."""

import itertools
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import FREE_ID, PROFESSIONAL_ID, Answer, add_account, add_member, add_organization, run_sql, sign_in
from tests.support.platform import AFTERWARDS, BODIES, NOWHERE, STATUSES, Platform, log_of, status_of

# The lifecycle


async def test_an_approved_organization_is_active_on_the_free_tier(platform: Platform, pool: Pool, clock: FakeClock) -> None:
    org = await add_organization(pool, "acme", "pending")
    await run_sql(pool, "update organizations set tier_id = null, created_at = '2026-01-01Z'")
    approved = await platform.done("approve", org)
    now = clock.now().isoformat().replace("+00:00", "Z")
    assert approved == {
        "id": str(org),
        "slug": "acme",
        "name": "Acme",
        "status": "active",
        "tier_id": FREE_ID,
        "max_services": None,
        "max_users": None,
        "device_trust_days": 30,
        "personal_tokens": True,
        "members_see_end_users": True,
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": now,
        "approved_at": now,
        "rejected_reason": None,
        "suspended_reason": None,
    }
    assert (await platform.listed())["organizations"][0]["organization"] == approved


async def test_an_approval_without_a_tier_keeps_the_current_tier(platform: Platform, pool: Pool) -> None:
    org = await add_organization(pool, "acme", "pending")
    await platform.done("tier", org, {"tier_id": PROFESSIONAL_ID})
    assert (await platform.done("approve", org))["tier_id"] == PROFESSIONAL_ID
    assert (await log_of(pool, org))[-1] == ("organization.approved", {"tier": "professional"})


async def test_an_approval_can_set_the_tier(platform: Platform, pool: Pool) -> None:
    for number, (body, tier) in enumerate([({}, FREE_ID), ({"tier_id": None}, FREE_ID), ({"tier_id": PROFESSIONAL_ID}, PROFESSIONAL_ID)]):
        org = await add_organization(pool, f"o{number}", "pending")
        assert (await platform.done("approve", org, body))["tier_id"] == tier


async def test_a_rejected_organization_keeps_the_reason(platform: Platform, pool: Pool) -> None:
    org = await add_organization(pool, "acme", "pending")
    rejected = await platform.done("reject", org, {"reason": "  Not a company, we think — sorry. "})
    assert (rejected["status"], rejected["rejected_reason"]) == ("rejected", "Not a company, we think — sorry.")
    assert (rejected["approved_at"], rejected["suspended_reason"]) == (None, None)
    assert (await platform.listed("?status=rejected"))["organizations"][0]["organization"] == rejected


@pytest.mark.parametrize(("body", "reason"), [({}, None), ({"reason": None}, None), ({"reason": "unpaid"}, "unpaid")])
async def test_activation_clears_the_reason_of_the_suspension(
    platform: Platform, pool: Pool, body: dict[str, Any], reason: str | None
) -> None:
    org = await add_organization(pool, "acme", "pending")
    approved = await platform.done("approve", org)
    suspended = await platform.done("suspend", org, body)
    assert (suspended["status"], suspended["suspended_reason"]) == ("suspended", reason)
    activated = await platform.done("activate", org)
    assert (activated["status"], activated["suspended_reason"]) == ("active", None)
    assert activated["approved_at"] == suspended["approved_at"] == approved["approved_at"]


async def test_each_action_needs_its_status_and_gives_the_next_one(platform: Platform, pool: Pool) -> None:
    async def row(org: UUID) -> list[tuple[Any, ...]]:
        return await run_sql(pool, "select * from organizations where id = %s", org)

    for action, status in itertools.product(("approve", "reject", "suspend", "activate", "tier"), STATUSES):
        org, other = [await add_organization(pool, f"{slug}-{action}-{status}", status) for slug in ("acme", "other")]
        before, other_before = await row(org), await row(other)
        answer = await platform.do(action, org, BODIES.get(action))
        if (action, status) in AFTERWARDS:
            assert (answer.status, answer.json["organization"]["status"]) == (200, AFTERWARDS[action, status]), (action, status)
            assert await status_of(pool, org) == AFTERWARDS[action, status]
        else:
            assert (answer.status, answer.code) == (400, "BAD_REQUEST"), (action, status)
            assert f"The organization is {status}." in answer.json["error"]
            assert (await row(org), await log_of(pool, org)) == (before, [])
        assert (await row(other), await log_of(pool, other)) == (other_before, [])


async def test_an_action_cannot_be_repeated(platform: Platform, pool: Pool) -> None:
    org = await add_organization(pool, "acme", "pending")
    for action in ("approve", "suspend", "activate"):
        assert (await platform.do(action, org)).status == 200
        assert (await platform.do(action, org)).status == 400
    assert [action for action, _ in await log_of(pool, org)] == [f"organization.{word}" for word in ("approved", "suspended", "activated")]


BAD_REASONS: list[Any] = ["", "   ", "x" * 501, "a\x00b", "a\nb", "a\u202eb", 5, True, ["x"], {"a": 1}]


@pytest.mark.parametrize(("action", "status"), [("reject", "pending"), ("suspend", "active")])
async def test_a_reason_has_one_to_five_hundred_printable_characters(platform: Platform, pool: Pool, action: str, status: str) -> None:
    org = await add_organization(pool, "acme", status)
    for reason in BAD_REASONS:
        answer = await platform.do(action, org, {"reason": reason})
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), reason
        assert '"reason"' in answer.json["error"]
    assert await status_of(pool, org) == status
    answer = await platform.do(action, org, {"reason": "ö" * 500})
    assert answer.status == 200
    assert "ö" * 500 in answer.json["organization"].values()


async def test_a_rejection_needs_a_reason(platform: Platform, pool: Pool) -> None:
    org = await add_organization(pool, "acme", "pending")
    for body in (None, {}, {"reason": None}):
        answer = await platform.do("reject", org, body)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), body
    assert await status_of(pool, org) == "pending"


# Tier and limits


async def test_omitted_limits_keep_their_value_and_null_removes_them(platform: Platform, pool: Pool) -> None:
    org = await add_organization(pool, "acme")

    async def change(**body: Any) -> tuple[Any, ...]:
        organization = await platform.done("tier", org, {"tier_id": PROFESSIONAL_ID, **body})
        assert organization["tier_id"] == PROFESSIONAL_ID
        return organization["max_services"], organization["max_users"]

    assert await change() == (None, None)
    assert await change(max_services=7) == (7, None)
    assert await change(max_users=0) == (7, 0)
    assert await change() == (7, 0)
    assert await change(max_services=None) == (None, 0)
    assert await change(max_services=2**31 - 1, max_users=None) == (2**31 - 1, None)
    assert (await platform.done("tier", org, {"tier_id": FREE_ID}))["max_services"] == 2**31 - 1
    assert await run_sql(pool, "select max_services, max_users, tier_id::text from organizations") == [(2**31 - 1, None, FREE_ID)]


async def test_a_limit_is_a_non_negative_integer(platform: Platform, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    bad: list[Any] = [-1, 2**31, 10**18, 1.5, "5", True, [], {}]
    for field, value in itertools.product(("max_services", "max_users"), bad):
        answer = await platform.do("tier", org, {"tier_id": FREE_ID, field: value})
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), (field, value)
        assert f'"{field}"' in answer.json["error"]
    assert await log_of(pool, org) == []


@pytest.mark.parametrize(("action", "status"), [("approve", "pending"), ("tier", "active")])
async def test_a_malformed_tier_is_refused(platform: Platform, pool: Pool, action: str, status: str) -> None:
    org = await add_organization(pool, "acme", status)
    malformed_ids: list[Any] = [
        "",
        "free",
        FREE_ID.replace("-", ""),
        f" {FREE_ID}",
        FREE_ID + "\n",
        f"{{{FREE_ID}}}",
        5,
        True,
        [FREE_ID],
        {},
    ]
    for tier_id in malformed_ids:
        answer = await platform.do(action, org, {"tier_id": tier_id})
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), tier_id
        assert '"tier_id"' in answer.json["error"]
    assert await status_of(pool, org) == status


async def test_a_change_of_tier_needs_a_tier(platform: Platform, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    for body in (None, {}, {"tier_id": None}, {"max_users": 5}):
        assert (await platform.do("tier", org, body)).code == "BAD_REQUEST", body


async def test_an_unknown_tier_answers_404_in_every_status(platform: Platform, pool: Pool) -> None:
    for status in STATUSES:
        org = await add_organization(pool, f"acme-{status}", status)
        for action in ("approve", "tier"):
            answer = await platform.do(action, org, {"tier_id": str(NOWHERE)})
            assert (answer.status, answer.code) == (404, "NOT_FOUND"), (action, status)
            assert "tier" in answer.json["error"]
        assert (await status_of(pool, org), await log_of(pool, org)) == (status, [])


# Deletion


@pytest.mark.parametrize("status", STATUSES)
async def test_an_organization_of_any_status_can_be_deleted(platform: Platform, ports: Ports, pool: Pool, status: str) -> None:
    user = await add_account(ports, "ada@example.com", None)
    org, other = await add_organization(pool, "acme", status), await add_organization(pool, "other", status)
    for one in (org, other):
        await add_member(pool, one, user.id, "owner")
    answer = await platform.do("delete", org)
    assert (answer.status, answer.text) == (204, "")
    assert (await platform.do("delete", org)).status == 404
    assert await platform.slugs() == ["other"]
    assert await run_sql(pool, "select org_id from memberships") == [(other,)]
    assert await run_sql(pool, "select 1 from users where id = %s", user.id)
    assert await run_sql(pool, "select action, org_id, target_id, actor_id from audit_log") == [
        ("organization.deleted", None, str(org), platform.account.id)
    ]


# Effects on members


async def test_suspension_and_activation_take_effect_with_the_next_request(platform: Platform, ports: Ports, pool: Pool) -> None:
    user = await add_account(ports, "ada@example.com", None)
    org = await add_organization(pool, "acme")
    await add_member(pool, org, user.id, "owner")
    tokens = await sign_in(ports, user, org)

    async def members() -> Answer:
        return await platform.api.get("/api/organizations/acme/members", token=tokens.access_token)

    async def refreshed() -> Answer:
        return await platform.api.post("/api/auth/refresh", {"refresh_token": tokens.refresh_token})

    assert (await members()).status == 200
    await platform.done("suspend", org, {"reason": "unpaid"})
    for answer in (await members(), await refreshed()):
        assert (answer.status, answer.code) == (403, "ORGANIZATION_NOT_ACTIVE")
        assert "unpaid" not in answer.text
    assert (await platform.api.get("/api/user", token=tokens.access_token)).status == 200
    await platform.done("activate", org)
    assert (await members()).status == 200
    assert (await refreshed()).status == 200


async def test_members_see_the_effective_limit_and_its_source(platform: Platform, ports: Ports, pool: Pool) -> None:
    user, eve = await add_account(ports, "ada@example.com", None), await add_account(ports, "eve@example.com", None)
    org = await add_organization(pool, "acme", "pending")
    await add_member(pool, org, user.id, "owner")
    await add_member(pool, org, eve.id)
    token = (await sign_in(ports, eve)).access_token

    async def limits() -> tuple[Any, ...]:
        answer = await platform.api.get("/api/organizations/acme/members", token=token)
        assert answer.json["pagination"]["total"] == 2  # does not depend on the limit
        return answer.json["limits"]["max_users"], answer.json["limits"]["source"]

    await platform.done("approve", org)
    assert await limits() == (100, "tier")
    await platform.done("tier", org, {"tier_id": PROFESSIONAL_ID})
    assert await limits() == (1000, "tier")
    await platform.done("tier", org, {"tier_id": PROFESSIONAL_ID, "max_users": 1})
    assert await limits() == (1, "organization")
    await platform.done("tier", org, {"tier_id": FREE_ID, "max_users": None})
    assert await limits() == (100, "tier")
    await run_sql(pool, "update organizations set tier_id = null")
    assert await limits() == (5, "default")
