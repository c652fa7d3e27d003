"""The pages for an application's own credentials at identity providers."""

from typing import Any, Final

from quart import Blueprint, Response

from core.applications import services
from core.authentication import oauth_credentials
from core.authentication.model.identities import parse_provider
from core.kernel.connections import PLATFORM_CONNECTIONS
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.authentication.oauth_credentials import OAuthCredentialsRequest
from entrypoints.http.base.context import app_context
from entrypoints.http.pages import console, console_forms
from entrypoints.http.pages.applications.applications import APPLICATION, SERVICE, application_path, application_values
from entrypoints.http.pages.form_values import to_model

routes = Blueprint("provider_pages", __name__)

LIST: Final = f"{APPLICATION}/providers"
ONE: Final = f"{LIST}/<provider>"
API: Final = f"{SERVICE}/oauth-credentials/<provider>"


@routes.get(LIST)
@kit.member_page(Capability.SERVICES_MANAGE)
@console.shows(f"GET {API}", f"PUT {API}", f"DELETE {API}")
async def show_providers(org_slug: str, service_slug: str) -> Response:
    """List the identity providers with which users can sign in to an application."""
    service = await services.find(kit.ports(), kit.acting_member(), service_slug)
    own = await oauth_credentials.list_own(kit.ports(), kit.acting_member(), service_slug)
    offered = await oauth_credentials.list_platform_providers(kit.ports())
    names = kit.ports().policy.provider_names
    providers = [{"id": each, "name": names[each], "own": own.get(each), "is_offered": each in offered} for each in PLATFORM_CONNECTIONS]
    return await console.console_page(
        "applications/providers.html",
        images_of=[id_ for id_, _ in PLATFORM_CONNECTIONS.values()],
        providers=providers,
        **application_values(service),
    )


async def _values(typed: console_forms.Form, service_slug: str, provider: str) -> dict[str, Any]:
    chosen, service = parse_provider(provider), await services.find(kit.ports(), kit.acting_member(), service_slug)
    own = (await oauth_credentials.list_own(kit.ports(), kit.acting_member(), service_slug)).get(chosen)
    client_id = typed.get("client_id", "") if typed else own and own.client_id
    return {
        "typed": {} if client_id is None else {"client_id": client_id},  # never the secret
        "provider": kit.ports().policy.provider_names[chosen],
        "own": own,
        "callback": f"{app_context().base_url}/auth/{chosen}/callback",
        "below": f"{application_path(service.slug)}/providers/{chosen}",
        **application_values(service),
    }


@console_forms.serves_form(routes, ONE, f"GET {API}", f"PUT {API}", f"DELETE {API}")
@kit.member_page(Capability.SERVICES_MANAGE, kit.GIVES)
@console_forms.accepts(f"PUT {API}")
@console_forms.on_refusal("applications/provider.html", _values)
async def set_credentials(org_slug: str, service_slug: str, provider: str, form: console_forms.Form) -> Response:
    """Set an application's credentials at an identity provider."""
    chosen, data = parse_provider(provider), to_model(OAuthCredentialsRequest, form)
    await oauth_credentials.put(kit.ports(), kit.acting_member(), service_slug, chosen, data.client_id, data.client_secret)
    return console.redirect_with_notice("provider-saved", f"{application_path(service_slug)}/providers")


@routes.post(f"{ONE}/remove")
@kit.member_page(Capability.SERVICES_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {API}")
async def remove_credentials(org_slug: str, service_slug: str, provider: str) -> Response:
    """Remove an application's credentials at an identity provider."""
    await oauth_credentials.remove(kit.ports(), kit.acting_member(), service_slug, parse_provider(provider))
    return console.redirect_with_notice("provider-removed", f"{application_path(service_slug)}/providers")
