"""Sign-ins at organizations' OpenID providers: honest answers, keys, credentials and limits."""

import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
from joserfc import jwk

from adapters.crypto import X509Certificates
from adapters.crypto.client_assertions import public_jwk
from adapters.http.openid_providers import FAILURE_PAUSE, MAX_OF_CONNECTION
from adapters.http.provider_keys import CACHE_TTL, REFETCH_PAUSE
from core.federation.connections.model.openid import (
    LOGOUT_TOKEN_TTL,
    OpenIdAnswerRefused,
    OpenIdFault,
    OpenIdProviderUnreachable,
    ProviderKey,
    authorization_url,
)
from core.federation.connections.model.settings import ProviderAuthentication
from core.kernel.outbound import SendFailure
from core.kernel.values import new_secret
from tests.fakes.http_server import Answer
from tests.fakes.openid_issuers import CLIENT_ID, DISCOVERY, OpenIdIssuers
from tests.fakes.outside import FakeClock
from tests.fakes.provider import key, sign
from tests.federation.connections.openid.case import REDIRECT_URI, Case, make_request
from tests.support.waiting import eventually


async def test_an_honest_provider_is_accepted_with_each_algorithm(new_case: Callable[[], Case]) -> None:
    for algorithm, kid in (("RS256", "first"), ("PS256", "first"), ("ES256", "curve"), ("ES256", None)):
        case = new_case()
        case.issuer.sign = partial(sign, algorithm=algorithm, kid=kid)
        answer = await case.sign_in()
        assert (answer.subject, answer.claims["email"]) == ("4711", "ada@example.com")


async def test_userinfo_is_asked_only_for_claims_that_the_id_token_lacks(case: Case) -> None:
    assert "groups" not in (await case.sign_in()).claims
    assert case.issuer.counted["/userinfo"] == 0
    case.needed = ("email", "groups")
    case.issuer.claims = {"email_verified": True, "amr": ["pwd"]}
    case.issuer.userinfo = {
        "email": "other@example.com",
        "email_verified": False,
        "amr": ["mfa"],
        "auth_time": 7,
        "iss": "https://evil.example",
    }
    claims = (await case.sign_in()).claims
    assert claims["groups"] == ["staff"]
    assert (claims["email"], claims["email_verified"]) == ("ada@example.com", True), "the ID token wins"
    assert (claims["amr"], claims["iss"], "auth_time" in claims) == (["pwd"], case.issuer.url, False), "these are of the signed token"
    case.issuer.email = None
    claims = (await case.sign_in()).claims
    assert (claims["email"], claims["email_verified"]) == ("other@example.com", False), "an address and its state belong together"


@pytest.mark.parametrize("authentication", ProviderAuthentication)
@pytest.mark.slow
async def test_the_token_endpoint_gets_our_credentials(case: Case, clock: FakeClock, authentication: ProviderAuthentication) -> None:
    certificate = await X509Certificates().create("Acme", "Gatehouse", clock.now(), 3)
    case.issuer.client_keys = jwk.KeySet([jwk.RSAKey.import_key({**public_jwk(certificate.certificate)})])
    case.client_changes = {"authentication": authentication, "key": certificate}
    for _ in range(2):  # every assertion has a new id
        assert (await case.sign_in()).subject == "4711"
    metadata = await case.providers.discover(case.client)
    await case.providers.check_client(case.client, metadata, REDIRECT_URI)
    case.issuer.clients[CLIENT_ID] = "another secret"
    other = await X509Certificates().create("Acme", "Gatehouse", clock.now(), 3)
    case.issuer.client_keys = jwk.KeySet([jwk.RSAKey.import_key({**public_jwk(other.certificate)})])
    if authentication is not ProviderAuthentication.PRIVATE_KEY_JWT:
        with pytest.raises(OpenIdAnswerRefused) as refused:
            await case.providers.check_client(case.client, metadata, REDIRECT_URI)
        assert refused.value.fault is OpenIdFault.CLIENT


