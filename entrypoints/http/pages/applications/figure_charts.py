"""The charts for figures: their titles, parts and labels."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from core.applications.model.figures import (
    SUCCESS,
    FigurePeriod,
    FigureSpan,
    Population,
    SignInFigures,
    TrafficFigures,
    UserFigures,
    start_of_week,
)
from entrypoints.http.base.rendering.labels import FAILURE_REASONS, label, sign_in_methods
from entrypoints.http.pages.stacked_charts import RANGE, Series, StackedChart, limit_series, sum_groups

MOST_BARS: Final = 31  # in charts with many parts; longer periods have a bar for every week
SUNDAY: Final = 6
RESULTS: Final = {**FAILURE_REASONS, SUCCESS: "Signed in"}
OUTCOMES: Final = {"delivered": "Delivered", "accepted": "Accepted", "refused": "Refused (4xx)", "failed": "Failed"}


def show_sign_ins(figures: SignInFigures, platform: str) -> list[StackedChart]:
    """Return the sign-ins by result, by application and by method. `platform` is this installation's name."""
    period, charts = figures.period, []
    labels, axis = bar_labels(period), axis_of(period)
    if figures.by_result is not None:
        charts.append(show_results(period, figures.by_result))
    if figures.by_application:
        applications = [
            Series(platform if each.is_platform else each.service_name or "All other applications", each.counts)
            for each in figures.by_application
        ]
        charts.append(StackedChart("by-application", "Sign-ins by application", labels, limit_series(applications), axis))
    methods = [Series(label(name, sign_in_methods()), counts) for name, counts in figures.by_method.items()]
    if methods:
        charts.append(StackedChart("by-method", "Sign-ins by method", labels, limit_series(methods), axis))
    if period.count <= MOST_BARS:
        return charts
    return [sum_groups(chart, _weeks(period), "Days (UTC)") for chart in charts]


def show_results(period: FigurePeriod, by_result: Mapping[str, Sequence[int]]) -> StackedChart:
    """Return the sign-ins by SUCCESS and failure reason."""
    success = Series(RESULTS[SUCCESS], by_result.get(SUCCESS) or [0] * period.count)
    failures = [Series(label(name, RESULTS), counts) for name, counts in by_result.items() if name != SUCCESS]
    note = "Successful sign-ins, and failed attempts by their reason."
    return StackedChart("by-result", "Sign-ins by result", bar_labels(period), limit_series([success, *failures]), axis_of(period), note)


def show_users(figures: UserFigures) -> list[StackedChart]:
    """Return the active users, also per week, and the second factors."""
    period = figures.period
    returning = [active - new for active, new in zip(figures.active, figures.new, strict=True)]
    word = "hour" if period.span is FigureSpan.HOUR else "day"
    charts = [
        StackedChart(
            "active",
            f"Active users by {word}",
            bar_labels(period),
            [Series("Returning users", returning), Series("New users", figures.new)],
            axis_of(period),
            f"A user who signs in counts once each {word}. New users joined on this day.",
            has_totals=False,
        ),
        StackedChart(
            "weekly",
            "Active users by week",
            [f"Week of {_day(week.monday)}" for week in figures.weeks],
            [Series("Active users", [week.active for week in figures.weeks])],
            "Week (UTC)",
            "Weeks begin on Monday. The last one is not over.",
            has_totals=False,
        ),
    ]
    if figures.populations is not None:
        days = figures.populations
        if len(days) > MOST_BARS:  # the state at the end of every week is enough
            days = [each for each in days[:-1] if each.day.weekday() == SUNDAY] + list(days[-1:])
        charts.append(_show_share(days, "second-factor", "Second factor", "a second factor", [each.second_factor for each in days]))
        charts.append(_show_share(days, "passkeys", "Passkeys", "a passkey", [each.passkeys for each in days]))
        if any(each.organizations for each in days):
            organizations = Series("Organizations", [each.organizations or 0 for each in days])
            labels = [_day(each.day) for each in days]
            charts.append(StackedChart("organizations", "Organizations", labels, [organizations], has_totals=False))
    return charts


def _show_share(days: Sequence[Population], name: str, title: str, thing: str, counts: Sequence[int]) -> StackedChart:
    """Return how many users have a thing on the given days."""
    users = [each.users for each in days]
    return StackedChart(
        name,
        title,
        [_day(each.day) for each in days],
        [
            Series(f"With {thing}", counts),
            Series(f"Without {thing}", [total - count for total, count in zip(users, counts, strict=True)]),
        ],
        note="Confirmed members, or for the platform all users. They are counted once an hour.",
        columns=[("Share", [f"{percent(count, total)}%" for total, count in zip(users, counts, strict=True)])],
        has_totals=False,
    )


def show_traffic(figures: TrafficFigures, title: str, note: str, *, timed: bool) -> list[StackedChart]:
    """Return the requests by outcome, and if they are `timed`, how long they took."""
    labels, axis = bar_labels(figures.period), axis_of(figures.period)
    series = [Series(OUTCOMES[outcome], counts) for outcome, counts in figures.outcomes.items()]
    charts = [StackedChart("by-outcome", title, labels, series, axis, note)]
    if timed:
        average = [Series("Average time", [each or 0 for each in figures.average])]
        slowest = [("Slowest attempt", ["" if each is None else f"{each:,} ms" for each in figures.slowest])]
        note = "The average time of an attempt, from the request to the answer."
        charts.append(StackedChart("time", "Response time", labels, average, axis, note, unit=" ms", columns=slowest, has_totals=False))
    return charts


def bar_labels(period: FigurePeriod) -> list[str]:
    """Return the labels for the hours or days."""
    if period.span is FigureSpan.HOUR:
        return [f"{_day(start)} {start:%H}:00" for start in period.starts]
    return [_day(start) for start in period.starts]


def axis_of(period: FigurePeriod) -> str:
    """Return the axis name: the unit that the labels have."""
    return "Hour (UTC)" if period.span is FigureSpan.HOUR else "Day (UTC)"


def percent(part: int, whole: int) -> int:
    return round(100 * part / whole) if whole else 0


def sum_of(counts: Mapping[str, Sequence[int]] | None, *names: str) -> int:
    """Return the sum of all numbers, or only with these names."""
    return sum(sum(of_name) for name, of_name in (counts or {}).items() if not names or name in names)


def _weeks(period: FigurePeriod) -> list[tuple[str, int]]:
    """Return a label and the number of days for every week in the period. The first and the last week can have fewer than seven days."""
    weeks: dict[datetime, list[datetime]] = {}
    for start in period.starts:
        weeks.setdefault(start_of_week(start), []).append(start)
    return [(f"{_day(days[0])}{RANGE}{_day(days[-1])}" if len(days) > 1 else _day(days[0]), len(days)) for days in weeks.values()]


def _day(day: datetime | object) -> str:
    if isinstance(day, datetime):
        day = day.astimezone(UTC)
    return f"{day:%-d %B}"
