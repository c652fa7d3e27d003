"""Tokens that an organization gives to programs, stored as hashes."""

from typing import Any, Generic, LiteralString, TypeVar
from uuid import UUID

from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Repository

T = TypeVar("T")


class OrganizationTokens(Repository, Generic[T]):
    """Implements `ports.storage.kernel.OrganizationTokens`. `record` has the columns in `table` with the alias `t`."""

    table: LiteralString
    record: Record[Any]

    async def of_org(self, org_id: UUID) -> list[T]:
        sql = f"select {self.record.columns} from {self.table} t where t.org_id = %(org_id)s order by t.created_at, t.id"
        return await self._all(self.record.read, sql, org_id=org_id)

    async def by_id(self, org_id: UUID, token_id: UUID) -> T | None:
        sql = f"select {self.record.columns} from {self.table} t where t.org_id = %(org_id)s and t.id = %(token_id)s"
        return await self._one(self.record.read, sql, org_id=org_id, token_id=token_id)

    async def add(self, token: T, token_hash: bytes) -> None:
        await self._run(self.record.insert(self.table, "token_hash"), **self.record.values(token), token_hash=token_hash)

    async def remove(self, org_id: UUID, token_id: UUID) -> None:
        await self._run(f"delete from {self.table} where org_id = %(org_id)s and id = %(token_id)s", org_id=org_id, token_id=token_id)
