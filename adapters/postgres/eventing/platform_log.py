"""The platform's log: the audit entries without an organization."""

from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.engine.statements import Repository
from adapters.postgres.eventing.audit import COLUMNS, FILTERS, NEWEST_FIRST, filter_values, to_entry
from core.eventing.model.audit import MAX_LISTED, AuditEntry, PlatformAuditFilter
from core.kernel.values import Page, PageResult

# As for the logs of organizations, each combination of filters is a separate statement.
PLATFORM_FILTERS: Final[dict[str, LiteralString]] = {
    **FILTERS,
    "impersonator_id": "and l.impersonator_id = %(impersonator_id)s",
    "session_id": "and l.details ->> 'session_id' = %(session_id)s",
}


class PlatformLog(Repository):
    """Implements the port PlatformLogRead."""

    async def page(self, filter_: PlatformAuditFilter, page: Page) -> PageResult[AuditEntry]:
        values = _values(filter_)
        # The totals of the audit log have no entries of the platform: all processes would wait for
        # the same rows. So the entries are counted, up to the number that has pages.
        total = await self._one(
            lambda row: int(row[0]),
            f"select count(*) from (select from audit_log l where l.org_id is null {_where(values)} limit %(most)s) counted",
            most=MAX_LISTED,
            **values,
        )
        if total is None or page.offset >= total:
            return PageResult([], total or 0)
        return PageResult(await self._entries(values, page.limit, page.offset), total)

    async def by_id(self, entry_id: UUID) -> AuditEntry | None:
        return await self._one(to_entry, _with_accounts("select * from audit_log where id = %(id)s and org_id is null"), id=entry_id)

    async def batch(self, filter_: PlatformAuditFilter, last: AuditEntry | None, limit: int) -> list[AuditEntry]:
        values = _values(filter_)
        if last is not None:
            values |= {"before_id": last.id, "before": last.created_at}
        return await self._entries(values, limit, 0)

    async def _entries(self, values: dict[str, object], limit: int, offset: int) -> list[AuditEntry]:
        newest = f"{_newest(values)} {NEWEST_FIRST} limit %(limit)s offset %(offset)s"
        return await self._all(to_entry, _with_accounts(newest), limit=limit, offset=offset, **values)


def _values(filter_: PlatformAuditFilter) -> dict[str, object]:
    """Return the parameters of the filters that are set, by name."""
    values = {"impersonator_id": filter_.impersonator_id, "session_id": filter_.session_id}
    return filter_values(filter_.entry) | {name: value for name, value in values.items() if value is not None}


def _where(values: dict[str, object]) -> LiteralString:
    return " ".join(text for name, text in PLATFORM_FILTERS.items() if name in values)


def _newest(values: dict[str, object]) -> LiteralString:
    if "actions" not in values:
        return f"select l.* from audit_log l where l.org_id is null {_where(values)}"
    # One lateral query per action, as for the logs of organizations.
    where = _where({name: value for name, value in values.items() if name != "actions"})
    return f"""
        select l.* from unnest(%(actions)s::text[]) as selected (action) cross join lateral (
            select l.* from audit_log l where l.org_id is null and l.action = selected.action {where}
            {NEWEST_FIRST} limit %(limit)s + %(offset)s) l"""


def _with_accounts(entries: LiteralString) -> LiteralString:
    """Return the statement that reads these entries with the accounts of their actors."""
    return f"""
        with entries as ({entries})
        select {COLUMNS}, a.email, a.is_platform_owner, i.email, i.is_platform_owner
        from entries l left join users a on a.id = l.actor_id left join users i on i.id = l.impersonator_id
        {NEWEST_FIRST}"""
