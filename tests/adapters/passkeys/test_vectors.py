"""The 15 test vectors in Web Authentication Level 3, section 16: 10 verify, and 5 are refused for their reasons."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from adapters.crypto import WebAuthnPasskeys
from core.accounts.model.passkeys import (
    Ceremony,
    CeremonyRefused,
    ChallengeBinding,
    Passkey,
    PasskeyReason,
    RelyingParty,
    UsedChallenge,
)
from tests.adapters.passkeys.ceremonies import stored
from tests.support.passkeys.authenticator import b64
from tests.tables import table

NOW = datetime(2026, 3, 14, tzinfo=UTC)
PARTY = RelyingParty("example.org", frozenset({"https://example.org"}))
VECTORS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("vectors.json").read_text())["vectors"]
REFUSED = {
    "none-es256-crossOrigin": PasskeyReason.CROSS_ORIGIN,
    "none-es256-topOrigin": PasskeyReason.TOP_ORIGIN,
    "packed-es384": PasskeyReason.ALGORITHM,
    "packed-es512": PasskeyReason.ALGORITHM,
    "packed-ed448": PasskeyReason.ALGORITHM,
}
pytestmark = pytest.mark.slow


class AnyChallenge(WebAuthnPasskeys):
    """The vectors' challenges are not ours."""

    def _check_challenge(self, challenge: bytes, binding: ChallengeBinding, now: datetime) -> UsedChallenge:
        return UsedChallenge(challenge, now)


PASSKEYS = AnyChallenge([("test", bytes(32))])
BINDINGS = {ceremony: ChallengeBinding(ceremony, b"") for ceremony in Ceremony}


def to_json(vector: dict[str, str], credential_id: str, *names: str) -> dict[str, Any]:
    id_ = b64(bytes.fromhex(credential_id))
    return {"id": id_, "rawId": id_, "type": "public-key", "response": {name: b64(bytes.fromhex(vector[name])) for name in names}}


async def registration_of(vector: dict[str, Any]) -> Passkey:
    credential = to_json(vector["registration"], vector["registration"]["credential_id"], "clientDataJSON", "attestationObject")
    binding = BINDINGS[Ceremony.REGISTER]
    new = await PASSKEYS.verify_registration(credential, PARTY, binding, NOW, verification=False)  # several did not verify the user
    return stored(new, rp_id=PARTY.id)


async def check_sign_in(vector: dict[str, Any], known: Passkey) -> None:
    names = ("clientDataJSON", "authenticatorData", "signature")
    presented = PASSKEYS.read_assertion(to_json(vector["authentication"], vector["registration"]["credential_id"], *names))
    seen = await PASSKEYS.verify_assertion(presented, known, PARTY, BINDINGS[Ceremony.SIGN_IN], NOW, verification=False)
    assert seen.backup_eligible == known.backup_eligible


@table("vector", VECTORS, ids=lambda vector: vector["name"])
async def test_each_vector(vector: dict[str, Any]) -> None:
    reason = REFUSED.get(vector["name"])
    if reason is None:
        await check_sign_in(vector, await registration_of(vector))
        return
    with pytest.raises(CeremonyRefused) as refused:
        await registration_of(vector)
    assert refused.value.reason is reason


@table("name", ["none-es256-crossOrigin", "none-es256-topOrigin"])
async def test_sign_ins_in_frames_are_refused(name: str) -> None:
    [vector] = [vector for vector in VECTORS if vector["name"] == name]
    [other] = [vector for vector in VECTORS if vector["name"] == "none-es256"]
    with pytest.raises(CeremonyRefused) as refused:
        await check_sign_in(vector, await registration_of(other))
    assert refused.value.reason is REFUSED[name]


def test_all_vectors_are_here() -> None:
    assert len(VECTORS) == 15
    assert len(REFUSED) == 5
