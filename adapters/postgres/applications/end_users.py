"""The organizations' end users: the users of their services."""

from collections.abc import Collection
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.accounts.accounts import HAS_SECOND_FACTOR, HELD_FACTORS, asked_parameters, protection, to_protection
from adapters.postgres.applications.service_access import (
    ORIGINS,
    has_membership,
    is_blocked,
    is_blocked_by_admin,
    is_subscribed,
    may_sign_on,
    may_use,
)
from adapters.postgres.applications.services import LOGGED_NAME
from adapters.postgres.engine import statements
from adapters.postgres.engine.locks import SERVICES
from adapters.postgres.kernel.roles import is_admin
from adapters.postgres.kernel.shared_sql import REGISTERED
from core.accounts.model.protection import NOTHING_ASKED, AskedStrength
from core.applications.model.users import EndUser, EndUserSummary, EnrollmentOrigin, LinkedIdentity, UsedService
from core.kernel.values import Email, Page, PageResult

# The slug of a service `v`, or an external client's name in logs: its own slug leads nowhere
SLUG: Final = f"case when {REGISTERED} then v.slug else {LOGGED_NAME} end"
# The requested service, if it belongs to the organization
OF_SERVICE: Final = "service_id = (select id from services where org_id = %(org_id)s and id = %(service_id)s)"
OF_ORGANIZATION: Final = "org_id = %(org_id)s"
# The users' accounts may still be active.
BLOCKED: Final = "select user_id from directory_blocks where org_id = %(org_id)s"
# The counter, minus the deactivated and blocked users, who are few
TOTAL: Final = f"""
    coalesce((select total from end_user_totals where org_id = %(org_id)s), 0)
    - (select count(*) from end_users where org_id = %(org_id)s and deactivated)
    - (select count(*) from ({BLOCKED}) d join end_users e on e.org_id = %(org_id)s and e.user_id = d.user_id and not e.deactivated)"""
TOTAL_OF_SERVICE: Final = f"""
    coalesce((select user_count from services where org_id = %(org_id)s and id = %(service_id)s), 0)
    - (select count(*) from service_users where {OF_SERVICE} and deactivated)
    - (select count(*) from ({BLOCKED}) d join service_users e on e.{OF_SERVICE} and e.user_id = d.user_id and not e.deactivated)"""
# Emails are stored in lower case. strpos needs no escaped wildcards.
MATCHING: Final = "and (strpos(email, %(search)s) > 0 or user_id::text = %(search)s)"


# Of an account `u`: the strength that is asked of it as an admin or not, its protection and its factors
_IS_ADMIN: Final = f"""
    exists (select from memberships m where m.org_id = %(org_id)s and m.user_id = u.id and m.confirmed_at is not null
            and {is_admin("m", "m.org_id")})"""
PROTECTION: Final = protection(f"(case when {_IS_ADMIN} then %(asked_of_admins)s::int else %(asked_of_members)s::int end)")


def _page(table: LiteralString, which: LiteralString, total: LiteralString | None) -> LiteralString:
    # A search reads all users of the organization or service from an index that includes the email:
    # first to count, and then in the page's order, as far as needed. Build the page before any
    # join, and look up its rows with a lateral join and a limit: with a plain join the planner may
    # read all the database's accounts for a few rows, depending on how large other organizations
    # are. Every row has the total, and an empty page returns a row with it.
    matching = "" if total is not None else MATCHING
    listed = f"{which} and not deactivated and not exists ({BLOCKED} and user_id = {table}.user_id) {matching}"
    return f"""
        with page as (
            select user_id, created_at from {table} where {listed}
            order by created_at desc, user_id desc limit %(limit)s offset %(offset)s)
        select counted.total, u.id, u.email, u.created_at, u.mfa_enabled, r.last_login_at, r.slugs,
               {is_blocked_by_admin("%(org_id)s", "p.user_id")}, u.protection, u.factors
        from (select {total or f"(select count(*) from {table} where {listed})"} as total) counted
        left join (
            page p
            cross join lateral (
                select id, email, created_at, {HAS_SECOND_FACTOR} as mfa_enabled, {PROTECTION} as protection, {HELD_FACTORS} as factors
                from users u where id = p.user_id limit 1) u
            cross join lateral (
                select max(s.last_login_at) as last_login_at, array_agg({SLUG} order by v.slug) as slugs
                from service_users s join services v on v.id = s.service_id
                where s.org_id = %(org_id)s and s.user_id = p.user_id) r) on true
        order by p.created_at desc, p.user_id desc"""


