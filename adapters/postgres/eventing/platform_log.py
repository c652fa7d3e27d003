"""The platform's log: the audit entries without an organization."""

from uuid import UUID

from adapters.postgres.engine.statements import Repository
from adapters.postgres.eventing.audit import ACCOUNTS, ENTRY, filter_values, newest_sql, where
from core.eventing.model.audit import MAX_LISTED, AuditEntry, PlatformAuditFilter
from core.kernel.values import Page, PageResult


class PlatformLog(Repository):
    """Implements the port PlatformLogRead."""

    async def page(self, filter_: PlatformAuditFilter, page: Page) -> PageResult[AuditEntry]:
        values = _values(filter_)
        # The totals of the audit log have no entries of the platform: all processes would wait for
        # the same rows. So the entries are counted, up to the number that has pages.
        count = f"select count(*) from (select from audit_log l where l.org_id is null {where(values)} limit %(most)s) counted"
        total = await self._count(count, most=MAX_LISTED, **values)
        if page.offset >= total:
            return PageResult([], total)
        return PageResult(await self._entries(values, page.limit, page.offset), total)

    async def by_id(self, entry_id: UUID) -> AuditEntry | None:
        sql = f"select {ENTRY.columns} from audit_log l {ACCOUNTS} where l.id = %(id)s and l.org_id is null"
        return await self._one(ENTRY.read, sql, id=entry_id)

    async def batch(self, filter_: PlatformAuditFilter, last: AuditEntry | None, limit: int) -> list[AuditEntry]:
        values = _values(filter_)
        if last is not None:
            values |= {"before_id": last.id, "before": last.created_at}
        return await self._entries(values, limit, 0)

    async def _entries(self, values: dict[str, object], limit: int, offset: int) -> list[AuditEntry]:
        return await self._all(ENTRY.read, newest_sql("l.org_id is null", values), limit=limit, offset=offset, **values)


def _values(filter_: PlatformAuditFilter) -> dict[str, object]:
    """Return the parameters of the filters that are set, by name."""
    values = {"impersonator_id": filter_.impersonator_id, "session_id": filter_.session_id}
    return filter_values(filter_.entry) | {name: value for name, value in values.items() if value is not None}
