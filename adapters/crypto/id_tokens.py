"""ID tokens of identity providers: JWTs that others sign (OpenID Connect Core section 3.1.3.7; RFC 8725; security.md O-8)."""

import hmac
import json
import math
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

# None is symmetric, or whoever knows the public key, or the client's secret, could sign (RFC 8725 section 3.1).
ALGORITHMS: Final = ("RS256", "PS256", "ES256")
LEEWAY: Final = timedelta(seconds=30)  # how much the provider's clock may differ (security.md J-3)
SMALLEST_RSA_KEY: Final = 2048
LONGEST_SUBJECT: Final = 255  # OpenID Connect Core section 2
MOST_KEYS: Final = 50  # of a provider that are looked at
# Headers that bring a key, point to one, or ask for rules that we do not know (security.md J-1).
_REFUSED_HEADERS: Final = frozenset({"crit", "jku", "jwk", "x5u", "x5c"})

Keys = Sequence[Mapping[str, Any]]  # what a JWK set holds (RFC 7517 section 5)
_jws: Final = jwt.PyJWS(algorithms=list(ALGORITHMS), options={"enforce_minimum_key_length": True, "verify_signature": True})


class IdTokenInvalid(Exception):
    """The token proves nothing. The text is one of a few, and holds nothing of what the token says."""


class IdTokenKeyUnknown(IdTokenInvalid):
    """None of these keys has signed the token; the provider may have another one by now."""


def read_id_token(token: str, keys: Keys, *, issuer: str, client_id: str, nonce: str, now: datetime) -> dict[str, Any]:
    """What a token says that this issuer made for this client, for the request with this nonce. `sub` is a text.

    Raises IdTokenInvalid, IdTokenKeyUnknown.
    """
    if "=" in token:  # JWS has no padding (RFC 7515 section 2), but PyJWT takes it
        raise IdTokenInvalid("the ID token is not a signed token")
    try:
        header = _jws.get_unverified_header(token)
    except (jwt.InvalidTokenError, ValueError):
        raise IdTokenInvalid("the ID token is not a signed token") from None
    algorithm, type_ = header.get("alg"), header.get("typ", "JWT")
    if algorithm not in ALGORITHMS:
        raise IdTokenInvalid("the ID token is signed in a way that is not accepted")
    if not _REFUSED_HEADERS.isdisjoint(header) or not isinstance(type_, str) or type_.upper() != "JWT":
        raise IdTokenInvalid("the ID token has a header that is not accepted")
    key = _key(keys, algorithm, header.get("kid"))
    try:
        # PyJWT's own checks of what the token says ask the machine's clock, and let any one audience do.
        claims = json.loads(_jws.decode(token, key, algorithms=[algorithm]))
    except (jwt.InvalidTokenError, ValueError, RecursionError):
        raise IdTokenInvalid("the signature of the ID token is wrong") from None
    if not isinstance(claims, dict):
        raise IdTokenInvalid("the ID token says nothing")
    _check(claims, issuer, client_id, nonce, now)
    return claims


def _key(keys: Keys, algorithm: str, kid: object) -> Any:
    """The key that has this id; without one, the only key there is of the kind (OpenID Connect Core section 10.1). Raises IdTokenKeyUnknown."""
    kind = "EC" if algorithm == "ES256" else "RSA"
    fitting = [
        key
        for key in keys[:MOST_KEYS]
        if key.get("kty") == kind and key.get("use", "sig") == "sig" and key.get("alg", algorithm) == algorithm
    ]
    named = fitting if kid is None else [key for key in fitting if key.get("kid") == kid]
    if len(named) != 1:
        raise IdTokenKeyUnknown("the ID token is signed with a key that the provider does not publish")
    try:
        key = jwt.PyJWK.from_dict(dict(named[0]), algorithm=algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise IdTokenInvalid("a key of the provider cannot be read") from None
    if isinstance(key, rsa.RSAPublicKey) and key.key_size >= SMALLEST_RSA_KEY:
        return key
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    raise IdTokenInvalid("a key of the provider is too weak, or no public key")


def _check(claims: Mapping[str, Any], issuer: str, client_id: str, nonce: str, now: datetime) -> None:
    get = claims.get
    if get("iss") != issuer:
        raise IdTokenInvalid("the ID token is of another issuer")
    audience = get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    if not isinstance(audiences, list) or client_id not in audiences:
        raise IdTokenInvalid("the ID token is for another client")
    if (len(audiences) > 1 or "azp" in claims) and get("azp") != client_id:
        raise IdTokenInvalid("the ID token was given to another client")
    shown = get("nonce")
    if not isinstance(shown, str) or not hmac.compare_digest(shown.encode("utf-8", "surrogatepass"), nonce.encode()):
        raise IdTokenInvalid("the ID token is for another request")
    expires_at, issued_at, valid_from = _time(get("exp")), _time(get("iat")), _time(get("nbf", 0))
    if expires_at is None or issued_at is None or valid_from is None:
        raise IdTokenInvalid("the ID token does not say when it is valid")
    at, leeway = now.timestamp(), LEEWAY.total_seconds()
    if expires_at <= at - leeway:
        raise IdTokenInvalid("the ID token has expired")
    if max(issued_at, valid_from) > at + leeway:
        raise IdTokenInvalid("the ID token is not valid yet")
    subject = get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= LONGEST_SUBJECT or not subject.isprintable():
        raise IdTokenInvalid("the ID token does not say whom it is about")


def _time(value: object) -> float | None:
    """Seconds since 1970. NaN, which is neither before nor after anything, is none."""
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > sys.float_info.max or math.isnan(value):
        return None
    return float(value)
