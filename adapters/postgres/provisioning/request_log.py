"""The last SCIM requests of each organization."""

import json
from collections.abc import Sequence
from uuid import UUID

from adapters.postgres.engine.statements import Repository
from core.provisioning.model.directories import MAX_ENTRIES, ScimRequest


class ScimRequests(Repository):
    """Implements the port ScimRequests."""

    async def last(self, org_id: UUID) -> list[ScimRequest]:
        return await self._all(
            lambda row: ScimRequest(
                at=row[0],
                token_id=row[1],
                method=row[2],
                path=row[3],
                attributes=row[4],
                status=row[5],
                scim_type=row[6],
                error=row[7],
            ),
            """
            select at, token_id, method, path, attributes, status, scim_type, error from scim_requests
            where org_id = %(org_id)s order by id desc limit %(most)s""",
            org_id=org_id,
            most=MAX_ENTRIES,
        )

    async def add(self, org_id: UUID, requests: Sequence[ScimRequest]) -> None:
        rows = [
            {
                "at": request.at.isoformat(),
                "token_id": str(request.token_id),
                "method": request.method,
                "path": request.path,
                "attributes": request.attributes,
                "status": request.status,
                "scim_type": request.scim_type,
                "error": request.error,
            }
            for request in requests
        ]
        # The deletion does not see the new rows, so it leaves room for them.
        sql = """
            with removed as (
                delete from scim_requests where org_id = %(org_id)s and id <= (
                    select id from scim_requests where org_id = %(org_id)s order by id desc offset %(kept)s limit 1))
            insert into scim_requests (org_id, at, token_id, method, path, attributes, status, scim_type, error)
            select %(org_id)s, r.at, r.token_id, r.method, r.path, r.attributes, r.status, r.scim_type, r.error
            from jsonb_to_recordset(%(rows)s::jsonb) as r (
                at timestamptz, token_id uuid, method text, path text, attributes text[], status integer, scim_type text, error text)"""
        await self._run(sql, org_id=org_id, kept=max(MAX_ENTRIES - len(rows), 0), rows=json.dumps(rows))
