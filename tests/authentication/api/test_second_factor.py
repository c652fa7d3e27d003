"""Tests of logins with the second factor (decisions 41, 42, 60, 61; security A-3, A-10, J-8, M-1, M-2, M-3, S-5).

The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

from datetime import timedelta
from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.policy import Policy
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.support.builders import (
    EMAIL,
    FIREFOX,
    NEW_PASSWORD,
    PASSWORD,
    Answer,
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
from tests.support.direct import change_ports
from tests.support.mfa import Authenticator, add_mfa
from tests.support.services import add_service
from tests.support.tenants import Tenants


@pytest.fixture
async def app_of_ada(ports: Ports) -> Authenticator:
    """Return the authenticator app of the user."""
    return await add_mfa(ports, await add_account(ports))


async def pre_auth(api: Api, **more: Any) -> str:
    """Return the pre-auth token of a login with the right password."""
    answer = await api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD, **more})
    assert (answer.status, answer.json.get("mfa_required")) == (200, True), answer.text
    return str(answer.json["access_token"])


async def verify(api: Api, token: str, code: str, **more: Any) -> Answer:
    return await api.post("/api/auth/mfa/verify", {"code": code, **more}, token=token)


async def trusted(api: Api, authenticator: Authenticator, clock: FakeClock) -> str:
    """Trust a device, and return its token. The clock moves, so that the next code is a new one."""
    answer = await verify(api, await pre_auth(api), authenticator.code(), trust_device=True)
    clock.advance(timedelta(seconds=90))
    return str(answer.json["device_token"])


async def test_the_password_gives_a_pre_auth_token_and_the_code_gives_tokens(
    api: Api, ports: Ports, app_of_ada: Authenticator, metrics: FakeMetrics
) -> None:
    first = await api.login()
    assert first.json == {"access_token": first.json["access_token"], "refresh_token": "", "expires_in": 600, "mfa_required": True}
    assert first.headers["Cache-Control"] == "no-store"
    assert metrics.tokens_issued == 0
    second = await verify(api, first.json["access_token"], app_of_ada.code())
    assert second.status == 200
    assert set(second.json) == {"access_token", "refresh_token", "expires_in"}
    assert second.json["expires_in"] == 900
    assert (await api.get("/api/user", token=second.json["access_token"])).json["email"] == EMAIL
    assert (await api.post("/api/auth/refresh", {"refresh_token": second.json["refresh_token"]})).status == 200


async def test_without_a_second_factor_the_response_does_not_mention_one(api: Api, ports: Ports) -> None:
    await add_account(ports)
    assert set((await api.login()).json) == {"access_token", "refresh_token", "expires_in"}


async def test_the_login_is_recorded_when_the_tokens_are_issued(api: Api, pool: Pool, app_of_ada: Authenticator) -> None:
    records = """
        select (select count(*) from login_events), (select count(*) from devices), (select count(*) from events),
               (select count(*) from sessions)"""
    token = await pre_auth(api)
    assert await run_sql(pool, records) == [(0, 0, 0, 0)]
    await verify(api, token, app_of_ada.code())
    assert await run_sql(pool, records) == [(1, 1, 1, 1)]
    assert await run_sql(pool, "select name, data->>'provider' from events") == [("user.login.success", "password")]


async def test_a_pre_auth_token_is_refused_everywhere_else(api: Api, app_of_ada: Authenticator) -> None:
    token = await pre_auth(api)
    for method, path in (("GET", "/api/user"), ("DELETE", "/api/user/mfa"), ("POST", "/api/auth/logout"), ("GET", "/api/organizations")):
        answer = await api.call(method, path, token=token)
        assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
        assert answer.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'
    refused = await api.post("/api/auth/refresh", {"refresh_token": token})
    assert (refused.status, refused.code) == (401, "UNAUTHORIZED")


async def test_an_access_token_is_not_a_pre_auth_token(api: Api, ports: Ports, app_of_ada: Authenticator) -> None:
    grace = await add_account(ports, "grace@example.com")
    answer = await verify(api, (await sign_in(ports, grace)).access_token, app_of_ada.code())
    assert (answer.status, answer.code) == (401, "UNAUTHORIZED")


async def test_the_verification_needs_a_token(api: Api, app_of_ada: Authenticator) -> None:
    answer = await api.post("/api/auth/mfa/verify", {"code": app_of_ada.code()})
    assert (answer.status, answer.code, answer.headers["WWW-Authenticate"]) == (401, "UNAUTHORIZED", "Bearer")
    answer = await verify(api, "nonsense", app_of_ada.code())
    assert (answer.status, answer.code) == (401, "JWT_ERROR")


async def test_a_pre_auth_token_works_once(api: Api, app_of_ada: Authenticator, clock: FakeClock) -> None:
    token = await pre_auth(api)
    assert (await verify(api, token, app_of_ada.code())).status == 200
    clock.advance(timedelta(seconds=60))
    again = await verify(api, token, app_of_ada.code())
    assert (again.status, again.code) == (401, "UNAUTHORIZED")


async def test_a_pre_auth_token_expires_after_ten_minutes(api: Api, app_of_ada: Authenticator, clock: FakeClock) -> None:
    token = await pre_auth(api)
    clock.advance(timedelta(seconds=599))
    assert (await verify(api, token, app_of_ada.wrong())).code == "UNAUTHORIZED"
    clock.advance(timedelta(seconds=1))
    late = await verify(api, token, app_of_ada.code())
    assert (late.status, late.code) == (401, "TOKEN_EXPIRED")
    assert "Sign in again" in late.json["error"]


async def test_five_wrong_codes_end_the_pre_auth_token(api: Api, app_of_ada: Authenticator) -> None:
    token = await pre_auth(api)
    for _ in range(5):
        assert (await verify(api, token, app_of_ada.wrong())).status == 401
    assert (await verify(api, token, app_of_ada.code())).status == 401
    assert (await verify(api, await pre_auth(api), app_of_ada.code())).status == 200


async def test_attempts_at_an_ended_sign_in_reveal_nothing_about_the_account(api: Api, pool: Pool, app_of_ada: Authenticator) -> None:
    token = await pre_auth(api)
    for _ in range(5):
        await verify(api, token, app_of_ada.wrong())
    counted = await run_sql(pool, "select failures from guesses where secret = 'mfa'")
    for answer in await run_concurrently(10, lambda _: verify(api, token, app_of_ada.wrong())):
        assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
    assert await run_sql(pool, "select failures from guesses where secret = 'mfa'") == counted == [(5,)]


async def test_a_malformed_code_is_not_counted(api: Api, app_of_ada: Authenticator) -> None:
    """More malformed codes than the five wrong ones that would end the sign-in."""
    token = await pre_auth(api)
    for code in ("", "12345", "1234567", "12 34 56", "١٢٣٤٥٦", "abcd-efgh", "ABCDEFGH", "ABCD-EFGH ", "1234O6"):
        answer = await verify(api, token, code)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), code
    assert (await verify(api, token, app_of_ada.code())).status == 200


async def test_wrong_codes_are_recorded_as_failed_logins(api: Api, pool: Pool, app_of_ada: Authenticator, metrics: FakeMetrics) -> None:
    await verify(api, await pre_auth(api), app_of_ada.wrong())
    assert metrics.login_failures == {"mfa": 1}
    assert await run_sql(pool, "select provider, success from login_events") == [("password", False)]


async def test_ten_wrong_codes_lock_the_second_factor_for_every_client(api: Api, app_of_ada: Authenticator, clock: FakeClock) -> None:
    for _ in range(2):
        token = await pre_auth(api)
        for _ in range(5):
            assert (await verify(api, token, app_of_ada.wrong())).status == 401
    token = await pre_auth(api)
    for code in (app_of_ada.code(), app_of_ada.backup_codes[0]):
        waiting = await verify(api, token, code)
        assert (waiting.status, waiting.code, waiting.headers["Retry-After"]) == (429, "RATE_LIMIT_EXCEEDED", "900")
    clock.advance(timedelta(seconds=599))
    assert (await verify(api, token, app_of_ada.code())).status == 429
    clock.advance(timedelta(seconds=301))
    token = await pre_auth(api)
    assert (await verify(api, token, app_of_ada.wrong())).status == 401
    assert (await verify(api, token, app_of_ada.code())).status == 200


async def test_a_time_step_works_once_and_older_ones_stop_working(api: Api, app_of_ada: Authenticator, clock: FakeClock) -> None:
    code, before = app_of_ada.code(), app_of_ada.code(-1)
    assert (await verify(api, await pre_auth(api), code)).status == 200
    for used in (code, before):
        assert (await verify(api, await pre_auth(api), used)).status == 401
    assert (await verify(api, await pre_auth(api), app_of_ada.code(1))).status == 200


async def test_a_backup_code_works_once(api: Api, app_of_ada: Authenticator, sent: FakeMailTransport, ports: Ports) -> None:
    code = app_of_ada.backup_codes[3]
    assert (await verify(api, await pre_auth(api), code)).status == 200
    assert (await verify(api, await pre_auth(api), code)).status == 401
    await deliver(ports)
    assert ["backup code" in letter.subject.lower() for letter in sent.emails] == [True]


@pytest.mark.parametrize("kind", ["step", "backup code", "pre-auth token"])
@pytest.mark.slow
async def test_twenty_concurrent_requests_with_one_code_give_one_session(
    api: Api, pool: Pool, ports: Ports, app: QuartTrio, app_of_ada: Authenticator, kind: str
) -> None:
    change_ports(app, policy=Policy(mfa_guess_limit=1000))
    tokens = [await pre_auth(api)] * 20 if kind == "pre-auth token" else [await pre_auth(api) for _ in range(20)]
    code = app_of_ada.backup_codes[0] if kind == "backup code" else app_of_ada.code()
    answers = await run_concurrently(20, lambda number: verify(api, tokens[number], code))
    assert sorted(answer.status for answer in answers) == [200] + [401] * 19
    assert await run_sql(pool, "select count(*) from sessions") == [(1,)]
    backup_codes = [("backup_code_used",)] if kind == "backup code" else []
    of_success = "select event_type from mfa_events where event_type in ('mfa_verify_success', 'backup_code_used') order by 1"
    assert await run_sql(pool, of_success) == [*backup_codes, ("mfa_verify_success",)]
    assert await run_sql(pool, "select kind from mails") == backup_codes


async def test_a_service_gets_its_tokens_after_the_second_factor(api: Api, tenants: Tenants, pool: Pool, app_of_ada: Authenticator) -> None:
    acme = await tenants.add("acme")
    service = await add_service(pool, acme.org, "shop")
    token = await pre_auth(api, org_slug="acme", service_slug="shop")
    assert await run_sql(pool, "select count(*) from service_users") == [(0,)]
    answer = await verify(api, token, app_of_ada.code())
    profile = await api.get("/api/user", token=answer.json["access_token"])
    assert (profile.json["org"], profile.json["service"]) == ("acme", "shop")
    assert await run_sql(pool, "select service_id from login_events") == [(service,)]


async def test_a_service_that_closes_before_the_code_refuses_the_login(
    api: Api, tenants: Tenants, pool: Pool, app_of_ada: Authenticator
) -> None:
    acme = await tenants.add("acme")
    await add_service(pool, acme.org, "shop")
    token = await pre_auth(api, org_slug="acme", service_slug="shop")
    await acme.set_status("suspended")
    answer = await verify(api, token, app_of_ada.code())
    assert (answer.status, answer.code) == (403, "ORGANIZATION_NOT_ACTIVE")
    assert await run_sql(pool, "select 1 from guesses where secret = 'mfa'") == []  # the code was right


# Ends of pending sign-ins


@pytest.mark.parametrize("how", ["change", "reset", "disable", "address", "deactivated", "anonymized"])
async def test_security_changes_end_pending_sign_ins(
    api: Api, ports: Ports, pool: Pool, app_of_ada: Authenticator, sent: FakeMailTransport, clock: FakeClock, how: str
) -> None:
    signed_in = (await verify(api, await pre_auth(api), app_of_ada.code())).json["access_token"]
    waiting = await pre_auth(api)
    match how:
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
            assert (await api.patch("/api/user", {"email": "new@example.com"}, token=signed_in)).status == 200
        case state:
            await run_sql(pool, f"update users set {state}_at = now()")  # noqa: S608
    clock.advance(timedelta(seconds=60))
    answer = await verify(api, waiting, app_of_ada.code())
    assert (answer.status, answer.code) == (401, "UNAUTHORIZED")


# Trusted devices


async def test_a_trusted_device_skips_the_second_factor(api: Api, app_of_ada: Authenticator, clock: FakeClock, pool: Pool) -> None:
    token = await trusted(api, app_of_ada, clock)
    answer = await api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD, "device_token": token})
    assert set(answer.json) == {"access_token", "refresh_token", "expires_in"}
    assert (await api.get("/api/user", token=answer.json["access_token"])).status == 200
    assert await run_sql(pool, "select count(*) from devices") == [(1,)]
    assert token.encode() not in repr(await run_sql(pool, "select * from devices")).encode()


async def test_trust_is_only_given_on_request(api: Api, app_of_ada: Authenticator) -> None:
    ways: list[dict[str, Any]] = [{}, {"trust_device": False}, {"trust_device": None}]
    for code, asked in zip(app_of_ada.backup_codes, ways, strict=False):
        answer = await verify(api, await pre_auth(api), code, **asked)
        assert (answer.status, "device_token" in answer.json) == (200, False)
    assert (await verify(api, await pre_auth(api), app_of_ada.code(), trust_device="yes")).status == 400


async def test_a_trust_token_needs_the_password_and_its_own_account(
    api: Api, ports: Ports, app_of_ada: Authenticator, clock: FakeClock
) -> None:
    token = await trusted(api, app_of_ada, clock)
    await add_mfa(ports, await add_account(ports, "grace@example.com"))
    wrong = await api.post("/api/auth/login", {"email": EMAIL, "password": "wrong password", "device_token": token})
    assert wrong.status == 401
    other = await api.post("/api/auth/login", {"email": "grace@example.com", "password": PASSWORD, "device_token": token})
    assert other.json["mfa_required"] is True


@pytest.mark.parametrize(("days", "asked"), [(29, False), (30, True), (91, True)])
async def test_trust_ends_after_the_trust_period(api: Api, app_of_ada: Authenticator, clock: FakeClock, days: int, asked: bool) -> None:
    answer = await verify(api, await pre_auth(api), app_of_ada.code(), trust_device=True)
    clock.advance(timedelta(days=days))
    again = await api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD, "device_token": answer.json["device_token"]})
    assert again.json.get("mfa_required", False) is asked


async def test_the_shortest_trust_period_of_the_users_organizations_applies(api: Api, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    user = await add_account(ports)
    app = await add_mfa(ports, user)
    for slug, days in (("long", 90), ("short", 7)):
        org = await add_organization(pool, slug)
        await add_member(pool, org, user.id, confirmed=True)
        await run_sql(pool, "update organizations set device_trust_days = %s where id = %s", days, org)
    token = (await verify(api, await pre_auth(api), app.code(), trust_device=True)).json["device_token"]
    clock.advance(timedelta(days=7) - timedelta(seconds=1))
    login = {"email": EMAIL, "password": PASSWORD, "device_token": token}
    assert "mfa_required" not in (await api.post("/api/auth/login", login)).json
    clock.advance(timedelta(seconds=1))
    assert (await api.post("/api/auth/login", login)).json["mfa_required"] is True


@pytest.mark.parametrize("how", ["change", "reset", "disable and enable", "revoked"])
async def test_security_changes_end_trust(
    api: Api, ports: Ports, pool: Pool, app_of_ada: Authenticator, sent: FakeMailTransport, clock: FakeClock, how: str
) -> None:
    token = await trusted(api, app_of_ada, clock)
    elsewhere = (await verify(api, await pre_auth(api), app_of_ada.code())).json["access_token"]
    password = PASSWORD
    match how:
        case "change":
            body = {"current_password": PASSWORD, "new_password": (password := NEW_PASSWORD)}
            assert (await api.post("/api/user/change-password", body, token=elsewhere)).status == 200
        case "reset":
            await api.post("/api/auth/forgot-password", {"email": EMAIL})
            await deliver(ports)
            body = {"token": link(sent.emails[-1]), "new_password": (password := NEW_PASSWORD)}
            assert (await api.post("/api/auth/reset-password", body)).status == 200
        case "disable and enable":
            assert (await api.delete("/api/user/mfa", token=elsewhere)).status == 200
            [(user,)] = await run_sql(pool, "select id from users")
            assert await run_sql(pool, "select count(*) from devices where trust_hash is not null") == [(0,)]
            await run_sql(pool, "update users set mfa_enabled_at = now() where id = %s", user)
        case _:
            await run_sql(pool, "update devices set revoked_at = now(), trust_hash = null, trust_expires_at = null")
    answer = await api.post("/api/auth/login", {"email": EMAIL, "password": password, "device_token": token})
    assert answer.json["mfa_required"] is True


async def test_an_unusual_login_needs_the_second_factor_despite_trust(
    api: Api, pool: Pool, app_of_ada: Authenticator, clock: FakeClock
) -> None:
    token = await trusted(api, app_of_ada, clock)
    for _ in range(4):
        assert (await api.login(password="wrong password")).status == 401
    login = {"email": EMAIL, "password": PASSWORD, "device_token": token}
    assert (await api.post("/api/auth/login", login)).json["mfa_required"] is True


async def test_an_unusual_login_without_a_second_factor_sends_an_email(api: Api, ports: Ports, sent: FakeMailTransport, pool: Pool) -> None:
    await add_account(ports)
    for _ in range(3):
        await api.login(password="wrong password")
    assert (await api.login()).status == 200
    await deliver(ports)
    [letter] = sent.emails
    assert "unusual" in letter.subject.lower()
    assert await run_sql(pool, "select risk_score, risk_factors from login_events where success") == [
        (90, ["new_device", "failed_attempts"])
    ]
    assert (await api.login()).status == 200  # from the same device after a successful login
    await deliver(ports)
    assert len(sent.emails) == 1


async def test_strangers_cannot_lock_out_a_trusted_device(api: Api, ports: Ports, app_of_ada: Authenticator, clock: FakeClock) -> None:
    token = await trusted(api, app_of_ada, clock)
    for _ in range(10):
        await api.login(password="wrong password")
    assert (await api.login()).status == 429
    login = {"email": EMAIL, "password": PASSWORD, "device_token": token}
    answer = await api.post("/api/auth/login", login)
    assert (answer.status, answer.json["mfa_required"]) == (200, True)  # this many failures make the next login unusual
    for _ in range(10):  # the trusted device has its own limit of ten
        assert (await api.post("/api/auth/login", {**login, "password": "wrong password"})).status == 401
    assert (await api.post("/api/auth/login", login)).status == 429
    assert (await api.post("/api/auth/login", {**login, "device_token": "made up"})).status == 429


async def test_a_session_references_its_device_and_a_device_its_client(api: Api, ports: Ports, pool: Pool) -> None:
    await add_account(ports)
    for device in ("one", "one", "two"):
        assert (await api.login(headers={"X-Device-Id": device, "User-Agent": FIREFOX})).status == 200
    counts = "select count(*), count(distinct device_id) from sessions s join devices d on d.id = s.device_id"
    assert await run_sql(pool, counts) == [(3, 2)]
    assert await run_sql(pool, "select distinct name from devices") == [("Firefox on Linux",)]


async def test_twenty_concurrent_first_logins_make_one_device(api: Api, ports: Ports, pool: Pool) -> None:
    await add_account(ports)
    answers = await run_concurrently(20, lambda _: api.login(headers={"X-Device-Id": "mine"}))
    assert {answer.status for answer in answers} <= {200, 429}
    assert await run_sql(pool, "select count(*) from devices") == [(1,)]


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [["step"], ["backup code"], ["step", "backup code"]], ids=" and ".join)
async def test_concurrent_wrong_codes_are_all_counted(api: Api, pool: Pool, app_of_ada: Authenticator, kinds: list[str]) -> None:
    wrong = {"step": app_of_ada.wrong(), "backup code": "ZZZZ-9999"}
    tokens = [await pre_auth(api) for _ in range(20)]
    answers = await run_concurrently(20, lambda number: verify(api, tokens[number], wrong[kinds[number % len(kinds)]]))
    limit = Policy().mfa_guess_limit
    assert sorted(answer.status for answer in answers) == [401] * limit + [429] * (20 - limit)
    assert await run_sql(pool, "select failures from guesses where secret = 'mfa'") == [(limit,)]
    assert await run_sql(pool, "select count(*) from mfa_events where event_type = 'mfa_verify_failed'") == [(limit,)]
