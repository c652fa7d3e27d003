"""Credentials for service accounts and API resources."""

from collections.abc import Collection
from datetime import datetime
from typing import Final
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.engine.records import Column, Record
from adapters.postgres.engine.statements import Repository
from adapters.postgres.kernel.roles import member_rights_array
from adapters.postgres.programs.service_accounts import GOES_ON
from core.accounts.model.secret_notices import EndedCredential
from core.kernel.roles import Rights, RoleName
from core.kernel.values import Email
from core.programs.model.credentials import Credential, CredentialKind, PipelineTrust

CREDENTIAL: Final = Record(
    Credential,
    "c",
    kind=CredentialKind,
    public_key=Column(write=lambda key: Jsonb(dict(key))),
    trust=Record(PipelineTrust, "c").as_field(if_any="issuer"),
)
INSERT: Final = CREDENTIAL.insert("credentials", "secret_hash")
ENDED: Final = Record(
    EndedCredential,
    "e",
    is_account="a.id is not null",
    holder="coalesce(a.name, r.name)",
    organization="o.name",
    org_slug="o.slug",
    recipient=Column(sql="u.email", read=Email),
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


class Credentials(Repository):
    """Implements `ports.storage.programs.Credentials`."""

    async def of_client(self, org_id: UUID | None, client_id: UUID) -> list[Credential]:
        sql = f"select {CREDENTIAL.columns} from credentials c where {OF_CLIENT} order by c.created_at desc, c.id desc"
        return await self._all(CREDENTIAL.read, sql, org_id=org_id, client_id=client_id)

    async def by_id(self, org_id: UUID | None, client_id: UUID, credential_id: UUID) -> Credential | None:
        sql = f"select {CREDENTIAL.columns} from credentials c where {OF_CLIENT} and c.id = %(credential_id)s"
        return await self._one(CREDENTIAL.read, sql, org_id=org_id, client_id=client_id, credential_id=credential_id)

    async def add(self, credential: Credential, secret_hash: bytes | None) -> None:
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
