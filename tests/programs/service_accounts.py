"""Service accounts that are created over the API, and access tokens for their credentials."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from core.kernel.api_scopes import ApiScope
from core.kernel.claims import ProgramClaims
from core.kernel.values import new_id
from ports import Ports
from tests.support.builders import Answer
from tests.support.tenants import Tenant

MINUTES = timedelta(minutes=15)
PEM_KEY = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}  # RFC 8037 appendix A.2
PIPELINE = {
    "kind": "federated",
    "issuer": "https://token.actions.githubusercontent.com",
    "subject": "repo:acme/shop:ref:refs/heads/*",
}


@dataclass(frozen=True, slots=True)
class Robot:
    """A service account with a secret and an access token."""

    tenant: Tenant
    id: UUID
    credential_id: UUID
    token: str

    @property
    def path(self) -> str:
        return f"{accounts(self.tenant)}/{self.id}"

    async def call(self, method: str, path: str, body: Any = None) -> Answer:
        """Send a request with the access token. `path` is below the organization."""
        return await self.tenant.api.call(method, f"{self.tenant.path}{path}", body, token=self.token)

    async def invite(self, email: str, role: str) -> Answer:
        return await self.call("POST", "/invitations", {"email": email, "role": role})

    async def set_role(self, member: str, role: str) -> Answer:
        return await self.call("PATCH", f"/members/{self.tenant.id(member)}", {"role": role})


def accounts(tenant: Tenant) -> str:
    return f"{tenant.path}/service-accounts"


async def try_create(tenant: Tenant, by: str = "owner", **fields: Any) -> Answer:
    return await tenant.api.post(accounts(tenant), {"name": "Robot", "role": "admin", **fields}, token=tenant.token(by))


async def create(tenant: Tenant, by: str = "owner", **fields: Any) -> str:
    """Return a new service account's path."""
    answer = await try_create(tenant, by, **fields)
    assert answer.status == 201, answer.text
    return f"{accounts(tenant)}/{answer.json['id']}"


async def try_add_credential(tenant: Tenant, account: str, by: str = "owner", **fields: Any) -> Answer:
    return await tenant.api.post(f"{account}/credentials", {"kind": "secret", "name": "Main", **fields}, token=tenant.token(by))


async def add_robot(tenant: Tenant, by: str = "owner", **fields: Any) -> Robot:
    """Create a service account with a secret."""
    return await with_new_secret(tenant, await create(tenant, by, **fields), by)


async def with_new_secret(tenant: Tenant, account: str, by: str = "owner") -> Robot:
    """Add a secret to the service account at this path."""
    credential = await try_add_credential(tenant, account, by)
    assert credential.status == 201, credential.text
    account_id, credential_id = UUID(account.rpartition("/")[2]), UUID(credential.json["id"])
    return Robot(tenant, account_id, credential_id, sign_token(tenant.ports, tenant, account_id, credential_id))


def sign_token(ports: Ports, tenant: Tenant, account_id: UUID, credential_id: UUID) -> str:
    """Return an access token with all scopes, as the token endpoint issues it."""
    now = ports.clock.now()
    claims = ProgramClaims(
        client_id=account_id,
        credential_id=credential_id,
        token_id=new_id(),
        issued_at=now,
        expires_at=now + MINUTES,
        audience=ports.tokens.api_audience,
        scope=tuple(ApiScope),
        org=tenant.slug,
        org_id=tenant.org,
    )
    return ports.tokens.sign_program(claims)
