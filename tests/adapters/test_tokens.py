"""Access tokens and attacks on them (security J-1, J-2, J-3, J-6)."""

import hmac
import json
import uuid
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from adapters.crypto import JwtTokens
from core.applications.model import plans
from core.authentication.model.tokens import UnknownKey
from core.kernel.claims import Claims
from core.kernel.errors import TokenExpired, TokenInvalid, WrongToken
from core.kernel.values import Email

if TYPE_CHECKING:
    from ports.crypto import Tokens
from tests.adapters.access_tokens import (
    BASE_URL,
    CLAIMS,
    HEADER,
    KEY,
    NOW,
    PAYLOAD,
    SERVICE_CLAIMS,
    SERVICE_PAYLOAD,
    STRANGER,
    TOKENS,
    b64,
    forged,
    parsed,
    refused,
    rs256,
    unb64,
    without,
)
from tests.support.builders import user_claims

TOKEN = TOKENS.sign(CLAIMS)


def test_an_access_token_contains_the_signed_claims() -> None:
    tokens: Tokens = TOKENS
    token = tokens.sign(CLAIMS)
    assert tokens.read(token, NOW) == CLAIMS
    header, payload, _ = token.split(".")
    assert json.loads(unb64(header)) == HEADER
    assert json.loads(unb64(payload)) == PAYLOAD


def test_a_forged_token_with_the_right_key_is_accepted() -> None:
    """The other tests change one part of this token, so it must be valid. The forged token's header differs from ours in form."""
    assert TOKENS.read(forged(dict(reversed(HEADER.items())), PAYLOAD), NOW) == CLAIMS


def test_the_claims_of_an_organization_are_absent_without_one() -> None:
    claims = Claims(
        user_id=CLAIMS.user_id,
        session_id=CLAIMS.session_id,
        email=CLAIMS.email,
        email_verified=False,
        token_id=CLAIMS.token_id,
        issued_at=CLAIMS.issued_at,
        expires_at=CLAIMS.expires_at,
    )
    token = TOKENS.sign(claims)
    assert TOKENS.read(token, NOW) == claims
    assert not {"org", "org_id", "service"} & set(json.loads(unb64(token.split(".")[1])))


def test_a_token_for_a_service_has_its_audience_and_the_plan_of_the_user() -> None:
    token = TOKENS.sign(SERVICE_CLAIMS)
    assert json.loads(unb64(token.split(".")[1])) == SERVICE_PAYLOAD
    # The plan is only for the application, so `read` does not return it.
    assert TOKENS.read(token, NOW) == replace(SERVICE_CLAIMS, plan=None, subscription_status=None, features=None)


def test_a_token_of_an_impersonation_names_the_impersonator_and_the_session() -> None:
    impersonator_id = "5a6a3c56-0b2c-4c3f-9c39-2f9c3b1f7a06"
    for claims, payload in ((CLAIMS, PAYLOAD), (SERVICE_CLAIMS, SERVICE_PAYLOAD)):
        token = TOKENS.sign(replace(claims, impersonator_id=uuid.UUID(impersonator_id)))
        expected = payload | {"impersonator": impersonator_id, "impersonation_session": payload["sid"]}
        assert json.loads(unb64(token.split(".")[1])) == expected
        assert user_claims(TOKENS, token, NOW).impersonator_id == uuid.UUID(impersonator_id)
        assert not {"impersonator", "impersonation_session"} & json.loads(unb64(TOKENS.sign(claims).split(".")[1])).keys()
    for wrong in (None, 5, "", "x", impersonator_id.upper(), [impersonator_id]):
        assert refused(forged(HEADER, PAYLOAD | {"impersonator": wrong}))


def test_missing_entitlements_are_absent_and_empty_ones_are_present() -> None:
    claims = replace(SERVICE_CLAIMS, plan=None, subscription_status=None, features=None)
    payload = json.loads(unb64(TOKENS.sign(claims).split(".")[1]))
    assert payload == {name: value for name, value in SERVICE_PAYLOAD.items() if name not in ("plan", "subscription_status", "features")}
    free = replace(SERVICE_CLAIMS, plan="Free", subscription_status=None, features=())
    payload = json.loads(unb64(TOKENS.sign(free).split(".")[1]))
    assert (payload["plan"], payload["features"], "subscription_status" in payload) == ("Free", [], False)


