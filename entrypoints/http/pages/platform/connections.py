"""The pages for the platform's identity providers."""

from typing import Any, Final

from quart import Blueprint, Response

from core.authentication import connections
from core.kernel.rate_limits import IMAGE_UPLOAD
from entrypoints.http.base.context import ports, signed_in
from entrypoints.http.edge.access import CHANGES, platform_page
from entrypoints.http.edge.forms import uploaded_file
from entrypoints.http.pages.console import confirmation_path, console_page, redirect_with_notice, shows
from entrypoints.http.pages.console_forms import Form, accepts, accepts_image

routes = Blueprint("connection_pages", __name__)

LIST: Final = "/app/platform/connections"
ONE: Final = f"{LIST}/<provider>"
API: Final = "/api/platform/connections"
LOGO: Final = f"{API}/<provider>/logo"


@routes.get(LIST)
@platform_page
@shows(f"GET {API}")
async def show_connections() -> Response:
    """List the platform's identity providers."""
    return await console_page("platform/connections.html", connections=await connections.list_all(ports()), path=LIST)


async def _values(_: Form, provider: str) -> dict[str, Any]:
    confirmation = confirmation_path(f"{LIST}/{provider}")
    return {"connection": await connections.find(ports(), provider), "path": LIST, "confirmation": confirmation}


@routes.get(ONE)
@platform_page
@shows(f"GET {API}", f"PUT {LOGO}", f"DELETE {LOGO}")
async def show_connection(provider: str) -> Response:
    """Show a platform identity provider, with its logo."""
    return await console_page("platform/connection.html", **await _values({}, provider))


@routes.post(f"{ONE}/logo")
@platform_page(CHANGES, limit=IMAGE_UPLOAD)
@accepts_image(f"PUT {LOGO}", "platform/connection.html", _values)
async def upload_logo(provider: str, form: Form) -> Response:
    """Upload an identity provider's logo. The provider's buttons show it."""
    await connections.set_logo(ports(), signed_in(), provider, uploaded_file())
    return redirect_with_notice("logo-saved", f"{LIST}/{provider}")


@routes.post(f"{ONE}/logo/remove")
@platform_page(CHANGES)
@accepts(f"DELETE {LOGO}")
async def remove_logo(provider: str) -> Response:
    """Remove an identity provider's logo."""
    await connections.remove_logo(ports(), signed_in(), provider)
    return redirect_with_notice("logo-removed", f"{LIST}/{provider}")
