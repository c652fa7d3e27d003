"""The switch that makes passkeys and security keys an account's second factor."""

from datetime import timedelta

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.security_notices import UNDO_TTL
from ports import Ports
from tests.accounts.email_changes import undo
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.browser import FakeBrowser, main_of
from tests.support.builders import Answer, Api, add_member, add_organization, deliver, link, run_sql, sign_in
from tests.support.passkeys.users import PASSKEYS, PasskeyUser, start_login, verify_second
from tests.support.platform import Platform

SWITCH = f"{PASSKEYS}/second-factor"
STATUS = "/api/user/mfa/status"


async def switch(holder: PasskeyUser, *, on: bool) -> Answer:
    return await holder.api.call("PUT", SWITCH, {"enabled": on}, token=holder.token)


async def methods(holder: PasskeyUser) -> list[str]:
    answer = await holder.api.get(STATUS, token=holder.token)
    found: list[str] = answer.json["methods"]
    assert answer.json["enabled"] is bool(found)
    return found


async def test_the_switch_turns_it_on_and_off(
    holder: PasskeyUser, user: Account, pool: Pool, ports: Ports, sent: FakeMailTransport, clock: FakeClock
) -> None:
    org = await add_organization(pool, "acme")
    await add_member(pool, org, user.id, confirmed=True)
    answer = await switch(holder, on=True)
    assert (answer.status, answer.json["error"]) == (400, "Your account has no passkey or security key that works here. Add one first.")
    await holder.add()
    answer = await switch(holder, on=True)
    assert (answer.status, answer.json["enabled"], len(answer.json["backup_codes"])) == (200, True, 10)
    assert await methods(holder) == ["passkey", "backup_code"]
    assert (await switch(holder, on=True)).json == {"enabled": True}, "it is on already"
    assert (await holder.api.get(PASSKEYS, token=holder.token)).json["second_factor"] is True
    clock.advance(timedelta(minutes=1))
    assert (await switch(holder, on=False)).json == {"enabled": False}
    assert await methods(holder) == []
    events = "select action, details from audit_log where action <> 'security.passkey.added' order by created_at"
    enabled, disabled = {"factor": "passkey"}, {"factor": "passkey", "forced": False}
    assert await run_sql(pool, events) == [("security.mfa.enabled", enabled), ("security.mfa.disabled", disabled)]
    log = "select event_type from mfa_events where event_type <> 'passkey_added' order by created_at"
    assert await run_sql(pool, log) == [("passkey_mfa_enabled",), ("backup_codes_generated",), ("passkey_mfa_disabled",)]
    await deliver(ports)
    assert len(sent.emails) == 3
    sent.newest("You now need a passkey or security key after your password.")
    sent.newest("You now sign in without a passkey or security key after your password.")
    assert await run_sql(pool, "select count(*) from backup_codes") == [(0,)]


async def test_everything_that_would_go_around_it_ends(api: Api, holder: PasskeyUser, user: Account, ports: Ports, pool: Pool) -> None:
    """The session that switched has proved a passkey, and the second session has not."""
    other = await sign_in(ports, user)
    await holder.add(second_factor=True)
    rows = await run_sql(pool, "select id = %s, mfa_missing from sessions order by 1", other.session_id)
    assert rows == [(False, False), (True, True)]
    assert (await api.post(f"{PASSKEYS}/options", token=other.access_token)).status == 401
    assert (await api.post(f"{PASSKEYS}/options", token=holder.token)).status == 200


async def test_a_session_without_a_proof_of_it_lacks_the_factor(
    api: Api, holder: PasskeyUser, user: Account, ports: Ports, pool: Pool
) -> None:
    holder.token = (await api.login()).json["access_token"]
    await holder.add()
    await run_sql(pool, "update passkeys set user_verified = false")  # otherwise the change needs the passkey
    other = PasskeyUser(api, (await sign_in(ports, user)).access_token)
    assert (await switch(other, on=True)).status == 200
    assert (await api.post(f"{PASSKEYS}/options", token=other.token)).status == 401
    assert (await api.post(f"{PASSKEYS}/options", token=holder.token)).status == 200, "it proved more than two factors"


async def test_with_the_last_key_it_ends(holder: PasskeyUser, pool: Pool) -> None:
    first, key = await holder.add(second_factor=True), await PasskeyUser(holder.api, holder.token).add_key(second_factor=True)
    assert "backup_codes" in first
    assert "backup_codes" not in key, "the account has some"
    for passkey, left in ((key, ["passkey", "backup_code"]), (first, [])):  # the session has proved the first passkey
        assert (await holder.api.delete(f"{PASSKEYS}/{passkey['id']}", token=holder.token)).status == 204
        assert await methods(holder) == left
    assert await run_sql(pool, "select passkey_count, security_key_count, passkey_second_at from users") == [(0, 0, None)]


