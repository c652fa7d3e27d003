"""Checkouts that members started, customer records at the payment provider, and their payment methods."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine.locks import CUSTOMERS
from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Repository
from core.billing.model.checkout import Checkout, CheckoutMatch, Customer
from core.billing.model.provider_events import OpenCheckouts
from core.billing.model.provider_objects import CheckoutMetadata
from core.billing.model.subscriptions import BillingCustomer
from ports.signals import Signal

METADATA: Final = Record(CheckoutMetadata, "c")


class Checkouts(Repository):
    """Implements `ports.storage.billing.Checkouts`."""

    async def add(self, checkout: Checkout, check_at: datetime) -> None:
        await self._run(
            """
            insert into billing_checkouts (id, org_id, service_id, user_id, plan_id, price_id, created_at, check_at)
            values (%(id)s, %(org_id)s, %(service_id)s, %(user_id)s, %(plan_id)s, %(price_id)s, %(created_at)s, %(check_at)s)""",
            **METADATA.values(checkout.metadata),
            id=checkout.id,
            price_id=checkout.price_id,
            created_at=checkout.created_at,
            check_at=check_at,
        )
        self._signals.send(Signal.SUBSCRIPTION_IN_DOUBT, check_at)

    async def save_session(self, org_id: UUID, checkout_id: UUID, session_id: str, customer_id: str) -> None:
        sql = """
            update billing_checkouts set session_id = %(session_id)s, customer_id = coalesce(customer_id, %(customer_id)s)
            where org_id = %(org_id)s and id = %(checkout_id)s"""
        await self._run(sql, org_id=org_id, checkout_id=checkout_id, session_id=session_id, customer_id=customer_id)

    async def complete(
        self, checkout_id: UUID, session_id: str, id_: str, metadata: CheckoutMetadata | None, customer_id: str | None
    ) -> bool:
        # A session leads to a single subscription. An event may arrive before the response that
        # created the session is saved.
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
            org_id=metadata and metadata.org_id,
            service_id=metadata and metadata.service_id,
            user_id=metadata and metadata.user_id,
            plan_id=metadata and metadata.plan_id,
        )

    async def match(self, id_: str, metadata: CheckoutMetadata, price_id: str | None) -> CheckoutMatch | None:
        # A subscription has at most one checkout, and a checkout at most one subscription. So if a
        # checkout has this subscription, it is the only candidate. If none has it, the candidates
        # are the checkouts without a subscription.
        sql = """
            select c.is_meant, c.is_price from (
                select true as is_known, price_id = coalesce(%(price_id)s, price_id) as is_price,
                       (org_id, service_id, user_id, plan_id) = (%(org_id)s, %(service_id)s, %(user_id)s, %(plan_id)s) as is_meant
                from billing_checkouts where provider_subscription_id = %(id)s
                union all
                select false, price_id = coalesce(%(price_id)s, price_id), true from billing_checkouts
                where org_id = %(org_id)s and service_id = %(service_id)s and user_id = %(user_id)s and plan_id = %(plan_id)s
                  and provider_subscription_id is null) c
            order by c.is_known desc, c.is_price desc limit 1"""
        return await self._one(lambda row: CheckoutMatch(row[0], row[1]), sql, id=id_, price_id=price_id, **METADATA.values(metadata))

    async def metadata_of(self, id_: str) -> CheckoutMetadata | None:
        sql = f"select {METADATA.columns} from billing_checkouts c where c.provider_subscription_id = %(id)s"
        return await self._one(METADATA.read, sql, id=id_)

    async def stop_checks(self, org_id: UUID, id_: str) -> None:
        sql = "update billing_checkouts set check_at = null where provider_subscription_id = %(id)s and org_id = %(org_id)s"
        await self._run(sql, org_id=org_id, id=id_)

    async def claim(self, now: datetime, until: datetime, since: datetime, begun_by: datetime) -> OpenCheckouts | None:
        # If the provider's response was lost, the checkout has no customer. Then the organization's
        # customer is used.
        sql = """
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
            group by coalesce(c.customer_id, b.customer_id)"""
        return await self._one(
            lambda row: OpenCheckouts(tuple(row[0]), row[1], row[2]), sql, now=now, until=until, since=since, begun_by=begun_by
        )

    async def next_check(self) -> datetime | None:
        return await self._one(lambda row: row[0], "select min(check_at) from billing_checkouts")

    async def reschedule(self, ids: Sequence[UUID], at: datetime, since: datetime) -> None:
        sql = """
            update billing_checkouts set check_at = %(at)s
            where id = any(%(ids)s) and (check_at is not null or created_at < %(since)s)"""
        await self._run(sql, ids=list(ids), at=at, since=since)


# Events about customers usually contain the organization, because we send it when we create the
# customer. If an event lacks the organization, any organization matches.
BY_CUSTOMER: Final = "customer_id = %(customer_id)s and org_id = coalesce(%(org_id)s::uuid, org_id)"


class Customers(Repository):
    """Implements `ports.storage.billing.Customers`."""

    async def of_organization(self, org_id: UUID) -> BillingCustomer | None:
        sql = """
            select c.customer_id, c.user_id, m.payment_method_id
            from billing_customers c left join billing_default_payment_methods m on m.org_id = c.org_id
            where c.org_id = %(org_id)s and c.customer_id is not null"""
        return await self._one(lambda row: BillingCustomer(*row), sql, org_id=org_id)

    async def find_or_add(self, org_id: UUID, key: UUID, now: datetime) -> Customer:
        sql = """
            insert into billing_customers as c (org_id, idempotency_key, created_at) values (%(org_id)s, %(key)s, %(now)s)
            on conflict (org_id) do update set idempotency_key = c.idempotency_key
            returning idempotency_key, customer_id"""
        customer = await self._one(lambda row: Customer(*row), sql, org_id=org_id, key=key, now=now)
        assert customer is not None, "the statement inserts a missing row"
        return customer

    async def renew_key(self, org_id: UUID, key: UUID, new: UUID) -> None:
        sql = """
            update billing_customers set idempotency_key = %(new)s
            where org_id = %(org_id)s and idempotency_key = %(key)s and customer_id is null"""
        await self._run(sql, org_id=org_id, key=key, new=new)

    async def save(self, org_id: UUID, key: UUID, customer_id: str) -> str | None:
        sql = """
            update billing_customers set customer_id = coalesce(customer_id, %(customer_id)s)
            where org_id = %(org_id)s and idempotency_key = %(key)s returning customer_id"""
        return await self._one(lambda row: str(row[0]), sql, org_id=org_id, key=key, customer_id=customer_id)

    async def may_belong_to(self, org_id: UUID, customer_id: str) -> bool:
        sql = """
            select 1 from billing_customers
            where org_id = %(org_id)s and customer_id <> %(customer_id)s or customer_id = %(customer_id)s and org_id <> %(org_id)s"""
        return not await self._exists(sql, org_id=org_id, customer_id=customer_id)

    async def link(self, org_id: UUID, customer_id: str, key: UUID, now: datetime) -> bool:
        await self._lock_customer(customer_id)
        sql = """
            insert into billing_customers as c (org_id, idempotency_key, customer_id, created_at)
            select o.id, %(key)s, %(customer_id)s, %(now)s from organizations o
            where o.id = %(org_id)s
              and not exists (select 1 from billing_customers x where x.customer_id = %(customer_id)s and x.org_id <> %(org_id)s)
              and not exists (select 1 from billing_deleted_customers d where d.customer_id = %(customer_id)s)
            on conflict (org_id) do update set customer_id = excluded.customer_id
            where coalesce(c.customer_id, excluded.customer_id) = excluded.customer_id
            returning 1"""
        return await self._exists(sql, org_id=org_id, customer_id=customer_id, key=key, now=now)

    async def save_user(self, org_id: UUID | None, customer_id: str, user_id: UUID | None, at: datetime) -> bool:
        sql = f"""
            update billing_customers set
                user_id = case when heard_at > %(at)s then user_id else (select u.id from users u where u.id = %(user_id)s) end,
                heard_at = greatest(heard_at, %(at)s)
            where {BY_CUSTOMER} returning 1"""
        return await self._exists(sql, org_id=org_id, customer_id=customer_id, user_id=user_id, at=at)

    async def mark_deleted(self, org_id: UUID | None, customer_id: str, key: UUID, now: datetime) -> bool:
        # An event that names an organization cannot delete another organization's customer
        # (security H-5).
        await self._lock_customer(customer_id)
        sql = f"""
            with remembered as (
                insert into billing_deleted_customers (customer_id, heard_at)
                select %(customer_id)s, %(now)s
                where not exists (select 1 from billing_customers x where x.customer_id = %(customer_id)s and x.org_id <> %(org_id)s)
                on conflict do nothing)
            update billing_customers set customer_id = null, user_id = null, idempotency_key = %(key)s, heard_at = null
            where {BY_CUSTOMER} returning 1"""
        return await self._exists(sql, org_id=org_id, customer_id=customer_id, key=key, now=now)

    async def _lock_customer(self, customer_id: str) -> None:
        """Serialize linking and deleting a customer. There may be no row to lock, so this lock is an advisory lock."""
        await self._write(f"select pg_advisory_xact_lock({CUSTOMERS}, hashtext(%(customer_id)s))", customer_id=customer_id)

    async def attach_payment_method(self, customer_id: str, payment_method_id: str, at: datetime, now: datetime) -> bool:
        # Within the same second, attaching comes before detaching, regardless of the order in which
        # the events arrive.
        sql = """
            with attached as (
                insert into billing_payment_methods as m (payment_method_id, customer_id, said_at, heard_at)
                values (%(payment_method_id)s, %(customer_id)s, %(at)s, %(now)s)
                on conflict (payment_method_id) do update
                set customer_id = excluded.customer_id, said_at = excluded.said_at, heard_at = excluded.heard_at
                where m.said_at < excluded.said_at or m.said_at = excluded.said_at and m.customer_id is not null)
            select 1 from billing_customers where customer_id = %(customer_id)s"""
        return await self._exists(sql, payment_method_id=payment_method_id, customer_id=customer_id, at=at, now=now)

    async def detach_payment_method(self, payment_method_id: str, at: datetime, now: datetime) -> bool:
        sql = """
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
            select 1 from old, detached"""
        return await self._exists(sql, payment_method_id=payment_method_id, at=at, now=now)
