"""The figures on an organization's overview, in a single statement."""

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.engine.statements import Repository, Row
from adapters.postgres.kernel.clients import REGISTERED
from adapters.postgres.kernel.connection_concerns import CERTIFICATE_EXPIRES, FAILING, WITHOUT_DOMAIN
from adapters.postgres.kernel.roles import admin_conditions
from core.applications.model.analytics import COUNTED_TASKS, DELIVERIES_CHECKED, MOST_COUNTED, OrganizationFigures
from core.kernel.policy import CERTIFICATE_EXPIRES_SOON

BUILT_IN, OWN, BY_GROUP = admin_conditions("m", "o.id")


def _admins_without_mfa(condition: LiteralString) -> LiteralString:
    return f"""
        (select m.user_id from memberships m
        where m.org_id = o.id and {condition} and m.confirmed_at is not null
          and not exists (select from mfa f where f.user_id = m.user_id and f.last_step is not null) limit {MOST_COUNTED})"""


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
                select from invitations i
                where i.org_id = o.id and i.status = 'pending' and i.expires_at > %(now)s limit {MOST_COUNTED}) i)
    from organizations o where o.id = %(org_id)s"""


def to_figures(row: Row) -> OrganizationFigures:
    return OrganizationFigures(row[0], row[1], row[2], {task: count for task, count in zip(COUNTED_TASKS, row[3:], strict=True) if count})


class OrganizationOverview(Repository):
    """Implements `ports.storage.applications.users.OverviewRead`."""

    async def figures(self, org_id: UUID, now: datetime) -> OrganizationFigures:
        figures = await self._one(to_figures, FIGURES, org_id=org_id, now=now, certificates_until=now + CERTIFICATE_EXPIRES_SOON)
        return figures or OrganizationFigures(0, 0, False, {})  # the organization was deleted after the session was checked
