"""The figures for charts: reading them, recording requests, and counting hours and days (decision 450).

An hour is counted again until it is final, so a repeated run changes nothing. An hour's rows are read by the time
index. A day is the sum over its hours.
"""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.accounts.accounts import HAS_PASSKEY, HAS_SECOND_FACTOR, PASSWORD_ALONE
from adapters.postgres.applications.analytics import TOTALS
from adapters.postgres.applications.services import LOGGED_NAME
from adapters.postgres.engine.statements import Repository
from core.applications.model import figures
from core.applications.model.figures import PLATFORM_ID, SUCCESS

COUNTED: Final = """
    select start, service_id, method, result, total from sign_in_figures
    where org_id = %(org_id)s and span = %(span)s and start >= %(since)s"""
# An organization's days: its failures, and its success totals.
COUNTED_DAYS: Final = f"""
    {COUNTED} and result <> '{SUCCESS}'
    union all
    select t.day::timestamp at time zone 'UTC', t.service_id, t.provider, '{SUCCESS}', t.total from {TOTALS}
    union all
    select t.day::timestamp at time zone 'UTC', '{PLATFORM_ID}'::uuid, t.provider, '{SUCCESS}', t.total from member_login_totals t
    where t.org_id = %(org_id)s and t.day between %(first)s and %(last)s"""


def count_traffic_sql(recorded: LiteralString, kind: LiteralString) -> LiteralString:
    """Return the end of a statement that adds the `recorded` rows to the traffic.

    `recorded` is a CTE with org_id, at, outcome and milliseconds. Lock order: the `recorded` rows, then the figures by
    their key.
    """
    return f"""
        insert into traffic_figures as t (org_id, kind, span, start, outcome, total, milliseconds, slowest)
        select r.org_id, '{kind}', s.span, date_trunc(s.span, r.at, 'UTC'), r.outcome, count(*), sum(coalesce(r.milliseconds, 0)),
               max(coalesce(r.milliseconds, 0))
        from {recorded} r cross join (values ('day'), ('hour')) s (span)
        group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4, 5
        on conflict (org_id, kind, span, start, outcome) do update set
            total = t.total + excluded.total, milliseconds = t.milliseconds + excluded.milliseconds,
            slowest = greatest(t.slowest, excluded.slowest)"""


