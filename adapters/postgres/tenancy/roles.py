"""The organizations' roles."""

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar, Final
from uuid import UUID

from adapters.postgres.engine import records, statements
from adapters.postgres.tenancy.groups import GIVERS as GIVERS_OF_ORGANIZATION
from core.kernel import roles
from core.tenancy.model.roles import (
    MAX_HOLDERS,
    HolderKind,
    MemberCount,
    OrganizationRole,
    RoleHolder,
    RoleHolders,
    RoleSlugTaken,
    in_catalog_order,
)


def _to_capabilities(names: Sequence[str]) -> frozenset[roles.Capability]:
    # A later release may have stored further capabilities.
    return frozenset(roles.Capability(name) for name in names if name in roles.CUSTOMIZABLE)


ROLE: Final = records.Record(
    OrganizationRole, "g", slug=roles.RoleName, capabilities=records.Column(read=_to_capabilities, write=in_catalog_order)
)
INSERT: Final = ROLE.insert("organization_roles")
SELECT: Final = f"select {ROLE.columns} from organization_roles g where g.org_id = %(org_id)s"
# A query per kind, so that it uses the index on its role ids.
HOLDERS: Final = f"""
    with held as (
        select 1 as rank, 'member' as kind, m.user_id as id, m.email as name from memberships m
        where m.org_id = %(org_id)s and m.role_id = %(role_id)s
        union all
        select 2, 'invitation', i.id, i.email from invitations i
        where i.org_id = %(org_id)s and i.role_id = %(role_id)s and i.status = 'pending' and i.expires_at > %(now)s
        union all
        select 3, 'service_account', a.id, a.name from service_accounts a
        where a.org_id = %(org_id)s and a.role_id = %(role_id)s
        union all
        select 4, 'group', p.id, p.name from groups p
        where p.org_id = %(org_id)s and p.role_id = %(role_id)s)
    select h.kind, h.id, h.name, c.members, c.invitations, c.service_accounts, c.groups
    from held h cross join (
        select count(*) filter (where rank = 1) as members, count(*) filter (where rank = 2) as invitations,
               count(*) filter (where rank = 3) as service_accounts, count(*) filter (where rank = 4) as groups from held) c
    order by h.rank, h.name, h.id limit {MAX_HOLDERS}"""

_WITH_ROLE: Final = "select a.id from service_accounts a where a.org_id = %(org_id)s and a.role = %(slug)s"
GIVERS: Final = f"""
    select given.user_id from ({GIVERS_OF_ORGANIZATION}) given
    where exists (select from memberships m where m.org_id = %(org_id)s and m.user_id = given.user_id and m.role = %(slug)s)
       or exists (
        select from group_members i join groups p on p.id = i.group_id and p.org_id = i.org_id
        where i.org_id = %(org_id)s and i.user_id = given.user_id and p.role = %(slug)s)
    union
    select m.user_id from memberships m
    where m.org_id = %(org_id)s and m.user_id in (
        select i.invited_by from invitations i where i.org_id = %(org_id)s and i.role = %(slug)s and i.status = 'pending'
        union all select a.owner_id from service_accounts a where a.org_id = %(org_id)s and a.role = %(slug)s
        union all select c.created_by from credentials c where c.org_id = %(org_id)s and c.client_id in ({_WITH_ROLE}))
    order by 1"""


