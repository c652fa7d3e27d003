"""The page that shows sign-ins over time: by day, by application, and by sign-in method."""

from typing import Final

from quart import Blueprint, Response

from core.applications import analytics
from core.applications.model.analytics import fill_days
from core.kernel.roles import Capability
from entrypoints.http.api.applications.analytics import DateRangeQuery
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.base.rendering.labels import label, sign_in_methods
from entrypoints.http.edge.access import member_page
from entrypoints.http.pages.charts import draw_days
from entrypoints.http.pages.console import console_page, may, shows

routes = Blueprint("analytics_pages", __name__)

API: Final = "GET /api/organizations/<org_slug>/analytics"
LONGEST_CHART: Final = 366  # days; a longer range has only its table
RECENT: Final = 10


@routes.get("/app/organizations/<org_slug>/analytics/days")
@member_page(Capability.ANALYTICS_VIEW)
@shows(f"{API}/login-trends", f"{API}/logins-by-service", f"{API}/logins-by-provider", f"{API}/recent-logins")
async def show_analytics(org_slug: str, query_args: DateRangeQuery) -> Response:
    """Show an organization's sign-ins in a range of days."""
    caller, range_ = acting_member(), query_args.date_range()
    counts = await analytics.count_by_day(ports(), caller, range_)
    methods = sign_in_methods()
    days = fill_days(counts, range_) if range_.length <= LONGEST_CHART else []
    return await console_page(
        "applications/analytics.html",
        range=range_,
        chart=draw_days("Sign-ins by day", days).to_svg("by-day") if days else None,
        total=sum(each.count for each in counts),
        days=sorted(((each.day, each.count) for each in counts), reverse=True)[:LONGEST_CHART],
        services=[(each.service_name, each.count) for each in await analytics.count_by_service(ports(), caller, range_)],
        providers=[(label(each.provider, methods), each.count) for each in await analytics.count_by_provider(ports(), caller, range_)],
        methods=methods,
        recent=await analytics.list_recent_logins(ports(), caller, RECENT).next_batch() if may(Capability.END_USERS_VIEW) else None,
    )
