"""The pages of an application's own credentials at identity providers."""

from typing import Any, Final

from quart import Blueprint, Response

from core.applications import services
from core.authentication import oauth_credentials
from core.authentication.model.identities import CredentialsNotSet, ServiceOAuthCredentials, parse_provider
from core.kernel.errors import Refusal
from core.kernel.providers import Provider
from core.kernel.roles import Capability
from entrypoints.http.api.authentication.oauth_credentials import OAuthCredentialsRequest
from entrypoints.http.edge.access import member_page
from entrypoints.http.edge.context import acting_member, app_context, ports
from entrypoints.http.pages.applications.applications import APPLICATION, SERVICE, application_path, application_values
from entrypoints.http.pages.console import (
    accepts,
    console_page,
    organization_path,
    read_console_form,
    redirect_with_notice,
    refused_console_page,
    shows,
    to_model,
    wrong_field,
)

routes = Blueprint("provider_pages", __name__)

LIST: Final = f"{APPLICATION}/providers"
ONE: Final = f"{LIST}/<provider>"
API: Final = f"{SERVICE}/oauth-credentials/<provider>"


async def _own_credentials(service_slug: str, provider: Provider) -> ServiceOAuthCredentials | None:
    try:
        return await oauth_credentials.load(ports(), acting_member(), service_slug, provider)
    except CredentialsNotSet:
        return None


@routes.get(LIST)
@member_page(Capability.SERVICES_MANAGE)
@shows(f"GET {API}", f"PUT {API}", f"DELETE {API}")
async def show_providers(org_slug: str, service_slug: str) -> Response:
    """List the identity providers with which users can sign in to an application."""
    service = await services.find(ports(), acting_member(), service_slug)
    offered = oauth_credentials.platform_providers(ports())
    names = ports().policy.provider_names
    providers = [
        {"id": each.value, "name": names[each], "own": await _own_credentials(service_slug, each), "is_offered": each in offered}
        for each in Provider
    ]
    return await console_page("applications/providers.html", providers=providers, **application_values(service))


async def _values(service_slug: str, provider: Provider) -> dict[str, Any]:
    service = await services.find(ports(), acting_member(), service_slug)
    return {
        "provider": ports().policy.provider_names[provider],
        "own": await _own_credentials(service_slug, provider),
        "callback": f"{app_context().base_url}/auth/{provider.value}/callback",
        "below": f"{application_path(service)}/providers/{provider.value}",
        **application_values(service),
    }


@routes.get(ONE)
@member_page(Capability.SERVICES_MANAGE)
@shows(f"GET {API}", f"PUT {API}", f"DELETE {API}")
async def show_provider(org_slug: str, service_slug: str, provider: str) -> Response:
    """Show the credentials of an application at an identity provider."""
    values = await _values(service_slug, parse_provider(provider))
    typed = {"client_id": values["own"].client_id} if values["own"] else {}
    return await console_page("applications/provider.html", typed=typed, **values)


@routes.post(ONE)
@member_page(Capability.SERVICES_MANAGE, outlives=True)
@accepts(f"PUT {API}")
async def set_credentials(org_slug: str, service_slug: str, provider: str) -> Response:
    """Set the credentials of an application at an identity provider."""
    chosen, form = parse_provider(provider), await read_console_form()
    values = await _values(service_slug, chosen)
    try:
        data = to_model(OAuthCredentialsRequest, form)
        await oauth_credentials.put(ports(), acting_member(), service_slug, chosen, data.client_id, data.client_secret)
    except Refusal as refusal:
        typed = {"client_id": form.get("client_id", "")}
        return await refused_console_page(refusal, "applications/provider.html", wrong=wrong_field(refusal, {}), typed=typed, **values)
    return redirect_with_notice("provider-saved", values["path"] + "/providers")


@routes.post(f"{ONE}/remove")
@member_page(Capability.SERVICES_MANAGE, outlives=True)
@accepts(f"DELETE {API}")
async def remove_credentials(org_slug: str, service_slug: str, provider: str) -> Response:
    """Remove the credentials of an application at an identity provider."""
    await read_console_form()
    await oauth_credentials.remove(ports(), acting_member(), service_slug, parse_provider(provider))
    return redirect_with_notice("provider-removed", organization_path(f"/applications/{service_slug}/providers"))
