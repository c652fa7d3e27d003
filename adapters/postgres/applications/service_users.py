"""A service's users as its API keys see them, and removing them from services."""

from collections.abc import Collection, Mapping
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.applications.service_access import ASSIGNED
from adapters.postgres.engine import statements
from adapters.postgres.tenancy.groups import leave_groups
from core.applications.model.users import ServiceUser
from core.kernel import values

# Takes application roles from users who are `gone` from the end users, and are no confirmed members. Only the
# organization's own users have such roles.
TAKE_ROLES: Final = """
    delete from service_role_users h using gone
    where h.org_id = gone.org_id and h.user_id = gone.user_id and not exists (
        select 1 from memberships m where m.org_id = h.org_id and m.user_id = h.user_id and m.confirmed_at is not null)"""


def to_service_user(row: statements.Row) -> ServiceUser:
    return ServiceUser(row[0], values.Email(row[1]), row[2])


class ServiceUsers(statements.Repository):
    """Implements `ports.storage.applications.users.ServiceUsers`."""

    async def page(self, org_id: UUID, service_id: UUID, limit: int, offset: int) -> values.PageResult[ServiceUser]:
        # The page is built before the join, so that only its own users are looked up. The outer
        # join returns a single row with the total if the page is empty.
        sql = """
            select v.user_count, u.id, u.email, u.created_at
            from services v left join (
                (select user_id, created_at from service_users where service_id = %(service_id)s
                 order by created_at, user_id limit %(limit)s offset %(offset)s) r
                join users u on u.id = r.user_id) on true
            where v.org_id = %(org_id)s and v.id = %(service_id)s
            order by r.created_at, r.user_id"""
        return await self._page(to_service_user, sql, org_id=org_id, service_id=service_id, limit=limit, offset=offset)

    async def by_id(self, org_id: UUID, service_id: UUID, user_id: UUID) -> ServiceUser | None:
        sql = """
            select u.id, u.email, u.created_at from service_users r join users u on u.id = r.user_id
            where r.org_id = %(org_id)s and r.service_id = %(service_id)s and r.user_id = %(user_id)s"""
        return await self._one(to_service_user, sql, org_id=org_id, service_id=service_id, user_id=user_id)

    async def emails(self, org_id: UUID, service_id: UUID, user_ids: Collection[UUID]) -> Mapping[UUID, values.Email]:
        sql = """
            select user_id, email from service_users
            where org_id = %(org_id)s and service_id = %(service_id)s and user_id = any(%(user_ids)s)"""
        rows = await self._all(
            lambda row: (row[0], values.Email(row[1])), sql, org_id=org_id, service_id=service_id, user_ids=list(user_ids)
        )
        return dict(rows)

    async def remove(self, org_id: UUID, service_id: UUID, user_id: UUID) -> None:
        # All CTEs see the tables as they were before the statement. So a row in service_users
        # remains only if its service is not in `parted`.
        uses_no_other = """
            and not exists (
                select 1 from service_users r where r.org_id = e.org_id and r.user_id = e.user_id
                and not exists (select 1 from parted where parted.service_id = r.service_id))"""
        await self._run(
            _removal("and org_id = %(org_id)s", "and service_id = %(service_id)s", uses_no_other),
            org_id=org_id,
            service_id=service_id,
            user_id=user_id,
        )

    async def remove_former_members(self, org_id: UUID, user_ids: Collection[UUID]) -> None:
        users = {"org_id": org_id, "user_ids": list(user_ids)}
        sql = f"""
            with unassigned as (
                delete from api_resource_assignments where org_id = %(org_id)s and user_id = any(%(user_ids)s)),
            roleless as (
                delete from service_role_users where org_id = %(org_id)s and user_id = any(%(user_ids)s))
            update service_users set enrolled_by = 'self'
            where org_id = %(org_id)s and user_id = any(%(user_ids)s) and enrolled_by in {ASSIGNED}"""
        await self._run(sql, **users)
        await self._run(REMOVE_FORMER_MEMBERS, **users)

    async def remove_everywhere(self, user_id: UUID) -> None:
        # No rows remain, even if the housekeeper removes a deleted organization's rows at the same
        # time.
        await self._run(_removal("", "", ""), user_id=user_id)


def remove_without_subscription(which: LiteralString) -> LiteralString:
    """Return a statement that removes the users %(user_ids)s from services `r` in an organization where they have no subscription.

    These users never signed in to the services, or only with SAML. So they have no identities at these services.
    """
    # Lock order: as in `_removal`.
    return f"""
        with parted as (
            delete from service_users r
            where org_id = %(org_id)s and user_id = any(%(user_ids)s) and {which} and not exists (
                select 1 from subscriptions b where b.service_id = r.service_id and b.user_id = r.user_id)
            returning service_id, user_id),
        withdrawn as (
            delete from consents c using parted
            where c.org_id = %(org_id)s and c.service_id = parted.service_id and c.user_id = parted.user_id),
        counted as (
            update services v set user_count = user_count - fewer.users
            from (select service_id, count(*) as users from parted group by service_id) fewer
            where v.id = fewer.service_id
            returning v.id),
        gone as (
            delete from end_users e
            where e.org_id = %(org_id)s and e.user_id in (select user_id from parted) and not exists (
                select 1 from service_users r where r.org_id = e.org_id and r.user_id = e.user_id
                and not exists (select 1 from parted p where p.service_id = r.service_id and p.user_id = r.user_id))
            returning e.org_id, e.user_id),
        roleless as ({TAKE_ROLES}),
        ungrouped as ({leave_groups("gone")})
        update end_user_totals set total = total - fewer.people
        from (select count(*) as people from gone) fewer cross join (select count(*) from counted) before
        where org_id = %(org_id)s and fewer.people > 0"""


REMOVE_FORMER_MEMBERS: Final = remove_without_subscription("by_membership")


def _removal(of_organization: LiteralString, of_service: LiteralString, no_longer: LiteralString) -> LiteralString:
    # Lock order: service_users, end_users, then counters as in `EndUsers.enroll`: services first,
    # then organizations. A counter is updated after all rows that it counts were deleted.
    # `no_longer` selects the end users `e` to delete.
    return f"""
        with parted as (
            delete from service_users where user_id = %(user_id)s {of_organization} {of_service} returning org_id, service_id),
        unsubscribed as (
            delete from subscriptions where user_id = %(user_id)s {of_organization} {of_service} returning service_id),
        unlinked as (
            delete from identities where user_id = %(user_id)s and service_id is not null {of_service}),
        withdrawn as (
            delete from consents where user_id = %(user_id)s {of_organization} {of_service}),
        counted as (
            update services v set user_count = user_count - fewer.users, subscription_count = subscription_count - fewer.subscriptions
            from (
                select service_id, sum(users) as users, sum(subscriptions) as subscriptions from (
                    select service_id, 1 as users, 0 as subscriptions from parted
                    union all select service_id, 0, 1 from unsubscribed) one
                group by service_id) fewer
            where v.id = fewer.service_id
            returning v.id),
        gone as (
            delete from end_users e using (select count(*) from parted) before where user_id = %(user_id)s {of_organization} {no_longer}
            returning e.org_id, e.user_id),
        roleless_here as (
            delete from service_role_users where user_id = %(user_id)s {of_organization} {of_service}),
        roleless as ({TAKE_ROLES}),
        ungrouped as ({leave_groups("gone")})
        update end_user_totals t set total = total - fewer.people
        from (
            select gone.org_id, count(*) as people from gone cross join (select count(*) from counted) before
            group by gone.org_id) fewer
        where t.org_id = fewer.org_id"""
