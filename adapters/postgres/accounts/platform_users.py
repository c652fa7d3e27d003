"""The repository for users and their second factors, as platform owners see them, and metrics about the whole platform."""

from datetime import datetime, timedelta
from typing import Any, Final, LiteralString
from uuid import UUID

from adapters.postgres.accounts.accounts import HAS_PASSKEY, HAS_SECOND_FACTOR, HELD_FACTORS, PASSWORD_ALONE, protection
from adapters.postgres.accounts.mfa import STATUS
from adapters.postgres.engine import records, statements
from core.accounts.model import platform
from core.accounts.model.email_queue import EmailBacklog
from core.accounts.model.mfa import MfaEvent
from core.accounts.model.protection import HeldFactor, Protection
from core.kernel import values
from core.kernel.proofs import Strength
from core.maintenance.model.health import QueueState


def to_organizations(row: statements.Row) -> tuple[platform.UserOrganization, ...]:
    columns = (column or () for column in row)
    return tuple(platform.UserOrganization(id_, slug, name, role) for id_, slug, name, role in zip(*columns, strict=True))


FOUND_USER: Final = records.Record(
    platform.FoundUser,
    "u",
    email=values.Email,
    mfa_enabled=HAS_SECOND_FACTOR,
    protection=records.Column(sql=protection(f"{Strength.ONE:d}"), read=Protection),
    factors=records.Column(sql=HELD_FACTORS, read=lambda kinds: tuple(map(HeldFactor, kinds))),
    deactivated_by_platform="u.platform_deactivated_at is not null",
    organizations=records.Columns("o.ids, o.slugs, o.names, o.roles", 4, to_organizations),
)


def _search(which: LiteralString) -> LiteralString:
    # A search for a part of an address reads the accounts, the newest first, until the page is
    # full. The search uses an index that includes the address. Keep the page in a CTE and look up
    # its rows in a lateral join with `limit 1`: with a plain join the planner may read all accounts
    # for a few rows.
    return f"""
        with page as (
            select id, created_at from users {which} order by created_at desc, id desc limit %(limit)s)
        select {FOUND_USER.columns}
        from page p
        cross join lateral (
            select id, email, is_platform_owner, password_hash, mfa_enabled_at,
                    passkey_count, security_key_count, passkey_second_at, created_at,
                   deactivated_at, platform_deactivated_at,
                   case when anonymized_at is null then erase_at end as erase_at
            from users where id = p.id limit 1) u
        cross join lateral (
            select array_agg(o.id order by o.slug) as ids, array_agg(o.slug order by o.slug) as slugs,
                   array_agg(o.name order by o.slug) as names, array_agg(m.role order by o.slug) as roles
            from memberships m cross join lateral (select id, slug, name from organizations where id = m.org_id limit 1) o
            where m.user_id = p.id) o
        order by p.created_at desc, p.id desc"""


# Addresses are stored in lower case. `strpos` needs no escaped wildcards, unlike `like`.
AFTER: Final = "(created_at, id) < (select created_at, id from users where id = %(after)s)"
NEWEST: Final = _search("")
NEXT: Final = _search(f"where {AFTER}")
WITH_ADDRESS: Final = _search("where strpos(email, %(email)s) > 0")
NEXT_WITH_ADDRESS: Final = _search(f"where {AFTER} and strpos(email, %(email)s) > 0")
WITH_ID: Final = _search("where id = %(user_id)s and (%(email)s::text is null or strpos(email, %(email)s) > 0)")
OWNERS: Final = _search("where is_platform_owner")

MFA_STATUS: Final = f"""
    select {STATUS}, u.id, u.email,
           (select e.created_at from mfa_events e where e.user_id = u.id and e.event_type = '{MfaEvent.VERIFY_ATTEMPT}'
            order by e.created_at desc, e.id desc limit 1)
    from users u where u.id = %(user_id)s"""

MFA_FIGURES: Final = f"""
    select count(*), count(*) filter (where {HAS_SECOND_FACTOR}),
           (select count(*) from mfa_events where event_type = '{MfaEvent.BACKUP_CODE_USED}' and created_at >= %(since)s),
           (select count(*) from mfa_events where event_type = '{MfaEvent.VERIFY_FAILED}' and created_at >= %(since)s)
    from users u where u.deactivated_at is null and u.anonymized_at is null"""

