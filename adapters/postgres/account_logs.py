"""The logs about an account: second factors and privacy."""

from typing import Final
from uuid import UUID

from adapters.postgres.engine.statements import Repository, Row
from core.eventing.model.audit import DELETED_ACCOUNT, AuditActor
from core.kernel.values import Page, PageResult
from core.privacy.model.personal_data import MAX_LISTED, MfaLogEntry, PrivacyLogEntry

COUNT: Final = "select count(*) from (select from {} where user_id = %(user_id)s limit %(most)s) counted"
NEWEST: Final = "select * from {} where user_id = %(user_id)s order by created_at desc, id desc limit %(limit)s offset %(offset)s"


def to_mfa_log_entry(row: Row) -> MfaLogEntry:
    id_, event_type, success, at, address, agent, reason = row[:7]
    actor, impersonator = _to_actor(*row[7:10]), _to_actor(*row[10:13])
    return MfaLogEntry(id_, event_type, success, at, address, agent, reason, actor, impersonator)


def to_privacy_log_entry(row: Row) -> PrivacyLogEntry:
    id_, event_type, at, address, agent = row[:5]
    return PrivacyLogEntry(id_, event_type, at, address, agent, _to_actor(*row[5:8]) or DELETED_ACCOUNT)


def _to_actor(user_id: UUID | None, email: str | None, is_platform_owner: bool | None) -> AuditActor | None:
    if user_id is None:
        return None
    return DELETED_ACCOUNT if email is None else AuditActor(str(user_id), email, bool(is_platform_owner))


class AccountLogs(Repository):
    """Implements the port AccountLogsRead."""

    async def mfa(self, user_id: UUID, page: Page) -> PageResult[MfaLogEntry]:
        total = await self._count(COUNT.format("mfa_events"), user_id=user_id, most=MAX_LISTED)
        if page.offset >= total:
            return PageResult([], total)
        sql = f"""
            with page as ({NEWEST.format("mfa_events")})
            select l.id, l.event_type, l.success, l.created_at, l.address, l.agent, l.reason,
                   l.actor_id, a.email, a.is_platform_owner, l.impersonator_id, i.email, i.is_platform_owner
            from page l left join users a on a.id = l.actor_id left join users i on i.id = l.impersonator_id
            order by l.created_at desc, l.id desc"""
        entries = await self._all(to_mfa_log_entry, sql, user_id=user_id, limit=page.limit, offset=page.offset)
        return PageResult(entries, total)

    async def privacy(self, user_id: UUID, page: Page) -> PageResult[PrivacyLogEntry]:
        total = await self._count(COUNT.format("privacy_log"), user_id=user_id, most=MAX_LISTED)
        if page.offset >= total:
            return PageResult([], total)
        sql = f"""
            with page as ({NEWEST.format("privacy_log")})
            select l.id, l.event_type, l.created_at, l.address, l.agent, l.actor_id, a.email, a.is_platform_owner
            from page l left join users a on a.id = l.actor_id
            order by l.created_at desc, l.id desc"""
        entries = await self._all(to_privacy_log_entry, sql, user_id=user_id, limit=page.limit, offset=page.offset)
        return PageResult(entries, total)
