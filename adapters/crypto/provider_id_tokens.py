"""Verification of ID tokens from identity providers (security O-8, OpenID Connect Core section 3.1.3.7, RFC 8725)."""

import hmac
import json
import math
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import jwt

from adapters.crypto.jwk import Keys, KeyUnusable, NoSuchKey, find_key, has_type
from adapters.crypto.signed_tokens import REFUSED_HEADERS

# No symmetric algorithm: with one, anyone who knows the public key or the client secret could sign
# (RFC 8725 section 3.1).
ALGORITHMS: Final = ("RS256", "PS256", "ES256")
LEEWAY: Final = timedelta(seconds=30)  # tolerated difference between the provider's clock and ours (security J-3)
MAX_SUBJECT_LENGTH: Final = 255  # OpenID Connect Core section 2

_jws: Final = jwt.PyJWS(algorithms=list(ALGORITHMS), options={"enforce_minimum_key_length": True, "verify_signature": True})


class IdTokenInvalid(Exception):
    """The ID token is not valid. The reason is one of a few constants and quotes nothing from the token."""


class IdTokenKeyUnknown(IdTokenInvalid):
    """None of the given keys signed the token. The provider may have published a new key."""


def read_id_token(token: str, keys: Keys, *, issuer: str, client_id: str, nonce: str, now: datetime) -> dict[str, Any]:
    """Return the claims of a token that this issuer made for this client and for the request with this nonce.

    The claim `sub` is a non-empty string.

    Raises: IdTokenInvalid, IdTokenKeyUnknown.
    """
    if "=" in token:  # JWS has no padding (RFC 7515 section 2), but PyJWT accepts it
        raise IdTokenInvalid("the ID token is not a signed token")
    try:
        header = _jws.get_unverified_header(token)
    except (jwt.InvalidTokenError, ValueError):
        raise IdTokenInvalid("the ID token is not a signed token") from None
    algorithm = header.get("alg")
    if algorithm not in ALGORITHMS:
        raise IdTokenInvalid("the ID token is signed in a way that is not accepted")
    if not REFUSED_HEADERS.isdisjoint(header) or ("typ" in header and not has_type(header, "jwt")):
        raise IdTokenInvalid("the ID token has a header that is not accepted")
    key = _find_key(keys, algorithm, header.get("kid"))
    try:
        # The claims are checked below: PyJWT would use the system clock, and accept a token with
        # further audiences.
        claims = json.loads(_jws.decode(token, key, algorithms=[algorithm]))
    except jwt.InvalidSignatureError:  # a provider may publish a new key under the id of the old one
        raise IdTokenKeyUnknown("the signature of the ID token is wrong") from None
    except (jwt.InvalidTokenError, ValueError, RecursionError):
        raise IdTokenInvalid("the signature of the ID token is wrong") from None
    if not isinstance(claims, dict):
        raise IdTokenInvalid("the ID token has no claims")
    _check(claims, issuer, client_id, nonce, now)
    return claims


def _find_key(keys: Keys, algorithm: str, kid: object) -> Any:
    """Return the key that signed the token. Raises: IdTokenKeyUnknown; IdTokenInvalid if the key is unreadable or too weak."""
    try:
        return find_key(keys, algorithm, kid)
    except NoSuchKey:
        raise IdTokenKeyUnknown("the ID token is signed with a key that the provider does not publish") from None
    except KeyUnusable as problem:
        raise IdTokenInvalid(f"a key of the provider {problem}") from None


def _check(claims: Mapping[str, Any], issuer: str, client_id: str, nonce: str, now: datetime) -> None:
    get = claims.get
    if get("iss") != issuer:
        raise IdTokenInvalid("the ID token is from another issuer")
    audience = get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    if not isinstance(audiences, list) or client_id not in audiences:
        raise IdTokenInvalid("the ID token is for another client")
    if (len(audiences) > 1 or "azp" in claims) and get("azp") != client_id:
        raise IdTokenInvalid("the ID token was issued to another client")
    token_nonce = get("nonce")
    if not isinstance(token_nonce, str) or not hmac.compare_digest(token_nonce.encode("utf-8", "surrogatepass"), nonce.encode()):
        raise IdTokenInvalid("the ID token is for another request")
    expires_at, issued_at, valid_from = _time(get("exp")), _time(get("iat")), _time(get("nbf", 0))
    if expires_at is None or issued_at is None or valid_from is None:
        raise IdTokenInvalid("the ID token has no usable times")
    at, leeway = now.timestamp(), LEEWAY.total_seconds()
    if expires_at <= at - leeway:
        raise IdTokenInvalid("the ID token has expired")
    if max(issued_at, valid_from) > at + leeway:
        raise IdTokenInvalid("the ID token is not valid yet")
    subject = get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_LENGTH or not subject.isprintable():
        raise IdTokenInvalid("the ID token has no usable subject")


def _time(value: object) -> float | None:
    """Return the seconds since 1970, or None if the value is not a time. NaN is none: every comparison with it would be false."""
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > sys.float_info.max or math.isnan(value):
        return None
    return float(value)
