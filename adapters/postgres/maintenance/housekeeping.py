"""The removal of what is past its use, and leases on work of which there is one."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.engine.statements import Repository
from adapters.postgres.maintenance.deferred_deletion import (
    removing_deliveries,
    removing_logins,
    removing_records,
    without_deliveries,
    without_logins,
    without_records,
)
from core.maintenance.housekeeping_rules import Sweep

# Self-registered with a password and nothing else to sign in with, never proved, member of nothing and known to no directory (security.md
# A-7), and not in the books of any service: those keep the account from being deleted, also where the service itself is gone and they still
# wait to be removed. To be kept out of services that nobody has come to use keeps nothing.
NEVER_VERIFIED: Final = """
    u.first_verified_at is null and u.created_at < %(before)s and u.origin = 'platform' and u.password_hash is not null
    and u.deactivated_at is null and u.anonymized_at is null and not u.is_platform_owner
    and not exists (select 1 from memberships m where m.user_id = u.id)
    and not exists (select 1 from scim_users s where s.user_id = u.id and s.membership_id is not null)
    and not exists (select 1 from identities i where i.user_id = u.id)
    and not exists (select 1 from service_users r where r.user_id = u.id)
    and not exists (select 1 from end_users e where e.user_id = u.id)
    and not exists (select 1 from subscriptions b where b.user_id = u.id)"""
# A statement looks at memberships as they were when it began, also where it comes to lock the account later; and whoever was made a member
# in between must stay. So the accounts are locked first, which keeps memberships of them from being added, and judged again by another
# statement, which sees those that there are.
LOCK_NEVER_VERIFIED: Final = f"select u.id from users u where {NEVER_VERIFIED} limit %(limit)s for update of u skip locked"


def _past(table: LiteralString, since: LiteralString, *, key: LiteralString = "id") -> LiteralString:
    """The removal of rows that have been past their use since then. `key` says which row is which."""
    return f"""
        delete from {table} where {key} = any(array(
            select {key} from {table} where {since} < %(before)s limit %(limit)s for update skip locked))"""


# What each sweep removes: rows that were past their use at %(before)s, at most %(limit)s of them. Rows that somebody is using this
# moment are left for the next round. An array is put together once; what "in" asks, the planner may ask again for every row.
SWEEPS: Final[Mapping[Sweep, LiteralString]] = {
    Sweep.ONE_TIME_TOKENS: _past("one_time_tokens", "expires_at", key="ctid"),
    Sweep.PRE_AUTHS: _past("pre_auths", "expires_at"),
    Sweep.DEVICE_CODES: _past("device_codes", "expires_at", key="device_code_hash"),
    Sweep.LINK_TICKETS: _past("link_tickets", "expires_at", key="token_hash"),
    Sweep.AUTHORIZATION_CODES: _past("authorization_codes", "expires_at", key="code_hash"),
    Sweep.PROVIDER_STATES: _past("provider_states", "expires_at", key="state_hash"),
    Sweep.SAML_SIGN_ONS: _past("saml_sign_ons", "expires_at", key="state_hash"),
    Sweep.SAML_LOGOUTS: _past("saml_logouts", "expires_at"),
    Sweep.SIGNING_KEYS: _past("signing_keys", "retires_at", key="kid"),
    Sweep.SESSIONS: _past("sessions", "least(ended_at, expires_at)"),
    Sweep.RATES: _past("rates", "expires_at", key="client"),
    Sweep.GUESSES: _past("guesses", "expires_at", key="ctid"),
    Sweep.MAILS: _past("mails", "finished_at"),
    # What is confirmed this very moment has a step by then.
    Sweep.MFA_SETUPS: """
        delete from mfa where user_id = any(array(
            select m.user_id from mfa m join users u on u.id = m.user_id
            where m.last_step is null and u.mfa_enabled_at is null and m.setup_at < %(before)s
            limit %(limit)s for update of m skip locked))""",
    Sweep.EVENTS: _past("events", "created_at"),
    Sweep.UNVERIFIED_ACCOUNTS: f"delete from users u where u.id = any(%(locked)s) and {NEVER_VERIFIED}",
    # Whoever saw it enabled before that may still have queued something, so the tombstone stays for a while.
    Sweep.SIEM_QUEUES: """
        with waiting as (
            delete from siem_queue where ctid = any(array(
                select q.ctid from removed_siem_configurations r cross join lateral (
                    select ctid from siem_queue where org_id = r.org_id and siem_id = r.id
                    order by position limit %(limit)s for update skip locked) q
                limit %(limit)s))
            returning 1),
        buried as (
            delete from removed_siem_configurations where id = any(array(
                select r.id from removed_siem_configurations r
                where r.removed_at < %(before)s
                  and (select siem_id from siem_queue where org_id = r.org_id and siem_id = r.id order by position limit 1) is null
                limit %(limit)s - (select count(*) from waiting)))
            returning 1)
        select 1 from waiting union all select 1 from buried""",
    # How old something is, its entry says. The oldest of a queue stands first but for some seconds, so whoever has a young one there is not
    # looked at further. An entry that is gone is as old as can be.
    Sweep.SIEM_BACKLOGS: """
        with stale as materialized (
            select s.org_id, s.id from siem_configurations s
            where coalesce((
                select l.created_at from (
                    select entry_id from siem_queue where org_id = s.org_id and siem_id = s.id order by position limit 1) h
                join audit_log l on l.id = h.entry_id and l.org_id = s.org_id), '-infinity') < %(before)s)
        delete from siem_queue where ctid = any(array(
            select q.ctid from stale s
            cross join lateral (
                select ctid, entry_id from siem_queue where org_id = s.org_id and siem_id = s.id
                order by position limit %(limit)s for update skip locked) q
            left join audit_log l on l.id = q.entry_id and l.org_id = s.org_id
            where coalesce(l.created_at, '-infinity') < %(before)s
            limit %(limit)s))""",
    Sweep.CHECKOUTS: _past("billing_checkouts", "created_at"),
    # What is known of those that we have counts: also of one that has ended, lest somebody who says it lives is believed.
    Sweep.BILLING_FACTS: """
        delete from billing_facts where provider_subscription_id = any(array(
            select f.provider_subscription_id from billing_facts f
            where (f.ended or f.org_id is null) and f.heard_at < %(before)s
              and not exists (select 1 from subscriptions s where s.provider_subscription_id = f.provider_subscription_id)
            limit %(limit)s for update skip locked))""",
    # Those that stay are no more than organizations have, and looked at each time.
    Sweep.PAYMENT_METHODS: """
        delete from billing_payment_methods where payment_method_id = any(array(
            select m.payment_method_id from billing_payment_methods m
            where m.heard_at < %(before)s and not exists (select 1 from billing_customers c where c.customer_id = m.customer_id)
            limit %(limit)s for update skip locked))""",
    Sweep.DELETED_CUSTOMERS: _past("billing_deleted_customers", "heard_at", key="customer_id"),
    # A range of years then costs an eighth. Whoever deletes a service waits for this, as it does for those who sign in to it, and whoever
    # counts out of a day that is over does that in the first shard, too, in this order: so nobody waits in a circle.
    Sweep.LOGIN_TOTALS: """
        with spread as (
            delete from login_totals where ctid = any(array(
                select t.ctid from login_totals t join services v on v.id = t.service_id
                where t.shard > 0 and t.day < (%(before)s at time zone 'UTC')::date
                order by t.day limit %(limit)s for update of t skip locked for key share of v skip locked))
            returning org_id, service_id, day, provider, total),
        together as (
            insert into login_totals as t (org_id, service_id, day, provider, shard, total)
            select org_id, service_id, day, provider, 0, sum(total) from spread
            group by org_id, service_id, day, provider order by org_id, service_id, day, provider
            on conflict (org_id, service_id, day, provider, shard) do update set total = t.total + excluded.total)
        select 1 from spread""",
    # Also what was not delivered: as old as that, it has waited for a webhook that nobody has made active again.
    Sweep.WEBHOOK_DELIVERIES: _past("webhook_deliveries", "created_at"),
    Sweep.FORMER_WEBHOOK_SECRETS: _past("former_webhook_secrets", "until", key="ctid"),
    # What happened in the moment of the deletion may still have been told to it, so its tombstone stays for a while.
    Sweep.DELETED_WEBHOOKS: f"""
        {removing_deliveries("select id from deleted_webhooks")},
        buried as (
            delete from deleted_webhooks where id = any(array(
                select d.id from deleted_webhooks d where d.deleted_at < %(before)s and {without_deliveries("d.id")}
                limit %(limit)s - (select count(*) from records)))
            returning 1)
        select 1 from records union all select 1 from buried""",
    # Whoever deletes a service waits for those who sign in to it, so nobody writes of it after that.
    Sweep.DELETED_SERVICES: f"""
        {removing_logins("select id from deleted_services")},
        buried as (
            delete from deleted_services where id = any(array(
                select d.id from deleted_services d where d.deleted_at < %(before)s and {without_logins("d.id")}
                limit %(limit)s - (select count(*) from records)))
            returning 1)
        select 1 from records union all select 1 from buried""",
    # What is still written of a deleted organization is told by somebody who saw it alive, so its tombstone stays for a while.
    Sweep.DELETED_ORGANIZATIONS: f"""
        {removing_records("select id from deleted_organizations")},
        buried as (
            delete from deleted_organizations where id = any(array(
                select d.id from deleted_organizations d where d.deleted_at < %(before)s and {without_records("d.id")}
                limit %(limit)s - (select count(*) from records)))
            returning 1)
        select 1 from records union all select 1 from buried""",
}


class Leases(Repository):
    """ports.storage.Leases."""

    async def take(self, name: str, holder: UUID, now: datetime, until: datetime) -> bool:
        return await self._exists(
            """
            insert into leases as l (name, holder, expires_at) values (%(name)s, %(holder)s, %(until)s)
            on conflict (name) do update set holder = excluded.holder, expires_at = excluded.expires_at
            where l.holder = excluded.holder or l.expires_at <= %(now)s
            returning 1""",
            name=name,
            holder=holder,
            now=now,
            until=until,
        )


class Housekeeping(Repository):
    """ports.storage.Housekeeping."""

    async def sweep(self, what: Sweep, before: datetime, limit: int) -> int:
        if what is Sweep.UNVERIFIED_ACCOUNTS:
            locked = await self._all(lambda row: row[0], LOCK_NEVER_VERIFIED, before=before, limit=limit)
            return await self._run(SWEEPS[what], before=before, locked=locked)
        return await self._run(SWEEPS[what], before=before, limit=limit)
