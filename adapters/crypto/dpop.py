"""DPoP proofs: JWTs that a client signs with the key to which its tokens are bound (RFC 9449)."""

import json
from typing import Any, Final, NamedTuple

import jwt

from adapters.crypto import signed_tokens
from adapters.crypto.jwk import KEY_TYPES, KeyUnusable, has_type, load_key
from core.applications.model import client_settings
from core.applications.model.client_settings import thumbprint
from core.authentication.model import dpop

PROOF_TYPE: Final = "dpop+jwt"  # RFC 9449 section 4.2
MAX_REMEMBERED: Final = 4096  # headers, about 1 KiB per header with its key


class _Signer(NamedTuple):
    """The algorithm and the key in a proof's header."""

    algorithm: str
    key: Any
    thumbprint: str


class JwtDpopProofs:
    """Implements `ports.crypto.DpopProofs` with PyJWT.

    A client sends the same header with every proof. The headers in valid proofs are remembered with their keys, because
    reading a header and its key takes half as long as a signature. Entries are found by the header itself, so no entry
    can be stale.
    """

    def __init__(self) -> None:
        self._jws = jwt.PyJWS(
            algorithms=list(dpop.PROOF_ALGORITHMS), options={"enforce_minimum_key_length": True, "verify_signature": True}
        )
        self._signers: dict[str, _Signer] = {}
        self._nonce_keys: dict[int, dpop.NonceKey] = {}  # by period

    def read(self, proof: str) -> dpop.SignedProof:
        if len(proof) > signed_tokens.MAX_TOKEN_LENGTH or "=" in proof:  # JWS has no padding (RFC 7515 section 2), but PyJWT accepts it
            raise dpop.ProofInvalid("it is not a signed JWT")
        header = proof.partition(".")[0]
        signer = self._signers.get(header) or self._read_header(proof)
        try:
            claims = json.loads(self._jws.decode(proof, signer.key, algorithms=[signer.algorithm]))
        except (jwt.InvalidTokenError, ValueError, RecursionError):
            raise dpop.ProofInvalid("its signature is wrong") from None
        if not isinstance(claims, dict):
            raise dpop.ProofInvalid("it has no claims")
        self._remember(header, signer)
        return dpop.SignedProof(signer.thumbprint, claims)

    def nonce_key(self, period: int) -> dpop.NonceKey | None:
        return self._nonce_keys.get(period)

    def keep_nonce_key(self, key: dpop.NonceKey) -> None:
        kept = {period: old for period, old in self._nonce_keys.items() if period >= key.period - 1}
        self._nonce_keys = {**kept, key.period: key}

    def forget_nonce_keys(self) -> None:
        self._nonce_keys = {}

    def _remember(self, header: str, signer: _Signer) -> None:
        if header in self._signers:
            return
        if len(self._signers) >= MAX_REMEMBERED:
            del self._signers[next(iter(self._signers))]  # the earliest header
        self._signers[header] = signer

    def _read_header(self, proof: str) -> _Signer:
        try:
            header = self._jws.get_unverified_header(proof)
        except (jwt.InvalidTokenError, ValueError, RecursionError):
            raise dpop.ProofInvalid("it is not a signed JWT") from None
        algorithm, jwk = header.get("alg"), header.get("jwk")
        if not has_type(header, PROOF_TYPE):
            raise dpop.ProofInvalid(f"its typ must be {PROOF_TYPE}")
        if not isinstance(algorithm, str) or algorithm not in dpop.PROOF_ALGORITHMS:
            raise dpop.ProofInvalid("its alg must be ES256, EdDSA, PS256 or RS256")
        # The proof has its own key, and can be verified by anyone. All further ways to name a key, and extensions that
        # we do not know, are refused as in every token (security J-1).
        if not (signed_tokens.REFUSED_HEADERS - {"jwk"}).isdisjoint(header) or not isinstance(jwk, dict):
            raise dpop.ProofInvalid("it must have a jwk, but no crit, jku, x5c or x5u")
        try:
            members = client_settings.parse_keys([jwk])[0]
            if members["kty"] != KEY_TYPES[algorithm] or members.get("alg", algorithm) != algorithm:
                raise dpop.ProofInvalid("its jwk does not fit its alg")
            key = load_key(members, algorithm)
        except client_settings.PrivateKeySent:
            raise dpop.ProofInvalid("its jwk contains a private or symmetric key, which is no longer secret") from None
        except (client_settings.ClientKeysInvalid, KeyUnusable):
            raise dpop.ProofInvalid("its jwk must be a public key: P-256, Ed25519, or RSA with 2048 to 8192 bits") from None
        # A different spelling for the same numbers would have another thumbprint.
        canonical = self._jws.get_algorithm_by_name(algorithm).to_jwk(key, as_dict=True)
        if any(members[name] != canonical[name] for name in ("n", "e", "x", "y") if name in canonical):
            raise dpop.ProofInvalid("its jwk must have the shortest spelling of its numbers")
        return _Signer(algorithm, key, thumbprint(members))
