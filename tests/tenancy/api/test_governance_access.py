"""The callers that govern organizations, the order in which errors come, and the audit log."""

import itertools
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.support.builders import FREE_ID, PROFESSIONAL_ID, add_account, add_member, add_organization, impersonate, run_sql, sign_in
from tests.support.direct import PEER, ask
from tests.support.platform import ACTIONS, LIST, NOWHERE, Platform, log_of

# Audit log


async def test_the_audit_log_of_the_organization_has_every_change(platform: Platform, app: QuartTrio, pool: Pool) -> None:
    org, doomed = await add_organization(pool, "acme", "pending"), await add_organization(pool, "doomed", "pending")
    await platform.done("approve", org, {"tier_id": PROFESSIONAL_ID})
    await platform.done("suspend", org, {"reason": "unpaid"})
    await platform.done("activate", org)
    await platform.done("suspend", org)
    await platform.done("tier", org, {"tier_id": PROFESSIONAL_ID, "max_users": 5})
    await platform.done("tier", org, {"tier_id": FREE_ID, "max_users": None, "max_services": 0})
    await platform.done("reject", doomed, {"reason": "spam"})
    assert await log_of(pool, org) == [
        ("organization.approved", {"tier": "professional"}),
        ("organization.suspended", {}),
        ("organization.activated", {}),
        ("organization.suspended", {}),
        (
            "organization.tier.updated",
            {
                "old": {"tier": "professional", "max_services": None, "max_users": None},
                "new": {"tier": "professional", "max_services": None, "max_users": 5},
            },
        ),
        (
            "organization.tier.updated",
            {
                "old": {"tier": "professional", "max_services": None, "max_users": 5},
                "new": {"tier": "free", "max_services": 0, "max_users": None},
            },
        ),
    ]
    assert await log_of(pool, doomed) == [("organization.rejected", {})]
    assert await run_sql(
        pool,
        "select distinct target_type, target_id = org_id::text, actor_id, impersonator_id, success from audit_log where org_id is not null",
    ) == [("organization", True, platform.account.id, None, True)]


async def test_a_reason_is_only_in_the_platform_log_and_outlives_the_organization(platform: Platform, pool: Pool) -> None:
    """Neither the organization's audit log nor its webhooks have reasons (decision 207)."""
    org, doomed = await add_organization(pool, "acme"), await add_organization(pool, "doomed", "pending")
    await platform.done("suspend", org, {"reason": "unpaid"})
    await platform.done("activate", org)
    await platform.done("suspend", org)
    await platform.done("reject", doomed, {"reason": "spam"})
    expected = [
        ("organization.suspended", str(org), {"reason": "unpaid"}),
        ("organization.suspended", str(org), {"reason": None}),
        ("organization.rejected", str(doomed), {"reason": "spam"}),
    ]
    of_platform = "select name, target_id, data from events where org_id is null order by created_at"
    assert await run_sql(pool, of_platform) == expected
    for table in ("audit_log", "events", "audit_totals"):
        assert not await run_sql(pool, f"select 1 from {table} t where org_id is not null and t::text ~ 'unpaid|spam'")  # noqa: S608
    for one in (org, doomed):
        assert (await platform.do("delete", one)).status == 204
    rows = await run_sql(pool, "select action, target_id, details, actor_id from audit_log where org_id is null order by created_at")
    assert [entry[:3] for entry in rows[:3]] == expected
    assert [entry[0] for entry in rows[3:]] == ["organization.deleted"] * 2
    assert {entry[3] for entry in rows} == {platform.account.id}


async def test_only_the_entry_of_the_platform_has_the_address_and_the_user_agent(platform: Platform, app: QuartTrio, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    answer = await ask(app, "POST", f"{LIST}/{org}/suspend", headers=[(b"user-agent", b"console/1.0")], token=platform.token)
    assert answer.status == 200
    entries = await run_sql(pool, "select org_id is null, address, agent from audit_log order by 1")
    assert entries == [(False, None, None), (True, PEER, "console/1.0")]


# Permissions, and the order in which errors come


def calls(org: object) -> list[tuple[str, str]]:
    return [("GET", "/api/platform/tiers"), ("GET", LIST), *((method, path.format(org)) for method, path in ACTIONS.values())]


@pytest.mark.slow
async def test_only_platform_owners_can_call_these_routes(platform: Platform, ports: Ports, pool: Pool) -> None:
    user, eve = await add_account(ports, "ada@example.com", None), await add_account(ports, "eve@example.com", None)
    org = await add_organization(pool, "acme")
    await add_member(pool, org, user.id, "owner")
    before = await run_sql(pool, "select * from organizations")
    for token in (
        (await sign_in(ports, eve)).access_token,
        (await sign_in(ports, user)).access_token,
        (await sign_in(ports, user, org)).access_token,
        await impersonate(ports, platform.account, user, org),
    ):
        for org_id in (org, NOWHERE, "nothing"):
            for method, path in calls(org_id):
                # Everyone else learns neither which organizations exist nor the format of a body.
                for raw in (None, b"{"):
                    answer = await platform.api.call(method, path, raw=raw, token=token)
                    assert (answer.status, answer.code) == (403, "FORBIDDEN"), (method, path)
    for method, path in calls(org):
        assert (await platform.api.call(method, path)).code == "UNAUTHORIZED"
    assert await run_sql(pool, "select * from organizations") == before


async def test_the_error_names_impersonation_as_the_reason(platform: Platform, ports: Ports, pool: Pool) -> None:
    user = await add_account(ports, "ada@example.com", None)
    answer = await platform.api.get(LIST, token=await impersonate(ports, platform.account, user))
    assert "impersonating" in answer.json["error"]


async def test_a_token_of_a_former_membership_still_works_for_a_platform_owner(platform: Platform, ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme", "suspended")
    await add_member(pool, org, platform.account.id, "owner")
    token = (await sign_in(ports, platform.account, org)).access_token
    await run_sql(pool, "delete from memberships")
    assert (await platform.api.post(f"{LIST}/{org}/activate", token=token)).status == 200


async def test_an_unknown_organization_answers_404_for_any_body(platform: Platform) -> None:
    org_ids = (str(NOWHERE), "nothing", "x" * 300, "%00", NOWHERE.hex)
    bodies = (b"{}", b"{", b'{"tier_id": 5, "reason": ""}')
    for (method, path), org_id, raw in itertools.product(ACTIONS.values(), org_ids, bodies):
        answer = await platform.api.call(method, path.format(org_id), raw=raw, token=platform.token)
        assert (answer.status, answer.code) == (404, "NOT_FOUND"), (method, path, org_id, raw)


async def test_an_id_in_upper_case_answers_404(platform: Platform, pool: Pool) -> None:
    org = UUID("abcdefab-cdef-4abc-8def-abcdefabcdef")
    await run_sql(pool, "update organizations set id = %s where id = %s", org, await add_organization(pool, "acme"))
    assert (await platform.do("suspend", str(org).upper())).status == 404
    assert (await platform.do("suspend", org)).status == 200
