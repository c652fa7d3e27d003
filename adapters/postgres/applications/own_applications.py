"""The applications that a user may use."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.applications.service_access import may_sign_on, may_use
from adapters.postgres.engine.statements import Repository, Row
from core.applications.model.users import OwnApplication

# The user has used these services or is assigned to them, or is a confirmed member of their
# organizations. An unconfirmed membership must not show entries of a foreign organization on the
# user's page. The rule must not be evaluated for all services of the platform, of which most admit
# anyone.
OWN_APPLICATIONS: Final = f"""
    with c as materialized (
        select service_id from service_users where user_id = %(user_id)s
        union select v.id from memberships m join services v on v.org_id = m.org_id
        where m.user_id = %(user_id)s and m.confirmed_at is not null)
    select v.id, v.slug, v.name, o.slug, coalesce(b.product_name, o.name), b.logo_url, v.launch_url,
           f.service_id is not null and {may_sign_on("v", "%(user_id)s")}
    from c join services v on v.id = c.service_id
    join organizations o on o.id = v.org_id and o.status = 'active'
    left join branding b on b.org_id = o.id
    left join (saml_configurations f join saml_certificates k
               on k.service_id = f.service_id and k.deactivated_at is null and k.valid_until > %(now)s)
        on f.service_id = v.id and f.enabled
    where {may_use("v", "%(user_id)s")}
    order by 5, v.name, v.id limit %(limit)s"""


def to_own_application(row: Row) -> OwnApplication:
    return OwnApplication(
        id=row[0],
        slug=row[1],
        name=row[2],
        org_slug=row[3],
        organization=row[4],
        logo_url=row[5],
        launch_url=row[6],
        starts_with_saml=row[7],
    )


class OwnApplications(Repository):
    """Implements `ports.storage.applications.OwnApplications`."""

    async def of_user(self, user_id: UUID, limit: int, now: datetime) -> list[OwnApplication]:
        return await self._all(to_own_application, OWN_APPLICATIONS, user_id=user_id, limit=limit, now=now)
