"""API keys of services."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.applications.services import CONTEXT, to_context
from adapters.postgres.engine.statements import Repository, Row
from core.applications.model.api_keys import ApiKey, ApiKeyRecord
from core.kernel.roles import Permission
from core.kernel.values import PageResult

# In the order in which `to_api_key` reads them
COLUMNS: Final = "k.id, k.org_id, k.service_id, k.name, k.prefix, k.permissions, k.last_used_at, k.expires_at, k.created_by, k.created_at"
OF_THE_SERVICE: Final = "k.org_id = %(org_id)s and k.service_id = %(service_id)s"


def to_api_key(row: Row) -> ApiKey:
    return ApiKey(
        id=row[0],
        org_id=row[1],
        service_id=row[2],
        name=row[3],
        prefix=row[4],
        permissions=tuple(Permission(name) for name in row[5]),
        last_used_at=row[6],
        expires_at=row[7],
        created_by=row[8],
        created_at=row[9],
    )


def to_record(row: Row) -> ApiKeyRecord:
    return ApiKeyRecord(row[0], row[1], frozenset(Permission(name) for name in row[2]), row[3], to_context(row[4:]))


class ApiKeys(Repository):
    """Implements `ports.storage.applications.ApiKeys` and `ApiKeyUse`."""

    async def by_hash(self, key_hash: bytes, now: datetime) -> ApiKeyRecord | None:
        return await self._one(
            to_record,
            f"""
            select k.id, k.key_hash, k.permissions, k.last_used_at, {CONTEXT}
            from api_keys k join services v on v.id = k.service_id join organizations vo on vo.id = v.org_id
            where k.key_hash = %(key_hash)s and (k.expires_at is null or k.expires_at > %(now)s)""",
            key_hash=key_hash,
            now=now,
        )

    async def is_live(self, service_id: UUID, key_id: UUID, now: datetime) -> bool:
        return await self._exists(
            """
            select 1 from api_keys
            where id = %(key_id)s and service_id = %(service_id)s and (expires_at is null or expires_at > %(now)s)""",
            service_id=service_id,
            key_id=key_id,
            now=now,
        )

    async def page(self, org_id: UUID, service_id: UUID, limit: int, offset: int) -> PageResult[ApiKey]:
        # The outer join returns one row with the total if the page is empty.
        rows = await self._all(
            lambda row: row,
            f"""
            select counted.total, {COLUMNS}
            from (select count(*) as total from api_keys k where {OF_THE_SERVICE}) counted
            left join (select {COLUMNS} from api_keys k where {OF_THE_SERVICE}
                       order by k.created_at desc, k.id desc limit %(limit)s offset %(offset)s) k on true
            order by k.created_at desc, k.id desc""",
            org_id=org_id,
            service_id=service_id,
            limit=limit,
            offset=offset,
        )
        return PageResult([to_api_key(row[1:]) for row in rows if row[1] is not None], rows[0][0])

    async def by_id(self, org_id: UUID, service_id: UUID, key_id: UUID) -> ApiKey | None:
        return await self._one(
            to_api_key,
            f"select {COLUMNS} from api_keys k where {OF_THE_SERVICE} and k.id = %(key_id)s",
            org_id=org_id,
            service_id=service_id,
            key_id=key_id,
        )

    async def add(self, key: ApiKey, key_hash: bytes) -> None:
        await self._run(
            """
            insert into api_keys (id, org_id, service_id, name, prefix, key_hash, permissions, last_used_at, expires_at, created_by,
                                  created_at)
            values (%(id)s, %(org_id)s, %(service_id)s, %(name)s, %(prefix)s, %(key_hash)s, %(permissions)s, %(last_used_at)s,
                    %(expires_at)s, %(created_by)s, %(created_at)s)""",
            id=key.id,
            org_id=key.org_id,
            service_id=key.service_id,
            name=key.name,
            prefix=key.prefix,
            key_hash=key_hash,
            permissions=[permission.value for permission in key.permissions],
            last_used_at=key.last_used_at,
            expires_at=key.expires_at,
            created_by=key.created_by,
            created_at=key.created_at,
        )

    async def remove(self, org_id: UUID, service_id: UUID, key_id: UUID) -> None:
        await self._run(
            f"delete from api_keys k where {OF_THE_SERVICE} and k.id = %(key_id)s", org_id=org_id, service_id=service_id, key_id=key_id
        )

    async def record_use(self, key_id: UUID, now: datetime, before: datetime) -> None:
        await self._run(
            "update api_keys set last_used_at = %(now)s where id = %(key_id)s and (last_used_at is null or last_used_at <= %(before)s)",
            key_id=key_id,
            now=now,
            before=before,
        )
