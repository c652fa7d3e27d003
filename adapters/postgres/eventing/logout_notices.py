"""The queue for logout notices. A trigger on `sessions` adds the notices (docs/adr/0031)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Answer, Repository
from adapters.postgres.eventing.delivery_queues import claim_parameters, claim_sql, next_due_sql, outcome_json, wake_sql
from core.eventing.model.webhooks import ClaimedLogoutNotice, DeliveryOutcome, DispatchCapacity

NOTICE: Final = Record(
    ClaimedLogoutNotice,
    "c",
    org_id="w.org_id",
    url="w.backchannel_logout_uri",
    attempts="c.attempt_count",
    service_slug="w.slug",
    service_name="w.name",
    client_id="w.client_id",
)
CLAIM: Final = claim_sql(
    "logout_notices",
    "service_id",
    "services",
    "w.backchannel_logout_uri is not null",
    claimed="d.id, d.service_id, d.user_id, d.session_id, d.claims, d.attempt_count, d.created_at",
    result=f" select {NOTICE.columns}",
)


class LogoutNotices(Repository):
    """Implements the port LogoutNotices."""

    async def record(self, outcomes: Sequence[DeliveryOutcome[ClaimedLogoutNotice]]) -> list[UUID]:
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

    def next_due(self) -> Answer[datetime | None]:
        return self._one(lambda row: row[0], next_due_sql("logout_notices"))

    async def claim(self, now: datetime, lease_until: datetime, capacity: DispatchCapacity) -> list[ClaimedLogoutNotice]:
        return await self._all(NOTICE.read, CLAIM, **claim_parameters(now, lease_until, capacity))
