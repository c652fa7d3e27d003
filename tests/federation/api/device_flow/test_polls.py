"""Polls of devices for their tokens.

Covers security A-4, V-4 and Z-1, decisions 92, 93, and RFC 8628 sections
3.4 and 3.5.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import jwt
import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.values import new_id
from core.maintenance.housekeeping import sweep
from entrypoints.http.app import Edge
from ports import Ports
from tests.accounts.profiles import NO_FIELDS
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.federation.api.cli import CURL, GRANT, INTERVAL, PKCE, TOKEN, VERIFIER, DeviceClient, oauth_error
from tests.proof.access.belongings import begin_in_browser
from tests.support.builders import EMAIL, Answer, SignedIn, make_edge, one_factor, run_concurrently, run_during, run_sql, sign_in
from tests.support.connections.proofs import write_proofs
from tests.support.services import add_plan, add_service, add_subscription, service_context
from tests.support.tenants import Tenant

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PENDING = (400, "authorization_pending", "DEVICE_CODE_PENDING")
SLOW_DOWN = (400, "slow_down", "DEVICE_CODE_PENDING")
EXPIRED = (400, "expired_token", "DEVICE_CODE_EXPIRED")
DENIED = (400, "access_denied", "BAD_REQUEST")
INVALID = (400, "invalid_grant", "BAD_REQUEST")
NOT_ACTIVE = (403, "access_denied", "ORGANIZATION_NOT_ACTIVE")
TTL = timedelta(minutes=5)
APPROVE_IN_BROWSER = """
    update device_codes set status = 'approved', session_id = (select id from sessions where browser_hash is not null)"""


@pytest.fixture
async def session(ports: Ports, pool: Pool, user: Account) -> SignedIn:
    """A session of the user, who signed in through an identity provider."""
    session = await sign_in(ports, user)
    await write_proofs(pool, user.id, one_factor(ports.clock.now(), "websuite"))
    return session


@pytest.fixture
async def approved_device(cli: DeviceClient, session: SignedIn) -> DeviceClient:
    await cli.begin()
    assert (await cli.decide(session.access_token)).status == 200
    return cli


def claims(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200, answer.text
    decoded: dict[str, Any] = jwt.decode(answer.json["access_token"], options={"verify_signature": False})
    return decoded


# Tokens


async def test_an_approved_device_gets_tokens_for_its_service(approved_device: DeviceClient, user: Account, metrics: FakeMetrics) -> None:
    answer = await approved_device.poll()
    token_claims = claims(answer)
    assert answer.json == {**answer.json, "token_type": "Bearer", "expires_in": 900}
    assert set(answer.json) == {"access_token", "token_type", "expires_in", "refresh_token"}
    assert answer.headers["Cache-Control"] == "no-store"
    assert token_claims["aud"] == str(approved_device.service.client_id)
    assert (token_claims["sub"], token_claims["email"], token_claims["org"], token_claims["service"]) == (
        str(user.id),
        EMAIL,
        "acme",
        "shop",
    )
    assert (metrics.tokens_issued, metrics.login_failures) == (1, {})
    assert await approved_device.status() == ["redeemed"]
    profile = await approved_device.api.get("/api/user", token=answer.json["access_token"])
    assert profile.json == {"id": str(user.id), "email": EMAIL, "org": "acme", "service": "shop", **NO_FIELDS, "pending_email": None}


async def test_the_sign_in_of_a_device_is_recorded(approved_device: DeviceClient, user: Account, clock: FakeClock) -> None:
    pool, now, service = approved_device.pool, clock.now(), approved_device.service
    sid = UUID(claims(await approved_device.poll())["sid"])
    [(device,)] = await run_sql(pool, "select device_id from sessions where id = %s", sid)
    columns = "user_id, service_id, org_id, proofs -> 0 ->> 'provider', grant_type, address, agent, created_at"
    assert await run_sql(pool, f"select {columns} from sessions where id = %s", sid) == [  # noqa: S608
        (user.id, service.id, service.org_id, "websuite", "device_code", "0.0.0.0", CURL, now)  # noqa: S104
    ]
    assert await run_sql(pool, "select user_id, device_type, browser, last_ip from devices where id = %s", device) == [
        (user.id, "cli", "curl", "0.0.0.0")  # noqa: S104
    ]
    login = "select user_id, session_id, org_id, service_id, provider, success, agent, risk_factors from login_events"
    assert await run_sql(pool, login) == [(user.id, sid, service.org_id, service.id, "websuite", True, CURL, ["new_device"])]
    assert await run_sql(pool, "select provider, total from login_totals") == [("websuite", 1)]
    assert await run_sql(pool, "select user_id from service_users where service_id = %s", service.id) == [(user.id,)]
    events = await run_sql(pool, "select org_id, name, target_id, actor_id, data from events where name = 'user.login.success'")
    assert events == [
        (service.org_id, "user.login.success", str(user.id), user.id, {"provider": "websuite", "service_id": str(service.id)})
    ]


async def test_a_device_that_signs_in_again_is_recognized(approved_device: DeviceClient, session: SignedIn) -> None:
    assert (await approved_device.poll()).status == 200
    await approved_device.begin()
    await approved_device.decide(session.access_token)
    assert (await approved_device.poll()).status == 200
    assert await run_sql(approved_device.pool, "select count(*) from devices") == [(1,)]
    assert await run_sql(approved_device.pool, "select count(distinct device_id) from sessions where service_id is not null") == [(1,)]


async def test_a_browser_session_can_approve(cli: DeviceClient, ports: Ports, user: Account) -> None:
    await begin_in_browser(ports, user)
    await cli.begin()
    await run_sql(cli.pool, APPROVE_IN_BROWSER)
    assert (await cli.poll()).status == 200
    assert await run_sql(cli.pool, "select provider from login_events") == [("password",)]


async def test_the_tokens_contain_the_users_subscription(
    approved_device: DeviceClient, ports: Ports, pool: Pool, user: Account, clock: FakeClock
) -> None:
    plan = await add_plan(pool, approved_device.service.id, "Gold", features=["exports"])
    await add_subscription(ports, pool, approved_device.service.id, user.id, plan, ends=clock.now() + timedelta(days=30))
    token_claims = claims(await approved_device.poll())
    assert (token_claims["plan"], token_claims["features"], token_claims["subscription_status"]) == ("Gold", ["exports"], "active")


async def test_the_device_code_needs_no_client_id(approved_device: DeviceClient) -> None:
    assert (await approved_device.api.post(TOKEN, {"device_code": approved_device.codes["device_code"]})).status == 200


async def test_a_device_refreshes_without_a_client_secret(approved_device: DeviceClient) -> None:
    pair = (await approved_device.poll()).json
    answer = await approved_device.api.post(TOKEN, {"grant_type": "refresh_token", "refresh_token": pair["refresh_token"]})
    assert claims(answer)["aud"] == str(approved_device.service.client_id)
    form = {"refresh_token": answer.json["refresh_token"], "client_id": str(approved_device.service.client_id)}
    assert (await approved_device.api.post(TOKEN, form)).status == 200


# Refusals


async def test_polls_before_the_approval_are_pending(cli: DeviceClient, metrics: FakeMetrics) -> None:
    await cli.begin()
    before = await cli.count_rows()
    for _ in range(3):
        assert oauth_error(await cli.poll_after_interval()) == PENDING
    assert await cli.count_rows() == before
    assert (metrics.tokens_issued, metrics.login_failures) == (0, {})


async def test_each_early_poll_adds_five_seconds_to_the_interval(cli: DeviceClient, session: SignedIn, clock: FakeClock) -> None:
    await cli.begin()
    assert oauth_error(await cli.poll()) == PENDING
    clock.advance(INTERVAL - timedelta(microseconds=1))
    assert oauth_error(await cli.poll()) == SLOW_DOWN  # ten seconds from now on
    clock.advance(2 * INTERVAL - timedelta(microseconds=1))
    assert oauth_error(await cli.poll()) == SLOW_DOWN  # fifteen
    clock.advance(3 * INTERVAL)
    assert oauth_error(await cli.poll()) == PENDING
    await cli.decide(session.access_token)
    assert oauth_error(await cli.poll()) == SLOW_DOWN
    clock.advance(4 * INTERVAL)
    assert (await cli.poll()).status == 200


async def test_parallel_early_polls_are_all_counted(cli: DeviceClient) -> None:
    await cli.begin()
    answers = [oauth_error(answer) for answer in await run_concurrently(10, lambda _: cli.poll())]
    assert sorted(answers) == sorted([PENDING] + 9 * [SLOW_DOWN])
    assert await run_sql(cli.pool, "select interval_seconds from device_codes") == [(50,)]


async def test_a_device_code_expires(approved_device: DeviceClient, clock: FakeClock) -> None:
    clock.advance(TTL - timedelta(microseconds=1))
    await approved_device.begin()
    first = approved_device.codes
    clock.advance(TTL)
    approved_device.codes = first
    assert oauth_error(await approved_device.poll()) == EXPIRED
    assert oauth_error(await approved_device.poll()) == EXPIRED


async def test_an_approval_expires_as_well(approved_device: DeviceClient, clock: FakeClock) -> None:
    before = await approved_device.count_rows()
    clock.advance(TTL)
    assert oauth_error(await approved_device.poll()) == EXPIRED
    assert await approved_device.count_rows() == before


async def test_a_denied_device_gets_access_denied(cli: DeviceClient, session: SignedIn) -> None:
    await cli.begin()
    await cli.decide(session.access_token, "deny")
    before = await cli.count_rows()
    for _ in range(3):
        assert oauth_error(await cli.poll()) == DENIED
    assert await cli.count_rows() == before


async def test_a_device_code_works_once(approved_device: DeviceClient, metrics: FakeMetrics) -> None:
    assert (await approved_device.poll()).status == 200
    before = await approved_device.count_rows()
    assert oauth_error(await approved_device.poll_after_interval()) == INVALID
    assert await approved_device.count_rows() == before
    assert metrics.login_failures == {"device_code": 1}


async def test_an_unknown_device_code_is_refused(approved_device: DeviceClient) -> None:
    for unknown in ("x" * 43, "\u00e9", approved_device.codes["user_code"]):
        assert oauth_error(await approved_device.poll(device_code=unknown)) == INVALID
    assert await approved_device.status() == ["approved"]


async def test_the_device_code_of_another_client_is_refused(approved_device: DeviceClient, acme: Tenant, other_tenant: Tenant) -> None:
    for org in (acme.org, other_tenant.org):
        other = await service_context(approved_device.pool, await add_service(approved_device.pool, org, "other"))
        assert oauth_error(await approved_device.poll(client_id=str(other.client_id))) == INVALID
    assert oauth_error(await approved_device.poll(client_id=str(new_id()))) == (401, "invalid_client", "UNAUTHORIZED")
    assert await approved_device.status() == ["approved"]


async def test_a_mobile_application_must_send_its_verifier(mobile_cli: DeviceClient, session: SignedIn) -> None:
    await mobile_cli.begin(**PKCE)
    assert oauth_error(await mobile_cli.poll(code_verifier=VERIFIER)) == PENDING
    await mobile_cli.decide(session.access_token)
    for wrong in (None, VERIFIER[::-1], VERIFIER[:-1]):
        assert oauth_error(await mobile_cli.poll_after_interval(code_verifier=wrong)) == INVALID
    assert (await mobile_cli.poll_after_interval(code_verifier=VERIFIER)).status == 200


async def test_a_code_without_a_challenge_is_refused_after_the_application_becomes_public(
    approved_device: DeviceClient, pool: Pool
) -> None:
    await run_sql(pool, "update services set service_type = 'mobile', client_secret_hash = null")
    assert oauth_error(await approved_device.poll()) == INVALID


async def test_a_verifier_without_a_challenge_is_refused(approved_device: DeviceClient) -> None:
    assert oauth_error(await approved_device.poll(code_verifier=VERIFIER)) == INVALID
    assert (await approved_device.poll_after_interval()).status == 200


async def test_a_challenge_requires_the_verifier_for_every_client(cli: DeviceClient, session: SignedIn) -> None:
    await cli.begin(**PKCE)
    await cli.decide(session.access_token)
    assert oauth_error(await cli.poll()) == INVALID
    assert (await cli.poll_after_interval(code_verifier=VERIFIER)).status == 200


async def test_five_failures_lock_a_code(mobile_cli: DeviceClient, session: SignedIn, metrics: FakeMetrics) -> None:
    await mobile_cli.begin(**PKCE)
    await run_concurrently(5, lambda _: mobile_cli.poll(code_verifier="wrong" * 10))
    assert metrics.login_failures == {"device_code": 5}
    assert (await mobile_cli.decide(session.access_token)).status == 400
    await run_sql(mobile_cli.pool, "update device_codes set status = 'approved', session_id = %s", session.session_id)
    assert oauth_error(await mobile_cli.poll_after_interval(code_verifier=VERIFIER)) == INVALID


REFUSED_REQUESTS = {
    "no device code": ({"device_code": None}, (400, "invalid_request", "BAD_REQUEST")),
    "another grant": ({"grant_type": "authorization_code"}, (400, "invalid_request", "BAD_REQUEST")),
    "an unknown grant": ({"grant_type": "password"}, (400, "unsupported_grant_type", "BAD_REQUEST")),
    "two grants": ({"code": "x"}, (400, "invalid_request", "BAD_REQUEST")),
    "a wrong secret": ({"client_secret": "not the secret"}, (401, "invalid_client", "UNAUTHORIZED")),
    "the platform itself": ({"client_id": "frontend"}, (401, "invalid_client", "UNAUTHORIZED")),
}


@pytest.mark.parametrize(("changes", "expected"), REFUSED_REQUESTS.values(), ids=REFUSED_REQUESTS)
async def test_an_invalid_poll_is_refused(
    approved_device: DeviceClient, changes: dict[str, str | None], expected: tuple[int, str, str]
) -> None:
    assert oauth_error(await approved_device.poll(**changes)) == expected
    assert await approved_device.status() == ["approved"]


async def test_the_short_grant_type_works_too(approved_device: DeviceClient) -> None:
    assert GRANT.startswith("urn:")
    assert (await approved_device.poll(grant_type="device_code")).status == 200


# Changes between the approval and the poll

ENDINGS: dict[str, tuple[str, tuple[int, str, str]]] = {
    "the session ended": ("update sessions set ended_at = created_at", DENIED),
    "the session was removed, as anonymization does": ("delete from sessions", INVALID),
    "the account was deactivated": ("update users set deactivated_at = now() where email = 'ada@example.com'", DENIED),
    "the account was deleted": ("delete from users where email = 'ada@example.com'", INVALID),
    "the organization was suspended": ("update organizations set status = 'suspended'", NOT_ACTIVE),
    "the service requires a second factor": ("update services set required_acr = 'mfa'", INVALID),
    "the service was deleted": ("delete from services", INVALID),
}


@pytest.mark.parametrize(("change", "expected"), ENDINGS.values(), ids=ENDINGS)
async def test_an_approval_is_void_after_these_changes(approved_device: DeviceClient, change: str, expected: tuple[int, str, str]) -> None:
    await run_sql(approved_device.pool, change)
    before = await approved_device.count_rows()
    assert oauth_error(await approved_device.poll(client_id=None)) == expected
    assert await approved_device.count_rows() == before


@pytest.mark.parametrize(("change", "expected"), ENDINGS.values(), ids=ENDINGS)
async def test_an_approval_is_void_if_these_changes_commit_during_the_poll(
    approved_device: DeviceClient, change: str, expected: tuple[int, str, str]
) -> None:
    """The poll has been accepted and waits for the account lock, which the change holds."""
    lock = "select from users where email = 'ada@example.com' for update"
    answer = await run_during(approved_device.pool, [(lock, None), (change, None)], lambda: approved_device.poll(client_id=None))
    assert oauth_error(answer) == expected
    assert await run_sql(approved_device.pool, "select count(*) from sessions where service_id is not null") == [(0,)]


# Races


@pytest.mark.slow
async def test_of_twenty_parallel_polls_one_gets_tokens(approved_device: DeviceClient, metrics: FakeMetrics) -> None:
    answers = await run_concurrently(20, lambda _: approved_device.poll())
    assert [answer.status for answer in answers].count(200) == 1
    assert {oauth_error(answer) for answer in answers if answer.status != 200} <= {SLOW_DOWN, INVALID}
    assert metrics.tokens_issued == 1
    assert await run_sql(approved_device.pool, "select count(*) from sessions where service_id is not null") == [(1,)]
    assert await run_sql(approved_device.pool, "select count(*) from login_events where success") == [(1,)]


@pytest.mark.slow
async def test_of_twenty_accepted_parallel_polls_one_gets_tokens(approved_device: DeviceClient) -> None:
    """No poll is refused as early, because every poll is the first when it is read."""

    async def poll(_: int) -> Answer:
        await run_sql(approved_device.pool, "update device_codes set polled_at = null")
        return await approved_device.poll()

    answers = await run_concurrently(20, poll)
    assert [answer.status for answer in answers].count(200) == 1
    assert await run_sql(approved_device.pool, "select count(*) from sessions where service_id is not null") == [(1,)]


@pytest.mark.slow
async def test_a_parallel_approval_and_poll_lose_nothing(cli: DeviceClient, session: SignedIn) -> None:
    await cli.begin()
    acts: list[Callable[[], Awaitable[Answer]]] = [lambda: cli.decide(session.access_token), cli.poll]
    answers = await run_concurrently(2, lambda number: acts[number]())
    assert {answer.status for answer in answers} <= {200, 400}
    if await cli.status() == ["approved"]:
        assert (await cli.poll_after_interval()).status == 200
    assert await cli.status() == ["redeemed"]


# Limits


@pytest.fixture
def edge(request: pytest.FixtureRequest) -> Edge:
    return make_edge(**getattr(request, "param", {}))


@pytest.mark.parametrize("edge", [{"rate_limit_factor": 1.0}], indirect=True)
async def test_devices_at_one_address_share_a_rate_limit(approved_device: DeviceClient, clock: FakeClock) -> None:
    """The limit is a burst of ten, and then one request every five seconds.

    The code request and the approval used two requests from the burst.
    """
    for _ in range(8):
        assert (await approved_device.poll()).status in (200, 400)
    answer = await approved_device.poll()
    assert oauth_error(answer) == (429, "slow_down", "RATE_LIMIT_EXCEEDED")
    assert answer.headers["Retry-After"] == "5"
    refusal = await approved_device.request_codes()
    assert (refusal.status, refusal.json["error_code"]) == (429, "RATE_LIMIT_EXCEEDED")
    assert (await approved_device.decide(None)).status == 429
    other = await approved_device.poll(grant_type="refresh_token", device_code=None, refresh_token="x" * 43)
    assert other.status == 400, "other grants have another limit"
    clock.advance(INTERVAL)
    assert (await approved_device.poll()).status == 400


async def test_expired_codes_are_deleted(approved_device: DeviceClient, ports: Ports, clock: FakeClock) -> None:
    housekeeper = new_id()
    clock.advance(TTL + timedelta(minutes=15))
    assert "device_codes" not in (await sweep(ports, housekeeper) or {})
    clock.advance(timedelta(microseconds=1))
    assert (await sweep(ports, housekeeper) or {})["device_codes"] == 1
    assert oauth_error(await approved_device.poll()) == INVALID
