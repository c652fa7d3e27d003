"""Login analytics, from totals per day, the latest logins, and the figures on an organization's overview."""

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.accounts.accounts import PASSWORD_ALONE
from adapters.postgres.applications.services import LOGGED_NAME
from adapters.postgres.engine import statements
from adapters.postgres.engine.records import Record
from adapters.postgres.kernel.connections import CERTIFICATE_EXPIRES, FAILING, WITHOUT_DOMAIN
from adapters.postgres.kernel.roles import admin_conditions
from adapters.postgres.kernel.shared_sql import REGISTERED
from core.applications.model import analytics
from core.applications.model.analytics import DELIVERIES_CHECKED, MOST_COUNTED
from core.kernel.connections import PLATFORM_CONNECTIONS
from core.kernel.policy import CERTIFICATE_EXPIRES_SOON

# The totals for existing services. Because it joins by service, an index returns only the days in
# the range.
TOTALS: Final = """
    services v join login_totals t on t.org_id = v.org_id and t.service_id = v.id
    where v.org_id = %(org_id)s and t.day between %(first)s and %(last)s"""
# An organization's totals: its services' totals, and its members' sign-ins to the platform.
ALL_TOTALS: Final = f"""
    (select t.day, t.provider, t.total from {TOTALS}
     union all
     select t.day, t.provider, t.total from member_login_totals t
     where t.org_id = %(org_id)s and t.day between %(first)s and %(last)s) t
    where true"""
OF_SERVICE: Final = "and v.id = %(service_id)s"
# Deleting users can reduce a total to zero. A total that is zero is left out.
COUNT: Final = "sum(t.total)::bigint"
ANY: Final = f"having {COUNT} > 0"
# Takes the latest logins per existing service, and then the latest among them. The organization's latest logins would
# not be enough: all could belong to a deleted service, until the housekeeper has removed them. Do not add the
# organization to the inner query: then only the index by service returns the rows in order. There can be many external
# clients, and the logs keep their logins, so such logins are read by organization.
#
# The audit log has the members' sign-ins to the platform. Every part is in the order of its index.
NEWEST_FIRST: Final = "order by l.created_at desc, l.id desc limit %(limit)s"
RECENT: Final = Record(analytics.RecentLogin, "l")
LATEST: Final = f"""
    with to_services as (
        select {RECENT.columns} from services v cross join lateral (
            select l.id, l.user_id, l.service_id, v.name as service_name, l.provider, l.created_at from login_events l
            where l.service_id = v.id and l.success {{older}} {NEWEST_FIRST}) l
        where v.org_id = %(org_id)s and {REGISTERED} {NEWEST_FIRST}),
    to_external_clients as (
        select {RECENT.columns} from (
            select l.id, l.user_id, l.service_id, l.external_client as service_name, l.provider, l.created_at from login_events l
            where l.org_id = %(org_id)s and l.external_client is not null and l.success {{older}} {NEWEST_FIRST}) l),
    to_platform as (
        select {RECENT.columns} from (
            select l.id, l.target_id::uuid as user_id, null::uuid as service_id, null as service_name,
                   l.details ->> 'provider' as provider, l.created_at
            from audit_log l
            where l.org_id = %(org_id)s and l.action = 'user.login.success' {{older}} {NEWEST_FIRST}) l)
    select {RECENT.columns} from (table to_services union all table to_external_clients union all table to_platform) l {NEWEST_FIRST}"""
LATEST_FIRST_PAGE: Final = LATEST.format(older="")
LATEST_NEXT_PAGE: Final = LATEST.format(older="and (l.created_at, l.id) < (%(created_at)s, %(id)s)")


class Analytics(statements.Repository):
    """Implements `ports.storage.applications.users.AnalyticsRead`."""

    async def by_day(self, org_id: UUID, service_id: UUID | None, days: analytics.DateRange) -> list[analytics.DailyLogins]:
        sql = f"select t.day, {COUNT} from {_totals(service_id)} group by t.day {ANY} order by t.day"
        return await self._all(
            lambda row: analytics.DailyLogins(row[0], row[1]), sql, org_id=org_id, service_id=service_id, first=days.first, last=days.last
        )

    async def by_service(self, org_id: UUID, days: analytics.DateRange) -> list[analytics.ServiceLogins]:
        sql = f"select v.id, {LOGGED_NAME}, {COUNT} from {TOTALS} group by v.id {ANY} order by {COUNT} desc, v.name, v.id"
        return await self._all(
            lambda row: analytics.ServiceLogins(row[0], row[1], row[2]), sql, org_id=org_id, first=days.first, last=days.last
        )

    async def by_provider(self, org_id: UUID, service_id: UUID | None, days: analytics.DateRange) -> list[analytics.ProviderLogins]:
        return await self._all(
            lambda row: analytics.ProviderLogins(row[0], row[1]),
            f"""
            select t.provider, {COUNT} from {_totals(service_id)} and t.provider = any(%(providers)s)
            group by t.provider {ANY} order by {COUNT} desc, t.provider""",
            org_id=org_id,
            service_id=service_id,
            first=days.first,
            last=days.last,
            providers=list(PLATFORM_CONNECTIONS),
        )

    async def recent(self, org_id: UUID, before: analytics.RecentLogin | None, limit: int) -> list[analytics.RecentLogin]:
        return await self._all(
            RECENT.read,
            LATEST_FIRST_PAGE if before is None else LATEST_NEXT_PAGE,
            org_id=org_id,
            limit=limit,
            created_at=before.created_at if before else None,
            id=before.id if before else None,
        )

    async def usage(self, org_id: UUID, service_id: UUID, since: datetime) -> analytics.ServiceUsage:
        # Active users are counted by reading all the service's users, about 0.25 seconds for
        # 300,000. An index on the last login would make this fast, but every login would then
        # update every index on the table, and logins are far more frequent than this query.
        sql = """
            select v.user_count,
                   (select count(*) from service_users u where u.service_id = v.id and u.created_at >= %(since)s),
                   (select count(*) from service_users u where u.service_id = v.id and u.last_login_at >= %(since)s),
                   (select coalesce(sum(t.total), 0)::bigint from login_totals t where t.org_id = v.org_id and t.service_id = v.id)
            from services v where v.org_id = %(org_id)s and v.id = %(service_id)s"""
        usage = await self._one(lambda row: analytics.ServiceUsage(*row), sql, org_id=org_id, service_id=service_id, since=since)
        return usage or analytics.ServiceUsage(0, 0, 0, 0)  # the service was deleted after the key was checked


