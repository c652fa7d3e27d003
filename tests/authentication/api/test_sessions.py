"""Logins, refreshes, logouts and how sessions end (security A, B, J, S)."""

from datetime import timedelta
from uuid import UUID

import jwt
import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.errors import Limited
from core.kernel.policy import Policy
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.support.builders import BASE_URL, EMAIL, PASSWORD, Answer, Api, add_account, add_member, add_organization, run_concurrently
from tests.support.direct import change_ports


async def run_sql(pool: Pool, query: str, *parameters: object) -> int:
    async with pool.connection() as connection:
        return (await connection.execute(query, parameters)).rowcount


async def refresh(api: Api, refresh_token: str) -> Answer:
    return await api.post("/api/auth/refresh", {"refresh_token": refresh_token})


async def join(pool: Pool, user_id: UUID, slug: str = "acme", status: str = "active") -> UUID:
    """Make the user a member in a new organization, and select it in all their sessions."""
    org = await add_organization(pool, slug, status)
    await add_member(pool, org, user_id)
    await run_sql(pool, "update sessions set org_id = %s where user_id = %s", org, user_id)
    return org


# Login


async def test_every_refused_login_gets_the_same_response(api: Api, ports: Ports) -> None:
    now = ports.clock.now()
    await add_account(ports)
    await add_account(ports, "unverified@example.com", verified=False)
    await add_account(ports, "passwordless@example.com", None)
    await add_account(ports, "deactivated@example.com", deactivated_at=now)
    await add_account(ports, "anonymized@example.com", anonymized_at=now)
    attempts = [
        (EMAIL, "wrong password"),
        ("unknown@example.com", PASSWORD),
        ("unverified@example.com", "wrong password"),
        ("passwordless@example.com", PASSWORD),
        ("deactivated@example.com", PASSWORD),
        ("anonymized@example.com", PASSWORD),
        (EMAIL, ""),
        (EMAIL, PASSWORD + " "),
        (EMAIL, PASSWORD.upper()),
    ]
    answers = [await api.login(email, password) for email, password in attempts]
    assert {answer.status for answer in answers} == {401}
    assert {(answer.json["error"], answer.code) for answer in answers} == {(answers[0].json["error"], "UNAUTHORIZED")}


async def test_only_the_right_password_shows_that_the_address_is_not_verified(api: Api, ports: Ports) -> None:
    await add_account(ports, verified=False)
    wrong, right = await api.login(password="wrong password"), await api.login()
    assert (wrong.status, right.status) == (401, 401)
    assert wrong.json["error"] != right.json["error"]
    assert right.code == "UNAUTHORIZED"


async def test_an_unknown_saml_state_is_refused(api: Api, ports: Ports) -> None:
    await add_account(ports)
    answer = await api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD, "saml_state": "x"})
    assert (answer.status, answer.code) == (400, "BAD_REQUEST")


async def test_a_login_is_recorded_and_counted(api: Api, ports: Ports, pool: Pool, metrics: FakeMetrics) -> None:
    account = await add_account(ports)
    await api.login(password="wrong password")
    await api.login(headers={"User-Agent": "tests"})
    async with pool.connection() as connection:
        rows = await (await connection.execute("select user_id, provider, success, agent from login_events order by success")).fetchall()
        [event] = await (await connection.execute("select name, target_id, data->>'provider' from events")).fetchall()
    assert [row[:3] for row in rows] == [(account.id, "password", False), (account.id, "password", True)]
    assert rows[1][3] == "tests"
    assert event == ("user.login.success", str(account.id), "password")
    assert metrics.login_failures == {"credentials": 1}
    assert metrics.tokens_issued == 1


async def test_an_outdated_hash_is_renewed_at_login(api: Api, ports: Ports, pool: Pool) -> None:
    from adapters.crypto import Argon2Passwords

    account = await add_account(ports)
    old = await Argon2Passwords(memory_kib=16, time_cost=2, parallelism=1, concurrency=1).hash(PASSWORD)
    await run_sql(pool, "update users set password_hash = %s where id = %s", old, account.id)
    assert (await api.login()).status == 200
    async with ports.storage.reading() as read:
        renewed = await read.accounts.by_id(account.id)
    assert renewed is not None
    assert renewed.password_hash is not None
    assert not ports.passwords.is_outdated(renewed.password_hash)
    assert (await api.login()).status == 200


