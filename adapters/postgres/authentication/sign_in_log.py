"""Storage for the sign-in logs: who sees which login records (decision 220)."""

from collections.abc import Collection
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.applications.services import LOGGED_NAME
from adapters.postgres.engine import records
from adapters.postgres.engine.statements import Repository
from adapters.postgres.kernel.shared_sql import JOIN_PLATFORM_OWNER
from core.authentication.model import sign_in_log
from core.kernel.values import Email, Page, PageResult

NEWEST: Final = "order by l.created_at desc, l.id desc"
# For attempts at a single application. Keep the leading service_id, the one-value range in the filter, and the
# condition that no index serves: otherwise the planner may search the whole organization's newest attempts, or sort all
# the application's attempts (35 s for 3 million).
NEWEST_OF_SERVICE: Final = "order by l.service_id, l.created_at desc, l.id desc"
OF_ORGANIZATION: Final = "l.org_id = %(org_id)s"
OF_ORGANIZATION_BY_SERVICE: Final = "l.org_id is not distinct from %(org_id)s"
# For attempts at the platform with a single reason. Keep the leading org_id, which is null in these rows: otherwise the
# planner does not see that the index on failures by reason has this order, and sorts all rows.
NEWEST_OF_REASON: Final = "order by l.org_id, l.created_at desc, l.id desc"
WALKED: Final = 20_000
# The rule for the attempts that an organization sees. An organization's list, count and export read this and nothing else: the attempts at
# its applications, and its confirmed members' attempts at the platform itself since they joined. Attempts at accounts that the organization
# does not know have no user (`RECORD_FAILURE`). An organization that was never approved sees no attempts at the platform: anyone can create
# any number of such organizations.
OF_APPLICATIONS: Final = """
    (select l.* from login_events l
     where {of_organization} and l.seen_by <> 'platform' and l.attempts > 0 {filters} {newest} limit %(most)s)"""
AT_PLATFORM: Final = "l.org_id is null and l.service_id is null and l.seen_by = 'all' {filters}"
OF_MEMBER: Final = "m.org_id = %(org_id)s and m.user_id = l.user_id and l.created_at >= m.confirmed_at"
IS_APPROVED: Final = "select o.member_count from organizations o where o.id = %(org_id)s and o.approved_at is not null"
# The whole platform's newest attempts are walked first, at most one attempt per member. Reading the attempts by 100,000
# single members would take seconds. The walk is enough if it finds %(most)s attempts by members, or comes to the oldest
# attempt. Keep the lateral join: a hash join would read all members.
WALK: Final = f"""
    with steps as materialized (select coalesce(max(least(o.member_count, {WALKED})), 0) as steps from ({IS_APPROVED}) o),
    walked as materialized (
        select l.* from (
            select l.* from login_events l where {AT_PLATFORM} {{newest_on_platform}} limit (select steps from steps)) l
        cross join lateral (select from memberships m where {OF_MEMBER} limit 1) m
        {{newest_on_platform}} limit %(most)s),
    is_enough as materialized (
        select (select count(*) from walked) = %(most)s or (
            select count(*) from (select from login_events l where {AT_PLATFORM} limit (select steps from steps)) l)
            < (select steps from steps) as is_enough)"""
IF_ENOUGH: Final = "select l.* from walked l where (select is_enough from is_enough)"
OF_THIS: Final = f"m.org_id = %(org_id)s and exists ({IS_APPROVED}) and not (select is_enough from is_enough)"
# Any attempt by a member, for the count.
OF_MEMBERS: Final = f"""
    {WALK}
    {IF_ENOUGH}
    union all
    (select l.* from memberships m cross join lateral (
        select l.* from login_events l where {OF_MEMBER} and {AT_PLATFORM} limit %(most)s) l
     where {OF_THIS} limit %(most)s)"""
# The members' newest attempts. Every member's newest attempt shows which members have the newest attempts. If there are
# %(most)s such members, no older attempt can be among the newest.
NEWEST_OF_MEMBERS: Final = f"""
    {WALK},
    latest as materialized (
        select m.*, l.at from memberships m cross join lateral (
            select l.created_at as at, l.id as attempt_id from login_events l where {OF_MEMBER} and {AT_PLATFORM} {NEWEST} limit 1) l
        where {OF_THIS} order by l.at desc, l.attempt_id desc limit %(most)s),
    oldest as materialized (select case when count(*) = %(most)s then min(at) else '-infinity' end as at from latest)
    {IF_ENOUGH}
    union all
    select l.* from latest m cross join lateral (
        select l.* from login_events l
        where {OF_MEMBER} and l.created_at >= (select at from oldest) and {AT_PLATFORM} {NEWEST} limit %(most)s) l"""
