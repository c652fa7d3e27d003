"""The payment provider's events, and the facts about its subscriptions."""

from dataclasses import replace
from datetime import datetime
from typing import Final
from uuid import UUID

import structlog

from adapters.postgres.billing.checkouts import BY_CUSTOMER
from adapters.postgres.billing.subscriptions import PLAN, STORED_SUBSCRIPTION
from adapters.postgres.engine import records, statements
from core.billing.model import provider_facts, subscriptions
from core.kernel import values
from ports import crypto
from ports.signals import Signal

log = structlog.get_logger("storage")

FACTS: Final = records.Record(
    provider_facts.SubscriptionFacts,
    "f",
    id="f.provider_subscription_id",
    paid=records.Columns(
        "f.paid_ats, f.paid_untils",
        2,
        lambda row: tuple(map(provider_facts.PaidPeriod, *row)),
        lambda paid: {"paid_ats": [each.at for each in paid], "paid_untils": [each.until for each in paid]},
    ),
    action_page=None,
    latest=provider_facts.LatestEvent,
)
RECORD_EVENT: Final = """
    insert into billing_events (id, received_at) values (%(event_id)s, %(now)s) on conflict do nothing returning 1"""
# The update changes only the time. The update locks an existing row, and returns the values that
# concurrent transactions wrote while it waited.
LOCK_FACTS: Final = f"""
    insert into billing_facts as f (provider_subscription_id, heard_at) values (%(id)s, %(now)s)
    on conflict (provider_subscription_id) do update set heard_at = excluded.heard_at
    returning {FACTS.columns}, f.action_page"""
SAVE_FACTS: Final = f"""
    update billing_facts set
        {FACTS.assignments(without=("provider_subscription_id",))}, action_page = %(action_page)s,
        heard_at = %(now)s, check_at = case when %(keeps_check)s then check_at else %(check_at)s end
    where provider_subscription_id = %(provider_subscription_id)s"""
OUR_SUBSCRIPTION: Final = f"""
    select {STORED_SUBSCRIPTION.columns}
    from billing_facts f
    join subscriptions s on s.provider_subscription_id = f.provider_subscription_id and s.org_id = f.org_id
    join plans p on p.id = s.plan_id
    where f.provider_subscription_id = %(id)s"""


def action_page_context(id_: str) -> crypto.SecretContext:
    """Return the context in which a payment page's URL is sealed."""
    return crypto.SecretContext("billing_facts", id_, "action_page")


