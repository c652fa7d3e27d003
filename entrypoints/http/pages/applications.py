"""The pages of an organization's applications: the list, and the values to copy into an application (decision 264).

They show what the API of services returns, to the same members.
"""

from typing import Any, Final

from quart import Blueprint, Response

from core.applications import services
from core.applications.services_rules import Service, ServiceType
from core.federation.oauth.end_session_rules import END_SESSION_PATH
from core.kernel.principals import Capability
from entrypoints.http.edge.access import member_page
from entrypoints.http.edge.context import acting_member, app_context, ports
from entrypoints.http.edge.openapi import describes_page, refuses
from entrypoints.http.edge.queries import Offset, Query, validate_querystring
from entrypoints.http.pages.account import account_page_response

routes = Blueprint("applications", __name__)

APPLICATIONS: Final = "/app/organizations/<org_slug>/applications"
APPLICATION: Final = f"{APPLICATIONS}/<service_slug>"
TYPES: Final = {
    ServiceType.WEB: "Web application",
    ServiceType.SPA: "Single-page application",
    ServiceType.MOBILE: "Mobile app",
    ServiceType.DESKTOP: "Desktop app",
    ServiceType.API: "API",
}
PAGE_SIZE: Final = 50


def application_path(service: Service) -> str:
    """Return the path of the page of an application in the caller's organization."""
    return f"/app/organizations/{acting_member().acts_in.slug}/applications/{service.slug}"


def application_values(service: Service) -> dict[str, Any]:
    """Return the values that all pages of an application have."""
    caller = acting_member()
    return {
        "organization_path": f"/app/organizations/{caller.acts_in.slug}/applications",
        "application": {"name": service.name, "type": TYPES[service.service_type]},
    }


def values_to_copy(service: Service) -> list[tuple[str, str, str]]:
    """Return the values that an application's own settings need: label, value and hint."""
    base = app_context().base_url
    if service.service_type.is_public:
        authentication = ("none", "This application has no secret. It uses PKCE with S256.")
    elif service.client.has_keys:
        authentication = ("private_key_jwt", "The client secret works, too: client_secret_basic or client_secret_post.")
    else:
        authentication = ("client_secret_basic", "Or client_secret_post. Add PKCE with S256 if your library supports it.")
    return [
        ("Issuer", base, "Most libraries find the rest with it."),
        ("Discovery address", f"{base}/.well-known/openid-configuration", ""),
        ("Client ID", str(service.client_id), ""),
        ("Token endpoint authentication", *authentication),
        ("End-session address", f"{base}{END_SESSION_PATH}", "Send users here to sign them out."),
    ]


class ApplicationsQuery(Query):
    """The position in the list."""

    offset: Offset = 0


@routes.get(APPLICATIONS)
@member_page(Capability.SERVICES_VIEW)
@refuses(400, 403)
@validate_querystring(ApplicationsQuery)
@describes_page({200: "The list."})
async def show_applications(org_slug: str, query_args: ApplicationsQuery) -> Response:
    """List the applications of an organization.

    Members of the organization can open the page of each application.
    """
    batches, quota = await services.list_services(ports(), acting_member(), None, PAGE_SIZE, query_args.offset)
    listed = [summary.service async for batch in batches for summary in batch]
    next_offset = query_args.offset + PAGE_SIZE
    return account_page_response(
        "applications.html",
        organization=org_slug,
        applications=[{"name": s.name, "type": TYPES[s.service_type], "path": application_path(s)} for s in listed],
        next_offset=next_offset if next_offset < quota.current_services else None,
    )


@routes.get(APPLICATION)
@member_page(Capability.SERVICES_VIEW)
@refuses(403)
@describes_page({200: "The page."})
async def show_application(org_slug: str, service_slug: str) -> Response:
    """Show an application of an organization.

    The page has the values to copy into the application.
    """
    service = await services.find(ports(), acting_member(), service_slug)
    return account_page_response("application.html", values=values_to_copy(service), **application_values(service))
