"""Logins with the second factor (security A-3, A-10, J-8, M-1, M-2, M-3)."""

from datetime import timedelta

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.policy import Policy
from ports import Ports
from tests.accounts.email_changes import change_email
from tests.authentication.api.second_factor.sign_ins import start_login, verify
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.support.builders import EMAIL, NEW_PASSWORD, PASSWORD, Api, add_account, deliver, link, run_concurrently, run_sql, sign_in
from tests.support.direct import change_ports
from tests.support.mfa import Authenticator
from tests.support.services import add_service
from tests.support.tenants import Tenants


async def test_the_password_gives_a_pre_auth_token_and_the_code_gives_tokens(
    api: Api, ports: Ports, authenticator: Authenticator, metrics: FakeMetrics
) -> None:
    first = await api.login()
    methods = {"mfa_required": True, "methods": ["totp", "backup_code"]}
    assert first.json == {"access_token": first.json["access_token"], "refresh_token": "", "expires_in": 600, **methods}
    assert first.headers["Cache-Control"] == "no-store"
    assert metrics.tokens_issued == 0
    second = await verify(api, first.json["access_token"], authenticator.code())
    assert second.status == 200
    assert set(second.json) == {"access_token", "refresh_token", "expires_in"}
    assert second.json["expires_in"] == 900
    assert (await api.get("/api/user", token=second.json["access_token"])).json["email"] == EMAIL
    assert (await api.post("/api/auth/refresh", {"refresh_token": second.json["refresh_token"]})).status == 200


async def test_without_a_second_factor_the_response_does_not_mention_one(api: Api, ports: Ports) -> None:
    await add_account(ports)
    assert set((await api.login()).json) == {"access_token", "refresh_token", "expires_in"}


async def test_the_login_is_recorded_when_the_tokens_are_issued(api: Api, pool: Pool, authenticator: Authenticator) -> None:
    records = """
        select (select count(*) from login_events), (select count(*) from devices), (select count(*) from events),
               (select count(*) from sessions)"""
    token = await start_login(api)
    assert await run_sql(pool, records) == [(0, 0, 0, 0)]
    await verify(api, token, authenticator.code())
    assert await run_sql(pool, records) == [(1, 1, 1, 1)]
    assert await run_sql(pool, "select name, data->>'provider' from events") == [("user.login.success", "password")]


async def test_a_pre_auth_token_is_refused_everywhere_else(api: Api, authenticator: Authenticator) -> None:
    token = await start_login(api)
    for method, path in (("GET", "/api/user"), ("DELETE", "/api/user/mfa"), ("POST", "/api/auth/logout"), ("GET", "/api/organizations")):
        answer = await api.call(method, path, token=token)
        assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
        assert answer.headers["WWW-Authenticate"].startswith('Bearer error="invalid_token"')
    refresh_answer = await api.post("/api/auth/refresh", {"refresh_token": token})
    assert (refresh_answer.status, refresh_answer.code) == (401, "UNAUTHORIZED")


async def test_an_access_token_is_not_a_pre_auth_token(api: Api, ports: Ports, authenticator: Authenticator) -> None:
    grace = await add_account(ports, "grace@example.com")
    answer = await verify(api, (await sign_in(ports, grace)).access_token, authenticator.code())
    assert (answer.status, answer.code) == (401, "UNAUTHORIZED")


async def test_the_verification_needs_a_token(api: Api, authenticator: Authenticator) -> None:
    answer = await api.post("/api/auth/mfa/verify", {"code": authenticator.code()})
    assert (answer.status, answer.code, answer.headers["WWW-Authenticate"]) == (401, "UNAUTHORIZED", "Bearer")
    answer = await verify(api, "nonsense", authenticator.code())
    assert (answer.status, answer.code) == (401, "JWT_ERROR")


async def test_a_pre_auth_token_works_once(api: Api, authenticator: Authenticator, clock: FakeClock) -> None:
    token = await start_login(api)
    assert (await verify(api, token, authenticator.code())).status == 200
    clock.advance(timedelta(seconds=60))
    second_answer = await verify(api, token, authenticator.code())
    assert (second_answer.status, second_answer.code) == (401, "UNAUTHORIZED")


