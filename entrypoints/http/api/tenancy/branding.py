"""The API for an organization's branding."""

from typing import Annotated

from pydantic import Field, WithJsonSchema
from quart import Blueprint

from core.kernel.rate_limits import IMAGE_UPLOAD
from core.kernel.roles import Capability
from core.tenancy import branding
from core.tenancy.model.settings import MAX_LOGO_URL
from entrypoints.http import kit

routes = Blueprint("branding", __name__)

Logo = Annotated[kit.Text, WithJsonSchema({"type": "string", "format": "uri", "maxLength": MAX_LOGO_URL})]
Color = Annotated[kit.Text, WithJsonSchema({"type": "string", "pattern": "^#[0-9A-Fa-f]{6}$"})]


class BrandingResponse(kit.ResponseModel):
    """The branding for an organization's emails and pages. null means that the organization has not chosen a value."""

    logo_url: str | None = Field(description="The URL of the logo.")
    primary_color: str | None = Field(description="The color of buttons and links, as `#rrggbb` in lower case.")
    product_name: str | None = Field(description="The name that emails and pages show instead of the organization's name.")


@routes.get("/api/organizations/<org_slug>/branding")
@kit.member(Capability.ORGANIZATION_VIEW)
async def get_branding(org_slug: str) -> BrandingResponse:
    """Get the organization's branding.

    Branding is the name, logo and color in the organization's emails and on the pages that they link to.
    """
    return BrandingResponse.of(await branding.get_settings(kit.ports(), kit.acting()))


class BrandingUpdateRequest(kit.RequestModel):
    """The changes to the branding. At least one field is required. null removes a value."""

    model_config = kit.AT_LEAST_ONE_FIELD

    logo_url: Logo | None = kit.optional(
        description="The URL of the logo: absolute, ASCII, https (http only for localhost), without a user name or a fragment."
    )
    primary_color: Color | None = kit.optional(
        description="The color of buttons and links. Emails and pages adjust it where text would be hard to read.", examples=["#0b5d66"]
    )
    product_name: kit.Name | None = kit.optional(description="The name that emails and pages show instead of the organization's name.")


@routes.patch("/api/organizations/<org_slug>/branding")
@kit.member(Capability.ORGANIZATION_MANAGE, kit.CHANGES)
async def update(org_slug: str, data: BrandingUpdateRequest) -> BrandingResponse:
    """Change the organization's branding.

    Fields that you leave out keep their value. Returns the branding after the change.
    """
    settings = await branding.update(
        kit.ports(), kit.acting(), logo_url=data.logo_url, primary_color=data.primary_color, product_name=data.product_name
    )
    return BrandingResponse.of(settings)


@routes.put("/api/organizations/<org_slug>/branding/logo")
@kit.member(Capability.ORGANIZATION_MANAGE, kit.CHANGES, limit=IMAGE_UPLOAD)
@kit.takes_image
async def set_logo(org_slug: str) -> BrandingResponse:
    """Upload the organization's logo.

    The body is a PNG, JPEG or WebP file with at most 200 KB and 4,000,000 pixels. It is kept as PNG with at most 64 and 256 pixels, without
    anything else that the file contains. Its URL becomes the branding's `logo_url`.
    """
    return BrandingResponse.of(await branding.set_logo(kit.ports(), kit.acting(), *await kit.read_image()))


@routes.delete("/api/organizations/<org_slug>/branding/logo")
@kit.member(Capability.ORGANIZATION_MANAGE, kit.CHANGES)
@kit.describes({204: "The branding has no logo."})
async def remove_logo(org_slug: str) -> None:
    """Remove the organization's logo.

    It does not matter whether it was uploaded or is a URL.
    """
    await branding.update(kit.ports(), kit.acting(), logo_url=None)
