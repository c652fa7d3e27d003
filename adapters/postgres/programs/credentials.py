"""Credentials for service accounts and API resources: storing them, and checking and counting them in a single statement."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.engine import records, statements
from adapters.postgres.kernel.rate_limits import charge_parameters, charge_sql
from adapters.postgres.kernel.roles import member_rights_array
from adapters.postgres.programs import service_accounts
from adapters.postgres.programs.api_resources import PROGRAM_GRANTS, is_active
from adapters.postgres.programs.service_accounts import GOES_ON, JOIN_OWNER, JOINED_MAY_ACT_NOW, MAY_ACT_NOW, RIGHTS
from core.accounts.model.email_queue import EndedCredential
from core.kernel.api_scopes import ApiScope
from core.kernel.callers import OrganizationStatus
from core.kernel.claims import ProgramClaims
from core.kernel.rate_limits import Bucket
from core.kernel.roles import Rights, RoleName
from core.kernel.values import Email
from core.programs.model import credentials as credentials_model

CREDENTIAL: Final = records.Record(
    credentials_model.Credential,
    "c",
    kind=credentials_model.CredentialKind,
    public_key=records.Column(write=lambda key: Jsonb(dict(key))),
    trust=records.Record(credentials_model.PipelineTrust, "c").as_field(if_any="issuer"),
)
INSERT: Final = CREDENTIAL.insert("credentials", "secret_hash")
ENDED: Final = records.Record(
    EndedCredential,
    "e",
    is_account="a.id is not null",
    holder="coalesce(a.name, r.name)",
    organization="o.name",
    org_slug="o.slug",
    recipient=records.Column(sql="u.email", read=Email),
)
# The recipient is a service account's owner, or for an API resource the organization's owner. If the user who made the credential owned the
# service account, it has stopped, so the organization's owner hears of it.
SELECT_ENDED: Final = f"""
    select {ENDED.columns}
    from ended e
    left join service_accounts a on a.id = e.client_id
    left join api_resources r on r.id = e.client_id
    left join organizations o on o.id = e.org_id
    left join memberships w on w.org_id = e.org_id and w.role = 'owner'
    left join users u on u.id = case when a.owner_id <> e.created_by then a.owner_id else w.user_id end
        and u.id <> e.created_by and u.deactivated_at is null and u.anonymized_at is null and u.email_verified_at is not null
    where coalesce(a.name, r.name) is not null
    order by e.created_at, e.id"""
OF_CLIENT: Final = "c.org_id is not distinct from %(org_id)s and c.client_id = %(client_id)s"


class Credentials(statements.Repository):
    """Implements `ports.storage.programs.Credentials`."""

    async def of_client(self, org_id: UUID | None, client_id: UUID) -> list[credentials_model.Credential]:
        sql = f"select {CREDENTIAL.columns} from credentials c where {OF_CLIENT} order by c.created_at desc, c.id desc"
        return await self._all(CREDENTIAL.read, sql, org_id=org_id, client_id=client_id)

    async def by_id(self, org_id: UUID | None, client_id: UUID, credential_id: UUID) -> credentials_model.Credential | None:
        sql = f"select {CREDENTIAL.columns} from credentials c where {OF_CLIENT} and c.id = %(credential_id)s"
        return await self._one(CREDENTIAL.read, sql, org_id=org_id, client_id=client_id, credential_id=credential_id)

    async def add(self, credential: credentials_model.Credential, secret_hash: bytes | None) -> None:
        await self._run(INSERT, **CREDENTIAL.values(credential), secret_hash=secret_hash)

    async def end_created_by(
        self, user_id: UUID, org_id: UUID | None, now: datetime, *, everywhere: bool, of_roles: Collection[RoleName] | None = None
    ) -> list[EndedCredential]:
        sql = f"""
            with ended as (
                delete from credentials c
                where c.created_by = %(user_id)s and (%(everywhere)s or c.org_id is not distinct from %(org_id)s)
                  and (%(of_roles)s::text[] is null or exists (
                      select from service_accounts a where a.id = c.client_id and a.org_id = c.org_id and a.role = any(%(of_roles)s)))
                  and not exists (
                      select from service_accounts a
                      where a.id = c.client_id and a.owner_id = c.created_by and a.ends_at > %(now)s and {GOES_ON})
                returning c.*) {SELECT_ENDED}"""
        roles = None if of_roles is None else list(of_roles)
        return await self._all(ENDED.read, sql, user_id=user_id, org_id=org_id, now=now, everywhere=everywhere, of_roles=roles)

    async def end_of_former_owner(self, org_id: UUID | None, account_id: UUID, owner_id: UUID, ends_at: datetime) -> None:
        sql = """
            update credentials set expires_at = least(expires_at, %(ends_at)s)
            where org_id is not distinct from %(org_id)s and client_id = %(account_id)s and created_by = %(owner_id)s"""
        await self._run(sql, org_id=org_id, account_id=account_id, owner_id=owner_id, ends_at=ends_at)

    async def end_created_by_others(self, org_id: UUID, account_id: UUID, rights: Rights) -> list[EndedCredential]:
        sql = f"""
            with ended as (
                delete from credentials c
                where c.org_id = %(org_id)s and c.client_id = %(account_id)s
                  and not exists (select from service_accounts a where a.id = c.client_id and a.ends_at is not null)
                  and not exists (
                    select from memberships m join users u on u.id = m.user_id and u.deactivated_at is null
                    where m.org_id = c.org_id and m.user_id = c.created_by and {member_rights_array("m")} @> %(rights)s)
                returning c.*) {SELECT_ENDED}"""
        return await self._all(ENDED.read, sql, org_id=org_id, account_id=account_id, rights=sorted(rights))

    async def remove(self, org_id: UUID | None, client_id: UUID, credential_id: UUID) -> None:
        sql = f"delete from credentials c where {OF_CLIENT} and c.id = %(credential_id)s"
        await self._run(sql, org_id=org_id, client_id=client_id, credential_id=credential_id)


# In the order that `to_program_client` reads. A service account that is not live is no client.
PROGRAM_COLUMNS: Final = f"""
    c.id as credential_id, c.client_id, a.id is not null as is_account, o.id as org_id, o.slug, o.status, a.scopes,
    case when w.may_own then c.expires_at else least(c.expires_at, a.ends_at) end as expires_at, {RIGHTS}"""
PROGRAM_WIDTH: Final = 8 + service_accounts.RIGHTS_WIDTH
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


def to_program_client(row: statements.Row, wait: float | None = None) -> credentials_model.ProgramClient:
    credential_id, client_id, is_account, org_id, slug, status, scopes, expires_at, *rights = row[:PROGRAM_WIDTH]
    return credentials_model.ProgramClient(
        kind=credentials_model.ProgramKind.SERVICE_ACCOUNT if is_account else credentials_model.ProgramKind.API_RESOURCE,
        client_id=client_id,
        credential_id=credential_id,
        org_id=org_id,
        org_slug=slug,
        status=None if status is None else OrganizationStatus(status),
        rights=None if rights[0] is None else service_accounts.to_account_rights(tuple(rights)),
        scopes=None if scopes is None else frozenset(ApiScope(scope) for scope in scopes),
        wait=wait,
        expires_at=expires_at,
    )


def to_stored_credential(row: statements.Row) -> credentials_model.StoredCredential:
    public_key, issuer, audience, subject = row[PROGRAM_WIDTH:]
    trust = None if issuer is None else credentials_model.PipelineTrust(issuer, audience, subject)
    return credentials_model.StoredCredential(to_program_client(row), public_key, trust)


class ProgramClients(statements.Repository):
    """Implements `ports.storage.programs.ProgramClients`."""

    async def by_secret(
        self, client_id: UUID, secret_hashes: Sequence[bytes], buckets: tuple[Bucket, ...], now: datetime
    ) -> credentials_model.ProgramClient | None:
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
            before=now - credentials_model.LAST_USED_PRECISION,
            **charge_parameters(f"client {client_id}", buckets, now),
        )

    async def credentials(self, client_id: UUID, now: datetime) -> list[credentials_model.StoredCredential]:
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
            before=now - credentials_model.LAST_USED_PRECISION,
            **charge_parameters(f"client {client_id}", buckets, now),
        )
