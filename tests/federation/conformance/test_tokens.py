"""Basic OP and Form Post Basic OP: codes that are used twice, and refresh tokens."""

import re
from datetime import timedelta

import pytest

from tests.fakes.outside import FakeClock
from tests.federation.conformance.client import USERINFO, Client, Grant, entropy, read_token_error, read_tokens


async def check_second_use(client: Client, wait: timedelta, clock: FakeClock) -> None:
    grant = await client.sign_in()
    clock.advance(wait)
    assert read_token_error(await client.exchange(grant.code)) == "invalid_grant"
    answer = await client.party.api.get(USERINFO, token=grant.tokens["access_token"])
    assert answer.status == 401, "RFC 6749 section 4.1.2: the tokens of the first use are revoked"


async def test_oidcc_codereuse(client: Client, clock: FakeClock) -> None:
    """The second use of a code gets invalid_grant."""
    await check_second_use(client, timedelta(0), clock)


async def test_oidcc_codereuse_30seconds(client: Client, clock: FakeClock) -> None:
    """The second use of a code after 30 seconds gets invalid_grant, and ends the access token from the first use."""
    await check_second_use(client, timedelta(seconds=30), clock)


@pytest.mark.slow
async def test_oidcc_refresh_token(client: Client, second_client: Client, clock: FakeClock) -> None:
    """With offline_access and prompt=consent, a client gets refresh tokens, which only this client can use.

    The new ID token has the same `iss`, `sub`, `aud`, `azp` and `auth_time`, and a new `iat`.
    """
    for each in (client, second_client):
        each.scope = "openid offline_access"
        grant = await each.sign_in(prompt="consent")
        assert grant.outcome.consent_pages == 1
        refresh_token = await check_refresh(each, grant, clock, scope=each.scope if each is client else None)
    stolen = await client.token_request(grant_type="refresh_token", refresh_token=refresh_token, scope=client.scope)
    assert read_token_error(stolen) == "invalid_grant"
    assert "refresh_token" in (await client.configuration())["grant_types_supported"]


async def check_refresh(client: Client, grant: Grant, clock: FakeClock, scope: str | None) -> str:
    """Refresh the tokens, and return the new refresh token."""
    clock.advance(timedelta(seconds=1))
    more = {} if scope is None else {"scope": scope}
    tokens = read_tokens(await client.token_request(grant_type="refresh_token", refresh_token=grant.tokens["refresh_token"], **more))
    for name in ("access_token", "refresh_token"):
        assert tokens[name] != grant.tokens[name]
        assert re.fullmatch(r"[\x20-\x7E]{16,}", tokens[name]), name  # RFC 6749 appendices A.12 and A.17
        assert entropy(tokens[name]) >= 96, name
    claims = await client.verify(tokens["id_token"])
    for name in ("iss", "sub", "aud", "azp", "auth_time"):
        assert claims[name] == grant.claims[name], name
    assert claims["iat"] == int(clock.now().timestamp()) > grant.claims["iat"]
    assert (await client.userinfo(tokens))["sub"] == grant.claims["sub"]
    refresh_token: str = tokens["refresh_token"]
    return refresh_token
