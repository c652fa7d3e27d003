"""API keys and SCIM tokens that a service account created."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine.statements import Repository, Row
from core.accounts.model.email_queue import CreatedSecret, NoticedSecret

OF_CREATOR: Final = "org_id = %(org_id)s and created_by = %(creator_id)s"


def to_created_secret(row: Row) -> CreatedSecret:
    return CreatedSecret(NoticedSecret(row[0]), *row[1:5])


class CreatedSecrets(Repository):
    """Implements `ports.storage.programs.CreatedSecrets`."""

    async def of_creator(self, org_id: UUID, creator_id: UUID, now: datetime) -> list[CreatedSecret]:
        sql = f"""
            select 'api_key', k.id, k.name, k.prefix, v.name, k.created_at
            from (select * from api_keys where {OF_CREATOR}) k join services v on v.id = k.service_id and v.org_id = k.org_id
            where k.expires_at is null or k.expires_at > %(now)s
            union all
            select 'scim_token', id, name, prefix, null, created_at from scim_tokens
            where {OF_CREATOR} and (expires_at is null or expires_at > %(now)s)
            order by 6, 2"""
        return await self._all(to_created_secret, sql, org_id=org_id, creator_id=creator_id, now=now)

    async def has_creator(self, org_id: UUID, creator_id: UUID) -> bool:
        # The audit log is kept forever, so it has those that were deleted.
        sql = """
            select 1 where exists (select from service_accounts where org_id = %(org_id)s and id = %(creator_id)s)
                or exists (select from audit_log
                           where org_id = %(org_id)s and target_type = 'service_account' and target_id = %(target_id)s)"""
        return await self._exists(sql, org_id=org_id, creator_id=creator_id, target_id=str(creator_id))

    async def end(self, org_id: UUID, creator_id: UUID) -> list[CreatedSecret]:
        sql = f"""
            with keys as (delete from api_keys where {OF_CREATOR} returning id, name, prefix, service_id),
            tokens as (delete from scim_tokens where {OF_CREATOR} returning id, name, prefix)
            select 'api_key', k.id, k.name, k.prefix, v.name from keys k join services v on v.id = k.service_id and v.org_id = %(org_id)s
            union all select 'scim_token', id, name, prefix, null from tokens"""
        return await self._all(to_created_secret, sql, org_id=org_id, creator_id=creator_id)
