"""The pages for an organization's service accounts: the list, an account with its settings, its credentials, and its API resources."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.kernel.access import require_view
from core.kernel.roles import Capability
from core.programs import api_resources, service_accounts
from core.programs.model.api_resources import OwnScopeUnknown
from core.programs.model.service_accounts import NoResourceScopes
from entrypoints.http import kit
from entrypoints.http.api.programs.service_accounts import AccountResourceRequest
from entrypoints.http.pages import console, console_forms, form_values
from entrypoints.http.pages.programs import service_account_views

routes = Blueprint("service_account_pages", __name__)

LIST: Final = "/app/organizations/<org_slug>/service-accounts"
ONE: Final = f"{LIST}/<account_id>"
API: Final = "/api/organizations/<org_slug>/service-accounts"
API_OF_ONE: Final = f"{API}/<account_id>"
FIELDS: Final[console_forms.Fields] = {NoResourceScopes: "scopes", OwnScopeUnknown: "scopes"}


service_account_views.declare(
    routes,
    LIST,
    API,
    kit.member_page(Capability.SERVICE_ACCOUNTS_MANAGE),
    kit.member_page(Capability.SERVICE_ACCOUNTS_MANAGE, kit.BY_PEOPLE),
    f"POST {API_OF_ONE}/end",
)


@routes.post(f"{ONE}/end")
@kit.member_page(Capability.SERVICE_ACCOUNTS_MANAGE, kit.BY_PEOPLE)
@console_forms.accepts(f"POST {API_OF_ONE}/end")
async def end(org_slug: str, account_id: UUID) -> Response:
    """End a service account now that goes on after its owner has left."""
    has_ended = await service_accounts.end_now(kit.ports(), kit.acting_member(), account_id)
    return console.redirect_with_notice(
        "service-account-ended" if has_ended else "service-account-kept", service_account_views.path_of(account_id)
    )


# API resources


async def _resource_values(_: console_forms.Form, account_id: UUID, resource_id: UUID | None = None) -> dict[str, Any]:
    require_view(kit.acting_member(), Capability.RESOURCES_VIEW)
    listed = await service_account_views.find(account_id)
    grants = await service_accounts.list_resources(kit.ports(), kit.acting_member(), listed.account.id)
    scopes = {grant.resource_id: grant.scopes for grant in grants}
    resources = await api_resources.list_resources(kit.ports(), kit.acting_member())
    return {**service_account_views.values_of(listed), "resources": resources, "granted": scopes}


@routes.get(f"{ONE}/api-resources")
@kit.member_page(Capability.SERVICE_ACCOUNTS_MANAGE)
@console.shows(f"GET {API_OF_ONE}/api-resources", f"DELETE {API_OF_ONE}/api-resources/<resource_id>")
async def show_resources(org_slug: str, account_id: UUID) -> Response:
    """List the organization's API resources, with the scopes that a service account has there."""
    return await console.console_page("programs/service_account_resources.html", **await _resource_values({}, account_id))


@routes.post(f"{ONE}/api-resources/<resource_id>")
@kit.member_page(Capability.SERVICE_ACCOUNTS_MANAGE, kit.BY_PEOPLE)
@console_forms.accepts(f"PUT {API_OF_ONE}/api-resources/<resource_id>")
@console_forms.on_refusal("programs/service_account_resources.html", _resource_values, FIELDS)
async def save_resource(org_slug: str, account_id: UUID, resource_id: UUID, form: console_forms.Form) -> Response:
    """Give a service account an API resource's checked scopes."""
    scopes = form_values.to_model(
        AccountResourceRequest, {}, {"scopes": lambda _: form_values.checked(form, service_account_views.SCOPE)}
    ).scopes
    await service_accounts.save_resource(kit.ports(), kit.acting_member(), account_id, resource_id, scopes)
    return console.redirect_with_notice("resource-scopes-saved", service_account_views.path_of(account_id, "/api-resources"))


@routes.post(f"{ONE}/api-resources/<resource_id>/remove")
@kit.member_page(Capability.SERVICE_ACCOUNTS_MANAGE, kit.BY_PEOPLE)
@console_forms.accepts(f"DELETE {API_OF_ONE}/api-resources/<resource_id>")
async def remove_resource(org_slug: str, account_id: UUID, resource_id: UUID) -> Response:
    """Take away an API resource's scopes."""
    await service_accounts.remove_resource(kit.ports(), kit.acting_member(), account_id, resource_id)
    return console.redirect_with_notice("resource-scopes-removed", service_account_views.path_of(account_id, "/api-resources"))


# Secrets that it created


@routes.get(f"{ONE}/created-secrets")
@kit.member_page(Capability.ORGANIZATION_OWN)
@console.shows(f"GET {API_OF_ONE}/created-secrets", f"DELETE {API_OF_ONE}/created-secrets")
async def show_created_secrets(org_slug: str, account_id: UUID) -> Response:
    """List the API keys and SCIM tokens that a service account created. It may be deleted."""
    secrets = await service_accounts.list_created(kit.ports(), kit.acting_member(), account_id)
    return await console.console_page(
        "programs/created_secrets.html",
        secrets=secrets,
        path=service_account_views.path_of(account_id),
        list_path=service_account_views.path_of(),
    )


@routes.post(f"{ONE}/created-secrets/end")
@kit.member_page(Capability.ORGANIZATION_OWN, kit.BY_PEOPLE)
@console_forms.accepts(f"DELETE {API_OF_ONE}/created-secrets")
async def end_created_secrets(org_slug: str, account_id: UUID) -> Response:
    """End the API keys and SCIM tokens that a service account created."""
    ended = await service_accounts.end_created(kit.ports(), kit.acting_member(), account_id)
    return console.redirect_with_notice(
        "created-secrets-ended", service_account_views.path_of(account_id, "/created-secrets"), count=len(ended)
    )
