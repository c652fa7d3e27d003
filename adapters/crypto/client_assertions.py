"""Client assertions (RFC 7523): JWTs that OAuth clients and pipelines authenticate with, and our own JWTs for identity providers."""

import hashlib
import json
import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import RSAAlgorithm

from adapters.crypto import signed_tokens
from adapters.crypto.jwk import KEY_TYPES, Keys, KeyUnusable, NoSuchKey, find_key, has_type, load_key
from adapters.crypto.rsa_signatures import sign_sha256
from core.applications.model import client_settings
from core.federation.oauth.model import clients
from core.federation.saml.model.configuration import SamlCertificate
from core.kernel.values import base64url

_ALGORITHM_OF_TYPE: Final = {KEY_TYPES[algorithm]: algorithm for algorithm in client_settings.ASSERTION_ALGORITHMS}


class _Verifier:
    """A verifier for tokens that other parties sign."""

    def __init__(self) -> None:
        self._jws = jwt.PyJWS(
            algorithms=list(client_settings.ASSERTION_ALGORITHMS), options={"enforce_minimum_key_length": True, "verify_signature": True}
        )

    def read(self, assertion: str, keys: Keys) -> dict[str, Any]:
        _check_form(assertion)
        try:
            header = self._jws.get_unverified_header(assertion)
        except (jwt.InvalidTokenError, ValueError):
            raise clients.ClientAssertionInvalid("it is not a signed JWT") from None
        algorithm = header.get("alg")
        if algorithm not in client_settings.ASSERTION_ALGORITHMS:
            raise clients.ClientAssertionInvalid("its alg must be RS256, PS256, ES256 or EdDSA")
        # Our own tokens have a different type per kind (RFC 8725 section 3.11).
        if not signed_tokens.REFUSED_HEADERS.isdisjoint(header) or ("typ" in header and not has_type(header, "jwt")):
            raise clients.ClientAssertionInvalid("its typ must be JWT or missing, and crit, jku, jwk, x5u and x5c must be missing")
        try:
            return _parse(self._jws.decode(assertion, find_key(keys, algorithm, header.get("kid")), algorithms=[algorithm]))
        except (NoSuchKey, jwt.InvalidSignatureError):  # a client may publish a new key under the old key's id
            raise clients.AssertionKeyUnknown from None
        except (KeyUnusable, jwt.InvalidTokenError, ValueError):
            raise clients.ClientAssertionInvalid("its signature cannot be verified with the key") from None

    def _unverified(self, assertion: str, claim: str) -> str | None:
        try:
            _check_form(assertion)
            value = _parse(self._jws.decode_complete(assertion, options={"verify_signature": False})["payload"]).get(claim)
        except (clients.ClientAssertionInvalid, jwt.InvalidTokenError, ValueError):
            return None
        return value if isinstance(value, str) else None


class JwtClientAssertions(_Verifier):
    """Implements `ports.crypto.ClientAssertions` with PyJWT."""

    def subject(self, assertion: str) -> str | None:
        return self._unverified(assertion, "sub")

    def check_keys(self, keys: Keys) -> None:
        for key in keys:
            try:
                load_key(key, key.get("alg") or _ALGORITHM_OF_TYPE[key["kty"]])
            except KeyUnusable:
                raise client_settings.ClientKeysInvalid from None


class JwtPipelineTokens(_Verifier):
    """Implements `ports.crypto.PipelineTokens` with PyJWT.

    This verifier is separate, because other parties sign pipeline tokens, with keys that are not ours (security J-1).
    """

    def issuer(self, token: str) -> str | None:
        return self._unverified(token, "iss")


def _check_form(assertion: str) -> None:
    if len(assertion) > signed_tokens.MAX_TOKEN_LENGTH or "=" in assertion:  # JWS has no padding (RFC 7515 section 2), but PyJWT accepts it
        raise clients.ClientAssertionInvalid("it is not a signed JWT")


def _parse(payload: bytes) -> dict[str, Any]:
    """Return the claims. Raises: ClientAssertionInvalid."""
    try:
        claims = json.loads(payload)
    except (ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict):
        raise clients.ClientAssertionInvalid("it has no claims")
    return claims


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
