"""A client's keys, and the assertions that it makes with them."""

import json
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, Final
from uuid import uuid4

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from core.federation.oauth.model.clients import ASSERTION_TYPE
from tests.federation.api.relying import RelyingParty
from tests.support.builders import BASE_URL, Answer, run_sql

LEFT_OUT: Final = object()


@dataclass(frozen=True, slots=True)
class ClientKey:
    """A client's private key."""

    kid: str
    algorithm: str
    private: Any

    @property
    def jwk(self) -> dict[str, Any]:
        kind: Any = {"RS256": RSAAlgorithm, "PS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}[self.algorithm]
        public = json.loads(kind.to_jwk(self.private.public_key()))
        return {name: value for name, value in public.items() if name != "key_ops"} | {"kid": self.kid, "use": "sig"}


@cache
def client_key(algorithm: str = "ES256", kid: str = "one") -> ClientKey:
    """Return a key for this algorithm, always the same."""
    private: Any = {
        "RS256": lambda: rsa.generate_private_key(65537, 2048),
        "PS256": lambda: rsa.generate_private_key(65537, 2048),
        "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
        "EdDSA": ed25519.Ed25519PrivateKey.generate,
    }[algorithm]()
    return ClientKey(kid, algorithm, private)


def assertion(
    client: RelyingParty,
    key: ClientKey | None = None,
    *,
    algorithm: str | None = None,
    headers: dict[str, Any] | None = None,
    **changes: Any,
) -> str:
    """Return an assertion of the client. A claim with the value LEFT_OUT is left out."""
    key, now = key or client_key(), client.tenant.ports.clock.now()
    claims: dict[str, Any] = {
        "iss": str(client.client_id),
        "sub": str(client.client_id),
        "aud": BASE_URL,
        "exp": int((now + timedelta(minutes=5)).timestamp()),
        "iat": int(now.timestamp()),
        "jti": str(uuid4()),
        **changes,
    }
    payload = {name: value for name, value in claims.items() if value is not LEFT_OUT}
    # Not `jwt.encode`, which refuses to make tokens with wrong claims.
    return jwt.PyJWS().encode(json.dumps(payload).encode(), key.private, algorithm or key.algorithm, {"kid": key.kid, **(headers or {})})


def proof(signed: str) -> dict[str, str | None]:
    """Return the request fields that authenticate with this assertion instead of a secret."""
    return {"client_id": None, "client_secret": None, "client_assertion": signed, "client_assertion_type": ASSERTION_TYPE}


async def register(client: RelyingParty, *keys: ClientKey, **settings: Any) -> None:
    """Register these public keys and other settings, as an admin does."""
    changes = {"jwks": {"keys": [key.jwk for key in keys or (client_key(),)]}, **settings}
    answer = await client.api.patch(f"{client.tenant.path}/services/{client.slug}", changes, token=client.tenant.token("admin"))
    assert answer.status == 200, answer.text


async def revoke(client: RelyingParty, signed: str) -> Answer:
    """Send the assertion to the revocation endpoint, which needs nothing else, with a token that does not exist."""
    return await client.post("/auth/revoke", **proof(signed), token="unknown")


async def set_keys_uri(client: RelyingParty, url: str) -> None:
    """Let the client have its keys at any URL, as no admin could."""
    await run_sql(client.tenant.pool, "update services set jwks = null, jwks_uri = %s where id = %s", url, client.service)
