"""Responses that are refused: errors, forged ID tokens and wrong keys (security O-8, W-2)."""

import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from joserfc import jws

from core.federation.connections.model.openid import OPENID_FAULTS, OpenIdFault
from core.kernel.connections import CODEHOST, ProviderClient
from core.kernel.errors import ProviderFailed
from core.kernel.outbound import SendFailure
from core.kernel.values import new_secret
from tests.contracts.identity_providers.case import Case
from tests.fakes.http_server import TRAP, Answer, in_json
from tests.fakes.provider import CLIENT, key, sign
from tests.support.builders import run_concurrently

WRONG_TOKENS: dict[str, Answer] = {
    "an error in a success": in_json({"error": "invalid_grant", "error_description": TRAP}),
    "an error": in_json({"error": "invalid_grant", "error_description": TRAP}, 400),
    "a failure": Answer(500, TRAP.encode()),
    "a redirect": Answer(302, b"", {"Location": "http://127.0.0.1:9/elsewhere"}),
    "no JSON": Answer(200, TRAP.encode(), {"Content-Type": "text/html"}),
    "deep JSON": Answer(200, b"[" * 60_000, {"Content-Type": "application/json"}),
    "a list": in_json([{"access_token": "x"}]),
    "no token": in_json({"token_type": "bearer"}),
    "a token that is not a text": in_json({"access_token": {"x": 1}}),
    "a token with a line break": in_json({"access_token": "x\r\nX-Evil: 1"}),
    "another kind of token": in_json({"access_token": "x", "token_type": "mac"}),
    "too much": Answer(200, b'{"access_token": "' + b"x" * 65_536 + b'"}'),
    "packed": Answer(200, b"\x1f\x8b", {"Content-Encoding": "gzip", "Content-Type": "application/json"}),
}


@pytest.mark.parametrize("mistake", WRONG_TOKENS)
async def test_wrong_responses_of_the_token_endpoint_are_refused(case: Case, mistake: str) -> None:
    case.server.answers["/token"] = WRONG_TOKENS[mistake]
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
    if path.startswith("/user") != (case.provider == CODEHOST):
        return  # this endpoint is not called
    case.server.answers[path] = answer
    assert await case.refusal()


@pytest.mark.parametrize("answer", [Answer(drip=True), Answer(hang=True)], ids=["drip", "hang"])
@pytest.mark.parametrize("path", ["/token", "/user", "/keys"])
@pytest.mark.slow
async def test_the_deadline_covers_all_requests_together(case: Case, path: str, answer: Answer) -> None:
    case.use(deadline=0.1)
    case.server.claims = {"email": None}
    case.server.answers[path] = answer
    if path == "/keys" and case.provider == CODEHOST:
        return
    assert await case.refusal() == SendFailure.TIMED_OUT


async def test_an_unreachable_provider_is_an_error(case: Case) -> None:
    request = case.make_request()
    code = case.authorize(request)
    case.use(token_url="http://127.0.0.1:9/token")
    with pytest.raises(ProviderFailed, match=SendFailure.NOT_CONNECTED):
        await case.redeem(request, code)


@pytest.mark.parametrize("change", ["code_verifier", "redirect_uri", "client"])
async def test_a_code_works_only_with_the_parameters_of_its_request(case: Case, change: str) -> None:
    request = case.make_request()
    code = case.authorize(request)
    others = {"code_verifier": new_secret(), "redirect_uri": request.redirect_uri + "x"}
    used = replace(request, **{change: others[change]}) if change in others else request  # type: ignore[arg-type]
    client = ProviderClient(CLIENT.client_id, "guessed") if change == "client" else CLIENT
    with pytest.raises(ProviderFailed, match="does not accept"):
        await case.redeem(used, code, client)


async def test_a_code_works_once(case: Case) -> None:
    request = case.make_request()
    code = case.authorize(request)
    await case.redeem(request, code)
    with pytest.raises(ProviderFailed):
        await case.redeem(request, code)


