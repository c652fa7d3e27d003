"""Pre-auth tokens: JWTs that are valid only to continue a sign-in (security J-1, J-2, J-3, J-8)."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from core.authentication.model.tokens import UnknownKey
from core.kernel.claims import PreAuthClaims
from core.kernel.errors import PreAuthExpired, TokenInvalid, WrongToken
from tests.adapters.access_tokens import BASE_URL, CLAIMS, HEADER, NOW, PAYLOAD, TOKENS, forged, without

PRE_AUTH = PreAuthClaims(
    id=UUID("7f6a3c56-0b2c-4c3f-9c39-2f9c3b1f7a08"),
    user_id=UUID("0b6a3c56-0b2c-4c3f-9c39-2f9c3b1f7a01"),
    issued_at=NOW.replace(microsecond=0),
    expires_at=NOW.replace(microsecond=0) + timedelta(seconds=600),
)
TYPE = HEADER | {"typ": "pre-auth+jwt"}
PAYLOAD_OF_PRE_AUTH: dict[str, Any] = {
    "iss": BASE_URL,
    "aud": f"{BASE_URL}/api/auth/mfa/verify",
    "sub": str(PRE_AUTH.user_id),
    "sid": str(PRE_AUTH.id),
    "jti": str(PRE_AUTH.id),
    "iat": int(NOW.timestamp()),
    "exp": int(NOW.timestamp()) + 600,
    "token_use": "preauth",
}
WRONG_VALUES: list[Any] = [None, 5.5, True, [], {}, "", "nonsense"]
REFUSED_HEADERS: list[dict[str, Any]] = [{"crit": ["exp"]}, {"jku": "https://evil.example"}, {"jwk": {}}, {"alg": "none"}, {"typ": "jwt"}]


def is_refused(token: str) -> bool:
    try:
        TOKENS.read_pre_auth(token, NOW)
    except PreAuthExpired:
        return False
    except TokenInvalid:
        return True
    return False


def test_a_token_contains_the_signed_claims() -> None:
    assert TOKENS.read_pre_auth(TOKENS.sign_pre_auth(PRE_AUTH), NOW) == PRE_AUTH
    assert TOKENS.read_pre_auth(forged(TYPE, PAYLOAD_OF_PRE_AUTH), NOW) == PRE_AUTH


def test_access_tokens_and_pre_auth_tokens_are_not_interchangeable() -> None:
    with pytest.raises(WrongToken):
        TOKENS.read(TOKENS.sign_pre_auth(PRE_AUTH), NOW)
    with pytest.raises(WrongToken):
        TOKENS.read_pre_auth(TOKENS.sign(CLAIMS), NOW)
    for type_ in ("JWT", "logout+jwt"):  # ID tokens and logout tokens
        with pytest.raises(WrongToken):
            TOKENS.read_pre_auth(forged(TYPE | {"typ": type_}, PAYLOAD_OF_PRE_AUTH), NOW)
    for header, payload in ((TYPE, PAYLOAD), (HEADER, PAYLOAD_OF_PRE_AUTH)):  # also with the wrong token type's header
        token = forged(header, payload)
        with pytest.raises((TokenInvalid, WrongToken)):
            TOKENS.read(token, NOW)
        with pytest.raises((TokenInvalid, WrongToken)):
            TOKENS.read_pre_auth(token, NOW)


def test_a_forged_token_of_the_other_kind_is_refused_as_invalid() -> None:
    head, payload, signature = TOKENS.sign_pre_auth(PRE_AUTH).split(".")
    with pytest.raises(TokenInvalid):
        TOKENS.read(f"{head}.{payload}.{signature[:-4]}AAAA", NOW)


def test_each_claim_is_required_and_has_its_type() -> None:
    for name in PAYLOAD_OF_PRE_AUTH:
        assert is_refused(forged(TYPE, without(PAYLOAD_OF_PRE_AUTH, name))), name
        for value in WRONG_VALUES:
            assert is_refused(forged(TYPE, PAYLOAD_OF_PRE_AUTH | {name: value})), (name, value)
    assert is_refused(forged(TYPE, PAYLOAD_OF_PRE_AUTH | {"aud": BASE_URL}))
    assert is_refused(forged(TYPE, PAYLOAD_OF_PRE_AUTH | {"exp": str(PAYLOAD_OF_PRE_AUTH["exp"])}))
    assert is_refused(forged(TYPE, PAYLOAD_OF_PRE_AUTH | {"iat": PAYLOAD_OF_PRE_AUTH["iat"] + 60}))
    assert is_refused(forged(TYPE, PAYLOAD_OF_PRE_AUTH | {"sid": str(PRE_AUTH.user_id)}))


def test_headers_are_checked_like_those_of_access_tokens() -> None:
    for more in REFUSED_HEADERS:
        assert is_refused(forged(TYPE | more, PAYLOAD_OF_PRE_AUTH)), more
    with pytest.raises(UnknownKey):
        TOKENS.read_pre_auth(forged(TYPE | {"kid": "another"}, PAYLOAD_OF_PRE_AUTH), NOW)


def test_a_token_expires_to_the_second_and_only_with_a_valid_signature() -> None:
    token = TOKENS.sign_pre_auth(PRE_AUTH)
    assert TOKENS.read_pre_auth(token, PRE_AUTH.expires_at - timedelta(microseconds=1)) == PRE_AUTH
    with pytest.raises(PreAuthExpired):
        TOKENS.read_pre_auth(token, PRE_AUTH.expires_at)
    with pytest.raises(TokenInvalid):
        TOKENS.read_pre_auth(token[:-4] + "AAAA", PRE_AUTH.expires_at)
