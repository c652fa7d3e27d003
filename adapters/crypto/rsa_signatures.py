"""RSA signatures: our own with SHA-256, by private keys that are encrypted at rest, and foreign signatures, by certificate keys."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

_PADDING: Final = PKCS1v15()
_DIGEST: Final = SHA256()
_DIGESTS: Final = {digest.name: digest for digest in (_DIGEST, SHA384(), SHA512())}


def sign_sha256(private_key: Callable[[], bytes], data: bytes) -> bytes:
    """Return a signature for these bytes (RSASSA-PKCS1-v1_5). `private_key` returns the key in PEM. Raises: SealBroken."""
    return _load(private_key).sign(data, _PADDING, _DIGEST)


# The first signature with a loaded key costs as much as two more, so recent keys are kept. The cache compares the
# functions: for stored keys, they are equal only if the ciphertexts are. So a new key is used at once.
@lru_cache(maxsize=64)
def _load(private_key: Callable[[], bytes]) -> rsa.RSAPrivateKey:
    # Skip the number checks, which take tens of milliseconds: we created the key, and the
    # encryption at rest also authenticates it.
    key = load_pem_private_key(private_key(), None, unsafe_skip_rsa_key_validation=True)
    assert isinstance(key, rsa.RSAPrivateKey), "certificates have RSA keys"
    return key


def is_signed_by(certificate: str, digest: str, signature: bytes, data: bytes) -> bool:
    """Return whether this signature for these bytes (RSASSA-PKCS1-v1_5) was made with the certificate's key (PEM).

    `digest` is `sha256`, `sha384` or `sha512`. A key that is not RSA has signed nothing.

    Raises: ValueError for a malformed certificate.
    """
    key = _load_public(certificate)
    if not isinstance(key, rsa.RSAPublicKey):
        return False
    try:
        key.verify(signature, data, _PADDING, _DIGESTS[digest])
    except InvalidSignature:
        return False
    return True


def public_key_of(certificate: str) -> bytes:
    """Return the public key (PEM) in a certificate (PEM). Raises: ValueError for a malformed certificate."""
    return bytes(_load_public(certificate).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


@lru_cache(maxsize=256)
def _load_public(certificate: str) -> Any:
    from cryptography import x509

    return x509.load_pem_x509_certificate(certificate.encode()).public_key()