class Figures(Repository):
    """Implements `ports.storage.applications.users.FiguresRead`."""

    async def by_result(self, org_id: UUID | None, period: figures.FigurePeriod) -> dict[str, list[int]]:
        return await self._by("result", "", org_id, period)

    async def by_method(self, org_id: UUID | None, period: figures.FigurePeriod) -> dict[str, list[int]]:
        return await self._by("method", f"where c.result = '{SUCCESS}'", org_id, period)

    async def _by(
        self, column: LiteralString, condition: LiteralString, org_id: UUID | None, period: figures.FigurePeriod
    ) -> dict[str, list[int]]:
        sql = f"""
            select c.{column}, c.start, sum(c.total)::bigint from ({_counted(org_id, period)}) c {condition}
            group by c.{column}, c.start having sum(c.total) > 0
            order by sum(sum(c.total)) over (partition by c.{column}) desc, c.{column}"""
        counts: dict[str, dict[datetime, int]] = {}
        for name, start, total in await self._rows(sql, **_parameters(org_id, period)):
            counts.setdefault(name, {})[start] = total
        return {name: period.spread(of_name) for name, of_name in counts.items()}

    async def by_application(self, org_id: UUID, period: figures.FigurePeriod, most: int) -> list[figures.ApplicationSignIns]:
        # Rank 0 has all remaining applications.
        sql = f"""
            with counted as materialized (
                select c.service_id, c.start, sum(c.total)::bigint as total from ({_counted(org_id, period)}) c
                where c.result = '{SUCCESS}' group by c.service_id, c.start having sum(c.total) > 0),
            ranked as (
                select c.service_id, row_number() over (order by sum(c.total) desc, c.service_id) as rank
                from counted c group by c.service_id order by rank limit %(most)s)
            select coalesce(r.rank, 0), r.service_id, {LOGGED_NAME}, c.start, sum(c.total)::bigint
            from counted c
            left join ranked r on r.service_id = c.service_id
            left join services v on v.id = r.service_id and v.org_id = %(org_id)s
            group by r.rank, r.service_id, v.id, c.start order by r.rank nulls last"""
        found: dict[int, tuple[UUID | None, str | None, dict[datetime, int]]] = {}
        for rank, service_id, name, start, total in await self._rows(sql, most=most, **_parameters(org_id, period)):
            found.setdefault(rank, (service_id, name, {}))[2][start] = total
        return [
            figures.ApplicationSignIns(
                None if rank == 0 or service_id == PLATFORM_ID else service_id,
                name,
                period.spread(counts),
                is_platform=service_id == PLATFORM_ID,
            )
            for rank, (service_id, name, counts) in found.items()
        ]

    async def users(self, org_id: UUID | None, period: figures.FigurePeriod) -> tuple[list[int], list[int]]:
        sql = """
            select start, active, new_users from user_figures where org_id = %(org_id)s and span = %(span)s and start >= %(since)s"""
        rows = await self._rows(sql, **_parameters(org_id, period))
        return period.spread({row[0]: row[1] for row in rows}), period.spread({row[0]: row[2] for row in rows})

    async def weekly_users(self, org_id: UUID | None, weeks: Sequence[datetime]) -> list[figures.WeeklyUsers]:
        sql = """
            select date_trunc('week', start, 'UTC'), sum(first_of_week)::bigint from user_figures
            where org_id = %(org_id)s and span = 'day' and start >= %(first)s and start < %(end)s group by 1"""
        rows = await self._rows(sql, org_id=org_id or PLATFORM_ID, first=weeks[0], end=weeks[-1] + figures.WEEK)
        counts = {row[0]: row[1] for row in rows}
        return [figures.WeeklyUsers(week.date(), counts.get(week, 0)) for week in weeks]

    async def populations(self, org_id: UUID | None, since: date) -> list[figures.Population]:
        sql = """
            select day, users, second_factor, passkeys, password_alone, organizations from population_figures
            where org_id = %(org_id)s and day >= %(since)s order by day"""
        return await self._all(lambda row: figures.Population(*row), sql, org_id=org_id or PLATFORM_ID, since=since)

    async def traffic(self, org_id: UUID | None, kind: figures.TrafficKind, period: figures.FigurePeriod) -> list[figures.TrafficCount]:
        sql = """
            select start, outcome, total, milliseconds, slowest from traffic_figures
            where org_id = %(org_id)s and kind = %(kind)s and span = %(span)s and start >= %(since)s order by start, outcome"""
        return await self._all(lambda row: figures.TrafficCount(*row), sql, kind=kind, **_parameters(org_id, period))


def _counted(org_id: UUID | None, period: figures.FigurePeriod) -> LiteralString:
    by_totals = org_id is not None and period.span is figures.FigureSpan.DAY
    return COUNTED_DAYS if by_totals else COUNTED


def _parameters(org_id: UUID | None, period: figures.FigurePeriod) -> dict[str, object]:
    starts = period.starts
    return {
        "org_id": org_id or PLATFORM_ID,
        "span": period.span,
        "since": period.first,
        "first": starts[0].date(),
        "last": starts[-1].date(),
    }


# Counting reads all users, or all sign-ins in an hour. 10 million users, or a million sign-ins, take some minutes.
LONGEST: Final = 600.0  # seconds for a statement
# The id that stands for the platform.
PLATFORM: Final = f"'{PLATFORM_ID}'::uuid"
OF_HOUR: Final = "l.created_at >= %(hour)s and l.created_at < %(end)s"
# `authentication/sign_in_log.py` has the rule about who sees which attempts (decision 220). Successful sign-ins count
# as in the totals that `authentication/logins.py` and `eventing/event_log.py` keep: members' sign-ins to the platform
# are in their organizations' audit logs, also sign-ins on the way to an application.
COUNT_SIGN_INS: Final = f"""
    insert into sign_in_figures (org_id, span, start, service_id, method, result, total)
    with attempts as materialized (
        select l.org_id, l.service_id, l.user_id, l.seen_by, l.success, l.created_at, l.provider as method, l.attempts,
               case when l.success then '{SUCCESS}' else l.reason end as result
        from login_events l where {OF_HOUR}),
    seen as (
        select a.org_id, a.service_id, a.method, a.result, a.attempts
        from attempts a join services v on v.id = a.service_id and v.org_id = a.org_id
        where a.seen_by <> 'platform'
        union all
        select m.org_id, {PLATFORM}, a.method, a.result, a.attempts
        from attempts a
        join memberships m on m.user_id = a.user_id and m.confirmed_at <= a.created_at
        join organizations o on o.id = m.org_id
        where a.org_id is null and a.service_id is null
          and case
                when a.success then o.status in ('active', 'suspended')
                else a.seen_by = 'all' and o.approved_at is not null
                end
        union all
        select {PLATFORM}, {PLATFORM}, a.method, a.result, a.attempts from attempts a where a.seen_by <> 'organization')
    select org_id, 'hour', %(hour)s, service_id, method, result, sum(attempts) from seen group by org_id, service_id, method, result"""
