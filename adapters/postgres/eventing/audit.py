"""The organizations' audit logs, and the platform's log: the audit entries without an organization."""

from collections.abc import Collection, Mapping
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.engine import records, statements
from adapters.postgres.eventing import audit_names
from core.eventing.model import audit
from core.eventing.model.sentences import Names
from core.kernel.values import Page, PageResult

# Every filter combination is a separate statement, so that it gets a plan with the index that
# provides its order.
FILTERS: Final[dict[str, LiteralString]] = {
    "actions": "and l.action = any(%(actions)s)",
    "target_type": "and l.target_type = %(target_type)s",
    "target_id": "and l.target_id = %(target_id)s",
    "actor_id": "and l.actor_id = %(actor_id)s",
    # `core.eventing.model.audit.resolve_actor` makes the same distinction.
    "system": "and l.actor_id is null and l.address is null",
    "anonymous": "and l.actor_id is null and l.address is not null",
    # Not a parameter, because the indexes on failed entries are partial.
    "succeeded": "and l.success",
    "failed": "and not l.success",
    "since": "and l.created_at >= %(since)s",
    "until": "and l.created_at < %(until)s",
    # Objects that a search found, if another filter gives the order
    "actor_ids": "and l.actor_id = any(%(actor_ids)s::uuid[])",
    "target_ids": "and (l.target_type, l.target_id) in (select * from unnest(%(target_types)s::text[], %(target_ids)s::text[]))",
    "before_id": "and (l.created_at, l.id) < (%(before)s, %(before_id)s)",
    # Only in the platform's log
    "impersonator_id": "and l.impersonator_id = %(impersonator_id)s",
    "session_id": "and l.details ->> 'session_id' = %(session_id)s",
}
NEWEST_FIRST: Final = "order by l.created_at desc, l.id desc"
# The query's columns for a single object or action, and its end: for a page, and for a count. Keep the leading organization: with it, the
# indexes on all logs have the platform log's order. Otherwise the planner may sort all entries by an actor.
NEWEST: Final = ("l.*", "order by l.org_id, l.created_at desc, l.id desc limit %(limit)s + %(offset)s")
ANY: Final = ("1", "limit %(limit)s")


def _to_actor(row: statements.Row) -> audit.AuditActor:
    actor_id, kind, name, address, email, is_platform_owner = row
    account = None if email is None else audit.AuditActor(str(actor_id), email, bool(is_platform_owner))
    return audit.resolve_actor(actor_id, kind, account, address, name)


# An entry `l` with the accounts of actor (`a`) and impersonator (`i`)
ENTRY: Final = records.Record(
    audit.AuditEntry,
    "l",
    actor=records.Columns("l.actor_id, l.actor_kind, l.actor_name, l.address, a.email, a.is_platform_owner", 6, _to_actor),
    impersonator=records.Columns(
        "l.impersonator_id, null, null, l.address, i.email, i.is_platform_owner", 6, lambda row: None if row[0] is None else _to_actor(row)
    ),
)
ACCOUNTS: Final = "left join users a on a.id = l.actor_id left join users i on i.id = l.impersonator_id"


def filter_values(filter_: audit.AuditFilter) -> dict[str, object]:
    """Return the parameters for the filters that are set, by name."""
    filters: dict[str, object] = {
        "actions": None if filter_.actions is None else sorted(filter_.actions),
        "target_type": filter_.target_type,
        "target_id": filter_.target_id,
        "actor_id": filter_.actor_id,
        "system": True if filter_.actor_without_account == audit.SYSTEM else None,
        "anonymous": True if filter_.actor_without_account == audit.ANONYMOUS else None,
        "succeeded": True if filter_.success is True else None,
        "failed": True if filter_.success is False else None,
        "since": filter_.since,
        "until": filter_.until,
        "impersonator_id": filter_.impersonator_id,
        "session_id": filter_.session_id,
        **_object_values(filter_),
    }
    return {name: value for name, value in filters.items() if value is not None}


def _object_values(filter_: audit.AuditFilter) -> dict[str, object]:
    """Return the parameters for the objects that a search found."""
    values: dict[str, object] = {}
    if filter_.actors is not None:
        values["actor_ids"] = sorted(id_ for _, id_ in filter_.actors)
    if filter_.targets is not None:
        values |= _keys("target", filter_.targets)
    if filter_.involved is not None:
        values |= {"involved_actor_ids": sorted(id_ for _, id_ in filter_.involved), **_keys("involved", filter_.involved)}
    return values


