"""Who uses which service, and so is an end user of its organization."""

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.engine.statements import DeferredRow, Repository, Row
from core.applications.end_users_rules import EndUser, LinkedIdentity, EndUserSummary, UsedService
from core.kernel.providers import Provider
from core.kernel.values import Email, PageResult, Page

# The service that is asked about, if it is one of the organization.
OF_SERVICE: Final = "service_id = (select id from services where org_id = %(org_id)s and id = %(service_id)s)"
OF_ORGANIZATION: Final = "org_id = %(org_id)s"
# Whom the directory of the organization has deactivated, which may be less than the whole account.
KEPT_OUT: Final = "select user_id from scim_users where org_id = %(org_id)s and deactivated_at is not null"
# What is counted as it comes and goes, less the deactivated, of whom there are few.
TOTAL: Final = f"""
    coalesce((select total from end_user_totals where org_id = %(org_id)s), 0)
    - (select count(*) from end_users where org_id = %(org_id)s and deactivated)
    - (select count(*) from ({KEPT_OUT}) d join end_users e on e.org_id = %(org_id)s and e.user_id = d.user_id and not e.deactivated)"""
TOTAL_OF_SERVICE: Final = f"""
    coalesce((select user_count from services where org_id = %(org_id)s and id = %(service_id)s), 0)
    - (select count(*) from service_users where {OF_SERVICE} and deactivated)
    - (select count(*) from ({KEPT_OUT}) d join service_users e on e.{OF_SERVICE} and e.user_id = d.user_id and not e.deactivated)"""
# Addresses are stored in lower case, and a part of one is found without the wildcards of a pattern.
MATCHING: Final = "and strpos(email, %(search)s) > 0"


def _page(table: LiteralString, which: LiteralString, total: LiteralString | None) -> LiteralString:
    # A search reads all there is of the organization or the service, and as a rule nothing else, in an index that has the address, too:
    # once to count, and once in the order of the page, as far as that goes. Nothing is joined before the page is cut out, and then each of
    # its rows is looked up by itself: with a plain join, a plan might read all accounts there are for a few of them, depending on how large
    # other organizations are. How many match stands on each row, and on one where the page is empty.
    matching = "" if total is not None else MATCHING
    listed = f"{which} and not deactivated and not exists ({KEPT_OUT} and user_id = {table}.user_id) {matching}"
    return f"""
        with page as (
            select user_id, created_at from {table} where {listed}
            order by created_at desc, user_id desc limit %(limit)s offset %(offset)s)
        select counted.total, u.id, u.email, u.created_at, u.mfa_enabled, r.last_login_at, r.slugs
        from (select {total or f"(select count(*) from {table} where {listed})"} as total) counted
        left join (
            page p
            cross join lateral (
                select id, email, created_at, mfa_enabled_at is not null as mfa_enabled from users where id = p.user_id limit 1) u
            cross join lateral (
                select max(s.last_login_at) as last_login_at, array_agg(v.slug order by v.slug) as slugs
                from service_users s join services v on v.id = s.service_id
                where s.org_id = %(org_id)s and s.user_id = p.user_id) r) on true
        order by p.created_at desc, p.user_id desc"""


EVERYBODY: Final = _page("end_users", OF_ORGANIZATION, TOTAL)
USERS_OF_SERVICE: Final = _page("service_users", OF_SERVICE, TOTAL_OF_SERVICE)
FOUND: Final = _page("end_users", OF_ORGANIZATION, None)
FOUND_OF_SERVICE: Final = _page("service_users", OF_SERVICE, None)


def to_listed(row: Row) -> EndUserSummary:
    return EndUserSummary(row[0], Email(row[1]), row[2], row[3], row[4], tuple(row[5] or ()))


def to_end_user(row: Row) -> EndUser:
    return EndUser(row[0], Email(row[1]), *row[2:])


def to_used_service(row: Row) -> UsedService:
    return UsedService(*row)


def to_identity(row: Row) -> LinkedIdentity:
    return LinkedIdentity(Provider(row[0]), *row[1:])


