"""A service, and its members' requests about API keys."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tests.support.builders import Answer, run_sql
from tests.support.services import add_service
from tests.support.tenants import Tenant

GOOD = {"name": "Robot", "permissions": ["read:users"]}


@dataclass(slots=True)
class Shop:
    """A tenant's service, and its keys."""

    tenant: Tenant
    id: UUID
    slug: str = "shop"

    @property
    def path(self) -> str:
        return f"{self.tenant.path}/services/{self.slug}/api-keys"

    async def create(self, body: Any = None, by: str = "owner") -> Answer:
        return await self.tenant.api.post(self.path, GOOD if body is None else body, token=self.tenant.token(by))

    async def add_key(self, by: str = "owner", **fields: Any) -> dict[str, Any]:
        answer = await self.create({**GOOD, **fields}, by)
        assert answer.status == 201, answer.text
        key: dict[str, Any] = answer.json
        return key

    async def list_keys(self, query: str = "", by: str = "member") -> dict[str, Any]:
        answer = await self.tenant.api.get(f"{self.path}{query}", token=self.tenant.token(by))
        assert answer.status == 200, answer.text
        keys: dict[str, Any] = answer.json
        return keys

    async def get(self, key_id: object, by: str = "member") -> Answer:
        return await self.tenant.api.get(f"{self.path}/{key_id}", token=self.tenant.token(by))

    async def delete(self, key_id: object, by: str = "owner") -> Answer:
        return await self.tenant.api.delete(f"{self.path}/{key_id}", token=self.tenant.token(by))

    async def call_with(self, key: str) -> Answer:
        return await self.tenant.api.get("/api/service/users", headers={"X-Api-Key": key})

    async def ids(self) -> list[str]:
        return [str(id_) for (id_,) in await run_sql(self.tenant.pool, "select id from api_keys where service_id = %s", self.id)]


async def open_shop(tenant: Tenant, slug: str = "shop") -> Shop:
    return Shop(tenant, await add_service(tenant.pool, tenant.org, slug), slug)
