"""Choosing the public key that verifies another party's token (RFC 7517, RFC 8725)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

# The key types for the accepted algorithms. No accepted algorithm is symmetric: otherwise anyone
# who knows the public key or the client secret could sign (RFC 8725 section 3.1).
KEY_TYPES: Final = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384"), "EC"),
    "EdDSA": "OKP",
}
CURVES: Final = {"ES256": "P-256", "ES384": "P-384"}  # RFC 7518 section 3.4
_CURVE_TYPES: Final = {"ES256": ec.SECP256R1, "ES384": ec.SECP384R1}
MIN_RSA_BITS: Final = 2048
MAX_RSA_BITS: Final = 8192  # larger keys would take long to verify
MAX_RSA_EXPONENT: Final = 2**32
MAX_KEYS: Final = 50  # considered per token

Keys = Sequence[Mapping[str, Any]]  # the keys in a JWK set (RFC 7517 section 5)


def has_type(header: Mapping[str, Any], type_: str) -> bool:
    """Return whether a header's `typ` is this type. Case and "application/" do not matter (RFC 7515 section 4.1.9)."""
    value = header.get("typ")
    return isinstance(value, str) and value.lower().removeprefix("application/") == type_


class NoSuchKey(Exception):
    """No key has the id and the type that the token's signature needs."""


class KeyUnusable(Exception):
    """The key cannot be used. The error's text continues a sentence about the key."""


def find_key(keys: Keys, algorithm: str, kid: object) -> Any:
    """Return the key with this id, or the only key with the right type if there is no id (OpenID Connect Core section 10.1).

    Raises: NoSuchKey, KeyUnusable.
    """
    candidates = [key for key in keys[:MAX_KEYS] if is_for(key, algorithm)]
    matching = candidates if kid is None else [key for key in candidates if key.get("kid") == kid]
    if len(matching) != 1:
        raise NoSuchKey
    return load_key(matching[0], algorithm)


def is_for(key: Mapping[str, Any], algorithm: str) -> bool:
    """Return whether a key says that it verifies signatures with this algorithm."""
    return (
        key.get("kty") == KEY_TYPES[algorithm]
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and (algorithm not in CURVES or key.get("crv") == CURVES[algorithm])
    )


def is_usable_key(key: Mapping[str, Any], algorithms: Iterable[str]) -> bool:
    """Return whether a key can verify signatures with any of these algorithms."""
    try:
        return any(load_key(key, algorithm) is not None for algorithm in algorithms if is_for(key, algorithm))
    except KeyUnusable:
        return False


def load_key(jwk: Mapping[str, Any], algorithm: str) -> Any:
    """Return the public key for this algorithm. Raises: KeyUnusable."""
    try:
        key = jwt.PyJWK.from_dict(dict(jwk), algorithm=algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise KeyUnusable("cannot be read") from None
    match key:
        case rsa.RSAPublicKey() if MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS and key.public_numbers().e < MAX_RSA_EXPONENT:
            return key
        case ec.EllipticCurvePublicKey() if isinstance(key.curve, _CURVE_TYPES.get(algorithm, ())):
            return key
        case ed25519.Ed25519PublicKey():
            return key
    raise KeyUnusable("is too weak, or not a public key")
