"""Service accounts and API resources as OAuth clients: their credentials, checked and counted in a single statement."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine.statements import Repository, Row
from adapters.postgres.kernel.rate_limits import charge_parameters, charge_sql
from adapters.postgres.programs.api_resources import PROGRAM_GRANTS, is_active
from adapters.postgres.programs.service_accounts import JOIN_OWNER, JOINED_MAY_ACT_NOW, MAY_ACT_NOW, RIGHTS, RIGHTS_WIDTH, to_account_rights
from core.kernel.api_scopes import ApiScope
from core.kernel.callers import OrganizationStatus
from core.kernel.claims import ProgramClaims
from core.kernel.rate_limits import Bucket
from core.programs.model.credentials import LAST_USED_PRECISION, PipelineTrust, ProgramClient, ProgramKind, StoredCredential

# In the order that `to_program_client` reads. A service account that is not live is no client.
PROGRAM_COLUMNS: Final = f"""
    c.id as credential_id, c.client_id, a.id is not null as is_account, o.id as org_id, o.slug, o.status, a.scopes,
    case when w.may_own then c.expires_at else least(c.expires_at, a.ends_at) end as expires_at, {RIGHTS}"""
PROGRAM_WIDTH: Final = 8 + RIGHTS_WIDTH
PROGRAM_TABLES: Final = f"""
    from credentials c
    left join service_accounts a on a.id = c.client_id {JOIN_OWNER}
    left join api_resources r on r.id = c.client_id
    left join organizations o on o.id = c.org_id
    where c.client_id = %(client_id)s and (c.expires_at is null or c.expires_at > %(now)s)
      and (r.id is not null or {JOINED_MAY_ACT_NOW})"""
# At most one write per minute. The write is part of the statement that authenticates, and locks
# nothing for long.
RECORD_USE: Final = """
    used as (
        update credentials set last_used_at = %(now)s from client
        where credentials.id = client.credential_id and (last_used_at is null or last_used_at <= %(before)s))"""


def to_program_client(row: Row, wait: float | None = None) -> ProgramClient:
    credential_id, client_id, is_account, org_id, slug, status, scopes, expires_at, *rights = row[:PROGRAM_WIDTH]
    return ProgramClient(
        kind=ProgramKind.SERVICE_ACCOUNT if is_account else ProgramKind.API_RESOURCE,
        client_id=client_id,
        credential_id=credential_id,
        org_id=org_id,
        org_slug=slug,
        status=None if status is None else OrganizationStatus(status),
        rights=None if rights[0] is None else to_account_rights(tuple(rights)),
        scopes=None if scopes is None else frozenset(ApiScope(scope) for scope in scopes),
        wait=wait,
        expires_at=expires_at,
    )


def to_stored_credential(row: Row) -> StoredCredential:
    public_key, issuer, audience, subject = row[PROGRAM_WIDTH:]
    trust = None if issuer is None else PipelineTrust(issuer, audience, subject)
    return StoredCredential(to_program_client(row), public_key, trust)


class ProgramClients(Repository):
    """Implements `ports.storage.programs.ProgramClients`."""

    async def by_secret(
        self, client_id: UUID, secret_hashes: Sequence[bytes], buckets: tuple[Bucket, ...], now: datetime
    ) -> ProgramClient | None:
        charged = f", charged as ({charge_sql(len(buckets), 'from client')})" if buckets else ", charged as (select null as wait)"
        return await self._one(
            lambda row: to_program_client(row, row[PROGRAM_WIDTH]),
            f"""
            with client as (select {PROGRAM_COLUMNS} {PROGRAM_TABLES} and c.secret_hash = any(%(secret_hashes)s) limit 1),
            {RECORD_USE} {charged}
            select client.*, charged.wait from client, charged""",
            client_id=client_id,
            secret_hashes=list(secret_hashes),
            now=now,
            before=now - LAST_USED_PRECISION,
            **charge_parameters(f"client {client_id}", buckets, now),
        )

    async def credentials(self, client_id: UUID, now: datetime) -> list[StoredCredential]:
        sql = f"""
            select {PROGRAM_COLUMNS}, c.public_key, c.issuer, c.audience, c.subject {PROGRAM_TABLES} and c.kind <> 'secret'
            order by c.created_at, c.id"""
        return await self._all(to_stored_credential, sql, client_id=client_id, now=now)

    async def is_token_active(self, claims: ProgramClaims, resource_id: UUID | None, now: datetime) -> bool:
        return await self._exists(
            f"""
            with program as (
                select a.id as client_id, a.org_id
                from service_accounts a join credentials c on c.id = %(credential_id)s and c.client_id = a.id
                where a.id = %(client_id)s and (c.expires_at is null or c.expires_at > %(now)s) and {MAY_ACT_NOW}
                union all
                select client_id, org_id from services
                where client_id = %(client_id)s and credential_id = %(credential_id)s and client_secret_hash is not null)
            select 1
            from program p left join organizations o on o.id = p.org_id
            left join (api_resources r join ({PROGRAM_GRANTS}) g on g.org_id = r.org_id and g.resource_id = r.id)
              on r.org_id = p.org_id and r.identifier = %(audience)s and g.client_id = p.client_id and {is_active("r")}
            where (p.org_id is null or o.status = 'active')
              and (%(is_of_platform)s or r.id is not null and g.own_scopes @> %(scope)s)
              and (%(resource_id)s::uuid is null or r.id = %(resource_id)s)""",
            client_id=claims.client_id,
            credential_id=claims.credential_id,
            audience=claims.audience,
            scope=list(claims.scope),
            is_of_platform=claims.is_of_platform,
            resource_id=resource_id,
            now=now,
        )

    async def count_use(self, credential_id: UUID, client_id: UUID, buckets: tuple[Bucket, ...], now: datetime) -> float | None:
        charged = f", charged as ({charge_sql(len(buckets), 'from client')})" if buckets else ", charged as (select null as wait)"
        return await self._one(
            lambda row: row[0],
            f"""
            with client as (select id as credential_id from credentials where id = %(credential_id)s and client_id = %(client_id)s),
            {RECORD_USE} {charged}
            select charged.wait from client, charged""",
            credential_id=credential_id,
            client_id=client_id,
            now=now,
            before=now - LAST_USED_PRECISION,
            **charge_parameters(f"client {client_id}", buckets, now),
        )
