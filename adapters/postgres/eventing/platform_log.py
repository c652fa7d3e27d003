"""The platform's log: the audit entries without an organization."""

from collections.abc import Collection, Mapping
from uuid import UUID

from adapters.postgres.engine.statements import Repository
from adapters.postgres.eventing.audit import ACCOUNTS, ENTRY, count_of_objects_sql, filter_values, has_objects, newest_sql, where
from adapters.postgres.eventing.audit_names import FIND_IN_PLATFORM, id_parameters, names_sql, search_parameters, to_key, to_name
from core.eventing.model.audit import MAX_LISTED, AuditEntry, ObjectKey, PlatformAuditFilter
from core.eventing.model.sentences import Names
from core.kernel.values import Page, PageResult


class PlatformLog(Repository):
    """Implements the port PlatformLogRead."""

    async def page(self, filter_: PlatformAuditFilter, page: Page) -> PageResult[AuditEntry]:
        values = _values(filter_)
        # The audit log's totals leave out the platform's entries: all processes would wait for the
        # same rows. So the entries are counted, up to the number that has pages.
        counted = f"select count(*) from (select from audit_log l where l.org_id is null {where(values)} limit %(limit)s) counted"
        count = count_of_objects_sql("l.org_id is null", values) if has_objects(values) else counted
        total = await self._count(count, limit=MAX_LISTED, **values)
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

    async def names(self, objects: Mapping[str, Collection[str]]) -> Names:
        sql = names_sql(objects, of_platform=True)
        return dict(await self._all(to_name, sql, **id_parameters(objects))) if sql else {}

    async def find_objects(self, text: str, limit: int) -> list[ObjectKey]:
        return await self._all(to_key, FIND_IN_PLATFORM, **search_parameters(text, limit))

    async def _entries(self, values: dict[str, object], limit: int, offset: int) -> list[AuditEntry]:
        return await self._all(ENTRY.read, newest_sql("l.org_id is null", values), limit=limit, offset=offset, **values)


def _values(filter_: PlatformAuditFilter) -> dict[str, object]:
    """Return the parameters for the filters that are set, by name."""
    values = {"impersonator_id": filter_.impersonator_id, "session_id": filter_.session_id}
    return filter_values(filter_.entry) | {name: value for name, value in values.items() if value is not None}
