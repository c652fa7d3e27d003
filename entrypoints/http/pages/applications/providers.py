"""The pages for an application's own credentials at identity providers."""

from typing import Any, Final

from quart import Blueprint, Response

from core.applications import services
from core.authentication import oauth_credentials
from core.authentication.model.identities import parse_provider
from core.kernel.connections import PLATFORM_CONNECTIONS
from core.kernel.roles import Capability
from entrypoints.http.api.authentication.oauth_credentials import OAuthCredentialsRequest
from entrypoints.http.base.context import acting_member, app_context, ports
from entrypoints.http.edge.access import GIVES, member_page
from entrypoints.http.pages.applications.applications import APPLICATION, SERVICE, application_path, application_values
from entrypoints.http.pages.console import console_page, redirect_with_notice, shows
from entrypoints.http.pages.console_forms import Form, accepts, on_refusal, serves_form
from entrypoints.http.pages.form_values import to_model

routes = Blueprint("provider_pages", __name__)

LIST: Final = f"{APPLICATION}/providers"
ONE: Final = f"{LIST}/<provider>"
API: Final = f"{SERVICE}/oauth-credentials/<provider>"


@routes.get(LIST)
@member_page(Capability.SERVICES_MANAGE)
@shows(f"GET {API}", f"PUT {API}", f"DELETE {API}")
async def show_providers(org_slug: str, service_slug: str) -> Response:
    """List the identity providers with which users can sign in to an application."""
    service = await services.find(ports(), acting_member(), service_slug)
    own = await oauth_credentials.list_own(ports(), acting_member(), service_slug)
    offered = await oauth_credentials.list_platform_providers(ports())
    names = ports().policy.provider_names
    providers = [{"id": each, "name": names[each], "own": own.get(each), "is_offered": each in offered} for each in PLATFORM_CONNECTIONS]
    return await console_page(
        "applications/providers.html",
        images_of=[id_ for id_, _ in PLATFORM_CONNECTIONS.values()],
        providers=providers,
        **application_values(service),
    )


async def _values(typed: Form, service_slug: str, provider: str) -> dict[str, Any]:
    chosen, service = parse_provider(provider), await services.find(ports(), acting_member(), service_slug)
    own = (await oauth_credentials.list_own(ports(), acting_member(), service_slug)).get(chosen)
    client_id = typed.get("client_id", "") if typed else own and own.client_id
    return {
        "typed": {} if client_id is None else {"client_id": client_id},  # never the secret
        "provider": ports().policy.provider_names[chosen],
        "own": own,
        "callback": f"{app_context().base_url}/auth/{chosen}/callback",
        "below": f"{application_path(service.slug)}/providers/{chosen}",
        **application_values(service),
    }


@serves_form(routes, ONE, f"GET {API}", f"PUT {API}", f"DELETE {API}")
@member_page(Capability.SERVICES_MANAGE, GIVES)
@accepts(f"PUT {API}")
@on_refusal("applications/provider.html", _values)
async def set_credentials(org_slug: str, service_slug: str, provider: str, form: Form) -> Response:
    """Set an application's credentials at an identity provider."""
    chosen, data = parse_provider(provider), to_model(OAuthCredentialsRequest, form)
    await oauth_credentials.put(ports(), acting_member(), service_slug, chosen, data.client_id, data.client_secret)
    return redirect_with_notice("provider-saved", f"{application_path(service_slug)}/providers")


@routes.post(f"{ONE}/remove")
@member_page(Capability.SERVICES_MANAGE, GIVES)
@accepts(f"DELETE {API}")
async def remove_credentials(org_slug: str, service_slug: str, provider: str) -> Response:
    """Remove an application's credentials at an identity provider."""
    await oauth_credentials.remove(ports(), acting_member(), service_slug, parse_provider(provider))
    return redirect_with_notice("provider-removed", f"{application_path(service_slug)}/providers")
