"""The token endpoint: refresh, revocation, the platform's frontend, limits and CORS.

Covers security S-1, S-2, S-3 and S-6, decision 88, and RFC 7009.
"""

from datetime import timedelta

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.policy import Policy
from entrypoints.http.edge.openapi import docs_of
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.api.cli import INVALID_CLIENT, oauth_error
from tests.federation.api.relying import (
    FORM,
    PKCE,
    REVOKE,
    SECRET,
    TOKEN,
    VERIFIER,
    RelyingParty,
    add_relying_party,
    basic,
    claims,
    redirect_parts,
    sign_in_browser,
)
from tests.support.browser import FakeBrowser
from tests.support.builders import BASE_URL, Api, log_in, run_concurrently, run_sql
from tests.support.direct import change_ports
from tests.support.refusals import UNAUTHORIZED, refused
from tests.support.services import sign_in_to
from tests.support.tenants import Tenant

INVALID_GRANT = (400, "invalid_grant", "BAD_REQUEST")
INVALID_REQUEST = (400, "invalid_request", "BAD_REQUEST")
NOT_ACTIVE = (403, "access_denied", "ORGANIZATION_NOT_ACTIVE")
FRONTEND = "https://app.example.com"
UNKNOWN_CLIENT = "00000000-0000-4000-8000-000000000000"


# Refresh tokens


async def test_a_refresh_token_is_rotated(relying_party: RelyingParty) -> None:
    tokens = await relying_party.tokens()
    renewed = await relying_party.refresh(tokens["refresh_token"])
    assert renewed.status == 200, renewed.text
    assert set(renewed.json) == {"access_token", "token_type", "expires_in", "refresh_token"}
    assert renewed.headers["Cache-Control"] == "no-store"
    assert claims(renewed.json)["sid"] == claims(tokens)["sid"]
    assert claims(renewed.json)["aud"] == str(relying_party.client_id)
    assert (await relying_party.refresh(renewed.json["refresh_token"], grant_type=None)).status == 200


async def test_a_reused_refresh_token_ends_its_session(relying_party: RelyingParty, clock: FakeClock) -> None:
    tokens = await relying_party.tokens()
    renewed = (await relying_party.refresh(tokens["refresh_token"])).json
    clock.advance(timedelta(seconds=11))
    assert oauth_error(await relying_party.refresh(tokens["refresh_token"])) == INVALID_GRANT
    assert not await relying_party.is_live(renewed)


async def test_another_application_cannot_use_a_refresh_token(
    relying_party: RelyingParty, acme: Tenant, other_tenant: Tenant, browser: FakeBrowser, clock: FakeClock
) -> None:
    tokens = await relying_party.tokens()
    for tenant, slug, service_type in ((acme, "blog", "web"), (other_tenant, "shop", "web"), (acme, "till", "mobile")):
        other = await add_relying_party(tenant, browser, slug, service_type)
        assert oauth_error(await other.refresh(tokens["refresh_token"])) == INVALID_GRANT
    renewed = await relying_party.refresh(tokens["refresh_token"])
    assert renewed.status == 200, "the refused attempt did not use it up"
    clock.advance(timedelta(seconds=11))
    other = await add_relying_party(acme, browser, "third")
    assert oauth_error(await other.refresh(tokens["refresh_token"])) == INVALID_GRANT
    assert await relying_party.is_live(renewed.json), "a used token of another application ends nothing"


async def test_a_refresh_token_from_a_code_needs_the_client_secret(relying_party: RelyingParty) -> None:
    tokens = await relying_party.tokens()
    assert oauth_error(await relying_party.refresh(tokens["refresh_token"], client_secret=None)) == INVALID_CLIENT
    assert oauth_error(await relying_party.refresh(tokens["refresh_token"], client_secret=None, client_id=None)) == INVALID_CLIENT
    assert oauth_error(await relying_party.refresh(tokens["refresh_token"], client_secret="wrong")) == INVALID_CLIENT
    assert refused(await relying_party.api.post("/api/auth/refresh", {"refresh_token": tokens["refresh_token"]})) == UNAUTHORIZED
    assert (await relying_party.refresh(tokens["refresh_token"])).status == 200