# Every type has the whole result's limit as its own limit, so the newest alerts with any type are included.
ALERTS: Final = f"""
    with found as (
        (select user_id, %(repeated_failures)s as type, max(created_at) as detected_at, count(*) as count, min(created_at) as since,
                null as address
         from mfa_events where event_type = '{MfaEvent.VERIFY_FAILED}' and created_at >= %(since)s
         group by user_id having count(*) >= %(many_failures)s order by detected_at desc, user_id limit %(limit)s)
        union all
        (select user_id, %(backup_code_burst)s, max(created_at) as detected_at, count(*), min(created_at), null
         from mfa_events where event_type = '{MfaEvent.BACKUP_CODE_USED}' and created_at >= %(since)s
         group by user_id having count(*) >= %(many_backup_codes)s order by detected_at desc, user_id limit %(limit)s)
        union all
        (select e.user_id, %(disabled_after_login)s, e.created_at, null, l.created_at, l.address
         from mfa_events e
         cross join lateral (
             select created_at, address from login_events
             where user_id = e.user_id and success and created_at between e.created_at - %(soon)s::interval and e.created_at
             order by created_at desc limit 1) l
         where e.event_type in ('{MfaEvent.DISABLED}', '{MfaEvent.PASSKEY_DISABLED}') and e.created_at >= %(since)s
         order by e.created_at desc limit %(limit)s))
    select f.user_id, u.email, f.type, f.detected_at, f.count, f.since, f.address
    from (select * from found order by detected_at desc, user_id, type limit %(limit)s) f
    cross join lateral (select email from users where id = f.user_id limit 1) u
    order by f.detected_at desc, f.user_id, f.type"""


def to_status(row: statements.Row) -> platform.UserMfaStatus:
    totp_at, passkey_at, has_keys, backup_codes, user_id, email, last_challenge_at = row
    return platform.UserMfaStatus(totp_at, passkey_at, has_keys, backup_codes, user_id, values.Email(email), last_challenge_at)


def to_alert(row: statements.Row) -> platform.MfaAlert:
    user_id, email, type_, detected_at, count, since, address = row
    alert_type = platform.MfaAlertType(type_)
    details: dict[str, Any]
    if alert_type is platform.MfaAlertType.DISABLED_AFTER_LOGIN:
        details = {"login_at": values.rfc3339(since), "ip_address": address}
    else:
        details = {"count": count, "first_at": values.rfc3339(since)}
    return platform.MfaAlert(user_id, values.Email(email), alert_type, details, detected_at)


class PlatformUsers(statements.Repository):
    """Implements `ports.storage.accounts.accounts.PlatformUsersRead`."""

    async def search(
        self, limit: int, *, email: str | None = None, user_id: UUID | None = None, after: UUID | None = None
    ) -> list[platform.FoundUser]:
        if user_id is not None:
            statement = WITH_ID
        elif after is not None:
            statement = NEXT if email is None else NEXT_WITH_ADDRESS
        else:
            statement = NEWEST if email is None else WITH_ADDRESS
        return await self._all(FOUND_USER.read, statement, email=email, user_id=user_id, after=after, limit=limit)

    async def owners(self) -> list[platform.FoundUser]:
        return await self._all(FOUND_USER.read, OWNERS, limit=None)

    async def mfa_status(self, user_id: UUID) -> platform.UserMfaStatus | None:
        return await self._one(to_status, MFA_STATUS, user_id=user_id)

    async def mfa_metrics(self, since: datetime) -> platform.MfaMetrics:
        figures = await self._one(lambda row: platform.MfaMetrics(*row), MFA_FIGURES, since=since)
        assert figures is not None, "an aggregate always has one row"
        return figures

    async def alerts(self, since: datetime, limit: int) -> list[platform.MfaAlert]:
        return await self._all(
            to_alert,
            ALERTS,
            since=since,
            limit=limit,
            repeated_failures=platform.MfaAlertType.REPEATED_FAILURES,
            backup_code_burst=platform.MfaAlertType.BACKUP_CODE_BURST,
            disabled_after_login=platform.MfaAlertType.DISABLED_AFTER_LOGIN,
            many_failures=platform.FAILURE_ALERT_THRESHOLD,
            many_backup_codes=platform.BACKUP_CODE_ALERT_THRESHOLD,
            soon=platform.SHORTLY_AFTER_LOGIN,
        )


