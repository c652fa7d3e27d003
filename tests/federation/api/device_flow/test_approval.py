"""Approving a device through the API (security V-2, V-3)."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.federation.oauth.model.device_flow import USER_CODE_ALPHABET
from core.kernel.values import digest
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.federation.api.cli import VERIFY, DeviceClient
from tests.federation.api.device_flow.values import TTL
from tests.proof.access.belongings import wait_for_code
from tests.support.builders import (
    Api,
    add_account,
    add_platform_owner,
    add_provisioned,
    impersonate,
    run_concurrently,
    run_during,
    run_sql,
    sign_in,
)
from tests.support.refusals import BAD, FORBIDDEN, NOT_ACTIVE, UNAUTHORIZED, refused
from tests.support.services import sign_in_to
from tests.support.tenants import Tenant

EXPIRED = (400, "DEVICE_CODE_EXPIRED")


async def test_a_user_approves_a_device(cli: DeviceClient, user: Account, ports: Ports, pool: Pool) -> None:
    session = await sign_in(ports, user)
    await cli.begin()
    answer = await cli.decide(session.access_token)
    assert (answer.status, answer.json) == (200, {"status": "approved"})
    assert await run_sql(pool, "select status, session_id from device_codes") == [("approved", session.session_id)]


async def test_a_user_denies_a_device(cli: DeviceClient, token: str, pool: Pool, metrics: FakeMetrics) -> None:
    await cli.begin()
    answer = await cli.decide(token, "deny")
    assert (answer.status, answer.json) == (200, {"status": "denied"})
    assert await run_sql(pool, "select status, session_id from device_codes") == [("denied", None)]
    assert metrics.login_failures == {"device_code": 1}


async def test_an_approval_is_a_consent_that_can_be_withdrawn(cli: DeviceClient, token: str, api: Api, acme: Tenant) -> None:
    """OpenID Connect sessions end, and so does an approval that no device has used yet."""
    await cli.begin(scope="openid email unknown")
    await cli.decide(token)
    tokens = (await cli.poll()).json
    assert tokens["scope"] == "openid email"
    for scope, answer in (("openid roles", "invalid_scope"), ("openid unknown", "openid")):
        again = (await api.post("/auth/token", {"refresh_token": tokens["refresh_token"], "scope": scope})).json
        assert again.get("error", again.get("scope")) == answer
        tokens = {**tokens, **again}
    other_device = DeviceClient(api, cli.pool, cli.clock, cli.service)
    await other_device.begin(scope="openid email")
    await other_device.decide(token)
    [consent] = (await api.get("/api/user/consents", token=token)).json["consents"]
    assert consent["scopes"] == ["openid", "email"]
    assert [entry["action"] for entry in await acme.log() if entry["action"].startswith("consent.")] == ["consent.granted"]
    assert (await api.delete(f"/api/user/consents/{consent['service_id']}", token=token)).status == 204
    assert (await api.get("/auth/userinfo", token=tokens["access_token"])).status == 401
    assert (await other_device.poll()).json["error"] == "access_denied"


async def test_a_denial_and_an_approval_without_openid_are_no_consent(cli: DeviceClient, token: str, api: Api) -> None:
    await cli.begin(scope="openid email")
    await cli.decide(token, "deny")
    await cli.begin(scope="email")
    await cli.decide(token)
    assert (await api.get("/api/user/consents", token=token)).json["consents"] == []


async def test_a_user_code_can_be_typed_in_any_style(cli: DeviceClient, token: str) -> None:
    user_code = await cli.begin()
    assert (await cli.decide(token, user_code=f" {user_code.lower().replace('-', ' ')} ")).status == 200


@pytest.mark.parametrize("action", ["approve", "deny"])
async def test_a_decision_is_final(cli: DeviceClient, token: str, action: str) -> None:
    await cli.begin()
    await cli.decide(token, action)
    before = await cli.status()
    for decision in ("approve", "deny"):
        assert refused(await cli.decide(token, decision)) == BAD
    assert await cli.status() == before


async def test_a_code_expires_after_five_minutes(cli: DeviceClient, token: str, clock: FakeClock) -> None:
    await cli.begin()
    clock.advance(TTL - timedelta(microseconds=1))
    assert (await cli.decide(token)).status == 200
    await cli.begin()
    clock.advance(TTL)
    assert refused(await cli.decide(token)) == EXPIRED
    assert await cli.status() == ["approved", "pending"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"user_code": "BCDF-GHJK"},
        {"action": "approve"},
        {"user_code": 7, "action": "approve"},
        {"user_code": "BCDF-GHJK", "action": "x"},
    ],
)
async def test_an_invalid_body_is_refused(api: Api, token: str, body: Mapping[str, Any]) -> None:
    assert refused(await api.post(VERIFY, body, token=token)) == BAD


async def test_only_the_user_decides(cli: DeviceClient, ports: Ports, pool: Pool, user: Account) -> None:
    await cli.begin()
    application = (await sign_in_to(ports, pool, cli.service.id, user)).access_token
    assert refused(await cli.decide(application)) == FORBIDDEN
    support = await impersonate(ports, await add_platform_owner(ports), user)
    assert refused(await cli.decide(support)) == FORBIDDEN
    assert refused(await cli.decide(await wait_for_code(ports, user))) == UNAUTHORIZED
    assert await cli.status() == ["pending"]


async def test_a_device_of_a_suspended_organization_cannot_be_approved(cli: DeviceClient, token: str, pool: Pool) -> None:
    await cli.begin()
    await run_sql(pool, "update organizations set status = 'suspended'")
    assert refused(await cli.decide(token)) == NOT_ACTIVE
    assert await cli.status() == ["pending"]


async def test_a_user_blocked_by_the_directory_cannot_approve(
    cli: DeviceClient, user: Account, token: str, pool: Pool, acme: Tenant
) -> None:
    await add_provisioned(pool, acme.org, user.id, provisioned=False, blocked=True)
    await cli.begin()
    assert refused(await cli.decide(token)) == FORBIDDEN
    assert await cli.status() == ["pending"]
    assert (await cli.decide(token, "deny")).status == 200


async def test_an_ended_session_cannot_approve(cli: DeviceClient, ports: Ports, pool: Pool, user: Account) -> None:
    await cli.begin()
    session = await sign_in(ports, user)
    await run_sql(pool, "update sessions set ended_at = created_at where id = %s", session.session_id)
    assert refused(await cli.decide(session.access_token)) == UNAUTHORIZED
    assert await cli.status() == ["pending"]


# Guessing


async def guess(cli: DeviceClient, token: str, number: int) -> tuple[int, str]:
    """Enter a code that no device has."""
    return refused(await cli.decide(token, user_code=USER_CODE_ALPHABET[number % 20] * 8))


async def test_ten_wrong_codes_lock_an_account(cli: DeviceClient, ports: Ports, user: Account, pool: Pool, clock: FakeClock) -> None:
    token = (await sign_in(ports, user)).access_token
    await cli.begin()
    for number in range(10):
        assert await guess(cli, token, number) == BAD
        await run_sql(pool, "delete from guesses where subject = %s", digest("address 0.0.0.0"))  # from many addresses
    answer = await cli.decide(token)
    assert refused(answer) == (429, "RATE_LIMIT_EXCEEDED")
    assert answer.headers["Retry-After"] == "900"
    assert await cli.status() == ["pending"]
    other = await add_account(ports, "eve@example.com")
    assert (await cli.decide((await sign_in(ports, other)).access_token)).status == 200, "another account is not affected"
    clock.advance(timedelta(minutes=15))
    token = (await sign_in(ports, user)).access_token
    await cli.begin()
    assert (await cli.decide(token)).status == 200


async def test_ten_wrong_codes_lock_an_address(cli: DeviceClient, ports: Ports, clock: FakeClock) -> None:
    people = [(await sign_in(ports, await add_account(ports, f"p{number}@example.com", None))).access_token for number in range(11)]
    await cli.begin()
    for number, token in enumerate(people[:10]):
        assert await guess(cli, token, number) == BAD
    assert refused(await cli.decide(people[10])) == (429, "RATE_LIMIT_EXCEEDED")


@pytest.mark.slow
async def test_right_codes_neither_count_nor_reset_the_counter(cli: DeviceClient, token: str) -> None:
    for number in range(9):
        assert await guess(cli, token, number) == BAD
        await cli.begin()
        assert (await cli.decide(token)).status == 200
    assert await guess(cli, token, 9) == BAD
    await cli.begin()
    assert refused(await cli.decide(token)) == (429, "RATE_LIMIT_EXCEEDED")


@pytest.mark.slow
@pytest.mark.parametrize("action", ["approve", "deny"])
async def test_a_right_code_entered_twice_is_no_failed_attempt(cli: DeviceClient, token: str, action: str) -> None:
    """This happens after a double click, or when the user goes back and sends the form again."""
    for number in range(9):
        assert await guess(cli, token, number) == BAD
    await cli.begin()
    assert (await cli.decide(token, action)).status == 200
    for _ in range(12):
        assert refused(await cli.decide(token, action)) == BAD
    assert await guess(cli, token, 9) == BAD
    assert (await guess(cli, token, 10))[0] == 429, "wrong codes still count"


@pytest.mark.slow
async def test_an_expired_code_is_no_failed_attempt(cli: DeviceClient, token: str, clock: FakeClock) -> None:
    await cli.begin()
    clock.advance(TTL)
    for _ in range(12):
        assert refused(await cli.decide(token)) == EXPIRED
    await cli.begin()
    assert (await cli.decide(token)).status == 200


async def test_a_locked_account_does_not_lock_its_address(cli: DeviceClient, ports: Ports, pool: Pool, token: str) -> None:
    for number in range(10):
        await guess(cli, token, number)
    await run_sql(pool, "delete from guesses where subject = %s", digest("address 0.0.0.0"))
    for number in range(10):
        assert (await guess(cli, token, number))[0] == 429
    other = await add_account(ports, "eve@example.com")
    await cli.begin()
    assert (await cli.decide((await sign_in(ports, other)).access_token)).status == 200


@pytest.mark.slow
async def test_of_many_parallel_guesses_ten_are_checked(cli: DeviceClient, token: str) -> None:
    statuses = [status for status, _ in await run_concurrently(20, lambda number: guess(cli, token, number))]
    assert sorted(statuses) == [400] * 10 + [429] * 10


# Races


@pytest.mark.slow
async def test_of_a_parallel_approval_and_denial_one_wins(cli: DeviceClient, ports: Ports, user: Account, pool: Pool) -> None:
    eve = await add_account(ports, "eve@example.com")
    tokens = [(await sign_in(ports, account)).access_token for account in (user, eve)]
    await cli.begin()
    answers = await run_concurrently(8, lambda number: cli.decide(tokens[number % 2], ("approve", "deny")[number // 2 % 2]))
    [first] = [answer for answer in answers if answer.status == 200]
    assert await cli.status() == [first.json["status"]]
    assert {refused(answer) for answer in answers if answer.status != 200} == {BAD}


async def test_a_device_of_a_service_that_is_deleted_meanwhile_cannot_be_approved(cli: DeviceClient, token: str, pool: Pool) -> None:
    """The decision has found the code and waits for the account lock, which the deletion holds."""
    await cli.begin()
    steps = [("select from users where email = 'ada@example.com' for update", None), ("delete from services", None)]
    answer = await run_during(pool, steps, lambda: cli.decide(token))
    assert refused(answer) == BAD