# Steps read what others wrote, so that rows are locked in one order: the service, whose deletion waits for this, the two relations,
# which are the account's; the counter of the service before that of the organization. A row that was inserted has no xmax yet. The
# update that never happens locks its row, so that whoever removes it meets this. Only a deletion holds a service so that this would
# wait, and that of a large one does for a while, in which all who sign in would take connections from everybody else. So the
# service is gone for them, even if it comes back because the deletion fails. And so it is for whom the directory of the organization has
# deactivated. Whoever comes by membership alone stays what they are, if they use the service already; whoever comes in another way is a
# user in their own right from then on.
def _add(which: LiteralString, *, by_membership: LiteralString = "false") -> LiteralString:
    return f"""
        with held as (
            select id, org_id from services
            where {which} and not exists (
                select 1 from scim_users d where d.org_id = services.org_id and d.user_id = %(user_id)s and d.deactivated_at is not null)
            for key share skip locked),
        used as (
            insert into service_users as u (service_id, user_id, org_id, email, deactivated, by_membership, created_at, first_login_at,
                                            last_login_at)
            select held.id, a.id, held.org_id, a.email, a.deactivated, {by_membership}, %(now)s, %(login_at)s, %(login_at)s
            from held join users a on a.id = %(user_id)s
            on conflict (service_id, user_id) do update set
                first_login_at = least(u.first_login_at, excluded.first_login_at),
                last_login_at = greatest(u.last_login_at, excluded.last_login_at),
                by_membership = u.by_membership and excluded.by_membership
            returning service_id, user_id, org_id, email, deactivated, xmax = 0 as is_new),
        known as (
            insert into end_users as e (org_id, user_id, email, deactivated, created_at)
            select org_id, user_id, email, deactivated, %(now)s from used
            on conflict (org_id, user_id) do update set created_at = e.created_at where false
            returning org_id),
        counted as (
            update services s set user_count = user_count + 1 from used where s.id = used.service_id and used.is_new
            returning s.org_id),
        told as (
            insert into end_user_totals as t (org_id, total)
            select known.org_id, 1 from known left join counted on counted.org_id = known.org_id
            on conflict (org_id) do update set total = t.total + 1)
        select 1 from held"""


ADD: Final = _add("id = %(service_id)s")
ADD_MEMBER: Final = _add("org_id = %(org_id)s and slug = %(slug)s", by_membership="true")


def _addition(user_id: UUID, now: datetime, *, signed_in: bool) -> dict[str, object]:
    return {"user_id": user_id, "now": now, "login_at": now if signed_in else None}


class EndUsers(Repository):
    """ports.storage.EndUsers."""

    async def page(self, org_id: UUID, page: Page, *, search: str | None = None, service_id: UUID | None = None) -> PageResult[EndUserSummary]:
        if service_id is None:
            statement = EVERYBODY if search is None else FOUND
        else:
            statement = USERS_OF_SERVICE if search is None else FOUND_OF_SERVICE
        rows = await self._all(
            lambda row: row, statement, org_id=org_id, service_id=service_id, search=search, limit=page.limit, offset=page.offset
        )
        return PageResult([to_listed(row[1:]) for row in rows if row[1] is not None], rows[0][0])

    async def by_id(self, org_id: UUID, user_id: UUID) -> EndUser | None:
        return await self._one(
            to_end_user,
            """
            select u.id, u.email, u.email_verified_at is not null, u.mfa_enabled_at is not null, u.created_at, u.updated_at
            from end_users e join users u on u.id = e.user_id
            where e.org_id = %(org_id)s and e.user_id = %(user_id)s""",
            org_id=org_id,
            user_id=user_id,
        )

    async def services(self, org_id: UUID, user_id: UUID) -> list[UsedService]:
        return await self._all(
            to_used_service,
            """
            select v.id, v.slug, v.name, r.first_login_at, r.last_login_at
            from service_users r join services v on v.id = r.service_id
            where r.org_id = %(org_id)s and r.user_id = %(user_id)s order by v.slug""",
            org_id=org_id,
            user_id=user_id,
        )

    async def identities(self, org_id: UUID, user_id: UUID) -> list[LinkedIdentity]:
        return await self._all(
            to_identity,
            """
            select i.provider, i.provider_user_id, i.email, i.linked_at
            from identities i join services v on v.id = i.service_id
            where v.org_id = %(org_id)s and i.user_id = %(user_id)s order by i.linked_at, i.id""",
            org_id=org_id,
            user_id=user_id,
        )

    async def knows(self, org_id: UUID, user_id: UUID) -> bool:
        return await self._exists(
            """
            select 1 from end_users where org_id = %(org_id)s and user_id = %(user_id)s
            union all select 1 from memberships where org_id = %(org_id)s and user_id = %(user_id)s""",
            org_id=org_id,
            user_id=user_id,
        )

    async def add(self, service_id: UUID, user_id: UUID, now: datetime, *, signed_in: bool) -> bool:
        return await self._exists(ADD, service_id=service_id, **_addition(user_id, now, signed_in=signed_in))

    def enroll_deferred(self, service_id: UUID, user_id: UUID, now: datetime) -> DeferredRow[bool]:
        return self._one_deferred(lambda _: True, ADD, service_id=service_id, **_addition(user_id, now, signed_in=True))

    def enroll_member_deferred(self, org_id: UUID, service_slug: str, user_id: UUID, now: datetime) -> DeferredRow[bool]:
        return self._one_deferred(lambda _: True, ADD_MEMBER, org_id=org_id, slug=service_slug, **_addition(user_id, now, signed_in=True))
