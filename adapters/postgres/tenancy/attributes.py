"""The user attributes that organizations declare, and their values."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, LiteralString
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.engine import records, statements
from core.tenancy.model.attributes import (
    MAX_GROUP_BYTES,
    Attribute,
    AttributeKind,
    AttributeMerge,
    AttributeValues,
    AttributeWriter,
    OwnAttributes,
)

ATTRIBUTE: Final = records.Record(
    Attribute,
    "a",
    kind=AttributeKind,
    # A later release may have further kinds.
    writers=records.Column(read=lambda names: tuple(AttributeWriter(name) for name in names if name in [*AttributeWriter])),
    merge=AttributeMerge,
)
INSERT: Final = ATTRIBUTE.insert("organization_attributes")
OVERWRITES: Final = ATTRIBUTE.overwrites(without=("org_id", "name", "kind", "created_at"))
# The organization knows the user as a member or as an end user, or its directory does.
IS_KNOWN: Final = """
    (exists (select 1 from memberships m where m.org_id = %(org_id)s and m.user_id = %(user_id)s for key share)
     or exists (select 1 from end_users e where e.org_id = %(org_id)s and e.user_id = %(user_id)s for key share)
     or exists (select 1 from scim_users s where s.org_id = %(org_id)s and s.user_id = %(user_id)s for key share))"""


def values_of_groups(org_id: LiteralString, user_id: LiteralString) -> LiteralString:
    """Return a subquery with the values that the user's groups have as an array, ordered by group name, or null."""
    return f"""
        (select jsonb_agg(y.attributes order by g.name_key, g.id)
         from group_members i join groups g on g.id = i.group_id and g.org_id = i.org_id join group_attribute_values y on y.group_id = g.id
         where i.org_id = {org_id} and i.user_id = {user_id})"""


class Attributes(statements.Repository):
    """Implements `ports.storage.tenancy.settings.Attributes`."""

    async def list_declared(self, org_id: UUID) -> list[Attribute]:
        sql = f"select {ATTRIBUTE.columns} from organization_attributes a where a.org_id = %(org_id)s order by a.position, a.name"
        return await self._all(ATTRIBUTE.read, sql, org_id=org_id)

    async def of_user(self, org_id: UUID, user_id: UUID) -> AttributeValues:
        sql = f"""
            select x.attributes, {values_of_groups("%(org_id)s", "%(user_id)s")}, {ATTRIBUTE.columns}
            from organization_attributes a left join attribute_values x on x.org_id = a.org_id and x.user_id = %(user_id)s
            where a.org_id = %(org_id)s order by a.position, a.name"""
        rows = await self._rows(sql, org_id=org_id, user_id=user_id)
        return _to_values(rows)

    async def of_group(self, org_id: UUID, group_id: UUID) -> AttributeValues:
        sql = f"""
            select x.attributes, null, {ATTRIBUTE.columns}
            from organization_attributes a left join group_attribute_values x on x.org_id = a.org_id and x.group_id = %(group_id)s
            where a.org_id = %(org_id)s order by a.position, a.name"""
        rows = await self._rows(sql, org_id=org_id, group_id=group_id)
        return replace(_to_values(rows), max_bytes=MAX_GROUP_BYTES)

    async def own(self, user_id: UUID) -> list[OwnAttributes]:
        sql = f"""
            select o.id, o.slug, o.name, x.attributes, {values_of_groups("o.id", "%(user_id)s")}, {ATTRIBUTE.columns}
            from organizations o join organization_attributes a on a.org_id = o.id
            left join attribute_values x on x.org_id = o.id and x.user_id = %(user_id)s
            where o.id = any(array(
                select m.org_id from memberships m where m.user_id = %(user_id)s and m.confirmed_at is not null
                union select e.org_id from end_users e where e.user_id = %(user_id)s))
            order by lower(o.name), o.id, a.position, a.name"""
        by_organization = dict[UUID, list[statements.Row]]()
        for row in await self._rows(sql, user_id=user_id):
            by_organization.setdefault(row[0], []).append(row)
        return [
            OwnAttributes(org_id, rows[0][1], rows[0][2], _to_values([row[3:] for row in rows])) for org_id, rows in by_organization.items()
        ]

    async def put(self, attribute: Attribute) -> None:
        await self._run(f"{INSERT} on conflict (org_id, name) do update set {OVERWRITES}", **ATTRIBUTE.values(attribute))

    async def delete(self, org_id: UUID, name: str) -> None:
        sql = """
            with forgotten as (
                update attribute_values set attributes = attributes - %(name)s where org_id = %(org_id)s and attributes ? %(name)s),
            forgotten_of_groups as (
                update group_attribute_values set attributes = attributes - %(name)s
                where org_id = %(org_id)s and attributes ? %(name)s)
            delete from organization_attributes where org_id = %(org_id)s and name = %(name)s"""
        await self._run(sql, org_id=org_id, name=name)

    async def save_values(self, org_id: UUID, user_id: UUID, values: Mapping[str, Any], now: datetime) -> bool:
        sql = f"""
            insert into attribute_values (org_id, user_id, attributes, changed_at)
            select %(org_id)s, %(user_id)s, %(values)s, %(now)s where {IS_KNOWN}
            on conflict (org_id, user_id) do update set attributes = excluded.attributes, changed_at = excluded.changed_at
            returning 1"""
        return await self._exists(sql, org_id=org_id, user_id=user_id, values=Jsonb(dict(values)), now=now)

    async def save_group_values(self, org_id: UUID, group_id: UUID, values: Mapping[str, Any], now: datetime) -> None:
        sql = """
            insert into group_attribute_values (group_id, org_id, attributes, changed_at)
            select id, org_id, %(values)s, %(now)s from groups where org_id = %(org_id)s and id = %(group_id)s
            on conflict (group_id) do update set attributes = excluded.attributes, changed_at = excluded.changed_at"""
        await self._run(sql, org_id=org_id, group_id=group_id, values=Jsonb(dict(values)), now=now)


def _to_values(rows: list[statements.Row]) -> AttributeValues:
    """Return the attributes in these rows.

    The first column has the user's values, and the second column the values of the user's groups.
    """
    stored, of_groups = (rows[0][0] or {}, rows[0][1] or ()) if rows else ({}, ())
    attributes = [ATTRIBUTE.read(row[2:]) for row in rows]
    return AttributeValues(attributes, {each.name: stored[each.name] for each in attributes if each.name in stored}, of_groups)
