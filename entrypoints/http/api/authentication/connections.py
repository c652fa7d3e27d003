"""The platform's identity providers, for platform owners."""

from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import Field
from quart import Blueprint

from core.authentication import connections
from core.kernel.connections import PLATFORM_CONNECTIONS, ConnectionSlug
from core.kernel.rate_limits import IMAGE_UPLOAD
from core.kernel.roles import Capability
from entrypoints.http import kit

if TYPE_CHECKING:
    ProviderSlug = ConnectionSlug
else:  # the API description names the type, with its values
    ProviderSlug = StrEnum("Provider", {slug.upper(): slug for slug in PLATFORM_CONNECTIONS}, module=__name__)
    ProviderSlug.__doc__ = "An external identity provider."

routes = Blueprint("connections", __name__)


class ConnectionResponse(kit.ResponseModel):
    """A platform identity provider."""

    slug: str = Field(description="Its name in addresses and events.", examples=["websuite"])
    name: str = Field(description="The name that pages show.", examples=["Google"])
    logo_url: str | None = Field(description="The URL of the uploaded logo, or null.")


@routes.get("/api/platform/connections")
@kit.platform_owner(Capability.PLATFORM_INSTALLATION_VIEW)
async def list_connections() -> list[ConnectionResponse]:
    """List the platform's identity providers.

    The list also has identity providers that are not set up.
    """
    return ConnectionResponse.list_of(await connections.list_all(kit.ports()))


@routes.put("/api/platform/connections/<provider>/logo")
@kit.platform_owner(Capability.PLATFORM_OWN, kit.CHANGES, limit=IMAGE_UPLOAD)
@kit.takes_image
async def set_logo(provider: str) -> ConnectionResponse:
    """Upload an identity provider's logo.

    The body is a PNG, JPEG or WebP file with at most 200 KB and 4,000,000 pixels. It is kept as PNG with at most 64 and 256 pixels, without
    anything else that the file contains. The provider's buttons show it.
    """
    return ConnectionResponse.of(await connections.set_logo(kit.ports(), kit.acting_on_platform(), provider, *await kit.read_image()))


@routes.delete("/api/platform/connections/<provider>/logo")
@kit.platform_owner(Capability.PLATFORM_OWN, kit.CHANGES)
@kit.describes({204: "The provider has no logo."})
async def remove_logo(provider: str) -> None:
    """Remove an identity provider's logo.

    Nothing happens if it has none.
    """
    await connections.remove_logo(kit.ports(), kit.acting_on_platform(), provider)
