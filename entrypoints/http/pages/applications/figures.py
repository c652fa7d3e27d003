"""The analytics pages: sign-ins, users, webhooks and the directory, for an organization and for the platform (decision 450)."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from quart import Blueprint, Response

from core.applications import analytics, figures
from core.applications.model.figures import (
    SUCCESS,
    FigurePeriod,
    FigureRange,
    FigureSpan,
    Population,
    SignInFigures,
    TrafficFigures,
    TrafficKind,
    UserFigures,
    start_of_week,
)
from core.kernel.display import PRODUCT
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.applications.figures import FigureQuery
from entrypoints.http.pages import console
from entrypoints.http.pages.charts import RANGE, Series, StackedChart, limit_series, sum_groups

routes = Blueprint("figure_pages", __name__)

PAGE: Final = "/app/organizations/<org_slug>/analytics"
PLATFORM_PAGE: Final = "/app/platform/analytics"
API: Final = "GET /api/organizations/<org_slug>/analytics"
PLATFORM_API: Final = "GET /api/platform/analytics"
RANGES: Final = [
    (FigureRange.DAY.value, "24 hours"),
    (FigureRange.WEEK.value, "7 days"),
    (FigureRange.MONTH.value, "30 days"),
    (FigureRange.QUARTER.value, "90 days"),
]
RECENT: Final = 10
Tile = tuple[str, str]  # a number and its label
Empty = tuple[str, str, str]  # the advice on an empty page, and its button: label and path


async def _page(
    range_: FigureRange, charts: Sequence[StackedChart], tiles: Sequence[Tile], empty: Empty, *, recent: object = None
) -> Response:
    return await console.console_page(
        "applications/figures.html",
        ranges=RANGES,
        chosen=range_.value,
        charts=charts,
        tiles=tiles,
        is_empty=all(chart.is_empty for chart in charts),
        empty=empty,
        recent=recent,
        methods=kit.sign_in_methods(),
    )


@routes.get(PAGE)
@kit.member_page(Capability.ANALYTICS_VIEW)
@console.shows(f"{API}/sign-ins", f"{API}/recent-logins")
async def show_sign_in_figures(org_slug: str, query_args: FigureQuery) -> Response:
    """Show an organization's sign-ins by result, application and method."""
    loaded = await figures.load_sign_ins(kit.ports(), kit.acting_member(), query_args.range)
    recent = (
        await analytics.list_recent_logins(kit.ports(), kit.acting_member(), RECENT).next_batch()
        if console.may(Capability.END_USERS_VIEW)
        else None
    )
    empty = (
        "No sign-ins in this range. Connect an application, and sign in to it.",
        "Open applications",
        console.organization_path("/applications"),
    )
    return await _page(query_args.range, show_sign_ins(loaded, PRODUCT), _sign_in_tiles(loaded), empty, recent=recent)


@routes.get(f"{PAGE}/users")
@kit.member_page(Capability.ANALYTICS_VIEW)
@console.shows(f"{API}/users")
async def show_user_figures(org_slug: str, query_args: FigureQuery) -> Response:
    """Show an organization's active users, and how many use second factors."""
    loaded = await figures.load_users(kit.ports(), kit.acting_member(), query_args.range)
    empty = (
        "No users in this range. Sign-ins are counted every few minutes. Connect an application, and sign in to it.",
        "Open applications",
        console.organization_path("/applications"),
    )
    return await _page(query_args.range, show_users(loaded), _user_tiles(loaded), empty)


@routes.get(f"{PAGE}/webhook-attempts")
@kit.member_page(Capability.WEBHOOKS_MANAGE)
@console.shows(f"{API}/webhook-attempts")
async def show_webhook_figures(org_slug: str, query_args: FigureQuery) -> Response:
    """Show the attempts to deliver to an organization's webhooks."""
    loaded = await figures.load_traffic(kit.ports(), kit.acting_member(), TrafficKind.WEBHOOK, query_args.range)
    empty = (
        "No deliveries in this range. Create a webhook, and Gatehouse sends it the events that you choose.",
        "Open webhooks",
        console.organization_path("/webhooks"),
    )
    return await _page(query_args.range, _webhooks(loaded), _traffic_tiles(loaded, "Attempts"), empty)


@routes.get(f"{PAGE}/scim-requests")
@kit.member_page(Capability.INTEGRATIONS_MANAGE)
@console.shows(f"{API}/scim-requests")
async def show_directory_figures(org_slug: str, query_args: FigureQuery) -> Response:
    """Show the SCIM requests from an organization's directory."""
    loaded = await figures.load_traffic(kit.ports(), kit.acting_member(), TrafficKind.SCIM, query_args.range)
    empty = (
        "No SCIM requests in this range. Connect your directory to provision users.",
        "Open directory",
        console.organization_path("/directory"),
    )
    return await _page(query_args.range, _directory(loaded), _traffic_tiles(loaded, "Requests"), empty)


