"""The page for an organization's branding, with a preview of the sign-in page."""

from typing import Any, Final

from quart import Blueprint, Response

from core.kernel.images import LARGE
from core.kernel.rate_limits import IMAGE_UPLOAD
from core.kernel.roles import Capability
from core.mailing import preparation
from core.tenancy import branding, organizations
from core.tenancy.model.settings import BrandingSettings, ColorInvalid, Design, LogoInvalid, derive_palette
from entrypoints.http import kit
from entrypoints.http.api.tenancy.branding import BrandingUpdateRequest
from entrypoints.http.base.rendering.templates import email_page
from entrypoints.http.pages import console, console_forms, form_values

routes = Blueprint("branding_pages", __name__)

PAGE: Final = "/app/organizations/<org_slug>/branding"
API: Final = "/api/organizations/<org_slug>/branding"
FIELDS: Final[console_forms.Fields] = {LogoInvalid: "logo_url", ColorInvalid: "primary_color"}
NAMES: Final = ("product_name", "primary_color", "logo_url")


async def _values(typed: console_forms.Form, preview: BrandingSettings | None = None) -> dict[str, Any]:
    """Return the page's values. The field for the logo does not show an uploaded logo's address."""
    settings = await branding.get_settings(kit.ports(), kit.acting_member())
    uploaded = kit.image_path(settings.logo_url, LARGE)
    stored = {name: getattr(settings, name) or "" for name in NAMES}
    if uploaded:
        stored["logo_url"] = ""
    design = await _design(preview or settings)
    return {
        "path": console.organization_path("/branding"),
        "typed": typed or stored,
        "uploaded": uploaded,
        "has_logo": settings.logo_url is not None,
        "confirmation": console.confirmation_path(console.organization_path("/branding")),
        "preview": design,
        "palette": design.color and derive_palette(design.color),
        "is_preview": preview is not None,
        "organization_name": design.organization_name,
        "image_origin": design.logo_origin,
    }


async def _changes(form: console_forms.Form) -> dict[str, Any]:
    """Return the form's changes. Without a URL, an uploaded logo stays."""
    data = form_values.to_model(BrandingUpdateRequest, form, dict.fromkeys(NAMES, form_values.to_optional))
    changes = {name: getattr(data, name) for name in NAMES}
    if data.logo_url is None and kit.image_path((await branding.get_settings(kit.ports(), kit.acting_member())).logo_url):
        del changes["logo_url"]
    return changes


@console_forms.serves_form(routes, PAGE, f"PATCH {API}", f"GET {API}", f"PUT {API}/logo", f"DELETE {API}/logo")
@kit.member_page(Capability.ORGANIZATION_MANAGE, kit.CHANGES)
@console_forms.accepts(f"PATCH {API}")
@console_forms.on_refusal("tenancy/branding.html", _values, FIELDS)
async def change_branding(org_slug: str, form: console_forms.Form) -> Response:
    """Change an organization's branding. An empty field removes a value."""
    await branding.update(kit.ports(), kit.acting_member(), **await _changes(form))
    return console.redirect_with_notice("branding-saved", console.organization_path("/branding"))


@routes.post(f"{PAGE}/preview")
@kit.member_page(Capability.ORGANIZATION_MANAGE, kit.SHOWS)
@console_forms.accepts(f"PATCH {API}", answers=console_forms.answers_with("The preview."), page=PAGE)
@console_forms.on_refusal("tenancy/branding.html", _values, FIELDS)
async def preview_branding(org_slug: str, form: console_forms.Form) -> Response:
    """Preview an organization's branding. Nothing is saved."""
    settings = await branding.preview(kit.ports(), kit.acting_member(), **await _changes(form))
    return await console.console_page("tenancy/branding.html", **await _values(form, settings))


async def _logo_values(_: console_forms.Form) -> dict[str, Any]:
    return await _values({})


@routes.post(f"{PAGE}/logo")
@kit.member_page(Capability.ORGANIZATION_MANAGE, kit.CHANGES, limit=IMAGE_UPLOAD)
@console_forms.accepts_image(f"PUT {API}/logo", "tenancy/branding.html", _logo_values)
async def upload_logo(org_slug: str, form: console_forms.Form) -> Response:
    """Upload an organization's logo."""
    await branding.set_logo(kit.ports(), kit.acting_member(), kit.uploaded_file())
    return console.redirect_with_notice("logo-saved", console.organization_path("/branding"))


@routes.post(f"{PAGE}/logo/remove")
@kit.member_page(Capability.ORGANIZATION_MANAGE, kit.CHANGES)
@console_forms.accepts(f"DELETE {API}/logo")
async def remove_logo(org_slug: str) -> Response:
    """Remove an organization's logo."""
    await branding.update(kit.ports(), kit.acting_member(), logo_url=None)
    return console.redirect_with_notice("logo-removed", console.organization_path("/branding"))


@routes.get(f"{PAGE}/email/preview")
@kit.member_page(Capability.ORGANIZATION_MANAGE)
@console.shows(f"PATCH {API}", f"GET {API}")
async def show_email_preview(org_slug: str) -> Response:
    """Show an organization's email as its users see it. Its link does not work."""
    design = await _design()
    return kit.page_response(email_page(preparation.compose_example(kit.ports(), kit.acting_member(), design), design))


async def _design(settings: BrandingSettings | None = None) -> Design:
    organization = await organizations.get(kit.ports(), kit.acting_member())
    return Design(organization.name, settings or await branding.get_settings(kit.ports(), kit.acting_member()))


@routes.get(f"{PAGE}/preview")
@kit.member_page(Capability.ORGANIZATION_MANAGE)
@console.shows(f"PATCH {API}", f"GET {API}")
async def show_preview(org_slug: str) -> Response:
    """Show an organization's sign-in page as its users see it. Its forms send nothing."""
    values: dict[str, Any] = {
        "form_token": "",
        "next": "",
        "email": "",
        "problem": None,
        "notice": "This is a preview. Its buttons do nothing.",
        "service": None,
        "service_logo": None,
        "providers": {},
        "accepts_password": True,
        "accepts_passkey": True,
        "is_folded": False,
        "address_first": False,
        "step_up": None,
        "requires_passkey": False,
        "requires_second": False,
        "folded_providers": {},
        "needs_fresh_sign_in": False,
        "other_ways": [("Email me a code", "")] if kit.ports().policy.email_sign_in else [],
        "passkey": {},  # the button without its ceremony
        "signals": None,
        "is_unverified": False,
        "is_wrong": False,
        "flow": "/app",
        "offers_sign_up": False,
        "sign_up": "/app/sign-up",
        "forgot_password": "/app/forgot-password",
    }
    return kit.page_response(kit.render("tenancy/sign_in_preview.html", design=await _design(), **values))