# Work for inactive webhooks and organizations is not due. A target that hangs can have a very long backlog, so the counts stop at a limit.
DUE_DELIVERIES: Final = """
    select d.due_at from (
        select webhook_id, due_at from webhook_deliveries where status = 'due'
        union all
        select webhook_id, due_at from webhook_deliveries where status = 'waiting' and due_at <= %(now)s) d
    join webhooks w on w.id = d.webhook_id and w.is_active
    join organizations o on o.id = w.org_id and o.status = 'active' limit 100000"""
DUE_LOGOUT_NOTICES: Final = """
    select n.due_at from logout_notices n
    join services v on v.id = n.service_id and v.backchannel_logout_uri is not null
    join organizations o on o.id = v.org_id and o.status = 'active'
    where n.status = 'due' or n.due_at <= %(now)s limit 100000"""


class Platform(statements.Repository):
    """Implements `ports.storage.accounts.accounts.PlatformRead`."""

    async def figures(self) -> platform.PlatformFigures:
        sql = f"""
            select count(*), (select count(*) from organizations), count(*) filter (where {HAS_SECOND_FACTOR}),
                   count(*) filter (where {HAS_PASSKEY}), count(*) filter (where {PASSWORD_ALONE})
            from users u where deactivated_at is null and anonymized_at is null"""
        figures = await self._one(lambda row: platform.PlatformFigures(*row), sql)
        assert figures is not None, "an aggregate always has one row"
        return figures

    async def due_jobs(self, now: datetime) -> int:
        sql = f"""
                select (select count(*) from mails where finished_at is null and due_at <= %(now)s)
                     + (select count(*) from ({DUE_DELIVERIES}) d)
                     + (select count(*) from ({DUE_LOGOUT_NOTICES}) n)
                     + (select count(*) from (
                            select from siem_configurations s join organizations o on o.id = s.org_id and o.status = 'active'
                            cross join lateral (
                                select from siem_queue q where q.org_id = s.org_id and q.siem_id = s.id order by q.position limit 10000) q
                            where s.enabled and s.due_at <= %(now)s limit 100000) e)"""
        return await self._count(sql, now=now)

    async def queues(self, now: datetime) -> list[QueueState]:
        return await self._all(
            lambda row: QueueState(row[0], row[1], max(row[2] or timedelta(), timedelta())),
            # A SIEM entry waits since its log entry, also while a failing SIEM gets a pause, during which it is no due
            # job.
            f"""
            select 'webhook_deliveries', count(*), %(now)s - min(due_at) from ({DUE_DELIVERIES}) d
            union all
            select 'logout_notices', count(*), %(now)s - min(due_at) from ({DUE_LOGOUT_NOTICES}) n
            union all
            select 'siem_entries', coalesce(sum(depth), 0)::bigint, %(now)s - min(since) from (
                select waiting.depth, oldest.created_at as since
                from siem_configurations s join organizations o on o.id = s.org_id and o.status = 'active'
                cross join lateral (
                    select count(*) as depth from (
                        select from siem_queue q where q.org_id = s.org_id and q.siem_id = s.id order by q.position limit 10000) q) waiting
                left join lateral (
                    select a.created_at from siem_queue q join audit_log a on a.id = q.entry_id
                    where q.org_id = s.org_id and q.siem_id = s.id order by q.position limit 1) oldest on true
                where s.enabled) e""",
            now=now,
        )

    async def email_backlog(self, now: datetime) -> EmailBacklog:
        # Emails that were tried wait for a later attempt, so their due time says nothing. Emails that directories cause
        # are due later than they were created, by design.
        sql = """
            select count(*), %(now)s - min(case when claims > 0 and directory_number is null then created_at else due_at end)
            from (select due_at, claims, created_at, directory_number from mails
                  where finished_at is null order by due_at limit 100000) m
            where due_at <= %(now)s or claims > 0"""
        backlog = await self._one(lambda row: EmailBacklog(row[0], max(row[1] or timedelta(), timedelta())), sql, now=now)
        assert backlog is not None, "an aggregate always has one row"
        return backlog
