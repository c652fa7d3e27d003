"""Entries about refused changes and wrong codes (security L-5, M-2, R-5, Z-5).

The access matrix proves for every route that callers without the role or the permission are recorded, and outsiders are not.
"""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import Permission
from core.programs.model.organization_tokens import MAX_TOKENS
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import Api, add_account, add_member, run_concurrently, run_during, run_sql, sign_in
from tests.support.direct import change_ports
from tests.support.mfa import add_mfa
from tests.support.scim import Directory
from tests.support.services import add_api_key, add_service
from tests.support.tenants import Tenant

EMAIL = "new@example.com"


async def logs(tenant: Tenant, action: str) -> list[dict[str, Any]]:
    """Return the entries as the API shows them, the oldest first."""
    answer = await tenant.api.get(f"{tenant.path}/audit-log?action={action}&limit=100", token=tenant.token("owner"))
    assert answer.status == 200, answer.text
    return [*reversed(answer.json["logs"])]


async def actors(tenant: Tenant) -> Counter[str]:
    """Return how many changes were refused, by the actor's id."""
    return Counter(str(actor_id) for actor_id, *_ in await tenant.refusals())


async def test_a_refused_change_is_in_audit_log_and_webhooks(acme: Tenant, api: Api, pool: Pool) -> None:
    webhook = {"name": "Refusals", "url": "https://hooks.acme.example", "events": ["access.refused"]}
    assert (await api.post(f"{acme.path}/webhooks", webhook, token=acme.token("owner"))).status == 200
    refusal = await acme.remove("member", "admin")
    assert refusal.status == 403
    [entry] = await logs(acme, "access.refused")
    details = {
        "method": "POST",
        "route": "/api/organizations/<org_slug>/members/<user_id>",
        "arguments": {"user_id": acme.id("admin")},
        "error_code": "FORBIDDEN",
        "error": refusal.json["error"],
    }
    assert (entry["success"], entry["details"]) == (False, details)
    assert (entry["target_type"], entry["target_id"], entry["actor"]["id"]) == ("organization", str(acme.org), acme.id("member"))
    [(payload,)] = await run_sql(pool, "select payload->'data' from webhook_deliveries")
    assert payload == {"target_type": "organization", "target_id": str(acme.org), **details}


async def test_a_member_who_is_demoted_during_the_request_is_recorded(acme: Tenant, pool: Pool) -> None:
    demotion = [
        ("select from organizations where id = %s for update", (acme.org,)),
        ("update memberships set role = 'member' where user_id = %s", (acme.people["admin"].id,)),
    ]
    answer = await run_during(pool, demotion, lambda: acme.try_invite(by="admin"))
    assert answer.status == 403
    assert await actors(acme) == {acme.id("admin"): 1}


async def test_every_limit_of_an_organization_is_recorded(acme: Tenant, api: Api, app: QuartTrio, ports: Ports, pool: Pool) -> None:
    change_ports(app, policy=replace(ports.policy, webhooks_per_organization=0, invitations_per_day=1))
    invitation = (await acme.invite(EMAIL))["invitation"]["id"]
    await add_account(ports, EMAIL, None)
    token = (await api.post(f"{acme.path}/scim-tokens", {"name": "Directory"}, token=acme.token("owner"))).json["token"]
    await run_sql(
        pool,
        """
        insert into scim_tokens (id, org_id, name, prefix, token_hash, created_by, created_at)
        select gen_random_uuid(), org_id, name, prefix, sha256(n::text::bytea), created_by, created_at
        from scim_tokens cross join generate_series(2, %s) n""",
        MAX_TOKENS,
    )
    await run_sql(pool, "update organizations set max_users = 3, max_services = 0 where id = %s", acme.org)
    webhook = {"name": "One", "url": "https://hooks.acme.example", "events": ["user.joined"]}
    service = {"slug": "shop", "name": "Shop", "service_type": "web"}
    codes = ["TEAM_LIMIT_EXCEEDED"]
    for path, body, status, code in (
        ("/services", service, 400, "SERVICE_LIMIT_EXCEEDED"),
        ("/webhooks", webhook, 400, "BAD_REQUEST"),
        ("/scim-tokens", {"name": "Another"}, 400, "BAD_REQUEST"),
        ("/invitations", {"email": "other@example.com", "role": "member"}, 429, "RATE_LIMIT_EXCEEDED"),
        (f"/invitations/{invitation}/accept", None, 400, "TEAM_LIMIT_EXCEEDED"),
    ):
        answer = await api.post(acme.path + path, body, token=acme.token("owner"))
        assert (answer.status, answer.code) == (status, code), answer.text
        codes.append(code)
    assert (await Directory(acme, token).try_create_user()).status == 400
    entries = await logs(acme, "access.refused")
    assert Counter(entry["details"]["error_code"] for entry in entries) == Counter(codes)
    assert Counter(entry["actor"]["email"] for entry in entries) == {"owner@acme.example": 5, "scim-token@internal": 1}