async def test_ten_wrong_passwords_lock_known_and_unknown_addresses(api: Api, ports: Ports, clock: FakeClock) -> None:
    await add_account(ports)
    for email in (EMAIL, "unknown@example.com"):
        statuses = [(await api.login(email, "wrong password")).status for _ in range(10)]
        assert statuses == [401] * 10
        blocked = await api.login(email)
        assert (blocked.status, blocked.code, blocked.headers["Retry-After"]) == (429, "RATE_LIMIT_EXCEEDED", "30")
    clock.advance(timedelta(seconds=30))
    assert (await api.login(password="wrong password")).status == 401
    assert (await api.login()).headers["Retry-After"] == "60"  # the wait doubles ...
    for wait in (60, 120, 240, 480, 900, 900):  # ... up to 15 minutes
        clock.advance(timedelta(seconds=wait))
        assert (await api.login(password="wrong password")).status == 401
    assert (await api.login()).headers["Retry-After"] == "900"
    clock.advance(timedelta(seconds=900))
    assert (await api.login()).status == 200
    assert [(await api.login(password="wrong password")).status for _ in range(10)] == [401] * 10


async def test_attempts_are_forgotten_after_a_quiet_quarter_of_an_hour(api: Api, ports: Ports, clock: FakeClock) -> None:
    await add_account(ports)
    for _ in range(3):
        assert [(await api.login(password="wrong password")).status for _ in range(9)] == [401] * 9
        clock.advance(timedelta(minutes=15))
    assert (await api.login()).status == 200


async def test_parallel_attempts_cannot_exceed_the_limit(api: Api, ports: Ports) -> None:
    await add_account(ports)
    answers = await run_concurrently(20, lambda _: api.login(password="wrong password"))
    assert sorted(answer.status for answer in answers) == [401] * 10 + [429] * 10


async def test_a_password_reset_lifts_the_lock_and_sessions_survive_the_lock(api: Api, ports: Ports) -> None:
    await add_account(ports)
    tokens = (await api.login()).json
    for _ in range(11):
        answer = await api.login(password="wrong password")
    assert answer.status == 429
    assert (await api.get("/api/user", token=tokens["access_token"])).status == 200
    assert (await refresh(api, tokens["refresh_token"])).status == 200


async def test_wrong_current_passwords_count_as_attempts(api: Api, ports: Ports) -> None:
    await add_account(ports)
    token = (await api.login()).json["access_token"]
    body = {"current_password": "wrong password", "new_password": "another good password"}
    statuses = [(await api.post("/api/user/change-password", body, token=token)).status for _ in range(11)]
    assert statuses == [401] * 10 + [429]


async def test_a_full_hashing_queue_refuses_immediately(api: Api, ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: object) -> bool:
        raise Limited(1)

    await add_account(ports)
    monkeypatch.setattr(type(ports.passwords), "verify", full)
    answer = await api.login()
    assert (answer.status, answer.code, answer.headers["Retry-After"]) == (429, "RATE_LIMIT_EXCEEDED", "1")


# Access tokens


async def test_the_access_token_has_exactly_the_documented_claims(api: Api, ports: Ports) -> None:
    account = await add_account(ports)
    token = (await api.login()).json["access_token"]
    keys = (await api.get("/.well-known/jwks.json")).json
    [key] = [key for key in keys["keys"] if key["kid"] == jwt.get_unverified_header(token)["kid"]]
    claims = jwt.decode(
        token, jwt.PyJWK(key), algorithms=["RS256"], audience=f"{BASE_URL}/api", options={"verify_exp": False, "verify_iat": False}
    )
    authentication = {name: claims.pop(name) for name in ("client_id", "auth_time", "acr", "amr")}
    assert authentication == {"client_id": "frontend", "auth_time": claims["iat"], "acr": "pwd", "amr": ["pwd"]}
    assert set(claims) == {"iss", "aud", "sub", "email", "email_verified", "sid", "jti", "iat", "exp", "token_use"}
    assert (claims["sub"], claims["email"], claims["email_verified"]) == (str(account.id), EMAIL, True)
    assert claims["exp"] - claims["iat"] == 900
    assert not {"d", "p", "q"} & set(key)


async def test_each_kind_of_invalid_token_has_its_error_code(api: Api, ports: Ports, clock: FakeClock) -> None:
    await add_account(ports)
    token = (await api.login()).json["access_token"]
    head, body, signature = token.split(".")
    cases = [
        ({}, "UNAUTHORIZED"),
        ({"Authorization": ""}, "UNAUTHORIZED"),
        ({"Authorization": "Bearer"}, "UNAUTHORIZED"),
        ({"Authorization": f"Basic {token}"}, "UNAUTHORIZED"),
        ({"X-Api-Key": token}, "UNAUTHORIZED"),
        ({"Cookie": f"access_token={token}"}, "UNAUTHORIZED"),
        ({"Authorization": "Bearer nonsense"}, "JWT_ERROR"),
        ({"Authorization": f"Bearer {head}.{body}.{signature[::-1]}"}, "JWT_ERROR"),
        ({"Authorization": f"Bearer {'x' * 9000}"}, "JWT_ERROR"),
        ({"Authorization": f"Bearer {token}=="}, "JWT_ERROR"),
    ]
    for headers, code in cases:
        answer = await api.get("/api/user", headers=headers)
        assert (answer.status, answer.code) == (401, code), headers
        assert ('error="invalid_token"' in answer.headers["WWW-Authenticate"]) == (code == "JWT_ERROR")
    assert (await api.get(f"/api/user?access_token={token}")).code == "UNAUTHORIZED"
    assert (await api.get("/api/user", headers={"Authorization": f"bearer {token}"})).status == 200
    clock.advance(timedelta(minutes=20))
    expired = await api.get("/api/user", token=token)
    assert (expired.status, expired.code) == (401, "TOKEN_EXPIRED")