class Billing(statements.SealingRepository):
    """Implements `ports.storage.billing.Billing`."""

    def record_event(self, event_id: str, now: datetime) -> statements.Answer[bool]:
        return self._exists(RECORD_EVENT, event_id=event_id, now=now)

    def _to_facts(self, row: statements.Row) -> provider_facts.SubscriptionFacts:
        facts, sealed = FACTS.read(row), row[FACTS.width]
        return facts if sealed is None else replace(facts, action_page=self._open_page(facts.id, sealed))

    def _open_page(self, id_: str, sealed: bytes) -> str | None:
        try:
            return self._vault.open(sealed, action_page_context(id_)).decode()
        except crypto.SealBroken as error:  # all remaining facts are still valid
            log.error("seal_broken", invoice_page_of=id_, reason=str(error))  # noqa: TRY400  (the traceback adds nothing)
            return None

    async def lock_facts(self, id_: str, now: datetime) -> provider_facts.SubscriptionFacts:
        facts = await self._one(self._to_facts, LOCK_FACTS, id=id_, now=now)
        assert facts is not None, "the statement inserts a missing row"
        return facts

    async def lock_subscription(self, id_: str, now: datetime) -> provider_facts.LockedSubscription:
        # Lock order: facts, organization, subscription. A statement starts when the previous
        # statement has its lock, so it finds the organization that the locked facts name.
        locked = self._one(self._to_facts, LOCK_FACTS, id=id_, now=now)
        sql = """
            select 1 from organizations
            where id = (select org_id from billing_facts where provider_subscription_id = %(id)s) for no key update"""
        await self._write(sql, id=id_)
        subscription = await self._one(STORED_SUBSCRIPTION.read, f"{OUR_SUBSCRIPTION} for no key update of s", id=id_)
        facts = await locked
        assert facts is not None, "the statement inserts a missing row"
        return provider_facts.LockedSubscription(facts, subscription)

    async def find_facts(self, id_: str) -> provider_facts.SubscriptionFacts | None:
        sql = f"select {FACTS.columns}, f.action_page from billing_facts f where f.provider_subscription_id = %(id)s"
        return await self._one(self._to_facts, sql, id=id_)

    async def save_facts(self, facts: provider_facts.SubscriptionFacts, now: datetime, *, check_at: datetime | values.Keep | None) -> None:
        page = facts.action_page
        await self._write(
            SAVE_FACTS,
            **FACTS.values(facts),
            action_page=None if page is None else self._vault.seal(page.encode(), action_page_context(facts.id)),
            now=now,
            keeps_check=check_at is values.KEEP,
            check_at=None if check_at is values.KEEP else check_at,
        )
        if isinstance(check_at, datetime):
            self._signals.send(Signal.SUBSCRIPTION_IN_DOUBT, check_at)

    async def mark_ended(self, id_: str, now: datetime) -> None:
        sql = """
            insert into billing_facts (provider_subscription_id, ended, heard_at) values (%(id)s, true, %(now)s)
            on conflict (provider_subscription_id) do update
            set ended = true, heard_at = excluded.heard_at, check_at = null, action_page = null, waits_for = null"""
        await self._run(sql, id=id_, now=now)

    async def claim_check(self, now: datetime, until: datetime) -> str | None:
        sql = """
            with due as (
                select provider_subscription_id from billing_facts where check_at <= %(now)s
                order by check_at limit 1 for update skip locked)
            update billing_facts f set check_at = %(until)s
            from due where f.provider_subscription_id = due.provider_subscription_id returning f.provider_subscription_id"""
        return await self._one(lambda row: str(row[0]), sql, now=now, until=until)

    async def next_check(self) -> datetime | None:
        return await self._one(lambda row: row[0], "select min(check_at) from billing_facts")

    async def reschedule_check(self, id_: str, until: datetime, at: datetime) -> None:
        sql = "update billing_facts set check_at = %(at)s where provider_subscription_id = %(id)s and check_at = %(until)s"
        await self._run(sql, id=id_, until=until, at=at)

    async def check_subscriptions_of_customer(self, org_id: UUID | None, customer_id: str, now: datetime) -> None:
        # Lock order: facts by id, as in every statement that locks several facts.
        sql = f"""
            with held as materialized (
                select provider_subscription_id from billing_facts where {BY_CUSTOMER} and not ended
                order by provider_subscription_id for update)
            update billing_facts f set check_at = %(now)s
            from held where f.provider_subscription_id = held.provider_subscription_id"""
        await self._run(sql, org_id=org_id, customer_id=customer_id, now=now)
        await self._notify("subscriptions_in_doubt", now)
        self._signals.send(Signal.SUBSCRIPTION_IN_DOUBT, now)

    async def subscription(self, id_: str) -> subscriptions.Subscription | None:
        return await self._one(STORED_SUBSCRIPTION.read, OUR_SUBSCRIPTION, id=id_)

    async def plan_of_price(
        self, org_id: UUID, service_id: UUID, price_id: str | None, preferred: UUID
    ) -> subscriptions.SubscribedPlan | None:
        sql = f"""
            select {PLAN.columns} from plans p
            where p.org_id = %(org_id)s and p.service_id = %(service_id)s and p.billing_price_id = %(price_id)s
            order by p.id = %(preferred)s desc, p.removed_at is null desc, p.created_at, p.id limit 1"""
        return await self._one(PLAN.read, sql, org_id=org_id, service_id=service_id, price_id=price_id, preferred=preferred)

    async def is_checked_separately(self, id_: str, since: datetime) -> bool:
        sql = """
            select 1 from billing_facts
            where provider_subscription_id = %(id)s and (check_at is not null or object_at > %(since)s)"""
        return await self._exists(sql, id=id_, since=since)
