"""Storage for the sessions in an organization and its services."""

from collections.abc import Collection
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.applications.service_access import may_use
from adapters.postgres.authentication.live_sessions import SESSION_NOT_ENDED
from adapters.postgres.authentication.sessions import DENY, HAS_REQUIRED_FACTOR, NOT_OF_PERSONAL_TOKEN
from adapters.postgres.engine.statements import Repository
from core.tenancy.model.members import LiveSessions

# The sessions that selected the organization, and its services' sessions. Deleted services have no
# live sessions. ACCOUNT_IS_USABLE and MAY_IMPERSONATE are missing, because these sessions are only
# ended and counted.
LIVES_IN_ORGANIZATION: Final = f"""
    s.org_id = %(org_id)s and {SESSION_NOT_ENDED}
    and (s.service_id is null or exists (select 1 from services v where v.id = s.service_id))"""


def consented(row: LiteralString) -> LiteralString:
    """Return an SQL condition: the user agreed to this session, code or device code, and it is for this API resource, if any."""
    return f"""
        ({row}.api_resource_id = %(resource_id)s
         or %(resource_id)s::uuid is null and ({row}.scope is not null or {row}.api_resource_id is not null))"""


class OrganizationSessions(Repository):
    """Implements `ports.storage.authentication.sessions.OrganizationSessions`."""

    async def count_live(self, org_id: UUID, user_id: UUID, now: datetime) -> LiveSessions:
        sql = f"""
            select count(*), max(s.created_at) from sessions s
            where {LIVES_IN_ORGANIZATION} and s.user_id = %(user_id)s and {NOT_OF_PERSONAL_TOKEN}"""
        counts = await self._one(lambda row: LiveSessions(*row), sql, org_id=org_id, user_id=user_id, now=now)
        assert counts is not None, "count(*) always returns a row"
        return counts

    async def end(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> int:
        # Keep the codes that were exchanged, so that a second use still ends the session (security
        # O-4).
        sql = f"""
            with codes as (
                delete from authorization_codes where org_id = %(org_id)s and user_id = any(%(user_ids)s) and session_id is null),
            approvals as ({DENY} and d.org_id = %(org_id)s and a.user_id = any(%(user_ids)s)),
            sign_ons as (
                update sign_in_flows set user_id = null, session_id = null, ticket_hash = null
                where org_id = %(org_id)s and user_id = any(%(user_ids)s) and ticket_hash is not null),
            ended as (
                update sessions s set ended_at = %(now)s where {LIVES_IN_ORGANIZATION} and s.user_id = any(%(user_ids)s)
                returning s.personal_token)
            select count(*) from ended s where {NOT_OF_PERSONAL_TOKEN}"""
        return await self._count(sql, org_id=org_id, user_ids=list(user_ids), now=now)

    async def end_consented(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime, resource_id: UUID | None = None) -> None:
        # Keep the codes that were exchanged, as in `end`.
        sql = f"""
            with codes as (
                delete from authorization_codes c
                where c.org_id = %(org_id)s and c.service_id = %(service_id)s and c.user_id = %(user_id)s
                  and {consented("c")} and c.session_id is null),
            approvals as (
                {DENY} and d.org_id = %(org_id)s and d.service_id = %(service_id)s
                and {consented("d")} and a.user_id = %(user_id)s)
            update sessions s set ended_at = %(now)s
            where s.org_id = %(org_id)s and s.service_id = %(service_id)s and s.user_id = %(user_id)s
              and {consented("s")} and s.ended_at is null"""
        await self._run(sql, org_id=org_id, service_id=service_id, user_id=user_id, resource_id=resource_id, now=now)

    async def end_without_access(
        self, org_id: UUID, service_ids: Collection[UUID], user_ids: Collection[UUID] | None, now: datetime
    ) -> None:
        # Sessions have no index by service, so look them up by user.
        users = "(select user_id from service_users where service_id = v.id)" if user_ids is None else "unnest(%(user_ids)s::uuid[])"
        sql = f"""
            update sessions s set ended_at = %(now)s from services v, lateral {users} r (user_id)
            where v.org_id = %(org_id)s and v.id = any(%(service_ids)s) and s.user_id = r.user_id and s.org_id = v.org_id
              and s.service_id = v.id and s.ended_at is null
              and not ({may_use("v", "r.user_id")} and {HAS_REQUIRED_FACTOR})"""
        users_of = None if user_ids is None else list(user_ids)
        await self._run(sql, org_id=org_id, service_ids=list(service_ids), user_ids=users_of, now=now)
