"""The installation's pages: health, the doctor's findings, and the settings in force."""

from typing import Final

from quart import Blueprint, Response

from core.maintenance import health
from entrypoints.http.base.context import ports
from entrypoints.http.edge.access import platform_page
from entrypoints.http.pages.console import console_page, shows

routes = Blueprint("installation_pages", __name__)

HEALTH: Final = "/app/platform/health"


@routes.get(HEALTH)
@platform_page
@shows("GET /api/platform/health", "GET /api/platform/health/checks")
async def show_health() -> Response:
    """Show the installation's state."""
    return await console_page("platform/health.html", state=await health.measure(ports()))


@routes.get(f"{HEALTH}/checks")
@platform_page
@shows("GET /api/platform/health/checks")
async def run_checks() -> Response:
    """Run the `gatehouse doctor` checks, and show their findings."""
    return await console_page("platform/checks.html", findings=await health.run_checks(ports()))


@routes.get("/app/platform/settings")
@platform_page
@shows("GET /api/platform/settings")
async def show_settings() -> Response:
    """Show the settings in force, without secrets."""
    return await console_page("platform/settings.html", settings=health.list_settings(ports()))