SUM_SIGN_INS: Final = f"""
    insert into sign_in_figures (org_id, span, start, service_id, method, result, total)
    select org_id, 'day', %(day)s, service_id, method, result, sum(total) from sign_in_figures
    where span = 'hour' and start >= %(day)s and start < %(day_end)s and (result <> '{SUCCESS}' or org_id = {PLATFORM})
    group by org_id, service_id, method, result"""
# A user counts in the hour with their first sign-in that day, and in the hour with their first sign-in that week. So
# the sum over a day's hours has every user once, and no table has user ids. The earlier sign-ins are read by the user
# index, for at most a week. New are users who joined on this day: as a member, or at their first sign-in to an
# application. On the platform, users joined with their account.
#
# Keep the scalar subqueries: with a join or `not exists`, the planner may read all members, or all service users. Keep
# `materialized`: otherwise a search runs every time its result is used.
COUNT_USERS: Final = f"""
    insert into user_figures (org_id, span, start, active, first_of_day, first_of_week, new_users)
    with logins as materialized (
        select l.org_id, l.service_id, l.user_id, max(l.created_at) as created_at from login_events l
        where {OF_HOUR} and l.success group by l.org_id, l.service_id, l.user_id),
    seen as (
        select l.org_id, l.user_id from logins l join services v on v.id = l.service_id and v.org_id = l.org_id
        union
        select m.org_id, l.user_id
        from logins l
        join memberships m on m.user_id = l.user_id and m.confirmed_at <= l.created_at
        join organizations o on o.id = m.org_id and o.status in ('active', 'suspended')
        where l.service_id is null
        union
        select {PLATFORM}, l.user_id from logins l),
    members as materialized (
        select s.org_id, s.user_id, (
            select m.confirmed_at from memberships m where m.org_id = s.org_id and m.user_id = s.user_id) as confirmed_at
        from seen s),
    of_day as materialized (
        select s.*, not exists (
            select from login_events p
            where p.user_id = s.user_id and p.created_at >= %(day)s and p.created_at < %(hour)s and p.success
              and (s.org_id = {PLATFORM} or p.org_id = s.org_id or p.service_id is null and p.created_at >= s.confirmed_at)) as is_first
        from members s),
    of_week as materialized (
        select s.*, case when s.is_first then not exists (
            select from login_events p
            where p.user_id = s.user_id and p.created_at >= %(week)s and p.created_at < %(day)s and p.success
              and (s.org_id = {PLATFORM} or p.org_id = s.org_id or p.service_id is null and p.created_at >= s.confirmed_at))
            else false end as is_first_of_week
        from of_day s),
    firsts as (
        select s.org_id, s.is_first, s.is_first_of_week, case
            when not s.is_first_of_week then false
            when s.org_id = {PLATFORM} then (select u.created_at >= %(day)s from users u where u.id = s.user_id)
            else coalesce(least(s.confirmed_at, (
                select min(r.first_login_at) from service_users r where r.org_id = s.org_id and r.user_id = s.user_id)) >= %(day)s, true)
            end as is_new
        from of_week s)
    select org_id, 'hour', %(hour)s, count(*), count(*) filter (where is_first), count(*) filter (where is_first_of_week),
           count(*) filter (where is_new)
    from firsts group by org_id"""
SUM_USERS: Final = """
    insert into user_figures (org_id, span, start, active, first_of_day, first_of_week, new_users)
    select org_id, 'day', %(day)s, sum(first_of_day), sum(first_of_day), sum(first_of_week), sum(new_users) from user_figures
    where span = 'hour' and start >= %(day)s and start < %(day_end)s group by org_id"""
# The condition is evaluated once, before any member is read.
COUNT_POPULATIONS: Final = f"""
    insert into population_figures as p (org_id, day, counted_at, users, second_factor, passkeys, password_alone, organizations)
    select counted.org_id, %(day)s, %(now)s, counted.users, counted.second_factor, counted.passkeys, counted.password_alone,
           counted.organizations
    from (
        select m.org_id, count(*) as users, count(*) filter (where {HAS_SECOND_FACTOR}) as second_factor,
               count(*) filter (where {HAS_PASSKEY}) as passkeys, count(*) filter (where {PASSWORD_ALONE}) as password_alone,
               null::bigint as organizations
        from memberships m join users u on u.id = m.user_id where m.confirmed_at is not null group by m.org_id
        union all
        select {PLATFORM}, count(*), count(*) filter (where {HAS_SECOND_FACTOR}), count(*) filter (where {HAS_PASSKEY}),
               count(*) filter (where {PASSWORD_ALONE}), (select count(*) from organizations)
        from users u where u.deactivated_at is null and u.anonymized_at is null) counted
    where not exists (select from population_figures where org_id = {PLATFORM} and day = %(day)s and counted_at >= %(hour)s)
    on conflict (org_id, day) do update set
        counted_at = excluded.counted_at, users = excluded.users, second_factor = excluded.second_factor,
        passkeys = excluded.passkeys, password_alone = excluded.password_alone, organizations = excluded.organizations"""
