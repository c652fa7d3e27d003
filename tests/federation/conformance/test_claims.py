"""Basic OP and Form Post Basic OP: scopes and the parameter `claims`."""

import json

from tests.federation.conformance.client import EMAIL_CLAIMS, PROFILE_CLAIMS, PROTOCOL_CLAIMS, Client
from tests.support.builders import EMAIL


async def test_oidcc_scope_profile(client: Client) -> None:
    """The scope `profile` gives its fourteen standard claims at the userinfo endpoint."""
    client.scope = "openid profile"
    grant = await client.sign_in()
    claims = await client.userinfo(grant.tokens)
    assert claims.keys() == {"sub", *PROFILE_CLAIMS}
    assert grant.tokens["scope"] == "openid profile"


async def check_email(client: Client) -> None:
    grant = await client.sign_in()
    claims = await client.userinfo(grant.tokens)
    assert claims == {"sub": grant.claims["sub"], "email": EMAIL, "email_verified": True}
    assert claims.keys() == {"sub", *EMAIL_CLAIMS}
    assert grant.claims.keys() <= PROTOCOL_CLAIMS


async def test_oidcc_scope_email(client: Client) -> None:
    """The scope `email` gives its claims at the userinfo endpoint, and not in the ID token. There is no name in either."""
    client.scope = "openid email"
    await check_email(client)


async def test_oidcc_alternate_happy_flow(client: Client) -> None:
    """The order of scopes and parameters does not matter."""
    client.scope, client.reverses_parameters = "email openid", True
    await check_email(client)


async def check_without_scopes(client: Client, *names: str) -> None:
    """Sign in with scopes that give no claims here: they are ignored, and the granted scopes do not contain them."""
    supported = (await client.configuration())["scopes_supported"]
    assert set(names).isdisjoint(supported)
    granted = [scope for scope in supported if scope in client.scope.split(" ")]
    grant = await client.sign_in()
    assert grant.tokens["scope"].split(" ") == granted
    assert grant.claims.keys() <= PROTOCOL_CLAIMS
    assert not (await client.userinfo(grant.tokens)).keys() & {"address", "phone_number", "phone_number_verified"}


async def test_oidcc_scope_address(client: Client) -> None:
    """The scope `address` is not supported, so the suite skips this module. A request with it succeeds."""
    client.scope = "openid address"
    await check_without_scopes(client, "address")


async def test_oidcc_scope_phone(client: Client) -> None:
    """The scope `phone` is not supported, so the suite skips this module. A request with it succeeds."""
    client.scope = "openid phone"
    await check_without_scopes(client, "phone")


async def test_oidcc_scope_all(client: Client) -> None:
    """Two standard scopes are not supported, so the suite skips this module. The other scopes are granted."""
    client.scope = "openid address email phone profile"
    await check_without_scopes(client, "address", "phone")


async def test_oidcc_claims_essential(client: Client) -> None:
    """An essential `name` that the parameter `claims` requests for the userinfo endpoint is there, and not in the ID token."""
    grant = await client.sign_in(claims=json.dumps({"userinfo": {"name": {"essential": True}}}))
    claims = await client.userinfo(grant.tokens)
    assert claims.keys() == {"sub", "name"}
    assert grant.claims.keys() <= PROTOCOL_CLAIMS
