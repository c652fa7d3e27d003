"""Password recovery and password changes, with their side effects."""

from datetime import timedelta

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.security_notices import UNDO_TTL
from ports import Ports
from tests.accounts.api.email_links import query_value, register, request_reset
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import (
    EMAIL,
    NEW_PASSWORD,
    PASSWORD,
    Api,
    add_account,
    add_member,
    add_organization,
    deliver,
    link,
    run_concurrently,
    run_sql,
    sign_in,
)
from tests.support.mfa import add_mfa


async def test_a_reset_ends_all_sessions_and_starts_none(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await add_account(ports)
    first, second = (await api.login()).json, (await api.login()).json
    token = await request_reset(api, ports, sent)
    answer = await api.post("/api/auth/reset-password", {"token": token, "new_password": NEW_PASSWORD})
    assert (answer.status, set(answer.json)) == (200, {"message"})
    for tokens in (first, second):
        assert (await api.get("/api/user", token=tokens["access_token"])).code == "UNAUTHORIZED"
        assert (await api.post("/api/auth/refresh", {"refresh_token": tokens["refresh_token"]})).status == 401
    assert (await api.login()).status == 401
    assert (await api.login(password=NEW_PASSWORD)).status == 200
    second_answer = await api.post("/api/auth/reset-password", {"token": token, "new_password": PASSWORD})
    assert (second_answer.status, second_answer.code) == (400, "BAD_REQUEST")
    await deliver(ports)
    assert sent.newest("Your password was changed").to == EMAIL


async def test_a_reset_link_ends_after_an_hour_or_with_the_next_one(
    api: Api, ports: Ports, sent: FakeMailTransport, clock: FakeClock
) -> None:
    await add_account(ports)
    first = await request_reset(api, ports, sent)
    second = await request_reset(api, ports, sent)
    assert (await api.post("/api/auth/reset-password", {"token": first, "new_password": NEW_PASSWORD})).status == 400
    clock.advance(timedelta(hours=1))
    assert (await api.post("/api/auth/reset-password", {"token": second, "new_password": NEW_PASSWORD})).status == 400


async def test_a_refused_new_password_leaves_the_link_usable(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await add_account(ports)
    token = await request_reset(api, ports, sent)
    for weak in ("short", "a" * 129):
        assert (await api.post("/api/auth/reset-password", {"token": token, "new_password": weak})).code == "BAD_REQUEST"
    assert (await api.post("/api/auth/reset-password", {"token": token, "new_password": NEW_PASSWORD})).status == 200


async def test_a_reset_verifies_the_address_and_removes_the_access_of_a_squatter(
    api: Api, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    await register(api, password="the squatter's password")
    await deliver(ports)
    squatters_link = link(sent.emails[0])
    token = await request_reset(api, ports, sent)
    assert (await api.post("/api/auth/reset-password", {"token": token, "new_password": NEW_PASSWORD})).status == 200
    assert (await api.login(password=NEW_PASSWORD)).status == 200
    assert (await api.login(password="the squatter's password")).status == 401
    assert (await api.get(f"/auth/verify-email?token={squatters_link}")).status == 400


async def test_the_first_verification_removes_the_second_factor_and_identity_of_a_squatter(
    api: Api, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    squatter = await add_account(ports, verified=False)
    await add_mfa(ports, squatter)
    insert = """
        insert into identities (id, user_id, provider, provider_user_id, linked_at)
        values (gen_random_uuid(), %s, 'codehost', '1', now())"""
    await run_sql(pool, insert, squatter.id)
    await sign_in(ports, squatter)
    token = await request_reset(api, ports, sent)
    assert (await api.post("/api/auth/reset-password", {"token": token, "new_password": NEW_PASSWORD})).status == 200
    query = """
        select (select count(*) from mfa), (select count(*) from backup_codes), (select count(*) from identities),
               (select count(*) from sessions where ended_at is null)"""
    assert await run_sql(pool, query) == [(0, 0, 0, 0)]
    assert "mfa_required" not in (await api.login(password=NEW_PASSWORD)).json


async def test_a_reset_after_a_change_of_address_removes_linked_identities(
    api: Api, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    squatter = await add_account(ports, "squatter@example.com")
    insert = """
        insert into identities (id, user_id, provider, provider_user_id, linked_at)
        values (gen_random_uuid(), %s, 'codehost', '1', now())"""
    await run_sql(pool, insert, squatter.id)
    token = (await sign_in(ports, squatter)).access_token
    await run_sql(pool, "update users set email = %s, email_verified_at = null", EMAIL)  # as a directory does
    reset = await request_reset(api, ports, sent)
    assert (await api.post("/api/auth/reset-password", {"token": reset, "new_password": NEW_PASSWORD})).status == 200
    assert await run_sql(pool, "select 1 from identities") == []
    assert (await api.get("/api/user", token=token)).status == 401


async def test_a_reset_keeps_an_old_second_factor(api: Api, ports: Ports, sent: FakeMailTransport, clock: FakeClock) -> None:
    await add_mfa(ports, await add_account(ports))
    clock.advance(UNDO_TTL)
    token = await request_reset(api, ports, sent)
    assert (await api.post("/api/auth/reset-password", {"token": token, "new_password": NEW_PASSWORD})).status == 200
    assert (await api.login(password=NEW_PASSWORD)).json["mfa_required"] is True


async def test_a_password_change_keeps_only_the_current_session(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await add_account(ports)
    reset = await request_reset(api, ports, sent)
    other, current = (await api.login()).json, (await api.login()).json
    change = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    wrong = await api.post("/api/user/change-password", {**change, "current_password": "wrong password"}, token=current["access_token"])
    assert (wrong.status, wrong.code) == (401, "UNAUTHORIZED")
    assert (await api.post("/api/user/change-password", {**change, "new_password": "short"}, token=current["access_token"])).status == 400
    assert (await api.post("/api/user/change-password", change, token=current["access_token"])).status == 200
    assert (await api.get("/api/user", token=current["access_token"])).status == 200
    assert (await api.get("/api/user", token=other["access_token"])).status == 401
    assert (await api.post("/api/auth/reset-password", {"token": reset, "new_password": PASSWORD})).status == 400
    assert (await api.login(password=NEW_PASSWORD)).status == 200


async def test_a_first_password_is_set_once(api: Api, ports: Ports, sent: FakeMailTransport, pool: Pool) -> None:
    account = await add_account(ports)
    token = (await api.login()).json["access_token"]
    assert (await api.post("/api/user/set-password", {"new_password": NEW_PASSWORD}, token=token)).status == 400
    await query_value(pool, "update users set password_hash = null where id = %s returning 1", account.id)
    reset = await request_reset(api, ports, sent)
    change = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    assert (await api.post("/api/user/change-password", change, token=token)).status == 400
    assert (await api.post("/api/user/set-password", {"new_password": "short"}, token=token)).status == 400
    assert (await api.post("/api/user/set-password", {"new_password": NEW_PASSWORD}, token=token)).status == 200
    assert (await api.get("/api/user", token=token)).status == 200
    assert (await api.login(password=NEW_PASSWORD)).status == 200
    assert (await api.post("/api/auth/reset-password", {"token": reset, "new_password": PASSWORD})).status == 400


@pytest.mark.parametrize("password", ["Football1", f"x{EMAIL}", "gatehouse forever"])
async def test_an_obvious_password_is_refused_wherever_one_is_set(
    api: Api, ports: Ports, sent: FakeMailTransport, pool: Pool, password: str
) -> None:
    refused = await register(api, password=password)
    message = refused.json["error"]
    assert (refused.status, "four random words" in message) == (400, True)
    account = await add_account(ports)
    token, reset = (await api.login()).json["access_token"], await request_reset(api, ports, sent)
    assert (await api.post("/api/auth/reset-password", {"token": reset, "new_password": password})).json["error"] == message
    change = {"current_password": PASSWORD, "new_password": password}
    assert (await api.post("/api/user/change-password", change, token=token)).json["error"] == message
    await query_value(pool, "update users set password_hash = null where id = %s returning 1", account.id)
    assert (await api.post("/api/user/set-password", {"new_password": password}, token=token)).json["error"] == message


async def test_every_password_change_is_logged_with_its_method(api: Api, ports: Ports, sent: FakeMailTransport, pool: Pool) -> None:
    account = await add_account(ports)
    org = await add_organization(pool, "acme")
    await add_member(pool, org, account.id, confirmed=True)
    token = (await api.login()).json["access_token"]
    await api.post(
        "/api/user/change-password",
        {"current_password": PASSWORD, "new_password": NEW_PASSWORD},
        token=token,
        headers={"User-Agent": "tests"},
    )
    reset = await request_reset(api, ports, sent)
    await api.post("/api/auth/reset-password", {"token": reset, "new_password": PASSWORD})
    async with pool.connection() as connection:
        rows = await (
            await connection.execute(
                """
            select action, target_type, target_id, org_id, actor_id, agent, details->>'method'
            from audit_log where action = 'security.password.changed' order by created_at, details->>'method'"""
            )
        ).fetchall()
    subject = str(account.id)
    assert rows == [
        ("security.password.changed", "user", subject, org, account.id, "tests", "change"),
        ("security.password.changed", "user", subject, org, None, rows[1][5], "reset"),
    ]
    event_count = await query_value(pool, "select count(*) from events where name = 'security.password.changed' and org_id = %s", org)
    assert event_count == 2


async def test_opening_the_reset_page_does_not_use_the_link_up(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await add_account(ports)
    token = await request_reset(api, ports, sent)
    page = await api.get(f"/auth/reset-password?token={token}")
    assert page.status == 200
    assert "form-action 'self'" in page.headers["Content-Security-Policy"]
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    weak = await api.call("POST", "/auth/reset-password", raw=f"token={token}&new_password=short".encode(), headers=form)
    assert weak.status == 400
    assert "at least 8 characters" in weak.text
    foreign = {**form, "Sec-Fetch-Site": "cross-site"}
    body = f"token={token}&new_password=another+good+password".encode()
    assert (await api.call("POST", "/auth/reset-password", raw=body, headers=foreign)).status == 403
    assert (await api.call("POST", "/auth/reset-password", raw=body, headers={**form, "Origin": "https://evil.example"})).status == 403
    assert (await api.call("POST", "/auth/reset-password", raw=body, headers={"Content-Type": "text/plain"})).status == 415
    answer = await api.call("POST", "/auth/reset-password", raw=body, headers={**form, "Origin": "null", "Sec-Fetch-Site": "same-origin"})
    assert answer.status == 200
    assert (await api.login(password=NEW_PASSWORD)).status == 200
    assert (await api.get(f"/auth/reset-password?token={token}")).status == 400


async def test_of_20_concurrent_resets_one_succeeds(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await add_account(ports)
    token = await request_reset(api, ports, sent)

    async def reset(number: int) -> tuple[int, str]:
        password = f"password number {number}"
        return (await api.post("/api/auth/reset-password", {"token": token, "new_password": password})).status, password

    outcomes = await run_concurrently(20, reset)
    [winner] = [password for status, password in outcomes if status == 200]
    assert sorted(status for status, _ in outcomes) == [200] + [400] * 19
    assert (await api.login(password=winner)).status == 200
