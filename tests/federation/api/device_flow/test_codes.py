"""Codes in the device flow (security V-1, V-4, decision 93, and RFC 8628)."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.federation.oauth.model.device_flow import USER_CODE_ALPHABET, format_user_code, normalize_user_code
from core.kernel.values import digest
from tests.fakes.outside import FakeClock
from tests.federation.api.cli import CODE, CURL, FORM, PKCE, DeviceClient, oauth_error
from tests.federation.api.device_flow.values import TTL
from tests.federation.api.relying import basic
from tests.support.builders import BASE_URL, Api, run_during, run_sql
from tests.support.refusals import BAD, refused
from tests.tables import table

INVALID_REQUEST = (400, "invalid_request", "BAD_REQUEST")


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


@pytest.mark.parametrize("setting", ["enterprise = true", "required_acr = 'mfa'"])
async def test_applications_with_stricter_sign_ins_get_no_codes(cli: DeviceClient, pool: Pool, setting: str) -> None:
    await run_sql(pool, f"update services set {setting}")  # noqa: S608
    assert oauth_error(await cli.request_codes()) == (400, "unauthorized_client", "BAD_REQUEST")
    assert await run_sql(pool, "select count(*) from device_codes") == [(0,)]


async def test_an_unknown_resource_is_refused_at_the_request_and_at_each_poll(cli: DeviceClient, pool: Pool) -> None:
    userinfo, client_id = f"{BASE_URL}/auth/userinfo", str(cli.service.client_id)
    for fields in ({"resource": f"{BASE_URL}/api", "scope": "openid"}, {"resource": userinfo}, {"resource": "x", "scope": "openid"}):
        refusal = await cli.request_codes(client_id=client_id, **fields)
        assert oauth_error(refusal) == (400, "invalid_target", "BAD_REQUEST"), fields
    twice = urlencode({"client_id": client_id, "scope": "openid", "resource": [userinfo, userinfo]}, doseq=True).encode()
    assert oauth_error(await cli.api.call("POST", CODE, raw=twice, headers=cli.headers)) == (400, "invalid_target", "BAD_REQUEST")
    assert await run_sql(pool, "select count(*) from device_codes") == [(0,)]
    await cli.begin(scope="openid", resource=userinfo)
    assert oauth_error(await cli.poll(resource=f"{BASE_URL}/api")) == (400, "invalid_target", "BAD_REQUEST")
    assert oauth_error(await cli.poll_after_interval(resource=userinfo))[1] == "authorization_pending"


def test_user_codes_have_no_vowels_and_no_digits() -> None:
    assert len(USER_CODE_ALPHABET) == len(set(USER_CODE_ALPHABET)) == 20
    assert not set(USER_CODE_ALPHABET) & set("AEIOUY0123456789")


@table("typed", ["BCDF-GHJK", "bcdfghjk", " bcdf ghjk ", "B.C.D.F.G.H.J.K", "BCDF\u2013GHJK", "b_c_d_f/g_h_j_k"])
def test_case_and_separators_of_a_user_code_do_not_matter(typed: str) -> None:
    assert normalize_user_code(typed) == "BCDFGHJK"
    assert format_user_code(typed) == "BCDF-GHJK"


@table("typed", ["", "BCDF-GHJ", "BCDF-GHJKL", "ACDF-GHJK", "1CDF-GHJK", "BCDF-GHJ\u212a", "B" + "-" * 60 + "CDFGHJK", "\x00"])
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
    "an unknown organization": ({"org": "unknown", "service": "shop"}, (404, "invalid_request", "NOT_FOUND")),
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


async def test_a_service_that_is_being_deleted_gets_no_codes(cli: DeviceClient, pool: Pool) -> None:
    answer = await run_during(pool, [("delete from services", ())], cli.request_codes)
    assert oauth_error(answer) == (404, "invalid_request", "NOT_FOUND")


async def test_codes_are_deleted_with_their_service(cli: DeviceClient, token: str, pool: Pool) -> None:
    await cli.begin()
    await run_sql(pool, "delete from services")
    assert await cli.status() == []
    assert refused(await cli.decide(token)) == BAD