ADDRESS_OF_BLOCKED: Final = "coalesce((select email from end_users e where e.org_id = b.org_id and e.user_id = b.user_id), b.email)"


def _blocked_users(*, matching: bool, of_service: bool) -> LiteralString:
    # Also users who have left the applications: the organization sees only their address at the time of the block. As
    # in `_page`, the page comes before any join.
    search = f"and (strpos({ADDRESS_OF_BLOCKED}, %(search)s) > 0 or b.user_id::text = %(search)s)" if matching else ""
    service = f"and exists (select 1 from service_users s where s.{OF_SERVICE} and s.user_id = b.user_id)" if of_service else ""
    listed = f"from end_user_blocks b where b.org_id = %(org_id)s {search} {service}"
    return f"""
        with page as (
            select b.org_id, b.user_id, b.email, b.since {listed} order by b.since desc, b.user_id desc limit %(limit)s offset %(offset)s)
        select counted.total, b.user_id, {ADDRESS_OF_BLOCKED}, u.created_at, r.slugs is not null and u.mfa_enabled,
               r.last_login_at, r.slugs, true, case when r.slugs is not null then u.protection end,
               case when r.slugs is not null then u.factors end
        from (select count(*) as total {listed}) counted
        left join (
            page b
            cross join lateral (
                select created_at, {HAS_SECOND_FACTOR} as mfa_enabled, {PROTECTION} as protection, {HELD_FACTORS} as factors
                from users u where id = b.user_id limit 1) u
            cross join lateral (
                select max(s.last_login_at) as last_login_at, array_agg({SLUG} order by v.slug) as slugs
                from service_users s join services v on v.id = s.service_id
                where s.org_id = %(org_id)s and s.user_id = b.user_id) r) on true
        order by b.since desc, b.user_id desc"""


# The users that an admin can block, with the address that the organization may see
KNOWN: Final = """
    select email from end_users where org_id = %(org_id)s and user_id = %(user_id)s
    union all select email from memberships where org_id = %(org_id)s and user_id = %(user_id)s
    union all select email from former_members where org_id = %(org_id)s and user_id = %(user_id)s"""
OPEN_TO_FORMER_MEMBERS: Final = f"""
    select v.name from services v
    where v.org_id = %(org_id)s and {REGISTERED} and v.access_policy <> 'members' and exists (
        select from unnest(%(user_ids)s::uuid[]) as u (id)
        where not {is_blocked("v.org_id", "u.id")} and not {is_blocked_by_admin("v.org_id", "u.id")}
          and (v.access_policy = 'anyone' or {is_subscribed("v", "u.id")}))
    order by v.name, v.id"""
SERVICE: Final = "from services v where v.org_id = %(org_id)s and v.id = %(service_id)s"
MAY_USE: Final = f"select {may_use('v', '%(user_id)s')} {SERVICE}"
MAY_SIGN_ON: Final = f"select {may_sign_on('v', '%(user_id)s')} {SERVICE}"
SERVICES_WITH_REFUSED_USERS: Final = f"""
    select o.slug, v.slug from services v join organizations o on o.id = v.org_id
    join saml_configurations f on f.service_id = v.id and f.enabled
    where v.access_policy = 'anyone' and not v.saml_self_enrolled and exists (
        select 1 from service_users r
        where r.service_id = v.id and not r.deactivated and {may_use("v", "r.user_id")} and not {may_sign_on("v", "r.user_id")})
    order by o.slug, v.slug limit %(limit)s"""