async def test_an_api_key_without_the_permission_is_recorded(acme: Tenant, api: Api, pool: Pool) -> None:
    key = {"X-Api-Key": await add_api_key(pool, await add_service(pool, acme.org), [Permission.READ_USERS])}
    assert (await api.post("/api/service/users", {"email": EMAIL}, headers=key)).status == 403
    [entry] = await logs(acme, "access.refused")
    assert (entry["actor"]["email"], entry["details"]["route"]) == ("api-key@internal", "/api/service/users")
    assert "write:users" in entry["details"]["error"]


async def test_refused_reads_and_invalid_requests_are_not_recorded(acme: Tenant, api: Api) -> None:
    assert (await api.get(f"{acme.path}/audit-log", token=acme.token("member"))).status == 403
    assert (await acme.try_invite(role="emperor")).status == 400
    assert (await acme.remove("owner", "owner")).status == 400
    assert await acme.refusals() == []


async def test_a_member_who_never_confirmed_and_strangers_are_not_recorded(
    acme: Tenant, other_tenant: Tenant, api: Api, ports: Ports, pool: Pool
) -> None:
    added = await add_account(ports, "added@example.com", None)
    await add_member(pool, acme.org, added.id)
    tokens = [(await sign_in(ports, added)).access_token, other_tenant.token("owner"), None]
    for token in tokens:
        assert (await api.post(acme.invitations, {"email": EMAIL, "role": "member"}, token=token)).status in (401, 403)
    assert await acme.refusals() == await other_tenant.refusals() == []


async def test_a_flood_of_refused_changes_does_not_fill_the_log(acme: Tenant, clock: FakeClock) -> None:
    answers = await run_concurrently(20, lambda _: acme.try_invite(by="member"))
    assert {answer.status for answer in answers} == {403}
    assert await actors(acme) == {acme.id("member"): 10}
    for _ in range(60):
        clock.advance(timedelta(minutes=1))
        if clock.now().minute % 10 == 0:
            await acme.sign_in("member")
        assert (await acme.try_invite(by="member")).status == 403
    assert await actors(acme) == {acme.id("member"): 20}
    await acme.sign_in("admin")
    assert (await acme.set_role("admin", "member", "admin")).status == 403  # another caller has their own entries
    assert await actors(acme) == {acme.id("member"): 20, acme.id("admin"): 1}


# Wrong codes


async def test_a_wrong_code_at_sign_in_is_recorded_for_the_confirmed_organizations_of_the_member(
    acme: Tenant, other_tenant: Tenant, api: Api, ports: Ports, pool: Pool
) -> None:
    account = await add_account(ports)
    await add_member(pool, acme.org, account.id, confirmed=True)
    await add_member(pool, other_tenant.org, account.id)
    authenticator = await add_mfa(ports, account)
    token = (await api.login()).json["access_token"]
    assert (await api.post("/api/auth/mfa/verify", {"code": authenticator.wrong()}, token=token)).status == 401
    [entry] = await logs(acme, "security.mfa.failed")
    assert (entry["success"], entry["details"]) == (False, {"during": "sign_in"})
    assert (entry["target_type"], entry["target_id"], entry["actor"]["id"]) == ("user", str(account.id), "anonymous")
    assert await logs(other_tenant, "security.mfa.failed") == []
    assert await run_sql(pool, "select 1 from audit_log where org_id is null") == []
    assert (await api.post("/api/auth/mfa/verify", {"code": authenticator.code()}, token=token)).status == 200
    assert len(await logs(acme, "security.mfa.failed")) == 1


async def test_a_wrong_code_for_a_new_second_factor_is_recorded(acme: Tenant, api: Api) -> None:
    token = acme.token("member")
    assert (await api.post("/api/user/mfa/setup", token=token)).status == 200
    assert (await api.post("/api/user/mfa/verify", {"code": "000000"}, token=token)).status == 400
    [entry] = await logs(acme, "security.mfa.failed")
    assert (entry["success"], entry["details"], entry["actor"]["id"]) == (False, {"during": "setup"}, acme.id("member"))