# ID tokens


OF_SIGNATURES = (OpenIdFault.TOKENS, OpenIdFault.FORM, OpenIdFault.ALGORITHM, OpenIdFault.SIGNING_KEY, OpenIdFault.SIGNATURE)


def as_hmac(claims: dict[str, Any]) -> str:
    """Sign with the public key as a shared secret, which everyone knows."""
    head = urlsafe_b64encode(b'{"alg":"HS256","kid":"first"}').rstrip(b"=").decode()
    signed = f"{head}.{sign(claims).split('.')[1]}"
    mac = hmac.digest(key().as_pem(private=False), signed.encode(), "sha256")
    return f"{signed}.{urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def unsigned(claims: dict[str, Any]) -> str:
    _, body, _ = sign(claims).split(".")
    return f"eyJhbGciOiJub25lIn0.{body}."


def sign_with(signing: Any, claims: dict[str, Any], kid: str) -> str:
    return jws.serialize_compact({"alg": "RS256", "kid": kid}, json.dumps(claims).encode(), signing, algorithms=["RS256"])


def by_another_key(claims: dict[str, Any]) -> str:
    """Sign with another key under the right key's id."""
    return sign_with(key("RSA", "stranger"), claims, "first")


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


async def test_unknown_header_members_and_a_type_in_full_are_accepted(openid: Case) -> None:
    """Members that are not understood are ignored, and media types may have their prefix (RFC 7515 sections 4 and 4.1.9)."""
    openid.server.sign = partial(sign, typ="application/JWT", x5t="x", cty="x")
    assert (await openid.identify()).subject == "4711"


@pytest.mark.parametrize(
    "forge",
    [as_hmac, unsigned, by_another_key, with_another_subject, partial(sign, algorithm="RS512"), partial(sign, jku="http://evil.example"),
     partial(sign, typ="at+jwt"), lambda _: "x.y.z", lambda _: "", lambda claims: sign(claims) + "="],
)  # fmt: skip
async def test_forged_tokens_are_refused(openid: Case, forge: Callable[[dict[str, Any]], str]) -> None:
    openid.server.sign = forge
    assert await openid.refusal() in {OPENID_FAULTS[fault] for fault in OF_SIGNATURES}


NOW = 1_773_500_966
# The fault of a wrong claim
FAULTS = {
    "iss": OpenIdFault.ISSUER,
    **dict.fromkeys(("aud", "azp"), OpenIdFault.AUDIENCE),
    "nonce": OpenIdFault.NONCE,
    **dict.fromkeys(("exp", "iat", "nbf"), OpenIdFault.TIME),
    "sub": OpenIdFault.SUBJECT,
}
WRONG_CLAIMS: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://elsewhere.example"},
    "another client": {"aud": "another-client"},
    "no client": {"aud": []},
    "several clients and none it was given to": {"aud": [CLIENT.client_id, "another"]},
    "several clients, given to another": {"aud": [CLIENT.client_id, "another"], "azp": "another"},
    "given to another": {"azp": "another"},
    "another request": {"nonce": "another"},
    "no request": {"nonce": None},
    "a request that is not a text": {"nonce": ["x"]},
    "expired": {"exp": NOW - 61},
    "never expires": {"exp": None},
    "an expiry in words": {"exp": str(NOW + 300)},
    "not a number": {"exp": float("nan")},
    "from the future": {"iat": NOW + 61},
    "of no time": {"iat": None},
    "not yet": {"nbf": NOW + 61},
    "without a user": {"sub": None},
    "about an empty name": {"sub": ""},
    "about a number": {"sub": 4711},
    "about too much": {"sub": "x" * 256},
    "about controls": {"sub": "a\x00b"},
}


