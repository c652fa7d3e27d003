"""The figures for charts: reading them, and the statement that counts requests as they are recorded (decision 450)."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.applications.analytics import TOTALS
from adapters.postgres.applications.services import LOGGED_NAME
from adapters.postgres.engine.statements import Repository
from core.applications.model.figures import (
    PLATFORM_ID,
    SUCCESS,
    WEEK,
    ApplicationSignIns,
    FigurePeriod,
    FigureSpan,
    Population,
    TrafficCount,
    TrafficKind,
    WeeklyUsers,
)

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
    """Implements `ports.storage.applications.figures.FiguresRead`."""

    async def by_result(self, org_id: UUID | None, period: FigurePeriod) -> dict[str, list[int]]:
        return await self._by("result", "", org_id, period)

    async def by_method(self, org_id: UUID | None, period: FigurePeriod) -> dict[str, list[int]]:
        return await self._by("method", f"where c.result = '{SUCCESS}'", org_id, period)

    async def _by(self, column: LiteralString, condition: LiteralString, org_id: UUID | None, period: FigurePeriod) -> dict[str, list[int]]:
        sql = f"""
            select c.{column}, c.start, sum(c.total)::bigint from ({_counted(org_id, period)}) c {condition}
            group by c.{column}, c.start having sum(c.total) > 0
            order by sum(sum(c.total)) over (partition by c.{column}) desc, c.{column}"""
        counts: dict[str, dict[datetime, int]] = {}
        for name, start, total in await self._rows(sql, **_parameters(org_id, period)):
            counts.setdefault(name, {})[start] = total
        return {name: period.spread(of_name) for name, of_name in counts.items()}

    async def by_application(self, org_id: UUID, period: FigurePeriod, most: int) -> list[ApplicationSignIns]:
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
            ApplicationSignIns(
                None if rank == 0 or service_id == PLATFORM_ID else service_id,
                name,
                period.spread(counts),
                is_platform=service_id == PLATFORM_ID,
            )
            for rank, (service_id, name, counts) in found.items()
        ]

    async def users(self, org_id: UUID | None, period: FigurePeriod) -> tuple[list[int], list[int]]:
        sql = """
            select start, active, new_users from user_figures where org_id = %(org_id)s and span = %(span)s and start >= %(since)s"""
        rows = await self._rows(sql, **_parameters(org_id, period))
        return period.spread({row[0]: row[1] for row in rows}), period.spread({row[0]: row[2] for row in rows})

    async def weekly_users(self, org_id: UUID | None, weeks: Sequence[datetime]) -> list[WeeklyUsers]:
        sql = """
            select date_trunc('week', start, 'UTC'), sum(first_of_week)::bigint from user_figures
            where org_id = %(org_id)s and span = 'day' and start >= %(first)s and start < %(end)s group by 1"""
        rows = await self._rows(sql, org_id=org_id or PLATFORM_ID, first=weeks[0], end=weeks[-1] + WEEK)
        counts = {row[0]: row[1] for row in rows}
        return [WeeklyUsers(week.date(), counts.get(week, 0)) for week in weeks]

    async def populations(self, org_id: UUID | None, since: date) -> list[Population]:
        sql = """
            select day, users, second_factor, passkeys, organizations from population_figures
            where org_id = %(org_id)s and day >= %(since)s order by day"""
        return await self._all(lambda row: Population(*row), sql, org_id=org_id or PLATFORM_ID, since=since)

    async def traffic(self, org_id: UUID | None, kind: TrafficKind, period: FigurePeriod) -> list[TrafficCount]:
        sql = """
            select start, outcome, total, milliseconds, slowest from traffic_figures
            where org_id = %(org_id)s and kind = %(kind)s and span = %(span)s and start >= %(since)s order by start, outcome"""
        return await self._all(lambda row: TrafficCount(*row), sql, kind=kind, **_parameters(org_id, period))


def _counted(org_id: UUID | None, period: FigurePeriod) -> LiteralString:
    by_totals = org_id is not None and period.span is FigureSpan.DAY
    return COUNTED_DAYS if by_totals else COUNTED


def _parameters(org_id: UUID | None, period: FigurePeriod) -> dict[str, object]:
    starts = period.starts
    return {
        "org_id": org_id or PLATFORM_ID,
        "span": period.span,
        "since": period.first,
        "first": starts[0].date(),
        "last": starts[-1].date(),
    }
