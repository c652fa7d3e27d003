"""The applications that a user may use."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.applications.service_access import may_sign_on, may_use
from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Repository
from adapters.postgres.kernel.clients import REGISTERED
from core.applications.model.users import OwnApplication

ORGANIZATION: Final = "coalesce(b.product_name, o.name)"
OWN_APPLICATION: Final = Record(
    OwnApplication,
    "v",
    org_slug="o.slug",
    organization=ORGANIZATION,
    logo_url="b.logo_url",
    starts_with_saml=f"f.service_id is not null and {may_sign_on('v', '%(user_id)s')}",
)
# The user has used these services, or is assigned to them, alone or by a group, or is a confirmed member of their
# organizations. An unconfirmed membership must not show a foreign organization's entries on the user's page. The rule
# must not be evaluated for all services on the platform: most services admit anyone.
OWN_APPLICATIONS: Final = f"""
    with c as materialized (
        select service_id from service_users where user_id = %(user_id)s
        union select g.service_id from group_members i join service_groups_assigned g on g.group_id = i.group_id
        where i.user_id = %(user_id)s
        union select v.id from memberships m join services v on v.org_id = m.org_id and {REGISTERED}
        where m.user_id = %(user_id)s and m.confirmed_at is not null)
    select {OWN_APPLICATION.columns}
    from c join services v on v.id = c.service_id
    join organizations o on o.id = v.org_id and o.status = 'active'
    left join branding b on b.org_id = o.id
    left join (saml_configurations f join saml_certificates k
               on k.service_id = f.service_id and k.deactivated_at is null and k.valid_until > %(now)s)
        on f.service_id = v.id and f.enabled
    where {REGISTERED} and {may_use("v", "%(user_id)s")} and (%(org_id)s::uuid is null or v.org_id = %(org_id)s)
    order by {ORGANIZATION}, v.name, v.id limit %(limit)s"""


class OwnApplications(Repository):
    """Implements `ports.storage.applications.users.OwnApplications`."""

    async def of_user(self, user_id: UUID, limit: int, now: datetime, *, org_id: UUID | None = None) -> list[OwnApplication]:
        return await self._all(OWN_APPLICATION.read, OWN_APPLICATIONS, user_id=user_id, limit=limit, now=now, org_id=org_id)
