"""The organizations' groups, their members, and the roles that groups give to their members."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.engine import records
from adapters.postgres.engine.statements import Repository
from adapters.postgres.kernel import roles
from adapters.postgres.kernel.roles import own_rights_columns, rights_array, to_array
from core.kernel import values
from core.kernel.roles import MEMBER, OWNER, ROLES, Authority, Capability, Rights, RoleName, custom_rights
from core.tenancy.model import groups

# The token that created the group, or else the directory's oldest token. An expired token counts: it can be replaced.
DIRECTORY: Final = """
    case when g.scim_token_id is not null then (
        select t.name from scim_tokens t where t.org_id = g.org_id and t.directory_groups
        order by t.id = g.scim_token_id desc, t.created_at, t.id limit 1) end"""
GROUP: Final = records.Record(groups.Group, "g", directory=DIRECTORY, role_label=roles.role_label("g"))
INSERT: Final = """
    insert into groups (id, org_id, name, name_key, description, external_id, scim_token_id, created_at, updated_at, members_changed_at)
    values (%(id)s, %(org_id)s, %(name)s, %(name_key)s, %(description)s, %(external_id)s, %(scim_token_id)s, %(created_at)s,
            %(updated_at)s, %(members_changed_at)s)"""
MEMBERS_CHANGED: Final = "update groups set members_changed_at = %(now)s where org_id = %(org_id)s and id = %(group_id)s"
# For the organization, when a group no longer gives a role
MAPS_OTHERS: Final = """
    maps as (
        update organizations o
        set maps_groups = exists (select from groups g where g.org_id = o.id and g.id <> %(group_id)s and g.role is not null)
        where o.id = %(org_id)s and o.maps_groups)"""
OF_GROUP: Final = "org_id = %(org_id)s and group_id = %(group_id)s"


def leave_groups(users: LiteralString) -> LiteralString:
    """Return a statement that removes an organization's former users from its groups.

    `users` is a CTE with the columns org_id and user_id, for users who stopped being end users. Members, and users that
    the directory knows, stay in the groups.
    """
    return f"""
        delete from group_members i using {users} f
        where i.org_id = f.org_id and i.user_id = f.user_id
          and not exists (select 1 from memberships m where m.org_id = f.org_id and m.user_id = f.user_id)
          and not exists (select 1 from scim_users s where s.org_id = f.org_id and s.user_id = f.user_id)"""


class Groups(Repository):
    """Implements `ports.storage.tenancy.groups.Groups`."""

    async def of_org(self, org_id: UUID) -> list[groups.Group]:
        sql = f"select {GROUP.columns} from groups g where g.org_id = %(org_id)s order by g.name_key"
        return await self._all(GROUP.read, sql, org_id=org_id)

    async def page(self, org_id: UUID, page: values.Page, *, search: str | None = None) -> values.PageResult[groups.Group]:
        matching = "and strpos(name_key, %(search)s) > 0" if search else ""
        listed = f"from groups g where org_id = %(org_id)s {matching}"
        return await self._counted_page(GROUP.read, GROUP.columns, listed, "g.name_key", page, org_id=org_id, search=search)

    async def by_id(self, org_id: UUID, group_id: UUID) -> groups.Group | None:
        sql = f"select {GROUP.columns} from groups g where g.org_id = %(org_id)s and g.id = %(group_id)s"
        return await self._one(GROUP.read, sql, org_id=org_id, group_id=group_id)

    async def of_user(self, org_id: UUID, user_id: UUID) -> list[groups.Group]:
        sql = f"""
            select {GROUP.columns} from group_members m join groups g on g.id = m.group_id and g.org_id = m.org_id
            where m.org_id = %(org_id)s and m.user_id = %(user_id)s order by g.name_key"""
        return await self._all(GROUP.read, sql, org_id=org_id, user_id=user_id)

    async def ids(self, org_id: UUID, group_ids: Collection[UUID]) -> set[UUID]:
        sql = "select id from groups where org_id = %(org_id)s and id = any(%(group_ids)s)"
        return set(await self._all(lambda row: UUID(str(row[0])), sql, org_id=org_id, group_ids=list(group_ids)))

    async def count(self, org_id: UUID) -> int:
        return await self._count("select count(*) from groups where org_id = %(org_id)s", org_id=org_id)

    async def members(
        self, org_id: UUID, group_id: UUID, page: values.Page, *, search: str | None = None
    ) -> values.PageResult[groups.MemberOfGroup]:
        # Without a search, the total is the kept count, and only the page's members and the members before them are
        # read. Emails are stored in lower case. strpos needs no escaped wildcards.
        members = "from group_members m join users u on u.id = m.user_id where m.org_id = %(org_id)s and m.group_id = %(group_id)s"
        matching = f"{members} and strpos(u.email, %(search)s) > 0"
        kept: LiteralString = "select member_count as total from groups g where g.org_id = %(org_id)s and g.id = %(group_id)s"
        total = f"select count(*) as total {matching}" if search else kept
        sql = f"""
            select counted.total, p.* from ({total}) counted
            left join (
                select m.user_id, u.email, m.added_at {matching if search else members}
                order by m.user_id limit %(limit)s offset %(offset)s) p on true
            order by p.user_id"""
        return await self._page(
            lambda row: groups.MemberOfGroup(row[0], values.Email(row[1]), row[2]),
            sql,
            org_id=org_id,
            group_id=group_id,
            search=search,
            limit=page.limit,
            offset=page.offset,
        )

    async def member_ids(self, org_id: UUID, group_id: UUID, after: UUID | None, limit: int) -> list[UUID]:
        later = "" if after is None else "and user_id > %(after)s"
        sql = f"select user_id from group_members where {OF_GROUP} {later} order by user_id limit %(limit)s"
        return await self._all(lambda row: row[0], sql, org_id=org_id, group_id=group_id, after=after, limit=limit)

    async def present(self, org_id: UUID, group_id: UUID, user_ids: Collection[UUID] | None) -> set[UUID]:
        those = "" if user_ids is None else "and user_id = any(%(user_ids)s)"
        sql = f"select user_id from group_members where {OF_GROUP} {those}"
        return set(await self._all(lambda row: UUID(str(row[0])), sql, org_id=org_id, group_id=group_id, user_ids=list(user_ids or ())))

    async def rights_given(self, org_id: UUID, group_id: UUID) -> Rights:
        sql = f"""
            select %(roles)s where exists (select from service_role_groups where {OF_GROUP})
            union all select %(access)s where exists (select from service_groups_assigned where {OF_GROUP})
            union all select %(resources)s where exists (select from api_resource_groups_assigned where {OF_GROUP})"""
        rights = {
            "roles": Capability.SERVICE_ROLES_ASSIGN,
            "access": Capability.END_USERS_MANAGE,
            "resources": Capability.RESOURCES_MANAGE,
        }
        return frozenset(await self._all(lambda row: Capability(row[0]), sql, org_id=org_id, group_id=group_id, **rights))

    async def with_members(self, org_id: UUID, user_ids: Collection[UUID]) -> dict[UUID, set[UUID]]:
        sql = """
            select group_id, array_agg(user_id) from group_members
            where org_id = %(org_id)s and user_id = any(%(user_ids)s) group by group_id"""
        return dict(await self._all(lambda row: (row[0], set(row[1])), sql, org_id=org_id, user_ids=list(user_ids)))

    async def same_names(self, org_id: UUID, name_key: str) -> list[tuple[groups.NameKind, UUID]]:
        # Organization and services are compared here: their names have no column for it, and they are few.
        sql = """
            select 'organization', id, name from organizations where id = %(org_id)s
            union all select 'service', id, name from services where org_id = %(org_id)s and access_policy = 'assigned'
            union all select 'group', id, name from groups where org_id = %(org_id)s and name_key = %(name_key)s"""
        rows = await self._all(lambda row: (groups.NameKind(row[0]), row[1], str(row[2])), sql, org_id=org_id, name_key=name_key)
        return [(kind, id_) for kind, id_, name in rows if groups.to_name_key(name) == name_key]

    async def add(self, group: groups.Group) -> None:
        await self._run(INSERT, **GROUP.values(group), name_key=group.name_key)

    async def save(self, group: groups.Group) -> None:
        sql = """
            update groups set name = %(name)s, name_key = %(name_key)s, description = %(description)s, external_id = %(external_id)s,
                updated_at = %(updated_at)s
            where org_id = %(org_id)s and id = %(id)s"""
        await self._run(sql, **GROUP.values(group), name_key=group.name_key)

    async def remove(self, org_id: UUID, group_id: UUID) -> None:
        sql = f"""
            with members as (delete from group_members where {OF_GROUP}), {MAPS_OTHERS}
            delete from groups where org_id = %(org_id)s and id = %(group_id)s"""
        await self._run(sql, org_id=org_id, group_id=group_id)

    async def add_members(self, org_id: UUID, group_id: UUID, user_ids: Collection[UUID], now: datetime) -> set[UUID]:
        await self._write(MEMBERS_CHANGED, org_id=org_id, group_id=group_id, now=now)
        sql = """
            insert into group_members (org_id, group_id, user_id, added_at)
            select %(org_id)s, %(group_id)s, u.id, %(now)s from users u where u.id = any(%(user_ids)s) and u.anonymized_at is null
            on conflict do nothing
            returning user_id"""
        rows = await self._all(lambda row: UUID(str(row[0])), sql, org_id=org_id, group_id=group_id, user_ids=list(user_ids), now=now)
        return set(rows)

    async def remove_members(self, org_id: UUID, group_id: UUID, user_ids: Collection[UUID], now: datetime) -> None:
        await self._write(MEMBERS_CHANGED, org_id=org_id, group_id=group_id, now=now)
        sql = f"delete from group_members where {OF_GROUP} and user_id = any(%(user_ids)s)"
        await self._run(sql, org_id=org_id, group_id=group_id, user_ids=list(user_ids))

    async def remove_former_members(self, org_id: UUID, user_ids: Collection[UUID], *, keep_in_directory: bool = False) -> None:
        by_hand = """
            and exists (select 1 from groups g where g.id = m.group_id and g.org_id = m.org_id and g.scim_token_id is null)"""
        sql = f"""
            delete from group_members m
            where m.org_id = %(org_id)s and m.user_id = any(%(user_ids)s) {by_hand if keep_in_directory else ""}"""
        await self._write(sql, org_id=org_id, user_ids=list(user_ids))


# For a group `g`, in the organization `o`. `m` is the usable and confirmed member who gave the group the role.
MAPPING: Final = records.Record(
    groups.GroupMapping,
    "g",
    group_id="g.id",
    group_name="g.name",
    # A later release may have stored another role, which gives nothing here.
    rights=records.Column(sql=f"coalesce({rights_array('g')}, '{{}}')", read=custom_rights),
    of_directory="g.scim_token_id is not null",
    mapper_rights=own_rights_columns("m", "o"),
    mapper_groups=records.Column(
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

    async def save(self, group: groups.Group) -> None:
        given = "maps as (update organizations set maps_groups = true where id = %(org_id)s and not maps_groups)"
        sql = f"""
            with {MAPS_OTHERS if group.role is None else given}
            update groups set role = %(role)s, mapped_by = %(mapped_by)s, mapped_at = %(mapped_at)s, mapping_stopped_at = null
            where org_id = %(org_id)s and id = %(group_id)s"""
        await self._run(sql, org_id=group.org_id, group_id=group.id, role=group.role, mapped_by=group.mapped_by, mapped_at=group.mapped_at)

    async def active(self, org_id: UUID) -> Sequence[groups.GroupMapping]:
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
            lambda row: Authority(row[0] if row[3] else MEMBER, roles.to_rights(row[:3])),
            AUTHORITIES,
            org_id=org_id,
            group_ids=list(group_ids),
            role=role,
        )
