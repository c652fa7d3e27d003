"""Helpers: members' requests about services and plans."""

from dataclasses import dataclass
from typing import Any

from tests.support.builders import Answer, run_sql
from tests.support.tenants import Tenant

URI = "https://shop.example.com/callback"
FULL = (400, "SERVICE_LIMIT_EXCEEDED")
GOOD = {"slug": "shop", "name": "Shop", "service_type": "web"}
GOLD = {"name": "Gold", "price_cents": 999, "currency": "eur"}


@dataclass(slots=True)
class Workshop:
    """An organization's services."""

    tenant: Tenant

    @property
    def path(self) -> str:
        return f"{self.tenant.path}/services"

    async def create(self, by: str = "owner", **fields: Any) -> Answer:
        return await self.tenant.api.post(self.path, {**GOOD, **fields}, token=self.tenant.token(by))

    async def add_service(self, by: str = "owner", **fields: Any) -> dict[str, Any]:
        return body_of(await self.create(by, **fields))

    async def list_services(self, query: str = "", by: str = "member") -> dict[str, Any]:
        return body_of(await self.tenant.api.get(f"{self.path}{query}", token=self.tenant.token(by)))

    async def get(self, slug: str = "shop", by: str = "member") -> Answer:
        return await self.tenant.api.get(f"{self.path}/{slug}", token=self.tenant.token(by))

    async def update(self, by: str = "owner", slug: str = "shop", /, **fields: Any) -> Answer:
        return await self.tenant.api.patch(f"{self.path}/{slug}", fields, token=self.tenant.token(by))

    async def rotate(self, by: str = "owner", slug: str = "shop") -> Answer:
        return await self.tenant.api.post(f"{self.path}/{slug}/rotate-secret", token=self.tenant.token(by))

    async def delete(self, by: str = "owner", slug: str = "shop") -> Answer:
        return await self.tenant.api.delete(f"{self.path}/{slug}", token=self.tenant.token(by))

    async def list_plans(self, by: str = "member", slug: str = "shop") -> dict[str, Any]:
        return body_of(await self.tenant.api.get(f"{self.path}/{slug}/plans", token=self.tenant.token(by)))

    async def create_plan(self, by: str = "owner", slug: str = "shop", /, **fields: Any) -> Answer:
        return await self.tenant.api.post(f"{self.path}/{slug}/plans", {**GOLD, **fields}, token=self.tenant.token(by))

    async def add_plan(self, by: str = "owner", slug: str = "shop", /, **fields: Any) -> dict[str, Any]:
        return body_of(await self.create_plan(by, slug, **fields))

    async def update_plan(self, plan: object, by: str = "owner", slug: str = "shop", /, **fields: Any) -> Answer:
        return await self.tenant.api.patch(f"{self.path}/{slug}/plans/{plan}", fields, token=self.tenant.token(by))

    async def delete_plan(self, plan: object, by: str = "owner", slug: str = "shop") -> Answer:
        return await self.tenant.api.delete(f"{self.path}/{slug}/plans/{plan}", token=self.tenant.token(by))

    async def stored_rows(self) -> list[tuple[Any, ...]]:
        """Return all services and plans from all organizations."""
        return [
            *await run_sql(self.tenant.pool, "select * from services order by id"),
            *await run_sql(self.tenant.pool, "select * from plans order by id"),
        ]


def body_of(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200, answer.text
    body: dict[str, Any] = answer.json
    return body