@routes.get(PLATFORM_PAGE)
@kit.platform_page
@console.shows(f"{PLATFORM_API}/sign-ins")
async def show_platform_sign_in_figures(query_args: FigureQuery) -> Response:
    """Show all sign-ins by result and method."""
    loaded = await figures.load_sign_ins(kit.ports(), None, query_args.range)
    empty = ("No sign-ins in this range. They are counted every few minutes.", "Open sign-ins", "/app/platform/sign-ins")
    return await _page(query_args.range, show_sign_ins(loaded, PRODUCT), _sign_in_tiles(loaded), empty)


@routes.get(f"{PLATFORM_PAGE}/users")
@kit.platform_page
@console.shows(f"{PLATFORM_API}/users")
async def show_platform_user_figures(query_args: FigureQuery) -> Response:
    """Show the installation's active users, second factors, and organizations."""
    loaded = await figures.load_users(kit.ports(), None, query_args.range)
    empty = ("No users in this range. They are counted every few minutes.", "Open people", "/app/platform/people")
    return await _page(query_args.range, show_users(loaded), _user_tiles(loaded), empty)


@routes.get(f"{PLATFORM_PAGE}/webhook-attempts")
@kit.platform_page
@console.shows(f"{PLATFORM_API}/webhook-attempts")
async def show_platform_webhook_figures(query_args: FigureQuery) -> Response:
    """Show the attempts to deliver to all organizations' webhooks."""
    loaded = await figures.load_traffic(kit.ports(), None, TrafficKind.WEBHOOK, query_args.range)
    empty = ("No deliveries in this range. Organizations create webhooks.", "Open organizations", "/app/platform/organizations")
    return await _page(query_args.range, _webhooks(loaded), _traffic_tiles(loaded, "Attempts"), empty)


@routes.get(f"{PLATFORM_PAGE}/scim-requests")
@kit.platform_page
@console.shows(f"{PLATFORM_API}/scim-requests")
async def show_platform_directory_figures(query_args: FigureQuery) -> Response:
    """Show the SCIM requests from all organizations' directories."""
    loaded = await figures.load_traffic(kit.ports(), None, TrafficKind.SCIM, query_args.range)
    empty = (
        "No SCIM requests in this range. Organizations send them.",
        "Open organizations",
        "/app/platform/organizations",
    )
    return await _page(query_args.range, _directory(loaded), _traffic_tiles(loaded, "Requests"), empty)


def _webhooks(loaded: TrafficFigures) -> list[StackedChart]:
    return show_traffic(
        loaded, "Webhook attempts by outcome", "An event that is not accepted is sent again. Each attempt counts.", timed=True
    )


def _directory(loaded: TrafficFigures) -> list[StackedChart]:
    return show_traffic(loaded, "SCIM requests by outcome", "Refused are requests that your directory should change.", timed=False)


def _sign_in_tiles(loaded: SignInFigures) -> list[Tile]:
    tiles = [(f"{sum_of(loaded.by_method):,}", "Sign-ins")]
    if loaded.by_result is not None:
        tiles.append((f"{sum_of(loaded.by_result) - sum_of(loaded.by_result, SUCCESS):,}", "Failed attempts"))
    return tiles


def _user_tiles(loaded: UserFigures) -> list[Tile]:
    tiles = [(f"{loaded.weeks[-1].active:,}", "Active this week"), (f"{sum(loaded.new):,}", "New in this range")]
    if loaded.populations:
        last = loaded.populations[-1]
        tiles.append((f"{percent(last.second_factor, last.users)}%", f"of {last.users:,} have a second factor"))
        if last.passkeys is not None:
            tiles.append((f"{percent(last.passkeys, last.users)}%", "have a passkey"))
        tiles.append((f"{percent(last.password_alone, last.users)}%", "sign in with a password alone"))
        if last.organizations is not None:
            tiles.append((f"{last.organizations:,}", "Organizations"))
    return tiles


def _traffic_tiles(loaded: TrafficFigures, things: str) -> list[Tile]:
    total, failed = sum_of(loaded.outcomes), sum_of(loaded.outcomes, "failed", "refused")
    return [
        (f"{total:,}", things),
        (f"{failed:,}", "Failed or refused"),
        (f"{percent(total - failed, total)}%", "Success rate"),
    ]


MOST_BARS: Final = 31  # in charts with many parts; longer periods have a bar for every week
SUNDAY: Final = 6
RESULTS: Final = {**kit.FAILURE_REASONS, SUCCESS: "Signed in"}
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
    methods = [Series(kit.label(name, kit.sign_in_methods()), counts) for name, counts in figures.by_method.items()]
    if methods:
        charts.append(StackedChart("by-method", "Sign-ins by method", labels, limit_series(methods), axis))
    if period.count <= MOST_BARS:
        return charts
    return [sum_groups(chart, _weeks(period), "Days (UTC)") for chart in charts]


def show_results(period: FigurePeriod, by_result: Mapping[str, Sequence[int]]) -> StackedChart:
    """Return the sign-ins by SUCCESS and failure reason."""
    success = Series(RESULTS[SUCCESS], by_result.get(SUCCESS) or [0] * period.count)
    failures = [Series(kit.label(name, RESULTS), counts) for name, counts in by_result.items() if name != SUCCESS]
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
        alone = [each.password_alone for each in days]
        charts.append(_show_share(days, "password-alone", "Password alone", "a password that signs in alone", alone))
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
