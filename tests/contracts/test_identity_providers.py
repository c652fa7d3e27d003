"""The port for identity providers, against a running one: the identities that it reports, and the
responses that are refused (security O-8, W-2, decisions 86, 101, 102).

The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from joserfc import jws

from adapters.http.providers import HttpProviders, ProviderSettings
from core.kernel.errors import ProviderFailed
from core.kernel.providers import (
    AuthenticationRequest,
    FederatedIdentity,
    Provider,
    ProviderClient,
    ProviderTokens,
    ReauthenticationNotConfirmed,
)
from core.kernel.values import new_secret
from tests.fakes.http_server import TRAP, Answer, in_form, in_json
from tests.fakes.outside import FakeClock
from tests.fakes.provider import CLIENT, FakeProvider, Person, key, sign
from tests.support.builders import run_concurrently

BACK = "https://id.example.com/auth/somewhere/callback"
OPENID = (Provider.WEBSUITE, Provider.OFFICESUITE)


def make_request(**changes: Any) -> AuthenticationRequest:
    plain = AuthenticationRequest(CLIENT, BACK, state=new_secret(), nonce=new_secret(), code_verifier=new_secret(), scopes=None)
    return replace(plain, **changes)


@dataclass(slots=True)
class Case:
    """A provider, and our settings for it."""

    server: FakeProvider
    providers: HttpProviders
    clock: FakeClock

    @property
    def provider(self) -> Provider:
        return self.server.provider

    def use(self, *, deadline: float = 10.0, **changes: Any) -> None:
        """Change our settings of the provider."""
        self.providers = HttpProviders({self.provider: self.server.settings(**changes)}, self.clock, deadline=deadline)

    def authorize(self, request: AuthenticationRequest) -> str:
        """Redirect the visitor to the provider. Return the parameters of the callback."""
        back = self.server.visit(self.providers.authorization_url(self.provider, request))
        address, _, query = back.partition("?")
        assert address == BACK
        found = {name: value for name, [value] in parse_qs(query).items()}
        assert found["state"] == request.state
        assert self.providers.is_issuer(self.provider, found["iss"])
        return found["code"]

    async def identify(self, **changes: Any) -> FederatedIdentity:
        request = make_request(**changes)
        return await self.providers.identify(self.provider, request, self.authorize(request))

    async def refusal(self) -> str:
        with pytest.raises(ProviderFailed) as raised:
            await self.identify()
        assert TRAP not in str(raised.value)
        return str(raised.value)


def run_provider(provider: Provider, clock: FakeClock) -> Iterator[Case]:
    with FakeProvider(provider, now=lambda: clock.now().timestamp()) as server:
        yield Case(server, HttpProviders({provider: server.settings()}, clock), clock)


@pytest.fixture(params=list(Provider))
def case(request: pytest.FixtureRequest, clock: FakeClock) -> Iterator[Case]:
    yield from run_provider(request.param, clock)


@pytest.fixture(params=OPENID)
def openid(request: pytest.FixtureRequest, clock: FakeClock) -> Iterator[Case]:
    yield from run_provider(request.param, clock)


@pytest.fixture
def websuite(clock: FakeClock) -> Iterator[Case]:
    yield from run_provider(Provider.WEBSUITE, clock)


@pytest.fixture
def codehost(clock: FakeClock) -> Iterator[Case]:
    yield from run_provider(Provider.CODEHOST, clock)


# The redirect


async def test_the_redirect_has_all_parameters_that_bind_the_response(case: Case) -> None:
    request = make_request()
    query = {name: value for name, [value] in parse_qs(urlsplit(case.providers.authorization_url(case.provider, request)).query).items()}
    assert query.pop("prompt") == "select", "what the operator's address has"
    identifying = "read:user user:email" if case.provider is Provider.CODEHOST else "openid email"
    assert query.pop("scope") == identifying
    assert query.pop("nonce", request.nonce) == request.nonce
    challenge = query.pop("code_challenge")
    assert (len(challenge), challenge != request.code_verifier) == (43, True)
    assert query == {
        "response_type": "code",
        "client_id": CLIENT.client_id,
        "redirect_uri": BACK,
        "state": request.state,
        "code_challenge_method": "S256",
    }


@pytest.mark.parametrize(
    ("scopes", "more"), [(None, ["calendar", "files"]), ((), []), (("mail", "openid"), ["mail"])], ids=["default", "none", "own"]
)
async def test_scopes_are_those_of_the_service_or_the_defaults(websuite: Case, scopes: tuple[str, ...] | None, more: list[str]) -> None:
    websuite.use(scopes=("calendar", "files"))
    query = parse_qs(urlsplit(websuite.providers.authorization_url(websuite.provider, make_request(scopes=scopes))).query)
    assert query["scope"] == [" ".join(["openid", "email", *more])]


async def test_a_fresh_sign_in_can_be_requested(openid: Case) -> None:
    known = openid.server.settings()
    for parameters in ("prompt=select", "hd=a%26b&max_age=3600&prompt=none", "prompt=login&prompt=consent", ""):
        openid.use(authorize_url=f"{known.authorize_url.partition('?')[0]}?{parameters}".rstrip("?"))
        address = openid.providers.authorization_url(openid.provider, make_request(fresh_since=openid.clock.now()))
        query = parse_qs(urlsplit(address).query, strict_parsing=True)
        assert (query["prompt"], query["max_age"]) == (["login"], ["0"]), parameters
        assert query.get("hd") == (["a&b"] if "hd" in parameters else None), "what else the operator's address has stays"


async def test_codehost_has_no_fresh_sign_in(codehost: Case) -> None:
    query = parse_qs(
        urlsplit(codehost.providers.authorization_url(codehost.provider, make_request(fresh_since=codehost.clock.now()))).query
    )
    assert (query["prompt"], query.get("max_age")) == (["select"], None)
    assert not (await codehost.identify(fresh_since=codehost.clock.now())).is_fresh


def test_a_provider_without_settings_is_unknown(clock: FakeClock) -> None:
    providers = HttpProviders({}, clock)
    assert not providers.is_configured(Provider.WEBSUITE)
    assert providers.platform_client(Provider.WEBSUITE) is None
    assert not providers.is_issuer(Provider.WEBSUITE, "https://websuite.example")


async def test_a_provider_without_a_platform_client_is_known(case: Case) -> None:
    case.use(client=None)
    assert case.providers.is_configured(case.provider)
    assert case.providers.platform_client(case.provider) is None
    own = ProviderClient("of-a-service", "its secret")
    case.server.clients[own.client_id] = own.client_secret
    assert (await case.identify(client=own)).subject == "4711"


async def test_an_issuer_is_compared_exactly(case: Case) -> None:
    right = case.server.issuer
    assert case.providers.is_issuer(case.provider, right)
    for wrong in (f"{case.server.address}0", "https://elsewhere.example", "", "http://[", f"x{right}"):
        assert not case.providers.is_issuer(case.provider, wrong), wrong
    assert case.providers.is_issuer(case.provider, right + "/") == (case.provider is Provider.CODEHOST)


# The identity


async def test_an_identity_has_every_field(case: Case) -> None:
    case.server.scope = "openid email calendar"
    identity = await case.identify()
    tokens = identity.tokens
    assert identity == FederatedIdentity(
        issuer=case.server.address,
        subject="4711",
        email=identity.email,
        email_verified=case.provider is not Provider.OFFICESUITE,
        tokens=ProviderTokens(
            tokens.access_token, tokens.refresh_token, case.clock.now() + timedelta(seconds=3600), ("openid", "email", "calendar")
        ),
    )
    assert identity.email == "ada@example.com"
    assert tokens.access_token.startswith("access-")
    assert (tokens.refresh_token or "").startswith("refresh-")
    for secret in (tokens.access_token, tokens.refresh_token or ""):
        assert secret not in repr(identity)


async def test_requests_accept_no_compression_and_carry_no_cookie(case: Case) -> None:
    await case.identify()
    for headers in case.server.headers:
        assert headers["accept-encoding"] == "identity"
        assert headers["user-agent"] == "Gatehouse"
        assert "cookie" not in headers


async def test_codehost_can_answer_with_a_form(codehost: Case) -> None:
    codehost.server.in_form = True
    codehost.server.expires_in = 28800
    identity = await codehost.identify()
    assert identity.tokens.expires_at == codehost.clock.now() + timedelta(hours=8)
    assert identity.tokens.scopes == ("read:user", "user:email"), "with commas between them"
    codehost.server.answers["/token"] = in_form({"error": "bad_verification_code", "error_description": TRAP})
    assert await codehost.refusal() == "the token endpoint refused"


@pytest.mark.parametrize(
    ("person", "email", "verified"),
    [
        (Person(email="Ada@Example.com"), "ada@example.com", True),
        (Person(email_verified=False), "ada@example.com", False),
        (Person(email_verified=None), "ada@example.com", False),
        (Person(email=None), None, False),
        (Person(email="not an address"), None, False),
    ],
)
async def test_an_address_is_verified_only_if_the_provider_says_so(case: Case, person: Person, email: str | None, verified: bool) -> None:
    case.server.person = person
    identity = await case.identify()
    assert identity.email == email
    assert identity.email_verified == (verified and case.provider is not Provider.OFFICESUITE)


async def test_strings_are_not_booleans(websuite: Case) -> None:
    for parameters in ("true", 1, "yes", [True]):
        websuite.server.claims = {"email_verified": parameters}
        assert not (await websuite.identify()).email_verified, parameters


async def test_the_user_info_completes_the_id_token(openid: Case) -> None:
    openid.server.claims = {"email": None, "email_verified": None}
    identity = await openid.identify()
    assert (identity.email, identity.email_verified) == ("ada@example.com", openid.provider is Provider.WEBSUITE)
    openid.server.answers["/user"] = in_json({"sub": "4712", "email": "eve@example.com", "email_verified": True})
    assert await openid.refusal() == "the user info endpoint returned another user"


async def test_expiry_and_refresh_token_are_optional(case: Case) -> None:
    case.server.expires_in, case.server.gives_refresh_token = None, False
    tokens = (await case.identify(scopes=["extra"])).tokens
    assert (tokens.expires_at, tokens.refresh_token) == (None, None)
    assert tokens.scopes[-1] == "extra", "where it does not say, they are those that were asked for"


@pytest.mark.parametrize("emails", [[], [{"email": "ada@example.com", "verified": True}], [7, None, "x"], [{"primary": True}]])
async def test_only_the_primary_address_of_codehost_counts(codehost: Case, emails: list[Any]) -> None:
    codehost.server.answers["/user/emails"] = in_json(emails)
    assert (await codehost.identify()).email is None


async def test_a_fresh_sign_in_is_reported_as_such(openid: Case) -> None:
    now = openid.clock.now()
    openid.server.signed_in_at = 0.0
    assert (await openid.identify(fresh_since=now)).is_fresh
    assert not (await openid.identify()).is_fresh
    for differs in (-59, 59):
        openid.server.claims = {"auth_time": int(now.timestamp()) + differs}
        assert (await openid.identify(fresh_since=now)).is_fresh, "clocks differ by a little"
    openid.server.claims = {"auth_time": None}
    assert (await openid.identify(fresh_since=now)).is_fresh, "not every provider says when"


# Refused responses


@pytest.mark.parametrize("at", [0, -61, 61, 10**12, True, "now", [], {}, float("nan"), float("-inf"), float("inf")])
async def test_an_old_sign_in_is_not_reported_as_fresh(openid: Case, at: Any) -> None:
    now = openid.clock.now()
    openid.server.claims = {"auth_time": int(now.timestamp()) + at if at in (-61, 61) else at}
    with pytest.raises(ReauthenticationNotConfirmed):
        await openid.identify(fresh_since=now)
    assert (await openid.identify()).subject == "4711", "only a request for a fresh sign-in checks its age"


UNREACHABLE = "the request failed"
WRONG_TOKENS: dict[str, Answer] = {
    "an error in a success": in_json({"error": "invalid_grant", "error_description": TRAP}),
    "an error": in_json({"error": "invalid_grant", "error_description": TRAP}, 400),
    "a failure": Answer(500, TRAP.encode()),
    "a redirect": Answer(302, b"", {"Location": "http://127.0.0.1:9/elsewhere"}),
    "no JSON": Answer(200, TRAP.encode(), {"Content-Type": "text/html"}),
    "deep JSON": Answer(200, b"[" * 60_000, {"Content-Type": "application/json"}),
    "a list": in_json([{"access_token": "x"}]),
    "no token": in_json({"token_type": "bearer"}),
    "a token that is no text": in_json({"access_token": {"x": 1}}),
    "a token with a line break": in_json({"access_token": "x\r\nX-Evil: 1"}),
    "another kind of token": in_json({"access_token": "x", "token_type": "mac"}),
    "too much": Answer(200, b'{"access_token": "' + b"x" * 65_536 + b'"}'),
    "packed": Answer(200, b"\x1f\x8b", {"Content-Encoding": "gzip", "Content-Type": "application/json"}),
}


@pytest.mark.parametrize("what", WRONG_TOKENS)
async def test_wrong_responses_of_the_token_endpoint_are_refused(case: Case, what: str) -> None:
    case.server.answers["/token"] = WRONG_TOKENS[what]
    assert await case.refusal()
    assert case.server.counted["/user"] == 0, "no further endpoint is called"


@pytest.mark.parametrize("status", [302, 307])
async def test_a_redirect_is_not_followed(case: Case, status: int) -> None:
    case.server.answers["/token"] = Answer(status, b"", {"Location": "/elsewhere"})
    assert await case.refusal()
    assert case.server.counted["/elsewhere"] == 0


@pytest.mark.parametrize("path", ["/user", "/user/emails", "/keys"])
@pytest.mark.parametrize(
    "answer",
    [Answer(500), Answer(302, b"", {"Location": "/user"}), in_json("x"), in_json({"id": "4711", "keys": 1}), in_json({"id": True}),
     Answer(200, b"[" + b" " * 65_536 + b"]"), Answer(200, b"\xff\xfe")],
)  # fmt: skip
async def test_wrong_responses_of_other_endpoints_are_refused(case: Case, path: str, answer: Answer) -> None:
    if path.startswith("/user") != (case.provider is Provider.CODEHOST):
        return  # this endpoint is not called
    case.server.answers[path] = answer
    assert await case.refusal()


@pytest.mark.parametrize("answer", [Answer(drip=True), Answer(hang=True)], ids=["drip", "hang"])
@pytest.mark.parametrize("path", ["/token", "/user", "/keys"])
@pytest.mark.slow
async def test_the_deadline_covers_all_requests_together(case: Case, path: str, answer: Answer) -> None:
    case.use(deadline=0.3)
    case.server.claims = {"email": None}
    case.server.answers[path] = answer
    if path == "/keys" and case.provider is Provider.CODEHOST:
        return
    assert await case.refusal() == "it did not answer in time"


async def test_an_unreachable_provider_is_an_error(case: Case) -> None:
    request = make_request()
    code = case.authorize(request)
    case.use(token_url="http://127.0.0.1:9/token")
    with pytest.raises(ProviderFailed, match=UNREACHABLE):
        await case.providers.identify(case.provider, request, code)


@pytest.mark.parametrize("change", ["code_verifier", "redirect_uri", "client"])
async def test_a_code_works_only_with_the_parameters_of_its_request(case: Case, change: str) -> None:
    request = make_request()
    code = case.authorize(request)
    other = {"code_verifier": new_secret(), "redirect_uri": BACK + "x", "client": ProviderClient(CLIENT.client_id, "guessed")}[change]
    with pytest.raises(ProviderFailed, match="refused"):
        await case.providers.identify(case.provider, replace(request, **{change: other}), code)  # type: ignore[arg-type]


async def test_a_code_works_once(case: Case) -> None:
    request = make_request()
    code = case.authorize(request)
    await case.providers.identify(case.provider, request, code)
    with pytest.raises(ProviderFailed):
        await case.providers.identify(case.provider, request, code)


# ID tokens


def as_hmac(claims: dict[str, Any]) -> str:
    """Sign with the public key as a shared secret, which everyone knows."""
    head = urlsafe_b64encode(b'{"alg":"HS256","kid":"first"}').rstrip(b"=").decode()
    signed = f"{head}.{sign(claims).split('.')[1]}"
    mac = hmac.digest(key().as_pem(private=False), signed.encode(), "sha256")
    return f"{signed}.{urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def unsigned(claims: dict[str, Any]) -> str:
    _, body, _ = sign(claims).split(".")
    return f"eyJhbGciOiJub25lIn0.{body}."


def by_another_key(claims: dict[str, Any]) -> str:
    """Sign with another key under the id of the right one."""
    return jws.serialize_compact(
        {"alg": "RS256", "kid": "first"}, json.dumps(claims).encode(), key("RSA", "stranger"), algorithms=["RS256"]
    )


def with_another_subject(claims: dict[str, Any]) -> str:
    head, _, signature = sign(claims).split(".")
    return ".".join((head, sign({**claims, "sub": "4712"}).split(".")[1], signature))


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256"])
async def test_three_signature_algorithms_are_accepted(openid: Case, algorithm: str) -> None:
    kid = "curve" if algorithm == "ES256" else "first"
    openid.server.sign = partial(sign, algorithm=algorithm, kid=kid)
    assert (await openid.identify()).subject == "4711"
    openid.server.sign = partial(sign, algorithm=algorithm, kid=None)
    assert (await openid.identify()).subject == "4711", "there is one key of the kind"


@pytest.mark.parametrize(
    "forge",
    [as_hmac, unsigned, by_another_key, with_another_subject, partial(sign, algorithm="RS512"), partial(sign, jku="http://evil.example"),
     partial(sign, typ="at+jwt"), lambda _: "x.y.z", lambda _: "", lambda claims: sign(claims) + "="],
)  # fmt: skip
async def test_forged_tokens_are_refused(openid: Case, forge: Callable[[dict[str, Any]], str]) -> None:
    openid.server.sign = forge
    assert "ID token" in await openid.refusal()


NOW = 1_773_500_966
WRONG_CLAIMS: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://elsewhere.example"},
    "another client": {"aud": "somebody-else"},
    "no client": {"aud": []},
    "several clients and none it was given to": {"aud": [CLIENT.client_id, "another"]},
    "several clients, given to another": {"aud": [CLIENT.client_id, "another"], "azp": "another"},
    "given to another": {"azp": "another"},
    "another request": {"nonce": "another"},
    "no request": {"nonce": None},
    "a request that is no text": {"nonce": ["x"]},
    "expired": {"exp": NOW - 31},
    "never expires": {"exp": None},
    "an expiry in words": {"exp": str(NOW + 300)},
    "not a number": {"exp": float("nan")},
    "from the future": {"iat": NOW + 60},
    "of no time": {"iat": None},
    "not yet": {"nbf": NOW + 60},
    "about nobody": {"sub": None},
    "about an empty name": {"sub": ""},
    "about a number": {"sub": 4711},
    "about too much": {"sub": "x" * 256},
    "about controls": {"sub": "a\x00b"},
}


@pytest.mark.parametrize("what", WRONG_CLAIMS)
async def test_tokens_with_wrong_claims_are_refused(openid: Case, what: str) -> None:
    assert int(openid.clock.now().timestamp()) == NOW
    openid.server.claims = WRONG_CLAIMS[what]
    assert "ID token" in await openid.refusal()


async def test_a_token_for_several_audiences_with_our_client_id_is_accepted(openid: Case) -> None:
    openid.server.claims = {"aud": ["another", CLIENT.client_id], "azp": CLIENT.client_id, "exp": NOW - 29, "iat": NOW + 29}
    assert (await openid.identify()).subject == "4711"


# Keys


async def test_keys_are_loaded_once_and_again_for_a_new_key_id(openid: Case) -> None:
    for _ in range(3):
        await openid.identify()
    assert openid.server.counted["/keys"] == 1
    openid.server.sign = partial(sign, kid="second")
    openid.server.published.append(key("RSA", "second").as_dict(private=False))
    assert "does not publish" in await openid.refusal(), "not so soon"
    openid.clock.advance(timedelta(seconds=61))
    assert (await openid.identify()).subject == "4711"
    assert openid.server.counted["/keys"] == 2


async def test_an_unknown_key_id_reloads_the_keys_at_most_once_a_minute(openid: Case) -> None:
    openid.server.sign = partial(sign, kid="unknown")
    for _ in range(3):
        assert "does not publish" in await openid.refusal()
    assert openid.server.counted["/keys"] == 1
    openid.clock.advance(timedelta(seconds=61))
    for _ in range(3):
        await openid.refusal()
    assert openid.server.counted["/keys"] == 2


async def test_a_withdrawn_key_is_accepted_for_an_hour_at_most(openid: Case) -> None:
    await openid.identify()
    openid.server.published.clear()
    assert (await openid.identify()).subject == "4711"
    openid.clock.advance(timedelta(hours=1))
    assert "does not publish" in await openid.refusal()


@pytest.mark.parametrize("change", [{"use": "enc"}, {"alg": "RS512"}, {"kty": "oct", "k": "c2VjcmV0"}, {"n": "AQAB"}, {"n": 5}, {"kid": 7}])
async def test_keys_for_other_uses_are_ignored(openid: Case, change: dict[str, Any]) -> None:
    openid.server.published = [key().as_dict(private=False) | change]
    assert await openid.refusal()


async def test_a_weak_key_is_ignored(openid: Case) -> None:
    number = rsa.generate_private_key(65537, 1024).public_key().public_numbers().n  # noqa: S505
    openid.server.published = [key().as_dict(private=False) | {"n": urlsafe_b64encode(number.to_bytes(128, "big")).rstrip(b"=").decode()}]
    assert await openid.refusal() == "a key of the provider is too weak, or not a public key"


# Refreshing


async def test_tokens_are_refreshed(case: Case) -> None:
    first = (await case.identify()).tokens
    assert first.refresh_token is not None
    case.clock.advance(timedelta(hours=2))
    second = await case.providers.refresh(case.provider, CLIENT, first.refresh_token)
    assert second.access_token != first.access_token
    assert second.refresh_token not in (None, first.refresh_token)
    assert second.expires_at == case.clock.now() + timedelta(hours=1)
    with pytest.raises(ProviderFailed, match="refused"):
        await case.providers.refresh(case.provider, CLIENT, first.refresh_token)


async def test_the_old_refresh_token_stays_if_there_is_no_new_one(case: Case) -> None:
    first = (await case.identify()).tokens
    assert first.refresh_token is not None
    case.server.rotates = False
    for _ in range(2):
        assert (await case.providers.refresh(case.provider, CLIENT, first.refresh_token)).refresh_token == first.refresh_token


async def test_many_parallel_requests_are_answered(websuite: Case) -> None:
    found = await run_concurrently(8, lambda _: websuite.identify())
    assert {each.subject for each in found} == {"4711"}
    assert len({each.tokens.access_token for each in found}) == 8


def test_secrets_are_not_in_representations() -> None:
    settings = ProviderSettings(client=CLIENT, authorize_url="https://a", token_url="https://t", userinfo_url="https://u")
    assert CLIENT.client_secret not in repr(settings)
