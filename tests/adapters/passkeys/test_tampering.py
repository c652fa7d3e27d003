"""Tampering with every part of a ceremony: all tampering is refused, and nothing but CeremonyRefused leaves the adapter."""

import json
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from core.accounts.model.passkeys import CeremonyRefused
from tests.adapters.passkeys.ceremonies import ORIGIN, change_client_data, new_credential, reason_of, register, with_response
from tests.support.passkeys.authenticator import SoftAuthenticator, b64, unb64

pytestmark = pytest.mark.slow
VALUES: list[Any] = [None, True, 0, "", "x", [], {}, "A" * 30_000, "é", "AB==", "A", "\x00"]
CREDENTIAL = new_credential(SoftAuthenticator(origin=ORIGIN))
REPEATABLE = settings(max_examples=60)


async def test_every_member_missing_or_of_another_type_is_refused() -> None:
    credential = new_credential(SoftAuthenticator(origin=ORIGIN))
    for value in VALUES:
        for name in ("id", "rawId", "type", "response"):
            await reason_of({**credential, name: value})
        for name in ("clientDataJSON", "attestationObject"):
            await reason_of(with_response(credential, **{name: value}))
        for name in ("type", "challenge", "origin"):
            await reason_of(change_client_data(credential, lambda data, name=name, value=value: data.update({name: value})))  # type: ignore[misc]
    for name in ("id", "rawId", "type", "response"):
        await reason_of({key: value for key, value in credential.items() if key != name})


async def test_a_doubled_member_of_the_client_data_is_refused() -> None:
    credential = new_credential(SoftAuthenticator(origin=ORIGIN))
    raw = unb64(credential["response"]["clientDataJSON"])
    for name in json.loads(raw):
        doubled = raw[:-1] + f', "{name}": {json.dumps(json.loads(raw)[name])}}}'.encode()
        await reason_of(with_response(credential, clientDataJSON=b64(doubled)))
    for other in (b"\xff\xfe{}", b"[" * 4000, b"[]", b'"text"', raw + b" x", b'{"a":' * 9 + b"1" + b"}" * 9, raw[:-1] + b', "n": NaN}'):
        await reason_of(with_response(credential, clientDataJSON=b64(other)))


async def test_another_spelling_of_base64_is_refused() -> None:
    credential = new_credential(SoftAuthenticator(origin=ORIGIN))
    text = credential["response"]["attestationObject"]
    for other in (text + "=", text + "\n", " " + text, text[:9] + "!" + text[9:], text.replace("-", "+").replace("_", "/") + "+"):
        await reason_of(with_response(credential, attestationObject=other))
    assert b64(unb64(credential["id"])) == credential["id"]
    await reason_of({**credential, "id": credential["id"] + "=", "rawId": credential["id"] + "="})


async def test_each_flipped_bit_that_matters_is_refused() -> None:
    """In the attestation `none`, nothing signs the counter, the AAGUID and the key. A browser that lies about these fools its own user."""
    credential = new_credential(SoftAuthenticator(origin=ORIGIN, backed_up=False))
    attestation = unb64(credential["response"]["attestationObject"])
    start = attestation.index(b"authData") + 8 + 2
    format_ = attestation.index(b"none")  # not judged
    before = [position for position in range(start) if position not in range(format_, format_ + 4)]
    regions = {"before the data": before, "the RP ID": range(start, start + 32), "the id": range(start + 53, start + 87)}
    accepted = []
    for region, positions in regions.items():
        for position in positions:
            changed = bytearray(attestation)
            changed[position] ^= 1 << position % 8
            try:
                await register(with_response(credential, attestationObject=b64(bytes(changed))))
            except CeremonyRefused:
                continue
            accepted.append((region, position))
    assert accepted == []


@given(st.binary(max_size=400), st.binary(max_size=200))
@REPEATABLE
def test_random_bytes_raise_nothing_else(attestation: bytes, tail: bytes) -> None:
    original = unb64(CREDENTIAL["response"]["attestationObject"])
    for changed in (attestation, original[: len(attestation)] + attestation, original + tail + b"x"):
        trio.run(reason_of, with_response(CREDENTIAL, attestationObject=b64(changed)))