def _keys(name: str, keys: Collection[audit.ObjectKey]) -> dict[str, object]:
    pairs = sorted(keys)
    return {f"{name}_types": [kind for kind, _ in pairs], f"{name}_ids": [id_ for _, id_ in pairs]}


class Audit(statements.Repository):
    """Implements the ports AuditRead and Audit."""

    async def page(self, org_id: UUID | None, filter_: audit.AuditFilter, page: Page) -> PageResult[audit.AuditEntry]:
        values = filter_values(filter_)
        total = await self._total(org_id, filter_, values)
        if page.offset >= total:
            return PageResult([], total)
        return PageResult(await self._entries(org_id, values, page.limit, page.offset), total)

    async def by_id(self, org_id: UUID | None, entry_id: UUID) -> audit.AuditEntry | None:
        sql = f"select {ENTRY.columns} from audit_log l {ACCOUNTS} where l.id = %(id)s and {_of_log(org_id)}"
        return await self._one(ENTRY.read, sql, org_id=org_id, id=entry_id)

    async def batch(
        self, org_id: UUID | None, filter_: audit.AuditFilter, last: audit.AuditEntry | None, limit: int
    ) -> list[audit.AuditEntry]:
        values = filter_values(filter_)
        if last is not None:
            values |= {"before_id": last.id, "before": last.created_at}
        return await self._entries(org_id, values, limit, 0)

    async def names(self, org_id: UUID | None, objects: Mapping[str, Collection[str]]) -> Names:
        sql = audit_names.names_sql(objects, of_platform=org_id is None)
        return dict(await self._all(audit_names.to_name, sql, org_id=org_id, **audit_names.id_parameters(objects))) if sql else {}

    async def find_objects(self, org_id: UUID | None, text: str, limit: int) -> list[audit.ObjectKey]:
        sql = audit_names.FIND_IN_PLATFORM if org_id is None else audit_names.FIND_IN_ORGANIZATION
        return await self._all(audit_names.to_key, sql, org_id=org_id, **audit_names.search_parameters(text, limit))

    async def forget(self, user_id: UUID) -> None:
        # Every part in the union has its index. Address changes by a credential stay. The user's own changes may have
        # no actor, because the link in the email works without a sign-in.
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
        sql = "update audit_log set success = false where id = %(id)s and org_id is null and action = 'impersonation.request'"
        await self._run(sql, id=entry_id)

    async def _total(self, org_id: UUID | None, filter_: audit.AuditFilter, values: dict[str, object]) -> int:
        # The totals have no target ids and no actors, so these filters count entries by index. The
        # time grows with how many entries the target or actor has, which can be a large part of the
        # log.
        if has_objects(values):
            return await self._count(count_of_objects_sql(_of_log(org_id), values), org_id=org_id, limit=audit.MAX_LISTED, **values)
        # The totals also leave out the platform's entries: all processes would wait for the same rows.
        if org_id is None or filter_.success is not None or filter_.since is not None or filter_.until is not None:
            counted = f"select from audit_log l where {_of_log(org_id)} {where(values)} limit %(most)s"
            count = f"select count(*) from ({counted}) counted"
            return await self._count(count, org_id=org_id, most=audit.MAX_LISTED, **values)
        is_counted = filter_.target_id is not None or filter_.actor_id is not None or filter_.actor_without_account is not None
        total = "select count(*) from audit_log l" if is_counted else "select coalesce(sum(l.total), 0)::bigint from audit_totals l"
        count = f"{total} where l.org_id = %(org_id)s {where(values)}"
        return await self._count(count, org_id=org_id, **values)

    async def _entries(self, org_id: UUID | None, values: dict[str, object], limit: int, offset: int) -> list[audit.AuditEntry]:
        sql = newest_sql(_of_log(org_id), values)
        return await self._all(ENTRY.read, sql, org_id=org_id, limit=limit, offset=offset, **values)


def _of_log(org_id: UUID | None) -> LiteralString:
    """Return the condition for the entries in this organization's log, or in the platform's log."""
    return "l.org_id is null" if org_id is None else "l.org_id = %(org_id)s"


