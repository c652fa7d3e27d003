"""The audit log, read."""

from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.statements import Repository, Row
from core.audit import Actor, Entry, Filter
from core.values import Email, Listed, Page

COLUMNS: Final = (
    "l.id, l.org_id, l.action, l.target_type, l.target_id, l.actor_id, l.impersonator_id, l.address, l.agent, l.success, l.details, "
    "l.created_at, a.email, a.is_platform_owner, i.email, i.is_platform_owner"
)
# Each set of filters is a statement of its own, so that each is planned for the index that gives it its order.
FILTERS: Final[dict[str, LiteralString]] = {
    "actions": "and l.action = any(%(actions)s)",
    "target_type": "and l.target_type = %(target_type)s",
    "target_id": "and l.target_id = %(target_id)s",
    "actor_id": "and l.actor_id = %(actor_id)s",
}


def to_entry(row: Row) -> Entry:
    return Entry(
        id=row[0],
        org_id=row[1],
        action=row[2],
        target_type=row[3],
        target_id=row[4],
        actor_id=row[5],
        impersonator_id=row[6],
        address=row[7],
        agent=row[8],
        success=row[9],
        details=row[10],
        created_at=row[11],
        actor=_actor(row[5], row[12], row[13]),
        impersonator=_actor(row[6], row[14], row[15]),
    )


def _actor(user_id: UUID | None, email: str | None, is_platform_owner: bool | None) -> Actor | None:
    return None if user_id is None or email is None else Actor(user_id, Email(email), bool(is_platform_owner))


class Audit(Repository):
    """ports.storage.AuditRead."""

    async def page(self, org_id: UUID, wanted: Filter, page: Page) -> Listed[Entry]:
        given: dict[str, object] = {
            "actions": None if wanted.actions is None else sorted(wanted.actions),
            "target_type": wanted.target_type,
            "target_id": wanted.target_id,
            "actor_id": wanted.actor_id,
        }
        where = " ".join(sql for name, sql in FILTERS.items() if given[name] is not None)
        entries = await self._all(
            to_entry,
            f"""
            select {COLUMNS}
            from audit_log l left join users a on a.id = l.actor_id left join users i on i.id = l.impersonator_id
            where l.org_id = %(org_id)s {where}
            order by l.created_at desc, l.id desc limit %(limit)s offset %(offset)s""",
            org_id=org_id,
            limit=page.limit,
            offset=page.offset,
            **given,
        )
        # What the totals do not tell apart is counted; it is about one object or one person, and does not grow with the organization.
        counted = wanted.target_id is not None or wanted.actor_id is not None
        total = "select count(*) from audit_log l" if counted else "select coalesce(sum(l.total), 0)::bigint from audit_totals l"
        of_all = await self._one(lambda row: int(row[0]), f"{total} where l.org_id = %(org_id)s {where}", org_id=org_id, **given)
        return Listed(entries, of_all or 0)
