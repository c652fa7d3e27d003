"""SQL that deletes the records of deleted organizations, services and webhooks.

The transaction that deletes the owner deletes a first batch of its records. The housekeeper deletes the rest.
"""

from collections.abc import Sequence
from typing import Final, LiteralString

# The tables without a foreign key to the organization or service that owns their rows. Each has the
# columns that follow the owner's id in an index. Tables that also refer to accounts come first.
OF_ORGANIZATIONS: Final[Sequence[tuple[LiteralString, LiteralString]]] = (
    ("service_users", "user_id"),
    ("end_users", "user_id"),
    ("end_user_totals", "org_id"),
    ("siem_queue", "siem_id, position"),
    ("audit_log", "created_at desc, id desc"),
    ("events", "name"),
    ("login_events", "created_at desc, id desc"),
    ("login_totals", "service_id, day, provider, shard"),
    ("member_login_totals", "day, provider"),
    ("audit_totals", "action, target_type"),
    ("scim_requests", "id"),
)
OF_SERVICES: Final[Sequence[tuple[LiteralString, LiteralString]]] = (("login_events", "created_at desc, id desc"),)
OF_WEBHOOKS: Final[Sequence[tuple[LiteralString, LiteralString]]] = (("webhook_deliveries", "created_at desc, id desc"),)


def delete_records_sql(of: LiteralString) -> LiteralString:
    """Return a `with` clause that deletes up to %(limit)s records of the organizations in `of`, which is a query of ids.

    The caller appends a query, or more CTEs and a query. The last CTE of the clause, `records`, has one row per deleted record.
    """
    return _removing(of, OF_ORGANIZATIONS, "org_id")


def delete_logins_sql(of: LiteralString) -> LiteralString:
    """Return the same clause for the logins of the services in `of`. Foreign keys delete the other rows of a service."""
    return _removing(of, OF_SERVICES, "service_id")


def delete_deliveries_sql(of: LiteralString) -> LiteralString:
    """Return the same clause for the deliveries of the webhooks in `of`, which may belong to a deleted organization."""
    return _removing(of, OF_WEBHOOKS, "webhook_id")


def no_records_sql(of: LiteralString) -> LiteralString:
    """Return a condition that holds if the organization with the id `of` has no records left."""
    return _nothing_left(of, OF_ORGANIZATIONS, "org_id")


def no_logins_sql(of: LiteralString) -> LiteralString:
    """Return a condition that holds if the service with the id `of` has no logins left."""
    return _nothing_left(of, OF_SERVICES, "service_id")


def no_deliveries_sql(of: LiteralString) -> LiteralString:
    """Return a condition that holds if the webhook with the id `of` has no deliveries left."""
    return _nothing_left(of, OF_WEBHOOKS, "webhook_id")


def _removing(of: LiteralString, tables: Sequence[tuple[LiteralString, LiteralString]], owner: LiteralString) -> LiteralString:
    # One owner after the other, and the rows by their physical position. Locked rows are skipped:
    # the transaction that deletes an organization holds locks for which others may wait.
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
    # Keep the one-value range and the full order of the index that begins with the owner: no other
    # index has that order. With a plain equality, a planner that knows few owners expects many rows
    # for each, and would read a whole table to find none.
    return f"{owner} >= {id_} and {owner} <= {id_} order by {owner}, {order}"
