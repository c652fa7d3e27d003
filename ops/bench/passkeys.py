"""Accounts with a passkey, and their sign-ins, as a browser would send them."""

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

import cbor2
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from adapters.crypto import WebAuthnPasskeys, parse_keys
from core.accounts.model.passkeys import Ceremony, ChallengeBinding
from core.kernel.values import base64url
from ops.bench.people import add_devices
from ops.bench.service import Service
from ops.bench.wrk import Request

_RP_ID = "localhost"
_VERIFIED = b"\x1d"  # the user was present and verified, and the passkey is synced


def sign_ins(service: Service, count: int) -> Callable[[int], list[Request]]:
    """Add `count` accounts with a passkey and a known device, and return a function for the next sign-ins.

    All passkeys have the same key, which saves the service nothing: it loads the key every time.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    point = key.public_key().public_numbers()
    cose = {1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32, "big"), -3: point.y.to_bytes(32, "big")}
    accounts = [uuid4() for _ in range(count)]
    service.query(
        """
        with people as (
            insert into users (id, email, email_verified_at, first_verified_at, origin, passkey_handle, passkey_count, created_at,
                               updated_at)
            select id, 'passkey-' || id || '@bench.example', at, at, 'platform', decode(repeat(replace(id::text, '-', ''), 4), 'hex'), 1,
                   at, at
            from unnest(%(ids)s::uuid[]) id, (select now() - interval '1 day' as at) yesterday)
        insert into passkeys (id, user_id, name, credential_id, public_key, algorithm, rp_id, sign_count, aaguid, backup_eligible,
                              backed_up, created_at)
        select gen_random_uuid(), id, 'Phone', decode(replace(id::text, '-', ''), 'hex'), %(key)s, -7, %(rp_id)s, 0, gen_random_uuid(),
               true, true, now()
        from unnest(%(ids)s::uuid[]) id""",
        ids=accounts,
        key=cbor2.dumps(cose, canonical=True),
        rp_id=_RP_ID,
    )
    add_devices(service, 1)
    service.tidy()
    passkeys = WebAuthnPasskeys(parse_keys((service.directory / "encryption-keys").read_text().strip()))
    data = hashlib.sha256(_RP_ID.encode()).digest() + _VERIFIED + bytes(4)

    def next_requests(number: int) -> list[Request]:
        return [sign_in(accounts.pop().bytes) for _ in range(number)]

    def sign_in(credential_id: bytes) -> Request:
        challenge = passkeys.new_challenge(ChallengeBinding(Ceremony.SIGN_IN, b""), datetime.now(UTC))
        fields = {"type": "webauthn.get", "challenge": base64url(challenge), "origin": service.address, "crossOrigin": False}
        client_data = json.dumps(fields).encode()
        signature = key.sign(data + hashlib.sha256(client_data).digest(), ec.ECDSA(SHA256()))
        response = {
            "clientDataJSON": base64url(client_data),
            "authenticatorData": base64url(data),
            "signature": base64url(signature),
            "userHandle": base64url(credential_id * 4),
        }
        outer = {"id": base64url(credential_id), "rawId": base64url(credential_id), "type": "public-key"}
        return Request("POST", "/api/auth/passkey", body={"credential": {**outer, "response": response}})

    return next_requests
