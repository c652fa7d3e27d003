"""A service that manages subscriptions with its API key."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from core.kernel.callers import ServiceKey
from core.kernel.roles import Permission
from core.kernel.values import digest
from tests.support.builders import Answer, Api, add_account, run_sql
from tests.support.services import add_api_key, add_plan, add_service, add_service_user, service_context
from tests.support.tenants import Tenant

PATH = "/api/service/subscriptions"
MONTH = timedelta(days=30)
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)


@dataclass(slots=True)
class Shop:
    """A service with two plans, two users, and an API key with all permissions."""

    tenant: Tenant
    service: UUID
    gold: UUID
    silver: UUID
    key: str
    user: UUID
    other_user: UUID
    headers: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.headers = {"X-Api-Key": self.key}

    @property
    def api(self) -> Api:
        return self.tenant.api

    async def subscribe(self, user: object, plan: object, **fields: Any) -> Answer:
        return await self.api.post(PATH, {"user_id": str(user), "plan_id": str(plan), **fields}, headers=self.headers)

    async def create(self, user: UUID, plan: UUID, **fields: Any) -> dict[str, Any]:
        answer = await self.subscribe(user, plan, **fields)
        assert answer.status == 200, answer.text
        subscription: dict[str, Any] = answer.json
        return subscription

    async def get(self, user: object) -> Answer:
        return await self.api.get(f"{PATH}/{user}", headers=self.headers)

    async def update(self, user: object, **fields: Any) -> Answer:
        return await self.api.patch(f"{PATH}/{user}", fields, headers=self.headers)

    async def end(self, user: object) -> Answer:
        return await self.api.delete(f"{PATH}/{user}", headers=self.headers)

    async def list_subscriptions(self, query: str = "") -> Answer:
        return await self.api.get(f"{PATH}{query}", headers=self.headers)

    async def list_as_member(self, query: str = "") -> Answer:
        path = f"/api/organizations/{self.tenant.slug}/services/shop/subscriptions{query}"
        return await self.api.get(path, token=self.tenant.token("owner"))

    async def stored_rows(self) -> list[tuple[Any, ...]]:
        """Return status and plan for all subscriptions, oldest first, and check the counter."""
        rows = await run_sql(
            self.tenant.pool, "select status, plan_id from subscriptions where service_id = %s order by created_at", self.service
        )
        assert await run_sql(self.tenant.pool, "select subscription_count from services where id = %s", self.service) == [(len(rows),)]
        return rows

    async def caller(self) -> ServiceKey:
        """Return the caller that the key authenticates."""
        [(key_id,)] = await run_sql(self.tenant.pool, "select id from api_keys where key_hash = %s", digest(self.key))
        return ServiceKey(key_id=key_id, permissions=frozenset(Permission), service=await service_context(self.tenant.pool, self.service))


async def add_shop(tenant: Tenant, slug: str = "shop") -> Shop:
    ports, pool = tenant.ports, tenant.pool
    service = await add_service(pool, tenant.org, slug)
    users = [await add_account(ports, f"{name}@{slug}.{tenant.slug}.example", None) for name in ("user", "other_user")]
    for user in users:
        await add_service_user(ports, service, user.id)
    gold, silver = await add_plan(pool, service, "Gold"), await add_plan(pool, service, "Silver", features=())
    return Shop(tenant, service, gold, silver, await add_api_key(pool, service), *(user.id for user in users))


def format_time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")