# Lock order: the service, service_users, end_users, the service's counter, the organization's
# counter. Every CTE reads the previous CTE, which enforces this order. Deleting the service waits
# until the transaction ends.
#
# Keep the row lock and the advisory lock on the service. PostgreSQL can lose the row lock while a
# concurrent transaction updates the row (docs/adr/0006). The advisory lock does not show that the
# service was deleted after the statement started.
#
# Keep "try" and "skip locked". Otherwise all sign-ins to a service would wait for its deletion, and
# occupy connections that unrelated requests need. So a locked service counts as deleted, even if
# the deletion fails later. A service also counts as deleted for users that `admits` refuses.
#
# A row that was just inserted has xmax = 0. The update "where false" never changes its row, but
# locks it, so that a transaction that removes it has to wait.
#
# `by_membership` is true in a new row for a member who is assigned, or who signs in with SAML. `by_membership` becomes
# false when the user signs in by any other means. Then they stay a user of the service after the membership ends.
# `by_membership` never becomes true again.
def enroll_sql(
    which: LiteralString,
    *,
    users: LiteralString = "a.id = %(user_id)s",
    admits: LiteralString = "true",
    by_membership: LiteralString = "false",
) -> LiteralString:
    return f"""
        with held as (
            select id, org_id from services
            where {which} and {admits}
              and pg_try_advisory_xact_lock_shared({SERVICES}, hashtext(id::text))
            for key share skip locked),
        used as (
            insert into service_users as u (service_id, user_id, org_id, email, deactivated, by_membership, enrolled_by, created_at,
                                            first_login_at, last_login_at)
            select held.id, a.id, held.org_id, a.email, a.deactivated, {by_membership}, %(origin)s, %(now)s, %(login_at)s, %(login_at)s
            from held join users a on {users}
            on conflict (service_id, user_id) do update set
                first_login_at = least(u.first_login_at, excluded.first_login_at),
                last_login_at = greatest(u.last_login_at, excluded.last_login_at),
                by_membership = u.by_membership and excluded.by_membership,
                enrolled_by = case when array_position({ORIGINS}, excluded.enrolled_by) > array_position({ORIGINS}, u.enrolled_by)
                                   then excluded.enrolled_by else u.enrolled_by end
            returning service_id, user_id, org_id, email, deactivated, xmax = 0 as is_new),
        known as (
            insert into end_users as e (org_id, user_id, email, deactivated, created_at)
            select org_id, user_id, email, deactivated, %(now)s from used
            on conflict (org_id, user_id) do update set created_at = e.created_at where false
            returning org_id),
        counted as (
            update services s set user_count = user_count + more.users
            from (select service_id, count(*) as users from used where is_new group by service_id) more
            where s.id = more.service_id
            returning s.org_id),
        added_total as (
            insert into end_user_totals as t (org_id, total)
            select known.org_id, count(*) from known left join counted on counted.org_id = known.org_id group by known.org_id
            on conflict (org_id) do update set total = t.total + excluded.total)
        select 1 from held"""


HAS_MEMBERSHIP: Final = has_membership("held.org_id", "a.id")
ENROLL: Final = enroll_sql("id = %(service_id)s", admits=may_use("services", "%(user_id)s"))
ENROLL_BY_SAML: Final = enroll_sql(
    "org_id = (select id from organizations where slug = %(org_slug)s) and slug = %(slug)s",
    admits=may_sign_on("services", "%(user_id)s"),
    by_membership=HAS_MEMBERSHIP,
)
# Enrollments without a sign-in
ASSIGN: Final = enroll_sql("org_id = %(org_id)s and id = %(service_id)s", users="a.id = any(%(user_ids)s)", by_membership=HAS_MEMBERSHIP)


def enrollment_parameters(now: datetime) -> dict[str, object]:
    """Return the `enroll_sql` parameters for a user who is signing in."""
    return {"now": now, "login_at": now, "origin": EnrollmentOrigin.SELF}


