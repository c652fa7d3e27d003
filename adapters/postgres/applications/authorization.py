"""Application permissions and roles, and how many users and groups have them."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.engine import statements
from core.applications.model import authorization
from core.kernel.values import Email

# A single statement, so that the version fits the document.
FIND: Final = """
    select v.authorization_version,
        (select jsonb_agg(jsonb_build_array(p.name, p.description))
         from service_permissions p where p.org_id = v.org_id and p.service_id = v.id),
        (select jsonb_agg(jsonb_build_array(r.id, r.slug, r.name, r.description, r.permissions, r.created_at, r.updated_at))
         from service_roles r where r.org_id = v.org_id and r.service_id = v.id)
    from services v where v.org_id = %(org_id)s and v.id = %(service_id)s"""
SAVE: Final = """
    with no_permissions as (
        delete from service_permissions
        where org_id = %(org_id)s and service_id = %(service_id)s and name <> all(%(names)s::text[])),
    no_roles as (
        delete from service_roles
        where org_id = %(org_id)s and service_id = %(service_id)s and slug <> all(%(slugs)s::text[])),
    permissions as (
        insert into service_permissions as p (org_id, service_id, name, description)
        select %(org_id)s, %(service_id)s, each.name, each.description from unnest(%(names)s::text[], %(descriptions)s::text[])
            as each (name, description)
        on conflict (service_id, name) do update set description = excluded.description
        where p.org_id = excluded.org_id and p.description is distinct from excluded.description),
    roles as (
        insert into service_roles as r (id, org_id, service_id, slug, name, description, permissions, created_at, updated_at)
        select each.id, %(org_id)s, %(service_id)s, each.slug, each.name, each.description, each.permissions, %(now)s, %(now)s
        from jsonb_to_recordset(%(roles)s) as each (id uuid, slug text, name text, description text, permissions text[])
        on conflict (service_id, slug) do update set
            name = excluded.name, description = excluded.description, permissions = excluded.permissions, updated_at = excluded.updated_at
        where r.org_id = excluded.org_id
            and (r.name, r.description, r.permissions) is distinct from (excluded.name, excluded.description, excluded.permissions))
    update services set authorization_version = authorization_version + 1
    where org_id = %(org_id)s and id = %(service_id)s
    returning authorization_version"""


FIND_ROLE: Final = """
    select r.id, r.slug, r.name, r.description, r.permissions, r.created_at, r.updated_at
    from service_roles r where r.org_id = %(org_id)s and r.service_id = %(service_id)s and r.slug = %(slug)s"""


def to_stored_role(row: statements.Row) -> authorization.StoredRole:
    id_, slug, name, description, permissions, created_at, updated_at = row
    return authorization.StoredRole(id_, authorization.RoleDefinition(slug, name, description, tuple(permissions)), created_at, updated_at)


def to_authorization(row: statements.Row) -> authorization.ServiceAuthorization:
    version, permissions, roles = row
    declared = sorted((authorization.DeclaredPermission(*permission) for permission in permissions or ()), key=lambda each: each.name)
    stored = sorted((_from_json(*role) for role in roles or ()), key=lambda each: each.definition.slug)
    document = authorization.AuthorizationDocument(tuple(declared), tuple(role.definition for role in stored))
    return authorization.ServiceAuthorization(version, document, tuple(stored))


def _from_json(id_: str, *values: Any) -> authorization.StoredRole:
    *definition, created_at, updated_at = values
    return to_stored_role((UUID(id_), *definition, datetime.fromisoformat(created_at), datetime.fromisoformat(updated_at)))


class Authorizations(statements.Repository):
    """Implements `ports.storage.applications.authorization.Authorizations`."""

    async def find(self, org_id: UUID, service_id: UUID) -> authorization.ServiceAuthorization | None:
        return await self._one(to_authorization, FIND, org_id=org_id, service_id=service_id)

    async def find_role(self, org_id: UUID, service_id: UUID, slug: str) -> authorization.StoredRole | None:
        return await self._one(to_stored_role, FIND_ROLE, org_id=org_id, service_id=service_id, slug=slug)

    async def count_holders(
        self, org_id: UUID, service_id: UUID, slugs: Collection[str] | None = None
    ) -> Mapping[str, authorization.HolderCount]:
        sql = """
            select c.* from (
                select r.slug, (select count(*) from service_role_users h where h.role_id = r.id and h.org_id = r.org_id) as users,
                    (select count(*) from service_role_groups j where j.role_id = r.id and j.org_id = r.org_id) as groups
                from service_roles r where r.org_id = %(org_id)s and r.service_id = %(service_id)s
                    and (%(slugs)s::text[] is null or r.slug = any(%(slugs)s))) c
            where c.users > 0 or c.groups > 0"""
        values = {"org_id": org_id, "service_id": service_id, "slugs": None if slugs is None else list(slugs)}
        return dict(await self._all(lambda row: (row[0], authorization.HolderCount(row[1], row[2])), sql, **values))

    async def application_with_role(self, org_id: UUID, slug: str) -> str | None:
        sql = """
            select v.name from service_roles r join services v on v.id = r.service_id and v.org_id = r.org_id
            where r.org_id = %(org_id)s and r.slug = %(slug)s order by v.name, v.id limit 1"""
        return await self._one(lambda row: row[0], sql, org_id=org_id, slug=slug)

    async def first_holders(self, org_id: UUID, service_id: UUID, role_slugs: Collection[str], limit: int) -> authorization.FirstHolders:
        users = """
            select a.email from (
                select u.user_id, min(u.assigned_at) as since
                from service_roles r join service_role_users u on u.role_id = r.id and u.org_id = r.org_id
                where r.org_id = %(org_id)s and r.service_id = %(service_id)s and r.slug = any(%(role_slugs)s)
                group by u.user_id order by since, user_id limit %(limit)s) h
            join users a on a.id = h.user_id order by h.since, h.user_id"""
        groups = """
            select o.name from groups o where o.org_id = %(org_id)s and o.id in (
                select j.group_id from service_roles r join service_role_groups j on j.role_id = r.id and j.org_id = r.org_id
                where r.org_id = %(org_id)s and r.service_id = %(service_id)s and r.slug = any(%(role_slugs)s))
            order by o.name_key limit %(limit)s"""
        values: dict[str, object] = {"org_id": org_id, "service_id": service_id, "role_slugs": list(role_slugs), "limit": limit}
        return authorization.FirstHolders(
            await self._all(lambda row: Email(row[0]), users, **values), await self._all(lambda row: str(row[0]), groups, **values)
        )

    async def save(
        self, org_id: UUID, service_id: UUID, document: authorization.AuthorizationDocument, role_ids: Mapping[str, UUID], now: datetime
    ) -> int:
        roles: list[dict[str, Any]] = [
            {
                "id": str(role_ids[role.slug]),
                "slug": role.slug,
                "name": role.name,
                "description": role.description,
                "permissions": list(role.permissions),
            }
            for role in document.roles
        ]
        return await self._count(
            SAVE,
            org_id=org_id,
            service_id=service_id,
            names=[permission.name for permission in document.permissions],
            descriptions=[permission.description for permission in document.permissions],
            slugs=[role.slug for role in document.roles],
            roles=Jsonb(roles),
            now=now,
        )
