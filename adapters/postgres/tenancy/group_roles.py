"""The roles that organizations' groups give to their members."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine.records import Column, Record
from adapters.postgres.engine.statements import Repository
from adapters.postgres.kernel.roles import own_rights_columns, rights_array, to_array, to_rights
from adapters.postgres.tenancy.groups import MAPS_OTHERS
from core.kernel.roles import MEMBER, OWNER, ROLES, Authority, RoleName, custom_rights
from core.tenancy.model.group_roles import GroupMapping
from core.tenancy.model.groups import Group

# For a group `g`, in the organization `o`. `m` is the usable and confirmed member who gave the group the role.
MAPPING: Final = Record(
    GroupMapping,
    "g",
    group_id="g.id",
    group_name="g.name",
    # A later release may have stored another role, which gives nothing here.
    rights=Column(sql=f"coalesce({rights_array('g')}, '{{}}')", read=custom_rights),
    of_directory="g.scim_token_id is not null",
    mapper_rights=own_rights_columns("m", "o"),
    mapper_groups=Column(
        sql="""
            array(
                select i.group_id from group_members i join groups h on h.id = i.group_id and h.org_id = i.org_id
                where i.org_id = m.org_id and i.user_id = m.user_id and h.role is not null and h.mapping_stopped_at is null
                  and not w.is_platform_owner)""",
        read=frozenset,
    ),
)
# For the members in some groups, or with a certain own role. Rights by own roles and rights by groups with roles are separate: a caller
# with power over all these rights has power over all members. A group can have very many members, so a single member is enough per role,
# and per group with a role. The owner has all rights. Keep the scalar subqueries, the single-role range and the order: without them, the
# planner reads all members.
_IN_GROUPS: Final = """
    (select i.added_at from group_members i where i.group_id = any(%(group_ids)s::uuid[]) and i.user_id = m.user_id limit 1)"""

AUTHORITIES: Final = f"""
    select {own_rights_columns("m", "o").sql}, true
    from (select unnest({to_array(ROLES)}) as name
          union all select slug from organization_roles where org_id = %(org_id)s) r
    cross join lateral (
        select m.role, m.role_id from memberships m
        where m.org_id = %(org_id)s and m.role >= r.name and m.role <= r.name
          and (r.name = %(role)s::text or cardinality(%(group_ids)s::uuid[]) > 0) and (r.name = %(role)s::text or {_IN_GROUPS} is not null)
        order by m.role, m.created_at, m.id limit 1) m
    join organizations o on o.id = %(org_id)s
    union all
    select {own_rights_columns("g", "o").sql}, false
    from organizations o join groups g on g.org_id = o.id and g.role is not null and g.mapping_stopped_at is null
    where o.id = %(org_id)s and o.maps_groups and (
        cardinality(%(group_ids)s::uuid[]) > 0 and exists (
            select from group_members m
            where m.org_id = g.org_id and m.group_id = g.id and {_IN_GROUPS} is not null
              and (select h.role from memberships h
                   where h.org_id = m.org_id and h.user_id = m.user_id and h.confirmed_at is not null) <> '{OWNER}'
              and not (select u.is_platform_owner from users u where u.id = m.user_id))
        or exists (
            select from memberships h join group_members m on m.group_id = g.id and m.user_id = h.user_id
            where h.org_id = g.org_id and h.role = %(role)s::text and h.confirmed_at is not null and h.role <> '{OWNER}'
              and not (select u.is_platform_owner from users u where u.id = h.user_id)))"""
# The users who have given something that ends with their rights
GIVERS: Final = """
    select i.invited_by as user_id from invitations i where i.org_id = %(org_id)s and i.status = 'pending'
    union select a.owner_id from service_accounts a where a.org_id = %(org_id)s
    union select c.created_by from credentials c where c.org_id = %(org_id)s"""


class GroupRoles(Repository):
    """Implements `ports.storage.tenancy.groups.GroupRoles`."""

    async def save(self, group: Group) -> None:
        given = "maps as (update organizations set maps_groups = true where id = %(org_id)s and not maps_groups)"
        sql = f"""
            with {MAPS_OTHERS if group.role is None else given}
            update groups set role = %(role)s, mapped_by = %(mapped_by)s, mapped_at = %(mapped_at)s, mapping_stopped_at = null
            where org_id = %(org_id)s and id = %(group_id)s"""
        await self._run(sql, org_id=group.org_id, group_id=group.id, role=group.role, mapped_by=group.mapped_by, mapped_at=group.mapped_at)

    async def active(self, org_id: UUID) -> Sequence[GroupMapping]:
        sql = f"""
            select {MAPPING.columns}
            from organizations o join groups g on g.org_id = o.id and g.role is not null and g.mapping_stopped_at is null
            left join (
                memberships m join users w on w.id = m.user_id and w.deactivated_at is null and w.anonymized_at is null)
              on m.org_id = g.org_id and m.user_id = g.mapped_by and m.confirmed_at is not null
            where o.id = %(org_id)s and o.maps_groups order by g.id"""
        return await self._all(MAPPING.read, sql, org_id=org_id)

    async def stop(self, org_id: UUID, group_ids: Collection[UUID], now: datetime) -> None:
        sql = "update groups set mapping_stopped_at = %(now)s where org_id = %(org_id)s and id = any(%(group_ids)s)"
        await self._run(sql, org_id=org_id, group_ids=list(group_ids), now=now)

    async def givers(self, org_id: UUID, user_ids: Collection[UUID]) -> Sequence[UUID]:
        sql = f"select user_id from ({GIVERS}) given where user_id = any(%(user_ids)s) order by user_id"
        return await self._all(lambda row: row[0], sql, org_id=org_id, user_ids=list(user_ids))

    async def givers_in(self, org_id: UUID, group_ids: Collection[UUID]) -> Sequence[UUID]:
        # A group's members can be very many, but the users who have given something are few.
        sql = f"""
            select given.user_id from ({GIVERS}) given
            where exists (
                select from group_members m
                where m.org_id = %(org_id)s and m.user_id = given.user_id and m.group_id = any(%(group_ids)s))
            order by given.user_id"""
        return await self._all(lambda row: row[0], sql, org_id=org_id, group_ids=list(group_ids))

    async def authorities(self, org_id: UUID, group_ids: Collection[UUID], *, role: RoleName | None = None) -> Sequence[Authority]:
        return await self._all(
            lambda row: Authority(row[0] if row[3] else MEMBER, to_rights(row[:3])),
            AUTHORITIES,
            org_id=org_id,
            group_ids=list(group_ids),
            role=role,
        )