def test_the_largest_possible_plan_fits_into_a_token() -> None:
    longest = "\U0001f600" * 100  # every character takes twelve bytes in JSON
    features = plans.check_features(["x" * (plans.MAX_FEATURES_SIZE - len('[""]'))])
    claims = replace(
        SERVICE_CLAIMS, plan=longest, features=features, org="o" * 63, service="s" * 63, email=Email("x" * 64 + "@" + "y" * 189)
    )
    claims = replace(claims, impersonator_id=uuid.uuid4())
    tokens = JwtTokens("https://" + "sso." * 50 + "example.com")
    tokens.use([KEY], NOW)
    assert user_claims(tokens, tokens.sign(claims), NOW).service == "s" * 63


def test_relying_parties_can_check_a_token_with_the_published_keys() -> None:
    published = TOKENS.jwks()
    assert [set(key) for key in published["keys"]] == [{"kty", "use", "alg", "kid", "n", "e"}]
    assert published["keys"][0] | {"n": ""} == {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "key-in-use", "n": "", "e": "AQAB"}
    keys = jwt.PyJWKSet.from_dict(published)
    token = TOKENS.sign(CLAIMS)
    audience = f"{BASE_URL}/api"
    read = jwt.decode(token, keys["key-in-use"], algorithms=["RS256"], audience=audience, issuer=BASE_URL, options={"verify_iat": False})
    assert read == PAYLOAD


def test_alg_none_is_refused() -> None:
    for name in ("none", "None", "NONE", "nOnE", "", None):
        assert refused(forged(HEADER | {"alg": name}, PAYLOAD, lambda message: b""))
        assert refused(forged(HEADER | {"alg": name}, PAYLOAD))
    assert refused(forged(without(HEADER, "alg"), PAYLOAD))


