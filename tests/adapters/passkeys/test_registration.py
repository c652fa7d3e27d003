"""Registrations: the accepted authenticators and keys, and the stored passkey."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import cbor2
import pytest

from adapters.crypto import WebAuthnPasskeys
from core.accounts.model.passkeys import ALGORITHMS, CHALLENGE_TTL, Ceremony, ChallengeBinding, PasskeyKind, PasskeyReason
from tests.adapters.passkeys.ceremonies import (
    HANDLE,
    NOW,
    ORIGIN,
    PARTY,
    PASSKEYS,
    REGISTER,
    account,
    change_attestation,
    change_client_data,
    new_credential,
    reason_of,
    register,
    with_response,
)
from tests.support.passkeys.authenticator import BITWARDEN, SoftAuthenticator, b64, cose_key, unb64
from tests.tables import table

pytestmark = pytest.mark.slow  # the first ceremony loads the library


@table("algorithm", ALGORITHMS)
async def test_each_algorithm_is_accepted_and_its_key_stored_canonically(algorithm: int) -> None:
    authenticator = SoftAuthenticator(origin=ORIGIN, algorithm=algorithm, step=7)
    passkey = await register(new_credential(authenticator))
    [credential] = authenticator.credentials
    assert passkey.algorithm == algorithm
    assert passkey.public_key == cbor2.dumps(cose_key(credential.key), canonical=True)
    assert (passkey.credential_id, passkey.sign_count, passkey.aaguid) == (credential.id, 7, BITWARDEN)
    assert (passkey.backup_eligible, passkey.backed_up) == (True, True)
    assert passkey.transports == ("hybrid", "internal"), "unknown ones are left out"
    assert passkey.challenge.expires_at == (NOW + CHALLENGE_TTL).replace(microsecond=535_000)
    assert credential.user_handle == HANDLE


def test_the_options_ask_for_a_discoverable_and_verified_credential() -> None:
    options = PASSKEYS.creation_options(PARTY, bytes(48), account(), HANDLE, PasskeyKind.PASSKEY, [])
    assert options["rp"] == {"id": "sso.example.com", "name": "Gatehouse"}
    assert options["user"] == {"id": b64(HANDLE), "name": "ada@example.com", "displayName": "ada@example.com"}
    assert [each["alg"] for each in options["pubKeyCredParams"]] == [-8, -7, -257]
    assert options["authenticatorSelection"] == {"residentKey": "required", "requireResidentKey": True, "userVerification": "required"}
    assert (options["attestation"], options["timeout"]) == ("none", 600_000)


@table(
    ("changes", "reason"),
    [
        ({"present": False}, PasskeyReason.PRESENCE),
        ({"verifies": False}, PasskeyReason.VERIFICATION),
        ({"backup_eligible": False}, PasskeyReason.BACKUP),  # but backed up
    ],
)
async def test_a_ceremony_without_its_user_is_refused(changes: dict[str, Any], reason: PasskeyReason) -> None:
    assert await reason_of(new_credential(SoftAuthenticator(origin=ORIGIN, **changes))) is reason


async def test_a_challenge_works_for_its_ceremony_its_holder_and_its_time() -> None:
    credential = new_credential(SoftAuthenticator(origin=ORIGIN))
    just_before = NOW + CHALLENGE_TTL - timedelta(milliseconds=1)
    await register(credential, now=just_before)
    assert await reason_of(credential, now=NOW + CHALLENGE_TTL) is PasskeyReason.EXPIRED
    other_session = new_credential(SoftAuthenticator(origin=ORIGIN), replace(REGISTER, holder=b"sessioN"))
    assert await reason_of(other_session) is PasskeyReason.CHALLENGE
    own = change_client_data(credential, lambda data: data.update(challenge=b64(bytes(48))))
    assert await reason_of(own) is PasskeyReason.CHALLENGE


async def test_challenges_of_an_older_key_of_the_vault_still_work() -> None:
    before, unknown = WebAuthnPasskeys([("old", bytes(range(32)))]), WebAuthnPasskeys([("gone", b"x" * 32)])
    authenticator = SoftAuthenticator(origin=ORIGIN)
    options = [
        passkeys.creation_options(PARTY, passkeys.new_challenge(REGISTER, NOW), account(), HANDLE, PasskeyKind.PASSKEY, [])
        for passkeys in (before, unknown)
    ]
    await register(authenticator.create(options[0]))
    assert await reason_of(authenticator.create(options[1])) is PasskeyReason.CHALLENGE


def test_a_binding_cannot_be_split_in_another_way() -> None:
    bindings = [ChallengeBinding(Ceremony.REGISTER, holder) for holder in (b"", b"r", b"register", bytes(16))]
    assert len({PASSKEYS.new_challenge(binding, NOW)[24:] for binding in bindings for _ in range(3)}) == 12


OFF_CURVE = {1: 2, 3: -7, -1: 1, -2: b"\1" * 32, -3: b"\2" * 32}
# Points with order 1, 2, 4 and 8, with either sign, and encodings with a y that is not reduced
SMALL_POINTS = [
    bytes.fromhex(text)
    for text in (
        "0100000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000080",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000080",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    )
]
KEYS = [
    (4, PasskeyReason.KEY),
    ([1, 2, 3], PasskeyReason.KEY),
    ({}, PasskeyReason.KEY),
    ({1: 2, 3: "-7"}, PasskeyReason.KEY),
    ({1: 2, 3: True, -1: 1}, PasskeyReason.KEY),
    (OFF_CURVE, PasskeyReason.KEY),
    ({**OFF_CURVE, -1: 3, -2: b"\1" * 66, -3: b"\2" * 66}, PasskeyReason.KEY),  # P-521
    ({1: 3, 3: -7, -1: b"\xff" * 256, -2: b"\1\0\1"}, PasskeyReason.KEY),  # RSA
    ({1: 3, 3: -257, -1: b"\xff" * 256, -2: b"\1"}, PasskeyReason.KEY),  # e = 1
    ({1: 3, 3: -257, -1: b"\xff" * 128, -2: b"\1\0\1"}, PasskeyReason.KEY),  # 1024 bits
    ({1: 3, 3: -257, -1: b"\xff" * 2048, -2: b"\1\0\1"}, PasskeyReason.KEY),  # 16384 bits
    ({1: 3, 3: -257, -1: b"", -2: b"\1\0\1"}, PasskeyReason.KEY),
    ({1: 3, 3: -257, -1: b"\xff" * 255 + b"\xfe", -2: b"\1\0\1"}, PasskeyReason.KEY),  # an even modulus
    *(({1: 1, 3: -8, -1: 6, -2: point}, PasskeyReason.KEY) for point in SMALL_POINTS),
    ({1: 1, 3: -8, -2: b"\1" * 32}, PasskeyReason.KEY),
    ({1: 1, 3: -8, -1: 6, -2: b"\1" * 31}, PasskeyReason.KEY),
    ({1: 1, 3: -8, -1: 7, -2: b"\1" * 57}, PasskeyReason.KEY),  # Ed448
    ({1: 2, 3: -35, -1: 2, -2: b"\1" * 48, -3: b"\2" * 48}, PasskeyReason.ALGORITHM),  # ES384
    ({1: 2, 3: -36, -1: 3, -2: b"\1" * 66, -3: b"\2" * 66}, PasskeyReason.ALGORITHM),  # ES512
]


async def test_keys_that_do_not_fit_their_algorithm_are_refused() -> None:
    """py_webauthn accepts most such keys, and then no signature verifies."""
    findings = []
    for key, reason in KEYS:
        credential = new_credential(SoftAuthenticator(origin=ORIGIN))

        def change(attestation: dict[str, Any], key: Any = key) -> None:
            data: bytes = attestation["authData"]
            attestation["authData"] = data[: 37 + 16 + 2 + 32] + cbor2.dumps(key)

        if (found := await reason_of(change_attestation(credential, change))) is not reason:
            findings.append((key, found))
    assert findings == []


@table(
    ("change", "reason"),
    [
        ({"fmt": ["none"]}, PasskeyReason.FORMAT),
        ({"attStmt": 5}, PasskeyReason.FORMAT),
        ({"more": 1}, PasskeyReason.MALFORMED),
        ({"authData": "text"}, PasskeyReason.MALFORMED),
        ({"authData": b""}, PasskeyReason.MALFORMED),
    ],
)
async def test_malformed_attestation_objects_are_refused(change: dict[str, Any], reason: PasskeyReason) -> None:
    credential = new_credential(SoftAuthenticator(origin=ORIGIN))
    assert await reason_of(change_attestation(credential, lambda attestation: attestation.update(change))) is reason


@table(
    "change",
    [
        *({"fmt": name} for name in ("packed", "tpm", "android-key", "android-safetynet", "apple", "fido-u2f", "compound", "new", "")),
        {"attStmt": {"foo": 1}},
        {"fmt": "packed", "attStmt": {"alg": -7, "sig": b"\x30\x00"}},
        {"fmt": "packed", "attStmt": {"alg": -7, "sig": b"x", "x5c": [b"no certificate"]}},
        {"fmt": "tpm", "attStmt": {"ver": "1.0", "sig": 1.5, "x5c": [[b"x" * 4000]]}},
    ],
)
async def test_an_attestation_that_nobody_asked_for_is_not_judged(change: dict[str, Any]) -> None:
    credential = new_credential(SoftAuthenticator(origin=ORIGIN))
    expected = await register(credential)
    assert await register(change_attestation(credential, lambda attestation: attestation.update(change))) == expected


async def test_the_statement_may_have_another_encoding_than_ours() -> None:
    credential = new_credential(SoftAuthenticator(origin=ORIGIN))
    raw = unb64(credential["response"]["attestationObject"])
    for statement in (b"\xbf\xff", b"\xb8\x00", b"\xa1\x63sig\x18\x01"):  # indefinite length, long lengths
        changed = raw.replace(b"\x67attStmt\xa0", b"\x67attStmt" + statement)
        assert changed != raw
        await register(with_response(credential, attestationObject=b64(changed)))
    for changed in (raw + b"\x00", b"\xa4" + raw[1:] + b"\x63fmt\x64none", b"\xbf" + raw[1:] + b"\xff", raw[:-1]):
        assert await reason_of(with_response(credential, attestationObject=b64(changed))) is PasskeyReason.MALFORMED


async def test_the_credential_id_is_that_of_the_attestation() -> None:
    credential = new_credential(SoftAuthenticator(origin=ORIGIN))
    other = b64(b"x" * 32)
    assert await reason_of({**credential, "id": other, "rawId": other}) is PasskeyReason.MALFORMED
    assert await reason_of({**credential, "rawId": other}) is PasskeyReason.MALFORMED
    assert await reason_of({**credential, "type": "password"}) is PasskeyReason.MALFORMED
    assert await reason_of(with_response(credential, attestationObject=None)) is PasskeyReason.MALFORMED


async def test_a_credential_id_has_at_least_16_bytes() -> None:
    """Ids are random, and only their holder knows them (WebAuthn section 4)."""
    for length, reason in ((1, PasskeyReason.MALFORMED), (15, PasskeyReason.MALFORMED)):
        assert await reason_of(new_credential(SoftAuthenticator(origin=ORIGIN, next_id=bytes(length)))) is reason
    await register(new_credential(SoftAuthenticator(origin=ORIGIN, next_id=bytes(16))))
