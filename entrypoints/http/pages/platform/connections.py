"""The pages for the platform's identity providers."""

from typing import Any, Final

from quart import Blueprint, Response

from core.authentication import connections
from core.kernel.rate_limits import IMAGE_UPLOAD
from entrypoints.http import kit
from entrypoints.http.pages import console, console_forms

routes = Blueprint("connection_pages", __name__)

LIST: Final = "/app/platform/connections"
ONE: Final = f"{LIST}/<provider>"
API: Final = "/api/platform/connections"
LOGO: Final = f"{API}/<provider>/logo"


@routes.get(LIST)
@kit.platform_page
@console.shows(f"GET {API}")
async def show_connections() -> Response:
    """List the platform's identity providers."""
    return await console.console_page("platform/connections.html", connections=await connections.list_all(kit.ports()), path=LIST)


async def _values(_: console_forms.Form, provider: str) -> dict[str, Any]:
    confirmation = console.confirmation_path(f"{LIST}/{provider}")
    return {"connection": await connections.find(kit.ports(), provider), "path": LIST, "confirmation": confirmation}


@routes.get(ONE)
@kit.platform_page
@console.shows(f"GET {API}", f"PUT {LOGO}", f"DELETE {LOGO}")
async def show_connection(provider: str) -> Response:
    """Show a platform identity provider, with its logo."""
    return await console.console_page("platform/connection.html", **await _values({}, provider))


@routes.post(f"{ONE}/logo")
@kit.platform_page(kit.CHANGES, limit=IMAGE_UPLOAD)
@console_forms.accepts_image(f"PUT {LOGO}", "platform/connection.html", _values)
async def upload_logo(provider: str, form: console_forms.Form) -> Response:
    """Upload an identity provider's logo. The provider's buttons show it."""
    await connections.set_logo(kit.ports(), kit.signed_in(), provider, kit.uploaded_file())
    return console.redirect_with_notice("logo-saved", f"{LIST}/{provider}")


@routes.post(f"{ONE}/logo/remove")
@kit.platform_page(kit.CHANGES)
@console_forms.accepts(f"DELETE {LOGO}")
async def remove_logo(provider: str) -> Response:
    """Remove an identity provider's logo."""
    await connections.remove_logo(kit.ports(), kit.signed_in(), provider)
    return console.redirect_with_notice("logo-removed", f"{LIST}/{provider}")
