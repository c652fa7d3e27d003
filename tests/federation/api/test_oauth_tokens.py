"""The token endpoint: grants, client authentication, refresh and revocation.

Covers security A-4, A-10, O-3, O-4, S-1, S-2, S-3 and S-6, decisions 48, 88, 92, 93, and RFC 6749, RFC 7009, RFC 7636 and RFC 8414.
"""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.federation.api.cli import INVALID_CLIENT, oauth_error
from tests.federation.api.relying import (
    PKCE,
    SECRET,
    TOKEN,
    VERIFIER,
    RelyingParty,
    add_relying_party,
    basic,
    claims,
    sign_in_browser,
)
from tests.support.browser import FakeBrowser
from tests.support.builders import BASE_URL, Api, add_account, add_member, add_provisioned, run_concurrently, run_sql
from tests.support.services import add_plan, add_subscription
from tests.support.tenants import Tenant

INVALID_GRANT = (400, "invalid_grant", "BAD_REQUEST")
INVALID_REQUEST = (400, "invalid_request", "BAD_REQUEST")
UNKNOWN_CLIENT = "00000000-0000-4000-8000-000000000000"


async def live_sessions(pool: Pool) -> int:
    """Return how many sessions at services are live."""
    [(count,)] = await run_sql(pool, "select count(*) from sessions where service_id is not null and ended_at is null")
    return int(count)


# Codes


async def test_a_user_blocked_by_the_directory_gets_no_tokens(acme: Tenant, relying_party: RelyingParty, user: Account, pool: Pool) -> None:
    """A code and a refresh token are refused (security C-5, RFC 6749 section 5.2)."""
    tokens, code = (await relying_party.exchange(await relying_party.code())).json, await relying_party.code()
    await add_provisioned(pool, acme.org, user.id, provisioned=False, blocked=True)
    assert oauth_error(await relying_party.exchange(code)) == (403, "access_denied", "FORBIDDEN")
    await run_sql(pool, "update sessions set ended_at = now() where service_id is not null")  # as the deactivation does
    assert oauth_error(await relying_party.refresh(tokens["refresh_token"])) == INVALID_GRANT


async def test_a_code_is_exchanged_for_tokens_for_the_service(
    relying_party: RelyingParty, user: Account, ports: Ports, pool: Pool, clock: FakeClock
) -> None:
    plan = await add_plan(pool, relying_party.service)
    await add_subscription(ports, pool, relying_party.service, user.id, plan, ends=clock.now() + timedelta(days=30))
    answer = await relying_party.exchange(await relying_party.code())
    assert answer.status == 200, answer.text
    assert (answer.headers["Cache-Control"], answer.headers["Content-Type"]) == ("no-store", "application/json")
    tokens = answer.json
    assert tokens == {
        "access_token": tokens["access_token"],
        "token_type": "Bearer",
        "expires_in": 900,
        "refresh_token": tokens["refresh_token"],
    }
    token_claims = claims(tokens)
    assert (token_claims["sub"], token_claims["org"], token_claims["service"], token_claims["aud"]) == (
        str(user.id),
        "acme",
        "shop",
        str(relying_party.client_id),
    )
    assert (token_claims["iss"], token_claims["email"], token_claims["email_verified"]) == (BASE_URL, "ada@example.com", True)
    assert (token_claims["plan"], token_claims["subscription_status"], token_claims["features"]) == ("Gold", "active", ["exports"])
    profile = await relying_party.api.get("/api/user", token=tokens["access_token"])
    assert (profile.status, profile.json["service"]) == (200, "shop")


async def test_the_session_has_the_address_and_agent_of_the_browser(
    relying_party: RelyingParty, user: Account, pool: Pool, metrics: FakeMetrics
) -> None:
    await run_sql(pool, "delete from events")
    before = metrics.tokens_issued
    tokens = await relying_party.tokens()
    assert metrics.tokens_issued == before + 1
    columns = "id, user_id, org_id, service_id, address, agent, proofs -> 0 ->> 'provider', grant_type"
    assert await run_sql(pool, f"select {columns} from sessions where service_id is not null") == [  # noqa: S608
        tuple_of(claims(tokens)["sid"], user, relying_party, "198.51.100.7", "her browser", "websuite", "authorization_code")
    ]
    login = "session_id::text, user_id, org_id, service_id, provider, success, address, agent"
    assert await run_sql(pool, f"select {login} from login_events") == [  # noqa: S608
        (claims(tokens)["sid"], user.id, relying_party.tenant.org, relying_party.service, "websuite", True, "198.51.100.7", "her browser")
    ]
    assert await run_sql(pool, "select first_login_at is not null from service_users where user_id = %s", user.id) == [(True,)]
    [(name, data)] = await run_sql(pool, "select name, data from events")
    assert (name, data["provider"], data["service_id"]) == ("user.login.success", "websuite", str(relying_party.service))


