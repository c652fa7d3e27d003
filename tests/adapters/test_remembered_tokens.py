"""Access tokens that were verified before: the checks at every use, and when their cache entries end (docs/adr/0024)."""

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from adapters.crypto import JwtTokens, access_tokens
from core.authentication.model.tokens import SigningKey, UnknownKey
from core.kernel.claims import PreAuthClaims
from core.kernel.errors import TokenExpired, TokenInvalid, WrongToken
from tests.adapters.access_tokens import BASE_URL, CLAIMS, HEADER, KEY, NOW, PAYLOAD, STRANGER, TOKENS, forged

PRE_AUTH = PreAuthClaims(id=uuid4(), user_id=CLAIMS.user_id, issued_at=NOW, expires_at=NOW + timedelta(minutes=10))


@pytest.fixture
def reader() -> JwtTokens:
    """A token reader that remembers nothing yet."""
    reader = JwtTokens(BASE_URL)
    reader.use([KEY], NOW)
    return reader


@pytest.fixture
def token(reader: JwtTokens) -> str:
    """A token that the reader has verified."""
    token = TOKENS.sign(replace(CLAIMS, token_id=uuid4()))
    reader.read(token, NOW)
    return token


def test_a_token_is_verified_once(reader: JwtTokens, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = reader.read(token, NOW)
    monkeypatch.setattr(reader, "_jws", None)
    assert reader.read(token, NOW) == claims


def test_a_verified_token_expires(reader: JwtTokens, token: str) -> None:
    reader.read(token, CLAIMS.expires_at - timedelta(microseconds=1))
    with pytest.raises(TokenExpired):
        reader.read(token, CLAIMS.expires_at)


def test_a_verified_token_is_refused_when_the_clock_is_set_back(reader: JwtTokens, token: str) -> None:
    reader.read(token, NOW - timedelta(seconds=10))
    with pytest.raises(TokenInvalid):
        reader.read(token, NOW - timedelta(seconds=11))
    later = forged(HEADER, PAYLOAD | {"nbf": PAYLOAD["iat"] + 60})
    reader.read(later, NOW + timedelta(seconds=50))
    with pytest.raises(TokenInvalid):
        reader.read(later, NOW + timedelta(seconds=49))


def test_an_expired_token_is_not_remembered(reader: JwtTokens) -> None:
    token = TOKENS.sign(CLAIMS)
    with pytest.raises(TokenExpired):
        reader.read(token, CLAIMS.expires_at)
    assert not reader._verified


def test_removing_a_key_invalidates_its_verified_tokens(reader: JwtTokens, token: str) -> None:
    reader.use([SigningKey("next", STRANGER.private_key, NOW, None)], NOW)
    with pytest.raises(UnknownKey):
        reader.read(token, NOW)


def test_a_replaced_key_with_the_same_id_invalidates_verified_tokens(reader: JwtTokens, token: str) -> None:
    assert STRANGER.kid == KEY.kid
    reader.use([STRANGER], NOW)
    with pytest.raises(TokenInvalid):
        reader.read(token, NOW)


def test_a_verified_token_is_refused_once_its_key_has_retired(reader: JwtTokens) -> None:
    """Without new keys: the process may not have loaded them yet."""
    retires_at = NOW + timedelta(minutes=1)
    reader.use([replace(KEY, retires_at=retires_at)], NOW)
    token = TOKENS.sign(CLAIMS)
    reader.read(token, retires_at - timedelta(microseconds=1))
    with pytest.raises(UnknownKey):
        reader.read(token, retires_at)


def test_a_changed_copy_of_a_verified_token_is_refused(reader: JwtTokens, token: str) -> None:
    for position in range(len(token)):
        other = "A" if token[position] != "A" else "B"
        with pytest.raises(TokenInvalid):
            reader.read(f"{token[:position]}{other}{token[position + 1 :]}", NOW)
    for other in (f"{token}A", token[:-1], f"{token}.", f" {token}", token.upper()):
        with pytest.raises(TokenInvalid):
            reader.read(other, NOW)


def test_verified_tokens_of_one_kind_are_refused_as_the_other(reader: JwtTokens, token: str) -> None:
    for _ in range(2):
        with pytest.raises(WrongToken):
            reader.read_pre_auth(token, NOW)
    pre_auth = TOKENS.sign_pre_auth(PRE_AUTH)
    for _ in range(2):
        reader.read_pre_auth(pre_auth, NOW)
        with pytest.raises(WrongToken):
            reader.read(pre_auth, NOW)


def test_the_audience_stays_with_the_claims(reader: JwtTokens, token: str) -> None:
    application = replace(CLAIMS, service="shop", client_id=uuid4())
    of_service = TOKENS.sign(application)
    for _ in range(2):
        assert reader.read(of_service, NOW).client_id == application.client_id
        assert reader.read(token, NOW).client_id is None


def test_the_earliest_token_makes_room(reader: JwtTokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_tokens, "MAX_REMEMBERED", 2)
    issued = [TOKENS.sign(replace(CLAIMS, token_id=uuid4())) for _ in range(4)]
    for token in (*issued, issued[3], issued[2]):
        reader.read(token, NOW)
        assert len(reader._verified) <= 2
    monkeypatch.setattr(reader, "_jws", None)
    reader.read(issued[2], NOW)
    reader.read(issued[3], NOW)


def test_invalid_tokens_are_not_remembered(reader: JwtTokens) -> None:
    for token in (TOKENS.sign_pre_auth(PRE_AUTH), forged(HEADER, PAYLOAD | {"iss": "other"}), f"{TOKENS.sign(CLAIMS)}x", "x"):
        with pytest.raises((TokenInvalid, WrongToken)):
            reader.read(token, NOW)
    assert not reader._verified
