"""Helpers: requests about an application's permissions and roles."""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from core.kernel.roles import Permission
from tests.support.builders import Answer, run_sql
from tests.support.tenants import Tenant

KEY_PERMISSIONS: Final = (Permission.READ_SERVICE, Permission.WRITE_SERVICE, Permission.WRITE_ROLES, Permission.READ_USERS)
DOCUMENT: Final[dict[str, Any]] = {
    "permissions": [
        {"name": "documents:read", "description": "Read documents"},
        {"name": "documents:write", "description": None},
    ],
    "roles": [
        {"slug": "editor", "name": "Editor", "description": "Writes", "permissions": ["documents:read", "documents:write"]},
        {"slug": "viewer", "name": "Viewer", "description": None, "permissions": ["documents:read"]},
    ],
}
UNCHANGED: Final[dict[str, Any]] = {
    "permissions_added": [],
    "permissions_updated": [],
    "permissions_removed": [],
    "roles_added": [],
    "roles_updated": [],
    "roles_removed": [],
    "needs_confirmation": False,
}


@dataclass(slots=True)
class Store:
    """A service, its API key, and requests about its permissions and roles."""

    tenant: Tenant
    service: UUID
    key: str

    @property
    def path(self) -> str:
        return f"{self.tenant.path}/services/shop"

    async def call(self, method: str, below: str, body: Any = None, by: str = "admin", **headers: str) -> Answer:
        """Send a request below the service's path, or with the API key if `by` is "key"."""
        if by == "key":
            return await self.tenant.api.call(method, f"/api/service{below}", body, headers={"X-Api-Key": self.key, **headers})
        return await self.tenant.api.call(method, f"{self.path}{below}", body, token=self.tenant.token(by), headers=headers)

    async def put(self, document: Any, query: str = "", by: str = "admin", **headers: str) -> Answer:
        return await self.call("PUT", f"/authorization{query}", document, by, **headers)

    async def get(self, by: str = "member") -> Answer:
        return await self.call("GET", "/authorization", by=by)

    async def document(self) -> dict[str, Any]:
        """Return the stored document, without its version."""
        body: dict[str, Any] = (await self.get()).json
        return {name: body[name] for name in ("permissions", "roles")}

    async def give(self, role: str, user: object, at: str = "2026-01-02") -> None:
        """Give a user a role in the database."""
        insert = """
            insert into service_role_users (org_id, service_id, role_id, user_id, assigned_at)
            select org_id, service_id, id, %s, %s from service_roles where service_id = %s and slug = %s"""
        await run_sql(self.tenant.pool, insert, user, at, self.service, role)

    async def give_group(self, role: str, group: object, by: str = "admin") -> Answer:
        """Give a group a role."""
        return await self.call("PUT", f"/roles/{role}/groups/{group}", by=by)

    async def take_from_group(self, role: str, group: object, by: str = "admin") -> Answer:
        return await self.call("DELETE", f"/roles/{role}/groups/{group}", by=by)

    async def holders(self) -> list[tuple[str, str]]:
        """Return the users' roles in the database."""
        sql = """
            select r.slug, u.email from service_role_users h join service_roles r on r.id = h.role_id join users u on u.id = h.user_id
            order by 1, 2"""
        return [(slug, email) for slug, email in await run_sql(self.tenant.pool, sql)]