def tuple_of(sid: str, user: Account, relying_party: RelyingParty, *rest: str) -> tuple[Any, ...]:
    return (UUID(sid), user.id, relying_party.tenant.org, relying_party.service, *rest)


async def test_a_sign_in_with_only_a_cookie_does_not_confirm_the_membership(relying_party: RelyingParty, user: Account, pool: Pool) -> None:
    """A member may follow an application's link by accident (docs/specification/security.md, Terms)."""
    await add_member(pool, relying_party.tenant.org, user.id)
    await relying_party.tokens()
    assert await run_sql(pool, "select confirmed_at from memberships where user_id = %s", user.id) == [(None,)]


async def test_the_tokens_say_that_an_address_is_not_verified(relying_party: RelyingParty, ports: Ports) -> None:
    await sign_in_browser(relying_party, await add_account(ports, "bob@example.com", verified=False))
    assert claims(await relying_party.tokens())["email_verified"] is False


async def test_the_request_can_be_json(relying_party: RelyingParty) -> None:
    body = {
        "code": await relying_party.code(),
        "redirect_uri": relying_party.redirect_uri,
        "client_id": str(relying_party.client_id),
        "client_secret": SECRET,
    }
    assert (await relying_party.api.post(TOKEN, body)).status == 200


@pytest.mark.parametrize(
    "changes",
    [
        {"code": "unknown"},
        {"redirect_uri": None},
        {"redirect_uri": "https://shop.example.com/other"},
        {"code_verifier": VERIFIER},  # from a request without a challenge (security O-3)
        {"code_verifier": "short"},
    ],
)
async def test_a_code_works_only_with_the_values_of_its_request(
    relying_party: RelyingParty, metrics: FakeMetrics, changes: dict[str, str | None]
) -> None:
    code = await relying_party.code()
    assert oauth_error(await relying_party.exchange(**{"code": code, **changes})) == INVALID_GRANT  # type: ignore[arg-type]
    assert metrics.login_failures["authorization_code"] == 1
    assert await live_sessions(relying_party.tenant.pool) == 0
    assert (await relying_party.exchange(code)).status == 200, "the refused exchange had no effect"


@pytest.mark.parametrize("verifier", [None, VERIFIER + "x", "v" * 42, "v" * 129, VERIFIER[:-1] + "é"])
async def test_a_challenge_requires_its_verifier(mobile_app: RelyingParty, relying_party: RelyingParty, verifier: str | None) -> None:
    for application, challenge in ((mobile_app, {}), (relying_party, PKCE)):
        application.browser.cookies = relying_party.browser.cookies
        code = await application.code(**challenge)
        assert oauth_error(await application.exchange(code, code_verifier=verifier)) == INVALID_GRANT
        assert (await application.exchange(code, code_verifier=VERIFIER)).status == 200


async def test_a_code_expires_after_a_minute(relying_party: RelyingParty, clock: FakeClock) -> None:
    code = await relying_party.code()
    clock.advance(timedelta(seconds=60))
    assert oauth_error(await relying_party.exchange(code)) == INVALID_GRANT


async def test_another_application_cannot_use_a_code(
    relying_party: RelyingParty, acme: Tenant, other_tenant: Tenant, browser: FakeBrowser
) -> None:
    code = await relying_party.code()
    for tenant in (acme, other_tenant):
        other = await add_relying_party(tenant, browser, "blog")
        answer = await other.exchange(code, redirect_uri=relying_party.redirect_uri)
        assert oauth_error(answer) == INVALID_GRANT
    assert (await relying_party.exchange(code)).status == 200


async def test_a_redirect_uri_missing_in_the_request_is_optional_in_the_exchange(relying_party: RelyingParty) -> None:
    assert (await relying_party.exchange(await relying_party.code(redirect_uri=None), redirect_uri=None)).status == 200
    assert (await relying_party.exchange(await relying_party.code(redirect_uri=None))).status == 200, "the registered one is accepted"
    wrong = await relying_party.exchange(await relying_party.code(redirect_uri=None), redirect_uri="https://evil.example/callback")
    assert oauth_error(wrong) == INVALID_GRANT


