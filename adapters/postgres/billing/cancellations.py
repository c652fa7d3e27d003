"""Subscriptions to cancel at the payment provider."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Repository
from core.applications.model import plans
from ports.signals import Signal

CANCELLATION: Final = Record(plans.Cancellation, "c")
REQUEST: Final = f"{CANCELLATION.insert('billing_cancellations', 'due_at')} on conflict do nothing"
# An API key may have reactivated the subscription. A reactivated subscription must not be canceled.
IS_ENDED_HERE: Final = """
    not exists (
        select 1 from subscriptions s
        where s.provider_subscription_id = c.provider_subscription_id and s.org_id = c.org_id and s.status in ('active', 'past_due'))"""
SET_NEXT_ATTEMPT: Final = f"""
    update billing_cancellations c set due_at = %(until)s
    from due where c.provider_subscription_id = due.provider_subscription_id
    returning {CANCELLATION.columns}"""


class Cancellations(Repository):
    """Implements `ports.storage.billing.Cancellations`."""

    async def request(self, cancellation: plans.Cancellation) -> None:
        await self._run(REQUEST, **CANCELLATION.values(cancellation), due_at=cancellation.asked_at)
        # The use case that requests a cancellation tries it at once. The reconciler wakes up after
        # that attempt.
        at = cancellation.asked_at + plans.IMMEDIATE_TIMEOUT
        await self._notify("subscriptions_in_doubt", at)
        self._signals.send(Signal.SUBSCRIPTION_IN_DOUBT, at)

    async def next_due(self) -> datetime | None:
        sql = f"select c.due_at from billing_cancellations c where {IS_ENDED_HERE} order by c.due_at limit 1"
        return await self._one(lambda row: row[0], sql)

    async def is_requested(self, org_id: UUID, id_: str) -> bool:
        sql = "select 1 from billing_cancellations where provider_subscription_id = %(id)s and org_id = %(org_id)s"
        return await self._exists(sql, org_id=org_id, id=id_)

    async def claim(self, now: datetime, until: datetime) -> plans.Cancellation | None:
        sql = f"""
            with due as (
                select c.provider_subscription_id from billing_cancellations c where c.due_at <= %(now)s and {IS_ENDED_HERE}
                order by c.due_at limit 1 for update skip locked) {SET_NEXT_ATTEMPT}"""
        return await self._one(CANCELLATION.read, sql, now=now, until=until)

    async def claim_of_service(
        self, org_id: UUID, service_id: UUID, now: datetime, until: datetime, limit: int
    ) -> list[plans.Cancellation]:
        sql = f"""
            with due as (
                select c.provider_subscription_id from billing_cancellations c
                where c.org_id = %(org_id)s and c.service_id = %(service_id)s and c.due_at <= %(now)s and {IS_ENDED_HERE}
                order by c.due_at limit %(limit)s for update skip locked) {SET_NEXT_ATTEMPT}"""
        return await self._all(CANCELLATION.read, sql, org_id=org_id, service_id=service_id, now=now, until=until, limit=limit)

    async def complete(self, cancellation: plans.Cancellation) -> bool:
        sql = "delete from billing_cancellations where provider_subscription_id = %(id)s and org_id = %(org_id)s returning 1"
        return await self._exists(sql, id=cancellation.provider_subscription_id, org_id=cancellation.org_id)
