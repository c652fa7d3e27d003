"""SQL that deletes the records that deleted organizations, services and webhooks leave.

The transaction that deletes the owner deletes a first batch of records. The housekeeper deletes the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, LiteralString


@dataclass(frozen=True, slots=True)
class OwnedRecords:
    """The tables without a foreign key to their rows' owner.

    A table has the columns that follow the owner's id in an index. Tables that also refer to accounts come first.
    """

    owner: LiteralString  # the column with its id
    tables: Sequence[tuple[LiteralString, LiteralString]]

    def delete_sql(self, of: LiteralString) -> LiteralString:
        """Return a `with` clause that deletes up to %(limit)s records that belong to the owners in `of`, a query for ids.

        The caller appends a query, or more CTEs and a query. The last CTE in the clause, `records`, has a row per deleted record.
        """
        # Owners are processed in sequence, and rows by their physical position. Locked rows are skipped: the
        # transaction that deletes an organization holds locks for which concurrent transactions may wait.
        steps, room = [f"with gone as ({of})"], "%(limit)s"
        for table, order in self.tables:
            steps.append(
                f"""
            of_{table} as (
                delete from {table} where ctid = any(array(
                    select r.ctid from gone cross join lateral (
                        select ctid from {table} where {_of(self.owner, "gone.id", order)} limit %(limit)s for update skip locked) r
                    limit {room}))
                returning 1)"""
            )
            room += f" - (select count(*) from of_{table})"
        removed = " union all ".join(f"select 1 from of_{table}" for table, _ in self.tables)
        return ",".join([*steps, f" records as ({removed})"])

    def none_left_sql(self, of: LiteralString) -> LiteralString:
        """Return a condition that holds if the owner with the id `of` has no records left."""
        return " and ".join(
            f"(select {self.owner} from {table} where {_of(self.owner, of, order)} limit 1) is null" for table, order in self.tables
        )


def _of(owner: LiteralString, id_: LiteralString, order: LiteralString) -> LiteralString:
    # Keep the one-value range and the full order of the index that begins with the owner: only this
    # index has that order. With a plain equality, a planner that knows few owners expects many rows
    # per owner, and would read a whole table to find none.
    return f"{owner} >= {id_} and {owner} <= {id_} order by {owner}, {order}"


OF_ORGANIZATIONS: Final = OwnedRecords(
    "org_id",
    (
        ("service_users", "user_id"),
        ("end_users", "user_id"),
        ("group_members", "user_id"),
        ("end_user_totals", "org_id"),
        ("siem_queue", "siem_id, position"),
        ("audit_log", "created_at desc, id desc"),
        ("events", "name"),
        ("login_events", "created_at desc, id desc"),
        ("login_totals", "service_id, day, provider, shard"),
        ("member_login_totals", "day, provider"),
        ("audit_totals", "action, target_type"),
        ("scim_requests", "id"),
        ("sign_in_figures", "span, start, service_id, method, result"),
        ("user_figures", "span, start"),
        ("population_figures", "day"),
        ("traffic_figures", "kind, span, start, outcome"),
    ),
)
# Foreign keys delete all further rows of a service.
OF_SERVICES: Final = OwnedRecords("service_id", (("login_events", "created_at desc, id desc"),))
# A webhook may belong to a deleted organization.
OF_WEBHOOKS: Final = OwnedRecords("webhook_id", (("webhook_deliveries", "created_at desc, id desc"),))
