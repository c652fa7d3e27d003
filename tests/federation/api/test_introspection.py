"""Token introspection (RFC 7662, decision 262)."""

from datetime import timedelta
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from tests.fakes.outside import FakeClock
from tests.federation.api.cli import INVALID_CLIENT, oauth_error
from tests.federation.api.client_authentication.keys import assertion, proof, register
from tests.federation.api.relying import PKCE, SECRET, RelyingParty, add_relying_party, answer_fields, basic, claims
from tests.support.browser import FakeBrowser
from tests.support.builders import BASE_URL, Answer, run_sql
from tests.support.tenants import Tenant

INTROSPECT = "/auth/introspect"
INACTIVE = {"active": False}


async def introspect(client: RelyingParty, token: str, **fields: str | None) -> dict[str, Any]:
    sent = {"client_id": str(client.client_id), "client_secret": SECRET, **fields}
    answer = await client.post(INTROSPECT, **sent, token=token)
    assert answer.status == 200, answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    body: dict[str, Any] = answer.json
    return body


async def states(client: RelyingParty, tokens: dict[str, Any]) -> list[bool]:
    return [(await introspect(client, tokens[name]))["active"] for name in ("access_token", "refresh_token")]


@pytest.mark.parametrize("scope", [None, "openid profile"])
async def test_a_client_sees_the_state_of_its_tokens(
    relying_party: RelyingParty, user: Account, clock: FakeClock, scope: str | None
) -> None:
    if scope:
        await run_sql(
            relying_party.tenant.pool, "insert into consents select %s, org_id, id, '{openid,profile}', now() from services", user.id
        )
    answer = await relying_party.exchange(await relying_party.code(scope=scope, response_type="code"))
    assert answer.status == 200, answer.text
    tokens, now = answer.json, int(clock.now().timestamp())
    signed = claims(tokens)
    shared = {
        "active": True,
        "client_id": str(relying_party.client_id),
        "sub": str(user.id),
        "sid": signed["sid"],
        "iss": BASE_URL,
        "iat": now,
        **({"scope": scope} if scope else {"username": user.email}),
    }
    access = {"token_type": "Bearer", "aud": signed["aud"], "jti": signed["jti"], "exp": now + 900}
    assert await introspect(relying_party, tokens["access_token"]) == {**shared, **access}
    refresh = {"token_type": "refresh_token", "exp": now + 30 * 86400}
    for hint in (None, "access_token", "unknown"):
        assert await introspect(relying_party, tokens["refresh_token"], token_type_hint=hint) == {**shared, **refresh}
    headers = basic(relying_party.client_id, SECRET)
    assert (await relying_party.post(INTROSPECT, headers, token=tokens["access_token"])).json["active"] is True
    await register(relying_party)
    assert (await introspect(relying_party, tokens["access_token"], **proof(assertion(relying_party))))["active"] is True
    if scope:
        assert await introspect(relying_party, tokens["id_token"]) == INACTIVE


async def test_other_clients_see_nothing(
    relying_party: RelyingParty, mobile_app: RelyingParty, acme: Tenant, other_tenant: Tenant, browser: FakeBrowser
) -> None:
    """Other clients see no tokens from their own organization, from other organizations, or for the platform itself."""
    tokens = await relying_party.tokens()
    neighbour, stranger = await add_relying_party(acme, browser, "blog"), await add_relying_party(other_tenant, browser, "shop")
    for client in (neighbour, stranger):
        assert await states(client, tokens) == [False, False]
    platform = acme.sessions["admin"]
    for token in (platform.access_token, platform.refresh_token, "x", "ä", tokens["access_token"][:-1]):
        assert await introspect(relying_party, token) == INACTIVE
    public = await mobile_app.tokens()
    assert await states(relying_party, public) == [False, False]
    for fields in (
        {"client_id": str(mobile_app.client_id)},
        {},
        {"client_id": str(relying_party.client_id)},
        {"client_id": str(relying_party.client_id), "client_secret": "wrong"},
        {"client_id": "frontend"},
    ):
        assert oauth_error(await relying_party.post(INTROSPECT, **fields, token=tokens["access_token"])) == INVALID_CLIENT, fields


async def test_a_client_that_may_leave_its_secret_out_needs_it_here(relying_party: RelyingParty, pool: Pool) -> None:
    tokens = await relying_party.tokens()
    await run_sql(pool, "update services set pkce_without_secret = true")
    answer = await relying_party.post(INTROSPECT, client_id=str(relying_party.client_id), token=tokens["access_token"])
    assert oauth_error(answer) == INVALID_CLIENT


CHANGES = {
    "the session ended": "update sessions set ended_at = now() where service_id is not null",
    "the account is deactivated": "update users set deactivated_at = now()",
    "the account is anonymized": "update users set anonymized_at = now()",
    "the organization is suspended": "update organizations set status = 'suspended'",
    "the user left the application": "delete from service_users",
    "the application admits members only": "update services set access_policy = 'members'",
    "the directory blocks the user": "insert into directory_blocks (org_id, user_id, since) select s.org_id, s.user_id, now() "
    "from sessions s where s.service_id is not null",
}


@pytest.mark.parametrize("change", CHANGES)
async def test_changes_act_at_once(relying_party: RelyingParty, pool: Pool, change: str) -> None:
    tokens = await relying_party.tokens()
    assert await states(relying_party, tokens) == [True, True]
    await run_sql(pool, CHANGES[change])
    assert await states(relying_party, tokens) == [False, False]


async def test_used_revoked_and_expired_tokens_are_inactive(relying_party: RelyingParty, clock: FakeClock) -> None:
    tokens = await relying_party.tokens()
    renewed = (await relying_party.refresh(tokens["refresh_token"])).json
    assert await states(relying_party, tokens) == [True, False]
    assert await states(relying_party, renewed) == [True, True]
    clock.advance(timedelta(minutes=15))
    assert await states(relying_party, renewed) == [False, True]
    renewed = (await relying_party.refresh(renewed["refresh_token"])).json
    revoked = await relying_party.post(
        "/auth/revoke", token=renewed["access_token"], client_id=str(relying_party.client_id), client_secret=SECRET
    )
    assert revoked.status == 200
    assert await states(relying_party, renewed) == [False, False]


async def test_errors_are_json_also_for_browsers(relying_party: RelyingParty) -> None:
    """The Accept header does not matter, and neither do wrong methods and refusals before the route is reached."""
    html = {"Accept": "text/html"}
    answers: list[Answer] = []
    for path in ("/auth/token", "/auth/revoke", INTROSPECT, "/auth/userinfo", "/auth/device/code"):
        answers.append(await relying_party.post(path, html))
        answers.append(await relying_party.api.call("DELETE", path, headers=html))
        answers.append(await relying_party.api.call("POST", path, raw=b"x" * 300_000, headers=html))
    for path in ("/.well-known/openid-configuration", "/.well-known/jwks.json", "/.well-known/nothing"):
        answers.append(await relying_party.api.call("POST", path, headers=html))
    assert {answer.headers["Content-Type"] for answer in answers} == {"application/json"}
    assert {answer.status for answer in answers} <= {400, 401, 404, 405, 413, 415}


async def test_an_enterprise_application_always_sends_a_challenge(relying_party: RelyingParty, user: Account) -> None:
    await relying_party.code()
    await run_sql(relying_party.tenant.pool, "update services set enterprise = true")
    fields = answer_fields(await relying_party.open_request())
    assert (fields["error"], "code_challenge" in fields["error_description"]) == ("invalid_request", True)
    assert await relying_party.code(**PKCE)
