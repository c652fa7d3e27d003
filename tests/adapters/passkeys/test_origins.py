"""Origins and RP IDs: only this installation's pages run its ceremonies."""

from typing import Any

import pytest

from core.accounts.model.passkeys import PasskeyReason, RelyingParty
from tests.adapters.passkeys.ceremonies import ORIGIN, PARTY, new_credential, reason_of, register
from tests.support.passkeys.authenticator import SoftAuthenticator
from tests.tables import table

NEXT_DOOR = [
    "http://sso.example.com",
    "https://sso.example.com:8443",
    "https://sso.example.com.",
    "https://sso.example.com/",
    "https://example.com",
    "https://evil.sso.example.com",
    "https://sso.example.com.evil.example",
    "https://sso.example.com@evil.example",
    "https://SSO.example.com",
    "https://ssо.example.com",  # noqa: RUF001  (a Cyrillic letter)
    "https://xn--ss-emc.example.com",
    "android:apk-key-hash:pNiP5iKyQ8JwgGOaKA1zGPUPJIS-0H1xKCQcfIoGLck",
    "ios:bundle-id:com.example",
    "null",
    "",
]


@pytest.mark.slow
async def test_origins_next_door_are_refused() -> None:
    reasons = {origin: await reason_of(new_credential(SoftAuthenticator(origin=origin))) for origin in NEXT_DOOR}
    assert reasons == dict.fromkeys(NEXT_DOOR, PasskeyReason.ORIGIN)


@table("rp_id", ["example.com", "evil.sso.example.com", "SSO.example.com", "sso.example.com.", ""])
@pytest.mark.slow
async def test_another_rp_id_is_refused(rp_id: str) -> None:
    party = RelyingParty(rp_id, frozenset({ORIGIN}))
    assert await reason_of(new_credential(SoftAuthenticator(origin=ORIGIN)), party) is PasskeyReason.RP_ID


@table(
    ("client_data", "reason"),
    [
        ({"crossOrigin": True}, PasskeyReason.CROSS_ORIGIN),
        ({"crossOrigin": "false"}, PasskeyReason.CROSS_ORIGIN),
        ({"crossOrigin": 0}, PasskeyReason.CROSS_ORIGIN),
        ({"topOrigin": ORIGIN}, PasskeyReason.TOP_ORIGIN),
        ({"crossOrigin": True, "topOrigin": "https://evil.example"}, PasskeyReason.TOP_ORIGIN),
        ({"origin": [ORIGIN]}, PasskeyReason.ORIGIN),
        ({"type": "webauthn.get"}, PasskeyReason.TYPE),
        ({"type": "payment.get"}, PasskeyReason.TYPE),
    ],
)
@pytest.mark.slow
async def test_ceremonies_in_frames_and_of_other_kinds_are_refused(client_data: dict[str, Any], reason: PasskeyReason) -> None:
    authenticator = SoftAuthenticator(origin=ORIGIN, client_data=client_data)
    assert await reason_of(new_credential(authenticator)) is reason


@pytest.mark.slow
async def test_client_data_without_cross_origin_is_accepted() -> None:
    """Older browsers leave it out."""
    await register(new_credential(SoftAuthenticator(origin=ORIGIN, client_data={"crossOrigin": None})), PARTY)
