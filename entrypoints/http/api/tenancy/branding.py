"""Name, logo and colour of an organization (decisions, point 209)."""

from typing import Annotated

from pydantic import WithJsonSchema
from quart import Blueprint
from quart_schema import validate_request, validate_response

from core.kernel.principals import Capability
from core.tenancy import branding
from core.tenancy.branding_rules import MAX_LOGO_URL, BrandingSettings
from entrypoints.http.edge.access import member
from entrypoints.http.edge.bodies import Name, RequestModel, ResponseModel, Text, maybe
from entrypoints.http.edge.context import acting_member, ports

routes = Blueprint("branding", __name__)

Logo = Annotated[Text, WithJsonSchema({"type": "string", "format": "uri", "maxLength": MAX_LOGO_URL})]
Color = Annotated[Text, WithJsonSchema({"type": "string", "pattern": "^#[0-9A-Fa-f]{6}$"})]


class BrandingShown(ResponseModel):
    """How mails and pages of the organization look; null where it has chosen nothing."""

    logo_url: str | None
    primary_color: str | None
    product_name: str | None


def _show(chosen: BrandingSettings) -> BrandingShown:
    return BrandingShown(logo_url=chosen.logo_url, primary_color=chosen.primary_color, product_name=chosen.product_name)


@routes.get("/api/organizations/<org_slug>/branding")
@member(Capability.ORGANIZATION_VIEW)
@validate_response(BrandingShown)
async def current(org_slug: str) -> BrandingShown:
    """Name, logo and colour that mails and pages of the organization have."""
    return _show(await branding.get_settings(ports(), acting_member()))


class BrandingChange(RequestModel):
    """What to change, at least one of them; null removes it. The logo is an absolute https address, the colour `#rrggbb`."""

    logo_url: Logo | None = maybe()
    primary_color: Color | None = maybe()
    product_name: Name | None = maybe()


@routes.patch("/api/organizations/<org_slug>/branding")
@member(Capability.ORGANIZATION_MANAGE)
@validate_request(BrandingChange)
@validate_response(BrandingShown)
async def update(org_slug: str, data: BrandingChange) -> BrandingShown:
    """Change name, logo and colour of the organization's mails and pages."""
    changed = await branding.update(
        ports(), acting_member(), logo_url=data.logo_url, primary_color=data.primary_color, product_name=data.product_name
    )
    return _show(changed)
