"""RSA signatures with SHA-256, by private keys that are encrypted at rest."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

_PADDING: Final = PKCS1v15()
_DIGEST: Final = SHA256()


def sign_sha256(private_key: Callable[[], bytes], data: bytes) -> bytes:
    """Return the signature of these bytes (RSASSA-PKCS1-v1_5). `private_key` returns the key in PEM. Raises: SealBroken."""
    return _load(private_key).sign(data, _PADDING, _DIGEST)


# The first signature of a loaded key costs as much as two more, so recent keys are kept. The cache
# compares the functions: those of stored keys are equal only if the ciphertexts are. So a new key is
# used at once.
@lru_cache(maxsize=64)
def _load(private_key: Callable[[], bytes]) -> rsa.RSAPrivateKey:
    # Skip the check of the numbers, which takes tens of milliseconds: we created the key, and the
    # encryption at rest also authenticates it.
    key = load_pem_private_key(private_key(), None, unsafe_skip_rsa_key_validation=True)
    assert isinstance(key, rsa.RSAPrivateKey), "certificates have RSA keys"
    return key
