"""The users and groups that have application roles, and the roles that users have by themselves or through groups."""

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.applications.service_access import is_of_organization
from adapters.postgres.engine import statements
from adapters.postgres.engine.statements import matching_email
from core.applications.model import authorization
from core.kernel import values
from core.tenancy.model.groups import AssignedGroup

HOLDERS: Final = """
    from service_role_users h join users u on u.id = h.user_id where h.org_id = %(org_id)s and h.role_id = %(role_id)s"""


def to_role_holder(row: statements.Row) -> authorization.ServiceRoleHolder:
    return authorization.ServiceRoleHolder(row[0], values.Email(row[1]), row[2])


def to_role_of_user(row: statements.Row) -> authorization.RoleOfUser:
    groups = tuple(authorization.GivingGroup(UUID(id_), name) for id_, name in row[6] or ())
    return authorization.RoleOfUser(row[0], row[1], row[2], row[3], tuple(row[4]), row[5], groups)


class RoleAssignments(statements.Repository):
    """Implements `ports.storage.applications.authorization.RoleAssignments`."""

    async def page(
        self, org_id: UUID, role_id: UUID, page: values.Page, *, search: str | None = None
    ) -> values.PageResult[authorization.ServiceRoleHolder]:
        listed, order = f"{HOLDERS} {matching_email('u.email', search)}", "h.assigned_at, h.user_id"
        return await self._counted_page(
            to_role_holder, "h.user_id, u.email, h.assigned_at", listed, order, page, org_id=org_id, role_id=role_id, search=search
        )

    async def find(self, org_id: UUID, role_id: UUID, user_id: UUID) -> authorization.ServiceRoleHolder | None:
        sql = f"select h.user_id, u.email, h.assigned_at {HOLDERS} and h.user_id = %(user_id)s"
        return await self._one(to_role_holder, sql, org_id=org_id, role_id=role_id, user_id=user_id)

    async def of_user(self, org_id: UUID, user_id: UUID, service_id: UUID | None = None) -> list[authorization.RoleOfUser]:
        sources = role_sources("%(org_id)s", "%(user_id)s", None if service_id is None else "%(service_id)s")
        sql = f"""
            select v.slug, v.name, r.slug, r.name, r.permissions, min(s.assigned_at) filter (where s.group_id is null),
                jsonb_agg(jsonb_build_array(o.id, o.name) order by o.name_key) filter (where o.id is not null)
            from ({sources}) s join service_roles r on r.id = s.role_id and r.org_id = %(org_id)s
            join services v on v.org_id = r.org_id and v.id = r.service_id left join groups o on o.id = s.group_id
            group by v.id, r.id order by v.slug, r.slug"""
        return await self._all(to_role_of_user, sql, org_id=org_id, user_id=user_id, service_id=service_id)

    async def count_of_user(self, org_id: UUID, user_id: UUID) -> int:
        sql = "select count(*) from service_role_users where org_id = %(org_id)s and user_id = %(user_id)s"
        return await self._count(sql, org_id=org_id, user_id=user_id)

    async def add(self, org_id: UUID, service_id: UUID, role_id: UUID, user_id: UUID, now: datetime) -> None:
        sql = """
            insert into service_role_users (org_id, service_id, role_id, user_id, assigned_at)
            values (%(org_id)s, %(service_id)s, %(role_id)s, %(user_id)s, %(now)s)"""
        await self._run(sql, org_id=org_id, service_id=service_id, role_id=role_id, user_id=user_id, now=now)

    async def remove(self, org_id: UUID, role_id: UUID, user_id: UUID) -> bool:
        sql = """
            delete from service_role_users
            where org_id = %(org_id)s and role_id = %(role_id)s and user_id = %(user_id)s returning 1"""
        return await self._exists(sql, org_id=org_id, role_id=role_id, user_id=user_id)

    async def groups(self, org_id: UUID, role_id: UUID) -> list[AssignedGroup]:
        sql = """
            select g.id, g.name, g.member_count, j.assigned_at from service_role_groups j join groups g on g.id = j.group_id
            where j.org_id = %(org_id)s and j.role_id = %(role_id)s order by g.name_key"""
        return await self._all(lambda row: AssignedGroup(*row), sql, org_id=org_id, role_id=role_id)

    async def of_group(self, org_id: UUID, group_id: UUID) -> list[authorization.RoleOfUser]:
        sql = """
            select v.slug, v.name, r.slug, r.name, r.permissions, j.assigned_at, null
            from service_role_groups j join service_roles r on r.id = j.role_id and r.org_id = j.org_id
            join services v on v.org_id = r.org_id and v.id = r.service_id
            where j.org_id = %(org_id)s and j.group_id = %(group_id)s order by v.slug, r.slug"""
        return await self._all(to_role_of_user, sql, org_id=org_id, group_id=group_id)

    async def add_group(self, org_id: UUID, service_id: UUID, role_id: UUID, group_id: UUID, now: datetime) -> bool:
        sql = """
            insert into service_role_groups (org_id, service_id, role_id, group_id, assigned_at)
            values (%(org_id)s, %(service_id)s, %(role_id)s, %(group_id)s, %(now)s) on conflict do nothing returning 1"""
        return await self._exists(sql, org_id=org_id, service_id=service_id, role_id=role_id, group_id=group_id, now=now)

    async def remove_group(self, org_id: UUID, role_id: UUID, group_id: UUID) -> bool:
        sql = """
            delete from service_role_groups
            where org_id = %(org_id)s and role_id = %(role_id)s and group_id = %(group_id)s returning 1"""
        return await self._exists(sql, org_id=org_id, role_id=role_id, group_id=group_id)


def role_sources(org_id: LiteralString, user_id: LiteralString, service_id: LiteralString | None = None) -> LiteralString:
    """Return a query for this user's roles at this service, or at all services in the organization.

    The columns are role_id, group_id and assigned_at. A role has a row per group that gives it, and a row without a group if the user has
    it alone. A database function has the query for a single service, because `application_facts` needs it, too.
    """
    if service_id is not None:
        return f"select * from service_roles_of({org_id}, {user_id}, {service_id})"
    assert user_id[:2] not in ("h.", "i.", "j.", "m.", "e."), "a subquery has a table with this alias"
    return f"""
        select h.role_id, null::uuid as group_id, h.assigned_at from service_role_users h
        where h.user_id = {user_id} and h.org_id = {org_id}
        union all
        select j.role_id, j.group_id, j.assigned_at
        from group_members i join service_role_groups j on j.group_id = i.group_id and j.org_id = i.org_id
        where i.org_id = {org_id} and i.user_id = {user_id} and {is_of_organization("i.org_id", "i.user_id")}"""
