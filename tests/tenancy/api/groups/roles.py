"""The roles that an organization's groups give, as its members use them."""

from collections.abc import Collection, Mapping
from typing import Any

from core.kernel.roles import MEMBER, ROLES, Capability, RoleName
from tests.support.builders import Answer, add_account
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin

KEEPER = {
    *ROLES[MEMBER].rights - {Capability.ORGANIZATION_VIEW},
    *("members.manage", "roles.manage", "groups.manage", "audit.view", "service_accounts.manage"),
}


class Roles:
    """An organization's roles, and the groups that give them."""

    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant

    async def define(self, slug: str, capabilities: Collection[str], by: str = "owner") -> str:
        body = {"slug": slug, "name": slug.title(), "capabilities": sorted(capabilities)}
        answer = await self.tenant.api.post(f"{self.tenant.path}/roles", body, token=self.tenant.token(by))
        assert answer.status == 201, answer.text
        return slug

    async def join(self, name: str, role: str = MEMBER) -> str:
        """Add a confirmed member, and return the user's id."""
        await self.tenant.join(name, await add_account(self.tenant.ports, f"{name}@acme.example", None), RoleName(role))
        return self.tenant.id(name)

    async def try_map(self, group: str, role: str, by: str = "owner") -> Answer:
        return await GroupAdmin(self.tenant, by).call("PUT", f"/{group}/role", {"role": role})

    async def map(self, group: str, role: str, by: str = "owner") -> Mapping[str, Any]:
        answer = await self.try_map(group, role, by)
        assert answer.status == 200, answer.text
        mapped: Mapping[str, Any] = answer.json
        return mapped

    async def unmap(self, group: str, by: str = "owner") -> Answer:
        return await GroupAdmin(self.tenant, by).call("DELETE", f"/{group}/role")

    async def group(self, role: str, *members: str, by: str = "owner") -> str:
        """Create a group with these members that gives this role."""
        admin = GroupAdmin(self.tenant, by)
        group = await admin.create(f"Group {role} {len(await admin.names())}")
        for member in members:
            assert (await admin.add(group, self.tenant.id(member))).status == 204
        await self.map(group, role, by)
        return group

    async def may_read_log(self, name: str) -> bool:
        answer = await self.tenant.api.get(f"{self.tenant.path}/audit-log", token=self.tenant.token(name))
        assert answer.status in (200, 403), answer.text
        return answer.status == 200

    async def stopped(self, group: str) -> bool:
        return (await GroupAdmin(self.tenant, "owner").get(group))["mapping_stopped_at"] is not None
