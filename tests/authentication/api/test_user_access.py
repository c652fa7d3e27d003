"""Platform owners read a user's details, end sessions and reset passwords (security I-8)."""

from typing import Any

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.values import rfc3339
from ports import Ports
from tests.accounts.api.platform_paths import OWNERS, UNKNOWN_ID, with_mfa
from tests.fakes.outside import FakeClock
from tests.support.builders import add_account, add_member, add_organization, run_sql, sign_in
from tests.support.mfa import add_mfa
from tests.support.platform import Platform
from tests.support.refusals import BAD, MISSING, UNAUTHORIZED, refused

REASON = {"reason": "Lost laptop, ticket 4711"}


def path_of(user: object, action: str = "") -> str:
    return f"/api/platform/users/{user}{action}"


async def get(platform: Platform, path: str) -> Any:
    answer = await platform.api.get(path, token=platform.token)
    assert answer.status == 200, answer.text
    return answer.json


async def log_entries(pool: Pool, user: Account) -> list[Any]:
    return await run_sql(
        pool,
        "select action, org_id is null, details from audit_log where target_id = %s and action <> 'user.login.success' order by 1, 2",
        str(user.id),
    )


async def add_member_of_acme(ports: Ports, pool: Pool) -> Account:
    user = await with_mfa(ports, pool)
    await add_member(pool, await add_organization(pool, "acme"), user.id, "admin")
    await run_sql(pool, "update memberships set confirmed_at = now()")
    return user


async def test_the_details_have_memberships_sessions_devices_identities_and_the_second_factor(
    platform: Platform, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    user = await add_member_of_acme(ports, pool)
    await sign_in(ports, user)
    await run_sql(
        pool,
        """
        insert into identities (id, user_id, provider, provider_user_id, issuer, email, linked_at)
        values (gen_random_uuid(), %s, 'codehost', '4711', 'https://codehost.example', 'ada@codehost.example', now())""",
        user.id,
    )
    details = await get(platform, path_of(user.id))
    assert [(org["slug"], org["role"]) for org in details["organizations"]] == [("acme", "admin")]
    assert (details["email"], details["has_password"], details["anonymized_at"]) == ("ada@example.com", False, None)
    assert (details["mfa_enabled"], details["backup_codes_remaining"]) == (True, 2)
    assert details["mfa_enabled_at"] == rfc3339(clock.now())
    [session] = details["sessions"]
    assert (session["by_impersonator"], session["in_browser"], details["sessions_total"]) == (False, False, 1)
    assert [(identity["provider"], identity["provider_user_id"]) for identity in details["identities"]] == [("codehost", "4711")]
    devices = await run_sql(pool, "select id::text from devices where user_id = %s", user.id)
    assert [(device["id"],) for device in details["devices"]] == devices
    assert not {"password_hash", "access_token", "refresh_token"} & details.keys()


async def test_all_sessions_of_a_user_end_and_the_logs_say_why(platform: Platform, ports: Ports, pool: Pool) -> None:
    user, other = await add_member_of_acme(ports, pool), await add_account(ports, "eve@example.com", None)
    tokens = [(await sign_in(ports, user)).access_token for _ in range(2)]
    kept = (await sign_in(ports, other)).access_token
    answer = await platform.api.post(path_of(user.id, "/end-sessions"), REASON, token=platform.token)
    assert answer.status == 200, answer.text
    for token in tokens:
        assert refused(await platform.api.get("/api/user/devices", token=token)) == UNAUTHORIZED
    assert (await platform.api.get("/api/user/devices", token=kept)).status == 200
    assert (await get(platform, path_of(user.id)))["sessions_total"] == 0
    assert await log_entries(pool, user) == [
        ("user.sessions_revoked", False, {"whole_account": True, "by_platform": True}),
        ("user.sessions_revoked", True, REASON),
    ]


async def test_a_password_reset_sends_a_link_and_changes_nothing_else(platform: Platform, ports: Ports, pool: Pool) -> None:
    user = await add_member_of_acme(ports, pool)
    token = (await sign_in(ports, user)).access_token
    answer = await platform.api.post(path_of(user.id, "/password-reset"), REASON, token=platform.token)
    assert answer.status == 200, answer.text
    assert await run_sql(pool, "select kind, address from mails") == [("reset_password", "ada@example.com")]
    assert (await platform.api.get("/api/user/devices", token=token)).status == 200
    assert await log_entries(pool, user) == [
        ("security.password.reset_sent", False, {"by_platform": True}),
        ("security.password.reset_sent", True, REASON),
    ]


async def test_a_closed_account_gets_no_link_and_an_unknown_one_is_not_found(platform: Platform, ports: Ports, pool: Pool) -> None:
    user = await add_account(ports, "ada@example.com", None)
    for action in ("/end-sessions", "/password-reset"):
        assert refused(await platform.api.post(path_of(UNKNOWN_ID, action), REASON, token=platform.token)) == MISSING
        for body in ({}, {"reason": " "}, {"reason": 5}):
            assert refused(await platform.api.post(path_of(user.id, action), body, token=platform.token)) == BAD
    assert refused(await platform.api.get(path_of(UNKNOWN_ID), token=platform.token)) == MISSING
    assert refused(await platform.api.get(path_of("x"), token=platform.token)) == MISSING
    await run_sql(pool, "update users set deactivated_at = now() where id = %s", user.id)
    assert refused(await platform.api.post(path_of(user.id, "/password-reset"), REASON, token=platform.token)) == BAD
    await run_sql(pool, "update users set anonymized_at = now() where id = %s", user.id)
    for action in ("/end-sessions", "/password-reset"):
        assert refused(await platform.api.post(path_of(user.id, action), REASON, token=platform.token)) == BAD
    assert await run_sql(pool, "select count(*) from mails") == [(0,)]
    assert await log_entries(pool, user) == []


async def test_platform_owners_are_listed(platform: Platform, ports: Ports) -> None:
    await add_account(ports, "eve@example.com", None)
    owner = await add_account(ports, "ada@example.com", None)
    await add_mfa(ports, owner)
    assert [found["id"] for found in (await get(platform, OWNERS))["owners"]] == [str(platform.account.id)]
    await platform.api.post(OWNERS, {"user_id": str(owner.id)}, token=platform.token)
    assert {found["email"] for found in (await get(platform, OWNERS))["owners"]} == {platform.account.email, "ada@example.com"}
