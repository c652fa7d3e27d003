"""Logins from trusted devices, and unusual logins (decision 61; security S-5)."""

from datetime import timedelta
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.security_notices import UNDO_TTL
from ports import Ports
from tests.authentication.api.second_factor.sign_ins import start_login, verify
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import (
    EMAIL,
    FIREFOX,
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
)
from tests.support.mfa import Authenticator, add_mfa


async def get_trust_token(api: Api, authenticator: Authenticator, clock: FakeClock) -> str:
    """Trust a device, and return its token. The clock moves, so that the next code is new."""
    answer = await verify(api, await start_login(api), authenticator.code(), trust_device=True)
    clock.advance(timedelta(seconds=90))
    return str(answer.json["device_token"])


async def test_a_trusted_device_skips_the_second_factor(api: Api, authenticator: Authenticator, clock: FakeClock, pool: Pool) -> None:
    token = await get_trust_token(api, authenticator, clock)
    answer = await api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD, "device_token": token})
    assert set(answer.json) == {"access_token", "refresh_token", "expires_in"}
    assert (await api.get("/api/user", token=answer.json["access_token"])).status == 200
    assert await run_sql(pool, "select count(*) from devices") == [(1,)]
    assert token.encode() not in repr(await run_sql(pool, "select * from devices")).encode()


async def test_trust_is_only_given_on_request(api: Api, authenticator: Authenticator) -> None:
    ways: list[dict[str, Any]] = [{}, {"trust_device": False}, {"trust_device": None}]
    for code, fields in zip(authenticator.backup_codes, ways, strict=False):
        answer = await verify(api, await start_login(api), code, **fields)
        assert (answer.status, "device_token" in answer.json) == (200, False)
    assert (await verify(api, await start_login(api), authenticator.code(), trust_device="yes")).status == 400


async def test_a_trust_token_needs_the_password_and_its_own_account(
    api: Api, ports: Ports, authenticator: Authenticator, clock: FakeClock
) -> None:
    token = await get_trust_token(api, authenticator, clock)
    await add_mfa(ports, await add_account(ports, "grace@example.com"))
    wrong = await api.post("/api/auth/login", {"email": EMAIL, "password": "wrong password", "device_token": token})
    assert wrong.status == 401
    other = await api.post("/api/auth/login", {"email": "grace@example.com", "password": PASSWORD, "device_token": token})
    assert other.json["mfa_required"] is True


@pytest.mark.parametrize(("days", "needs_code"), [(29, False), (30, True), (91, True)])
async def test_trust_ends_after_the_trust_period(
    api: Api, authenticator: Authenticator, clock: FakeClock, days: int, needs_code: bool
) -> None:
    answer = await verify(api, await start_login(api), authenticator.code(), trust_device=True)
    clock.advance(timedelta(days=days))
    second_answer = await api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD, "device_token": answer.json["device_token"]})
    assert second_answer.json.get("mfa_required", False) is needs_code


async def test_the_shortest_trust_period_of_the_users_organizations_applies(api: Api, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    user = await add_account(ports)
    app = await add_mfa(ports, user)
    for slug, days in (("long", 90), ("short", 7)):
        org = await add_organization(pool, slug)
        await add_member(pool, org, user.id, confirmed=True)
        await run_sql(pool, "update organizations set device_trust_days = %s where id = %s", days, org)
    token = (await verify(api, await start_login(api), app.code(), trust_device=True)).json["device_token"]
    clock.advance(timedelta(days=7) - timedelta(seconds=1))
    login = {"email": EMAIL, "password": PASSWORD, "device_token": token}
    assert "mfa_required" not in (await api.post("/api/auth/login", login)).json
    clock.advance(timedelta(seconds=1))
    assert (await api.post("/api/auth/login", login)).json["mfa_required"] is True


@pytest.mark.parametrize("change", ["change", "reset", "disable and enable", "revoked"])
async def test_security_changes_end_trust(
    api: Api, ports: Ports, pool: Pool, authenticator: Authenticator, sent: FakeMailTransport, clock: FakeClock, change: str
) -> None:
    token = await get_trust_token(api, authenticator, clock)
    other_token = (await verify(api, await start_login(api), authenticator.code())).json["access_token"]
    password = PASSWORD
    match change:
        case "change":
            body = {"current_password": PASSWORD, "new_password": (password := NEW_PASSWORD)}
            assert (await api.post("/api/user/change-password", body, token=other_token)).status == 200
        case "reset":
            clock.advance(UNDO_TTL)  # a younger second factor would end
            await api.post("/api/auth/forgot-password", {"email": EMAIL})
            await deliver(ports)
            body = {"token": link(sent.emails[-1]), "new_password": (password := NEW_PASSWORD)}
            assert (await api.post("/api/auth/reset-password", body)).status == 200
        case "disable and enable":
            assert (await api.delete("/api/user/mfa", token=other_token)).status == 200
            [(user,)] = await run_sql(pool, "select id from users")
            assert await run_sql(pool, "select count(*) from devices where trust_hash is not null") == [(0,)]
            await run_sql(pool, "update users set mfa_enabled_at = now() where id = %s", user)
        case _:
            await run_sql(pool, "update devices set revoked_at = now(), trust_hash = null, trust_expires_at = null")
    answer = await api.post("/api/auth/login", {"email": EMAIL, "password": password, "device_token": token})
    assert answer.json["mfa_required"] is True


async def test_an_unusual_login_needs_the_second_factor_despite_trust(
    api: Api, pool: Pool, authenticator: Authenticator, clock: FakeClock
) -> None:
    token = await get_trust_token(api, authenticator, clock)
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


async def test_strangers_cannot_lock_out_a_trusted_device(api: Api, ports: Ports, authenticator: Authenticator, clock: FakeClock) -> None:
    token = await get_trust_token(api, authenticator, clock)
    for _ in range(10):
        await api.login(password="wrong password")
    assert (await api.login()).status == 429
    login = {"email": EMAIL, "password": PASSWORD, "device_token": token}
    answer = await api.post("/api/auth/login", login)
    assert (answer.status, answer.json["mfa_required"]) == (200, True)  # this many failures make the next login unusual
    for _ in range(10):  # the trusted device has its own limit: ten
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
