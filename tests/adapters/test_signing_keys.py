"""The keys that sign access tokens, and their rotation (security J-7)."""

import hashlib
import json
from datetime import timedelta

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from adapters.crypto import JwtTokens
from core.authentication.model.tokens import SigningKey, UnknownKey
from tests.adapters.access_tokens import BASE_URL, CLAIMS, KEY, NOW, STRANGER, TOKENS, b64, pem_of, unb64


async def test_a_new_key_has_its_thumbprint_as_id_and_can_sign() -> None:
    key = await TOKENS.new_key(NOW)
    assert (key.created_at, key.retires_at) == (NOW, None)
    tokens = JwtTokens(BASE_URL)
    tokens.use([key], NOW)
    published = tokens.jwks()["keys"][0]
    members = f'{{"e":"{published["e"]}","kty":"RSA","n":"{published["n"]}"}}'
    assert key.kid == published["kid"] == b64(hashlib.sha256(members.encode()).digest())
    assert len(unb64(published["n"])) == 2048 // 8
    assert tokens.read(tokens.sign(CLAIMS), NOW) == CLAIMS


def test_keys_rotate_with_overlap() -> None:
    new = SigningKey("key-of-today", STRANGER.private_key, NOW, None)
    old = SigningKey(KEY.kid, KEY.private_key, NOW - timedelta(days=90), NOW + timedelta(minutes=16))
    tokens = JwtTokens(BASE_URL)
    tokens.use([old, new], NOW)
    assert tokens.loaded_at == NOW
    assert [key["kid"] for key in tokens.jwks()["keys"]] == ["key-of-today", "key-in-use"]
    assert json.loads(unb64(tokens.sign(CLAIMS).split(".")[0]))["kid"] == "key-of-today"
    of_old = TOKENS.sign(CLAIMS)
    assert tokens.read(of_old, NOW) == CLAIMS
    with pytest.raises(UnknownKey):  # not after its retirement, even if no new keys were loaded
        tokens.read(of_old, NOW + timedelta(minutes=16))
    tokens.use([new], NOW + timedelta(seconds=1))  # removing a key invalidates its tokens
    with pytest.raises(UnknownKey):
        tokens.read(of_old, NOW)
    assert tokens.loaded_at == NOW + timedelta(seconds=1)


def test_the_newest_key_without_retirement_signs() -> None:
    younger = SigningKey("younger", KEY.private_key, NOW, None)
    older = SigningKey("older", KEY.private_key, NOW - timedelta(seconds=1), None)
    retiring = SigningKey("retiring", KEY.private_key, NOW + timedelta(seconds=1), NOW + timedelta(hours=1))
    tokens = JwtTokens(BASE_URL)
    tokens.use([older, retiring, younger], NOW)
    assert jwt.get_unverified_header(tokens.sign(CLAIMS))["kid"] == "younger"


def test_known_keys_are_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = JwtTokens(BASE_URL)
    tokens.use([KEY], NOW)
    monkeypatch.setattr(serialization, "load_pem_private_key", None)
    tokens.use([SigningKey(KEY.kid, KEY.private_key, KEY.created_at, NOW + timedelta(hours=1))], NOW)
    assert tokens.read(TOKENS.sign(CLAIMS), NOW) == CLAIMS
    with pytest.raises(LookupError):  # the only key has a retirement time
        tokens.sign(CLAIMS)


def test_without_keys_no_token_is_signed_or_accepted() -> None:
    tokens = JwtTokens(BASE_URL)
    assert tokens.jwks() == {"keys": []}
    assert tokens.loaded_at < NOW - timedelta(days=365)
    with pytest.raises(UnknownKey):
        tokens.read(TOKENS.sign(CLAIMS), NOW)
    with pytest.raises(LookupError):
        tokens.sign(CLAIMS)


def test_a_key_of_another_type_is_refused() -> None:
    tokens = JwtTokens(BASE_URL)
    for private in (ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 1024)):  # noqa: S505  # that is the point
        with pytest.raises(ValueError, match="is not an RSA key of at least 2048 bits"):
            tokens.use([SigningKey("weak", pem_of(private), NOW, None)], NOW)


def test_the_representation_contains_no_secret() -> None:
    assert "PRIVATE KEY" not in "".join(map(repr, (TOKENS, TOKENS._keys, TOKENS._published, KEY)))
