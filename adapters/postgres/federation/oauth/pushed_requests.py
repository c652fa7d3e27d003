"""Storage for pushed authorization requests (RFC 9126)."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine.statements import Repository
from adapters.postgres.federation.oauth.authorization import client_parameters
from core.federation.oauth.model.pushed_requests import StoredRequest

# A request by this client that can still be used. The client is an organization's service, or the platform's frontend,
# where all three ids are null.
LIVE: Final = """
    p.request_hash = %(request_hash)s and p.used_at is null and p.expires_at > %(now)s
    and case when %(client_id)s::uuid is null and %(client_uri)s::text is null then p.service_id is null
        else exists (select 1 from services v where v.id = p.service_id and v.org_id = p.org_id
                       and (v.client_id = %(client_id)s or v.client_uri = %(client_uri)s)) end"""


class PushedRequests(Repository):
    """Implements the protocols for pushed requests in `ports.storage.federation`."""

    async def add(self, request: StoredRequest) -> bool:
        # Lock the service with `for key share`, as for a code: it must not be deleted before this row
        # is committed.
        return await self._exists(
            """
            insert into pushed_requests (request_hash, org_id, service_id, parameters, created_at, expires_at)
            select %(request_hash)s, %(org_id)s, %(service_id)s, %(parameters)s, %(created_at)s, %(expires_at)s
            where %(service_id)s::uuid is null or exists (
                select 1 from services v where v.org_id = %(org_id)s and v.id = %(service_id)s for key share)
            returning 1""",
            request_hash=request.request_hash,
            parameters=request.parameters,
            created_at=request.created_at,
            expires_at=request.expires_at,
            **client_parameters(request.service),
        )

    async def load(self, request_hash: bytes, client_id: UUID | None, now: datetime, client_uri: str | None = None) -> str | None:
        sql = f"select p.parameters from pushed_requests p where {LIVE}"
        return await self._one(lambda row: str(row[0]), sql, request_hash=request_hash, client_id=client_id, client_uri=client_uri, now=now)

    async def use(self, request_hash: bytes, now: datetime) -> bool:
        # The caller has loaded its client's request.
        sql = """
            update pushed_requests set used_at = %(now)s
            where request_hash = %(request_hash)s and used_at is null and expires_at > %(now)s returning 1"""
        return await self._exists(sql, request_hash=request_hash, now=now)
