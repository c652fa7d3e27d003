"""Metrics about the whole platform."""

from datetime import datetime, timedelta
from typing import Final

from adapters.postgres.accounts.accounts import HAS_PASSKEY, HAS_SECOND_FACTOR
from adapters.postgres.engine.statements import Repository
from core.accounts.model.email_queue import EmailBacklog
from core.accounts.model.platform import PlatformFigures
from core.maintenance.model.health import QueueState

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


class Platform(Repository):
    """Implements `ports.storage.accounts.accounts.PlatformRead`."""

    async def figures(self) -> PlatformFigures:
        sql = f"""
            select count(*), (select count(*) from organizations), count(*) filter (where {HAS_SECOND_FACTOR}),
                   count(*) filter (where {HAS_PASSKEY})
            from users u where deactivated_at is null and anonymized_at is null"""
        figures = await self._one(lambda row: PlatformFigures(*row), sql)
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