class EndUsers(statements.Repository):
    """Implements `ports.storage.applications.users.EndUsers`."""

    async def page(
        self,
        org_id: UUID,
        page: Page,
        *,
        search: str | None = None,
        service_id: UUID | None = None,
        blocked: bool = False,
        asked: AskedStrength = NOTHING_ASKED,
    ) -> PageResult[EndUserSummary]:
        if blocked:
            statement = _blocked_users(matching=search is not None, of_service=service_id is not None)
        elif service_id is None:
            statement = _page("end_users", OF_ORGANIZATION, TOTAL if search is None else None)
        else:
            statement = _page("service_users", OF_SERVICE, TOTAL_OF_SERVICE if search is None else None)
        values = {"org_id": org_id, "service_id": service_id, "search": search, "limit": page.limit, "offset": page.offset}
        return await self._page(
            lambda row: EndUserSummary(
                row[0], Email(row[1]), row[2], row[3], row[4], tuple(row[5] or ()), row[6], **to_protection(row[7:])
            ),
            statement,
            **values,
            **asked_parameters(asked),
        )

    async def by_id(self, org_id: UUID, user_id: UUID, asked: AskedStrength = NOTHING_ASKED) -> EndUser | None:
        sql = f"""
            select u.id, u.email, u.email_verified_at is not null, {HAS_SECOND_FACTOR}, u.created_at, u.updated_at,
                   {PROTECTION}, {HELD_FACTORS}
            from end_users e join users u on u.id = e.user_id
            where e.org_id = %(org_id)s and e.user_id = %(user_id)s"""
        values = {"org_id": org_id, "user_id": user_id, **asked_parameters(asked)}
        return await self._one(lambda row: EndUser(row[0], Email(row[1]), *row[2:6], **to_protection(row[6:])), sql, **values)

    async def blocked_at(self, org_id: UUID, user_id: UUID) -> datetime | None:
        sql = "select since from end_user_blocks where org_id = %(org_id)s and user_id = %(user_id)s"
        return await self._one(lambda row: row[0], sql, org_id=org_id, user_id=user_id)

    async def exists(self, org_id: UUID, user_id: UUID) -> bool:
        sql = "select 1 from end_users where org_id = %(org_id)s and user_id = %(user_id)s"
        return await self._exists(sql, org_id=org_id, user_id=user_id)

    async def is_blockable(self, org_id: UUID, user_id: UUID) -> bool:
        return await self._exists(KNOWN, org_id=org_id, user_id=user_id)

    async def open_to_former_members(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> list[str]:
        values = {"org_id": org_id, "user_ids": list(user_ids), "now": now}
        return await self._all(lambda row: str(row[0]), OPEN_TO_FORMER_MEMBERS, **values)

    async def used_before_membership(self, org_id: UUID, user_ids: Collection[UUID]) -> set[UUID]:
        sql = """
            select m.user_id from memberships m join end_users e on e.org_id = m.org_id and e.user_id = m.user_id
            where m.org_id = %(org_id)s and m.user_id = any(%(user_ids)s) and e.created_at < m.created_at"""
        return set(await self._all(lambda row: row[0], sql, org_id=org_id, user_ids=list(user_ids)))

    async def blocked_by_admin(self, org_id: UUID, user_ids: Collection[UUID]) -> set[UUID]:
        sql = "select user_id from end_user_blocks where org_id = %(org_id)s and user_id = any(%(user_ids)s)"
        return set(await self._all(lambda row: row[0], sql, org_id=org_id, user_ids=list(user_ids)))

    async def address(self, org_id: UUID, user_id: UUID) -> Email | None:
        sql = """
            select coalesce((select email from end_users where org_id = %(org_id)s and user_id = %(user_id)s),
                            (select email from end_user_blocks where org_id = %(org_id)s and user_id = %(user_id)s))"""
        return await self._one(lambda row: None if row[0] is None else Email(row[0]), sql, org_id=org_id, user_id=user_id)

    async def block(self, org_id: UUID, user_id: UUID, now: datetime) -> bool:
        sql = f"""
            insert into end_user_blocks (org_id, user_id, email, since)
            select %(org_id)s, %(user_id)s, known.email, %(now)s from ({KNOWN} limit 1) known
            on conflict (org_id, user_id) do update set since = excluded.since
            where exists (select from email_changes c where c.user_id = excluded.user_id and c.proved_at = end_user_blocks.since)"""
        return await self._run(sql, org_id=org_id, user_id=user_id, now=now) == 1

    async def unblock(self, org_id: UUID, user_id: UUID) -> bool:
        sql = "delete from end_user_blocks where org_id = %(org_id)s and user_id = %(user_id)s"
        return await self._run(sql, org_id=org_id, user_id=user_id) == 1

    async def unblock_undone(self, user_id: UUID, now: datetime) -> list[UUID]:
        sql = """
            delete from end_user_blocks b using email_changes c
            where b.user_id = %(user_id)s and c.user_id = b.user_id and c.proved_at = b.since and c.undone_at = %(now)s
            returning b.org_id"""
        return await self._all(lambda row: row[0], sql, user_id=user_id, now=now)

    async def services(self, org_id: UUID, user_id: UUID) -> list[UsedService]:
        sql = f"""
            select v.id, v.slug, {LOGGED_NAME}, r.first_login_at, r.last_login_at
            from service_users r join services v on v.id = r.service_id
            where r.org_id = %(org_id)s and r.user_id = %(user_id)s order by v.slug"""
        return await self._all(lambda row: UsedService(*row), sql, org_id=org_id, user_id=user_id)

    async def identities(self, org_id: UUID, user_id: UUID) -> list[LinkedIdentity]:
        sql = """
            select i.provider, i.provider_user_id, i.email, i.linked_at
            from identities i join services v on v.id = i.service_id
            where v.org_id = %(org_id)s and i.user_id = %(user_id)s order by i.linked_at, i.id"""
        return await self._all(lambda row: LinkedIdentity(*row), sql, org_id=org_id, user_id=user_id)

    async def may_use(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> bool | None:
        return await self._one(lambda row: bool(row[0]), MAY_USE, org_id=org_id, service_id=service_id, user_id=user_id, now=now)

    async def may_sign_on(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> bool | None:
        return await self._one(lambda row: bool(row[0]), MAY_SIGN_ON, org_id=org_id, service_id=service_id, user_id=user_id, now=now)

    async def services_with_refused_users(self, limit: int, now: datetime) -> list[tuple[str, str]]:
        return await self._all(lambda row: (row[0], row[1]), SERVICES_WITH_REFUSED_USERS, limit=limit, now=now)

    async def is_known(self, org_id: UUID, user_id: UUID) -> bool:
        sql = """
            select 1 from end_users where org_id = %(org_id)s and user_id = %(user_id)s
            union all select 1 from memberships
            where org_id = %(org_id)s and user_id = %(user_id)s and confirmed_at is not null"""
        return await self._exists(sql, org_id=org_id, user_id=user_id)

    async def is_confirmed_member(self, org_id: UUID, user_id: UUID) -> bool:
        sql = "select 1 from memberships where org_id = %(org_id)s and user_id = %(user_id)s and confirmed_at is not null"
        return await self._exists(sql, org_id=org_id, user_id=user_id)

    def enroll(self, service_id: UUID, user_id: UUID, now: datetime) -> statements.Answer[bool]:
        return self._exists(ENROLL, service_id=service_id, user_id=user_id, **enrollment_parameters(now))

    def enroll_by_saml(self, org_slug: str, service_slug: str, user_id: UUID, now: datetime) -> statements.Answer[bool]:
        return self._exists(ENROLL_BY_SAML, org_slug=org_slug, slug=service_slug, user_id=user_id, **enrollment_parameters(now))
