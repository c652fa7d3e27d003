"""The pages of the credentials of API resources."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.kernel.roles import Capability
from core.programs import api_resources, resource_credentials
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import GIVES, member_page
from entrypoints.http.pages.console import console_page, organization_path, redirect_with_notice, shows
from entrypoints.http.pages.console_forms import Form, accepts, on_refusal, once, ports_once
from entrypoints.http.pages.programs import credential_forms
from entrypoints.http.pages.programs.api_resources import API_OF_ONE, ONE, resource_values
from entrypoints.http.pages.programs.credential_forms import NewCredentialQuery

routes = Blueprint("resource_credential_pages", __name__)

CREDENTIALS: Final = f"{ONE}/credentials"
API: Final = f"{API_OF_ONE}/credentials"


async def _values(resource_id: UUID) -> dict[str, Any]:
    return resource_values(await api_resources.find(ports(), acting_member(), resource_id))


async def _form_values(form: Form, resource_id: UUID) -> dict[str, Any]:
    return {**await _values(resource_id), **credential_forms.typed_values(form)}


@routes.get(CREDENTIALS)
@member_page(Capability.RESOURCES_VIEW)
@shows(f"GET {API}", f"DELETE {API}/<credential_id>")
async def show_credentials(org_slug: str, resource_id: UUID) -> Response:
    """List the credentials of an API resource."""
    values = await _values(resource_id)
    credentials = await resource_credentials.list_credentials(ports(), acting_member(), resource_id)
    return await console_page("programs/api_resource_credentials.html", **values, **credential_forms.list_values(credentials))


@routes.get(f"{CREDENTIALS}/new")
@member_page(Capability.RESOURCES_MANAGE)
@shows(f"POST {API}")
async def show_form(org_slug: str, resource_id: UUID, query_args: NewCredentialQuery) -> Response:
    """Show the form that creates a credential of an API resource."""
    values = await _values(resource_id)
    return await console_page("programs/new_credential.html", **values, **credential_forms.form_values(query_args.kind, {}))


@routes.post(f"{CREDENTIALS}/new")
@member_page(Capability.RESOURCES_MANAGE, GIVES)
@accepts(f"POST {API}", answers=credential_forms.ANSWERS)
@once(CREDENTIALS, "Open credentials", credential_forms.SENT)
@on_refusal("programs/new_credential.html", _form_values, credential_forms.FIELDS)
async def create(org_slug: str, resource_id: UUID, form: Form) -> Response:
    """Create a credential of an API resource.

    A secret is shown only once.
    """
    request = credential_forms.read_credential(form)
    credential, secret = await resource_credentials.create(ports_once(), acting_member(), resource_id, request)
    return await credential_forms.created_page(credential, secret, organization_path(f"/api-resources/{resource_id}/credentials"))


@routes.post(f"{CREDENTIALS}/<credential_id>/revoke")
@member_page(Capability.RESOURCES_MANAGE, GIVES)
@accepts(f"DELETE {API}/<credential_id>")
async def revoke(org_slug: str, resource_id: UUID, credential_id: UUID) -> Response:
    """Revoke a credential of an API resource."""
    await resource_credentials.revoke(ports(), acting_member(), resource_id, credential_id)
    return redirect_with_notice("credential-revoked", organization_path(f"/api-resources/{resource_id}/credentials"))
