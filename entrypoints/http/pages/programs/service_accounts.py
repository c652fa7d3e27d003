"""The pages for an organization's service accounts: the list, an account with its settings, its credentials, and its API resources."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.kernel.access import require_view
from core.kernel.roles import Capability
from core.programs import api_resources, created_secrets, service_accounts
from core.programs.model.api_resources import OwnScopeUnknown
from core.programs.model.service_accounts import NoResourceScopes
from entrypoints.http.api.programs.service_accounts import AccountResourceRequest
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import BY_PEOPLE, member_page
from entrypoints.http.pages.console import console_page, redirect_with_notice, shows
from entrypoints.http.pages.console_forms import Fields, Form, accepts, on_refusal
from entrypoints.http.pages.form_values import checked, to_model
from entrypoints.http.pages.programs import service_account_views
from entrypoints.http.pages.programs.service_account_views import SCOPE, find, path_of, values_of

routes = Blueprint("service_account_pages", __name__)

LIST: Final = "/app/organizations/<org_slug>/service-accounts"
ONE: Final = f"{LIST}/<account_id>"
API: Final = "/api/organizations/<org_slug>/service-accounts"
API_OF_ONE: Final = f"{API}/<account_id>"
FIELDS: Final[Fields] = {NoResourceScopes: "scopes", OwnScopeUnknown: "scopes"}


service_account_views.declare(
    routes,
    LIST,
    API,
    member_page(Capability.SERVICE_ACCOUNTS_MANAGE),
    member_page(Capability.SERVICE_ACCOUNTS_MANAGE, BY_PEOPLE),
    f"POST {API_OF_ONE}/end",
)


@routes.post(f"{ONE}/end")
@member_page(Capability.SERVICE_ACCOUNTS_MANAGE, BY_PEOPLE)
@accepts(f"POST {API_OF_ONE}/end")
async def end(org_slug: str, account_id: UUID) -> Response:
    """End a service account now that goes on after its owner has left."""
    has_ended = await service_accounts.end_now(ports(), acting_member(), account_id)
    return redirect_with_notice("service-account-ended" if has_ended else "service-account-kept", path_of(account_id))


# API resources


async def _resource_values(_: Form, account_id: UUID, resource_id: UUID | None = None) -> dict[str, Any]:
    require_view(acting_member(), Capability.RESOURCES_VIEW)
    listed = await find(account_id)
    grants = await service_accounts.list_resources(ports(), acting_member(), listed.account.id)
    scopes = {grant.resource_id: grant.scopes for grant in grants}
    resources = await api_resources.list_resources(ports(), acting_member())
    return {**values_of(listed), "resources": resources, "granted": scopes}


@routes.get(f"{ONE}/api-resources")
@member_page(Capability.SERVICE_ACCOUNTS_MANAGE)
@shows(f"GET {API_OF_ONE}/api-resources", f"DELETE {API_OF_ONE}/api-resources/<resource_id>")
async def show_resources(org_slug: str, account_id: UUID) -> Response:
    """List the organization's API resources, with the scopes that a service account has there."""
    return await console_page("programs/service_account_resources.html", **await _resource_values({}, account_id))


@routes.post(f"{ONE}/api-resources/<resource_id>")
@member_page(Capability.SERVICE_ACCOUNTS_MANAGE, BY_PEOPLE)
@accepts(f"PUT {API_OF_ONE}/api-resources/<resource_id>")
@on_refusal("programs/service_account_resources.html", _resource_values, FIELDS)
async def save_resource(org_slug: str, account_id: UUID, resource_id: UUID, form: Form) -> Response:
    """Give a service account an API resource's checked scopes."""
    scopes = to_model(AccountResourceRequest, {}, {"scopes": lambda _: checked(form, SCOPE)}).scopes
    await service_accounts.save_resource(ports(), acting_member(), account_id, resource_id, scopes)
    return redirect_with_notice("resource-scopes-saved", path_of(account_id, "/api-resources"))


@routes.post(f"{ONE}/api-resources/<resource_id>/remove")
@member_page(Capability.SERVICE_ACCOUNTS_MANAGE, BY_PEOPLE)
@accepts(f"DELETE {API_OF_ONE}/api-resources/<resource_id>")
async def remove_resource(org_slug: str, account_id: UUID, resource_id: UUID) -> Response:
    """Take away an API resource's scopes."""
    await service_accounts.remove_resource(ports(), acting_member(), account_id, resource_id)
    return redirect_with_notice("resource-scopes-removed", path_of(account_id, "/api-resources"))


# Secrets that it created


@routes.get(f"{ONE}/created-secrets")
@member_page(Capability.ORGANIZATION_OWN)
@shows(f"GET {API_OF_ONE}/created-secrets", f"DELETE {API_OF_ONE}/created-secrets")
async def show_created_secrets(org_slug: str, account_id: UUID) -> Response:
    """List the API keys and SCIM tokens that a service account created. It may be deleted."""
    secrets = await created_secrets.list_created(ports(), acting_member(), account_id)
    return await console_page("programs/created_secrets.html", secrets=secrets, path=path_of(account_id), list_path=path_of())


@routes.post(f"{ONE}/created-secrets/end")
@member_page(Capability.ORGANIZATION_OWN, BY_PEOPLE)
@accepts(f"DELETE {API_OF_ONE}/created-secrets")
async def end_created_secrets(org_slug: str, account_id: UUID) -> Response:
    """End the API keys and SCIM tokens that a service account created."""
    ended = await created_secrets.end_created(ports(), acting_member(), account_id)
    return redirect_with_notice("created-secrets-ended", path_of(account_id, "/created-secrets"), count=len(ended))
