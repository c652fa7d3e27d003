"""The queues with deliveries: webhook deliveries and their history, and the applications' logout notices.

A queue has the columns `org_id`, the receiver's id, `status`, `due_at`, `claims` and `attempt_count`.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, LiteralString
from uuid import UUID

import structlog
from psycopg.types.json import Jsonb

from adapters.postgres.applications.figures import count_traffic_sql
from adapters.postgres.engine import statements
from adapters.postgres.engine.records import Record
from adapters.postgres.eventing.webhooks import secret_context
from adapters.postgres.maintenance.housekeeping import OF_WEBHOOKS
from core.eventing.model import webhooks
from core.kernel import values
from ports.crypto import SealBroken
from ports.signals import Signal


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


def claim_parameters(now: datetime, lease_until: datetime, capacity: webhooks.DispatchCapacity) -> dict[str, Any]:
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


def outcome_json(outcome: webhooks.DeliveryOutcome[Any]) -> dict[str, Any]:
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


log = structlog.get_logger("storage")

DELIVERY: Final = Record(
    webhooks.Delivery,
    "d",
    webhook_name="w.name",
    next_retry_at="case when w.is_active then d.next_retry_at end",
    attempts=lambda stored: [
        webhooks.DeliveryAttempt(datetime.fromisoformat(each["at"]), each["status"], each["error"], each["milliseconds"]) for each in stored
    ],
)
# Every filter combination is a separate statement, so that it gets a plan with the index that
# provides its order.
FILTERS: Final[dict[str, LiteralString]] = {
    "event_type": "and d.event_type = %(event_type)s",
    "delivered": "and d.delivered = %(delivered)s",
}
# Keep the one-value range and the leading webhook_id in ORDER BY: an index on age alone cannot
# serve them. With a plain equality the planner may scan all webhooks' newest deliveries, and then
# reads everything that busier webhooks have received since.
BY_WEBHOOK: Final = "d.webhook_id >= %(webhook_id)s and d.webhook_id <= %(webhook_id)s and d.org_id = %(org_id)s "
NEWEST_FIRST: Final = "order by d.webhook_id, d.created_at desc, d.id desc"
# Deliveries that failed in all attempts and were not sent again. Keep this condition equal to the index's condition.
TO_RESEND: Final = (
    BY_WEBHOOK + "and d.status = 'done' and not d.delivered and d.resent_at is null and d.event_type <> 'webhook.ping' "
    "and d.created_at >= coalesce(%(since)s::timestamptz, '-infinity')"
)
CLAIM: Final = claim_sql(
    "webhook_deliveries",
    "webhook_id",
    "webhooks",
    "w.is_active",
    claimed="d.id, d.webhook_id, d.payload, d.claims, d.attempt_count, d.created_at",
    result="""
    select c.id, w.org_id, c.webhook_id, w.url,
           w.secret || array(
               select f.secret from former_webhook_secrets f where f.webhook_id = w.id and f.until > %(now)s order by f.position desc),
           c.payload::text, c.claims, c.attempt_count, c.created_at""",
)


class Deliveries(statements.SealingRepository):
    """Implements the port Deliveries."""

    def _to_claimed(self, row: statements.Row) -> webhooks.ClaimedDelivery:
        return webhooks.ClaimedDelivery(
            id=row[0],
            org_id=row[1],
            webhook_id=row[2],
            url=row[3],
            secrets=[secret for sealed in row[4] if (secret := self._secret(row[2], sealed)) is not None],
            body=row[5].encode(),
            claims=row[6],
            attempts=row[7],
            created_at=row[8],
        )

    def _secret(self, webhook_id: UUID, sealed: bytes) -> str | None:
        try:
            return self._vault.open(sealed, secret_context(webhook_id)).decode()
        except SealBroken as error:
            log.error("seal_broken", webhook=str(webhook_id), reason=str(error))  # noqa: TRY400  (the traceback adds nothing)
            return None

    async def page(
        self, org_id: UUID, webhook_id: UUID, page: values.Page, *, event_type: str | None, delivered: bool | None
    ) -> values.PageResult[webhooks.Delivery]:
        filters = {name: value for name, value in {"event_type": event_type, "delivered": delivered}.items() if value is not None}
        condition = BY_WEBHOOK + " ".join(FILTERS[name] for name in filters)
        # Count the deliveries for every page: they belong to a single webhook and month. Lists that
        # grow forever have stored totals instead.
        count = f"select count(*) from webhook_deliveries d where {condition}"
        total = await self._count(count, org_id=org_id, webhook_id=webhook_id, **filters)
        sql = f"""
            select {DELIVERY.columns} from webhook_deliveries d join webhooks w on w.id = d.webhook_id
            where {condition} {NEWEST_FIRST} limit %(limit)s offset %(offset)s"""
        deliveries = await self._all(
            DELIVERY.read, sql, org_id=org_id, webhook_id=webhook_id, limit=page.limit, offset=page.offset, **filters
        )
        return values.PageResult(deliveries, total)

    async def by_id(self, org_id: UUID, webhook_id: UUID, delivery_id: UUID) -> webhooks.Delivery | None:
        sql = f"""
            select {DELIVERY.columns} from webhook_deliveries d join webhooks w on w.id = d.webhook_id
            where d.id = %(delivery_id)s and {BY_WEBHOOK}"""
        return await self._one(DELIVERY.read, sql, org_id=org_id, webhook_id=webhook_id, delivery_id=delivery_id)

    async def health(self, org_id: UUID, webhook_ids: Sequence[UUID]) -> dict[UUID, webhooks.WebhookHealth]:
        # The index by attempt ends the scan per webhook after RECENT rows.
        sql = """
            with recent as materialized (
                select d.* from webhooks w cross join lateral (
                    select d.webhook_id, d.updated_at, d.delivered, d.status = 'done' and not d.delivered as given_up,
                           d.response_status_code, d.delivery_error
                    from webhook_deliveries d where d.webhook_id = w.id and d.org_id = w.org_id and d.attempt_count > 0
                    order by d.webhook_id, d.updated_at desc limit %(recent)s) d
                where w.org_id = %(org_id)s and w.id = any(%(webhook_ids)s))
            select webhook_id, count(*), count(*) filter (where delivered), count(*) filter (where given_up),
                   not (array_agg(delivered order by updated_at desc))[1], max(updated_at) filter (where not delivered),
                   (array_agg(response_status_code order by updated_at desc) filter (where not delivered))[1],
                   (array_agg(delivery_error order by updated_at desc) filter (where not delivered))[1]
            from recent group by webhook_id"""
        rows = await self._all(_to_health, sql, org_id=org_id, webhook_ids=list(webhook_ids), recent=webhooks.RECENT)
        return dict(rows)

    async def count_to_resend(self, org_id: UUID, webhook_id: UUID, since: datetime | None) -> int:
        sql = f"select count(*) from (select from webhook_deliveries d where {TO_RESEND} limit %(limit)s) d"
        return await self._count(sql, org_id=org_id, webhook_id=webhook_id, since=since, limit=webhooks.COUNTED_TO_RESEND)

    async def add(
        self, delivery_id: UUID, org_id: UUID, webhook_id: UUID, event_type: str, payload: str, actor_id: UUID, now: datetime
    ) -> webhooks.Delivery:
        added = await self._one(
            DELIVERY.read,
            _insert("select %(event_type)s, %(payload)s::json, %(actor_id)s::uuid"),
            id=delivery_id,
            org_id=org_id,
            webhook_id=webhook_id,
            event_type=event_type,
            payload=payload,
            actor_id=actor_id,
            now=now,
        )
        assert added is not None, "the organization is locked, so the webhook exists"
        self._signals.send(Signal.DELIVERIES_DUE)
        return added

    async def add_copy(self, org_id: UUID, webhook_id: UUID, delivery_id: UUID, new_id: UUID, now: datetime) -> webhooks.Delivery | None:
        sql = _insert(
            """
                update webhook_deliveries set resent_at = coalesce(resent_at, %(now)s)
                where id = %(delivery_id)s and webhook_id = %(webhook_id)s and org_id = %(org_id)s
                returning event_type, payload, actor_id"""
        )
        repeated = await self._one(DELIVERY.read, sql, id=new_id, org_id=org_id, webhook_id=webhook_id, delivery_id=delivery_id, now=now)
        if repeated is not None:
            self._signals.send(Signal.DELIVERIES_DUE)
        return repeated

    async def resend(self, org_id: UUID, webhook_id: UUID, since: datetime | None, now: datetime) -> int:
        # A concurrent request waits for the rows, and then leaves out rows that have `resent_at`.
        sql = f"""
            with failed as (
                select d.id from webhook_deliveries d where {TO_RESEND} order by d.webhook_id, d.created_at, d.id
                limit %(limit)s for update),
            source as (
                update webhook_deliveries d set resent_at = %(now)s from failed where d.id = failed.id
                returning d.event_type, d.payload, d.actor_id),
            copies as (
                insert into webhook_deliveries
                    (id, org_id, webhook_id, event_type, payload, actor_id, status, due_at, created_at, updated_at)
                select gen_random_uuid(), %(org_id)s, %(webhook_id)s, event_type, payload, actor_id, 'due', %(now)s, %(now)s, %(now)s
                from source
                returning 1),
            woken as materialized (select pg_notify('webhooks', '') where exists (select from copies))
            select (select count(*) from copies) from (values (1)) one left join woken on true"""
        queued = await self._count(sql, org_id=org_id, webhook_id=webhook_id, since=since, now=now, limit=webhooks.RESEND_LIMIT)
        if queued:
            self._signals.send(Signal.DELIVERIES_DUE)
        return queued

    async def purge(self, webhook_id: UUID, limit: int) -> None:
        sql = f"{OF_WEBHOOKS.delete_sql('select %(webhook_id)s::uuid as id')} select 1 from records"
        await self._run(sql, webhook_id=webhook_id, limit=limit)

    async def record(self, outcomes: Sequence[webhooks.DeliveryOutcome[webhooks.ClaimedDelivery]]) -> None:
        # A success counts no matter which process holds the lease. A failure counts only if no
        # later attempt has started, and only once: a process that is unsure whether an outcome was
        # stored sends it again. An attempt counts in the traffic if it is recorded here, so it
        # counts once.
        sql = f"""
            with recorded as (
                update webhook_deliveries d set
                    status = case when o.next_retry_at is null then 'done' else 'waiting' end,
                    due_at = coalesce(o.next_retry_at, d.due_at), next_retry_at = o.next_retry_at,
                    attempt_count = d.attempt_count + 1, delivered = o.delivered, response_status_code = o.status,
                    response_body = o.body, delivery_error = o.error, updated_at = o.at,
                    attempts = d.attempts
                        || jsonb_build_object('at', o.at, 'status', o.status, 'error', o.error, 'milliseconds', o.milliseconds)
                from jsonb_to_recordset(%(outcomes)s) as o (
                    id uuid, org_id uuid, claims integer, attempts integer, delivered boolean, status integer, body text, error text,
                    next_retry_at timestamptz, at timestamptz, milliseconds integer)
                where d.id = o.id and d.org_id = o.org_id and d.status <> 'done'
                  and (d.claims = o.claims and d.attempt_count = o.attempts or o.delivered)
                returning d.org_id, o.at, case when o.delivered then 'delivered' else 'failed' end as outcome, o.milliseconds)
            {count_traffic_sql("recorded", "webhook")}"""
        await self._write(sql, outcomes=Jsonb([outcome_json(outcome) for outcome in outcomes]))

    async def wake(self, now: datetime, limit: int) -> None:
        await self._write(wake_sql("webhook_deliveries"), now=now, limit=limit)

    def next_due(self) -> statements.Answer[datetime | None]:
        return self._one(lambda row: row[0], next_due_sql("webhook_deliveries"))

    async def claim(self, now: datetime, lease_until: datetime, capacity: webhooks.DispatchCapacity) -> list[webhooks.ClaimedDelivery]:
        return await self._all(self._to_claimed, CLAIM, **claim_parameters(now, lease_until, capacity))


def _to_health(row: statements.Row) -> tuple[UUID, webhooks.WebhookHealth]:
    return row[0], webhooks.WebhookHealth(
        attempted=row[1],
        delivered=row[2],
        given_up=row[3],
        is_failing=row[4],
        last_failure_at=row[5],
        last_failure_status=row[6],
        last_failure_reason=row[7],
    )


def _insert(source: LiteralString) -> LiteralString:
    """Return the statement that queues a delivery.

    `source` selects its event type, payload and actor.
    """
    return f"""
        with source (event_type, payload, actor_id) as ({source}),
        d as (
            insert into webhook_deliveries (id, org_id, webhook_id, event_type, payload, actor_id, status, due_at, created_at, updated_at)
            select %(id)s, %(org_id)s, %(webhook_id)s, event_type, payload, actor_id, 'due', %(now)s, %(now)s, %(now)s from source
            returning *),
        woken as materialized (select pg_notify('webhooks', '') from d)
        select {DELIVERY.columns} from d join webhooks w on w.id = d.webhook_id and w.org_id = d.org_id cross join woken"""


NOTICE: Final = Record(
    webhooks.ClaimedLogoutNotice,
    "c",
    org_id="w.org_id",
    url="w.backchannel_logout_uri",
    attempts="c.attempt_count",
    service_slug="w.slug",
    service_name="w.name",
    client_id="w.client_id",
)
CLAIM_NOTICES: Final = claim_sql(
    "logout_notices",
    "service_id",
    "services",
    "w.backchannel_logout_uri is not null",
    claimed="d.id, d.service_id, d.user_id, d.session_id, d.claims, d.attempt_count, d.created_at",
    result=f" select {NOTICE.columns}",
)


class LogoutNotices(statements.Repository):
    """Implements the port LogoutNotices."""

    async def record(self, outcomes: Sequence[webhooks.DeliveryOutcome[webhooks.ClaimedLogoutNotice]]) -> list[UUID]:
        # As for webhook deliveries: a success counts no matter which process holds the lease, a
        # failure only if no later attempt has started, and only once.
        sql = """
            with o as (
                select * from jsonb_to_recordset(%(outcomes)s) as o (
                    id uuid, org_id uuid, claims integer, attempts integer, delivered boolean, next_retry_at timestamptz)),
            ended as (
                delete from logout_notices n using o
                where n.id = o.id and n.org_id = o.org_id
                  and (o.delivered or o.next_retry_at is null and n.claims = o.claims and n.attempt_count = o.attempts)
                returning n.id, o.delivered),
            retried as (
                update logout_notices n set status = 'waiting', due_at = o.next_retry_at, attempt_count = n.attempt_count + 1
                from o where n.id = o.id and n.org_id = o.org_id and not o.delivered and o.next_retry_at is not null
                  and n.claims = o.claims and n.attempt_count = o.attempts)
            select id from ended where not delivered"""
        return await self._all(lambda row: row[0], sql, outcomes=Jsonb([outcome_json(outcome) for outcome in outcomes]))

    async def wake(self, now: datetime, limit: int) -> None:
        await self._write(wake_sql("logout_notices"), now=now, limit=limit)

    def next_due(self) -> statements.Answer[datetime | None]:
        return self._one(lambda row: row[0], next_due_sql("logout_notices"))

    async def claim(self, now: datetime, lease_until: datetime, capacity: webhooks.DispatchCapacity) -> list[webhooks.ClaimedLogoutNotice]:
        return await self._all(NOTICE.read, CLAIM_NOTICES, **claim_parameters(now, lease_until, capacity))
