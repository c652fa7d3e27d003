"""A pipeline provider, such as GitHub Actions, and trust in it."""

import json
from typing import Any, Final
from uuid import UUID

import jwt

from tests.fakes.http_server import Answer as Reply
from tests.fakes.http_server import FakeServer, ReceivedRequest, in_json
from tests.fakes.outside import FakeClock
from tests.federation.api.client_authentication.keys import LEFT_OUT, ClientKey, client_key
from tests.programs.service_accounts import try_add_credential
from tests.support.builders import BASE_URL, run_sql
from tests.support.tenants import Tenant

DISCOVERY: Final = "/.well-known/openid-configuration"
KEYS: Final = "/keys"
SUBJECT: Final = "repo:acme/shop:ref:refs/heads/main"
PATTERN: Final = "repo:acme/shop:ref:refs/heads/*"


class Issuer(FakeServer):
    """A pipeline provider."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[ClientKey] = [client_key("RS256", "pipeline")]
        self.metadata: dict[str, Any] = {}
        self.failure: Reply | None = None
        self.paths: list[str] = []

    def _reply(self, request: ReceivedRequest) -> Reply:
        self.paths.append(request.path)
        if self.failure is not None:
            return self.failure
        if request.path == KEYS:
            return in_json({"keys": [key.jwk for key in self.keys]})
        return in_json({"issuer": self.address, "jwks_uri": f"{self.address}{KEYS}", **self.metadata})

    def token(self, clock: FakeClock, key: ClientKey | None = None, headers: dict[str, Any] | None = None, **changes: Any) -> str:
        """Return a job's token. A claim with the value LEFT_OUT is left out."""
        signer, now = key or self.keys[0], int(clock.now().timestamp())
        claims = {"iss": self.address, "sub": SUBJECT, "aud": BASE_URL, "iat": now, "nbf": now, "exp": now + 300, **changes}
        payload = {name: value for name, value in claims.items() if value is not LEFT_OUT}
        # Not `jwt.encode`, which refuses to make tokens with wrong claims.
        return jwt.PyJWS().encode(json.dumps(payload).encode(), signer.private, signer.algorithm, {"kid": signer.kid, **(headers or {})})


async def trust(tenant: Tenant, account: str, issuer: str, subject: str = PATTERN) -> None:
    """Let the account trust an issuer at any URL, as no admin could."""
    answer = await try_add_credential(tenant, account, kind="federated", issuer="https://issuer.example", subject=subject)
    assert answer.status == 201, answer.text
    await run_sql(tenant.pool, "update credentials set issuer = %s where id = %s", issuer, UUID(answer.json["id"]))
