"""The device flow: codes, and approval through the API.

Covers security V-1, V-2, V-3 and V-4, decisions 91, 93, 94, 95, 96, 97, 98 and 99, and RFC 8628.

The module is longer than 400 lines, because all tests share the same device and its service.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.accounts_rules import Account
from core.federation.oauth.device_flow_rules import USER_CODE_ALPHABET, format_user_code, normalize_user_code
from core.kernel.values import digest
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.federation.api.cli import CODE, CURL, FORM, PKCE, VERIFY, DeviceClient, oauth_error
from tests.federation.api.relying import basic
from tests.proof.access.belongings import wait_for_code
from tests.support.builders import (
    BASE_URL,
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
from tests.support.services import add_service, service_context, sign_in_to
from tests.support.tenants import Tenant

EXPIRED = (400, "DEVICE_CODE_EXPIRED")
INVALID_REQUEST = (400, "invalid_request", "BAD_REQUEST")
TTL = timedelta(minutes=5)


@pytest.fixture
async def cli(acme: Tenant, pool: Pool, clock: FakeClock) -> DeviceClient:
    return DeviceClient(acme.api, pool, clock, await service_context(pool, await add_service(pool, acme.org, "shop")))


@pytest.fixture
async def mobile_cli(acme: Tenant, pool: Pool, clock: FakeClock) -> DeviceClient:
    """A device of a mobile application, a public client."""
    return DeviceClient(acme.api, pool, clock, await service_context(pool, await add_service(pool, acme.org, "till", "mobile")))


@pytest.fixture
async def token(ports: Ports, user: Account) -> str:
    """An access token of the user."""
    return (await sign_in(ports, user)).access_token


# Codes


async def test_a_device_gets_a_pair_of_codes(cli: DeviceClient, clock: FakeClock, pool: Pool) -> None:
    answer = await cli.request_codes()
    assert answer.status == 200, answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    codes = answer.json
    user_code = codes["user_code"]
    assert codes == {
        "device_code": codes["device_code"],
        "user_code": user_code,
        "verification_uri": f"{BASE_URL}/auth/device/verify",
        "verification_uri_complete": f"{BASE_URL}/auth/device/verify?user_code={user_code}",
        "expires_in": 300,
        "interval": 5,
    }
    assert len(codes["device_code"]) == 43
    assert user_code[4] == "-"
    assert len(user_code) == 9
    assert set(user_code.replace("-", "")) <= set(USER_CODE_ALPHABET)
    columns = "device_code_hash, user_code_hash, org_id, service_id, address, agent, status, interval_seconds, created_at, expires_at"
    now = clock.now()
    assert await run_sql(pool, f"select {columns} from device_codes") == [  # noqa: S608
        (
            digest(codes["device_code"]),
            digest(user_code.replace("-", "")),
            cli.service.org_id,
            cli.service.id,
            "0.0.0.0",  # noqa: S104
            CURL,
            "pending",
            5,
            now,
            now + TTL,
        )
    ]


async def test_no_client_secret_is_needed_but_a_wrong_one_is_refused(cli: DeviceClient, pool: Pool) -> None:
    client_id = str(cli.service.client_id)
    for secret, status in (("a client secret", 200), ("wrong", 401)):
        assert (await cli.request_codes(client_id=client_id, client_secret=secret)).status == status
        headers = {**cli.headers, **basic(client_id, secret)}
        assert (await cli.api.call("POST", CODE, raw=b"scope=x", headers=headers)).status == status
    assert await run_sql(pool, "select count(*) from device_codes") == [(2,)]


def test_user_codes_have_no_vowels_and_no_digits() -> None:
    assert len(USER_CODE_ALPHABET) == len(set(USER_CODE_ALPHABET)) == 20
    assert not set(USER_CODE_ALPHABET) & set("AEIOUY0123456789")


@pytest.mark.parametrize("typed", ["BCDF-GHJK", "bcdfghjk", " bcdf ghjk ", "B.C.D.F.G.H.J.K", "BCDF\u2013GHJK", "b_c_d_f/g_h_j_k"])
def test_case_and_separators_of_a_user_code_do_not_matter(typed: str) -> None:
    assert normalize_user_code(typed) == "BCDFGHJK"
    assert format_user_code(typed) == "BCDF-GHJK"


@pytest.mark.parametrize(
    "typed", ["", "BCDF-GHJ", "BCDF-GHJKL", "ACDF-GHJK", "1CDF-GHJK", "BCDF-GHJ\u212a", "B" + "-" * 60 + "CDFGHJK", "\x00"]
)
def test_text_that_cannot_be_a_user_code_is_none(typed: str) -> None:
    assert normalize_user_code(typed) is None
    assert format_user_code(typed) == typed


@pytest.mark.parametrize("way", ["client id", "slugs", "all", "json", "scope"])
async def test_slugs_or_a_client_id_name_the_application(cli: DeviceClient, api: Api, way: str) -> None:
    client, slugs = {"client_id": str(cli.service.client_id)}, {"org": "acme", "service": "shop"}
    fields = {"client id": client, "slugs": slugs, "all": client | slugs, "json": client, "scope": client | {"scope": "read write"}}[way]
    answer = await (api.post(CODE, fields) if way == "json" else cli.request_codes(**fields))
    assert answer.status == 200, answer.text
    assert await cli.status() == ["pending"]


async def test_a_service_can_have_its_own_activation_page(cli: DeviceClient, pool: Pool) -> None:
    for uri, complete in (
        ("https://shop.example.com/activate", "https://shop.example.com/activate?user_code="),
        ("https://shop.example.com/?at=activate", "https://shop.example.com/?at=activate&user_code="),
    ):
        await run_sql(pool, "update services set device_activation_uri = %s", uri)
        user_code = await cli.begin()
        assert (cli.codes["verification_uri"], cli.codes["verification_uri_complete"]) == (uri, f"{complete}{user_code}")


REFUSED_CODES: Final[Mapping[str, tuple[dict[str, str], tuple[int, str, str]]]] = {
    "no application": ({"scope": "x"}, INVALID_REQUEST),
    "the platform itself": ({"client_id": "frontend"}, INVALID_REQUEST),
    "an unknown client": ({"client_id": str(UUID(int=7))}, (401, "invalid_client", "UNAUTHORIZED")),
    "a client id that is not a UUID": ({"client_id": "shop"}, (401, "invalid_client", "UNAUTHORIZED")),
    "no service": ({"org": "acme"}, INVALID_REQUEST),
    "no organization": ({"service": "shop"}, INVALID_REQUEST),
    "an unknown organization": ({"org": "nobody", "service": "shop"}, (404, "invalid_request", "NOT_FOUND")),
    "an unknown service": ({"org": "acme", "service": "nothing"}, (404, "invalid_request", "NOT_FOUND")),
    "another client's service": ({"org": "acme", "service": "shop", "client_id": str(UUID(int=7))}, INVALID_REQUEST),
    "a plain challenge": (
        {"org": "acme", "service": "shop", "code_challenge": "x" * 43, "code_challenge_method": "plain"},
        INVALID_REQUEST,
    ),
    "a challenge without method": ({"org": "acme", "service": "shop", "code_challenge": "x" * 43}, INVALID_REQUEST),
    "a short challenge": ({"org": "acme", "service": "shop", "code_challenge": "x", "code_challenge_method": "S256"}, INVALID_REQUEST),
    "a control character": ({"org": "acme\x00", "service": "shop"}, INVALID_REQUEST),
}


async def test_invalid_requests_for_codes_are_refused(cli: DeviceClient) -> None:
    findings = []
    for mistake, (fields, expected) in REFUSED_CODES.items():
        error = oauth_error(await cli.request_codes(**fields))
        if error != expected or await cli.status() != []:
            findings.append((mistake, error))
    assert findings == []


async def test_bodies_other_than_forms_and_json_are_refused(cli: DeviceClient, api: Api) -> None:
    answer = await api.call("POST", CODE, raw=b"client_id=x", headers={"Content-Type": "text/plain"})
    assert oauth_error(answer) == (415, "invalid_request", "UNSUPPORTED_MEDIA_TYPE")
    assert oauth_error(await api.call("POST", CODE, raw=b"client_id=x&client_id=y", headers=FORM)) == INVALID_REQUEST


async def test_a_mobile_application_must_send_a_challenge(mobile_cli: DeviceClient) -> None:
    assert oauth_error(await mobile_cli.request_codes()) == INVALID_REQUEST
    assert (await mobile_cli.request_codes(client_id=str(mobile_cli.service.client_id), **PKCE)).status == 200


async def test_a_suspended_organization_gets_no_codes(cli: DeviceClient, pool: Pool) -> None:
    await run_sql(pool, "update organizations set status = 'suspended'")
    assert oauth_error(await cli.request_codes()) == (403, "access_denied", "ORGANIZATION_NOT_ACTIVE")
    assert await cli.status() == []


async def test_two_devices_never_have_the_same_user_code(cli: DeviceClient, monkeypatch: pytest.MonkeyPatch) -> None:
    emails = iter("BBBBBBBB" + "BBBBBBBB" + "CCCCCCCC")
    monkeypatch.setattr("core.federation.oauth.device_flow.secrets.choice", lambda _: next(emails))
    assert [await cli.begin(), await cli.begin()] == ["BBBB-BBBB", "CCCC-CCCC"]


# Approval


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


async def test_a_user_code_can_be_typed_in_any_style(cli: DeviceClient, token: str) -> None:
    user_code = await cli.begin()
    assert (await cli.decide(token, user_code=f" {user_code.lower().replace('-', ' ')} ")).status == 200


@pytest.mark.parametrize("action", ["approve", "deny"])
async def test_a_decision_is_final(cli: DeviceClient, token: str, action: str) -> None:
    await cli.begin()
    await cli.decide(token, action)
    before = await cli.status()
    for again in ("approve", "deny"):
        assert refused(await cli.decide(token, again)) == BAD
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


async def test_a_decision_needs_credentials(cli: DeviceClient) -> None:
    await cli.begin()
    assert refused(await cli.decide(None)) == UNAUTHORIZED
    assert await cli.status() == ["pending"]


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
    await add_provisioned(pool, acme.org, user.id, provisioned=False, kept_out=True)
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


async def test_a_service_that_is_being_deleted_gets_no_codes(cli: DeviceClient, pool: Pool) -> None:
    answer = await run_during(pool, [("delete from services", ())], cli.request_codes)
    assert oauth_error(answer) == (404, "invalid_request", "NOT_FOUND")


async def test_codes_are_deleted_with_their_service(cli: DeviceClient, token: str, pool: Pool) -> None:
    await cli.begin()
    await run_sql(pool, "delete from services")
    assert await cli.status() == []
    assert refused(await cli.decide(token)) == BAD
