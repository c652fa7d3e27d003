"""Basic OP and Form Post Basic OP: the code flow, the userinfo endpoint, and the redirect URI."""

import json
from base64 import urlsafe_b64encode
from urllib.parse import urlencode

from core.federation.oauth.model.authorization import s256_challenge
from core.kernel.values import new_secret
from tests.federation.api.relying import AUTHORIZE, FORM
from tests.federation.conformance.client import PROTOCOL_CLAIMS, USERINFO, Client, entropy, read_tokens, read_userinfo
from tests.support.browser import FakeBrowser


async def test_oidcc_server(client: Client) -> None:
    """A code becomes tokens: the ID token is valid and has no claims that were not requested, and the code is hard to guess."""
    grant = await client.sign_in()
    assert grant.claims.keys() <= PROTOCOL_CLAIMS
    assert len(grant.code) * 8 >= 128
    assert entropy(grant.code) >= 96


async def test_oidcc_response_type_missing(client: Client) -> None:
    """A request without response_type gets the error invalid_request or unsupported_response_type."""
    outcome = await client.open(response_type=None)
    assert client.error_of(outcome) in {"invalid_request", "unsupported_response_type"}
    assert outcome.questions == 0


async def test_oidcc_userinfo_get(client: Client) -> None:
    """The userinfo endpoint answers GET with JSON that has the ID token's `sub`."""
    grant = await client.sign_in()
    claims = read_userinfo(await client.party.api.get(USERINFO, token=grant.tokens["access_token"]))
    assert claims["sub"] == grant.claims["sub"]


async def test_oidcc_userinfo_post_header(client: Client) -> None:
    """The userinfo endpoint answers POST with the token in the header."""
    grant = await client.sign_in()
    claims = read_userinfo(await client.party.api.call("POST", USERINFO, token=grant.tokens["access_token"]))
    assert claims["sub"] == grant.claims["sub"]


async def test_oidcc_userinfo_post_body(client: Client) -> None:
    """The userinfo endpoint answers POST with the token in the form."""
    grant = await client.sign_in()
    body = urlencode({"access_token": grant.tokens["access_token"]}).encode()
    claims = read_userinfo(await client.party.api.call("POST", USERINFO, raw=body, headers=FORM))
    assert claims["sub"] == grant.claims["sub"]


async def test_oidcc_ensure_request_without_nonce_succeeds_for_code_flow(client: Client) -> None:
    """A request without nonce gets a code, and the ID token has no nonce."""
    grant = await client.sign_in(nonce=None)
    assert "nonce" not in grant.claims


async def test_oidcc_ensure_registered_redirect_uri(client: Client) -> None:
    """A redirect URI that is not registered ends at our error page."""
    outcome = await client.open(redirect_uri=f"{client.party.redirect_uri}/{new_secret()}")
    assert outcome.page is not None
    assert (outcome.page.status, "redirect URI is not registered" in outcome.page.text) == (400, True)


async def test_oidcc_ensure_post_request_succeeds(client: Client, browser: FakeBrowser) -> None:
    """The authorization endpoint takes a POST from the application's site."""
    await client.complete(await client.person.follow_form(AUTHORIZE, client.parameters()))
    assert "gatehouse-session" in browser.cookies


async def test_oidcc_server_client_secret_post(client: Client) -> None:
    """The token endpoint accepts the client's secret in the form (client_secret_post)."""
    party = client.party
    answer = await party.exchange(client.code_of(await client.open()))  # with client_id and client_secret in the form
    await client.read_id_token(read_tokens(answer))
    assert "client_secret_post" in (await client.configuration())["token_endpoint_auth_methods_supported"]


async def test_oidcc_ensure_request_with_valid_pkce_succeeds(client: Client) -> None:
    """A confidential client can use PKCE, too."""
    verifier = new_secret()
    outcome = await client.open(code_challenge=s256_challenge(verifier), code_challenge_method="S256")
    await client.read_id_token(read_tokens(await client.exchange(client.code_of(outcome), code_verifier=verifier)))


async def test_oidcc_unsigned_request_object_supported_correctly_or_rejected_as_unsupported(client: Client) -> None:
    """A request object is refused with request_not_supported, and so that its application understands the answer.

    The state and the response mode are in the object only, as in the suite.
    """
    request = client.parameters()
    outside = {name: request[name] for name in ("client_id", "redirect_uri", "response_type", "scope")}
    outcome = await client.person.open(f"{AUTHORIZE}?{urlencode({**outside, 'request': unsigned(request)})}")
    assert client.error_of(outcome) == "request_not_supported"
    assert (await client.configuration())["request_parameter_supported"] is False


async def test_oidcc_ensure_request_object_with_redirect_uri(client: Client) -> None:
    """A registered redirect URI in a request object does not replace an unregistered redirect URI: we show an error page."""
    request = client.parameters()
    outside = {name: request[name] for name in ("client_id", "response_type", "scope")}
    sent = {**outside, "redirect_uri": f"{client.party.redirect_uri}_invalid", "request": unsigned(request)}
    outcome = await client.person.open(f"{AUTHORIZE}?{urlencode(sent)}")
    assert outcome.page is not None
    assert (outcome.page.status, "redirect URI is not registered" in outcome.page.text) == (400, True)


def unsigned(claims: dict[str, str]) -> str:
    """Return a request object with the algorithm `none`."""
    parts = ({"alg": "none"}, claims)
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."