async def test_a_code_used_twice_ends_the_session_of_the_first_use(relying_party: RelyingParty, pool: Pool) -> None:
    code = await relying_party.code()
    tokens = (await relying_party.exchange(code)).json
    assert await relying_party.is_live(tokens)
    assert oauth_error(await relying_party.exchange(code)) == INVALID_GRANT
    assert not await relying_party.is_live(tokens)
    assert oauth_error(await relying_party.refresh(tokens["refresh_token"])) == INVALID_GRANT
    assert await live_sessions(pool) == 0


async def test_a_code_used_by_another_application_ends_nothing(
    relying_party: RelyingParty, other_tenant: Tenant, browser: FakeBrowser
) -> None:
    code = await relying_party.code()
    tokens = (await relying_party.exchange(code)).json
    assert oauth_error(await relying_party.exchange(code, client_secret="wrong")) == INVALID_CLIENT
    other = await add_relying_party(other_tenant, browser)
    assert oauth_error(await other.exchange(code, redirect_uri=relying_party.redirect_uri)) == INVALID_GRANT
    assert await relying_party.is_live(tokens)


@pytest.mark.slow
async def test_of_many_parallel_exchanges_one_wins_and_the_others_end_its_session(relying_party: RelyingParty, pool: Pool) -> None:
    code = await relying_party.code()
    answers = await run_concurrently(20, lambda _: relying_party.exchange(code))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19
    assert {oauth_error(answer) for answer in answers if answer.status == 400} == {INVALID_GRANT}
    assert await run_sql(pool, "select count(*), count(ended_at) from sessions where service_id is not null") == [(1, 1)]


@pytest.mark.parametrize(
    "change",
    [
        "update sessions set ended_at = now() where browser_hash is not null",
        "update users set deactivated_at = now()",
        "update users set anonymized_at = now()",
    ],
)
async def test_a_code_is_void_after_the_user_signs_out(relying_party: RelyingParty, pool: Pool, change: str) -> None:
    code = await relying_party.code()
    await run_sql(pool, change)
    assert oauth_error(await relying_party.exchange(code)) == INVALID_GRANT
    assert await live_sessions(pool) == 0


async def test_a_code_is_void_after_its_service_is_deleted(relying_party: RelyingParty, pool: Pool) -> None:
    code = await relying_party.code()
    await run_sql(pool, "delete from services where id = %s", relying_party.service)
    assert oauth_error(await relying_party.exchange(code)) == INVALID_CLIENT
    assert await run_sql(pool, "select count(*) from authorization_codes") == [(0,)]


# Client authentication


async def test_a_client_can_authenticate_with_a_header(relying_party: RelyingParty) -> None:
    code = await relying_party.code()
    header = basic(relying_party.client_id, SECRET)
    no_credentials = {"client_id": None, "client_secret": None}
    sent = {"code": code, "redirect_uri": relying_party.redirect_uri, "grant_type": "authorization_code"}
    assert (await relying_party.post(TOKEN, header, **sent, **no_credentials)).status == 200
    second_form = {**sent, "code": await relying_party.code()}
    assert (await relying_party.post(TOKEN, header, **second_form, client_id=str(relying_party.client_id))).status == 200


@pytest.mark.parametrize(
    "changes",
    [
        {"client_secret": None},
        {"client_secret": "wrong"},
        {"client_id": UNKNOWN_CLIENT},
        {"client_id": "shop"},
        {"client_id": None},
        {"client_id": None, "client_secret": None},
        {"client_id": "frontend", "client_secret": None},
    ],
)
async def test_a_client_without_valid_credentials_gets_nothing(relying_party: RelyingParty, changes: dict[str, str | None]) -> None:
    code = await relying_party.code()
    answer = await relying_party.exchange(code, **changes)
    assert oauth_error(answer) == INVALID_CLIENT
    assert answer.headers["WWW-Authenticate"] == 'Basic realm="gatehouse", charset="UTF-8"'
    assert (await relying_party.exchange(code)).status == 200