async def test_a_pre_auth_token_expires_after_ten_minutes(api: Api, authenticator: Authenticator, clock: FakeClock) -> None:
    token = await start_login(api)
    clock.advance(timedelta(seconds=599))
    assert (await verify(api, token, authenticator.wrong())).code == "UNAUTHORIZED"
    clock.advance(timedelta(seconds=1))
    late_answer = await verify(api, token, authenticator.code())
    assert (late_answer.status, late_answer.code) == (401, "TOKEN_EXPIRED")
    assert "Sign in again" in late_answer.json["error"]


async def test_five_wrong_codes_end_the_pre_auth_token(api: Api, authenticator: Authenticator) -> None:
    token = await start_login(api)
    for _ in range(5):
        assert (await verify(api, token, authenticator.wrong())).status == 401
    assert (await verify(api, token, authenticator.code())).status == 401
    assert (await verify(api, await start_login(api), authenticator.code())).status == 200


async def test_attempts_at_an_ended_sign_in_reveal_nothing_about_the_account(api: Api, pool: Pool, authenticator: Authenticator) -> None:
    token = await start_login(api)
    for _ in range(5):
        await verify(api, token, authenticator.wrong())
    rows = await run_sql(pool, "select failures from guesses where secret = 'mfa'")
    for answer in await run_concurrently(10, lambda _: verify(api, token, authenticator.wrong())):
        assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
    assert await run_sql(pool, "select failures from guesses where secret = 'mfa'") == rows == [(5,)]


async def test_a_malformed_code_is_not_counted(api: Api, authenticator: Authenticator) -> None:
    """The test sends more malformed codes than the five wrong codes that would end the sign-in."""
    token = await start_login(api)
    for code in ("", "12345", "1234567", "12 34 56", "١٢٣٤٥٦", "abcd-efgh", "ABCDEFGH", "ABCD-EFGH ", "1234O6"):
        answer = await verify(api, token, code)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), code
    assert (await verify(api, token, authenticator.code())).status == 200


async def test_wrong_codes_are_recorded_as_failed_logins(api: Api, pool: Pool, authenticator: Authenticator, metrics: FakeMetrics) -> None:
    await verify(api, await start_login(api), authenticator.wrong())
    assert metrics.login_failures == {"mfa": 1}
    assert await run_sql(pool, "select provider, success from login_events") == [("password", False)]


async def test_ten_wrong_codes_lock_the_second_factor_for_every_client(api: Api, authenticator: Authenticator, clock: FakeClock) -> None:
    for _ in range(2):
        token = await start_login(api)
        for _ in range(5):
            assert (await verify(api, token, authenticator.wrong())).status == 401
    token = await start_login(api)
    for code in (authenticator.code(), authenticator.backup_codes[0]):
        waiting = await verify(api, token, code)
        assert (waiting.status, waiting.code, waiting.headers["Retry-After"]) == (429, "RATE_LIMIT_EXCEEDED", "900")
    clock.advance(timedelta(seconds=599))
    assert (await verify(api, token, authenticator.code())).status == 429
    clock.advance(timedelta(seconds=301))
    token = await start_login(api)
    assert (await verify(api, token, authenticator.wrong())).status == 401
    assert (await verify(api, token, authenticator.code())).status == 200


async def test_a_time_step_works_once_and_older_ones_stop_working(api: Api, authenticator: Authenticator, clock: FakeClock) -> None:
    code, before = authenticator.code(), authenticator.code(-1)
    assert (await verify(api, await start_login(api), code)).status == 200
    for old_code in (code, before):
        assert (await verify(api, await start_login(api), old_code)).status == 401
    assert (await verify(api, await start_login(api), authenticator.code(1))).status == 200


async def test_a_backup_code_works_once(api: Api, authenticator: Authenticator, sent: FakeMailTransport, ports: Ports) -> None:
    code = authenticator.backup_codes[3]
    assert (await verify(api, await start_login(api), code)).status == 200
    assert (await verify(api, await start_login(api), code)).status == 401
    await deliver(ports)
    assert ["backup code" in letter.subject.lower() for letter in sent.emails] == [True]


