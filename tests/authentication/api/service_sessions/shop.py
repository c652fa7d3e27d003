"""A service, and its users' requests."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import jwt

from core.accounts.model.accounts import Account
from tests.support.builders import EMAIL, PASSWORD, Answer, Api, add_account, run_sql
from tests.support.services import add_service, service_context
from tests.support.tenants import Tenant


@dataclass(frozen=True, slots=True)
class Shop:
    """A service, and a user who has never used it."""

    tenant: Tenant
    id: UUID
    client_id: UUID
    user: Account

    @property
    def api(self) -> Api:
        return self.tenant.api

    async def login(self, org: str | None = "acme", service: str | None = "shop", **changes: Any) -> Answer:
        """Log in with the slugs that are not None."""
        body = {"email": EMAIL, "password": PASSWORD, "org_slug": org, "service_slug": service} | changes
        return await self.api.post("/api/auth/login", {name: value for name, value in body.items() if value is not None})

    async def tokens(self) -> dict[str, Any]:
        answer = await self.login()
        assert answer.status == 200, answer.text
        pair: dict[str, Any] = answer.json
        return pair

    async def refresh(self, pair: Mapping[str, Any]) -> Answer:
        return await self.api.post("/api/auth/refresh", {"refresh_token": pair["refresh_token"]})

    async def profile(self, pair: Mapping[str, Any]) -> Answer:
        return await self.api.get("/api/user", token=pair["access_token"])

    async def detach(self) -> None:
        """Remove the user from the service without ending their sessions."""
        await run_sql(self.tenant.pool, "delete from service_users where service_id = %s and user_id = %s", self.id, self.user.id)

    async def login_rows(self) -> list[tuple[Any, ...]]:
        """Return the rows in all tables that a login changes."""
        counts = [("user_count", await run_sql(self.tenant.pool, "select coalesce(sum(user_count), 0) from services"))]
        for table in ("sessions", "login_events", "login_totals", "service_users", "end_users", "end_user_totals", "events"):
            counts.append((table, await run_sql(self.tenant.pool, f"select count(*) from {table}")))  # noqa: S608
        return counts


def claims(pair: Mapping[str, Any]) -> dict[str, Any]:
    decoded: dict[str, Any] = jwt.decode(pair["access_token"], options={"verify_signature": False})
    return decoded


async def open_shop(tenant: Tenant) -> Shop:
    """Add the service and the user."""
    id_ = await add_service(tenant.pool, tenant.org, "shop")
    context = await service_context(tenant.pool, id_)
    return Shop(tenant, id_, context.client_id, await add_account(tenant.ports))
