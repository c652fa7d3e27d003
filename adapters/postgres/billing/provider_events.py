"""What is known of the payment provider's customers, checkouts and subscriptions; and what is to be cancelled there."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import structlog

from adapters.postgres.billing.subscriptions import PLAN, to_plan, to_subscription
from adapters.postgres.billing.subscriptions import STORED_COLUMNS as SUBSCRIPTION
from adapters.postgres.engine.locks import CUSTOMERS
from adapters.postgres.engine.statements import Repository, Row, SealingRepository
from core.applications.cancellations_rules import Cancellation
from core.billing.checkout_rules import Checkout, Customer
from core.billing.payments import CheckoutMatch, SubscriptionFacts, LatestEvent, CheckoutMetadata, PaidPeriod
from core.billing.reconciliation_rules import OpenCheckouts
from core.billing.subscriptions_rules import SubscribedPlan, Subscription
from core.kernel.values import KEEP, Keep
from ports.crypto import Place, SealBroken

log = structlog.get_logger("storage")

# In the order in which `_to_facts` reads them.
FACTS: Final = """
    provider_subscription_id, org_id, customer_id, object_at, at_creation, status, price_id, period_end, period_at, period_at_creation,
    paid_at, paid_ats, paid_untils, failed_at, action_at, action_page, latest, ended, waits_for"""
# What is live here again was not to be ended after all.
IS_ENDED_HERE: Final = """
    not exists (
        select 1 from subscriptions s
        where s.provider_subscription_id = c.provider_subscription_id and s.org_id = c.org_id and s.status in ('active', 'past_due'))"""
# Events about customers name the organization where we had the provider note it; those about payment methods never do.
OF_CUSTOMER: Final = "customer_id = %(customer_id)s and org_id = coalesce(%(org_id)s::uuid, org_id)"
CLAIMED: Final = """
    update billing_cancellations c set due_at = %(until)s
    from due where c.provider_subscription_id = due.provider_subscription_id
    returning c.provider_subscription_id, c.subscription_id, c.org_id, c.service_id, c.asked_at"""


def place(id_: str) -> Place:
    return Place("billing_facts", id_, "action_page")


def to_cancellation(row: Row) -> Cancellation:
    return Cancellation(*row)


class Billing(SealingRepository):
    """ports.storage.Billing."""

    async def is_first(self, event_id: str, now: datetime) -> bool:
        return await self._exists(
            "insert into billing_events (id, received_at) values (%(event_id)s, %(now)s) on conflict do nothing returning 1",
            event_id=event_id,
            now=now,
        )

    # Subscriptions

    def _to_facts(self, row: Row) -> SubscriptionFacts:
        return SubscriptionFacts(
            id=row[0],
            org_id=row[1],
            customer_id=row[2],
            object_at=row[3],
            at_creation=row[4],
            status=row[5],
            price_id=row[6],
            period_end=row[7],
            period_at=row[8],
            period_at_creation=row[9],
            paid_at=row[10],
            paid=tuple(map(PaidPeriod, row[11], row[12])),
            failed_at=row[13],
            action_at=row[14],
            action_page=self._page(row[0], row[15]),
            latest=None if row[16] is None else LatestEvent(row[16]),
            ended=row[17],
            waits_for=row[18],
        )

    def _page(self, id_: str, sealed: bytes | None) -> str | None:
        if sealed is None:
            return None
        try:
            return self._vault.open(sealed, place(id_)).decode()
        except SealBroken as error:  # all else that is known of the subscription counts without it
            log.error("seal_broken", invoice_page_of=id_, reason=str(error))  # noqa: TRY400  (its trace says nothing more)
            return None

    async def lock_facts(self, id_: str, now: datetime) -> SubscriptionFacts:
        # An update that changes nothing but the time locks what is there, and finds what others have written while it waited.
        found = await self._one(
            self._to_facts,
            f"""
            insert into billing_facts (provider_subscription_id, heard_at) values (%(id)s, %(now)s)
            on conflict (provider_subscription_id) do update set heard_at = excluded.heard_at
            returning {FACTS}""",
            id=id_,
            now=now,
        )
        assert found is not None, "there is one now"
        return found

    async def facts(self, id_: str) -> SubscriptionFacts | None:
        return await self._one(self._to_facts, f"select {FACTS} from billing_facts where provider_subscription_id = %(id)s", id=id_)

    async def save_facts(self, facts: SubscriptionFacts, now: datetime, *, check_at: datetime | Keep | None) -> None:
        await self._write(
            """
            update billing_facts set
                org_id = %(org_id)s, customer_id = %(customer_id)s, object_at = %(object_at)s, at_creation = %(at_creation)s,
                status = %(status)s, price_id = %(price_id)s, period_end = %(period_end)s,
                period_at = %(period_at)s, period_at_creation = %(period_at_creation)s, paid_at = %(paid_at)s,
                paid_ats = %(paid_ats)s, paid_untils = %(paid_untils)s,
                failed_at = %(failed_at)s, action_at = %(action_at)s, action_page = %(action_page)s,
                latest = %(latest)s, ended = %(ended)s, waits_for = %(waits_for)s,
                heard_at = %(now)s, check_at = case when %(keeps_check)s then check_at else %(check_at)s end
            where provider_subscription_id = %(id)s""",
            id=facts.id,
            org_id=facts.org_id,
            customer_id=facts.customer_id,
            object_at=facts.object_at,
            at_creation=facts.at_creation,
            status=facts.status,
            price_id=facts.price_id,
            period_end=facts.period_end,
            period_at=facts.period_at,
            period_at_creation=facts.period_at_creation,
            paid_at=facts.paid_at,
            paid_ats=[paid.at for paid in facts.paid],
            paid_untils=[paid.until for paid in facts.paid],
            failed_at=facts.failed_at,
            action_at=facts.action_at,
            action_page=None if facts.action_page is None else self._vault.seal(facts.action_page.encode(), place(facts.id)),
            latest=facts.latest,
            ended=facts.ended,
            waits_for=facts.waits_for,
            now=now,
            keeps_check=check_at is KEEP,
            check_at=None if check_at is KEEP else check_at,
        )

    async def end(self, id_: str, now: datetime) -> None:
        await self._run(
            """
            insert into billing_facts (provider_subscription_id, ended, heard_at) values (%(id)s, true, %(now)s)
            on conflict (provider_subscription_id) do update
            set ended = true, heard_at = excluded.heard_at, check_at = null, action_page = null, waits_for = null""",
            id=id_,
            now=now,
        )

    async def claim_check(self, now: datetime, until: datetime) -> str | None:
        return await self._one(
            lambda row: str(row[0]),
            """
            with due as (
                select provider_subscription_id from billing_facts where check_at <= %(now)s
                order by check_at limit 1 for update skip locked)
            update billing_facts f set check_at = %(until)s
            from due where f.provider_subscription_id = due.provider_subscription_id returning f.provider_subscription_id""",
            now=now,
            until=until,
        )

    async def put_back_check(self, id_: str, until: datetime, at: datetime) -> None:
        await self._run(
            "update billing_facts set check_at = %(at)s where provider_subscription_id = %(id)s and check_at = %(until)s",
            id=id_,
            until=until,
            at=at,
        )

    async def check_those_of(self, org_id: UUID | None, customer_id: str, now: datetime) -> None:
        # In the order of their names, as everybody who locks several of them. Where none is named, this is true of those that have one.
        await self._run(
            f"""
            with held as materialized (
                select provider_subscription_id from billing_facts where {OF_CUSTOMER} and not ended
                order by provider_subscription_id for update)
            update billing_facts f set check_at = %(now)s
            from held where f.provider_subscription_id = held.provider_subscription_id""",
            org_id=org_id,
            customer_id=customer_id,
            now=now,
        )

    async def subscription(self, id_: str) -> Subscription | None:
        return await self._one(
            to_subscription,
            f"""
            select {SUBSCRIPTION}
            from billing_facts f
            join subscriptions s on s.provider_subscription_id = f.provider_subscription_id and s.org_id = f.org_id
            join plans p on p.id = s.plan_id
            where f.provider_subscription_id = %(id)s""",
            id=id_,
        )

    async def plan_of_price(self, org_id: UUID, service_id: UUID, price_id: str | None, preferred: UUID) -> SubscribedPlan | None:
        return await self._one(
            to_plan,
            f"""
            select {PLAN} from plans p
            where p.org_id = %(org_id)s and p.service_id = %(service_id)s and p.billing_price_id = %(price_id)s
            order by p.id = %(preferred)s desc, p.removed_at is null desc, p.created_at, p.id limit 1""",
            org_id=org_id,
            service_id=service_id,
            price_id=price_id,
            preferred=preferred,
        )

    # Customers

    async def customer(self, org_id: UUID, key: UUID, now: datetime) -> Customer:
        found = await self._one(
            lambda row: Customer(*row),
            """
            insert into billing_customers as c (org_id, idempotency_key, created_at) values (%(org_id)s, %(key)s, %(now)s)
            on conflict (org_id) do update set idempotency_key = c.idempotency_key
            returning idempotency_key, customer_id""",
            org_id=org_id,
            key=key,
            now=now,
        )
        assert found is not None, "there is one now"
        return found

    async def renew_customer_key(self, org_id: UUID, key: UUID, new: UUID) -> None:
        await self._run(
            """
            update billing_customers set idempotency_key = %(new)s
            where org_id = %(org_id)s and idempotency_key = %(key)s and customer_id is null""",
            org_id=org_id,
            key=key,
            new=new,
        )

    async def keep_customer(self, org_id: UUID, key: UUID, customer_id: str) -> str | None:
        return await self._one(
            lambda row: str(row[0]),
            """
            update billing_customers set customer_id = coalesce(customer_id, %(customer_id)s)
            where org_id = %(org_id)s and idempotency_key = %(key)s returning customer_id""",
            org_id=org_id,
            key=key,
            customer_id=customer_id,
        )

    async def is_customer(self, org_id: UUID, customer_id: str) -> bool:
        return not await self._exists(
            """
            select 1 from billing_customers
            where org_id = %(org_id)s and customer_id <> %(customer_id)s or customer_id = %(customer_id)s and org_id <> %(org_id)s""",
            org_id=org_id,
            customer_id=customer_id,
        )

    async def link_customer(self, org_id: UUID, customer_id: str, key: UUID, now: datetime) -> bool:
        await self._lock_customer(customer_id)
        return await self._exists(
            """
            insert into billing_customers as c (org_id, idempotency_key, customer_id, created_at)
            select o.id, %(key)s, %(customer_id)s, %(now)s from organizations o
            where o.id = %(org_id)s
              and not exists (select 1 from billing_customers x where x.customer_id = %(customer_id)s and x.org_id <> %(org_id)s)
              and not exists (select 1 from billing_deleted_customers d where d.customer_id = %(customer_id)s)
            on conflict (org_id) do update set customer_id = excluded.customer_id
            where coalesce(c.customer_id, excluded.customer_id) = excluded.customer_id
            returning 1""",
            org_id=org_id,
            customer_id=customer_id,
            key=key,
            now=now,
        )

    async def sync_customer(self, org_id: UUID | None, customer_id: str, user_id: UUID | None, at: datetime) -> bool:
        return await self._exists(
            f"""
            update billing_customers set
                user_id = case when heard_at > %(at)s then user_id else (select u.id from users u where u.id = %(user_id)s) end,
                heard_at = greatest(heard_at, %(at)s)
            where {OF_CUSTOMER} returning 1""",
            org_id=org_id,
            customer_id=customer_id,
            user_id=user_id,
            at=at,
        )

    async def forget_customer(self, org_id: UUID | None, customer_id: str, key: UUID, now: datetime) -> bool:
        # One that is another organization's than the one that is named was not deleted by what says so (security.md H-5).
        await self._lock_customer(customer_id)
        return await self._exists(
            f"""
            with remembered as (
                insert into billing_deleted_customers (customer_id, heard_at)
                select %(customer_id)s, %(now)s
                where not exists (select 1 from billing_customers x where x.customer_id = %(customer_id)s and x.org_id <> %(org_id)s)
                on conflict do nothing)
            update billing_customers set customer_id = null, user_id = null, idempotency_key = %(key)s, heard_at = null
            where {OF_CUSTOMER} returning 1""",
            org_id=org_id,
            customer_id=customer_id,
            key=key,
            now=now,
        )

    async def _lock_customer(self, customer_id: str) -> None:
        """For whoever links it, and whoever forgets it: where there is no row of it, there is nothing else to wait at."""
        await self._write(f"select pg_advisory_xact_lock({CUSTOMERS}, hashtext(%(customer_id)s))", customer_id=customer_id)

    async def attach_payment_method(self, customer_id: str, payment_method_id: str, at: datetime, now: datetime) -> bool:
        # In one second it was attached before it was detached, whichever is heard first.
        return await self._exists(
            """
            with attached as (
                insert into billing_payment_methods as m (payment_method_id, customer_id, said_at, heard_at)
                values (%(payment_method_id)s, %(customer_id)s, %(at)s, %(now)s)
                on conflict (payment_method_id) do update
                set customer_id = excluded.customer_id, said_at = excluded.said_at, heard_at = excluded.heard_at
                where m.said_at < excluded.said_at or m.said_at = excluded.said_at and m.customer_id is not null)
            select 1 from billing_customers where customer_id = %(customer_id)s""",
            payment_method_id=payment_method_id,
            customer_id=customer_id,
            at=at,
            now=now,
        )

    async def detach_payment_method(self, payment_method_id: str, at: datetime, now: datetime) -> bool:
        return await self._exists(
            """
            with old as (
                select c.org_id from billing_payment_methods m join billing_customers c on c.customer_id = m.customer_id
                where m.payment_method_id = %(payment_method_id)s),
            detached as (
                insert into billing_payment_methods as m (payment_method_id, said_at, heard_at)
                values (%(payment_method_id)s, %(at)s, %(now)s)
                on conflict (payment_method_id) do update
                set customer_id = null, said_at = excluded.said_at, heard_at = excluded.heard_at
                where m.said_at <= excluded.said_at
                returning 1)
            select 1 from old, detached""",
            payment_method_id=payment_method_id,
            at=at,
            now=now,
        )

    # Checkouts

    async def add_checkout(self, checkout: Checkout, check_at: datetime) -> None:
        await self._run(
            """
            insert into billing_checkouts (id, org_id, service_id, user_id, plan_id, price_id, created_at, check_at)
            values (%(id)s, %(org_id)s, %(service_id)s, %(user_id)s, %(plan_id)s, %(price_id)s, %(created_at)s, %(check_at)s)""",
            id=checkout.id,
            org_id=checkout.meant.org_id,
            service_id=checkout.meant.service_id,
            user_id=checkout.meant.user_id,
            plan_id=checkout.meant.plan_id,
            price_id=checkout.price_id,
            created_at=checkout.created_at,
            check_at=check_at,
        )

    async def checkout_begun(self, org_id: UUID, checkout_id: UUID, session_id: str, customer_id: str) -> None:
        await self._run(
            """
            update billing_checkouts set session_id = %(session_id)s, customer_id = coalesce(customer_id, %(customer_id)s)
            where org_id = %(org_id)s and id = %(checkout_id)s""",
            org_id=org_id,
            checkout_id=checkout_id,
            session_id=session_id,
            customer_id=customer_id,
        )

    async def complete_checkout(self, checkout_id: UUID, session_id: str, id_: str, meant: CheckoutMetadata | None, customer_id: str | None) -> bool:
        # A session makes one subscription, and this may be heard before what the provider answered is written.
        return await self._exists(
            """
            update billing_checkouts c set session_id = %(session_id)s, provider_subscription_id = %(id)s
            where c.id = %(checkout_id)s and coalesce(c.session_id, %(session_id)s) = %(session_id)s
              and coalesce(c.provider_subscription_id, %(id)s) = %(id)s
              and (%(customer_id)s::text is null or coalesce(c.customer_id, %(customer_id)s) = %(customer_id)s)
              and (%(org_id)s::uuid is null
                   or (c.org_id, c.service_id, c.user_id, c.plan_id) = (%(org_id)s, %(service_id)s, %(user_id)s, %(plan_id)s))
            returning 1""",
            checkout_id=checkout_id,
            session_id=session_id,
            id=id_,
            customer_id=customer_id,
            org_id=meant and meant.org_id,
            service_id=meant and meant.service_id,
            user_id=meant and meant.user_id,
            plan_id=meant and meant.plan_id,
        )

    async def checkout_of(self, id_: str, meant: CheckoutMetadata, price_id: str | None) -> CheckoutMatch | None:
        # What came of one checkout came of no other, and one of which something else came is not it.
        return await self._one(
            lambda row: CheckoutMatch(row[0], row[1]),
            """
            select c.is_meant, c.is_price from (
                select true as is_known, price_id = coalesce(%(price_id)s, price_id) as is_price,
                       (org_id, service_id, user_id, plan_id) = (%(org_id)s, %(service_id)s, %(user_id)s, %(plan_id)s) as is_meant
                from billing_checkouts where provider_subscription_id = %(id)s
                union all
                select false, price_id = coalesce(%(price_id)s, price_id), true from billing_checkouts
                where org_id = %(org_id)s and service_id = %(service_id)s and user_id = %(user_id)s and plan_id = %(plan_id)s
                  and provider_subscription_id is null) c
            order by c.is_known desc, c.is_price desc limit 1""",
            id=id_,
            price_id=price_id,
            org_id=meant.org_id,
            service_id=meant.service_id,
            user_id=meant.user_id,
            plan_id=meant.plan_id,
        )

    async def bought(self, id_: str) -> CheckoutMetadata | None:
        return await self._one(
            lambda row: CheckoutMetadata(*row),
            "select org_id, service_id, user_id, plan_id from billing_checkouts where provider_subscription_id = %(id)s",
            id=id_,
        )

    async def checkout_done(self, org_id: UUID, id_: str) -> None:
        await self._run(
            "update billing_checkouts set check_at = null where provider_subscription_id = %(id)s and org_id = %(org_id)s",
            org_id=org_id,
            id=id_,
        )

    async def is_asked_about(self, id_: str, since: datetime) -> bool:
        return await self._exists(
            """
            select 1 from billing_facts
            where provider_subscription_id = %(id)s and (check_at is not null or object_at > %(since)s)""",
            id=id_,
            since=since,
        )

    async def claim_checkouts(self, now: datetime, until: datetime, since: datetime, begun_by: datetime) -> OpenCheckouts | None:
        # Of those whose answer was never heard, the customer is the organization's.
        return await self._one(
            lambda row: OpenCheckouts(tuple(row[0]), row[1], row[2]),
            """
            with first as materialized (
                select org_id, customer_id from billing_checkouts where check_at <= %(now)s order by check_at limit 1),
            due as (
                select c.id from first join billing_checkouts c
                  on c.org_id = first.org_id and c.customer_id is not distinct from first.customer_id
                where c.check_at is not null and (c.check_at <= %(now)s or c.created_at <= %(begun_by)s) for update of c skip locked),
            claimed as (
                update billing_checkouts c set check_at = case when c.created_at < %(since)s then null else %(until)s end
                from due where c.id = due.id returning c.id, c.org_id, c.customer_id, c.created_at)
            select array_agg(c.id), min(c.created_at), coalesce(c.customer_id, b.customer_id)
            from claimed c left join billing_customers b on b.org_id = c.org_id
            group by coalesce(c.customer_id, b.customer_id)""",
            now=now,
            until=until,
            since=since,
            begun_by=begun_by,
        )

    async def put_back_checkouts(self, ids: Sequence[UUID], at: datetime, since: datetime) -> None:
        await self._run(
            """
            update billing_checkouts set check_at = %(at)s
            where id = any(%(ids)s) and (check_at is not null or created_at < %(since)s)""",
            ids=list(ids),
            at=at,
            since=since,
        )


class Cancellations(Repository):
    """ports.storage.Cancellations."""

    async def ask_for(self, cancellation: Cancellation) -> None:
        await self._run(
            """
            insert into billing_cancellations (provider_subscription_id, subscription_id, org_id, service_id, asked_at, due_at)
            values (%(provider_subscription_id)s, %(subscription_id)s, %(org_id)s, %(service_id)s, %(asked_at)s, %(asked_at)s)
            on conflict do nothing""",
            provider_subscription_id=cancellation.provider_subscription_id,
            subscription_id=cancellation.subscription_id,
            org_id=cancellation.org_id,
            service_id=cancellation.service_id,
            asked_at=cancellation.asked_at,
        )

    async def is_requested(self, org_id: UUID, id_: str) -> bool:
        return await self._exists(
            "select 1 from billing_cancellations where provider_subscription_id = %(id)s and org_id = %(org_id)s", org_id=org_id, id=id_
        )

    async def claim(self, now: datetime, until: datetime) -> Cancellation | None:
        return await self._one(
            to_cancellation,
            f"""
            with due as (
                select c.provider_subscription_id from billing_cancellations c where c.due_at <= %(now)s and {IS_ENDED_HERE}
                order by c.due_at limit 1 for update skip locked) {CLAIMED}""",
            now=now,
            until=until,
        )

    async def claim_of_service(self, org_id: UUID, service_id: UUID, now: datetime, until: datetime, limit: int) -> list[Cancellation]:
        return await self._all(
            to_cancellation,
            f"""
            with due as (
                select c.provider_subscription_id from billing_cancellations c
                where c.org_id = %(org_id)s and c.service_id = %(service_id)s and c.due_at <= %(now)s and {IS_ENDED_HERE}
                order by c.due_at limit %(limit)s for update skip locked) {CLAIMED}""",
            org_id=org_id,
            service_id=service_id,
            now=now,
            until=until,
            limit=limit,
        )

    async def done(self, cancellation: Cancellation) -> bool:
        return await self._exists(
            "delete from billing_cancellations where provider_subscription_id = %(id)s and org_id = %(org_id)s returning 1",
            id=cancellation.provider_subscription_id,
            org_id=cancellation.org_id,
        )