def test_an_hmac_with_the_public_key_is_refused() -> None:
    public = parsed(KEY.private_key).public_key()
    for encoding, format_ in (
        (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
        (serialization.Encoding.PEM, serialization.PublicFormat.PKCS1),
        (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo),
    ):
        sign = partial(hmac.digest, public.public_bytes(encoding, format_), digest="sha256")
        assert refused(forged(HEADER | {"alg": "HS256"}, PAYLOAD, sign))


def test_other_asymmetric_algorithms_are_refused_with_the_right_key() -> None:
    for name in ("RS384", "RS512", "PS256", "RSA", "rs256"):
        algorithm = jwt.PyJWS().get_algorithm_by_name(name if name in ("RS384", "RS512", "PS256") else "RS256")
        assert refused(forged(HEADER | {"alg": name}, PAYLOAD, partial(algorithm.sign, key=parsed(KEY.private_key))))


def test_another_key_under_the_same_id_is_refused() -> None:
    assert refused(forged(HEADER, PAYLOAD, lambda message: rs256(message, STRANGER)))
    assert refused(TOKENS.sign(CLAIMS).rpartition(".")[0] + "." + b64(rs256(b"something else")))


def test_an_unknown_key_id_has_its_own_error() -> None:
    with pytest.raises(UnknownKey):
        TOKENS.read(forged(HEADER | {"kid": "key-of-tomorrow"}, PAYLOAD), NOW)
    for kid in (None, 7, ["key-in-use"], {"key-in-use": 1}):
        token = forged(HEADER | {"kid": kid}, PAYLOAD)
        with pytest.raises(TokenInvalid) as refusal:
            TOKENS.read(token, NOW)
        assert type(refusal.value) is TokenInvalid
    assert refused(forged(without(HEADER, "kid"), PAYLOAD))


def test_every_part_is_covered_by_the_signature() -> None:
    header, payload, signature = TOKENS.sign(CLAIMS).split(".")
    raised = b64(json.dumps(PAYLOAD | {"sub": str(uuid.uuid4())}).encode())
    assert refused(f"{header}.{raised}.{signature}")
    assert refused(f"{b64(json.dumps(HEADER | {'x': 1}).encode())}.{payload}.{signature}")
    flipped = bytearray(unb64(signature))
    flipped[100] ^= 1
    assert refused(f"{header}.{payload}.{b64(bytes(flipped))}")
    for token in (f"{header}.{payload}.", f"{header}.{payload}", f"{header}..{signature}", f".{payload}.{signature}", "..", ".", ""):
        assert refused(token)


def test_a_token_has_only_one_accepted_encoding() -> None:
    token = TOKENS.sign(CLAIMS)
    last = token[-1]  # its low bits are padding: another letter decodes to the same signature (CVE-2026-102269)
    other = chr(ord(last) + 1)
    assert unb64(token.rpartition(".")[2]) == unb64(token.rpartition(".")[2][:-1] + other)
    for spelling in (
        token[:-1] + other,
        token + "!",
        f" {token}",
        f"{token}\n",
        f"{token}.",
        token.replace("_", "/").replace("-", "+") + "*",
    ):
        assert refused(spelling)


def test_headers_that_contain_or_reference_a_key_are_refused() -> None:
    jwk = {"kty": "RSA", **{name: TOKENS.jwks()["keys"][0][name] for name in ("n", "e")}}
    extras: list[dict[str, Any]] = [
        {"crit": ["exp"]},
        {"crit": []},
        {"crit": ["b64"], "b64": True},
        {"jku": f"{BASE_URL}/.well-known/jwks.json"},
        {"jwk": jwk},
        {"x5u": "https://sso.example.com/cert.pem"},
        {"x5c": ["MIIB"]},
        {"b64": False, "crit": ["b64"]},
    ]
    for extra in extras:
        assert refused(forged(HEADER | extra, PAYLOAD)), extra


def test_another_type_of_token_is_refused() -> None:
    for header in (*(HEADER | {"typ": typ} for typ in ("jwt", "preauth+jwt", "AT+JWT", "", None, 1)), without(HEADER, "typ")):
        assert refused(forged(header, PAYLOAD))
    for type_ in ("JWT", "pre-auth+jwt", "logout+jwt"):  # our own tokens with a different purpose
        with pytest.raises(WrongToken):
            TOKENS.read(forged(HEADER | {"typ": type_}, PAYLOAD), NOW)
    for use in ("preauth", "refresh", "Access", "", None, True, ["access"]):
        assert refused(forged(HEADER, PAYLOAD | {"token_use": use}))


def test_issuer_and_audience_are_this_service() -> None:
    for name in ("iss", "aud"):
        for value in (f"{BASE_URL}/", BASE_URL.upper(), "https://other.example", "", None, 1, [BASE_URL], {BASE_URL: 1}):
            assert refused(forged(HEADER, PAYLOAD | {name: value})), (name, value)
    assert refused(forged(HEADER, PAYLOAD | {"iss": f"{BASE_URL}/api"}))
    for audience in (f"{BASE_URL}/api/", f"{BASE_URL}/API", f"{BASE_URL}/auth/userinfo", [f"{BASE_URL}/api"]):
        assert refused(forged(HEADER, PAYLOAD | {"aud": audience})), audience


def test_the_audience_of_a_token_of_a_service_is_one_application() -> None:
    assert TOKENS.read(forged(HEADER, SERVICE_PAYLOAD), NOW).client_id == SERVICE_CLAIMS.client_id
    client_id = SERVICE_PAYLOAD["aud"]
    with pytest.raises(WrongToken):  # for an API resource
        TOKENS.read(forged(HEADER, SERVICE_PAYLOAD | {"aud": f"urn:uuid:{client_id}"}), NOW)
    for audience in (BASE_URL, client_id.upper(), [client_id], [BASE_URL, client_id], "shop", "", None, 5):
        assert refused(forged(HEADER, SERVICE_PAYLOAD | {"aud": audience})), audience


def test_the_audience_of_an_application_and_the_service_need_each_other() -> None:
    for name in ("service", "org", "org_id", "aud"):
        assert refused(forged(HEADER, without(SERVICE_PAYLOAD, name))), name
    for service in ("", None, 5, ["shop"], True):
        assert refused(forged(HEADER, SERVICE_PAYLOAD | {"service": service})), service
    assert refused(forged(HEADER, PAYLOAD | {"service": "shop"})), "a token for us names no service"


def test_each_claim_is_required() -> None:
    for name in PAYLOAD.keys() - {"client_id"}:  # the audience says the same
        assert refused(forged(HEADER, without(PAYLOAD, name))), name
        assert refused(forged(HEADER, without(SERVICE_PAYLOAD, name))), name


def test_each_claim_has_its_type() -> None:
    now = PAYLOAD["iat"]
    wrong: dict[str, list[Any]] = {
        "exp": [str(now + 900), now + 900.0, True, None, [now + 900], -1, 10**30, 1e400],
        "iat": [str(now), float(now), False, None, -1],
        "sub": [None, 1, "ada@example.com", "", PAYLOAD["sub"].upper(), f"{{{PAYLOAD['sub']}}}", PAYLOAD["sub"].replace("-", "")],
        "sid": [None, True, "x", f"urn:uuid:{PAYLOAD['sid']}", PAYLOAD["sid"].upper(), [PAYLOAD["sid"]]],
        "jti": [None, 5, "x", PAYLOAD["jti"] + "\n"],
        "org_id": [None, 5, "acme", PAYLOAD["org_id"].upper()],
        "org": [None, "", 5, ["acme"]],
        "email": [None, 5, ["ada@example.com"]],
        "email_verified": [None, 0, 1, "true"],
        "nbf": [str(now), None, True, 1.5],
    }
    for name, values in wrong.items():
        for value in values:
            assert refused(forged(HEADER, PAYLOAD | {name: value})), (name, value)


def test_a_signed_payload_that_is_not_an_object_is_refused() -> None:
    for payload in ([], "x", 1, None, [PAYLOAD]):
        assert refused(forged(HEADER, payload))
    for header in ([], "x", 1, None, [HEADER]):
        assert refused(forged(header, PAYLOAD))


def test_a_token_expires_to_the_second_and_only_with_a_valid_signature() -> None:
    token = TOKENS.sign(CLAIMS)
    assert TOKENS.read(token, CLAIMS.expires_at - timedelta(microseconds=1)) == CLAIMS
    for now in (CLAIMS.expires_at, CLAIMS.expires_at + timedelta(days=400)):
        with pytest.raises(TokenExpired):
            TOKENS.read(token, now)
    expired = PAYLOAD | {"exp": PAYLOAD["iat"] - 1}
    assert refused(forged(HEADER, expired, lambda message: rs256(message, STRANGER)))
    assert refused(forged(HEADER, expired | {"aud": "https://other.example"}))


def test_a_token_issued_in_the_future_is_refused_beyond_the_leeway() -> None:
    token = TOKENS.sign(CLAIMS)
    assert TOKENS.read(token, NOW - timedelta(seconds=10)) == CLAIMS
    assert refused(token, now=NOW - timedelta(seconds=11))
    assert refused(forged(HEADER, PAYLOAD | {"nbf": PAYLOAD["iat"] + 11}))
    assert TOKENS.read(forged(HEADER, PAYLOAD | {"nbf": PAYLOAD["iat"] + 10}), NOW) == CLAIMS


def test_the_leeway_is_at_most_half_a_minute() -> None:
    JwtTokens(BASE_URL, leeway=timedelta(seconds=30))
    for leeway in (timedelta(seconds=31), timedelta(seconds=-1)):
        with pytest.raises(ValueError, match="between 0 and 30 seconds"):
            JwtTokens(BASE_URL, leeway=leeway)


def test_a_large_token_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = forged(HEADER, PAYLOAD | {"email": "x" * 5300})
    assert len(fits) <= 8192
    assert user_claims(TOKENS, fits, NOW).email == "x" * 5300
    large = forged(HEADER, PAYLOAD | {"email": "x" * 6000})
    assert len(large) > 8192
    monkeypatch.setattr(TOKENS, "_jws", None)
    assert refused(large)
    assert refused("x" * 8193)


def test_deep_nesting_is_refused() -> None:
    nested = "[" * 3000 + "]" * 3000
    header, payload, signature = TOKENS.sign(CLAIMS).split(".")
    assert refused(f"{b64(nested.encode())}.{payload}.{signature}")
    signing_input = f"{header}.{b64(nested.encode()[:5000])}"
    assert refused(f"{signing_input}.{b64(rs256(signing_input.encode()))}")


@given(st.text(max_size=60) | st.lists(st.binary(max_size=30), min_size=3, max_size=3).map(lambda parts: ".".join(map(b64, parts))))
def test_arbitrary_text_is_refused(text: str) -> None:
    assert refused(text)
    header, payload, signature = TOKEN.split(".")
    assert refused(f"{header}.{text}.{signature}")
    assert refused(f"{header}.{payload}.{text}")
    assert refused(f"{text}.{payload}.{signature}")
