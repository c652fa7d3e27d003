"""A software authenticator with its browser: it answers options as `navigator.credentials` does, and can be made to answer wrongly."""

import base64
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import cbor2
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

BITWARDEN: Final = UUID("d548826e-79b4-db40-a3d8-11116f7e8349")
UP, UV, BE, BS, AT, ED = 1, 4, 8, 16, 64, 128
PrivateKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey
Change = Callable[[dict[str, Any]], None]


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass(slots=True)
class Credential:
    """A credential in the authenticator."""

    id: bytes
    key: PrivateKey
    rp_id: str
    user_handle: bytes
    sign_count: int = 0


@dataclass(slots=True, kw_only=True)
class SoftAuthenticator:
    """An authenticator in a browser at a page with this origin. Its flags are for its next answer."""

    origin: str
    algorithm: int = -7
    verifies: bool = True
    present: bool = True
    backup_eligible: bool = True
    backed_up: bool = True
    step: int = 0  # by which the counter grows; synced passkeys have none
    aaguid: UUID = BITWARDEN
    client_data: Mapping[str, Any] = field(default_factory=dict)  # members that replace members in clientDataJSON
    extensions: bytes = b""  # in its answers, as CBOR
    credentials: list[Credential] = field(default_factory=list)
    next_id: bytes | None = None  # for the next credential, instead of a random id

    def create(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the new credential as `RegistrationResponseJSON`."""
        algorithms = [each["alg"] for each in options["pubKeyCredParams"]]
        assert self.algorithm in algorithms, f"{self.algorithm} is not in {algorithms}"
        known = {unb64(each["id"]) for each in options["excludeCredentials"]}
        assert known.isdisjoint(each.id for each in self.credentials), "InvalidStateError"
        credential = Credential(self.next_id or os.urandom(32), self.new_key(), options["rp"]["id"], unb64(options["user"]["id"]))
        self.credentials.append(credential)
        attested = self.aaguid.bytes + len(credential.id).to_bytes(2, "big") + credential.id + cbor2.dumps(cose_key(credential.key))
        attestation = {"fmt": "none", "attStmt": {}, "authData": self._authenticator_data(credential, AT) + attested}
        return {
            "id": b64(credential.id),
            "rawId": b64(credential.id),
            "type": "public-key",
            "authenticatorAttachment": "platform",
            "clientExtensionResults": {"credProps": {"rk": True}},
            "response": {
                "clientDataJSON": b64(self._client_data("webauthn.create", options["challenge"])),
                "attestationObject": b64(cbor2.dumps(attestation)),
                "transports": ["internal", "hybrid", "cable"],
            },
        }

    def get(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the newest credential for these options as `AuthenticationResponseJSON`."""
        allowed = [unb64(each["id"]) for each in options["allowCredentials"]]
        fitting = [each for each in self.credentials if each.rp_id == options["rpId"] and (not allowed or each.id in allowed)]
        assert fitting, "NotAllowedError"
        credential = fitting[-1]
        client_data = self._client_data("webauthn.get", options["challenge"])
        data = self._authenticator_data(credential, ED if self.extensions else 0) + self.extensions
        response = {
            "clientDataJSON": b64(client_data),
            "authenticatorData": b64(data),
            "signature": b64(sign(credential.key, data + hashlib.sha256(client_data).digest())),
            "userHandle": b64(credential.user_handle),
        }
        outer = {"id": b64(credential.id), "rawId": b64(credential.id), "type": "public-key"}
        return {**outer, "authenticatorAttachment": "platform", "clientExtensionResults": {}, "response": response}

    def new_key(self) -> PrivateKey:
        """Return a key for the algorithm."""
        if self.algorithm == -8:
            return ed25519.Ed25519PrivateKey.generate()
        if self.algorithm == -257:
            return rsa.generate_private_key(65537, 2048)
        return ec.generate_private_key(ec.SECP256R1())

    def _authenticator_data(self, credential: Credential, others: int = 0) -> bytes:
        flags = self.present * UP | self.verifies * UV | self.backup_eligible * BE | self.backed_up * BS | others
        credential.sign_count += self.step
        return hashlib.sha256(credential.rp_id.encode()).digest() + bytes((flags,)) + credential.sign_count.to_bytes(4, "big")

    def _client_data(self, kind: str, challenge: str) -> bytes:
        data = {"type": kind, "challenge": challenge, "origin": self.origin, "crossOrigin": False, **self.client_data}
        return json.dumps({name: value for name, value in data.items() if value is not None}).encode()


def cose_key(key: PrivateKey) -> dict[int, Any]:
    """Return the public key (RFC 9053)."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return {1: 1, 3: -8, -1: 6, -2: key.public_key().public_bytes_raw()}
    if isinstance(key, rsa.RSAPrivateKey):
        numbers = key.public_key().public_numbers()
        return {1: 3, 3: -257, -1: numbers.n.to_bytes(256, "big"), -2: numbers.e.to_bytes(3, "big")}
    point = key.public_key().public_numbers()
    return {1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32, "big"), -3: point.y.to_bytes(32, "big")}


def sign(key: PrivateKey, data: bytes) -> bytes:
    """Return an assertion's signature."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(data)
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(data, padding.PKCS1v15(), SHA256())
    return key.sign(data, ec.ECDSA(SHA256()))
