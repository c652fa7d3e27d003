"""The audit log, read."""

from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.engine.statements import Repository, Row
from core.eventing.audit_rules import ANONYMOUS, SYSTEM, AuditActor, AuditEntry, AuditFilter, actor
from core.kernel.values import PageResult, Page

COLUMNS: Final = (
    "l.id, l.org_id, l.action, l.target_type, l.target_id, l.actor_id, l.impersonator_id, l.address, l.agent, l.success, l.details, "
    "l.created_at, l.actor_kind"
)
# Each set of filters is a statement of its own, so that each is planned for the index that gives it its order.
FILTERS: Final[dict[str, LiteralString]] = {
    "actions": "and l.action = any(%(actions)s)",
    "target_type": "and l.target_type = %(target_type)s",
    "target_id": "and l.target_id = %(target_id)s",
    "actor_id": "and l.actor_id = %(actor_id)s",
    # As `core.audit.actor` tells them apart.
    "system": "and l.actor_id is null and l.address is null",
    "anonymous": "and l.actor_id is null and l.address is not null",
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
        actor=actor(row[5], row[12], _account(row[5], row[13], row[14]), address),
        impersonator=None if row[6] is None else actor(row[6], None, _account(row[6], row[15], row[16]), address),
        address=address,
        agent=row[8],
        success=row[9],
        details=row[10],
        created_at=row[11],
    )


def _account(user_id: UUID | None, email: str | None, is_platform_owner: bool | None) -> AuditActor | None:
    return None if email is None else AuditActor(str(user_id), email, bool(is_platform_owner))


class Audit(Repository):
    """ports.storage.AuditRead and Audit."""

    async def page(self, org_id: UUID, wanted: AuditFilter, page: Page) -> PageResult[AuditEntry]:
        filters: dict[str, object] = {
            "actions": None if wanted.actions is None else sorted(wanted.actions),
            "target_type": wanted.target_type,
            "target_id": wanted.target_id,
            "actor_id": wanted.actor_id,
            "system": True if wanted.nobody == SYSTEM else None,
            "anonymous": True if wanted.nobody == ANONYMOUS else None,
        }
        given = {name: value for name, value in filters.items() if value is not None}
        total = await self._total(org_id, wanted, given)
        if page.offset >= total:
            return PageResult([], total)
        entries = await self._all(
            to_entry,
            f"""
            with page as ({_page(given)} {NEWEST_FIRST} limit %(limit)s offset %(offset)s)
            select l.*, a.email, a.is_platform_owner, i.email, i.is_platform_owner
            from page l left join users a on a.id = l.actor_id left join users i on i.id = l.impersonator_id
            {NEWEST_FIRST}""",
            org_id=org_id,
            limit=page.limit,
            offset=page.offset,
            **given,
        )
        return PageResult(entries, total)

    async def forget(self, user_id: UUID) -> None:
        # What is called security.* is about an account and nothing else. The totals are counted in the order of their key, as Records does.
        await self._run(
            """
            with forgotten as (
                delete from audit_log
                where target_type = 'user' and target_id = %(user_id)s::text and starts_with(action, 'security.')
                returning org_id, action, target_type)
            insert into audit_totals as t (org_id, action, target_type, total)
            select org_id, action, target_type, -count(*) from forgotten where org_id is not null
            group by org_id, action, target_type order by org_id, action, target_type
            on conflict (org_id, action, target_type) do update set total = t.total + excluded.total""",
            user_id=str(user_id),
        )

    async def _total(self, org_id: UUID, wanted: AuditFilter, given: dict[str, object]) -> int:
        # What the totals do not tell apart is counted, by index. That takes as long as there are entries of the one object or actor: few
        # as a rule, but a good part of the log where one of them is behind most of what happens.
        counted = wanted.target_id is not None or wanted.actor_id is not None or wanted.nobody is not None
        total = "select count(*) from audit_log l" if counted else "select coalesce(sum(l.total), 0)::bigint from audit_totals l"
        where = " ".join(FILTERS[name] for name in given)
        return await self._one(lambda row: int(row[0]), f"{total} where l.org_id = %(org_id)s {where}", org_id=org_id, **given) or 0


def _page(given: dict[str, object]) -> LiteralString:
    if "actions" not in given:
        where = " ".join(FILTERS[name] for name in given)
        return f"select {COLUMNS} from audit_log l where l.org_id = %(org_id)s {where}"
    # Several actions in one condition would have no index that gives the order, and of a rare one the whole log would be read.
    where = " ".join(FILTERS[name] for name in given if name != "actions")
    return f"""
        select l.* from unnest(%(actions)s::text[]) as wanted (action) cross join lateral (
            select {COLUMNS} from audit_log l where l.org_id = %(org_id)s and l.action = wanted.action {where}
            {NEWEST_FIRST} limit %(limit)s + %(offset)s) l"""
