"""Service API keys."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.applications.services import CONTEXT
from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Repository
from core.applications.model import api_keys
from core.kernel.roles import Permission
from core.kernel.values import PageResult

API_KEY: Final = Record(api_keys.ApiKey, "k", permissions=lambda names: tuple(map(Permission, names)))
INSERT: Final = API_KEY.insert("api_keys", "key_hash")
API_KEY_RECORD: Final = Record(
    api_keys.ApiKeyRecord, "k", key_id="k.id", permissions=lambda names: frozenset(map(Permission, names)), service=CONTEXT.as_field()
)
KEY_IS_LIVE: Final = "(k.expires_at is null or k.expires_at > %(now)s)"
OF_THE_SERVICE: Final = "k.org_id = %(org_id)s and k.service_id = %(service_id)s"


class ApiKeys(Repository):
    """Implements `ports.storage.applications.services.ApiKeys` and `ApiKeyUse`."""

    async def by_hash(self, key_hash: bytes, now: datetime) -> api_keys.ApiKeyRecord | None:
        sql = f"""
            select {API_KEY_RECORD.columns}
            from api_keys k join services v on v.id = k.service_id join organizations vo on vo.id = v.org_id
            where k.key_hash = %(key_hash)s and {KEY_IS_LIVE}"""
        return await self._one(API_KEY_RECORD.read, sql, key_hash=key_hash, now=now)

    async def is_live(self, service_id: UUID, key_id: UUID, now: datetime) -> bool:
        sql = """
            select 1 from api_keys
            where id = %(key_id)s and service_id = %(service_id)s and (expires_at is null or expires_at > %(now)s)"""
        return await self._exists(sql, service_id=service_id, key_id=key_id, now=now)

    async def page(self, org_id: UUID, service_id: UUID, limit: int, offset: int) -> PageResult[api_keys.ApiKey]:
        # The outer join returns a single row with the total if the page is empty.
        sql = f"""
            select counted.total, {API_KEY.columns}
            from (select count(*) as total from api_keys k where {OF_THE_SERVICE}) counted
            left join (select {API_KEY.columns} from api_keys k where {OF_THE_SERVICE}
                       order by k.created_at desc, k.id desc limit %(limit)s offset %(offset)s) k on true
            order by k.created_at desc, k.id desc"""
        return await self._page(API_KEY.read, sql, org_id=org_id, service_id=service_id, limit=limit, offset=offset)

    async def by_id(self, org_id: UUID, service_id: UUID, key_id: UUID) -> api_keys.ApiKey | None:
        sql = f"select {API_KEY.columns} from api_keys k where {OF_THE_SERVICE} and k.id = %(key_id)s"
        return await self._one(API_KEY.read, sql, org_id=org_id, service_id=service_id, key_id=key_id)

    async def add(self, key: api_keys.ApiKey, key_hash: bytes) -> None:
        await self._run(INSERT, **API_KEY.values(key), key_hash=key_hash)

    async def remove(self, org_id: UUID, service_id: UUID, key_id: UUID) -> None:
        sql = f"delete from api_keys k where {OF_THE_SERVICE} and k.id = %(key_id)s"
        await self._run(sql, org_id=org_id, service_id=service_id, key_id=key_id)

    async def record_use(self, key_id: UUID, now: datetime, before: datetime) -> None:
        sql = "update api_keys set last_used_at = %(now)s where id = %(key_id)s and (last_used_at is null or last_used_at <= %(before)s)"
        await self._run(sql, key_id=key_id, now=now, before=before)
