"""The audit logs of organizations."""

from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.engine.statements import Repository, Row
from core.eventing.model.audit import ANONYMOUS, MAX_LISTED, SYSTEM, AuditActor, AuditEntry, AuditFilter, resolve_actor
from core.kernel.values import Page, PageResult

COLUMNS: Final = (
    "l.id, l.org_id, l.action, l.target_type, l.target_id, l.actor_id, l.impersonator_id, l.address, l.agent, l.success, l.details, "
    "l.created_at, l.actor_kind, l.actor_name"
)
# Each combination of filters is a separate statement, so that each gets a plan with the index that
# provides its order.
FILTERS: Final[dict[str, LiteralString]] = {
    "actions": "and l.action = any(%(actions)s)",
    "target_type": "and l.target_type = %(target_type)s",
    "target_id": "and l.target_id = %(target_id)s",
    "actor_id": "and l.actor_id = %(actor_id)s",
    # `core.eventing.model.audit.resolve_actor` makes the same distinction.
    "system": "and l.actor_id is null and l.address is null",
    "anonymous": "and l.actor_id is null and l.address is not null",
    # Not a parameter, because the indexes of failed entries are partial.
    "succeeded": "and l.success",
    "failed": "and not l.success",
    "since": "and l.created_at >= %(since)s",
    "until": "and l.created_at < %(until)s",
    "before_id": "and (l.created_at, l.id) < (%(before)s, %(before_id)s)",
}
NEWEST_FIRST: Final = "order by l.created_at desc, l.id desc"


def to_entry(row: Row) -> AuditEntry:
    address = row[7]
    return AuditEntry(
        id=row[0],
        org_id=row[1],
        action=row[2],
        target_type=row[3],
        target_id=row[4],
        actor=resolve_actor(row[5], row[12], _to_account(row[5], row[14], row[15]), address, row[13]),
        impersonator=None if row[6] is None else resolve_actor(row[6], None, _to_account(row[6], row[16], row[17]), address),
        address=address,
        agent=row[8],
        success=row[9],
        details=row[10],
        created_at=row[11],
    )


def _to_account(user_id: UUID | None, email: str | None, is_platform_owner: bool | None) -> AuditActor | None:
    return None if email is None else AuditActor(str(user_id), email, bool(is_platform_owner))


def filter_values(filter_: AuditFilter) -> dict[str, object]:
    """Return the parameters of the filters that are set, by name."""
    filters: dict[str, object] = {
        "actions": None if filter_.actions is None else sorted(filter_.actions),
        "target_type": filter_.target_type,
        "target_id": filter_.target_id,
        "actor_id": filter_.actor_id,
        "system": True if filter_.actor_without_account == SYSTEM else None,
        "anonymous": True if filter_.actor_without_account == ANONYMOUS else None,
        "succeeded": True if filter_.success is True else None,
        "failed": True if filter_.success is False else None,
        "since": filter_.since,
        "until": filter_.until,
    }
    return {name: value for name, value in filters.items() if value is not None}