def _totals(service_id: UUID | None) -> LiteralString:
    return ALL_TOTALS if service_id is None else f"{TOTALS} {OF_SERVICE}"


BUILT_IN, OWN, BY_GROUP = admin_conditions("m", "o.id")


def _admins_without_mfa(condition: LiteralString) -> LiteralString:
    return f"""
        (select m.user_id from memberships m
        where m.org_id = o.id and {condition} and m.confirmed_at is not null
          and not exists (select from mfa f where f.user_id = m.user_id and f.last_step is not null) limit {MOST_COUNTED})"""


def _admins_with_password_alone(condition: LiteralString) -> LiteralString:
    # Keep the lateral query with its limit: with `exists`, the planner may read all the database's accounts.
    return f"""
        (select m.user_id from memberships m
        cross join lateral (select from users u where u.id = m.user_id and {PASSWORD_ALONE} limit 1) u
        where m.org_id = o.id and {condition} and m.confirmed_at is not null limit {MOST_COUNTED})"""


def _connections(condition: LiteralString) -> LiteralString:
    return f"""
        (select count(*) from connections c join connection_health h on h.org_id = c.org_id and h.connection_id = c.id
         where c.org_id = o.id and c.state = 'active' and {condition})"""


# `to_figures` reads the columns in this order: members, services, whether they were used, then the tasks as in COUNTED_TASKS. Invitations
# that expired count as ended, although the sweeper has not marked them yet. Every way to be an admin has a query, so that the query uses
# its index. Keep the scalar subquery for the SAML configuration: a join may read all organizations' configurations. The single-value range
# and the leading webhook_id in ORDER BY keep the webhook's index: an index on age alone would read everything that busier webhooks have
# received since.
FIGURES: Final = f"""
    select o.member_count,
           (select count(*) from services v where v.org_id = o.id and {REGISTERED}),
           exists (select from login_totals t where t.org_id = o.id and t.total > 0),
           {_connections(FAILING)},
           (select count(*) from (
                select from saml_certificates c
                where c.org_id = o.id and c.deactivated_at is null and c.valid_until <= %(certificates_until)s
                  and (select s.enabled from saml_configurations s where s.service_id = c.service_id and s.org_id = c.org_id)
                limit {MOST_COUNTED}) c),
           {_connections(CERTIFICATE_EXPIRES)},
           (select count(*) from service_accounts a where a.org_id = o.id and a.ends_at > %(now)s),
           (select count(*) from webhooks w
            where w.org_id = o.id and w.is_active and (
                select not d.delivered from (
                    select d.delivered, d.attempt_count, d.created_at, d.id from webhook_deliveries d
                    where d.webhook_id >= w.id and d.webhook_id <= w.id and d.org_id = w.org_id
                    order by d.webhook_id, d.created_at desc, d.id desc limit {DELIVERIES_CHECKED}) d
                where d.attempt_count > 0 order by d.created_at desc, d.id desc limit 1)),
           case when o.maps_groups then (select count(*) from (
                select from groups g
                where g.org_id = o.id and g.role is not null and g.mapping_stopped_at is not null limit {MOST_COUNTED}) g) end,
           (select count(*) from siem_configurations s where s.org_id = o.id and s.enabled and s.failures > 0),
           (select count(*) from siem_configurations s where s.org_id = o.id and not s.enabled),
           (select count(*) from domains d where d.org_id = o.id and d.verified_at is null),
           (select count(*) from connections c where c.org_id = o.id and c.state = 'active' and {WITHOUT_DOMAIN}),
           (select count(*) from (
                {_admins_without_mfa(BUILT_IN)} union {_admins_without_mfa(OWN)}
                union {_admins_without_mfa(f"o.maps_groups and {BY_GROUP}")} limit {MOST_COUNTED}) m),
           (select count(*) from (
                {_admins_with_password_alone(BUILT_IN)} union {_admins_with_password_alone(OWN)}
                union {_admins_with_password_alone(f"o.maps_groups and {BY_GROUP}")} limit {MOST_COUNTED}) m),
           (select count(*) from (
                select from invitations i
                where i.org_id = o.id and i.status = 'pending' and i.expires_at > %(now)s limit {MOST_COUNTED}) i)
    from organizations o where o.id = %(org_id)s"""


def to_figures(row: statements.Row) -> analytics.OrganizationFigures:
    return analytics.OrganizationFigures(
        row[0], row[1], row[2], {task: count for task, count in zip(analytics.COUNTED_TASKS, row[3:], strict=True) if count}
    )


class OrganizationOverview(statements.Repository):
    """Implements `ports.storage.applications.users.OverviewRead`."""

    async def figures(self, org_id: UUID, now: datetime) -> analytics.OrganizationFigures:
        figures = await self._one(to_figures, FIGURES, org_id=org_id, now=now, certificates_until=now + CERTIFICATE_EXPIRES_SOON)
        return figures or analytics.OrganizationFigures(0, 0, False, {})  # the organization was deleted after the session was checked
