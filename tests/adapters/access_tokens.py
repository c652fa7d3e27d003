"""Signing keys, and claims and forgeries for access tokens."""

import base64
import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from adapters.crypto import JwtTokens
from core.authentication.model.tokens import SigningKey
from core.kernel.claims import Claims
from core.kernel.errors import TokenExpired, TokenInvalid
from core.kernel.values import Email

BASE_URL = "https://sso.example.com"
NOW = datetime(2027, 3, 4, 5, 6, 7, tzinfo=UTC)


def new_signing_key(kid: str, *, age: timedelta = timedelta(0), retires_at: datetime | None = None) -> SigningKey:
    private = rsa.generate_private_key(65537, 2048)
    return SigningKey(kid, pem_of(private), NOW - age, retires_at)


def pem_of(private: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


# Creating and loading a key takes tens of milliseconds, so the tests share their keys.
KEY = new_signing_key("key-in-use")
STRANGER = new_signing_key("key-in-use")  # another key with the same id
TOKENS = JwtTokens(BASE_URL)
TOKENS.use([KEY], NOW)

CLAIMS = Claims(
    user_id=uuid.UUID("0b6a3c56-0b2c-4c3f-9c39-2f9c3b1f7a01"),
    session_id=uuid.UUID("1c6a3c56-0b2c-4c3f-9c39-2f9c3b1f7a02"),
    email=Email("ada@example.com"),
    email_verified=True,
    token_id=uuid.UUID("2d6a3c56-0b2c-4c3f-9c39-2f9c3b1f7a03"),
    issued_at=NOW,
    expires_at=NOW + timedelta(minutes=15),
    org="acme",
    org_id=uuid.UUID("3e6a3c56-0b2c-4c3f-9c39-2f9c3b1f7a04"),
)


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


PAYLOAD: dict[str, Any] = {
    "iss": BASE_URL,
    "aud": f"{BASE_URL}/api",
    "client_id": "frontend",
    "sub": "0b6a3c56-0b2c-4c3f-9c39-2f9c3b1f7a01",
    "email": "ada@example.com",
    "email_verified": True,
    "sid": "1c6a3c56-0b2c-4c3f-9c39-2f9c3b1f7a02",
    "jti": "2d6a3c56-0b2c-4c3f-9c39-2f9c3b1f7a03",
    "iat": int(NOW.timestamp()),
    "exp": int(NOW.timestamp()) + 900,
    "token_use": "access",
    "org": "acme",
    "org_id": "3e6a3c56-0b2c-4c3f-9c39-2f9c3b1f7a04",
}
HEADER: dict[str, Any] = {"alg": "RS256", "kid": "key-in-use", "typ": "at+jwt"}
# The claims in an application's token.
SERVICE_CLAIMS = replace(
    CLAIMS,
    service="shop",
    client_id=uuid.UUID("4f6a3c56-0b2c-4c3f-9c39-2f9c3b1f7a05"),
    plan="Gold",
    subscription_status="active",
    features=("exports", "größer"),
)
SERVICE_PAYLOAD = PAYLOAD | {
    "aud": "4f6a3c56-0b2c-4c3f-9c39-2f9c3b1f7a05",
    "client_id": "4f6a3c56-0b2c-4c3f-9c39-2f9c3b1f7a05",
    "service": "shop",
    "plan": "Gold",
    "subscription_status": "active",
    "features": ["exports", "größer"],
}


def refused(token: str, tokens: JwtTokens = TOKENS, now: datetime = NOW) -> bool:
    """Return whether the token is refused as invalid, and not accepted or refused with another error."""
    try:
        tokens.read(token, now)
    except TokenExpired:
        return False
    except TokenInvalid:
        return True
    return False


def forged(header: object, payload: object, sign: Callable[[bytes], bytes] | None = None) -> str:
    """Return a token with exactly this header and payload, by default signed with the current key."""
    signing_input = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(payload).encode())}"
    return f"{signing_input}.{b64((sign or rs256)(signing_input.encode()))}"


def rs256(message: bytes, key: SigningKey = KEY) -> bytes:
    return parsed(key.private_key).sign(message, padding.PKCS1v15(), hashes.SHA256())


def without(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}


@cache
def parsed(pem: bytes) -> rsa.RSAPrivateKey:
    private = serialization.load_pem_private_key(pem, None)
    assert isinstance(private, rsa.RSAPrivateKey)
    return private