async def test_a_refresh_token_of_a_device_needs_no_client_secret(relying_party: RelyingParty, pool: Pool) -> None:
    tokens = await relying_party.tokens()
    await run_sql(pool, "update sessions set grant_type = 'device_code' where service_id is not null")
    renewed = (await relying_party.refresh(tokens["refresh_token"], client_secret=None)).json
    second_answer = await relying_party.refresh(renewed["refresh_token"], client_secret=None, client_id=None)
    assert second_answer.status == 200
    assert oauth_error(await relying_party.refresh(second_answer.json["refresh_token"], client_secret="wrong")) == INVALID_CLIENT


async def test_a_refresh_token_from_a_sign_in_with_a_password_needs_no_client(
    relying_party: RelyingParty, ports: Ports, pool: Pool, user: Account
) -> None:
    signed_in = await sign_in_to(ports, pool, relying_party.service, user)
    answer = await relying_party.api.post("/api/auth/refresh", {"refresh_token": signed_in.refresh_token})
    assert answer.status == 200
    assert (await relying_party.refresh(answer.json["refresh_token"])).status == 200


async def test_a_public_client_refreshes_with_its_client_id(mobile_app: RelyingParty) -> None:
    tokens = await mobile_app.tokens()
    renewed = await mobile_app.refresh(tokens["refresh_token"])
    assert renewed.status == 200
    assert oauth_error(await mobile_app.refresh(renewed.json["refresh_token"], client_id=UNKNOWN_CLIENT)) == INVALID_CLIENT


@pytest.mark.slow
async def test_of_many_parallel_refreshes_one_wins(relying_party: RelyingParty) -> None:
    tokens = await relying_party.tokens()
    answers = await run_concurrently(20, lambda _: relying_party.refresh(tokens["refresh_token"]))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19
    [renewed] = [answer.json for answer in answers if answer.status == 200]
    assert await relying_party.is_live(renewed)


# Suspension


async def test_a_suspended_organization_gets_no_tokens(relying_party: RelyingParty, pool: Pool) -> None:
    code, tokens = await relying_party.code(), await relying_party.tokens()
    await run_sql(pool, "update organizations set status = 'suspended' where id = %s", relying_party.tenant.org)
    assert oauth_error(await relying_party.exchange(code)) == NOT_ACTIVE
    assert oauth_error(await relying_party.refresh(tokens["refresh_token"])) == NOT_ACTIVE
    await run_sql(pool, "update organizations set status = 'active' where id = %s", relying_party.tenant.org)
    assert (await relying_party.refresh(tokens["refresh_token"])).status == 200
    assert (await relying_party.exchange(code)).status == 200


# Revocation


@pytest.mark.parametrize("kind", ["refresh_token", "access_token"])
async def test_a_revoked_token_ends_its_session(relying_party: RelyingParty, kind: str) -> None:
    tokens = await relying_party.tokens()
    sent = {"token": tokens[kind], "token_type_hint": kind, "client_id": str(relying_party.client_id), "client_secret": SECRET}
    answer = await relying_party.post(REVOKE, **sent)
    assert (answer.status, answer.text) == (200, "")
    assert not await relying_party.is_live(tokens)
    assert oauth_error(await relying_party.refresh(tokens["refresh_token"])) == INVALID_GRANT
    assert (await relying_party.post(REVOKE, **sent)).status == 200, "a second revocation has the same answer"


async def test_unknown_tokens_and_those_of_other_clients_get_the_same_answer(
    relying_party: RelyingParty, acme: Tenant, other_tenant: Tenant, browser: FakeBrowser
) -> None:
    tokens = await relying_party.tokens()
    for tenant, slug in ((acme, "blog"), (other_tenant, "shop")):
        other = await add_relying_party(tenant, browser, slug)
        for token in (tokens["access_token"], tokens["refresh_token"], "unknown"):
            answer = await other.post(REVOKE, basic(other.client_id, SECRET), token=token)
            assert (answer.status, answer.text) == (200, "")
    assert await relying_party.is_live(tokens)