class Roles(statements.Repository):
    """Implements `ports.storage.tenancy.groups.Roles`."""

    constraints: ClassVar = {"organization_roles_key": RoleSlugTaken}

    async def find(self, org_id: UUID, name: str) -> roles.Role | None:
        if (built_in := roles.find_role(name)) is not None:
            return built_in
        own = await self.by_slug(org_id, name)
        return None if own is None else own.role

    async def all(self, org_id: UUID) -> Sequence[roles.Role]:
        return [*roles.ROLES.values(), *(own.role for own in await self.own(org_id))]

    async def own(self, org_id: UUID) -> Sequence[OrganizationRole]:
        return await self._all(ROLE.read, f"{SELECT} order by lower(g.name), g.slug", org_id=org_id)

    async def by_slug(self, org_id: UUID, slug: str) -> OrganizationRole | None:
        return await self._one(ROLE.read, f"{SELECT} and g.slug = %(slug)s", org_id=org_id, slug=slug)

    async def counts(self, org_id: UUID, slug: str | None = None) -> dict[roles.RoleName, MemberCount]:
        own, of_groups = ("", "") if slug is None else ("and role = %(slug)s", "and g.role = %(slug)s")
        sql = f"""
            select role, sum(own)::integer, sum(by_groups)::integer from (
                select role, count(*) as own, 0 as by_groups from memberships where org_id = %(org_id)s {own} group by role
                union all
                select g.role, 0, count(distinct m.user_id)
                from groups g join group_members i on i.group_id = g.id and i.org_id = g.org_id
                join memberships m on m.org_id = i.org_id and m.user_id = i.user_id and m.confirmed_at is not null and m.role <> g.role
                join users u on u.id = m.user_id and not u.is_platform_owner
                where g.org_id = %(org_id)s and g.role is not null and g.mapping_stopped_at is null {of_groups} group by g.role) c
            group by role"""
        return dict(await self._all(lambda row: (roles.RoleName(row[0]), MemberCount(row[1], row[2])), sql, org_id=org_id, slug=slug))

    async def holders(self, org_id: UUID, role_id: UUID, now: datetime) -> RoleHolders:
        rows = await self._rows(HOLDERS, org_id=org_id, role_id=role_id, now=now)
        return _to_holders(rows)

    async def add(self, role: OrganizationRole) -> None:
        await self._run(INSERT, **ROLE.values(role))

    async def save(self, role: OrganizationRole) -> None:
        sql = """
            update organization_roles
            set name = %(name)s, description = %(description)s, capabilities = %(capabilities)s, version = %(version)s,
                updated_at = %(updated_at)s
            where org_id = %(org_id)s and id = %(id)s"""
        await self._run(sql, **ROLE.values(role))

    async def givers(self, org_id: UUID, slug: roles.RoleName) -> Sequence[UUID]:
        return await self._all(lambda row: row[0], GIVERS, org_id=org_id, slug=slug)

    async def replace_of_members(
        self, org_id: UUID, old: roles.RoleName, new: roles.RoleName, *, promoted_by: UUID | None
    ) -> Sequence[UUID]:
        sql = """
            with held as materialized (
                select id from memberships where org_id = %(org_id)s and role = %(old)s order by user_id for no key update)
            update memberships m set role = %(new)s, promoted_by = %(promoted_by)s from held where m.id = held.id returning m.user_id"""
        return await self._all(lambda row: row[0], sql, org_id=org_id, old=old, new=new, promoted_by=promoted_by)

    async def replace_of_invitations(self, org_id: UUID, old: roles.RoleName, new: roles.RoleName) -> None:
        sql = "update invitations set role = %(new)s where org_id = %(org_id)s and role = %(old)s and status = 'pending'"
        await self._run(sql, org_id=org_id, old=old, new=new)

    async def replace_of_groups(
        self, org_id: UUID, old: roles.RoleName, new: roles.RoleName, *, mapped_by: UUID | None, now: datetime
    ) -> None:
        sql = """
            update groups set
                role = %(new)s,
                mapped_by = case when answers then %(mapped_by)s else mapped_by end,
                mapped_at = case when answers then %(now)s else mapped_at end
            from (select g.id, g.mapping_stopped_at is null and %(mapped_by)s::uuid is not null as answers from groups g
                  where g.org_id = %(org_id)s and g.role = %(old)s) held
            where groups.org_id = %(org_id)s and groups.id = held.id"""
        await self._run(sql, org_id=org_id, old=old, new=new, mapped_by=mapped_by, now=now)

    async def remove(self, org_id: UUID, role_id: UUID) -> None:
        sql = """
            with ended as (
                update invitations set role_id = null
                where org_id = %(org_id)s and role_id = %(role_id)s and status <> 'pending' returning 1)
            delete from organization_roles g where g.org_id = %(org_id)s and g.id = %(role_id)s and (select count(*) from ended) >= 0"""
        await self._run(sql, org_id=org_id, role_id=role_id)


def _to_holders(rows: Sequence[statements.Row]) -> RoleHolders:
    counts = rows[0][3:] if rows else (0, 0, 0, 0)
    return RoleHolders(dict(zip(HolderKind, counts, strict=True)), [RoleHolder(HolderKind(row[0]), *row[1:3]) for row in rows])
