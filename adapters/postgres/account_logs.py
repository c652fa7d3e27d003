"""The logs about an account: second factors and privacy."""

from collections.abc import Callable
from typing import LiteralString, TypeVar
from uuid import UUID

from adapters.postgres.engine.statements import Repository, Row
from core.eventing.model.audit import DELETED_ACCOUNT, AuditActor
from core.kernel.values import Page, PageResult
from core.privacy.model.personal_data import MAX_LISTED, MfaLogEntry, PrivacyLogEntry

T = TypeVar("T")


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
        entries = """
            select l.id, l.event_type, l.success, l.created_at, l.address, l.agent, l.reason,
                   l.actor_id, a.email, a.is_platform_owner, l.impersonator_id, i.email, i.is_platform_owner
            from page l left join users a on a.id = l.actor_id left join users i on i.id = l.impersonator_id"""
        return await self._page_of("mfa_events", entries, to_mfa_log_entry, user_id, page)

    async def privacy(self, user_id: UUID, page: Page) -> PageResult[PrivacyLogEntry]:
        entries = """
            select l.id, l.event_type, l.created_at, l.address, l.agent, l.actor_id, a.email, a.is_platform_owner
            from page l left join users a on a.id = l.actor_id"""
        return await self._page_of("privacy_log", entries, to_privacy_log_entry, user_id, page)

    async def _page_of(
        self, table: LiteralString, entries: LiteralString, to_entry: Callable[[Row], T], user_id: UUID, page: Page
    ) -> PageResult[T]:
        count = f"select count(*) from (select from {table} where user_id = %(user_id)s limit %(most)s) counted"
        total = await self._count(count, user_id=user_id, most=MAX_LISTED)
        if page.offset >= total:
            return PageResult([], total)
        sql = f"""
            with page as (
                select * from {table} where user_id = %(user_id)s order by created_at desc, id desc limit %(limit)s offset %(offset)s)
            {entries} order by l.created_at desc, l.id desc"""
        return PageResult(await self._all(to_entry, sql, user_id=user_id, limit=page.limit, offset=page.offset), total)