# An attempt at an account that the organization does not know has its own row for the platform, and counts in a shared
# row for the organization.
OF_PLATFORM: Final = "(select l.* from login_events l where l.seen_by <> 'organization' {filters} {newest} limit %(most)s)"
# The current address, for a user who belongs to the organization.
EMAIL_IN_ORGANIZATION: Final = """coalesce(
    (select m.email from memberships m where m.org_id = %(org_id)s and m.user_id = l.user_id and m.confirmed_at is not null),
    (select e.email from end_users e where e.org_id = %(org_id)s and e.user_id = l.user_id),
    (select coalesce(s.email, u.email) from scim_users s join users u on u.id = s.user_id
     where s.org_id = %(org_id)s and s.user_id = l.user_id))"""
EMAIL: Final = "(select u.email from users u where u.id = l.user_id)"
# The same users by their address: every query uses an index.
USER_IN_ORGANIZATION: Final = """
    select user_id from (
        select 1 as place, user_id from memberships where org_id = %(org_id)s and email = %(email)s and confirmed_at is not null
        union all
        select 2, user_id from end_users where org_id = %(org_id)s and email = %(email)s
        union all
        select 3, user_id from scim_users where org_id = %(org_id)s and email = %(email)s
        union all
        select 3, s.user_id from users u join scim_users s on s.org_id = %(org_id)s and s.user_id = u.id and s.email is null
        where u.email = %(email)s) known
    order by place limit 1"""
USER: Final = "select id from users where email = %(email)s"
FILTERS: Final[dict[str, LiteralString]] = {
    "user_id": "and l.user_id = %(user_id)s",
    "connection_id": "and l.connection_id = %(connection_id)s",
    "service_id": "and l.service_id >= %(service_id)s and l.service_id <= %(service_id)s",
    # Not a parameter, because the indexes on failures are partial.
    "succeeded": "and l.success",
    "failed": "and not l.success",
    "reason": "and l.reason = %(reason)s and not l.success",
    "request_id": "and l.request_id = %(request_id)s and not l.success",
    "since": "and l.created_at >= %(since)s",
    "until": "and l.created_at < %(until)s",
    "before_id": "and (l.created_at, l.id) < (%(before)s, %(before_id)s)",
}


# An organization sees its own connections alone.
OF_OWN_CONNECTION: Final = "from connections c where c.id = l.connection_id and c.org_id = %(org_id)s"
OF_CONNECTION: Final = "from connections c where c.id = l.connection_id"


def _record(email: LiteralString, connection: LiteralString, **columns: LiteralString) -> records.Record[sign_in_log.SignIn]:
    return records.Record(
        sign_in_log.SignIn,
        "l",
        email=email,
        service_name=f"coalesce({LOGGED_NAME}, l.external_client)",
        connection=f"(select c.slug {connection})",
        connection_name=f"(select c.name {connection})",
        fault=f"(select l.fault {connection})",
        seconds_off=f"(select l.seconds_off {connection})",
        received=records.Column(sql=f"coalesce((select l.received {connection}), '{{}}')", read=tuple),
        **columns,
    )


IN_ORGANIZATION: Final = _record(
    EMAIL_IN_ORGANIZATION,
    OF_OWN_CONNECTION,
    **{name: f"case when w.id is null then l.{name} end" for name in ("address", "agent", "city", "country")},
)
ON_PLATFORM: Final = _record(EMAIL, OF_CONNECTION)

OF_SERVICE: Final = f"""
    (select l.* from login_events l
     where l.service_id >= {{service}} and l.service_id <= {{service}} and l.org_id = %(org_id)s and l.seen_by <> 'platform'
       and l.attempts > 0 and {{result}} {NEWEST_OF_SERVICE} limit 1)"""
LAST_OF_SERVICE: Final = f"""
    select {IN_ORGANIZATION.columns}
    from ({OF_SERVICE.format(service="%(service_id)s", result="l.success")}
          union all {OF_SERVICE.format(service="%(service_id)s", result="not l.success")}) l
    left join services v on v.id = l.service_id and v.org_id = l.org_id {JOIN_PLATFORM_OWNER}"""
# The search starts at the last day with a sign-in: many failures may be newer.
BEFORE_END_OF_LAST_DAY: Final = """
    l.created_at < (select (max(t.day) + 1)::timestamp at time zone 'UTC' from login_totals t
                    where t.org_id = %(org_id)s and t.service_id = named.id)"""
