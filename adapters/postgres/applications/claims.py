"""The applications' claims documents."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.engine.statements import Repository
from core.applications.model.claims import StoredClaims


class ServiceClaims(Repository):
    """Implements `ports.storage.applications.services.ServiceClaims`."""

    async def find(self, org_id: UUID, service_id: UUID) -> StoredClaims | None:
        sql = """
            select c.document, v.claims_version, c.changed_at from service_claims c join services v on v.id = c.service_id
            where c.org_id = %(org_id)s and c.service_id = %(service_id)s"""
        return await self._one(lambda row: StoredClaims(*row), sql, org_id=org_id, service_id=service_id)

    async def service_with_source(self, org_id: UUID, source: str) -> str | None:
        sql = """
            select v.name from services v
            left join service_claims c on c.service_id = v.id
            left join saml_configurations s on s.service_id = v.id
            where v.org_id = %(org_id)s and (s.attribute_mapping ? %(source)s or jsonb_path_exists(
                c.document, '$.values.*.sources[*] ? (@ == $source)', jsonb_build_object('source', %(source)s::text)))
            order by v.slug limit 1"""
        return await self._one(lambda row: row[0], sql, org_id=org_id, source=source)

    async def put(self, org_id: UUID, service_id: UUID, document: Mapping[str, Any], sources: Sequence[str], now: datetime) -> int:
        sql = """
            with changed as (
                update services set claims_version = nextval('service_claim_versions')
                where org_id = %(org_id)s and id = %(service_id)s returning id, org_id, claims_version),
            stored as (
                insert into service_claims (service_id, org_id, document, sources, changed_at)
                select id, org_id, %(document)s, %(sources)s::text[], %(now)s from changed
                on conflict (service_id) do update
                set document = excluded.document, sources = excluded.sources, changed_at = excluded.changed_at)
            select claims_version from changed"""
        return await self._count(sql, org_id=org_id, service_id=service_id, document=Jsonb(dict(document)), sources=list(sources), now=now)

    async def remove(self, org_id: UUID, service_id: UUID) -> bool:
        sql = """
            with changed as (
                update services set claims_version = null where org_id = %(org_id)s and id = %(service_id)s and claims_version is not null),
            removed as (
                delete from service_claims where org_id = %(org_id)s and service_id = %(service_id)s returning 1)
            select 1 from removed"""
        return await self._exists(sql, org_id=org_id, service_id=service_id)
