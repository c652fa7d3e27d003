"""SCIM tokens, and the last requests with them."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.accounts.accounts import ACCOUNT_IS_USABLE
from adapters.postgres.applications.figures import count_traffic_sql
from adapters.postgres.engine import records, statements
from adapters.postgres.engine.statements import ASYNC_COMMIT
from adapters.postgres.kernel.organization_tokens import OrganizationTokens
from adapters.postgres.kernel.roles import member_rights_array, rights_array
from adapters.postgres.programs.service_accounts import MAY_ACT
from core.kernel.callers import OrganizationStatus
from core.kernel.roles import known_rights
from core.provisioning.model import directories
from core.tenancy.model.groups import DirectoryCreator

TOKEN: Final = records.Record(directories.ScimToken, "t")
SCIM_TOKEN_RECORD: Final = records.Record(
    directories.ScimTokenRecord,
    "t",
    token_id="t.id",  # noqa: S106  (a column)
    org_id="o.id",
    org_slug="o.slug",
    status=records.Column(sql="o.status", read=OrganizationStatus),
    is_expired="coalesce(t.expires_at <= %(now)s, false)",
    has_attributes="exists (select 1 from organization_attributes a where a.org_id = o.id)",
)

# The rights that the creator of the token `t` has, a member or a service account, or null if they act no longer
CREATOR_RIGHTS: Final = f"""
    coalesce(
        (select {member_rights_array("m")} from memberships m join users u on u.id = m.user_id
         where m.org_id = t.org_id and m.user_id = t.created_by and {ACCOUNT_IS_USABLE} and m.confirmed_at is not null),
        (select {rights_array("a")} from service_accounts a where a.org_id = t.org_id and a.id = t.created_by and {MAY_ACT}))"""


class ScimTokens(OrganizationTokens[directories.ScimToken]):
    """Implements the port ScimTokens."""

    table, record = "scim_tokens", TOKEN

    async def by_hash(self, token_hash: bytes, now: datetime) -> directories.ScimTokenRecord | None:
        sql = f"""
            select {SCIM_TOKEN_RECORD.columns} from scim_tokens t join organizations o on o.id = t.org_id
            where t.token_hash = %(token_hash)s"""
        return await self._one(SCIM_TOKEN_RECORD.read, sql, token_hash=token_hash, now=now)

    def is_live(self, org_id: UUID, token_id: UUID, now: datetime, *, creates_groups: bool = False) -> statements.Answer[bool]:
        sql = """
            select 1 from scim_tokens
            where org_id = %(org_id)s and id = %(token_id)s and (expires_at is null or expires_at > %(now)s)
              and (directory_groups or not %(creates_groups)s)"""
        return self._exists(sql, org_id=org_id, token_id=token_id, now=now, creates_groups=creates_groups)

    async def creators(self, org_id: UUID, now: datetime) -> list[DirectoryCreator]:
        sql = f"""
            select t.id, t.name, {CREATOR_RIGHTS} from scim_tokens t
            where t.org_id = %(org_id)s and t.directory_groups and (t.expires_at is null or t.expires_at > %(now)s)
            order by t.created_at, t.id"""
        return await self._all(lambda row: DirectoryCreator(row[0], row[1], known_rights(row[2] or ())), sql, org_id=org_id, now=now)

    async def set_directory_groups(self, org_id: UUID, token_id: UUID, *, directory_groups: bool) -> None:
        sql = "update scim_tokens set directory_groups = %(directory_groups)s where org_id = %(org_id)s and id = %(token_id)s"
        await self._run(sql, org_id=org_id, token_id=token_id, directory_groups=directory_groups)


REQUEST: Final = records.Record(directories.ScimRequest, "r")


class ScimRequests(statements.Repository):
    """Implements the port ScimRequests."""

    async def last(self, org_id: UUID) -> list[directories.ScimRequest]:
        sql = f"select {REQUEST.columns} from scim_requests r where r.org_id = %(org_id)s order by r.id desc limit %(most)s"
        return await self._all(REQUEST.read, sql, org_id=org_id, most=directories.MAX_ENTRIES)

    async def add(self, org_id: UUID, requests: Sequence[directories.ScimRequest]) -> None:
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
        await self._run(sql, org_id=org_id, kept=max(directories.MAX_ENTRIES - len(requests), 0), rows=rows)
