"""The accounts that are known at the connections of organizations."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine.locks import SUBJECTS
from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Repository
from core.federation.connections.model.connections import ConnectionIdentity
from core.federation.connections.model.people import ConnectionSubject
from core.kernel.values import Email, Page, PageResult

IDENTITY: Final = Record(ConnectionIdentity, "i", email=Email)


class ConnectionIdentities(Repository):
    """Implements `ports.storage.federation.connections.ConnectionIdentities`."""

    async def page(self, org_id: UUID, connection_id: UUID, page: Page) -> PageResult[ConnectionIdentity]:
        listed = "from connection_identities i where i.org_id = %(org_id)s and i.connection_id = %(connection_id)s"
        order = "i.linked_at desc, i.user_id"
        return await self._counted_page(IDENTITY.read, IDENTITY.columns, listed, order, page, org_id=org_id, connection_id=connection_id)

    async def lock_subject(self, connection_id: UUID, subject: str) -> None:
        # A collision of the lock numbers is harmless: the two sign-ins wait for each other.
        await self._run(f"select pg_advisory_xact_lock({SUBJECTS}, hashtext(%(name)s))", name=f"{connection_id} {subject}")

    async def subject(self, org_id: UUID, connection_id: UUID, subject: str) -> ConnectionSubject | None:
        sql = """
            select c.state = 'active' and o.status = 'active', i.user_id,
                   exists (select 1 from memberships m where m.org_id = c.org_id and m.user_id = i.user_id),
                   exists (select 1 from directory_blocks b where b.org_id = c.org_id and b.user_id = i.user_id)
            from connections c join organizations o on o.id = c.org_id
            left join connection_identities i on i.org_id = c.org_id and i.connection_id = c.id and i.subject = %(subject)s
            where c.org_id = %(org_id)s and c.id = %(connection_id)s"""
        return await self._one(lambda row: ConnectionSubject(*row), sql, org_id=org_id, connection_id=connection_id, subject=subject)

    async def add(self, identity: ConnectionIdentity) -> bool:
        sql = f"{IDENTITY.insert('connection_identities')} on conflict do nothing"
        return await self._run(sql, **IDENTITY.values(identity)) == 1

    async def use(self, org_id: UUID, connection_id: UUID, user_id: UUID, email: Email | None, now: datetime) -> None:
        sql = """
            update connection_identities set last_used_at = %(now)s, email = coalesce(%(email)s, email)
            where org_id = %(org_id)s and connection_id = %(connection_id)s and user_id = %(user_id)s"""
        await self._run(sql, org_id=org_id, connection_id=connection_id, user_id=user_id, email=email, now=now)

    async def remove(self, org_id: UUID, connection_id: UUID, user_id: UUID) -> bool:
        sql = """
            delete from connection_identities
            where org_id = %(org_id)s and connection_id = %(connection_id)s and user_id = %(user_id)s"""
        return await self._run(sql, org_id=org_id, connection_id=connection_id, user_id=user_id) == 1
