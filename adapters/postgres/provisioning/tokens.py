"""SCIM tokens."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine.statements import DeferredRow, Repository, Row
from core.kernel.callers import OrganizationStatus
from core.provisioning.model.directories import ScimToken, ScimTokenRecord

# `to_token` reads the columns in this order.
COLUMNS: Final = "id, org_id, name, prefix, expires_at, created_by, created_at"


def to_token(row: Row) -> ScimToken:
    return ScimToken(id=row[0], org_id=row[1], name=row[2], prefix=row[3], expires_at=row[4], created_by=row[5], created_at=row[6])


def to_record(row: Row) -> ScimTokenRecord:
    return ScimTokenRecord(row[0], row[1], row[2], row[3], OrganizationStatus(row[4]), row[5])


class ScimTokens(Repository):
    """Implements the port ScimTokens."""

    async def by_hash(self, token_hash: bytes, now: datetime) -> ScimTokenRecord | None:
        sql = """
            select t.id, t.token_hash, o.id, o.slug, o.status, coalesce(t.expires_at <= %(now)s, false)
            from scim_tokens t join organizations o on o.id = t.org_id
            where t.token_hash = %(token_hash)s"""
        return await self._one(to_record, sql, token_hash=token_hash, now=now)

    async def of_org(self, org_id: UUID) -> list[ScimToken]:
        return await self._all(
            to_token, f"select {COLUMNS} from scim_tokens where org_id = %(org_id)s order by created_at, id", org_id=org_id
        )

    async def by_id(self, org_id: UUID, token_id: UUID) -> ScimToken | None:
        return await self._one(
            to_token, f"select {COLUMNS} from scim_tokens where org_id = %(org_id)s and id = %(token_id)s", org_id=org_id, token_id=token_id
        )

    def is_live_deferred(self, org_id: UUID, token_id: UUID, now: datetime) -> DeferredRow[bool]:
        sql = """
            select exists (
                select 1 from scim_tokens
                where org_id = %(org_id)s and id = %(token_id)s and (expires_at is null or expires_at > %(now)s))"""
        return self._one_deferred(lambda row: bool(row[0]), sql, org_id=org_id, token_id=token_id, now=now)

    async def add(self, token: ScimToken, token_hash: bytes) -> None:
        await self._run(
            """
            insert into scim_tokens (id, org_id, name, prefix, token_hash, expires_at, created_by, created_at)
            values (%(id)s, %(org_id)s, %(name)s, %(prefix)s, %(token_hash)s, %(expires_at)s, %(created_by)s, %(created_at)s)""",
            id=token.id,
            org_id=token.org_id,
            name=token.name,
            prefix=token.prefix,
            token_hash=token_hash,
            expires_at=token.expires_at,
            created_by=token.created_by,
            created_at=token.created_at,
        )

    async def remove(self, org_id: UUID, token_id: UUID) -> None:
        await self._run("delete from scim_tokens where org_id = %(org_id)s and id = %(token_id)s", org_id=org_id, token_id=token_id)
