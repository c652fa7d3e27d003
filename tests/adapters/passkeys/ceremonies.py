"""Ceremonies for tests: options, the software authenticator's answers, and how they are spoiled."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import cbor2
import pytest

from adapters.crypto import WebAuthnPasskeys
from core.accounts.model.accounts import Account, new_account
from core.accounts.model.passkeys import (
    Ceremony,
    CeremonyRefused,
    ChallengeBinding,
    NewPasskey,
    Passkey,
    PasskeyKind,
    PasskeyReason,
    RelyingParty,
    VerifiedAssertion,
)
from core.kernel.values import Email
from tests.support.passkeys.authenticator import SoftAuthenticator, b64, unb64

NOW: Final = datetime(2026, 3, 14, 15, 9, 26, 535897, tzinfo=UTC)
ORIGIN: Final = "https://sso.example.com"
PARTY: Final = RelyingParty("sso.example.com", frozenset({ORIGIN}))
REGISTER: Final = ChallengeBinding(Ceremony.REGISTER, b"session")
PASSKEYS: Final = WebAuthnPasskeys([("new", bytes(32)), ("old", bytes(range(32)))])
SIGN_IN: Final = ChallengeBinding(Ceremony.SIGN_IN, b"")
HANDLE: Final = bytes(range(64))


def account() -> Account:
    return new_account(Email("ada@example.com"), None, NOW, verified=True)


def new_credential(authenticator: SoftAuthenticator, binding: ChallengeBinding = REGISTER) -> dict[str, Any]:
    """Return the authenticator's answer to the registration options."""
    challenge = PASSKEYS.new_challenge(binding, NOW)
    return authenticator.create(PASSKEYS.creation_options(PARTY, challenge, account(), HANDLE, PasskeyKind.PASSKEY, []))


async def register(credential: Any, party: RelyingParty = PARTY, now: datetime = NOW, binding: ChallengeBinding = REGISTER) -> NewPasskey:
    return await PASSKEYS.verify_registration(credential, party, binding, now)


async def reason_of(credential: Any, party: RelyingParty = PARTY, now: datetime = NOW) -> PasskeyReason:
    """Return why a registration is refused. Nothing but CeremonyRefused leaves the adapter."""
    with pytest.raises(CeremonyRefused) as refused:
        await register(credential, party, now)
    return refused.value.reason


def change_client_data(credential: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Return the credential with changed client data, which no authenticator signs in an attestation `none`."""
    data = json.loads(unb64(credential["response"]["clientDataJSON"]))
    change(data)
    return with_response(credential, clientDataJSON=b64(json.dumps(data).encode()))


def change_attestation(credential: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Return the credential with a changed attestation object."""
    attestation = cbor2.loads(unb64(credential["response"]["attestationObject"]))
    change(attestation)
    return with_response(credential, attestationObject=b64(cbor2.dumps(attestation)))


def with_response(credential: dict[str, Any], **members: Any) -> dict[str, Any]:
    """Return the credential with changed members in its response. None removes a member."""
    response = {**credential["response"], **members}
    return {**credential, "response": {name: value for name, value in response.items() if value is not None}}


def stored(new: NewPasskey, **changes: Any) -> Passkey:
    """Return a registered passkey as it is stored."""
    values: dict[str, Any] = {
        **{"id": UUID(int=1), "user_id": UUID(int=2), "kind": PasskeyKind.PASSKEY, "name": "Key", "rp_id": PARTY.id, "created_at": NOW},
        **{name: getattr(new, name) for name in ("credential_id", "public_key", "algorithm", "sign_count", "aaguid")},
        **{name: getattr(new, name) for name in ("backup_eligible", "backed_up", "user_verified", "transports")},
    }
    return Passkey(**{**values, **changes})


def assertion(authenticator: SoftAuthenticator, binding: ChallengeBinding = SIGN_IN) -> dict[str, Any]:
    """Return the authenticator's answer to the sign-in options."""
    return authenticator.get(PASSKEYS.request_options(PARTY, PASSKEYS.new_challenge(binding, NOW)))


async def verify(credential: Any, known: Passkey, party: RelyingParty = PARTY, now: datetime = NOW) -> VerifiedAssertion:
    return await PASSKEYS.verify_assertion(PASSKEYS.read_assertion(credential), known, party, SIGN_IN, now)


async def refusal_of(credential: Any, known: Passkey, party: RelyingParty = PARTY, now: datetime = NOW) -> PasskeyReason:
    """Return why the answer to a sign-in is refused."""
    with pytest.raises(CeremonyRefused) as refused:
        await verify(credential, known, party, now)
    return refused.value.reason


async def registered(**settings: Any) -> tuple[SoftAuthenticator, Passkey]:
    """Return an authenticator with a passkey, as it is stored."""
    authenticator = SoftAuthenticator(origin=ORIGIN, **settings)
    return authenticator, stored(await register(new_credential(authenticator)))
