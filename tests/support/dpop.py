"""The DPoP clients' keys, and the proofs that they make with them (RFC 9449)."""

import json
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final
from uuid import uuid4

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from core.applications.model.client_settings import thumbprint
from core.kernel.values import base64url, digest

LEFT_OUT: Final = object()


@dataclass(frozen=True, slots=True)
class ProofKey:
    """A client's private key."""

    algorithm: str
    private: Any

    @property
    def jwk(self) -> dict[str, str]:
        return {name: value for name, value in self._write(self.private.public_key()).items() if name != "key_ops"}

    @property
    def private_jwk(self) -> dict[str, str]:
        return {name: value for name, value in self._write(self.private).items() if name != "key_ops"}

    @property
    def thumbprint(self) -> str:
        return thumbprint(self.jwk)

    def _write(self, key: Any) -> dict[str, str]:
        kinds: dict[str, Any] = {"RS256": RSAAlgorithm, "PS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}
        written: dict[str, str] = kinds[self.algorithm].to_jwk(key, as_dict=True)
        return written

    def proof(
        self,
        method: str,
        url: str,
        now: datetime,
        nonce: str | None = None,
        token: str | None = None,
        *,
        headers: dict[str, Any] | None = None,
        **changes: Any,
    ) -> str:
        """Return a proof for a request. Header members and claims with the value LEFT_OUT are left out."""
        claims: dict[str, Any] = {
            "jti": str(uuid4()),
            "htm": method,
            "htu": url,
            "iat": int(now.timestamp()),
            "nonce": LEFT_OUT if nonce is None else nonce,
            "ath": LEFT_OUT if token is None else base64url(digest(token)),
            **changes,
        }
        header = {"typ": "dpop+jwt", "jwk": self.jwk, **(headers or {})}
        payload = json.dumps({name: value for name, value in claims.items() if value is not LEFT_OUT}).encode()
        kept = {name: value for name, value in header.items() if value is not LEFT_OUT}
        # Not `jwt.encode`, which refuses to make tokens with wrong claims.
        return jwt.PyJWS().encode(payload, self.private, kept.pop("alg", self.algorithm), kept)


@cache
def proof_key(algorithm: str = "ES256", name: str = "one") -> ProofKey:
    """Return a key for this algorithm, always the same for a name. Different names have different keys."""
    private: Any = {
        "RS256": lambda: rsa.generate_private_key(65537, 2048),
        "PS256": lambda: rsa.generate_private_key(65537, 2048),
        "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
        "EdDSA": ed25519.Ed25519PrivateKey.generate,
    }[algorithm]()
    return ProofKey(algorithm, private)