# Traffic since the hour and the day that contain a time
RECENT_TRAFFIC: Final = "(span = 'hour' and start >= %(hour)s or span = 'day' and start >= %(day)s)"


def _old(table: LiteralString) -> LiteralString:
    return f"""
        delete from {table} where ctid = any(array(
            select ctid from {table} where span = 'hour' and start < %(hours_before)s or span = 'day' and start < %(days_before)s
            limit %(limit)s)) returning 1"""


REMOVE: Final = f"""
    with sign_ins as ({_old("sign_in_figures")}), users as ({_old("user_figures")}), traffic as ({_old("traffic_figures")}),
    populations as (
        delete from population_figures where ctid = any(array(
            select ctid from population_figures where day < (%(days_before)s at time zone 'UTC')::date limit %(limit)s)) returning 1)
    select (select count(*) from sign_ins) + (select count(*) from users) + (select count(*) from traffic)
         + (select count(*) from populations)"""


class FigureCounting(Repository):
    """Implements `ports.storage.applications.users.FigureCounting`."""

    async def next_hour(self, since: datetime, now: datetime) -> datetime:
        # Without sign-ins there is nothing to count, so the hours before the next sign-in are
        # skipped.
        sql = """
            select date_trunc('hour', least(%(now)s::timestamptz, (
                select l.created_at from login_events l
                where l.created_at >= greatest((select counted_until from figure_progress), %(since)s)
                order by l.created_at limit 1)), 'UTC')"""
        hour = await self._one(lambda row: row[0], sql, since=since, now=now)
        assert isinstance(hour, datetime), "the time of the call is never null"
        return hour

    async def count_hour(self, hour: datetime) -> None:
        await self._allow_statements_of(LONGEST)
        day = figures.start_of_day(hour)
        times = {"hour": hour, "end": hour + figures.HOUR, "day": day, "day_end": day + figures.DAY, "week": figures.start_of_week(hour)}
        for table, count, add_up in (
            ("sign_in_figures", COUNT_SIGN_INS, SUM_SIGN_INS),
            ("user_figures", COUNT_USERS, SUM_USERS),
        ):
            await self._replace(table, "hour", hour, count, times)
            await self._replace(table, "day", day, add_up, times)

    async def _replace(
        self, table: LiteralString, span: LiteralString, start: datetime, count: LiteralString, times: dict[str, datetime]
    ) -> None:
        await self._write(f"delete from {table} where span = '{span}' and start = %(start)s", start=start)
        await self._run(count, **times)

    async def mark_final(self, until: datetime) -> None:
        sql = """
            insert into figure_progress (counted_until) values (%(until)s)
            on conflict (is_only) do update set counted_until = excluded.counted_until"""
        await self._run(sql, until=until)

    async def sum_traffic(self, since: datetime) -> None:
        await self._allow_statements_of(LONGEST)
        times = {"hour": since, "day": figures.start_of_day(since)}
        await self._write(f"delete from traffic_figures where org_id = {PLATFORM} and {RECENT_TRAFFIC}", **times)
        sql = f"""
            insert into traffic_figures (org_id, kind, span, start, outcome, total, milliseconds, slowest)
            select {PLATFORM}, kind, span, start, outcome, sum(total), sum(milliseconds), max(slowest) from traffic_figures
            where org_id <> {PLATFORM} and {RECENT_TRAFFIC} group by kind, span, start, outcome"""
        await self._run(sql, **times)

    async def count_populations(self, now: datetime) -> None:
        await self._allow_statements_of(LONGEST)
        day = figures.start_of_day(now)
        await self._run(COUNT_POPULATIONS, day=day.date(), now=now, hour=figures.start_of_hour(now))

    async def remove(self, hours_before: datetime, days_before: datetime, limit: int) -> int:
        return await self._count(REMOVE, hours_before=hours_before, days_before=days_before, limit=limit)