LAST_OF_SERVICES: Final = f"""
    select named.id, l.created_at from unnest(%(service_ids)s::uuid[]) as named (id)
    cross join lateral {OF_SERVICE.format(service="named.id", result=f"l.success and {BEFORE_END_OF_LAST_DAY}")} l"""


class SignInLog(Repository):
    """Implements `ports.storage.authentication.sign_ins.SignInLogRead`."""

    async def page(self, org_id: UUID | None, filter_: sign_in_log.SignInFilter, page: Page) -> PageResult[sign_in_log.SignIn]:
        values = _values(filter_)
        rows = _rows(org_id, values, OF_MEMBERS)
        count = f"select count(*) from (select from ({rows}) l limit %(most)s) counted"
        total = await self._count(count, org_id=org_id, most=sign_in_log.MAX_LISTED, **values)
        if page.offset >= total:
            return PageResult([], total)
        limit = min(page.limit, total - page.offset)
        return PageResult(await self._newest(org_id, values, limit, page.offset), total)

    async def batch(
        self, org_id: UUID | None, filter_: sign_in_log.SignInFilter, last: sign_in_log.SignIn | None, limit: int
    ) -> list[sign_in_log.SignIn]:
        values = _values(filter_)
        if last is not None:
            values |= {"before_id": last.id, "before": last.created_at}
        return await self._newest(org_id, values, limit, 0)

    async def find_user(self, org_id: UUID | None, email: Email) -> UUID | None:
        return await self._one(lambda row: row[0], USER if org_id is None else USER_IN_ORGANIZATION, org_id=org_id, email=email)

    async def last_of_service(self, org_id: UUID, service_id: UUID) -> sign_in_log.ServiceActivity:
        rows = await self._all(IN_ORGANIZATION.read, LAST_OF_SERVICE, org_id=org_id, service_id=service_id)
        return sign_in_log.ServiceActivity(
            last_success=next((row for row in rows if row.success), None), last_failure=next((row for row in rows if not row.success), None)
        )

    async def last_successes(self, org_id: UUID, service_ids: Collection[UUID]) -> dict[UUID, datetime]:
        return dict(await self._all(lambda row: (row[0], row[1]), LAST_OF_SERVICES, org_id=org_id, service_ids=list(service_ids)))

    async def _newest(self, org_id: UUID | None, values: dict[str, object], limit: int, offset: int) -> list[sign_in_log.SignIn]:
        record = ON_PLATFORM if org_id is None else IN_ORGANIZATION
        sql = f"""
            select {record.columns} from (
                select l.* from ({_rows(org_id, values)}) l {NEWEST} limit %(limit)s offset %(offset)s) l
            left join services v on v.id = l.service_id and v.org_id = l.org_id {JOIN_PLATFORM_OWNER}
            {NEWEST}"""
        return await self._all(record.read, sql, org_id=org_id, most=offset + limit, limit=limit, offset=offset, **values)


def _rows(org_id: UUID | None, values: dict[str, object], of_members: LiteralString = NEWEST_OF_MEMBERS) -> LiteralString:
    """Return the newest %(most)s rows that the organization may see, or the platform, and that match the filters."""
    filters = " ".join(text for name, text in FILTERS.items() if name in values)
    by_service = "service_id" in values and "reason" not in values
    parts: dict[str, LiteralString] = {
        "filters": filters,
        "newest": NEWEST_OF_SERVICE if by_service else NEWEST,
        "newest_on_platform": NEWEST_OF_REASON if "reason" in values else NEWEST,
        "of_organization": OF_ORGANIZATION_BY_SERVICE if by_service else OF_ORGANIZATION,
    }
    if org_id is None:
        return OF_PLATFORM.format(**parts)
    if "service_id" in values:  # no attempt at the platform itself
        return OF_APPLICATIONS.format(**parts)
    return f"{OF_APPLICATIONS} union all ({of_members})".format(**parts)


def _values(filter_: sign_in_log.SignInFilter) -> dict[str, object]:
    """Return the parameters for the filters that are set, by name."""
    values: dict[str, object] = {
        "user_id": filter_.user_id,
        "connection_id": filter_.connection_id,
        "service_id": filter_.service_id,
        "succeeded": True if filter_.success is True else None,
        "failed": True if filter_.success is False else None,
        "reason": filter_.reason,
        "request_id": filter_.request_id,
        "since": filter_.since,
        "until": filter_.until,
    }
    return {name: value for name, value in values.items() if value is not None}
