"""Passkey ceremonies (WebAuthn Level 3). Our own checks come before py_webauthn's checks (docs/adr/0039)."""

import hashlib
import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from io import BytesIO
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

import cbor2
import trio
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from adapters.crypto import cose_keys, passkey_json
from core.accounts.model import passkeys
from core.accounts.model.accounts import Account
from core.kernel.display import PRODUCT

_NONCE, _EXPIRY, _MAC = 16, 8, 24  # the bytes in a challenge
_LABEL: Final = b"gatehouse passkey challenge"
_TIMEOUT: Final = int(passkeys.CHALLENGE_TTL / timedelta(milliseconds=1))
# Chromium creates a credential without user verification only if it need not be discoverable.
_SELECTIONS: Final = MappingProxyType(
    {
        passkeys.PasskeyKind.PASSKEY: {"residentKey": "required", "requireResidentKey": True, "userVerification": "required"},
        passkeys.PasskeyKind.SECURITY_KEY: {"residentKey": "discouraged", "requireResidentKey": False, "userVerification": "preferred"},
    }
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Flags in the authenticator data (WebAuthn section 6.1)
_UP, _UV, _BE, _BS, _AT, _ED = 1, 4, 8, 16, 64, 128
_MAP_OF_THREE: Final = 0xA3  # the first byte of a CBOR map with three pairs (RFC 8949 section 3.1)
_PLAIN: Final = 37  # bytes: the RP ID's hash, the flags and the sign counter


class WebAuthnPasskeys:
    """Implements `ports.crypto.Passkeys`.

    A challenge has 16 random bytes, its expiry in milliseconds, and an HMAC-SHA256 over bytes, expiry and binding. So
    no challenge is stored before it is used (docs/adr/0040).
    """

    def __init__(self, keys: Sequence[tuple[str, bytes]]) -> None:
        """`keys` belong to the vault: the first key signs challenges, and all keys verify."""
        self._keys = [HKDF(hashes.SHA256(), 32, salt=None, info=_LABEL).derive(key) for _, key in keys]

    def new_challenge(self, binding: passkeys.ChallengeBinding, now: datetime) -> bytes:
        body = os.urandom(_NONCE) + ((now + passkeys.CHALLENGE_TTL - _EPOCH) // timedelta(milliseconds=1)).to_bytes(_EXPIRY, "big")
        return body + _mac(self._keys[0], body, binding)

    def creation_options(
        self,
        party: passkeys.RelyingParty,
        challenge: bytes,
        account: Account,
        handle: bytes,
        kind: passkeys.PasskeyKind,
        exclude: Sequence[passkeys.Passkey],
        *,
        conditional: bool = False,
    ) -> dict[str, Any]:
        return {
            "rp": {"id": party.id, "name": PRODUCT},
            "user": {"id": passkey_json.encode(handle), "name": account.email, "displayName": account.profile.name or account.email},
            "challenge": passkey_json.encode(challenge),
            "pubKeyCredParams": [{"type": "public-key", "alg": algorithm} for algorithm in passkeys.ALGORITHMS],
            "timeout": _TIMEOUT,
            "excludeCredentials": [_descriptor(passkey) for passkey in exclude],
            "authenticatorSelection": _SELECTIONS[kind] | ({"userVerification": "preferred"} if conditional else {}),
            "attestation": "none",
            "extensions": {"credProps": True},
        }

    async def verify_registration(
        self,
        credential: passkeys.Json,
        party: passkeys.RelyingParty,
        binding: passkeys.ChallengeBinding,
        now: datetime,
        *,
        verification: bool = True,
        presence: bool = True,
    ) -> passkeys.NewPasskey:
        await _load_library()
        credential_id, response = passkey_json.read_credential(credential)
        client_data = passkey_json.decode(response.get("clientDataJSON"), passkey_json.MAX_CLIENT_DATA)
        challenge, used, origin = self._check_client_data(client_data, "webauthn.create", party, binding, now)
        attestation = passkey_json.decode(response.get("attestationObject"), passkey_json.MAX_ATTESTATION_OBJECT)
        raw = _authenticator_data_of(attestation)
        data = _read_authenticator_data(raw, attested=True)
        _check_flags(data, party, verification=verification, presence=presence)
        if data.credential_id != credential_id or len(credential_id) < passkeys.MIN_CREDENTIAL_ID:
            raise passkeys.CeremonyRefused(passkeys.PasskeyReason.MALFORMED)
        public_key, algorithm = cose_keys.check(data.public_key)
        _verify(credential_id, client_data, raw, challenge, origin, party)
        return passkeys.NewPasskey(
            credential_id=credential_id,
            public_key=public_key,
            algorithm=algorithm,
            sign_count=data.sign_count,
            aaguid=data.aaguid,
            backup_eligible=data.has(_BE),
            backed_up=data.has(_BS),
            user_verified=data.has(_UV),
            transports=_transports(response.get("transports")),
            challenge=used,
        )

    def request_options(
        self, party: passkeys.RelyingParty, challenge: bytes, allow: Sequence[passkeys.Passkey] = (), *, verification: bool = True
    ) -> dict[str, Any]:
        return {
            "challenge": passkey_json.encode(challenge),
            "timeout": _TIMEOUT,
            "rpId": party.id,
            "allowCredentials": [_descriptor(passkey) for passkey in allow],
            "userVerification": "required" if verification else "preferred",
        }

    def read_assertion(self, credential: passkeys.Json) -> passkeys.PresentedAssertion:
        credential_id, response = passkey_json.read_credential(credential)
        # Safari, some keys and our own script send zero bytes if the options named the credential.
        handle = response.get("userHandle")
        return passkeys.PresentedAssertion(
            credential_id,
            passkey_json.decode(response.get("clientDataJSON"), passkey_json.MAX_CLIENT_DATA),
            passkey_json.decode(response.get("authenticatorData"), passkey_json.MAX_AUTHENTICATOR_DATA),
            passkey_json.decode(response.get("signature"), passkey_json.MAX_SIGNATURE),
            None if handle in (None, "") else passkey_json.decode(handle, passkeys.HANDLE_BYTES),
        )

    async def verify_assertion(
        self,
        presented: passkeys.PresentedAssertion,
        known: passkeys.Passkey,
        party: passkeys.RelyingParty,
        binding: passkeys.ChallengeBinding,
        now: datetime,
        *,
        verification: bool = True,
    ) -> passkeys.VerifiedAssertion:
        _, used, _ = self._check_client_data(presented.client_data, "webauthn.get", party, binding, now)
        data = _read_plain_data(presented.authenticator_data)
        if data is None:
            await _load_library()
            data = _read_authenticator_data(presented.authenticator_data, attested=False)
        _check_flags(data, party, verification=verification)
        # WebAuthn section 7.2, step 21. All steps before it are checked above.
        signed = presented.authenticator_data + hashlib.sha256(presented.client_data).digest()
        cose_keys.verify(known.public_key, presented.signature, signed)
        return passkeys.VerifiedAssertion(
            sign_count=data.sign_count,
            backup_eligible=data.has(_BE),
            backed_up=data.has(_BS),
            user_verified=data.has(_UV),
            challenge=used,
        )

    def _check_client_data(
        self, raw: bytes, kind: str, party: passkeys.RelyingParty, binding: passkeys.ChallengeBinding, now: datetime
    ) -> tuple[bytes, passkeys.UsedChallenge, str]:
        """Return the challenge, and the origin. Raises: CeremonyRefused."""
        client_data = passkey_json.read_client_data(raw)
        if client_data.get("type") != kind:
            raise passkeys.CeremonyRefused(passkeys.PasskeyReason.TYPE)
        challenge = passkey_json.decode(client_data.get("challenge"), passkey_json.MAX_CLIENT_DATA)
        used = self._check_challenge(challenge, binding, now)
        origin = client_data.get("origin")
        if not isinstance(origin, str) or origin not in party.origins:
            raise passkeys.CeremonyRefused(passkeys.PasskeyReason.ORIGIN)
        # py_webauthn accepts topOrigin and crossOrigin. Our pages run no ceremonies in frames, so another site's page
        # began such a ceremony.
        if "topOrigin" in client_data:
            raise passkeys.CeremonyRefused(passkeys.PasskeyReason.TOP_ORIGIN)
        if client_data.get("crossOrigin", False) is not False:
            raise passkeys.CeremonyRefused(passkeys.PasskeyReason.CROSS_ORIGIN)
        token_binding = client_data.get("tokenBinding")
        if isinstance(token_binding, dict) and "status" not in token_binding:
            raise passkeys.CeremonyRefused(passkeys.PasskeyReason.MALFORMED)
        return challenge, used, origin

    def _check_challenge(self, challenge: bytes, binding: passkeys.ChallengeBinding, now: datetime) -> passkeys.UsedChallenge:
        """Raises: CeremonyRefused."""
        body, mac = challenge[: _NONCE + _EXPIRY], challenge[_NONCE + _EXPIRY :]
        if not any(hmac.compare_digest(mac, _mac(key, body, binding)) for key in self._keys):
            raise passkeys.CeremonyRefused(passkeys.PasskeyReason.CHALLENGE)
        expires_at = _EPOCH + timedelta(milliseconds=int.from_bytes(body[_NONCE:], "big"))
        if expires_at <= now:
            raise passkeys.CeremonyRefused(passkeys.PasskeyReason.EXPIRED)
        return passkeys.UsedChallenge(hashlib.sha256(challenge).digest(), expires_at)


@dataclass(frozen=True, slots=True)
class _AuthenticatorData:
    """The authenticator data in a ceremony. Only a registration has the last three fields."""

    rp_id_hash: bytes
    flags: int
    sign_count: int
    aaguid: UUID = passkeys.NO_AAGUID
    credential_id: bytes = b""
    public_key: bytes = b""

    def has(self, flag: int) -> bool:
        return self.flags & flag != 0


def _mac(key: bytes, body: bytes, binding: passkeys.ChallengeBinding) -> bytes:
    ceremony = binding.ceremony.value.encode()
    return hmac.digest(key, body + bytes((len(ceremony),)) + ceremony + binding.holder, "sha256")[:_MAC]


def _descriptor(passkey: passkeys.Passkey) -> dict[str, Any]:
    return {"type": "public-key", "id": passkey_json.encode(passkey.credential_id), "transports": list(passkey.transports)}


def _transports(reported: object) -> tuple[str, ...]:
    """Return which reported transports are known. Transports only help a browser to find the authenticator."""
    known = [name for name in reported if isinstance(name, str) and name in passkeys.TRANSPORTS] if isinstance(reported, list) else []
    return tuple(sorted(set(known)))


def _authenticator_data_of(attestation: bytes) -> bytes:
    """Return the authenticator data in an attestation object.

    We ask for no attestation. Browsers and password managers send one anyway, and its statement is not judged.
    """
    stream = BytesIO(attestation)
    try:
        parsed = cbor2.CBORDecoder(stream).decode()
    except (cbor2.CBORDecodeError, ValueError, TypeError, RecursionError):
        raise passkeys.CeremonyRefused(passkeys.PasskeyReason.MALFORMED) from None
    is_exact = attestation[0] == _MAP_OF_THREE and stream.tell() == len(attestation)  # no name twice, and nothing after it
    if not isinstance(parsed, dict) or parsed.keys() != {"fmt", "attStmt", "authData"} or not is_exact:
        raise passkeys.CeremonyRefused(passkeys.PasskeyReason.MALFORMED)
    if not isinstance(parsed["fmt"], str) or not isinstance(parsed["attStmt"], dict):
        raise passkeys.CeremonyRefused(passkeys.PasskeyReason.FORMAT)
    return parsed["authData"] if isinstance(parsed["authData"], bytes) else b""


def _read_plain_data(raw: bytes) -> _AuthenticatorData | None:
    """Return the authenticator data, or None if it has more than the fields that all have (WebAuthn section 6.1), or is malformed."""
    flags = raw[32] if len(raw) == _PLAIN else _AT
    return None if flags & (_AT | _ED) else _AuthenticatorData(raw[:32], flags, int.from_bytes(raw[33:], "big"))


def _read_authenticator_data(raw: bytes, *, attested: bool) -> _AuthenticatorData:
    from webauthn.helpers import parse_authenticator_data

    try:
        data = parse_authenticator_data(raw)
    except Exception:
        raise passkeys.CeremonyRefused(passkeys.PasskeyReason.MALFORMED) from None
    found, flags = data.attested_credential_data, raw[32]
    if (found is not None) != attested:
        raise passkeys.CeremonyRefused(passkeys.PasskeyReason.MALFORMED)
    if found is None:
        return _AuthenticatorData(data.rp_id_hash, flags, data.sign_count)
    if len(found.aaguid) != 16:
        raise passkeys.CeremonyRefused(passkeys.PasskeyReason.MALFORMED)
    aaguid, public_key = UUID(bytes=found.aaguid), found.credential_public_key
    return _AuthenticatorData(data.rp_id_hash, flags, data.sign_count, aaguid, found.credential_id, public_key)


def _check_flags(data: _AuthenticatorData, party: passkeys.RelyingParty, *, verification: bool, presence: bool = True) -> None:
    """Check the RP ID and the flags. Raises: CeremonyRefused."""
    if not hmac.compare_digest(data.rp_id_hash, hashlib.sha256(party.id.encode()).digest()):
        raise passkeys.CeremonyRefused(passkeys.PasskeyReason.RP_ID)
    if presence and not data.has(_UP):
        raise passkeys.CeremonyRefused(passkeys.PasskeyReason.PRESENCE)
    if verification and not data.has(_UV):
        raise passkeys.CeremonyRefused(passkeys.PasskeyReason.VERIFICATION)
    if data.has(_BS) and not data.has(_BE):
        raise passkeys.CeremonyRefused(passkeys.PasskeyReason.BACKUP)


def _verify(
    credential_id: bytes, client_data: bytes, authenticator_data: bytes, challenge: bytes, origin: str, party: passkeys.RelyingParty
) -> None:
    """Let the library check the registration, without the statement of the attestation. Raises: CeremonyRefused."""
    from webauthn import verify_registration_response
    from webauthn.helpers.cose import COSEAlgorithmIdentifier
    from webauthn.helpers.structs import AuthenticatorAttestationResponse, RegistrationCredential

    attestation = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": authenticator_data})
    response = AuthenticatorAttestationResponse(client_data_json=client_data, attestation_object=attestation)
    try:
        verify_registration_response(
            credential=RegistrationCredential(id=passkey_json.encode(credential_id), raw_id=credential_id, response=response),
            expected_challenge=challenge,
            expected_rp_id=party.id,
            expected_origin=origin,
            require_user_presence=False,  # `_check_flags` asks for it
            supported_pub_key_algs=[COSEAlgorithmIdentifier(algorithm) for algorithm in passkeys.ALGORITHMS],
        )
    except Exception:
        raise passkeys.CeremonyRefused(passkeys.PasskeyReason.MALFORMED) from None


@cache
def _import_library() -> None:
    import webauthn  # noqa: F401


async def _load_library() -> None:
    """Load py_webauthn at the first ceremony, in a thread: it takes half a second and 8 MiB."""
    if not _import_library.cache_info().currsize:
        await trio.to_thread.run_sync(_import_library)