class Audit(Repository):
    """Implements the ports AuditRead and Audit."""

    async def page(self, org_id: UUID, filter_: AuditFilter, page: Page) -> PageResult[AuditEntry]:
        values = filter_values(filter_)
        total = await self._total(org_id, filter_, values)
        if page.offset >= total:
            return PageResult([], total)
        return PageResult(await self._entries(org_id, values, page.limit, page.offset), total)

    async def by_id(self, org_id: UUID, entry_id: UUID) -> AuditEntry | None:
        entry = f"select {COLUMNS} from audit_log l where l.id = %(id)s and l.org_id = %(org_id)s"
        return await self._one(to_entry, _with_accounts(entry), org_id=org_id, id=entry_id)

    async def batch(self, org_id: UUID, filter_: AuditFilter, last: AuditEntry | None, limit: int) -> list[AuditEntry]:
        values = filter_values(filter_)
        if last is not None:
            values |= {"before_id": last.id, "before": last.created_at}
        return await self._entries(org_id, values, limit, 0)

    async def forget(self, user_id: UUID) -> None:
        # Each part of the union has its index. Changes of the address by a credential stay. The user's
        # own changes may have no actor, because the link in the email works without a sign-in.
        sql = _forgetting("""
                select id from audit_log
                where target_type = 'user' and target_id = %(user_id)s::text
                  and (starts_with(action, 'security.') or action = 'user.email_changed')
                  and (starts_with(action, 'security.') or actor_kind is null)
                union all
                select id from audit_log
                where actor_id = %(user_id)s::uuid and target_type = 'user' and target_id = %(user_id)s::text
                  and action = 'user.login.success'""")
        await self._run(sql, user_id=str(user_id))

    async def forget_in_service(self, org_id: UUID, user_id: UUID, service_slug: str) -> None:
        sql = _forgetting("""
                select id from audit_log
                where org_id = %(org_id)s and target_type = 'user' and target_id = %(user_id)s::text and starts_with(action, 'security.')
                  and details ->> 'service_slug' = %(service_slug)s""")
        await self._run(sql, org_id=org_id, user_id=str(user_id), service_slug=service_slug)

    async def mark_failed(self, entry_id: UUID) -> None:
        await self._run(
            "update audit_log set success = false where id = %(id)s and org_id is null and action = 'impersonation.request'", id=entry_id
        )

    async def _total(self, org_id: UUID, filter_: AuditFilter, values: dict[str, object]) -> int:
        # The totals have no target ids and no actors, so these filters count entries by index. The
        # time grows with the number of entries of the target or actor, which can be a large part of
        # the log.
        if filter_.success is not None or filter_.since is not None or filter_.until is not None:
            counted = f"select from audit_log l where l.org_id = %(org_id)s {_where(values)} limit %(most)s"
            count = f"select count(*) from ({counted}) counted"
            return await self._one(lambda row: int(row[0]), count, org_id=org_id, most=MAX_LISTED, **values) or 0
        is_counted = filter_.target_id is not None or filter_.actor_id is not None or filter_.actor_without_account is not None
        total = "select count(*) from audit_log l" if is_counted else "select coalesce(sum(l.total), 0)::bigint from audit_totals l"
        return (
            await self._one(lambda row: int(row[0]), f"{total} where l.org_id = %(org_id)s {_where(values)}", org_id=org_id, **values) or 0
        )

    async def _entries(self, org_id: UUID, values: dict[str, object], limit: int, offset: int) -> list[AuditEntry]:
        newest = f"{_page(values)} {NEWEST_FIRST} limit %(limit)s offset %(offset)s"
        return await self._all(to_entry, _with_accounts(newest), org_id=org_id, limit=limit, offset=offset, **values)


def _where(values: dict[str, object]) -> LiteralString:
    return " ".join(text for name, text in FILTERS.items() if name in values)


def _with_accounts(entries: LiteralString) -> LiteralString:
    """Return the statement that reads these entries with the accounts of their actors."""
    return f"""
        with entries as ({entries})
        select l.*, a.email, a.is_platform_owner, i.email, i.is_platform_owner
        from entries l left join users a on a.id = l.actor_id left join users i on i.id = l.impersonator_id
        {NEWEST_FIRST}"""


def _forgetting(entries: LiteralString) -> LiteralString:
    """Return the statement that removes the entries with the ids that a query selects, and subtracts them from the totals.

    Lock order: totals of logins, then totals of entries, both sorted by key, as in EventLog.
    """
    return f"""
        with forgotten as (
            delete from audit_log where id = any(array({entries}))
            returning org_id, action, target_type, details, created_at),
        logins as (
            insert into member_login_totals as t (org_id, day, provider, total)
            select org_id, (created_at at time zone 'UTC')::date, details ->> 'provider', -count(*)
            from forgotten where org_id is not null and action = 'user.login.success'
            group by 1, 2, 3 order by 1, 2, 3
            on conflict (org_id, day, provider) do update set total = t.total + excluded.total
            returning 1)
        insert into audit_totals as t (org_id, action, target_type, total)
        select org_id, action, target_type, -count(*) from forgotten cross join (select count(*) from logins) before
        where org_id is not null
        group by org_id, action, target_type order by org_id, action, target_type
        on conflict (org_id, action, target_type) do update set total = t.total + excluded.total"""


def _page(values: dict[str, object]) -> LiteralString:
    if "actions" not in values:
        return f"select {COLUMNS} from audit_log l where l.org_id = %(org_id)s {_where(values)}"
    # One lateral query per action: with several actions in one condition, no index provides the
    # order, and a search for a rare action would read the whole log.
    where = _where({name: value for name, value in values.items() if name != "actions"})
    return f"""
        select l.* from unnest(%(actions)s::text[]) as selected (action) cross join lateral (
            select {COLUMNS} from audit_log l where l.org_id = %(org_id)s and l.action = selected.action {where}
            {NEWEST_FIRST} limit %(limit)s + %(offset)s) l"""
