"""The page for an application's claims: the form, its presets, and a test sign-in before and after the change."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from quart import Blueprint, Response

from core.applications import services
from core.authentication.model.claim_document import DIRECTORY_VALUES, LIST_CLAIMS, SOURCES, ClaimDocument, ClaimDocumentInvalid
from core.federation import claims
from core.federation.claims import ClaimsPreview
from core.kernel.errors import Refusal
from core.kernel.roles import Capability
from core.tenancy import attributes
from entrypoints.http.api.applications.claims import CLAIMS, to_response
from entrypoints.http.base.context import acting_member, app_context, ports
from entrypoints.http.edge.access import GIVES, SHOWS_PEOPLE, member_page
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.pages.applications.applications import APPLICATION, application_path, application_values
from entrypoints.http.pages.applications.claim_forms import (
    ACCESS,
    FIELDS,
    LABELS,
    PREFIX,
    PRESETS,
    USER_NAMES,
    VALUES,
    WHICH,
    changed_claims,
    find_preset,
    to_document,
    to_facts,
    to_typed,
)
from entrypoints.http.pages.console import console_page, organization_path, redirect_with_notice, show_document
from entrypoints.http.pages.console_forms import Form, accepts, answers_with, on_refusal, serves_form
from entrypoints.http.pages.form_values import FieldInvalid, to_version
from entrypoints.http.pages.presets import PresetQuery

routes = Blueprint("claims_pages", __name__)

PAGE: Final = f"{APPLICATION}/claims"
TEMPLATE: Final = "applications/claims.html"


async def _values(
    form: Form, service_slug: str, preview: ClaimsPreview | None = None, query_args: PresetQuery | None = None
) -> dict[str, Any]:
    service = await services.find(ports(), acting_member(), service_slug)
    stored = await claims.get(ports(), acting_member(), service_slug)
    declared = await attributes.list_declared(ports(), acting_member())
    show_document(to_response(stored))
    chosen = find_preset(query_args.preset if query_args else None)
    typed = to_typed(ClaimDocument.read(stored.document), stored.version)
    return {
        **application_values(service),
        "typed": {"version": str(stored.version), **form} if form else chosen.fill_in(typed) if chosen else typed,
        "version": str(stored.version),
        "facts": to_facts(typed),
        "is_stale": not ClaimDocument.is_valid(stored.document),
        "changed_at": stored.changed_at,
        "labels": LABELS,
        "lists": LIST_CLAIMS,
        "prefix": PREFIX,
        "access": ACCESS,
        "user_names": USER_NAMES,
        "which": WHICH,
        "group_values": VALUES,
        "sources": [*SOURCES, *(f"attribute:{each.name}" for each in declared), *(f"directory:{name}" for name in DIRECTORY_VALUES)],
        "attributes_path": organization_path("/attributes"),
        "presets": PRESETS,
        "preset": chosen,
        "preview": preview,
        "changes": None if preview is None else changed_claims(preview.before, preview.after),
    }


@contextmanager
def _naming_fields() -> Iterator[None]:
    """Name the form field that a refused member stands in."""
    try:
        yield
    except ClaimDocumentInvalid as invalid:
        raise FieldInvalid(invalid.problem, FIELDS.get(invalid.member, "values")) from None


def _wrong(refusal: Refusal, _: Form) -> str | None:
    return refusal.field if isinstance(refusal, FieldInvalid) else None


@serves_form(
    routes,
    PAGE,
    f"GET {CLAIMS}",
    f"PUT {CLAIMS}",
    f"DELETE {CLAIMS}",
    f"POST {CLAIMS}/preview",
    opens=member_page(Capability.SERVICES_VIEW),
    query=PresetQuery,
)
@member_page(Capability.SERVICES_MANAGE, GIVES)
@accepts(f"PUT {CLAIMS}")
@refuses(409)
@on_refusal(TEMPLATE, _values, _wrong)
async def save_claims(org_slug: str, service_slug: str, form: Form) -> Response:
    """Save an application's claims."""
    with _naming_fields():
        await claims.save(ports(), acting_member(), service_slug, to_document(form), to_version(form) or 0)
    return redirect_with_notice("claims-saved", f"{application_path(service_slug)}/claims")


@routes.post(f"{PAGE}/preview")
@member_page(Capability.SERVICES_MANAGE, SHOWS_PEOPLE)
@accepts(f"POST {CLAIMS}/preview", answers=answers_with("The form, and the claims that the change adds or takes away."))
@on_refusal(TEMPLATE, _values, _wrong)
async def preview_claims(org_slug: str, service_slug: str, form: Form) -> Response:
    """Preview the claims in a test sign-in before and after the change. Nothing is saved."""
    with _naming_fields():
        preview = await claims.preview(ports(), app_context().base_url, acting_member(), service_slug, to_document(form))
    return await console_page(TEMPLATE, **await _values(form, service_slug, preview))


@routes.post(f"{PAGE}/remove")
@member_page(Capability.SERVICES_MANAGE, GIVES)
@accepts(f"DELETE {CLAIMS}")
async def remove_claims(org_slug: str, service_slug: str) -> Response:
    """Remove an application's claims. It gets the standard claims again."""
    await claims.remove(ports(), acting_member(), service_slug)
    return redirect_with_notice("claims-removed", f"{application_path(service_slug)}/claims")
