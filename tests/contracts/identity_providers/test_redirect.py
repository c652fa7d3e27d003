"""The redirect to the provider (security O-8, decision 86)."""

from urllib.parse import parse_qs, urlsplit

import pytest

from core.kernel.connections import CODEHOST, ProviderClient
from tests.contracts.identity_providers.case import BASE_URL, Case
from tests.fakes.provider import CLIENT


async def test_the_redirect_has_all_parameters_that_bind_the_response(case: Case) -> None:
    request = case.make_request()
    query = {name: value for name, [value] in parse_qs(urlsplit(case.authorization_url(request)).query).items()}
    assert query.pop("prompt") == "select", "what the operator's address has"
    identifying = "read:user user:email" if case.provider == CODEHOST else "openid email"
    assert query.pop("scope") == identifying
    assert query.pop("nonce", request.nonce) == request.nonce
    challenge = query.pop("code_challenge")
    assert (len(challenge), challenge != request.code_verifier) == (43, True)
    assert query == {
        "response_type": "code",
        "client_id": CLIENT.client_id,
        "redirect_uri": f"{BASE_URL}/auth/{case.provider}/callback",
        "state": request.state,
        "code_challenge_method": "S256",
    }


@pytest.mark.parametrize(
    ("scopes", "more"), [(None, ["calendar", "files"]), ((), []), (("mail", "openid"), ["mail"])], ids=["default", "none", "own"]
)
async def test_scopes_are_those_of_the_service_or_the_defaults(websuite: Case, scopes: tuple[str, ...] | None, more: list[str]) -> None:
    websuite.use(scopes=("calendar", "files"))
    query = parse_qs(urlsplit(websuite.authorization_url(websuite.make_request(scopes))).query)
    assert query["scope"] == [" ".join(["openid", "email", *more])]


async def test_a_fresh_sign_in_can_be_requested(openid: Case) -> None:
    settings = openid.server.settings()
    for parameters in ("prompt=select", "hd=a%26b&max_age=3600&prompt=none", "prompt=login&prompt=consent", ""):
        openid.use(authorize_url=f"{settings.authorize_url.partition('?')[0]}?{parameters}".rstrip("?"))
        address = openid.authorization_url(openid.make_request(fresh_since=openid.clock.now()))
        query = parse_qs(urlsplit(address).query, strict_parsing=True)
        assert (query["prompt"], query["max_age"]) == (["login"], ["0"]), parameters
        assert query.get("hd") == (["a&b"] if "hd" in parameters else None), "what else the operator's address has stays"


async def test_codehost_has_no_fresh_sign_in(codehost: Case) -> None:
    query = parse_qs(urlsplit(codehost.authorization_url(codehost.make_request(fresh_since=codehost.clock.now()))).query)
    assert (query["prompt"], query.get("max_age")) == (["select"], None)
    assert not (await codehost.identify(fresh_since=codehost.clock.now())).is_fresh


async def test_a_provider_without_a_platform_client_is_known(case: Case) -> None:
    case.use(client=None)
    assert case.connection.settings.client_id is None
    client = ProviderClient("of-a-service", "its secret")
    case.server.clients[client.client_id] = client.client_secret
    assert (await case.identify(client=client)).subject == "4711"


async def test_an_issuer_is_compared_exactly(case: Case) -> None:
    right = case.server.issuer
    assert case.accepts_issuer(right)
    for wrong in (f"{case.server.address}0", "https://elsewhere.example", "", "http://[", f"x{right}"):
        assert not case.accepts_issuer(wrong), wrong
    assert case.accepts_issuer(right + "/") == (case.provider == CODEHOST)
