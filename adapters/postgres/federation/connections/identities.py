"""The accounts that are known at the organizations' connections."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine import records, statements
from adapters.postgres.engine.locks import SUBJECTS
from adapters.postgres.kernel.roles import rights_columns
from core.federation.connections.model import people
from core.federation.connections.model.connections import ConnectionIdentity
from core.kernel import roles
from core.kernel.values import Email, Page, PageResult

IDENTITY: Final = records.Record(ConnectionIdentity, "i", email=Email)
PERSON: Final = records.Record(
    people.ConnectionPerson, "i", email=records.Column(sql="u.email", read=Email), provider_email=records.Column(sql="i.email", read=Email)
)
AUTHORITY: Final = records.Record(roles.Authority, "m", role=roles.RoleName, rights=rights_columns("m", "c"))
OWN_LINK: Final = records.Record(people.OwnConnectionLink, "i", organization="o.name", connection="c.name")


def _to_subject(row: statements.Row) -> people.ConnectionSubject:
    is_active, user_id, is_member, is_blocked, is_provisioned, given, mapped = row
    rules = tuple(people.GroupRule(value, UUID(str(group_id)), UUID(str(mapped_by))) for value, group_id, mapped_by in mapped)
    return people.ConnectionSubject(is_active, user_id, is_member, is_blocked, is_provisioned, frozenset(given), rules)


class ConnectionIdentities(statements.Repository):
    """Implements `ports.storage.federation.connections.ConnectionIdentities`."""

    async def page(
        self, org_id: UUID, connection_id: UUID, page: Page, *, search: str | None = None
    ) -> PageResult[people.ConnectionPerson]:
        # Emails are stored in lower case. strpos needs no escaped wildcards.
        matching = "and strpos(u.email, %(search)s) > 0" if search else ""
        listed = f"""
            from connection_identities i join users u on u.id = i.user_id
            where i.org_id = %(org_id)s and i.connection_id = %(connection_id)s {matching}"""
        order = "i.linked_at desc, i.user_id"
        values = {"org_id": org_id, "connection_id": connection_id, "search": search}
        return await self._counted_page(PERSON.read, PERSON.columns, listed, order, page, **values)

    async def of_user(self, user_id: UUID) -> Sequence[people.OwnConnectionLink]:
        sql = f"""
            select {OWN_LINK.columns} from connection_identities i
            join connections c on c.org_id = i.org_id and c.id = i.connection_id join organizations o on o.id = i.org_id
            where i.user_id = %(user_id)s order by o.name, c.name, c.id"""
        return await self._all(OWN_LINK.read, sql, user_id=user_id)

    async def authorities(self, org_id: UUID, connection_id: UUID, user_id: UUID | None = None) -> Sequence[roles.Authority]:
        of_user = "" if user_id is None else "and i.user_id = %(user_id)s"
        sql = f"""
            select distinct {AUTHORITY.columns} from connection_identities i
            join memberships m on m.org_id = i.org_id and m.user_id = i.user_id join organizations c on c.id = m.org_id
            where i.org_id = %(org_id)s and i.connection_id = %(connection_id)s {of_user}"""
        return await self._all(AUTHORITY.read, sql, org_id=org_id, connection_id=connection_id, user_id=user_id)

    async def connections_of(self, org_id: UUID, user_ids: Collection[UUID]) -> Sequence[tuple[UUID, UUID]]:
        sql = """
            select connection_id, user_id from connection_identities
            where org_id = %(org_id)s and user_id = any(%(user_ids)s) order by user_id, connection_id"""
        return await self._all(lambda row: (row[0], row[1]), sql, org_id=org_id, user_ids=list(user_ids))

    async def lock_subject(self, connection_id: UUID, subject: str) -> None:
        # If two lock numbers collide, no harm is done: a sign-in then waits for an unrelated
        # sign-in.
        await self._write(f"select pg_advisory_xact_lock({SUBJECTS}, hashtext(%(name)s))", name=f"{connection_id} {subject}")

    async def subject(self, org_id: UUID, connection_id: UUID, subject: str) -> people.ConnectionSubject | None:
        sql = """
            select c.state = 'active' and o.status = 'active', i.user_id,
                   exists (select 1 from memberships m where m.org_id = c.org_id and m.user_id = i.user_id),
                   exists (select 1 from directory_blocks b where b.org_id = c.org_id and b.user_id = i.user_id),
                   exists (select 1 from scim_users s where s.org_id = c.org_id and s.user_id = i.user_id and s.provisioned),
                   array(select n.group_id from connection_group_members n
                         where n.org_id = c.org_id and n.connection_id = c.id and n.user_id = i.user_id),
                   array(select row (g.value, g.group_id, g.mapped_by) from connection_groups g
                         where g.org_id = c.org_id and g.connection_id = c.id)
            from connections c join organizations o on o.id = c.org_id
            left join connection_identities i on i.org_id = c.org_id and i.connection_id = c.id and i.subject = %(subject)s
            where c.org_id = %(org_id)s and c.id = %(connection_id)s"""
        return await self._one(_to_subject, sql, org_id=org_id, connection_id=connection_id, subject=subject)

    async def add(self, identity: ConnectionIdentity) -> bool:
        sql = f"{IDENTITY.insert('connection_identities')} on conflict do nothing"
        return await self._run(sql, **IDENTITY.values(identity)) == 1

    def use(
        self, org_id: UUID, connection_id: UUID, subject: str, user_id: UUID, email: Email | None, now: datetime
    ) -> statements.Answer[bool | None]:
        sql = """
            update connection_identities i set last_used_at = %(now)s, email = coalesce(%(email)s, i.email)
            from connections c join organizations o on o.id = c.org_id
            where i.org_id = %(org_id)s and i.connection_id = %(connection_id)s and i.subject = %(subject)s and i.user_id = %(user_id)s
              and c.org_id = i.org_id and c.id = i.connection_id and c.state = 'active' and o.status = 'active'
            returning exists (select 1 from directory_blocks b where b.org_id = i.org_id and b.user_id = i.user_id)"""
        values = {"org_id": org_id, "connection_id": connection_id, "subject": subject, "user_id": user_id, "email": email, "now": now}
        return self._one(lambda row: bool(row[0]), sql, **values)

    async def remove(self, org_id: UUID, connection_id: UUID, user_id: UUID) -> bool:
        sql = """
            delete from connection_identities
            where org_id = %(org_id)s and connection_id = %(connection_id)s and user_id = %(user_id)s"""
        return await self._run(sql, org_id=org_id, connection_id=connection_id, user_id=user_id) == 1

    async def remove_of_strangers(self, org_id: UUID, user_ids: Collection[UUID]) -> None:
        sql = """
            delete from connection_identities c where c.org_id = %(org_id)s and c.user_id = any(%(user_ids)s)
            and not exists (select from end_users e where e.org_id = c.org_id and e.user_id = c.user_id)"""
        await self._run(sql, org_id=org_id, user_ids=list(user_ids))

    async def remember_group(self, org_id: UUID, connection_id: UUID, user_id: UUID, group_id: UUID, *, was_member: bool) -> None:
        sql = """
            insert into connection_group_members (org_id, connection_id, group_id, user_id, was_member)
            values (%(org_id)s, %(connection_id)s, %(group_id)s, %(user_id)s, %(was_member)s and not exists (
                select 1 from connection_group_members n
                where n.org_id = %(org_id)s and n.user_id = %(user_id)s and n.group_id = %(group_id)s and not n.was_member
            )) on conflict do nothing"""
        values = {"org_id": org_id, "connection_id": connection_id, "user_id": user_id, "group_id": group_id}
        await self._run(sql, **values, was_member=was_member)

    async def forget_group(self, org_id: UUID, connection_id: UUID, user_id: UUID, group_id: UUID) -> bool:
        sql = """
            delete from connection_group_members
            where org_id = %(org_id)s and connection_id = %(connection_id)s and user_id = %(user_id)s and group_id = %(group_id)s
            returning was_member"""
        values = {"org_id": org_id, "connection_id": connection_id, "user_id": user_id, "group_id": group_id}
        return bool(await self._one(lambda row: row[0], sql, **values))

    async def forget_groups(self, org_id: UUID, user_ids: Collection[UUID], group_id: UUID | None = None) -> None:
        of_group = "" if group_id is None else "and group_id = %(group_id)s"
        sql = f"delete from connection_group_members where org_id = %(org_id)s and user_id = any(%(user_ids)s) {of_group}"
        await self._run(sql, org_id=org_id, user_ids=list(user_ids), group_id=group_id)

    async def remove_all(self, user_id: UUID) -> None:
        await self._run("delete from connection_identities where user_id = %(user_id)s", user_id=user_id)
