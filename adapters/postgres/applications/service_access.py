"""The applications that a user may use: the SQL for the rule in `core.authentication.service_access`, which statements check atomically.

The conditions refer to a row in `services` or `api_resources` by its alias, and to the parameter `now`.
"""

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.applications.plans import STATUS
from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Repository
from adapters.postgres.kernel.shared_sql import REGISTERED
from core.applications.model.users import OwnApplication

# The origins in `EnrollmentOrigin`, weakest first, and the origins that are assignments
ORIGINS: Final = "array['self', 'subscription', 'directory', 'admin', 'api_key']"
ASSIGNED: Final = "('directory', 'admin', 'api_key')"


def is_blocked(org_id: LiteralString, user_id: LiteralString) -> LiteralString:
    """Return an SQL condition that is true if this organization's directory blocks this user."""
    return f"exists (select 1 from directory_blocks d where d.org_id = {org_id} and d.user_id = {user_id})"


def is_blocked_by_admin(org_id: LiteralString, user_id: LiteralString) -> LiteralString:
    """Return an SQL condition that is true if an admin blocks this user at this organization's services."""
    return f"exists (select 1 from end_user_blocks d where d.org_id = {org_id} and d.user_id = {user_id})"


def has_membership(org_id: LiteralString, user_id: LiteralString) -> LiteralString:
    """Return an SQL condition that is true if this user has a membership in this organization, confirmed or not."""
    return f"exists (select 1 from memberships m where m.org_id = {org_id} and m.user_id = {user_id})"


def _is_confirmed_member(org_id: LiteralString, user_id: LiteralString) -> LiteralString:
    return f"exists (select 1 from memberships m where m.org_id = {org_id} and m.user_id = {user_id} and m.confirmed_at is not null)"


def is_of_organization(org_id: LiteralString, user_id: LiteralString) -> LiteralString:
    """Return an SQL condition that is true for the organization's own users: confirmed members and end users."""
    return f"""({_is_confirmed_member(org_id, user_id)}
             or exists (select 1 from end_users e where e.org_id = {org_id} and e.user_id = {user_id}))"""


def may_use(service: LiteralString, user_id: LiteralString) -> LiteralString:
    """Return an SQL condition that is true if this user may use this service."""
    assert user_id[:2] not in ("a.", "d.", "m.", "s."), "a subquery has a table with this alias"
    return _admits(service, user_id, _is_assigned(service, user_id))


def may_use_resource(resource: LiteralString, user_id: LiteralString) -> LiteralString:
    """Return an SQL condition that is true if this user may use this row in `api_resources`. The condition needs no parameter."""
    assert user_id[:2] not in ("a.", "d.", "m."), "a subquery has a table with this alias"
    return _admits(
        resource,
        user_id,
        f"""(exists (select 1 from api_resource_assignments a where a.resource_id = {resource}.id and a.user_id = {user_id})
             or group_opens_resource({resource}.id, {user_id}))""",
    )


def _admits(table: LiteralString, user_id: LiteralString, is_assigned: LiteralString) -> LiteralString:
    org_id: LiteralString = f"{table}.org_id"
    return f"""(not {is_blocked(org_id, user_id)} and not {is_blocked_by_admin(org_id, user_id)} and case {table}.access_policy
        when 'anyone' then true
        when 'members' then {has_membership(org_id, user_id)}
        when 'members_and_assigned' then {has_membership(org_id, user_id)} or {is_assigned}
        else {is_assigned} end)"""


def may_sign_on(service: LiteralString, user_id: LiteralString) -> LiteralString:
    """Return an SQL condition that is true if this user may use this service with SAML.

    Any page can start a sign-on without a click by the user, and an organization can make any account an unconfirmed
    member. So only confirmed members count as members here. Under the policy `anyone`, SAML admits no strangers: only
    members, assigned users and, if the service allows it, users who enrolled themselves.
    """
    is_member = _is_confirmed_member(f"{service}.org_id", user_id)
    return f"""({may_use(service, user_id)} and case {service}.access_policy
        when 'anyone' then {is_member} or {_is_assigned(service, user_id)}
            or {service}.saml_self_enrolled and exists (
                select 1 from service_users e where e.service_id = {service}.id and e.user_id = {user_id} and not e.by_membership)
        when 'members' then {is_member}
        when 'members_and_assigned' then {is_member} or {_is_assigned(service, user_id)}
        else true end)"""


def is_assigned_alone(service: LiteralString, user_id: LiteralString) -> LiteralString:
    """Return an SQL condition that is true if a directory, an admin or an API key assigned this user to this service."""
    return f"""exists (select 1 from service_users a
                 where a.service_id = {service}.id and a.user_id = {user_id} and a.enrolled_by in {ASSIGNED})"""


def is_subscribed(service: LiteralString, user_id: LiteralString) -> LiteralString:
    """Return an SQL condition that is true if this user has a subscription to this service that admits them."""
    return f"""exists (select 1 from subscriptions s
                    where s.service_id = {service}.id and s.user_id = {user_id} and {STATUS} in ('active', 'past_due'))"""


def _is_assigned(service: LiteralString, user_id: LiteralString) -> LiteralString:
    return f"""({is_assigned_alone(service, user_id)} or {is_subscribed(service, user_id)}
         or group_opens_service({service}.id, {user_id}))"""


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
