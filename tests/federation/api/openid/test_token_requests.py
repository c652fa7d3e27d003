"""`scope` and `resource` at the token endpoint (RFC 6749 section 6, RFC 8707 section 2.2)."""

from urllib.parse import urlencode

import pytest

from core.accounts.model.accounts import Account
from tests.federation.api.openid.client import USERINFO, OpenIdClient
from tests.federation.api.relying import FORM, TOKEN, claims
from tests.support.builders import BASE_URL, EMAIL, Answer, run_sql


def error(answer: Answer) -> str:
    assert answer.status == 400, answer.text
    return str(answer.json["error"])


async def test_a_refresh_can_narrow_the_scope_of_its_tokens(signed_in: OpenIdClient, user: Account) -> None:
    tokens = await signed_in.tokens(scope="openid email unknown roles")
    narrowed = (await signed_in.party.refresh(tokens["refresh_token"], scope="openid unknown")).json
    assert (narrowed["scope"], claims(narrowed)["scope"]) == ("openid", "openid"), "a scope that was not granted is left out"
    assert "email" not in await signed_in.id_claims(narrowed)
    assert await signed_in.userinfo(narrowed) == {"sub": str(user.id)}
    again = await signed_in.refresh(narrowed)
    assert again["scope"] == "openid email roles", "the grant itself stays"
    assert (await signed_in.userinfo(again))["email"] == EMAIL


async def test_a_refresh_without_openid_gives_no_id_token(signed_in: OpenIdClient) -> None:
    tokens = await signed_in.tokens(scope="openid email")
    narrowed = (await signed_in.party.refresh(tokens["refresh_token"], scope="email")).json
    assert (narrowed["scope"], "id_token" in narrowed) == ("email", False)
    answer = await signed_in.party.api.get(USERINFO, token=narrowed["access_token"])
    assert (answer.status, answer.json["error"]) == (403, "insufficient_scope")
    assert answer.headers["WWW-Authenticate"] == 'Bearer error="insufficient_scope", scope="openid"'


@pytest.mark.parametrize("scope", ["unknown", "roles", "openid roles", "email unasked", "openid email unasked"])
async def test_a_scope_that_was_never_requested_is_refused_and_uses_nothing_up(signed_in: OpenIdClient, scope: str) -> None:
    """A request that leaves no granted scope gets no tokens either."""
    tokens = await signed_in.tokens(scope="openid email unknown")
    assert error(await signed_in.party.refresh(tokens["refresh_token"], scope=scope)) == "invalid_scope"
    assert (await signed_in.refresh(tokens))["scope"] == "openid email"


@pytest.mark.parametrize("asked", [None, "email", "read email"])
async def test_without_openid_a_refresh_may_repeat_the_scope_of_the_request_which_grants_nothing(
    signed_in: OpenIdClient, asked: str | None
) -> None:
    tokens = await signed_in.tokens(scope=asked)
    for scope in ("openid", "openid email", "write"):
        assert error(await signed_in.party.refresh(tokens["refresh_token"], scope=scope)) == "invalid_scope"
    answer = await signed_in.party.refresh(tokens["refresh_token"], scope=asked)
    assert (answer.status, {"id_token", "scope"} & answer.json.keys()) == (200, set()), "no scope was ever granted"


async def test_a_grant_of_an_earlier_release_leaves_out_scopes_that_were_not_granted(signed_in: OpenIdClient) -> None:
    """The earlier release did not store what the request asked for."""
    tokens = await signed_in.tokens(scope="openid email")
    await run_sql(signed_in.party.tenant.pool, "update sessions set asked_scope = null")
    assert (await signed_in.party.refresh(tokens["refresh_token"], scope="openid roles")).json["scope"] == "openid"


@pytest.mark.parametrize("granted", [None, f"{BASE_URL}/api"])
async def test_another_resource_than_the_granted_one_is_refused_and_uses_nothing_up(signed_in: OpenIdClient, granted: str | None) -> None:
    audience = granted or f"{BASE_URL}{USERINFO}"
    for other in {f"{BASE_URL}{USERINFO}", f"{BASE_URL}/api", "https://api.example"} - {audience}:
        code = (await signed_in.authorize(resource=granted))["code"]
        assert error(await signed_in.party.exchange(code, resource=other)) == "invalid_target"
        tokens = (await signed_in.party.exchange(code, resource=audience)).json
        assert claims(tokens)["aud"] == audience
        assert error(await signed_in.party.refresh(tokens["refresh_token"], resource=other)) == "invalid_target"
        refreshed = await signed_in.party.refresh(tokens["refresh_token"], resource=audience)
        assert (refreshed.status, claims(refreshed.json)["aud"]) == (200, audience)


async def test_a_second_resource_is_refused_and_uses_nothing_up(signed_in: OpenIdClient) -> None:
    """This holds even for the granted resource (decision 301)."""
    resources, party = [f"{BASE_URL}{USERINFO}"] * 2, signed_in.party
    code = (await signed_in.authorize())["code"]
    fields = {"code": code, "redirect_uri": party.redirect_uri, "client_id": str(party.client_id), "client_secret": party.secret}
    form = urlencode({**fields, "resource": resources}, doseq=True).encode()
    assert error(await party.api.call("POST", TOKEN, raw=form, headers=FORM)) == "invalid_target"
    assert error(await party.api.post(TOKEN, {**fields, "resource": resources})) == "invalid_target"
    assert (await party.api.post(TOKEN, {**fields, "resource": resources[:1]})).status == 200
    again = urlencode([*fields.items(), ("code", code)]).encode()
    assert error(await party.api.call("POST", TOKEN, raw=again, headers=FORM)) == "invalid_request", "no other parameter is repeated"


async def test_without_openid_there_is_no_resource(signed_in: OpenIdClient) -> None:
    code = (await signed_in.authorize(scope=None))["code"]
    assert error(await signed_in.party.exchange(code, resource=f"{BASE_URL}/api")) == "invalid_target"
    assert (await signed_in.party.exchange(code)).status == 200


async def test_an_unknown_refresh_token_is_an_invalid_grant_with_every_resource_and_scope(signed_in: OpenIdClient) -> None:
    """RFC 6749 section 5.2: only this error makes a client sign its user in again."""
    for fields in ({}, {"resource": f"{BASE_URL}{USERINFO}"}, {"resource": "https://api.example"}, {"scope": "openid"}):
        assert error(await signed_in.party.refresh("unknown", **fields)) == "invalid_grant"