async def test_responses_with_tokens_are_not_cached(api: Api, ports: Ports) -> None:
    await add_account(ports)
    answer = await api.login()
    assert answer.headers["Cache-Control"] == "no-store"
    assert (await refresh(api, answer.json["refresh_token"])).headers["Cache-Control"] == "no-store"


async def test_a_deactivation_takes_effect_with_the_next_request(api: Api, ports: Ports, pool: Pool) -> None:
    account = await add_account(ports)
    tokens = (await api.login()).json
    await run_sql(pool, "update users set deactivated_at = now() where id = %s", account.id)
    answer = await api.get("/api/user", token=tokens["access_token"])
    assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
    assert (await refresh(api, tokens["refresh_token"])).status == 401
    await run_sql(pool, "update users set deactivated_at = null where id = %s", account.id)
    assert (await api.get("/api/user", token=tokens["access_token"])).status == 200


# Refresh


async def test_a_refresh_gives_a_new_pair_of_the_same_session(api: Api, ports: Ports) -> None:
    await add_account(ports)
    first = (await api.login()).json
    answer = await refresh(api, first["refresh_token"])
    assert answer.status == 200
    second = answer.json
    assert list(second) == ["access_token", "refresh_token", "expires_in"]
    assert second["refresh_token"] != first["refresh_token"]
    sids = [jwt.decode(pair["access_token"], options={"verify_signature": False})["sid"] for pair in (first, second)]
    assert sids[0] == sids[1]
    for pair in (first, second):
        assert (await api.get("/api/user", token=pair["access_token"])).status == 200


@pytest.mark.parametrize("token", ["", "nonsense", "x" * 2048, "ümläut"])
async def test_an_unknown_refresh_token_is_refused(api: Api, token: str) -> None:
    answer = await refresh(api, token)
    assert (answer.status, answer.code) == (401, "UNAUTHORIZED")


async def test_reuse_ends_the_whole_session(api: Api, ports: Ports, clock: FakeClock) -> None:
    await add_account(ports)
    first = (await api.login()).json
    second = (await refresh(api, first["refresh_token"])).json
    clock.advance(timedelta(seconds=11))
    assert (await refresh(api, first["refresh_token"])).status == 401
    assert (await api.get("/api/user", token=second["access_token"])).status == 401
    assert (await refresh(api, second["refresh_token"])).status == 401


async def test_reuse_of_an_older_token_ends_the_session_even_within_the_grace(api: Api, ports: Ports) -> None:
    await add_account(ports)
    first = (await api.login()).json
    second = (await refresh(api, first["refresh_token"])).json
    third = (await refresh(api, second["refresh_token"])).json
    assert (await refresh(api, first["refresh_token"])).status == 401
    assert (await refresh(api, third["refresh_token"])).status == 401


async def test_the_previous_token_within_the_grace_is_refused_without_ending_the_session(api: Api, ports: Ports, clock: FakeClock) -> None:
    await add_account(ports)
    first = (await api.login()).json
    second = (await refresh(api, first["refresh_token"])).json
    clock.advance(timedelta(seconds=10))
    assert (await refresh(api, first["refresh_token"])).status == 401
    assert (await api.get("/api/user", token=second["access_token"])).status == 200
    assert (await refresh(api, second["refresh_token"])).status == 200


async def test_of_twenty_concurrent_refreshes_with_one_token_one_succeeds(api: Api, ports: Ports) -> None:
    await add_account(ports)
    first = (await api.login()).json
    answers = await run_concurrently(20, lambda _: refresh(api, first["refresh_token"]))
    assert sorted(answer.status for answer in answers) == [200] + [401] * 19
    [winner] = [answer.json for answer in answers if answer.status == 200]
    assert (await refresh(api, winner["refresh_token"])).status == 200