@pytest.mark.parametrize("kind", ["step", "backup code", "pre-auth token"])
@pytest.mark.slow
async def test_twenty_concurrent_requests_with_one_code_give_one_session(
    api: Api, pool: Pool, ports: Ports, app: QuartTrio, authenticator: Authenticator, kind: str
) -> None:
    change_ports(app, policy=Policy(mfa_guess_limit=1000))
    tokens = [await start_login(api)] * 20 if kind == "pre-auth token" else [await start_login(api) for _ in range(20)]
    code = authenticator.backup_codes[0] if kind == "backup code" else authenticator.code()
    answers = await run_concurrently(20, lambda number: verify(api, tokens[number], code))
    assert sorted(answer.status for answer in answers) == [200] + [401] * 19
    assert await run_sql(pool, "select count(*) from sessions") == [(1,)]
    backup_codes = [("backup_code_used",)] if kind == "backup code" else []
    of_success = "select event_type from mfa_events where event_type in ('mfa_verify_success', 'backup_code_used') order by 1"
    assert await run_sql(pool, of_success) == [*backup_codes, ("mfa_verify_success",)]
    assert await run_sql(pool, "select kind from mails") == backup_codes


async def test_a_service_gets_its_tokens_after_the_second_factor(
    api: Api, tenants: Tenants, pool: Pool, authenticator: Authenticator
) -> None:
    acme = await tenants.add("acme")
    service = await add_service(pool, acme.org, "shop")
    token = await start_login(api, org_slug="acme", service_slug="shop")
    assert await run_sql(pool, "select count(*) from service_users") == [(0,)]
    answer = await verify(api, token, authenticator.code())
    profile = await api.get("/api/user", token=answer.json["access_token"])
    assert (profile.json["org"], profile.json["service"]) == ("acme", "shop")
    assert await run_sql(pool, "select service_id from login_events") == [(service,)]


async def test_a_service_that_closes_before_the_code_refuses_the_login(
    api: Api, tenants: Tenants, pool: Pool, authenticator: Authenticator
) -> None:
    acme = await tenants.add("acme")
    await add_service(pool, acme.org, "shop")
    token = await start_login(api, org_slug="acme", service_slug="shop")
    await acme.set_status("suspended")
    answer = await verify(api, token, authenticator.code())
    assert (answer.status, answer.code) == (403, "ORGANIZATION_NOT_ACTIVE")
    assert await run_sql(pool, "select 1 from guesses where secret = 'mfa'") == []  # the code was right


# How pending sign-ins end


@pytest.mark.parametrize("change", ["change", "reset", "disable", "address", "deactivated", "anonymized"])
async def test_security_changes_end_pending_sign_ins(
    api: Api, ports: Ports, pool: Pool, authenticator: Authenticator, sent: FakeMailTransport, clock: FakeClock, change: str
) -> None:
    signed_in = (await verify(api, await start_login(api), authenticator.code())).json["access_token"]
    waiting = await start_login(api)
    match change:
        case "change":
            body = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
            assert (await api.post("/api/user/change-password", body, token=signed_in)).status == 200
        case "reset":
            await api.post("/api/auth/forgot-password", {"email": EMAIL})
            await deliver(ports)
            body = {"token": link(sent.emails[-1]), "new_password": NEW_PASSWORD}
            assert (await api.post("/api/auth/reset-password", body)).status == 200
        case "disable":
            assert (await api.delete("/api/user/mfa", token=signed_in)).status == 200
        case "address":
            assert (await change_email(api, ports, signed_in, "new@example.com")).status == 200
        case state:
            await run_sql(pool, f"update users set {state}_at = now()")  # noqa: S608
    clock.advance(timedelta(seconds=60))
    answer = await verify(api, waiting, authenticator.code())
    assert (answer.status, answer.code) == (401, "UNAUTHORIZED")


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [["step"], ["backup code"], ["step", "backup code"]], ids=" and ".join)
async def test_concurrent_wrong_codes_are_all_counted(api: Api, pool: Pool, authenticator: Authenticator, kinds: list[str]) -> None:
    wrong = {"step": authenticator.wrong(), "backup code": "ZZZZ-9999"}
    tokens = [await start_login(api) for _ in range(20)]
    answers = await run_concurrently(20, lambda number: verify(api, tokens[number], wrong[kinds[number % len(kinds)]]))
    limit = Policy().mfa_guess_limit
    assert sorted(answer.status for answer in answers) == [401] * limit + [429] * (20 - limit)
    assert await run_sql(pool, "select failures from guesses where secret = 'mfa'") == [(limit,)]
    assert await run_sql(pool, "select count(*) from mfa_events where event_type = 'mfa_verify_failed'") == [(limit,)]
