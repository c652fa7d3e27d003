"""Removing what was recorded of organizations and services that are gone: in the transaction that deletes one, and by the housekeeper."""

from collections.abc import Sequence
from typing import Final, LiteralString

# What has no foreign key to the organization or service that it belongs to: each table, and the order of an index that begins with the id
# of that. What hangs on accounts, too, goes first.
OF_ORGANIZATIONS: Final[Sequence[tuple[LiteralString, LiteralString]]] = (
    ("service_users", "user_id"),
    ("end_users", "user_id"),
    ("end_user_totals", "org_id"),
    ("siem_queue", "siem_id, position"),
    ("audit_log", "created_at desc, id desc"),
    ("events", "name"),
    ("login_events", "created_at desc, id desc"),
    ("login_totals", "service_id, day, provider, shard"),
    ("audit_totals", "action, target_type"),
)
OF_SERVICES: Final[Sequence[tuple[LiteralString, LiteralString]]] = (("login_events", "created_at desc, id desc"),)
OF_WEBHOOKS: Final[Sequence[tuple[LiteralString, LiteralString]]] = (("webhook_deliveries", "created_at desc, id desc"),)


def removing_records(of: LiteralString) -> LiteralString:
    """The beginning of a statement that removes at most %(limit)s records of the organizations whose ids `of` selects.

    `records` has a row for each that is removed.
    """
    return _removing(of, OF_ORGANIZATIONS, "org_id")


def removing_logins(of: LiteralString) -> LiteralString:
    """The same for the services whose ids `of` selects; the rest of what belonged to them went with them."""
    return _removing(of, OF_SERVICES, "service_id")


def removing_deliveries(of: LiteralString) -> LiteralString:
    """The same for the webhooks whose ids `of` selects, those of deleted organizations included."""
    return _removing(of, OF_WEBHOOKS, "webhook_id")


def without_records(of: LiteralString) -> LiteralString:
    """Whether nothing is left of the organization with the id `of`."""
    return _nothing_left(of, OF_ORGANIZATIONS, "org_id")


def without_logins(of: LiteralString) -> LiteralString:
    """Whether nothing is left of the service with the id `of`."""
    return _nothing_left(of, OF_SERVICES, "service_id")


def without_deliveries(of: LiteralString) -> LiteralString:
    """Whether nothing is left of the webhook with the id `of`."""
    return _nothing_left(of, OF_WEBHOOKS, "webhook_id")


def _removing(of: LiteralString, tables: Sequence[tuple[LiteralString, LiteralString]], owner: LiteralString) -> LiteralString:
    # One owner after the other, and the rows themselves by where they lie. What somebody else is writing this moment is skipped: whoever
    # deletes an organization holds locks that others may be waiting for.
    steps, room = [f"with gone as ({of})"], "%(limit)s"
    for table, order in tables:
        steps.append(
            f"""
            of_{table} as (
                delete from {table} where ctid = any(array(
                    select r.ctid from gone cross join lateral (
                        select ctid from {table} where {_of(owner, "gone.id", order)} limit %(limit)s for update skip locked) r
                    limit {room}))
                returning 1)"""
        )
        room += f" - (select count(*) from of_{table})"
    removed = " union all ".join(f"select 1 from of_{table}" for table, _ in tables)
    return ",".join([*steps, f" records as ({removed})"])


def _nothing_left(of: LiteralString, tables: Sequence[tuple[LiteralString, LiteralString]], owner: LiteralString) -> LiteralString:
    return " and ".join(f"(select {owner} from {table} where {_of(owner, of, order)} limit 1) is null" for table, order in tables)


def _of(owner: LiteralString, id_: LiteralString, order: LiteralString) -> LiteralString:
    # In the whole order of the index that begins with the owner, and with the owner named by a range of one: no other index has that order.
    # Otherwise a planner that knows few owners, and therefore expects to find much, would read all of a table to find nothing.
    return f"{owner} >= {id_} and {owner} <= {id_} order by {owner}, {order}"
