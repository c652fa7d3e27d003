"""The analytics pages: sign-ins, users, webhooks and the directory, for an organization and for the platform (decision 450)."""

from collections.abc import Sequence
from typing import Final

from quart import Blueprint, Response

from core.applications import analytics, figures
from core.applications.model.figures import SUCCESS, FigureRange, SignInFigures, TrafficFigures, TrafficKind, UserFigures
from core.kernel.display import PRODUCT
from core.kernel.roles import Capability
from entrypoints.http.api.applications.figures import FigureQuery
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.base.rendering.labels import sign_in_methods
from entrypoints.http.edge.access import member_page, platform_page
from entrypoints.http.pages.applications.figure_charts import percent, show_sign_ins, show_traffic, show_users, sum_of
from entrypoints.http.pages.console import console_page, may, organization_path, shows
from entrypoints.http.pages.stacked_charts import StackedChart

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
    return await console_page(
        "applications/figures.html",
        ranges=RANGES,
        chosen=range_.value,
        charts=charts,
        tiles=tiles,
        is_empty=all(chart.is_empty for chart in charts),
        empty=empty,
        recent=recent,
        methods=sign_in_methods(),
    )


@routes.get(PAGE)
@member_page(Capability.ANALYTICS_VIEW)
@shows(f"{API}/sign-ins", f"{API}/recent-logins")
async def show_sign_in_figures(org_slug: str, query_args: FigureQuery) -> Response:
    """Show an organization's sign-ins by result, application and method."""
    loaded = await figures.load_sign_ins(ports(), acting_member(), query_args.range)
    recent = await analytics.list_recent_logins(ports(), acting_member(), RECENT).next_batch() if may(Capability.END_USERS_VIEW) else None
    empty = (
        "No sign-ins in this range. Connect an application, and sign in to it.",
        "Open applications",
        organization_path("/applications"),
    )
    return await _page(query_args.range, show_sign_ins(loaded, PRODUCT), _sign_in_tiles(loaded), empty, recent=recent)


@routes.get(f"{PAGE}/users")
@member_page(Capability.ANALYTICS_VIEW)
@shows(f"{API}/users")
async def show_user_figures(org_slug: str, query_args: FigureQuery) -> Response:
    """Show an organization's active users, and how many use second factors."""
    loaded = await figures.load_users(ports(), acting_member(), query_args.range)
    empty = (
        "No users in this range. Sign-ins are counted every few minutes. Connect an application, and sign in to it.",
        "Open applications",
        organization_path("/applications"),
    )
    return await _page(query_args.range, show_users(loaded), _user_tiles(loaded), empty)


@routes.get(f"{PAGE}/webhook-attempts")
@member_page(Capability.WEBHOOKS_MANAGE)
@shows(f"{API}/webhook-attempts")
async def show_webhook_figures(org_slug: str, query_args: FigureQuery) -> Response:
    """Show the attempts to deliver to an organization's webhooks."""
    loaded = await figures.load_traffic(ports(), acting_member(), TrafficKind.WEBHOOK, query_args.range)
    empty = (
        "No deliveries in this range. Create a webhook, and Gatehouse sends it the events that you choose.",
        "Open webhooks",
        organization_path("/webhooks"),
    )
    return await _page(query_args.range, _webhooks(loaded), _traffic_tiles(loaded, "Attempts"), empty)


@routes.get(f"{PAGE}/scim-requests")
@member_page(Capability.INTEGRATIONS_MANAGE)
@shows(f"{API}/scim-requests")
async def show_directory_figures(org_slug: str, query_args: FigureQuery) -> Response:
    """Show the SCIM requests from an organization's directory."""
    loaded = await figures.load_traffic(ports(), acting_member(), TrafficKind.SCIM, query_args.range)
    empty = (
        "No SCIM requests in this range. Connect your directory to provision users.",
        "Open directory",
        organization_path("/directory"),
    )
    return await _page(query_args.range, _directory(loaded), _traffic_tiles(loaded, "Requests"), empty)


@routes.get(PLATFORM_PAGE)
@platform_page
@shows(f"{PLATFORM_API}/sign-ins")
async def show_platform_sign_in_figures(query_args: FigureQuery) -> Response:
    """Show all sign-ins by result and method."""
    loaded = await figures.load_sign_ins(ports(), None, query_args.range)
    empty = ("No sign-ins in this range. They are counted every few minutes.", "Open sign-ins", "/app/platform/sign-ins")
    return await _page(query_args.range, show_sign_ins(loaded, PRODUCT), _sign_in_tiles(loaded), empty)


@routes.get(f"{PLATFORM_PAGE}/users")
@platform_page
@shows(f"{PLATFORM_API}/users")
async def show_platform_user_figures(query_args: FigureQuery) -> Response:
    """Show the installation's active users, second factors, and organizations."""
    loaded = await figures.load_users(ports(), None, query_args.range)
    empty = ("No users in this range. They are counted every few minutes.", "Open people", "/app/platform/people")
    return await _page(query_args.range, show_users(loaded), _user_tiles(loaded), empty)


@routes.get(f"{PLATFORM_PAGE}/webhook-attempts")
@platform_page
@shows(f"{PLATFORM_API}/webhook-attempts")
async def show_platform_webhook_figures(query_args: FigureQuery) -> Response:
    """Show the attempts to deliver to all organizations' webhooks."""
    loaded = await figures.load_traffic(ports(), None, TrafficKind.WEBHOOK, query_args.range)
    empty = ("No deliveries in this range. Organizations create webhooks.", "Open organizations", "/app/platform/organizations")
    return await _page(query_args.range, _webhooks(loaded), _traffic_tiles(loaded, "Attempts"), empty)


@routes.get(f"{PLATFORM_PAGE}/scim-requests")
@platform_page
@shows(f"{PLATFORM_API}/scim-requests")
async def show_platform_directory_figures(query_args: FigureQuery) -> Response:
    """Show the SCIM requests from all organizations' directories."""
    loaded = await figures.load_traffic(ports(), None, TrafficKind.SCIM, query_args.range)
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
