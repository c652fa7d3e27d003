"""Answers to a sign-in: the checks, and that every changed answer is refused."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import cbor2
import pytest

from core.accounts.model.passkeys import ALGORITHMS, CHALLENGE_TTL, CeremonyRefused, PasskeyReason, RelyingParty, check_use
from tests.adapters.passkeys.ceremonies import (
    NOW,
    ORIGIN,
    PARTY,
    PASSKEYS,
    REGISTER,
    SIGN_IN,
    assertion,
    change_client_data,
    refusal_of,
    registered,
    verify,
    with_response,
)
from tests.support.passkeys.authenticator import b64, unb64
from tests.tables import table

pytestmark = pytest.mark.slow
PARTS = ("clientDataJSON", "authenticatorData", "signature")


@table("algorithm", ALGORITHMS)
async def test_each_algorithm_signs_in(algorithm: int) -> None:
    authenticator, passkey = await registered(algorithm=algorithm, step=1)
    seen = await verify(assertion(authenticator), passkey)
    assert (seen.sign_count, seen.backup_eligible, seen.backed_up) == (2, True, True)
    assert seen.challenge.expires_at == (NOW + CHALLENGE_TTL).replace(microsecond=535_000)


@table(
    ("changes", "reason"),
    [
        ({"present": False}, PasskeyReason.PRESENCE),
        ({"verifies": False}, PasskeyReason.VERIFICATION),
        ({"backup_eligible": False}, PasskeyReason.BACKUP),  # but backed up
        ({"origin": "https://evil.example"}, PasskeyReason.ORIGIN),
        ({"client_data": {"crossOrigin": True}}, PasskeyReason.CROSS_ORIGIN),
        ({"client_data": {"topOrigin": ORIGIN}}, PasskeyReason.TOP_ORIGIN),
        ({"client_data": {"type": "webauthn.create"}}, PasskeyReason.TYPE),
        ({"client_data": {"tokenBinding": {"id": "x"}}}, PasskeyReason.MALFORMED),
    ],
)
async def test_other_ceremonies_are_refused(changes: dict[str, Any], reason: PasskeyReason) -> None:
    authenticator, passkey = await registered()
    for name, value in changes.items():
        setattr(authenticator, name, value)
    assert await refusal_of(assertion(authenticator), passkey) is reason


async def test_extensions_of_an_answer_are_read() -> None:
    authenticator, passkey = await registered()
    authenticator.extensions = cbor2.dumps({"uvm": [[2, 4, 2]]})
    assert (await verify(assertion(authenticator), passkey)).user_verified
    for malformed in (b"\xff", authenticator.extensions + b"\0", authenticator.extensions[:-1]):
        authenticator.extensions = malformed
        assert await refusal_of(assertion(authenticator), passkey) is PasskeyReason.MALFORMED


async def test_the_challenge_is_of_this_ceremony_client_and_time() -> None:
    authenticator, passkey = await registered()
    assert await refusal_of(assertion(authenticator, REGISTER), passkey) is PasskeyReason.CHALLENGE
    assert await refusal_of(assertion(authenticator, replace(SIGN_IN, holder=b"another client")), passkey) is PasskeyReason.CHALLENGE
    credential = assertion(authenticator)
    await verify(credential, passkey, now=NOW + CHALLENGE_TTL - timedelta(milliseconds=1))
    assert await refusal_of(credential, passkey, now=NOW + CHALLENGE_TTL) is PasskeyReason.EXPIRED


async def test_another_rp_id_or_key_is_refused() -> None:
    authenticator, passkey = await registered()
    credential = assertion(authenticator)
    party = RelyingParty("example.com", PARTY.origins)
    assert await refusal_of(credential, passkey, party) is PasskeyReason.RP_ID
    _, other = await registered()
    assert await refusal_of(credential, other) is PasskeyReason.SIGNATURE


async def test_every_flipped_bit_is_refused() -> None:
    authenticator, passkey = await registered()
    credential = assertion(authenticator)
    accepted = []
    for name in PARTS:
        original = unb64(credential["response"][name])
        for position in range(len(original)):
            changed = bytearray(original)
            changed[position] ^= 1 << position % 8
            try:
                await verify(with_response(credential, **{name: b64(bytes(changed))}), passkey)
            except CeremonyRefused:
                continue
            accepted.append((name, position))
    assert accepted == []


async def test_every_part_missing_longer_or_of_another_type_is_refused() -> None:
    authenticator, passkey = await registered()
    credential = assertion(authenticator)
    for name in PARTS:
        text = credential["response"][name]
        others: list[Any] = [None, True, 0, "", "x", [], {}, text + "AAAA", text[4:], "A" * 30_000, text + "="]
        for value in others:
            await refusal_of(with_response(credential, **{name: value}), passkey)
    for name in ("type", "challenge", "origin"):
        await refusal_of(change_client_data(credential, lambda data, name=name: data.pop(name)), passkey)  # type: ignore[misc]
    handles: list[Any] = [True, 0, "!", "A" * 90, "=", " ", [], {}]
    for handle in handles:
        await refusal_of(with_response(credential, userHandle=handle), passkey)
    for none in (None, ""):
        assert PASSKEYS.read_assertion(with_response(credential, userHandle=none)).user_handle is None


@table(
    ("known", "seen", "reason"),
    [
        ({"backup_eligible": True}, {"backup_eligible": False}, PasskeyReason.BACKUP),
        ({"backup_eligible": False}, {"backup_eligible": True}, PasskeyReason.BACKUP),
        ({"backup_eligible": False, "sign_count": 5}, {"backup_eligible": False, "sign_count": 5}, PasskeyReason.COUNTER),
        ({"backup_eligible": False, "sign_count": 5}, {"backup_eligible": False, "sign_count": 0}, PasskeyReason.COUNTER),
        ({"backup_eligible": False, "sign_count": 5}, {"backup_eligible": False, "sign_count": 6}, None),
        ({"backup_eligible": False, "sign_count": 0}, {"backup_eligible": False, "sign_count": 0}, None),
        ({"backup_eligible": True, "sign_count": 5}, {"backup_eligible": True, "sign_count": 4}, None),  # devices count apart
    ],
)
async def test_a_passkey_stays_what_it_is(known: dict[str, Any], seen: dict[str, Any], reason: PasskeyReason | None) -> None:
    authenticator, passkey = await registered()
    answer = replace(await verify(assertion(authenticator), passkey), **seen)
    if reason is None:
        check_use(replace(passkey, **known), answer)
        return
    with pytest.raises(CeremonyRefused) as refused:
        check_use(replace(passkey, **known), answer)
    assert refused.value.reason is reason
