"""Verifying identity providers' tokens: ID tokens and logout tokens.

Sources: security O-8; OpenID Connect Core section 3.1.3.7; OpenID Connect Back-Channel Logout section 2.6; RFC 8725.
"""

import hmac
import json
import math
import sys
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import jwt

from adapters.crypto import jwk
from adapters.crypto.signed_tokens import REFUSED_HEADERS
from core.federation.connections.model import openid
from core.federation.connections.model.answers import to_seconds_off

ID_TOKEN_TYPES: Final = ("jwt",)
# Many libraries write JWT by default, and logout+jwt is a recommendation (Back-Channel Logout section 2.4). The claims distinguish the two
# token kinds: a logout token has no nonce.
LOGOUT_TOKEN_TYPES: Final = ("logout+jwt", "jwt")
MAX_SUBJECT_LENGTH: Final = 255  # OpenID Connect Core section 2

_jws: Final = jwt.PyJWS(algorithms=list(openid.ALGORITHMS), options={"enforce_minimum_key_length": True, "verify_signature": True})


class IdTokenInvalid(Exception):
    """The token is not valid. The fault quotes nothing from the token."""

    def __init__(self, fault: openid.OpenIdFault, seconds_off: int | None = None) -> None:
        super().__init__(fault.value)
        self.fault = fault
        self.seconds_off = seconds_off  # by which a refused time is ahead of our clock
        self.claims: Mapping[str, Any] = {}  # from a token with a right signature


class IdTokenKeyUnknown(IdTokenInvalid):
    """No given key signed the token. The provider may have published a new key."""


def read_id_token(
    token: str,
    keys: jwk.Keys,
    *,
    issuer: str,
    client_id: str,
    nonce: str,
    now: datetime,
    algorithms: Collection[str],
    skew: timedelta,
) -> dict[str, Any]:
    """Return the claims in a token that this issuer made for this client and for the request with this nonce.

    The claim `sub` is a non-empty string. `skew` is tolerated between the clocks.

    Raises: IdTokenInvalid, IdTokenKeyUnknown.
    """
    claims = _verify(token, keys, ID_TOKEN_TYPES, algorithms)
    try:
        _check_id_token(claims, issuer, client_id, nonce, now, skew)
    except IdTokenInvalid as invalid:
        invalid.claims = claims
        raise
    return claims


def _check_id_token(claims: Mapping[str, Any], issuer: str, client_id: str, nonce: str, now: datetime, skew: timedelta) -> None:
    _check_party(claims, issuer, client_id)
    token_nonce = claims.get("nonce")
    if not isinstance(token_nonce, str) or not hmac.compare_digest(token_nonce.encode("utf-8", "surrogatepass"), nonce.encode()):
        raise IdTokenInvalid(openid.OpenIdFault.NONCE)
    _check_times(claims, now, skew)
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_LENGTH or not subject.isprintable():
        raise IdTokenInvalid(openid.OpenIdFault.SUBJECT)


def read_logout_token(token: str, keys: jwk.Keys, *, issuer: str, client_id: str, algorithms: Collection[str]) -> dict[str, Any]:
    """Return the claims in a token that this issuer made for this client. The caller checks all further claims.

    Raises: IdTokenInvalid, IdTokenKeyUnknown.
    """
    claims = _verify(token, keys, LOGOUT_TOKEN_TYPES, algorithms)
    _check_party(claims, issuer, client_id)
    return claims


def _verify(token: str, keys: jwk.Keys, types: Collection[str], algorithms: Collection[str]) -> dict[str, Any]:
    """Return the claims in a token with a valid signature and an accepted type, or without a type.

    Raises: IdTokenInvalid, IdTokenKeyUnknown.
    """
    if "=" in token:  # JWS has no padding (RFC 7515 section 2), but PyJWT accepts it
        raise IdTokenInvalid(openid.OpenIdFault.FORM)
    try:
        header = _jws.get_unverified_header(token)
    except (jwt.InvalidTokenError, ValueError):
        raise IdTokenInvalid(openid.OpenIdFault.FORM) from None
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise IdTokenInvalid(openid.OpenIdFault.ALGORITHM)
    if not REFUSED_HEADERS.isdisjoint(header) or ("typ" in header and not any(jwk.has_type(header, type_) for type_ in types)):
        raise IdTokenInvalid(openid.OpenIdFault.FORM)
    key = _find_key(keys, algorithm, header.get("kid"))
    try:
        # The claims are checked later: PyJWT would use the system clock, and accept a token with
        # further audiences.
        claims = json.loads(_jws.decode(token, key, algorithms=[algorithm]))
    except jwt.InvalidSignatureError:  # a provider may publish a new key under the old key's id
        raise IdTokenKeyUnknown(openid.OpenIdFault.SIGNATURE) from None
    except (jwt.InvalidTokenError, ValueError, RecursionError):
        raise IdTokenInvalid(openid.OpenIdFault.SIGNATURE) from None
    if not isinstance(claims, dict):
        raise IdTokenInvalid(openid.OpenIdFault.FORM)
    return claims


def _find_key(keys: jwk.Keys, algorithm: str, kid: object) -> Any:
    """Return the key that signed the token. Raises: IdTokenKeyUnknown; IdTokenInvalid if the key is unreadable or too weak."""
    try:
        return jwk.find_key(keys, algorithm, kid)
    except jwk.NoSuchKey:
        raise IdTokenKeyUnknown(openid.OpenIdFault.SIGNING_KEY) from None
    except jwk.KeyUnusable:
        raise IdTokenInvalid(openid.OpenIdFault.SIGNING_KEY) from None


def _check_party(claims: Mapping[str, Any], issuer: str, client_id: str) -> None:
    get = claims.get
    if get("iss") != issuer:
        raise IdTokenInvalid(openid.OpenIdFault.ISSUER)
    audience = get("aud")
    audiences: object = [audience] if isinstance(audience, str) else audience
    if not isinstance(audiences, list) or client_id not in audiences:
        raise IdTokenInvalid(openid.OpenIdFault.AUDIENCE)
    if (len(audiences) > 1 or "azp" in claims) and get("azp") != client_id:
        raise IdTokenInvalid(openid.OpenIdFault.AUDIENCE)


def _check_times(claims: Mapping[str, Any], now: datetime, skew: timedelta) -> None:
    get = claims.get
    expires_at, issued_at, valid_from = _time(get("exp")), _time(get("iat")), _time(get("nbf", 0))
    if expires_at is None or issued_at is None or valid_from is None:
        raise IdTokenInvalid(openid.OpenIdFault.TIME)
    at, leeway = now.timestamp(), skew.total_seconds()
    if expires_at <= at - leeway:
        raise IdTokenInvalid(openid.OpenIdFault.TIME, to_seconds_off(expires_at - at))
    if (begins_at := max(issued_at, valid_from)) > at + leeway:
        raise IdTokenInvalid(openid.OpenIdFault.TIME, to_seconds_off(begins_at - at))


def _time(value: object) -> float | None:
    """Return the seconds since 1970, or None if the value is not a time. NaN is not a time: every comparison with NaN would be false."""
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > sys.float_info.max or math.isnan(value):
        return None
    return float(value)