async def test_a_session_slides_for_thirty_days_and_ends_after_ninety(api: Api, ports: Ports, clock: FakeClock) -> None:
    await add_account(ports)
    tokens = (await api.login()).json
    for _ in range(3):
        clock.advance(timedelta(days=30) - timedelta(seconds=1))
        tokens = (await refresh(api, tokens["refresh_token"])).json
    assert tokens["expires_in"] == 3  # the absolute end after 90 days
    clock.advance(timedelta(seconds=3))
    assert (await refresh(api, tokens["refresh_token"])).status == 401


async def test_an_idle_session_lapses_after_thirty_days(api: Api, ports: Ports, clock: FakeClock) -> None:
    await add_account(ports)
    tokens = (await api.login()).json
    clock.advance(timedelta(days=30))
    assert (await refresh(api, tokens["refresh_token"])).status == 401


async def test_lifetimes_are_settings(api: Api, ports: Ports, app: QuartTrio, clock: FakeClock) -> None:
    await add_account(ports)
    policy = Policy(access_token_ttl=timedelta(days=1))
    change_ports(app, policy=policy)
    tokens = (await api.login()).json
    assert tokens["expires_in"] == 86400
    clock.advance(timedelta(hours=23))
    assert (await api.get("/api/user", token=tokens["access_token"])).status == 200


# Organization context


async def test_a_token_of_an_organization_works_while_the_membership_exists(api: Api, ports: Ports, pool: Pool) -> None:
    account = await add_account(ports)
    tokens = (await api.login()).json
    org = await join(pool, account.id)
    tokens = (await refresh(api, tokens["refresh_token"])).json
    assert (await api.get("/api/user", token=tokens["access_token"])).json["org"] == "acme"
    await run_sql(pool, "delete from memberships where org_id = %s", org)
    answer = await api.get("/api/user", token=tokens["access_token"])
    assert (answer.status, answer.code) == (403, "FORBIDDEN")
    refusal = await refresh(api, tokens["refresh_token"])
    assert (refusal.status, refusal.code) == (403, "FORBIDDEN")
    assert (await api.post("/api/auth/logout", token=tokens["access_token"])).status == 200


async def test_a_suspension_refuses_refreshes_until_the_activation(api: Api, ports: Ports, pool: Pool) -> None:
    account = await add_account(ports)
    tokens = (await api.login()).json
    await join(pool, account.id, status="suspended")
    for _ in range(2):
        answer = await refresh(api, tokens["refresh_token"])
        assert (answer.status, answer.code) == (403, "ORGANIZATION_NOT_ACTIVE")
    assert (await api.get("/api/user", token=tokens["access_token"])).status == 200
    await run_sql(pool, "update organizations set status = 'active'")
    assert (await refresh(api, tokens["refresh_token"])).status == 200


async def test_a_token_of_a_deleted_organization_is_invalid_for_its_successor(api: Api, ports: Ports, pool: Pool) -> None:
    account = await add_account(ports)
    tokens = (await api.login()).json
    org = await join(pool, account.id)
    tokens = (await refresh(api, tokens["refresh_token"])).json
    await run_sql(pool, "delete from organizations where id = %s", org)
    successor = await add_organization(pool, "acme")
    await add_member(pool, successor, account.id)
    assert (await api.get("/api/user", token=tokens["access_token"])).status == 403
    answer = await refresh(api, tokens["refresh_token"])
    assert (answer.status, answer.code) == (403, "FORBIDDEN")


# Logout


async def test_logout_ends_access_and_refresh_of_this_session_only(api: Api, ports: Ports) -> None:
    await add_account(ports)
    tokens, other = (await api.login()).json, (await api.login()).json
    answer = await api.post("/api/auth/logout", token=tokens["access_token"])
    assert (answer.status, set(answer.json)) == (200, {"message"})
    assert (await api.get("/api/user", token=tokens["access_token"])).code == "UNAUTHORIZED"
    assert (await refresh(api, tokens["refresh_token"])).status == 401
    assert (await api.post("/api/auth/logout", token=tokens["access_token"])).status == 401
    assert (await api.get("/api/user", token=other["access_token"])).status == 200


async def test_a_concurrent_logout_and_refresh_leave_no_live_session(api: Api, ports: Ports) -> None:
    await add_account(ports)
    for _ in range(5):
        tokens = (await api.login()).json

        async def act(number: int, tokens: dict[str, str] = tokens) -> Answer:
            if number == 0:
                return await api.post("/api/auth/logout", token=tokens["access_token"])
            return await refresh(api, tokens["refresh_token"])

        for answer in await run_concurrently(2, act):
            if answer.status == 200 and "refresh_token" in answer.json:
                assert (await refresh(api, answer.json["refresh_token"])).status == 401
                assert (await api.get("/api/user", token=answer.json["access_token"])).status == 401