@pytest.mark.parametrize("change", ["code_verifier", "redirect_uri", "nonce"])
async def test_a_code_works_only_with_its_request_and_once(case: Case, change: str) -> None:
    request = make_request()
    metadata = await case.providers.discover(case.client)
    for sent in (make_request(**{change: new_secret()}), request):
        changed = {name: getattr(sent if name == change else request, name) for name in ("code_verifier", "redirect_uri", "nonce")}
        code = (await case.authorize(request))["code"]
        exchange = partial(case.providers.exchange, case.client, metadata, make_request(**changed), code, ())
        if sent is request:
            await exchange()
        with pytest.raises(OpenIdAnswerRefused) as refused:
            await exchange()
        assert refused.value.fault is (OpenIdFault.NONCE if change == "nonce" and sent is not request else OpenIdFault.CODE)


async def test_two_connections_cannot_be_mixed_up(new_case: Callable[[], Case]) -> None:
    """The answer names the wrong issuer, the code is unknown to the issuer, or its tokens come from another issuer."""
    honest, hostile = new_case(), new_case()
    request = make_request()
    answer = await honest.authorize(request)
    metadata = await hostile.providers.discover(hostile.client)
    for token in ("code", answer["code"]):
        with pytest.raises(OpenIdAnswerRefused) as refused:
            await hostile.providers.exchange(hostile.client, metadata, request, token, ())
        assert refused.value.fault is OpenIdFault.CODE
    # Its keys and tokens come from the honest issuer.
    hostile.issuer.claims = {"iss": honest.issuer.url}
    assert await hostile.fault() == OpenIdFault.ISSUER
    # Two connections with the same issuer do not share keys.
    other = Case(honest.server, honest.clock, honest.issuer, honest.providers)
    await honest.sign_in()
    await other.sign_in()
    assert (honest.issuer.counted["/keys"], honest.issuer.counted[DISCOVERY]) == (2, 2)


async def test_an_answer_must_name_its_issuer_if_the_metadata_say_so(case: Case) -> None:
    case.issuer.sends_iss = False
    assert await case.fault() == "accepted"
    case.issuer.metadata = {"authorization_response_iss_parameter_supported": True}
    case.clock.advance(CACHE_TTL)
    assert await case.fault() == OpenIdFault.RESPONSE_ISSUER


async def test_keys_are_kept_and_fetched_again_for_a_new_key(case: Case) -> None:
    for _ in range(3):
        await case.sign_in()
    assert (case.issuer.counted["/keys"], case.issuer.counted[DISCOVERY]) == (1, 1)
    case.issuer.sign = partial(sign, kid="second")
    assert await case.fault() == OpenIdFault.SIGNING_KEY
    assert await case.fault() == OpenIdFault.SIGNING_KEY
    assert case.issuer.counted["/keys"] == 2, "forged tokens cause one fetch a minute"
    case.issuer.published.append(key("RSA", "second").as_dict(private=False))
    case.clock.advance(REFETCH_PAUSE)
    assert await case.fault() == "accepted"


async def test_published_keys_are_listed_with_their_use(case: Case) -> None:
    case.issuer.published += [
        {"kty": "oct", "k": "a"},
        {"kty": "RSA", "kid": "\n", "n": "x", "e": "AQAB"},
        {"kty": "EC", "kid": "p521", "crv": "P-521"},
    ]
    metadata = await case.providers.discover(case.client)
    assert await case.providers.keys(case.client, metadata) == [
        ProviderKey("first", "RSA", True),
        ProviderKey("curve", "EC", True),
        ProviderKey(None, "RSA", False),
        ProviderKey("p521", "EC", False),
    ]


async def test_a_failed_discovery_is_not_repeated_for_some_seconds(case: Case) -> None:
    """Anyone can begin a sign-in."""
    case.issuer.answers[DISCOVERY] = Answer(500)
    for _ in range(3):
        assert await case.fault() == OpenIdFault.STATUS
    assert case.issuer.counted[DISCOVERY] == 1
    del case.issuer.answers[DISCOVERY]
    assert (await case.providers.discover(case.client, refresh=True)).issuer == case.issuer.url
    case.issuer.answers[DISCOVERY] = Answer(500)
    case.clock.advance(CACHE_TTL)
    assert await case.fault() == OpenIdFault.STATUS
    del case.issuer.answers[DISCOVERY]
    case.clock.advance(FAILURE_PAUSE)
    assert await case.fault() == "accepted"


