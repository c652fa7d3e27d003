"""The users that an organization's directory blocks."""

from datetime import datetime
from uuid import UUID

from adapters.postgres.applications.service_access import is_blocked
from adapters.postgres.engine.statements import Repository
from core.kernel import values
from core.provisioning.model.users import DirectoryBlock


class DirectoryBlocks(Repository):
    """Implements `ports.storage.provisioning.DirectoryBlocks`."""

    async def exists(self, org_id: UUID, user_id: UUID) -> bool:
        return await self._exists(f"select 1 where {is_blocked('%(org_id)s', '%(user_id)s')}", org_id=org_id, user_id=user_id)

    async def page(self, org_id: UUID, page: values.Page) -> values.PageResult[DirectoryBlock]:
        sql = """
            with page as (
                select user_id, since from directory_blocks where org_id = %(org_id)s
                order by since desc, user_id limit %(limit)s offset %(offset)s)
            select counted.total, p.user_id, p.email, p.since
            from (select count(*) as total from directory_blocks where org_id = %(org_id)s) counted
            left join (
                select b.*, s.email from page b left join scim_users s on s.org_id = %(org_id)s and s.user_id = b.user_id) p on true
            order by p.since desc, p.user_id"""
        return await self._page(lambda row: DirectoryBlock(*row), sql, org_id=org_id, limit=page.limit, offset=page.offset)

    async def add(self, org_id: UUID, user_id: UUID, since: datetime) -> None:
        sql = "insert into directory_blocks (org_id, user_id, since) values (%(org_id)s, %(user_id)s, %(since)s) on conflict do nothing"
        await self._run(sql, org_id=org_id, user_id=user_id, since=since)

    async def remove(self, org_id: UUID, user_id: UUID) -> None:
        await self._run("delete from directory_blocks where org_id = %(org_id)s and user_id = %(user_id)s", org_id=org_id, user_id=user_id)
