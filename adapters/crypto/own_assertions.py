"""Our client assertions at identity providers, and the public keys that verify them (RFC 7523, RFC 7517)."""

import hashlib
import json
import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import RSAAlgorithm

from adapters.crypto.rsa_signatures import sign_sha256
from core.federation.saml.model.configuration import SamlCertificate
from core.kernel.values import base64url

ALGORITHM: Final = "RS256"


def sign_assertion(key: SamlCertificate, claims: Mapping[str, Any]) -> str:
    """Return a JWT with these claims. Raises: SealBroken."""
    # Most providers find the key by its id, but Entra ID by its certificate's thumbprint (RFC 7515 section 4.1.8).
    kid = _thumbprint(key.certificate)
    header = {"alg": ALGORITHM, "typ": "JWT", "kid": kid, "x5t#S256": kid}
    signed = f"{_encode(header)}.{_encode(claims)}"
    return f"{signed}.{base64url(sign_sha256(key.private_key, signed.encode()))}"


def public_jwk(certificate: str) -> dict[str, str]:
    """Return the public key in a PEM certificate as a JWK. The key id is the certificate's thumbprint."""
    from cryptography import x509  # needs megabytes, and is rarely used

    key = x509.load_pem_x509_certificate(certificate.encode()).public_key()
    assert isinstance(key, RSAPublicKey), "we create RSA keys"
    jwk = RSAAlgorithm.to_jwk(key, as_dict=True)
    kid = _thumbprint(certificate)
    return {"kty": "RSA", "use": "sig", "alg": ALGORITHM, "kid": kid, "x5t#S256": kid, "n": jwk["n"], "e": jwk["e"]}


@lru_cache(maxsize=64)
def _thumbprint(certificate: str) -> str:
    return base64url(hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).digest())


def _encode(part: Mapping[str, Any]) -> str:
    return base64url(json.dumps(part, separators=(",", ":")).encode())