@pytest.mark.parametrize(
    "header",
    ["Basic", "Basic !!!", "Basic bm9jb2xvbg==", "Basic /w==", "Bearer abc", "Basic " + "Zm9vOmJhcg=="],
)
async def test_an_invalid_basic_header_is_refused(relying_party: RelyingParty, header: str) -> None:
    sent = {"code": "x", "redirect_uri": relying_party.redirect_uri}
    assert oauth_error(await relying_party.post(TOKEN, {"Authorization": header}, **sent)) == INVALID_CLIENT


async def test_repeated_client_credentials_are_refused(relying_party: RelyingParty) -> None:
    header = basic(relying_party.client_id, SECRET)
    sent = {"code": await relying_party.code(), "redirect_uri": relying_party.redirect_uri}
    assert oauth_error(await relying_party.post(TOKEN, header, **sent, client_secret=SECRET)) == INVALID_REQUEST
    assert oauth_error(await relying_party.post(TOKEN, header, **sent, client_id=UNKNOWN_CLIENT)) == INVALID_REQUEST


async def test_an_application_can_use_pkce_without_a_secret_if_allowed(relying_party: RelyingParty, pool: Pool) -> None:
    none = {"client_secret": None, "code_verifier": VERIFIER}
    assert oauth_error(await relying_party.exchange(await relying_party.code(**PKCE), **none)) == INVALID_CLIENT
    path = f"{relying_party.tenant.path}/services/shop"
    change = await relying_party.api.patch(path, {"pkce_without_secret": True}, token=relying_party.tenant.token("owner"))
    assert (change.status, change.json["pkce_without_secret"]) == (200, True)
    answer = await relying_party.exchange(await relying_party.code(**PKCE), **none)
    assert answer.status == 200, answer.text
    assert (await relying_party.refresh(answer.json["refresh_token"], client_secret=None)).status == 200
    assert oauth_error(await relying_party.exchange(await relying_party.code(), client_secret=None)) == INVALID_GRANT, (
        "without a challenge it needs its secret"
    )
    assert oauth_error(await relying_party.exchange(await relying_party.code(**PKCE), client_secret="wrong")) == INVALID_CLIENT
    assert (await relying_party.exchange(await relying_party.code())).status == 200


async def test_a_public_client_needs_no_secret(mobile_app: RelyingParty) -> None:
    code = await mobile_app.code()
    assert oauth_error(await mobile_app.exchange(code, client_secret="anything")) == INVALID_CLIENT
    assert (await mobile_app.exchange(code)).status == 200


# Request bodies


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"grant_type": "password"}, (400, "unsupported_grant_type", "BAD_REQUEST")),
        ({"grant_type": "refresh_token"}, INVALID_REQUEST),
        ({"grant_type": "urn:ietf:params:oauth:grant-type:device_code"}, INVALID_REQUEST),
        ({"code": None}, INVALID_REQUEST),
        ({"refresh_token": "another"}, INVALID_REQUEST),
        ({"code": ""}, INVALID_REQUEST),
        ({"code": "x" * 2049}, INVALID_REQUEST),
    ],
)
async def test_invalid_token_requests_are_refused(
    relying_party: RelyingParty, changes: dict[str, str | None], expected: tuple[int, str, str]
) -> None:
    assert oauth_error(await relying_party.exchange(**{"code": "x", **changes})) == expected  # type: ignore[arg-type]


async def test_unreadable_requests_are_refused_in_oauth_format(api: Api) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert oauth_error(await api.call("POST", TOKEN, raw=b"code=a&code=b", headers=form)) == INVALID_REQUEST
    assert oauth_error(await api.call("POST", TOKEN, raw=b"code=%ff", headers=form)) == INVALID_REQUEST
    assert oauth_error(await api.call("POST", TOKEN, raw=b"{", headers={"Content-Type": "application/json"})) == INVALID_REQUEST
    assert oauth_error(await api.post(TOKEN, {"code": 5})) == INVALID_REQUEST
    text = await api.call("POST", TOKEN, raw=b"code", headers={"Content-Type": "text/plain"})
    assert oauth_error(text) == (415, "invalid_request", "UNSUPPORTED_MEDIA_TYPE")


async def test_an_error_description_has_only_allowed_characters(relying_party: RelyingParty) -> None:
    answer = await relying_party.exchange("x", grant_type="refresh_token")
    description = answer.json["error_description"]
    assert description.isascii()
    assert not set(description) & set('"\\\n')
