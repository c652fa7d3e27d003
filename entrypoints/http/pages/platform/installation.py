"""The installation's pages: health, the doctor's findings, and the settings in force."""

from typing import Final

from quart import Blueprint, Response

from core.maintenance import health
from entrypoints.http import kit
from entrypoints.http.pages import console

routes = Blueprint("installation_pages", __name__)

HEALTH: Final = "/app/platform/health"


@routes.get(HEALTH)
@kit.platform_page
@console.shows("GET /api/platform/health", "GET /api/platform/health/checks")
async def show_health() -> Response:
    """Show the installation's state."""
    return await console.console_page("platform/health.html", state=await health.measure(kit.ports()))


@routes.get(f"{HEALTH}/checks")
@kit.platform_page
@console.shows("GET /api/platform/health/checks")
async def run_checks() -> Response:
    """Run the `gatehouse doctor` checks, and show their findings."""
    return await console.console_page("platform/checks.html", findings=await health.run_checks(kit.ports()))


@routes.get("/app/platform/settings")
@kit.platform_page
@console.shows("GET /api/platform/settings")
async def show_settings() -> Response:
    """Show the settings in force, without secrets."""
    return await console.console_page("platform/settings.html", settings=health.list_settings(kit.ports()))
