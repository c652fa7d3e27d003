"""The page of an organization's branding, with a preview of the sign-in page."""

from typing import Any, Final

from quart import Blueprint, Response

from core.kernel.roles import Capability
from core.mailing import samples
from core.tenancy import branding, organizations
from core.tenancy.model.settings import ColorInvalid, Design, LogoInvalid
from entrypoints.http.api.tenancy.branding import BrandingUpdateRequest
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.base.rendering.templates import email_page, page_response, render
from entrypoints.http.edge.access import member_page
from entrypoints.http.pages.console import console_page, organization_path, redirect_with_notice, shows
from entrypoints.http.pages.console_forms import Fields, Form, accepts, on_refusal
from entrypoints.http.pages.form_values import to_model, to_optional

routes = Blueprint("branding_pages", __name__)

PAGE: Final = "/app/organizations/<org_slug>/branding"
API: Final = "/api/organizations/<org_slug>/branding"
FIELDS: Final[Fields] = {LogoInvalid: "logo_url", ColorInvalid: "primary_color"}
NAMES: Final = ("product_name", "primary_color", "logo_url")


async def _values(typed: Form | None = None) -> dict[str, Any]:
    settings = await branding.get_settings(ports(), acting_member())
    stored = {name: getattr(settings, name) or "" for name in NAMES}
    return {"path": organization_path("/branding"), "typed": stored if typed is None else typed}


@routes.get(PAGE)
@member_page(Capability.ORGANIZATION_MANAGE)
@shows(f"PATCH {API}", f"GET {API}")
async def show_branding(org_slug: str) -> Response:
    """Show the branding of an organization."""
    return await console_page("tenancy/branding.html", **await _values())


@routes.post(PAGE)
@member_page(Capability.ORGANIZATION_MANAGE, outlives=False)
@accepts(f"PATCH {API}")
@on_refusal("tenancy/branding.html", _values, FIELDS)
async def change_branding(org_slug: str, form: Form) -> Response:
    """Change the branding of an organization. An empty field removes a value."""
    data = to_model(BrandingUpdateRequest, form, dict.fromkeys(NAMES, to_optional))
    await branding.update(
        ports(), acting_member(), logo_url=data.logo_url, primary_color=data.primary_color, product_name=data.product_name
    )
    return redirect_with_notice("branding-saved", organization_path("/branding"))


@routes.get(f"{PAGE}/email/preview")
@member_page(Capability.ORGANIZATION_MANAGE)
@shows(f"PATCH {API}", f"GET {API}")
async def show_email_preview(org_slug: str) -> Response:
    """Show an email of an organization as its users see it. Its link does not work."""
    design = await _design()
    return page_response(email_page(samples.compose_example(ports(), acting_member(), design), design))


async def _design() -> Design:
    organization = await organizations.get(ports(), acting_member())
    return Design(organization.name, await branding.get_settings(ports(), acting_member()))


@routes.get(f"{PAGE}/preview")
@member_page(Capability.ORGANIZATION_MANAGE)
@shows(f"PATCH {API}", f"GET {API}")
async def show_preview(org_slug: str) -> Response:
    """Show the sign-in page of an organization as its users see it. Its forms send nothing."""
    values: dict[str, Any] = {
        "form_token": "",
        "next": "",
        "email": "",
        "problem": None,
        "notice": "This is a preview. Its buttons do nothing.",
        "service": None,
        "providers": {},
        "needs_fresh_sign_in": False,
        "other_ways": [("Email me a code", "")] if ports().policy.email_sign_in else [],
        "is_unverified": False,
        "is_wrong": False,
        "flow": "/app",
        "offers_sign_up": False,
        "sign_up": "/app/sign-up",
        "forgot_password": "/app/forgot-password",
    }
    return page_response(render("tenancy/sign_in_preview.html", design=await _design(), **values))
