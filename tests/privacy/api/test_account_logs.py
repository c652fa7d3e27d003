"""The second-factor and privacy logs, as the user and as platform owners see them (security I-5, M-6, Y-1)."""

from uuid import uuid4

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.accounts.api.platform_paths import remove_mfa, with_mfa
from tests.support.builders import FIREFOX, add_account, run_sql, sign_in
from tests.support.platform import Platform
from tests.support.refusals import MISSING, refused
from tests.support.rows import SECOND

AGENT = {"User-Agent": FIREFOX}


OF_OWNER = {"is_platform_owner": True, "kind": "user", "name": None}


async def test_users_and_platform_owners_read_the_log_of_second_factors(platform: Platform, ports: Ports, pool: Pool) -> None:
    user, other = await with_mfa(ports, pool), await with_mfa(ports, pool, "eve@example.com")
    for account in (user, other):
        wrong = """
            insert into mfa_events (id, user_id, event_type, success, address, agent, created_at)
            values (gen_random_uuid(), %s, 'mfa_verify_failed', false, '198.51.100.7', 'a browser', %s)"""
        await run_sql(pool, wrong, account.id, platform.clock.now() - SECOND)
    await remove_mfa(platform, user.id, {"reason": "The phone was lost."})
    token = (await sign_in(ports, user)).access_token
    answer = await platform.api.get("/api/user/mfa/events?limit=2", token=token)
    assert answer.status == 200, answer.text
    removal, failure = answer.json["events"]
    assert (removal["event_type"], removal["success"], removal["by_user"]) == ("mfa_force_disabled_by_admin", True, False)
    assert (removal["ip_address"], removal["user_agent"]) == (None, None)  # the platform owner's are not shown
    assert "reason" not in removal
    assert (failure["success"], failure["by_user"], failure["ip_address"], failure["user_agent"]) == (
        False,
        True,
        "198.51.100.7",
        "a browser",
    )
    answer = await platform.api.get(f"/api/platform/users/{user.id}/mfa/events?limit=2", token=platform.token)
    assert answer.status == 200, answer.text
    removal, failure = answer.json["events"]
    assert removal["actor"] == {"id": str(platform.account.id), "email": platform.account.email, **OF_OWNER}
    assert (removal["reason"], removal["impersonator"], removal["ip_address"] is not None) == ("The phone was lost.", None, True)
    assert (failure["actor"], failure["ip_address"]) == (None, "198.51.100.7")
    assert answer.json["pagination"]["total"] == await _count(pool, user.id)


async def _count(pool: Pool, user_id: object) -> int:
    [(count,)] = await run_sql(pool, "select count(*) from mfa_events where user_id = %s", user_id)
    return int(count)


async def test_users_see_who_exported_their_data(platform: Platform, ports: Ports, pool: Pool) -> None:
    user = await add_account(ports, "ada@example.com")
    token = (await sign_in(ports, user)).access_token
    for caller in (token, platform.token):
        platform.clock.advance(SECOND)
        assert (await platform.api.get(f"/api/privacy/export/{user.id}", token=caller, headers=AGENT)).status == 200
    assert (await platform.api.call("HEAD", f"/api/privacy/export/{user.id}", token=token)).status == 200  # is no export
    answer = await platform.api.get("/api/user/privacy-log", token=token)
    assert answer.status == 200, answer.text
    by_owner, own = answer.json["events"]
    assert (by_owner["event_type"], by_owner["by_user"], by_owner["user_agent"]) == ("user_exported", False, None)
    assert (own["event_type"], own["by_user"], own["user_agent"]) == ("user_exported", True, FIREFOX)
    platform.clock.advance(SECOND)
    assert (await platform.api.delete(f"/api/privacy/forget/{user.id}", token=platform.token)).status == 200
    answer = await platform.api.get(f"/api/platform/users/{user.id}/privacy-log", token=platform.token)
    assert [(entry["event_type"], entry["actor"]["id"]) for entry in answer.json["events"]] == [
        ("user_anonymized", str(platform.account.id)),
        ("user_exported", str(platform.account.id)),
        ("user_exported", str(user.id)),
    ]
    assert [entry["user_agent"] for entry in answer.json["events"]][2] == "anonymized"
    [own] = (await platform.api.get(f"/api/platform/users/{user.id}/privacy-log?page=3&limit=1", token=platform.token)).json["events"]
    assert own["actor"]["email"].endswith("@deleted.local")


async def test_the_logs_of_unknown_accounts_are_not_found(platform: Platform) -> None:
    for log in ("mfa/events", "privacy-log"):
        for user_id in (uuid4(), "x"):
            assert refused(await platform.api.get(f"/api/platform/users/{user_id}/{log}", token=platform.token)) == MISSING