async def test_revocation_needs_valid_client_credentials(relying_party: RelyingParty) -> None:
    tokens = await relying_party.tokens()
    sent = {"token": tokens["refresh_token"], "client_id": str(relying_party.client_id)}
    assert oauth_error(await relying_party.post(REVOKE, **sent, client_secret="wrong")) == INVALID_CLIENT
    assert oauth_error(await relying_party.post(REVOKE, **sent)) == INVALID_CLIENT, (
        "with 200 the client would believe that the token is revoked"
    )
    assert oauth_error(await relying_party.post(REVOKE, client_id=str(relying_party.client_id), client_secret=SECRET)) == INVALID_REQUEST
    assert await relying_party.is_live(tokens)


async def test_a_token_of_a_confidential_client_is_revoked_only_with_its_secret(relying_party: RelyingParty) -> None:
    """The request may also name no client (RFC 7009 section 2.1). Unknown tokens need no secret."""
    tokens = await relying_party.tokens()
    for token in (tokens["access_token"], tokens["refresh_token"]):
        answer = await relying_party.post(REVOKE, token=token)
        assert oauth_error(answer) == INVALID_CLIENT
        assert answer.headers["WWW-Authenticate"].startswith("Basic ")
    assert await relying_party.is_live(tokens)
    assert (await relying_party.post(REVOKE, token="made up")).status == 200
    await relying_party.post(REVOKE, token=tokens["refresh_token"], client_id=str(relying_party.client_id), client_secret=SECRET)
    assert (await relying_party.post(REVOKE, token=tokens["refresh_token"])).status == 200, "tokens of ended sessions need no secret either"


async def test_a_public_client_revokes_with_or_without_its_client_id(mobile_app: RelyingParty) -> None:
    for form in ({"client_id": str(mobile_app.client_id)}, {}):
        tokens = await mobile_app.tokens()
        assert (await mobile_app.post(REVOKE, token=tokens["refresh_token"], **form)).status == 200
        assert not await mobile_app.is_live(tokens)


async def test_users_can_revoke_their_own_tokens(api: Api, ports: Ports, user: Account) -> None:
    pair = await log_in(ports)
    assert (await api.post(REVOKE, {"token": pair.access_token})).status == 200
    assert (await api.get("/api/user", token=pair.access_token)).status == 401


# The platform's own application


async def test_the_frontend_gets_tokens_for_the_platform(
    app: QuartTrio, browser: FakeBrowser, api: Api, user: Account, relying_party: RelyingParty, pool: Pool
) -> None:
    change_ports(app, policy=Policy(frontend_url=FRONTEND))
    await sign_in_browser(relying_party, user, is_known=False)
    path = f"/auth/authorize?code_challenge={PKCE['code_challenge']}&code_challenge_method=S256"
    sent = {"client_id": "frontend", "redirect_uri": None, "code_verifier": VERIFIER}

    async def code() -> str:
        return redirect_parts(await browser.open(path))[1]["code"]

    without = {**sent, "client_secret": None, "code_verifier": None}
    assert oauth_error(await relying_party.exchange(await code(), **without)) == INVALID_GRANT
    assert oauth_error(await relying_party.exchange(await code(), redirect_uri=None, code_verifier=VERIFIER)) == INVALID_GRANT, (
        "a service is another client"
    )
    answer = await relying_party.post(
        TOKEN, code=await code(), redirect_uri=f"{FRONTEND}/auth/callback", client_id="frontend", code_verifier=VERIFIER
    )
    assert answer.status == 200, answer.text
    token_claims = claims(answer.json)
    assert (token_claims["aud"], token_claims["client_id"]) == (f"{BASE_URL}/api", "frontend")
    assert "service" not in token_claims
    assert (await api.get("/api/user", token=answer.json["access_token"])).status == 200
    assert (await api.get("/api/user/organizations", token=answer.json["access_token"])).status != 403
    renewed = await relying_party.post(TOKEN, refresh_token=answer.json["refresh_token"], client_id="frontend")
    assert renewed.status == 200
    other = await relying_party.post(TOKEN, basic(relying_party.client_id, SECRET), refresh_token=renewed.json["refresh_token"])
    assert oauth_error(other) == INVALID_GRANT
    assert await run_sql(pool, "select grant_type from sessions where service_id is null and browser_hash is null") != []


