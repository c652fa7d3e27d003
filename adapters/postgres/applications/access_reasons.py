"""The facts that decide what a user may do at an organization's applications."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from adapters.postgres.applications.role_assignments import role_sources
from adapters.postgres.applications.service_access import (
    has_membership,
    is_assigned_alone,
    is_blocked,
    is_blocked_by_admin,
    is_of_organization,
    is_subscribed,
)
from adapters.postgres.engine import statements
from core.applications.model import access_reasons
from core.applications.model.authorization import GivingGroup
from core.applications.model.users import AccessPolicy
from core.kernel import values
from core.tenancy.model.members import MemberHoldings

ORG: Final = "%(org_id)s"
USER: Final = "%(user_id)s"
IS_END_USER: Final = f"exists (select 1 from end_users e where e.org_id = {ORG} and e.user_id = {USER})"
IS_OWN: Final = is_of_organization(ORG, USER)
# An organization sees an account's state only for confirmed members and end users.
FIND: Final = f"""
    select u.id, u.email, {has_membership(ORG, USER)}, {IS_END_USER}, u.deactivated_at is not null and {IS_OWN},
        {is_blocked(ORG, USER)}, {is_blocked_by_admin(ORG, USER)}
    from users u where u.id = {USER} and u.anonymized_at is null and ({has_membership(ORG, USER)} or {IS_END_USER})"""
GROUPS: Final = f"""
    (select jsonb_agg(jsonb_build_array(o.id, o.name) order by o.name_key)
     from service_groups_assigned a join group_members i on i.group_id = a.group_id and i.org_id = a.org_id
     join groups o on o.id = a.group_id
     where a.service_id = v.id and i.org_id = {ORG} and i.user_id = {USER} and {is_of_organization("i.org_id", "i.user_id")})"""
ROLES: Final = f"""
    (select jsonb_agg(jsonb_build_array(x.slug, x.name, x.permissions, x.is_direct, x.groups) order by x.slug)
     from (
         select r.slug, r.name, r.permissions, bool_or(s.group_id is null) as is_direct,
             jsonb_agg(jsonb_build_array(o.id, o.name) order by o.name_key) filter (where o.id is not null) as groups
         from ({role_sources(ORG, USER, "v.id")}) s join service_roles r on r.id = s.role_id and r.service_id = v.id
         left join groups o on o.id = s.group_id
         group by r.id) x)"""
# The outer join returns a single row with the total if the page is empty.
APPLICATIONS: Final = f"""
    select counted.total, v.slug, v.name, v.access_policy, {is_assigned_alone("v", USER)}, {is_subscribed("v", USER)}, {GROUPS}, {ROLES}
    from (select count(*) as total from services where org_id = {ORG} and client_uri is null) counted
    left join (
        select * from services where org_id = {ORG} and client_uri is null
        order by lower(name), id limit %(limit)s offset %(offset)s) v on true
    order by lower(v.name), v.id"""

HOLDINGS: Final = f"""
    select u.id,
        array(select o.name from group_members i join groups o on o.id = i.group_id
              where i.org_id = {ORG} and i.user_id = u.id order by o.name_key),
        (select jsonb_agg(distinct jsonb_build_array(v.slug, r.slug))
         from ({role_sources(ORG, "u.id")}) s join service_roles r on r.id = s.role_id join services v on v.id = r.service_id),
        (select a.attributes from attribute_values a where a.org_id = {ORG} and a.user_id = u.id)
    from unnest(%(user_ids)s::uuid[]) u (id)"""


def to_holdings(row: statements.Row) -> MemberHoldings:
    groups, roles, attributes = row
    return MemberHoldings(tuple(groups), tuple((service, role) for service, role in roles or ()), attributes or {})


def to_user_state(row: statements.Row) -> access_reasons.UserState:
    id_, email, is_member, is_end_user, is_deactivated, is_blocked_there, is_blocked_here = row
    return access_reasons.UserState(
        user_id=id_,
        email=values.Email(email),
        is_member=is_member,
        is_end_user=is_end_user,
        is_deactivated=is_deactivated,
        is_blocked_by_directory=is_blocked_there,
        is_blocked_by_admin=is_blocked_here,
    )


def to_application_facts(row: statements.Row) -> access_reasons.ApplicationFacts:
    slug, name, policy, is_assigned, has_subscription, groups, roles = row
    return access_reasons.ApplicationFacts(
        slug=slug,
        name=name,
        policy=AccessPolicy(policy),
        is_assigned=is_assigned,
        is_subscribed=has_subscription,
        groups=to_groups(groups),
        roles=tuple(
            access_reasons.RoleAtApplication(slug, name, tuple(given), own, to_groups(by)) for slug, name, given, own, by in roles or ()
        ),
    )


def to_groups(value: list[Any] | None) -> tuple[GivingGroup, ...]:
    return tuple(GivingGroup(UUID(id_), name) for id_, name in value or ())


class AccessReasons(statements.Repository):
    """Implements `ports.storage.applications.authorization.AccessReasonsRead`."""

    async def find(self, org_id: UUID, user_id: UUID) -> access_reasons.UserState | None:
        return await self._one(to_user_state, FIND, org_id=org_id, user_id=user_id)

    async def applications(
        self, org_id: UUID, user_id: UUID, page: values.Page, now: datetime
    ) -> values.PageResult[access_reasons.ApplicationFacts]:
        return await self._page(
            to_application_facts, APPLICATIONS, org_id=org_id, user_id=user_id, limit=page.limit, offset=page.offset, now=now
        )

    async def holdings(self, org_id: UUID, user_ids: Sequence[UUID]) -> dict[UUID, MemberHoldings]:
        rows = await self._all(lambda row: (row[0], to_holdings(row[1:])), HOLDINGS, org_id=org_id, user_ids=list(user_ids))
        return dict(rows)
