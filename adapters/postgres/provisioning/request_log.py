"""The organizations' last SCIM requests."""

import json
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from adapters.postgres.applications.figures import count_traffic_sql
from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import ASYNC_COMMIT, Repository
from core.provisioning.model.directories import MAX_ENTRIES, ScimRequest

REQUEST: Final = Record(ScimRequest, "r")


class ScimRequests(Repository):
    """Implements the port ScimRequests."""

    async def last(self, org_id: UUID) -> list[ScimRequest]:
        sql = f"select {REQUEST.columns} from scim_requests r where r.org_id = %(org_id)s order by r.id desc limit %(most)s"
        return await self._all(REQUEST.read, sql, org_id=org_id, most=MAX_ENTRIES)

    async def add(self, org_id: UUID, requests: Sequence[ScimRequest]) -> None:
        rows = json.dumps([REQUEST.values(request) for request in requests], default=str)
        # The deletion does not see the new rows, so it leaves room for them. The commit does not
        # wait for the disk: a database crash takes the counts back.
        sql = f"""
            with {ASYNC_COMMIT},
            removed as (
                delete from scim_requests where org_id = %(org_id)s and id <= (
                    select id from scim_requests where org_id = %(org_id)s order by id desc offset %(kept)s limit 1)),
            added as (
                insert into scim_requests (org_id, at, token_id, method, path, attributes, status, scim_type, error)
                select %(org_id)s, r.at, r.token_id, r.method, r.path, r.attributes, r.status, r.scim_type, r.error
                from async_commit cross join jsonb_to_recordset(%(rows)s::jsonb) as r (
                    at timestamptz, token_id uuid, method text, path text, attributes text[], status integer, scim_type text, error text)
                returning org_id, at, case when status < 400 then 'accepted' when status < 500 then 'refused' else 'failed' end as outcome,
                          null::integer as milliseconds)
            {count_traffic_sql("added", "scim")}"""
        await self._run(sql, org_id=org_id, kept=max(MAX_ENTRIES - len(requests), 0), rows=rows)
