"""An organization's groups, as its admins use them."""

from typing import Any
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from core.kernel.values import new_id
from tests.support.builders import Answer, run_sql
from tests.support.tenants import Tenant


class GroupAdmin:
    """An organization's groups, and a member's requests about them."""

    def __init__(self, tenant: Tenant, by: str = "admin") -> None:
        self.tenant, self.by, self.path = tenant, by, f"{tenant.path}/groups"

    async def call(self, method: str, path: str = "", body: Any = None) -> Answer:
        return await self.tenant.api.call(method, f"{self.path}{path}", body, token=self.tenant.token(self.by))

    async def create(self, name: str = "Engineering", **fields: Any) -> str:
        """Create a group, and return its id."""
        answer = await self.call("POST", "", {"name": name, **fields})
        assert answer.status == 201, answer.text
        return str(answer.json["id"])

    async def get(self, group: str) -> dict[str, Any]:
        answer = await self.call("GET", f"/{group}")
        assert answer.status == 200, answer.text
        found: dict[str, Any] = answer.json
        return found

    async def names(self, query: str = "") -> list[str]:
        answer = await self.call("GET", query)
        assert answer.status == 200, answer.text
        return [group["name"] for group in answer.json["groups"]]

    async def add(self, group: str, user: object) -> Answer:
        return await self.call("PUT", f"/{group}/members/{user}")

    async def remove(self, group: str, user: object) -> Answer:
        return await self.call("DELETE", f"/{group}/members/{user}")

    async def emails(self, group: str, query: str = "") -> list[str]:
        """Return the members' addresses in order, after checking that the group's count is right."""
        answer = await self.call("GET", f"/{group}/members{query}")
        assert answer.status == 200, answer.text
        await check_counts(self.tenant.pool)
        return sorted(each["email"] for each in answer.json["members"])

    async def assign(self, service: str, group: str) -> Answer:
        """Assign a group to an application."""
        return await self.tenant.api.call("PUT", f"{self.tenant.path}/services/{service}/groups/{group}", token=self.tenant.token(self.by))

    async def unassign(self, service: str, group: str) -> Answer:
        return await self.tenant.api.delete(f"{self.tenant.path}/services/{service}/groups/{group}", token=self.tenant.token(self.by))


async def add_group(pool: Pool, org: UUID, *users: UUID, name: str = "Group") -> UUID:
    """Add a group with these users to the database."""
    group = new_id()
    insert = """
        insert into groups (id, org_id, name, name_key, created_at, updated_at, members_changed_at)
        values (%s, %s, %s, lower(%s), now(), now(), now())"""
    await run_sql(pool, insert, group, org, name, name)
    for user in users:
        await run_sql(pool, "insert into group_members values (%s, %s, %s, now())", org, group, user)
    return group


async def check_counts(pool: Pool) -> None:
    """Check that every group has as many members as its counter says, and that no other rows exist."""
    wrong = """
        select g.name, g.member_count from groups g
        where g.member_count <> (select count(*) from group_members m where m.group_id = g.id and m.org_id = g.org_id)"""
    assert await run_sql(pool, wrong) == []
    ownerless = "select m.group_id from group_members m where not exists (select from groups g where g.id = m.group_id)"
    assert await run_sql(pool, ownerless) == []


async def group_ids_of(pool: Pool, user: UUID) -> set[UUID]:
    return {row[0] for row in await run_sql(pool, "select group_id from group_members where user_id = %s", user)}
