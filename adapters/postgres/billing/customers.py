"""Customer records at the payment provider, and their payment methods."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine.locks import CUSTOMERS
from adapters.postgres.engine.statements import Repository
from core.billing.model.checkout import Customer
from core.billing.model.subscriptions import BillingCustomer

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