async def test_a_host_that_rebinds_is_not_reached(case: Case) -> None:
    """Every request resolves the host again, and checks all its addresses."""
    found = ["127.0.0.1"]

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    case.issuer.url = case.issuer.url.replace("127.0.0.1", "localhost")
    case.use(lookup=look_up)
    assert await case.fault() == "accepted"
    for addresses in (["10.0.0.1"], ["127.0.0.1", "169.254.169.254"]):
        found[:] = addresses
        with pytest.raises(OpenIdProviderUnreachable) as refused:
            await case.sign_in()
        assert refused.value.reason is SendFailure.NOT_ALLOWED


@pytest.mark.slow
async def test_a_slow_provider_leaves_slots_for_others(server: OpenIdIssuers, new_case: Callable[[], Case]) -> None:
    slow, other = new_case(), new_case()
    await slow.sign_in()
    server.gate = threading.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(slow.sign_in)
        await eventually(lambda: server.waiting["issuer-0"] == MAX_OF_CONNECTION)
        nursery.start_soon(other.sign_in)
        await eventually(lambda: server.waiting["issuer-1"] == 1)
        assert server.waiting["issuer-0"] == MAX_OF_CONNECTION
        server.gate.set()
    assert slow.issuer.counted["/token"] == 9


async def test_a_request_has_the_parameters_of_the_provider_request(case: Case, clock: FakeClock) -> None:
    metadata = await case.providers.discover(case.client)
    request = make_request(scopes=("email", "openid"), fresh_since=clock.now(), hints={"login_hint": "ada@example.com"})
    url = authorization_url(case.client, metadata, request)
    assert "scope=openid+email" in url
    assert all(part in url for part in ("prompt=login&max_age=0", "login_hint=ada%40example.com"))
    case.wants_fresh = True
    assert "auth_time" in (await case.sign_in()).claims


# Logout tokens

NOW = 1_773_500_966  # the test's present time
WRONG_LOGOUTS: dict[str, tuple[OpenIdFault, dict[str, Any]]] = {
    "of another issuer": (OpenIdFault.ISSUER, {"iss": "https://elsewhere.example"}),
    "for another client": (OpenIdFault.AUDIENCE, {"aud": "another"}),
    "without an event": (OpenIdFault.LOGOUT, {"events": None}),
    "with another event": (OpenIdFault.LOGOUT, {"events": {"https://example.com/event": {}}}),
    "with an event that is a text": (OpenIdFault.LOGOUT, {"events": "http://schemas.openid.net/event/backchannel-logout"}),
    "with a nonce": (OpenIdFault.LOGOUT, {"nonce": "x"}),
    "without an id": (OpenIdFault.LOGOUT, {"jti": None}),
    "with an id that is a number": (OpenIdFault.LOGOUT, {"jti": 7}),
    "of no user and no session": (OpenIdFault.LOGOUT, {"sub": None, "sid": None}),
    "with a subject that is a list": (OpenIdFault.LOGOUT, {"sub": ["4711"]}),
    "without a time": (OpenIdFault.LOGOUT, {"iat": None}),
    "of long ago": (OpenIdFault.TIME, {"iat": NOW - 300}),
    "without an end": (OpenIdFault.LOGOUT, {"exp": None}),
    "from the future": (OpenIdFault.TIME, {"iat": NOW + 61}),
    "that has expired": (OpenIdFault.TIME, {"exp": NOW - 61}),
    "that ends in words": (OpenIdFault.LOGOUT, {"exp": "soon"}),
}


async def test_logout_tokens_are_read(case: Case, clock: FakeClock) -> None:
    metadata = await case.providers.discover(case.client)
    read = partial(case.providers.read_logout, case.client, metadata)
    logout = await read(case.issuer.logout_token(jti="once"))
    issued_at = clock.now().replace(microsecond=0)
    assert (logout.token_id, logout.subject, logout.session, logout.valid_until) == ("once", "4711", "s1", issued_at + LOGOUT_TOKEN_TTL)
    assert (await read(case.issuer.logout_token(sub=None))).subject is None
    findings: list[tuple[str, str]] = []
    for name, (fault, changes) in WRONG_LOGOUTS.items():
        try:
            await read(case.issuer.logout_token(**changes))
        except OpenIdAnswerRefused as refused:
            findings += [(name, refused.fault)] if refused.fault is not fault else []
        else:
            findings.append((name, "accepted"))
    assert findings == []
    id_token = (await case.sign_in()).id_token
    for token in (id_token, sign({}, typ="JWT"), "", "x" * 20_000, "a.b.c"):
        with pytest.raises(OpenIdAnswerRefused):
            await read(token)
