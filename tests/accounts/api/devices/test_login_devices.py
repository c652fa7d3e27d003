"""The devices that logins create, and their trust (security M-6)."""

import re
from datetime import timedelta

import pytest

from core.kernel.values import digest, rfc3339
from ports import Ports
from tests.accounts.api.devices.owner import DAY, DEVICES, MINUTE, Logins, TrustedUser
from tests.fakes.outside import FakeClock
from tests.support.builders import EMAIL, NEW_PASSWORD, PASSWORD, run_concurrently, run_sql, sign_in
from tests.support.mfa import use_in_sessions


async def test_a_login_adds_its_device(logins: Logins, clock: FakeClock) -> None:
    [device] = await logins.devices(await logins.login())
    assert (device["name"], device["device_type"], device["browser"], device["os"]) == ("Firefox on Linux", "browser", "Firefox", "Linux")
    assert (device["is_current"], device["trusted"]) == (True, False)
    assert device["created_at"] == device["last_used_at"] == rfc3339(clock.now())


async def test_a_login_from_a_known_device_adds_none(logins: Logins, clock: FakeClock) -> None:
    first, clients = await logins.login(), ("one", "two")
    clock.advance(MINUTE)
    second_tokens = await logins.login()
    [device] = await logins.devices(second_tokens)
    assert device["last_used_at"] == rfc3339(clock.now())
    for tokens in (first, second_tokens):
        assert [one["is_current"] for one in await logins.devices(tokens)] == [True]
    for client in clients:
        for _ in range(2):
            tokens = await logins.login(device_id=client)
    assert len(await logins.devices(tokens)) == 3
    assert sum(one["is_current"] for one in await logins.devices(tokens)) == 1


async def test_client_ids_are_stored_hashed(logins: Logins) -> None:
    await logins.login(device_id="the id of this client")
    [(client_hash,)] = await run_sql(logins.pool, "select client_hash from devices")
    assert client_hash == digest("the id of this client")


@pytest.mark.parametrize(
    "header", [{"User-Agent": "x" * 5000}, {"User-Agent": "\x1b[2J"}, {"X-Device-Id": "x" * 5000}, {"X-Device-Id": "é"}]
)
async def test_unusual_headers_do_not_prevent_a_login(logins: Logins, header: dict[str, str]) -> None:
    answer = await logins.api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD}, headers=header)
    assert answer.status == 200
    assert len(await logins.devices(answer.json)) == 1


@pytest.mark.slow
async def test_concurrent_first_logins_of_one_client_add_one_device(logins: Logins) -> None:
    tokens = await run_concurrently(8, lambda _: logins.login(device_id="the client"))  # more would exceed the attempt limit
    assert [one["is_current"] for one in await logins.devices(tokens[0])] == [True]


async def test_a_login_stores_its_risk_with_the_device_and_the_login_event(logins: Logins) -> None:
    tokens = await logins.login()
    [device] = await logins.devices(tokens)
    assert (await logins.api.get(f"{DEVICES}/{device['id']}", token=tokens["access_token"])).json["risk_score"] == 0.3
    await logins.api.post("/api/auth/login", {"email": EMAIL, "password": "wrong password"})
    assert await run_sql(logins.pool, "select risk_score, risk_factors from login_events where success") == [(30, ["new_device"])]


async def test_a_trusted_device_skips_the_second_factor_and_has_the_requested_name(trusted_user: TrustedUser) -> None:
    token = await trusted_user.trust(device_name="  Laptop ")
    assert re.fullmatch(r"[\w-]{43}", token)
    tokens = await trusted_user.logins.login(device_token=token)
    [device] = await trusted_user.logins.devices(tokens)
    assert (device["name"], device["trusted"], device["is_current"]) == ("Laptop", True, True)
    assert not await trusted_user.is_trusted("x" * 43)


async def test_a_device_is_not_trusted_unless_requested(trusted_user: TrustedUser) -> None:
    tokens = await trusted_user.logins.login()
    verified = await trusted_user.logins.verify(tokens["access_token"], trusted_user.app.code())
    assert "device_token" not in verified
    [device] = await trusted_user.logins.devices(verified)
    assert not device["trusted"]


async def test_trust_ends_when_the_device_is_revoked(trusted_user: TrustedUser, ports: Ports) -> None:
    token = await trusted_user.trust()
    other_session = await sign_in(ports, trusted_user.account)
    [device] = (await trusted_user.logins.api.get(DEVICES, token=other_session.access_token)).json["devices"]
    assert (await trusted_user.logins.api.delete(f"{DEVICES}/{device['id']}", token=other_session.access_token)).status == 200
    assert not await trusted_user.is_trusted(token)


async def test_trust_ends_after_the_trust_period(trusted_user: TrustedUser) -> None:
    token = await trusted_user.trust()
    trusted_user.clock.advance(30 * DAY - timedelta(seconds=91))
    assert await trusted_user.is_trusted(token)
    trusted_user.clock.advance(timedelta(seconds=1))
    assert not await trusted_user.is_trusted(token)


async def test_a_password_change_ends_the_trust_of_all_devices(trusted_user: TrustedUser) -> None:
    token = await trusted_user.trust()
    tokens = await trusted_user.logins.login(device_token=token)
    await use_in_sessions(trusted_user.logins.pool, trusted_user.account)
    change = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    answer = await trusted_user.logins.api.post("/api/user/change-password", change, token=tokens["access_token"])
    assert answer.status == 200, answer.text
    assert [one["trusted"] for one in await trusted_user.logins.devices(tokens)] == [False]
    assert (await trusted_user.logins.login(password=NEW_PASSWORD, device_token=token))["mfa_required"]


async def test_turning_the_second_factor_off_ends_all_trust(trusted_user: TrustedUser) -> None:
    token = await trusted_user.trust()
    tokens = await trusted_user.logins.login(device_token=token)
    await use_in_sessions(trusted_user.logins.pool, trusted_user.account)
    assert (await trusted_user.logins.api.delete("/api/user/mfa", token=tokens["access_token"])).status == 200
    assert [one["trusted"] for one in await trusted_user.logins.devices(tokens)] == [False]
    assert await run_sql(trusted_user.logins.pool, "select 1 from devices where trust_hash is not null") == []