def where(values: dict[str, object]) -> LiteralString:
    """Return the conditions for the filters with these parameters."""
    return " ".join(text for name, text in FILTERS.items() if name in values)


def newest_sql(of_log: LiteralString, values: dict[str, object]) -> LiteralString:
    """Return the query for a page with the entries that fulfill `of_log` and the filters, newest first, in the columns ENTRY."""
    if has_objects(values):
        newest = f"select l.* from ({_of_objects_sql(of_log, values, NEWEST)}) l"
    elif "actions" in values:
        # A lateral query per action: with several actions in a single condition, no index provides
        # the order, and a search for a rare action would read the whole log.
        actions: LiteralString = "unnest(%(actions)s::text[]) as selected (a)"
        newest = _each_sql(of_log, actions, "l.action = selected.a", where(_without(values, "actions")), NEWEST)
    else:
        newest = f"select l.* from audit_log l where {of_log} {where(values)}"
    return f"""
        with entries as ({newest} {NEWEST_FIRST} limit %(limit)s offset %(offset)s)
        select {ENTRY.columns} from entries l {ACCOUNTS} {NEWEST_FIRST}"""


def has_objects(values: dict[str, object]) -> bool:
    """Return whether the filters name objects that a search found."""
    return not values.keys().isdisjoint({"involved_ids", "target_ids", "actor_ids"})


def count_of_objects_sql(of_log: LiteralString, values: dict[str, object]) -> LiteralString:
    """Return the statement that counts the entries about the objects that a search found, at most `limit`."""
    return f"select count(*) from (select from ({_of_objects_sql(of_log, values, ANY)}) l limit %(limit)s) counted"


def _of_objects_sql(of_log: LiteralString, values: dict[str, object], part: tuple[LiteralString, LiteralString]) -> LiteralString:
    """Return the query for the newest entries about the objects that a search found.

    The query has one lateral query per object, for the reason in `newest_sql`. If several filters name objects, a
    single filter gives the order, and the rest are conditions.
    """
    if "involved_ids" in values:
        others = where(_without(values, "involved_ids"))
        by_actor = _by_actor_sql(of_log, "involved_actor_ids", others, part)
        # An entry with actor and target is found by its actor only.
        once: LiteralString = "and (l.actor_id is null or l.actor_id <> all(%(involved_actor_ids)s::uuid[]))"
        return f"({by_actor}) union all ({_by_target_sql(of_log, 'involved', f'{once} {others}', part)})"
    if "target_ids" in values:
        return _by_target_sql(of_log, "target", where(_without(values, "target_ids")), part)
    return _by_actor_sql(of_log, "actor_ids", where(_without(values, "actor_ids")), part)


def _by_actor_sql(
    of_log: LiteralString, name: LiteralString, others: LiteralString, part: tuple[LiteralString, LiteralString]
) -> LiteralString:
    return _each_sql(of_log, f"unnest(%({name})s::uuid[]) as selected (a)", "l.actor_id = selected.a", others, part)


def _by_target_sql(
    of_log: LiteralString, name: LiteralString, others: LiteralString, part: tuple[LiteralString, LiteralString]
) -> LiteralString:
    keys: LiteralString = f"unnest(%({name}_types)s::text[], %({name}_ids)s::text[]) as selected (a, b)"
    return _each_sql(of_log, keys, "l.target_type = selected.a and l.target_id = selected.b", others, part)


def _each_sql(
    of_log: LiteralString, keys: LiteralString, condition: LiteralString, others: LiteralString, part: tuple[LiteralString, LiteralString]
) -> LiteralString:
    """Return the query for the entries of every key. `part` has the columns and the end for every lateral query."""
    columns, end = part
    return f"""
        select l.* from {keys} cross join lateral (
            select {columns} from audit_log l where {of_log} and {condition} {others} {end}) l"""


def _without(values: dict[str, object], name: str) -> dict[str, object]:
    return {each: value for each, value in values.items() if each != name}


def _forgetting(entries: LiteralString) -> LiteralString:
    """Return the statement that removes the entries with the ids that a query selects, and subtracts them from the totals.

    Lock order: login totals, then entry totals, sorted by key, as in EventLog.
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