@pytest.mark.parametrize("mistake", WRONG_CLAIMS)
async def test_tokens_with_wrong_claims_are_refused(openid: Case, mistake: str) -> None:
    assert int(openid.clock.now().timestamp()) == NOW
    openid.server.claims = WRONG_CLAIMS[mistake]
    assert await openid.refusal() == OPENID_FAULTS[FAULTS[list(WRONG_CLAIMS[mistake])[-1]]]


async def test_a_token_for_several_audiences_with_our_client_id_is_accepted(openid: Case) -> None:
    openid.server.claims = {"aud": ["another", CLIENT.client_id], "azp": CLIENT.client_id, "exp": NOW - 29, "iat": NOW + 29}
    assert (await openid.identify()).subject == "4711"


# Keys


@pytest.mark.parametrize("kid", ["second", "first"])
async def test_keys_are_loaded_once_and_again_for_a_new_key(openid: Case, kid: str) -> None:
    """The provider may publish the new key under a new id or under the old id."""
    for _ in range(3):
        await openid.identify()
    assert openid.server.counted["/keys"] == 1
    new = key("RSA", "replacement")
    openid.server.sign = lambda claims: sign_with(new, claims, kid)
    openid.server.published = [new.as_dict(private=False) | {"kid": kid}]
    assert (await openid.identify()).subject == "4711"
    assert openid.server.counted["/keys"] == 2


FORGERIES: dict[str, Callable[[dict[str, Any]], str]] = {"an unknown id": partial(sign, kid="unknown"), "a wrong signature": by_another_key}


@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.parametrize("is_down", [False, True])
async def test_forged_tokens_reload_the_keys_at_most_once_a_minute(openid: Case, forgery: str, is_down: bool) -> None:
    await openid.identify()
    openid.server.sign = FORGERIES[forgery]
    if is_down:
        openid.server.answers["/keys"] = Answer(500)
    for minute in (1, 2):
        await run_concurrently(20, lambda _: openid.refusal())
        assert openid.server.counted["/keys"] == 1 + minute
        openid.clock.advance(timedelta(seconds=61))


async def test_a_provider_without_a_url_of_keys_signs_no_user_in(openid: Case) -> None:
    openid.use(jwks_url="")
    assert await openid.refusal() == OPENID_FAULTS[OpenIdFault.JWKS]
    assert openid.server.counted["/user"] == 0, "its profile does not replace the ID token"


async def test_concurrent_sign_ins_share_one_request_for_keys(openid: Case) -> None:
    await run_concurrently(20, lambda _: openid.identify())
    new = key("RSA", "replacement")
    openid.server.sign = lambda claims: sign_with(new, claims, "first")
    openid.server.published = [new.as_dict(private=False) | {"kid": "first"}]
    assert {identity.subject for identity in await run_concurrently(20, lambda _: openid.identify())} == {"4711"}
    assert openid.server.counted["/keys"] == 2


async def test_a_withdrawn_key_is_accepted_for_an_hour_at_most(openid: Case) -> None:
    await openid.identify()
    openid.server.published.clear()
    assert (await openid.identify()).subject == "4711"
    openid.clock.advance(timedelta(hours=1))
    assert await openid.refusal() == OPENID_FAULTS[OpenIdFault.SIGNING_KEY]


@pytest.mark.parametrize("change", [{"use": "enc"}, {"alg": "RS512"}, {"kty": "oct", "k": "c2VjcmV0"}, {"n": "AQAB"}, {"n": 5}, {"kid": 7}])
async def test_keys_for_other_uses_are_ignored(openid: Case, change: dict[str, Any]) -> None:
    openid.server.published = [key().as_dict(private=False) | change]
    assert await openid.refusal()


async def test_a_weak_key_is_ignored(openid: Case) -> None:
    number = rsa.generate_private_key(65537, 1024).public_key().public_numbers().n  # noqa: S505
    openid.server.published = [key().as_dict(private=False) | {"n": urlsafe_b64encode(number.to_bytes(128, "big")).rstrip(b"=").decode()}]
    assert await openid.refusal() == OPENID_FAULTS[OpenIdFault.SIGNING_KEY]
