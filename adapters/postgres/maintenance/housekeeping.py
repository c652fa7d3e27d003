"""Deleting obsolete rows and the records of deleted owners, and leases on jobs that only one process at a time runs.

The transaction that deletes the owner deletes a first batch of records. The housekeeper deletes the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.engine.statements import Repository
from adapters.postgres.kernel.shared_sql import NO_CHALLENGE, NO_PROOFS
from core.maintenance.model.housekeeping import Sweep
from ports.signals import Signal


@dataclass(frozen=True, slots=True)
class OwnedRecords:
    """The tables without a foreign key to their rows' owner.

    A table has the columns that follow the owner's id in an index. Tables that also refer to accounts come first.
    """

    owner: LiteralString  # the column with its id
    tables: Sequence[tuple[LiteralString, LiteralString]]

    def delete_sql(self, of: LiteralString) -> LiteralString:
        """Return a `with` clause that deletes up to %(limit)s records that belong to the owners in `of`, a query for ids.

        The caller appends a query, or more CTEs and a query. The last CTE in the clause, `records`, has a row per deleted record.
        """
        # Owners are processed in sequence, and rows by their physical position. Locked rows are skipped: the
        # transaction that deletes an organization holds locks for which concurrent transactions may wait.
        steps, room = [f"with gone as ({of})"], "%(limit)s"
        for table, order in self.tables:
            steps.append(
                f"""
            of_{table} as (
                delete from {table} where ctid = any(array(
                    select r.ctid from gone cross join lateral (
                        select ctid from {table} where {_of(self.owner, "gone.id", order)} limit %(limit)s for update skip locked) r
                    limit {room}))
                returning 1)"""
            )
            room += f" - (select count(*) from of_{table})"
        removed = " union all ".join(f"select 1 from of_{table}" for table, _ in self.tables)
        return ",".join([*steps, f" records as ({removed})"])

    def none_left_sql(self, of: LiteralString) -> LiteralString:
        """Return a condition that holds if the owner with the id `of` has no records left."""
        return " and ".join(
            f"(select {self.owner} from {table} where {_of(self.owner, of, order)} limit 1) is null" for table, order in self.tables
        )


def _of(owner: LiteralString, id_: LiteralString, order: LiteralString) -> LiteralString:
    # Keep the one-value range and the full order of the index that begins with the owner: only this
    # index has that order. With a plain equality, a planner that knows few owners expects many rows
    # per owner, and would read a whole table to find none.
    return f"{owner} >= {id_} and {owner} <= {id_} order by {owner}, {order}"


OF_ORGANIZATIONS: Final = OwnedRecords(
    "org_id",
    (
        ("service_users", "user_id"),
        ("end_users", "user_id"),
        ("group_members", "user_id"),
        ("end_user_totals", "org_id"),
        ("siem_queue", "siem_id, position"),
        ("audit_log", "created_at desc, id desc"),
        ("events", "name"),
        ("login_events", "created_at desc, id desc"),
        ("login_totals", "service_id, day, provider, shard"),
        ("member_login_totals", "day, provider"),
        ("audit_totals", "action, target_type"),
        ("scim_requests", "id"),
        ("sign_in_figures", "span, start, service_id, method, result"),
        ("user_figures", "span, start"),
        ("population_figures", "day"),
        ("traffic_figures", "kind, span, start, outcome"),
    ),
)
# Foreign keys delete all further rows of a service.
OF_SERVICES: Final = OwnedRecords("service_id", (("login_events", "created_at desc, id desc"),))
# A webhook may belong to a deleted organization.
OF_WEBHOOKS: Final = OwnedRecords("webhook_id", (("webhook_deliveries", "created_at desc, id desc"),))


# Self-registered accounts that were never verified, can sign in only with a password, and have no
# membership (security A-7). A directory that provisioned the user keeps the account; a block
# without a membership does not. An account with a row in `service_users` is kept: the foreign key
# forbids its deletion. The housekeeper removes a deleted service's rows later.
UNVERIFIED: Final = """
    u.first_verified_at is null and u.created_at < %(before)s and u.origin = 'platform' and u.password_hash is not null
    and u.deactivated_at is null and u.anonymized_at is null and not u.is_platform_owner
    and not exists (select 1 from memberships m where m.user_id = u.id)
    and not exists (select 1 from scim_users s where s.user_id = u.id and s.membership_id is not null)
    and not exists (select 1 from identities i where i.user_id = u.id)
    and not exists (select 1 from service_users r where r.user_id = u.id)
    and not exists (select 1 from end_users e where e.user_id = u.id)
    and not exists (select 1 from subscriptions b where b.user_id = u.id)"""
# A statement sees the memberships from the moment at which it started, even if it locks the account
# later. If a user became a member in between, the account must stay. So this statement only locks
# the accounts, which prevents new memberships, and a second statement checks the memberships again.
LOCK_UNVERIFIED: Final = f"select u.id from users u where {UNVERIFIED} limit %(limit)s for update of u skip locked"


def _past(table: LiteralString, since: LiteralString, *, key: LiteralString = "id") -> LiteralString:
    """Return a statement that deletes rows with a time `since` before %(before)s. `key` identifies a row."""
    return f"""
        delete from {table} where {key} = any(array(
            select {key} from {table} where {since} < %(before)s limit %(limit)s for update skip locked))"""


def _bury(tombstones: LiteralString, records: OwnedRecords) -> LiteralString:
    """Return a statement that deletes the records behind these tombstones, and the tombstones that have no records left."""
    return f"""
        {records.delete_sql(f"select id from {tombstones}")},
        buried as (
            delete from {tombstones} where id = any(array(
                select d.id from {tombstones} d where d.deleted_at < %(before)s and {records.none_left_sql("d.id")}
                limit %(limit)s - (select count(*) from records)))
            returning 1)
        select 1 from records union all select 1 from buried"""


# The statements for the kinds of sweeps. A statement deletes up to %(limit)s rows that were
# obsolete at %(before)s. Locked rows are left for the next sweep. Keep `= any(array(...))`: the
# array is computed once, but the planner may run an `in` subquery again for every row.
SWEEPS: Final[Mapping[Sweep, LiteralString]] = {
    Sweep.ONE_TIME_TOKENS: _past("one_time_tokens", "expires_at", key="ctid"),
    Sweep.SIGN_IN_FLOWS: _past("sign_in_flows", "expires_at"),
    # The user stays: a sign-in over the API may have completed the flow.
    Sweep.FLOW_SECRETS: f"""
        update sign_in_flows set {NO_PROOFS}, {NO_CHALLENGE}
        where id = any(array(
            select id from sign_in_flows where greatest(proofs_expire_at, challenge_expires_at) < %(before)s
            limit %(limit)s for update skip locked))""",
    Sweep.KEPT_FORMS: _past("kept_forms", "expires_at"),
    Sweep.SENT_FORMS: _past("sent_forms", "expires_at", key="form_hash"),
    Sweep.DEVICE_CODES: _past("device_codes", "expires_at", key="device_code_hash"),
    Sweep.AUTHORIZATION_CODES: _past("authorization_codes", "expires_at", key="code_hash"),
    Sweep.PUSHED_REQUESTS: _past("pushed_requests", "expires_at", key="request_hash"),
    Sweep.CLIENT_ASSERTIONS: _past("client_assertions", "expires_at", key="ctid"),
    Sweep.CONNECTION_LOGINS: _past("connection_logins", "ends_at"),
    Sweep.SAML_LOGOUTS: _past("saml_logouts", "expires_at"),
    Sweep.SIGNING_KEYS: _past("signing_keys", "retires_at", key="kid"),
    Sweep.SESSIONS: _past("sessions", "least(ended_at, expires_at)"),
    Sweep.RATES: _past("rates", "expires_at", key="client"),
    Sweep.SIGN_IN_CHARGES: _past("sign_in_charges", "expires_at", key="ctid"),
    Sweep.ATTEMPT_LIMITS: _past("guesses", "expires_at", key="ctid"),
    Sweep.MAILS: _past("mails", "finished_at"),
    Sweep.EMAIL_CHANGES: _past("email_changes", "requested_at"),
    Sweep.SECURITY_NOTICES: _past("security_notices", "undo_until"),
    Sweep.FORMER_MFA: _past("former_mfa", "removed_at"),
    Sweep.ACCOUNT_RECOVERIES: _past("account_recoveries", "expires_at"),
    Sweep.FORMER_PASSKEYS: _past("former_passkeys", "removed_at"),
    Sweep.USED_PROVIDER_MESSAGES: _past("used_provider_messages", "expires_at", key="ctid"),
    Sweep.PASSKEY_CHALLENGES: _past("used_passkey_challenges", "expires_at", key="challenge_hash"),
    # A concurrent confirmation sets last_step. PostgreSQL checks that column again under the lock,
    # so a confirmed setup stays.
    Sweep.MFA_SETUPS: """
        delete from mfa where user_id = any(array(
            select m.user_id from mfa m join users u on u.id = m.user_id
            where m.last_step is null and u.mfa_enabled_at is null and m.setup_at < %(before)s
            limit %(limit)s for update of m skip locked))""",
    Sweep.FAILED_LOGINS: _past("login_events", "not success and created_at"),
    Sweep.CREDENTIALS: _past("credentials", "expires_at"),
    Sweep.REGISTRATION_TOKENS: _past("registration_tokens", "least(expires_at, case when uses_left = 0 then last_used_at end)"),
    Sweep.SETUP_LINKS: _past("setup_links", "least(ended_at, expires_at)"),
    Sweep.EVENTS: _past("events", "created_at"),
    Sweep.UNVERIFIED_ACCOUNTS: f"delete from users u where u.id = any(%(locked)s) and {UNVERIFIED}",
    # A transaction that saw the configuration enabled may still queue entries, so the tombstone
    # stays for a while.
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
    # A queued item is as old as its audit log entry. A queue is ordered by age, except for
    # differences of some seconds. So a queue with a recent first entry is not read further. If the
    # entry was deleted, the item counts as obsolete.
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
    # Keep the facts about every subscription that is stored here, even after it ended. Without
    # these facts, a late event could reactivate the subscription.
    Sweep.BILLING_FACTS: """
        delete from billing_facts where provider_subscription_id = any(array(
            select f.provider_subscription_id from billing_facts f
            where (f.ended or f.org_id is null) and f.heard_at < %(before)s
              and not exists (select 1 from subscriptions s where s.provider_subscription_id = f.provider_subscription_id)
            limit %(limit)s for update skip locked))""",
    # A sweep reads the rows that it keeps: at most one row per payment method that an organization has.
    Sweep.PAYMENT_METHODS: """
        delete from billing_payment_methods where payment_method_id = any(array(
            select m.payment_method_id from billing_payment_methods m
            where m.heard_at < %(before)s and not exists (select 1 from billing_customers c where c.customer_id = m.customer_id)
            limit %(limit)s for update skip locked))""",
    Sweep.DELETED_CUSTOMERS: _past("billing_deleted_customers", "heard_at", key="customer_id"),
    # Merging a day's shards makes a query over years eight times cheaper. Lock order: the service, then the totals by
    # their key. A late login on a past day takes its locks in the same order, and is counted in the first shard.
    # PostgreSQL can lose the lock on the service (docs/adr/0006). Then a deleted service's total remains. No page shows
    # this total, and it is removed with the organization.
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
    # Undelivered rows are deleted too: at this age they wait for a webhook that was deactivated and
    # never activated again.
    Sweep.WEBHOOK_DELIVERIES: _past("webhook_deliveries", "created_at"),
    Sweep.LOGOUT_NOTICES: _past("logout_notices", "created_at"),
    Sweep.PREVIOUS_SAML_KEYS: """
        update saml_certificates set private_key = null, standby = null, kept_until = null where id = any(array(
            select id from saml_certificates where kept_until < %(before)s limit %(limit)s for update skip locked))""",
    Sweep.PREVIOUS_CONNECTION_KEYS: _past("connection_keys", "kept_until"),
    Sweep.FORMER_WEBHOOK_SECRETS: _past("former_webhook_secrets", "until", key="ctid"),
    # An event during the deletion may still queue a delivery, so the tombstone stays for a while.
    Sweep.DELETED_WEBHOOKS: _bury("deleted_webhooks", OF_WEBHOOKS),
    # Deleting a service waits for running sign-ins, so no records are written after it.
    Sweep.DELETED_SERVICES: _bury("deleted_services", OF_SERVICES),
    # A transaction that saw the organization before its deletion may still write records, so the
    # tombstone stays for a while.
    Sweep.DELETED_ORGANIZATIONS: _bury("deleted_organizations", OF_ORGANIZATIONS),
}


class Leases(Repository):
    """Implements `ports.storage.maintenance.Leases`."""

    async def take(self, name: str, holder: UUID, now: datetime, until: datetime) -> bool:
        # The row stays locked until its holder's batch ends, which may take minutes. `skip locked` answers at once.
        sql = """
            with free as (
                select from leases where name = %(name)s and (holder = %(holder)s or expires_at <= %(now)s) for update skip locked),
            taken as (
                update leases set holder = %(holder)s, expires_at = %(until)s where name = %(name)s and exists (table free) returning 1),
            created as (
                insert into leases (name, holder, expires_at) select %(name)s, %(holder)s, %(until)s
                where not exists (select from leases where name = %(name)s)
                on conflict (name) do nothing returning 1)
            table taken union all table created"""
        return await self._exists(sql, name=name, holder=holder, now=now, until=until)


class Housekeeping(Repository):
    """Implements `ports.storage.maintenance.Housekeeping`."""

    async def sweep(self, kind: Sweep, before: datetime, limit: int) -> int:
        if kind is Sweep.UNVERIFIED_ACCOUNTS:
            locked = await self._all(lambda row: row[0], LOCK_UNVERIFIED, before=before, limit=limit)
            if locked:
                self._signals.send(Signal.FIGURES_CHANGED)
            return await self._run(SWEEPS[kind], before=before, locked=locked)
        return await self._run(SWEEPS[kind], before=before, limit=limit)