# Limits


@pytest.mark.parametrize("edge", [{"rate_limit_factor": 1.0, "client_rate": 0.1}], indirect=True)
async def test_a_client_with_its_secret_has_its_own_rate_limit(relying_party: RelyingParty, acme: Tenant, browser: FakeBrowser) -> None:
    """The test setting is a tenth: 0.1 requests per second and a burst of two."""
    assert [(await relying_party.exchange("x")).status for _ in range(3)] == [400, 400, 429]
    limited = await relying_party.exchange("x")
    assert oauth_error(limited) == (429, "temporarily_unavailable", "RATE_LIMIT_EXCEEDED")
    assert limited.headers["Retry-After"] == "10"
    other = await add_relying_party(acme, browser, "blog")
    assert (await other.exchange("x")).status == 400


@pytest.mark.parametrize("edge", [{"rate_limit_factor": 1.0, "client_rate": 0.1}], indirect=True)
async def test_clients_without_a_secret_share_the_rate_limit_of_their_address(relying_party: RelyingParty) -> None:
    wrong = [(await relying_party.exchange("x", client_secret="wrong")).status for _ in range(10)]
    missing = [(await relying_party.exchange("x", client_secret=None)).status for _ in range(5)]
    junk = [(await relying_party.post(TOKEN)).status for _ in range(6)]
    assert wrong + missing + junk == [401] * 15 + [400] * 5 + [429]
    assert (await relying_party.exchange("x")).status == 400, "the client with the secret has its own limit"


# CORS


@pytest.mark.parametrize("edge", [{}, {"frontend_url": FRONTEND}], indirect=True)
@pytest.mark.parametrize("origin_url", [FRONTEND, "https://shop.example.com", "null"])
async def test_every_origin_can_read_the_token_endpoint(relying_party: RelyingParty, origin_url: str) -> None:
    """Every origin can read the responses to preflight requests and all other responses."""
    origin = {"Origin": origin_url}
    preflight_headers = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, content-type"}
    preflight = await relying_party.api.call("OPTIONS", TOKEN, headers={**origin, **preflight_headers})
    assert preflight.status == 204
    assert preflight.headers["Access-Control-Allow-Methods"] == "OPTIONS, POST"
    assert {"Authorization", "Content-Type"} <= set(preflight.headers["Access-Control-Allow-Headers"].split(", "))
    credentials = {"client_id": str(relying_party.client_id), "client_secret": SECRET, "redirect_uri": relying_party.redirect_uri}
    accepted, refused_answer = [
        await relying_party.post(TOKEN, origin, code=code, **credentials) for code in (await relying_party.code(), "unknown")
    ]
    assert (accepted.status, refused_answer.status) == (200, 400)
    for answer in (preflight, accepted, refused_answer):
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert "Access-Control-Allow-Credentials" not in answer.headers


async def test_only_endpoints_that_read_no_cookies_allow_every_origin(app: QuartTrio) -> None:
    """No route below /api is among them (security G-3)."""
    allowed = {rule.rule for rule in app.url_map.iter_rules() if docs_of(app.view_functions[rule.endpoint]).any_origin}
    metadata = {"/.well-known/jwks.json", "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"}
    metadata |= {"/.well-known/oauth-protected-resource/api", "/.well-known/authzen-configuration"}
    assert allowed == {TOKEN, REVOKE, "/auth/userinfo", "/auth/par", "/auth/register", *metadata}


async def test_other_endpoints_outside_the_api_allow_no_origin(relying_party: RelyingParty) -> None:
    for method, path in (("POST", "/auth/device/code"), ("GET", "/auth/authorize")):
        sent = {"Origin": "https://shop.example.com", "Access-Control-Request-Method": method}
        for answer in (
            await relying_party.api.call("OPTIONS", path, headers=sent),
            await relying_party.api.call(method, path, raw=b"client_id=x", headers={**FORM, **sent}),
        ):
            assert [name for name, _ in answer.headers if name.lower().startswith("access-control-")] == []