async def test_backup_codes_stay_until_the_last_factor_goes(api: Api, holder: PasskeyUser, user: Account, ports: Ports, pool: Pool) -> None:
    [code, *_] = (await holder.add_key())["backup_codes"]
    setup = await api.post("/api/user/mfa/setup", token=holder.token)
    assert setup.status == 200
    assert await methods(holder) == ["passkey", "backup_code"], "a pending secret is none"
    await run_sql(pool, "update users set mfa_enabled_at = now()")
    assert await methods(holder) == ["totp", "passkey", "backup_code"]
    assert (await api.delete("/api/user/mfa", token=holder.token)).status == 200
    assert await methods(holder) == ["passkey", "backup_code"]
    login = await start_login(api)
    assert (await api.post("/api/auth/mfa/verify", {"code": code}, token=login["access_token"])).status == 200
    assert (await switch(holder, on=False)).status == 200
    assert await run_sql(pool, "select count(*) from backup_codes") == [(0,)]


async def test_platform_owners_remove_it_and_keep_the_passkeys(
    api: Api, holder: PasskeyUser, user: Account, platform: Platform, pool: Pool
) -> None:
    await holder.add(second_factor=True)
    path = f"/api/platform/users/{user.id}/mfa"
    status = await api.get(f"{path}/status", token=platform.token)
    assert status.json["mfa_enabled"] is True
    answer = await api.call("DELETE", path, {"reason": "lost"}, token=platform.token)
    assert answer.status == 200, answer.text
    assert "mfa_required" not in (await api.login()).json
    assert await run_sql(pool, "select passkey_count, passkey_second_at from users where id = %s", user.id) == [(1, None)]


@pytest.mark.parametrize("deletes", [False, True])
async def test_an_undo_turns_it_on_again(
    api: Api, holder: PasskeyUser, user: Account, ports: Ports, sent: FakeMailTransport, pool: Pool, clock: FakeClock, *, deletes: bool
) -> None:
    key = await holder.add_key()
    clock.advance(UNDO_TTL)
    thief = PasskeyUser(api, (await sign_in(ports, user, second_factor=True)).access_token)
    if deletes:
        assert (await api.delete(f"{PASSKEYS}/{key['id']}", token=thief.token)).status == 204
    else:
        assert (await switch(thief, on=False)).status == 200
    await deliver(ports)
    token = link(sent.emails[-1])
    clock.advance(timedelta(minutes=1))
    assert (await undo(api, token)).status == 200
    assert (await verify_second(api, await start_login(api), holder.authenticator)).status == 200
    assert await run_sql(pool, "select count(*) from backup_codes") == [(0,)]


async def test_an_undo_turns_off_what_a_thief_turned_on(
    api: Api, holder: PasskeyUser, user: Account, ports: Ports, sent: FakeMailTransport, pool: Pool, clock: FakeClock
) -> None:
    await holder.add()
    clock.advance(UNDO_TTL)
    thief = PasskeyUser(api, (await sign_in(ports, user)).access_token)
    await thief.confirm(holder.authenticator)
    assert (await switch(thief, on=True)).status == 200
    await deliver(ports)
    assert (await undo(api, link(sent.emails[-1]))).status == 200
    assert "mfa_required" not in (await api.login()).json
    assert await run_sql(pool, "select passkey_count, passkey_second_at from users") == [(1, None)]


async def test_a_personal_token_has_the_proofs_of_the_session_that_made_it(
    api: Api, holder: PasskeyUser, user: Account, pool: Pool
) -> None:
    holder.token = (await api.login()).json["access_token"]
    await holder.add()
    body = {"name": "CI", "scopes": ["account:read"], "expires_in_days": 7}
    assert (await api.post("/api/user/personal-tokens", body, token=holder.token)).status == 200
    stored = "select proofs, strength from sessions where strength = 3 order by personal_token"
    [session, token] = await run_sql(pool, stored)
    assert session == token
    assert [proof["method"] for proof in token[0]] == ["password", "passkey"]


async def test_platform_owners_see_how_many_keys_a_user_has(api: Api, holder: PasskeyUser, user: Account, platform: Platform) -> None:
    await holder.add()
    await PasskeyUser(api, holder.token).add_key()
    details = (await api.get(f"/api/platform/users/{user.id}", token=platform.token)).json
    assert (details["passkeys"], details["security_keys"]) == (1, 1)


async def test_the_pages_about_keys_as_second_factor_speak_of_no_app(holder: PasskeyUser, app: QuartTrio, pool: Pool) -> None:
    await holder.add()
    await run_sql(pool, "update passkeys set user_verified = false")  # otherwise the change needs the passkey
    browser = FakeBrowser(app)
    await browser.sign_in()
    codes = await browser.submit("/app/account/passkeys/second-factor", enabled="yes")
    assert "Sign-ins ask for your second factor from now on." in main_of(codes)
    assert not any(word in main_of(codes) for word in ("need a code", "authenticator app"))
