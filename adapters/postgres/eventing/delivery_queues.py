"""The statements for a queue with deliveries: webhook deliveries, and the applications' logout notices.

A queue has the columns `org_id`, the receiver's id, `status`, `due_at`, `claims` and `attempt_count`.
"""

from datetime import datetime
from typing import Any, LiteralString

from core.eventing.model.webhooks import DeliveryOutcome, DispatchCapacity


# How the statement from `claim_sql` works:
#
# receiver: a loose index scan that hops from one receiver with due deliveries to the next. The
# scan's cost is the number of these receivers, no matter how many deliveries they have.
#
# shares, served: the receivers that may get a slot (core.eventing.model.webhooks.DispatchCapacity),
# in random order. A receiver gets its first slot before any receiver gets a second slot.
#
# queued: deliveries that another process is claiming are skipped. The limits keep the locked rows
# nearly as few as the claimed rows.
def claim_sql(
    queue: LiteralString,
    receiver_id: LiteralString,
    receivers: LiteralString,
    is_open: LiteralString,
    *,
    claimed: LiteralString,
    result: LiteralString,
) -> LiteralString:
    """Return the statement that leases due deliveries.

    `receiver_id` is the queue's column that refers to a row `w` in `receivers`. `is_open` says whether that row gets
    deliveries. `claimed` names the columns that `result` reads from `c`: from the delivery `d`, together with the
    columns from `w`.
    """
    return f"""
    with recursive receiver as (
        (select org_id, {receiver_id} as id from {queue} where status = 'due' order by org_id, {receiver_id} limit 1)
        union all
        select n.org_id, n.id from receiver h cross join lateral (
            select d.org_id, d.{receiver_id} as id from {queue} d
            where d.status = 'due' and (d.org_id, d.{receiver_id}) > (h.org_id, h.id) order by d.org_id, d.{receiver_id} limit 1) n),
    organization_busy as (select * from unnest(%(organizations)s::uuid[], %(of_organizations)s::int[]) as b (id, count)),
    receiver_busy as (select * from unnest(%(receivers)s::uuid[], %(of_receivers)s::int[]) as b (id, count)),
    waiting as (
        select h.org_id, h.id as receiver_id, coalesce(ob.count, 0) as of_organization, coalesce(wb.count, 0) as of_receiver
        from receiver h
        join {receivers} w on w.org_id = h.org_id and w.id = h.id and {is_open}
        join organizations o on o.id = w.org_id and o.status = 'active'
        left join organization_busy ob on ob.id = h.org_id
        left join receiver_busy wb on wb.id = h.id),
    -- The organizations that compete for the free slots. Each leaves less to the others.
    rivals as (select count(distinct org_id) from waiting where 3 * of_organization < %(free)s),
    rooms as (
        select *, (%(free)s - 3 * of_organization) / (3 + (table rivals)) as left_to_organization,
               greatest((%(free)s - of_organization) / (1 + (table rivals)), (of_organization = 0)::int) as left_to_firsts
        from waiting),
    shares as (select *, greatest((left_to_organization - of_receiver) / 2, (of_receiver = 0)::int) as left_to_receiver from rooms),
    served as (
        select * from shares where left_to_receiver > 0 and (left_to_organization > 0 or of_receiver = 0 and left_to_firsts > 0)
        order by random() limit 2 * %(free)s),
    queued as (
        select s.org_id, s.left_to_organization, s.left_to_firsts, d.id, d.due_at,
               s.of_receiver + row_number() over (partition by s.receiver_id order by d.due_at) as turn
        from served s cross join lateral (
            select id, due_at from {queue} d
            where d.status = 'due' and d.org_id = s.org_id and d.{receiver_id} = s.receiver_id
            order by d.due_at limit least(s.left_to_receiver, 1 + %(free)s / (select count(*) from served)) for update skip locked) d),
    ranked as (select *, row_number() over (partition by org_id order by turn, due_at) as place from queued),
    chosen as (
        select id from ranked where place <= left_to_organization or turn = 1 and place <= left_to_firsts
        order by place, due_at limit %(free)s),
    claimed as (
        update {queue} d set status = 'waiting', due_at = %(lease_until)s, claims = d.claims + 1
        from chosen where d.id = chosen.id
        returning {claimed}){result}
    from claimed c join {receivers} w on w.id = c.{receiver_id} order by c.created_at, c.id"""


def claim_parameters(now: datetime, lease_until: datetime, capacity: DispatchCapacity) -> dict[str, Any]:
    return {
        "now": now,
        "lease_until": lease_until,
        "free": capacity.free,
        "organizations": list(capacity.by_organization),
        "of_organizations": list(capacity.by_organization.values()),
        "receivers": list(capacity.by_receiver),
        "of_receivers": list(capacity.by_receiver.values()),
    }


def wake_sql(queue: LiteralString) -> LiteralString:
    """Return the statement that makes waiting deliveries due when their time has come."""
    return f"""
        update {queue} set status = 'due' where id = any(array(
            select id from {queue} where status = 'waiting' and due_at <= %(now)s
            order by due_at limit %(limit)s for update skip locked))"""


def next_due_sql(queue: LiteralString) -> LiteralString:
    return f"select min(due_at) from {queue} where status = 'waiting'"


def outcome_json(outcome: DeliveryOutcome[Any]) -> dict[str, Any]:
    """Return the outcome as a record in a JSON array."""
    return {
        "id": str(outcome.delivery.id),
        "org_id": str(outcome.delivery.org_id),
        "claims": outcome.delivery.claims,
        "attempts": outcome.delivery.attempts,
        "delivered": outcome.delivered,
        "status": outcome.status,
        "body": outcome.body,
        "error": outcome.error,
        "next_retry_at": None if outcome.next_retry_at is None else outcome.next_retry_at.isoformat(),
        "at": outcome.at.isoformat(),
        "milliseconds": outcome.milliseconds,
    }
