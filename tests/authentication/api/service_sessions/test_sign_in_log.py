"""Why a sign-in failed, as the API and its exports say it (decision 220)."""

import csv
import io
import json
from typing import Any

import pytest

from tests.authentication.api.service_sessions.shop import Shop
from tests.support.builders import EMAIL, add_account, add_member, run_sql
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow

WRONG = "a wrong password"


async def log_of(tenant: Tenant, query: str = "") -> list[dict[str, Any]]:
    answer = await tenant.api.get(f"/api/organizations/{tenant.slug}/sign-ins{query}", token=tenant.token("admin"))
    assert answer.status == 200, answer.text
    assert answer.json["pagination"]["total"] == len(answer.json["sign_ins"])
    attempts: list[dict[str, Any]] = answer.json["sign_ins"]
    return attempts


async def test_strangers_unconfirmed_members_and_no_account_are_one_number(shop: Shop, other_tenant: Tenant) -> None:
    ports, pool = shop.tenant.ports, shop.tenant.pool
    await shop.tokens()  # makes the user a user of the shop
    invited = await add_account(ports, "invited@example.com")
    await add_member(pool, shop.tenant.org, invited.id)
    await add_account(ports, "stranger@example.com")
    for email in (EMAIL, "invited@example.com", "stranger@example.com", "nobody@example.com"):
        assert (await shop.login(email=email, password=WRONG)).status == 401
    failures = await log_of(shop.tenant, "?success=false")
    found = {(each["user_email"], each["reason"], each["provider"], each["attempts"]) for each in failures}
    assert found == {(EMAIL, "credentials", "password", 1), (None, "unknown_account", "", 3)}
    assert {each["service_name"] for each in failures} == {"Shop"}
    assert [each["reason"] for each in await log_of(shop.tenant, f"?user_id={shop.user.id}&success=true")] == [None]
    assert await log_of(shop.tenant, f"?user_id={invited.id}") == []
    # The other organization has neither the attempts nor the people.
    assert await log_of(other_tenant, "?success=false") == []
    assert await log_of(other_tenant, f"?service_id={shop.id}") == []


async def test_an_account_that_is_blocked_for_a_while_is_said_so(shop: Shop) -> None:
    await shop.tokens()
    limit = shop.tenant.ports.policy.account_guess_limit
    for _ in range(limit + 1):
        await shop.login(password=WRONG)
    reasons = [each["reason"] for each in await log_of(shop.tenant, "?success=false")]
    assert sorted(reasons) == ["credentials"] * limit + ["locked"]


async def test_a_member_who_fails_elsewhere_is_seen_only_there(shop: Shop, other_tenant: Tenant) -> None:
    """A confirmed member of another organization is a stranger here, and their organization does not learn where they failed."""
    member = other_tenant.people["member"]
    assert (await shop.login(email=member.email, password=WRONG)).status == 401
    assert [each["reason"] for each in await log_of(shop.tenant, "?success=false")] == ["unknown_account"]
    assert await log_of(other_tenant, "?success=false") == []
    # At the platform itself, it is the other way around, once the organization was approved.
    await run_sql(shop.tenant.pool, "update organizations set approved_at = now() - interval '100 years'")
    await run_sql(shop.tenant.pool, "update memberships set confirmed_at = created_at - interval '100 years'")
    assert (await shop.login(None, None, email=member.email, password=WRONG)).status == 401
    assert [each["reason"] for each in await log_of(shop.tenant, "?success=false")] == ["unknown_account"]
    assert [(each["user_email"], each["reason"]) for each in await log_of(other_tenant, "?success=false")] == [
        (member.email, "credentials")
    ]


async def test_the_export_has_the_attempts_of_the_list(shop: Shop) -> None:
    await shop.tokens()
    await shop.login(password=WRONG)
    await shop.login(email="nobody@example.com", password=WRONG)
    listed, path = await log_of(shop.tenant), f"/api/organizations/{shop.tenant.slug}/sign-ins/export"
    lines = await shop.api.get(f"{path}?format=jsonl", token=shop.tenant.token("owner"))
    assert [json.loads(line) for line in lines.text.splitlines()] == listed
    file = await shop.api.get(path, token=shop.tenant.token("owner"))
    rows = list(csv.DictReader(io.StringIO(file.text)))
    assert [(row["id"], row["success"], row["reason"]) for row in rows] == [
        (each["id"], str(each["success"]).lower(), each["reason"] or "") for each in listed
    ]
