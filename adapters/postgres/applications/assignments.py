"""The users' assignments to services."""

from collections.abc import Collection
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.applications.end_users import ASSIGN
from adapters.postgres.applications.service_access import ASSIGNED
from adapters.postgres.applications.service_users import remove_without_subscription
from adapters.postgres.applications.services import BEFORE_ALL
from adapters.postgres.engine import statements
from adapters.postgres.engine.statements import matching_email
from core.applications.model.users import Assignment, EnrollmentOrigin
from core.kernel import values
from core.tenancy.model.groups import AssignedGroup

OF_SERVICE: Final = f"org_id = %(org_id)s and service_id = %(service_id)s and enrolled_by in {ASSIGNED}"
BY_DIRECTORY: Final = "org_id = %(org_id)s and service_id = %(service_id)s and enrolled_by = 'directory'"
REMOVE_UNUSED: Final = remove_without_subscription("service_id = %(service_id)s and enrolled_by = 'self' and first_login_at is null")


def to_assignment(row: statements.Row) -> Assignment:
    return Assignment(row[0], values.Email(row[1]), EnrollmentOrigin(row[2]), row[3], row[4])


class Assignments(statements.Repository):
    """Implements `ports.storage.applications.users.Assignments`."""

    async def page(self, org_id: UUID, service_id: UUID, page: values.Page, *, search: str | None = None) -> values.PageResult[Assignment]:
        columns: LiteralString = "user_id, email, enrolled_by, first_login_at, last_login_at"
        listed = f"from service_users where {OF_SERVICE} {matching_email('email', search)}"
        return await self._counted_page(
            to_assignment, columns, listed, "created_at, user_id", page, org_id=org_id, service_id=service_id, search=search
        )

    async def origins(self, org_id: UUID, service_id: UUID, user_ids: Collection[UUID]) -> dict[UUID, EnrollmentOrigin]:
        sql = """
            select user_id, enrolled_by from service_users
            where org_id = %(org_id)s and service_id = %(service_id)s and user_id = any(%(user_ids)s)"""
        rows = await self._all(
            lambda row: (row[0], EnrollmentOrigin(row[1])), sql, org_id=org_id, service_id=service_id, user_ids=list(user_ids)
        )
        return dict(rows)

    async def assignable(self, org_id: UUID, user_ids: Collection[UUID]) -> set[UUID]:
        sql = """
            select k.user_id from (
                select user_id from end_users where org_id = %(org_id)s and user_id = any(%(user_ids)s)
                union select user_id from memberships
                where org_id = %(org_id)s and user_id = any(%(user_ids)s) and confirmed_at is not null) k
            where (select u.anonymized_at from users u where u.id = k.user_id) is null"""
        rows = await self._all(lambda row: row[0], sql, org_id=org_id, user_ids=list(user_ids))
        return set(rows)

    async def by_directory(self, org_id: UUID, service_id: UUID, user_ids: Collection[UUID] | None) -> set[UUID]:
        those = "" if user_ids is None else "and user_id = any(%(user_ids)s)"
        sql = f"select user_id from service_users where {BY_DIRECTORY} {those}"
        rows = await self._all(lambda row: row[0], sql, org_id=org_id, service_id=service_id, user_ids=list(user_ids or ()))
        return set(rows)

    async def all_by_directory(self, org_id: UUID, user_ids: Collection[UUID]) -> dict[UUID, set[UUID]]:
        sql = """
            select service_id, array_agg(user_id) from service_users
            where org_id = %(org_id)s and user_id = any(%(user_ids)s) and enrolled_by = 'directory' group by service_id"""
        rows = await self._all(lambda row: (row[0], set(row[1])), sql, org_id=org_id, user_ids=list(user_ids))
        return dict(rows)

    async def without_directory(self, org_id: UUID, service_ids: Collection[UUID]) -> set[UUID]:
        sql = """
            select v.id from services v
            where v.org_id = %(org_id)s and v.id = any(%(service_ids)s) and not exists (
                select from service_users x where x.org_id = v.org_id and x.service_id = v.id and x.enrolled_by = 'directory')"""
        return set(await self._all(lambda row: UUID(str(row[0])), sql, org_id=org_id, service_ids=list(service_ids)))

    async def page_by_directory(self, org_id: UUID, service_id: UUID, after: UUID | None, limit: int) -> list[UUID]:
        sql = f"select user_id from service_users where {BY_DIRECTORY} and user_id > %(after)s order by user_id limit %(limit)s"
        return await self._all(lambda row: row[0], sql, org_id=org_id, service_id=service_id, after=after or BEFORE_ALL, limit=limit)

    async def groups(self, org_id: UUID, service_id: UUID) -> list[AssignedGroup]:
        sql = """
            select g.id, g.name, g.member_count, a.assigned_at from service_groups_assigned a join groups g on g.id = a.group_id
            where a.org_id = %(org_id)s and a.service_id = %(service_id)s order by g.name_key"""
        return await self._all(lambda row: AssignedGroup(*row), sql, org_id=org_id, service_id=service_id)

    async def services_of_group(self, org_id: UUID, group_id: UUID) -> list[UUID]:
        sql = """
            select v.id from service_groups_assigned a join services v on v.id = a.service_id
            where a.org_id = %(org_id)s and a.group_id = %(group_id)s order by lower(v.name), v.id"""
        return await self._all(lambda row: row[0], sql, org_id=org_id, group_id=group_id)

    async def add_group(self, org_id: UUID, service_id: UUID, group_id: UUID, now: datetime) -> bool:
        sql = """
            insert into service_groups_assigned (org_id, service_id, group_id, assigned_at)
            values (%(org_id)s, %(service_id)s, %(group_id)s, %(now)s) on conflict do nothing returning 1"""
        return await self._exists(sql, org_id=org_id, service_id=service_id, group_id=group_id, now=now)

    async def remove_group(self, org_id: UUID, service_id: UUID, group_id: UUID) -> bool:
        sql = """
            delete from service_groups_assigned
            where org_id = %(org_id)s and service_id = %(service_id)s and group_id = %(group_id)s returning 1"""
        return await self._exists(sql, org_id=org_id, service_id=service_id, group_id=group_id)

    async def add(self, org_id: UUID, service_id: UUID, user_ids: Collection[UUID], origin: EnrollmentOrigin, now: datetime) -> bool:
        users = list(user_ids)
        return await self._exists(ASSIGN, org_id=org_id, service_id=service_id, user_ids=users, origin=origin, now=now, login_at=None)

    async def end(self, org_id: UUID, service_id: UUID, user_ids: Collection[UUID]) -> None:
        sql = f"update service_users set enrolled_by = 'self' where {OF_SERVICE} and user_id = any(%(user_ids)s)"
        await self._run(sql, org_id=org_id, service_id=service_id, user_ids=list(user_ids))

    async def remove_unused(self, org_id: UUID, service_id: UUID, user_ids: Collection[UUID]) -> None:
        await self._run(REMOVE_UNUSED, org_id=org_id, service_id=service_id, user_ids=list(user_ids))
