"""Public keys for passkeys (COSE, RFC 9052 and RFC 9053). py_webauthn accepts keys at a registration with which no signature verifies."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import cbor2
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256

from core.accounts.model import passkeys

_EDDSA, _ES256, _RS256 = passkeys.ALGORITHMS
_KTY, _ALG, _FIRST, _SECOND, _THIRD = 1, 3, -1, -2, -3  # the meaning of the last three depends on the key type
_OKP, _EC2, _RSA = 1, 2, 3
_ED25519, _P256 = 6, 1
_ED25519_PRIME: Final = 2**255 - 19
_WITHOUT_SIGN: Final = 2**255 - 1
# The y coordinates of the points with order 1, 2, 4 and 8. With such a public key, signatures need no private key.
_ORDER_8: Final = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL_ORDER: Final = frozenset({0, 1, _ED25519_PRIME - 1, _ORDER_8, _ED25519_PRIME - _ORDER_8})
_RSA_BITS: Final = range(2048, 4097)
_RSA_EXPONENT: Final = b"\x01\x00\x01"
_CURVE, _ECDSA = ec.SECP256R1(), ec.ECDSA(SHA256())


# Verifies a signature over data. Raises: InvalidSignature.
_Verify = Callable[[bytes, bytes], None]


def check(encoded: bytes) -> tuple[bytes, int]:
    """Check a COSE key, and return it in canonical CBOR, with its algorithm.

    Raises: CeremonyRefused with ALGORITHM for an algorithm that we do not offer, and with KEY for a key that does not fit its algorithm.
    """
    key, _ = _load(encoded)
    return cbor2.dumps(key, canonical=True), key[_ALG]


def verify(encoded: bytes, signature: bytes, data: bytes) -> None:
    """Verify a signature over `data`, after all checks that `check` makes. Raises: CeremonyRefused."""
    _, verify_with_key = _load(encoded)
    try:
        verify_with_key(signature, data)
    except InvalidSignature:
        raise passkeys.CeremonyRefused(passkeys.PasskeyReason.SIGNATURE) from None


def _load(encoded: bytes) -> tuple[dict[Any, Any], _Verify]:
    """Check a COSE key, and return it with the function that verifies its signatures. Raises: CeremonyRefused."""
    try:
        key = cbor2.loads(encoded)
    except (cbor2.CBORDecodeError, ValueError, TypeError, RecursionError):
        raise passkeys.CeremonyRefused(passkeys.PasskeyReason.KEY) from None
    if not isinstance(key, dict) or type(key.get(_ALG)) is not int:
        raise passkeys.CeremonyRefused(passkeys.PasskeyReason.KEY)
    algorithm = key[_ALG]
    if algorithm not in _LOADERS:
        raise passkeys.CeremonyRefused(passkeys.PasskeyReason.ALGORITHM)
    try:
        return key, _LOADERS[algorithm](key)
    except ValueError:
        raise passkeys.CeremonyRefused(passkeys.PasskeyReason.KEY) from None


def _load_ed25519(key: Mapping[object, object]) -> _Verify:
    [public] = _values(key, _OKP, {_FIRST: _ED25519}, _SECOND)
    loaded = ed25519.Ed25519PublicKey.from_public_bytes(public)
    y = int.from_bytes(public, "little") & _WITHOUT_SIGN
    if y >= _ED25519_PRIME or y in _SMALL_ORDER:
        raise ValueError("the point is of a small order, or not in canonical form")
    return loaded.verify


def _load_p256(key: Mapping[object, object]) -> _Verify:
    x, y = _values(key, _EC2, {_FIRST: _P256}, _SECOND, _THIRD)
    if (len(x), len(y)) != (32, 32):
        raise ValueError("a coordinate has another length")
    loaded = ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, b"\x04" + x + y)  # refuses points off the curve
    return lambda signature, data: loaded.verify(signature, data, _ECDSA)


def _load_rsa(key: Mapping[object, object]) -> _Verify:
    modulus, exponent = _values(key, _RSA, {}, _FIRST, _SECOND)
    number = int.from_bytes(modulus, "big")
    if number.bit_length() not in _RSA_BITS or number % 2 == 0 or modulus[0] == 0 or exponent != _RSA_EXPONENT:
        raise ValueError("the modulus or the exponent is not acceptable")
    loaded = rsa.RSAPublicNumbers(65537, number).public_key()
    return lambda signature, data: loaded.verify(signature, data, PKCS1v15(), SHA256())


def _values(key: Mapping[object, object], kind: int, fixed: Mapping[int, int], *names: int) -> list[bytes]:
    """Return the values with these names. The key must have the type `kind`, the `fixed` values, and nothing else. Raises: ValueError."""
    expected = {_KTY: kind, _ALG: key[_ALG], **fixed}
    if key.keys() != {*expected, *names} or any(type(name) is not int for name in key):
        raise ValueError("it has other parameters")
    values = [value for name in names if isinstance(value := key[name], bytes)]
    if len(values) != len(names) or any(key[name] != value or type(key[name]) is not int for name, value in expected.items()):
        raise ValueError("a parameter has another value")
    return values


_LOADERS: Final = {_EDDSA: _load_ed25519, _ES256: _load_p256, _RS256: _load_rsa}
