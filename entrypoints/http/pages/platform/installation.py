"""The installation's pages: health, the doctor's findings, the settings in force, and the platform's identity providers."""

from typing import Any, Final

from quart import Blueprint, Response

from core.authentication import connections
from core.kernel.rate_limits import IMAGE_UPLOAD
from core.maintenance import health
from entrypoints.http import kit
from entrypoints.http.pages import console, console_forms

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


CONNECTIONS: Final = "/app/platform/connections"
CONNECTION: Final = f"{CONNECTIONS}/<provider>"
CONNECTIONS_API: Final = "/api/platform/connections"
LOGO: Final = f"{CONNECTIONS_API}/<provider>/logo"


@routes.get(CONNECTIONS)
@kit.platform_page
@console.shows(f"GET {CONNECTIONS_API}")
async def show_connections() -> Response:
    """List the platform's identity providers."""
    return await console.console_page("platform/connections.html", connections=await connections.list_all(kit.ports()), path=CONNECTIONS)


async def _connection_values(_: console_forms.Form, provider: str) -> dict[str, Any]:
    confirmation = console.confirmation_path(f"{CONNECTIONS}/{provider}")
    return {"connection": await connections.find(kit.ports(), provider), "path": CONNECTIONS, "confirmation": confirmation}


@routes.get(CONNECTION)
@kit.platform_page
@console.shows(f"GET {CONNECTIONS_API}", f"PUT {LOGO}", f"DELETE {LOGO}")
async def show_connection(provider: str) -> Response:
    """Show a platform identity provider, with its logo."""
    return await console.console_page("platform/connection.html", **await _connection_values({}, provider))


@routes.post(f"{CONNECTION}/logo")
@kit.platform_page(kit.CHANGES, limit=IMAGE_UPLOAD)
@console_forms.accepts_image(f"PUT {LOGO}", "platform/connection.html", _connection_values)
async def upload_logo(provider: str, form: console_forms.Form) -> Response:
    """Upload an identity provider's logo. The provider's buttons show it."""
    await connections.set_logo(kit.ports(), kit.signed_in(), provider, kit.uploaded_file())
    return console.redirect_with_notice("logo-saved", f"{CONNECTIONS}/{provider}")


@routes.post(f"{CONNECTION}/logo/remove")
@kit.platform_page(kit.CHANGES)
@console_forms.accepts(f"DELETE {LOGO}")
async def remove_logo(provider: str) -> Response:
    """Remove an identity provider's logo."""
    await connections.remove_logo(kit.ports(), kit.signed_in(), provider)
    return console.redirect_with_notice("logo-removed", f"{CONNECTIONS}/{provider}")
