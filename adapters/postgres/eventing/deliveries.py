"""The webhook deliveries' queue and history."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import structlog
from psycopg.types.json import Jsonb

from adapters.postgres.applications.figures import count_traffic_sql
from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Answer, Row, SealingRepository
from adapters.postgres.eventing.delivery_queues import claim_parameters, claim_sql, next_due_sql, outcome_json, wake_sql
from adapters.postgres.eventing.webhooks import secret_context
from adapters.postgres.maintenance.deferred_deletion import OF_WEBHOOKS
from core.eventing.model.webhook_health import COUNTED_TO_RESEND, RECENT, RESEND_LIMIT, WebhookHealth
from core.eventing.model.webhooks import ClaimedDelivery, Delivery, DeliveryAttempt, DeliveryOutcome, DispatchCapacity
from core.kernel.values import Page, PageResult
from ports.crypto import SealBroken
from ports.signals import Signal

log = structlog.get_logger("storage")

DELIVERY: Final = Record(
    Delivery,
    "d",
    webhook_name="w.name",
    next_retry_at="case when w.is_active then d.next_retry_at end",
    attempts=lambda stored: [
        DeliveryAttempt(datetime.fromisoformat(each["at"]), each["status"], each["error"], each["milliseconds"]) for each in stored
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


class Deliveries(SealingRepository):
    """Implements the port Deliveries."""

    def _to_claimed(self, row: Row) -> ClaimedDelivery:
        return ClaimedDelivery(
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
        self, org_id: UUID, webhook_id: UUID, page: Page, *, event_type: str | None, delivered: bool | None
    ) -> PageResult[Delivery]:
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
        return PageResult(deliveries, total)

    async def by_id(self, org_id: UUID, webhook_id: UUID, delivery_id: UUID) -> Delivery | None:
        sql = f"""
            select {DELIVERY.columns} from webhook_deliveries d join webhooks w on w.id = d.webhook_id
            where d.id = %(delivery_id)s and {BY_WEBHOOK}"""
        return await self._one(DELIVERY.read, sql, org_id=org_id, webhook_id=webhook_id, delivery_id=delivery_id)

    async def health(self, org_id: UUID, webhook_ids: Sequence[UUID]) -> dict[UUID, WebhookHealth]:
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
        rows = await self._all(_to_health, sql, org_id=org_id, webhook_ids=list(webhook_ids), recent=RECENT)
        return dict(rows)

    async def count_to_resend(self, org_id: UUID, webhook_id: UUID, since: datetime | None) -> int:
        sql = f"select count(*) from (select from webhook_deliveries d where {TO_RESEND} limit %(limit)s) d"
        return await self._count(sql, org_id=org_id, webhook_id=webhook_id, since=since, limit=COUNTED_TO_RESEND)

    async def add(
        self, delivery_id: UUID, org_id: UUID, webhook_id: UUID, event_type: str, payload: str, actor_id: UUID, now: datetime
    ) -> Delivery:
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

    async def add_copy(self, org_id: UUID, webhook_id: UUID, delivery_id: UUID, new_id: UUID, now: datetime) -> Delivery | None:
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
        queued = await self._count(sql, org_id=org_id, webhook_id=webhook_id, since=since, now=now, limit=RESEND_LIMIT)
        if queued:
            self._signals.send(Signal.DELIVERIES_DUE)
        return queued

    async def purge(self, webhook_id: UUID, limit: int) -> None:
        sql = f"{OF_WEBHOOKS.delete_sql('select %(webhook_id)s::uuid as id')} select 1 from records"
        await self._run(sql, webhook_id=webhook_id, limit=limit)

    async def record(self, outcomes: Sequence[DeliveryOutcome[ClaimedDelivery]]) -> None:
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

    def next_due(self) -> Answer[datetime | None]:
        return self._one(lambda row: row[0], next_due_sql("webhook_deliveries"))

    async def claim(self, now: datetime, lease_until: datetime, capacity: DispatchCapacity) -> list[ClaimedDelivery]:
        return await self._all(self._to_claimed, CLAIM, **claim_parameters(now, lease_until, capacity))


def _to_health(row: Row) -> tuple[UUID, WebhookHealth]:
    return row[0], WebhookHealth(
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
