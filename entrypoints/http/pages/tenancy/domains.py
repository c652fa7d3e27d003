"""The pages for an organization's domains: the DNS record that verifies a domain, and the domain's identity provider."""

from typing import Any, Final

from quart import Blueprint, Response

from core.kernel.connections import PLATFORM_CONNECTIONS
from core.kernel.roles import Capability
from core.kernel.values import Domain
from core.tenancy import domains
from core.tenancy.model.domains import MAX_DOMAINS, DomainTooLong, RouteTargetUnknown, TooManyDomains, TooManyRoutes
from entrypoints.http.api.tenancy.domains import PATH as API
from entrypoints.http.api.tenancy.domains import ROUTES_PATH as ROUTES_API
from entrypoints.http.api.tenancy.domains import DomainRequest, HomeRealmRouteRequest, domain_of_path
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import GIVES, member_page
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.edge.queries import PageQuery
from entrypoints.http.pages.console import console_page, neighbors, organization_path, redirect_with_notice, shows
from entrypoints.http.pages.console_forms import Fields, Form, accepts, check_typed_name, on_refusal, serves_form
from entrypoints.http.pages.form_values import to_model

routes = Blueprint("domain_pages", __name__)

LIST: Final = "/app/organizations/<org_slug>/domains"
ONE: Final = f"{LIST}/<domain>"
ROUTES: Final = f"{LIST}/routes"
API_OF_ONE: Final = f"{API}/<domain>"
API_OF_ROUTE: Final = f"{ROUTES_API}/<domain>"
FIELDS: Final[Fields] = {DomainTooLong: "domain", TooManyDomains: "domain"}
ROUTE_FIELDS: Final[Fields] = {TooManyRoutes: "domain", RouteTargetUnknown: "provider"}


def _path(domain: str = "") -> str:
    return organization_path(f"/domains{domain and '/'}{domain}")


async def _list_values(form: Form) -> dict[str, Any]:
    return {
        "path": _path(),
        "claims": await domains.list_own(ports(), acting_member()),
        "most": MAX_DOMAINS,
        "typed": form,
    }


@serves_form(routes, LIST, f"GET {API}", f"POST {API}")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"POST {API}")
@on_refusal("tenancy/domains.html", _list_values, FIELDS)
async def claim(org_slug: str, form: Form) -> Response:
    """Add a domain to an organization."""
    added = await domains.claim(ports(), acting_member(), Domain(to_model(DomainRequest, form).domain))
    return redirect_with_notice("domain-set", _path(added.domain))


async def _values(_: Form, domain: str) -> dict[str, Any]:
    claim = await domains.get(ports(), acting_member(), domain_of_path(domain))
    return {"claim": claim, "list_path": _path(), "path": _path(claim.domain)}


@routes.get(ONE)
@member_page(Capability.INTEGRATIONS_MANAGE)
@shows(f"GET {API_OF_ONE}", f"POST {API_OF_ONE}/verify", f"DELETE {API_OF_ONE}")
async def show_domain(org_slug: str, domain: str) -> Response:
    """Show an organization's domain, and the DNS record that verifies it."""
    return await console_page("tenancy/domain.html", **await _values({}, domain))


@routes.post(f"{ONE}/verify")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"POST {API_OF_ONE}/verify")
@on_refusal("tenancy/domain.html", _values, FIELDS)
async def verify(org_slug: str, domain: str, form: Form) -> Response:
    """Look up the DNS record, and verify the domain."""
    verified = await domains.verify(ports(), acting_member(), domain_of_path(domain))
    return redirect_with_notice("domain-verified", _path(verified.domain))


@routes.post(f"{ONE}/remove")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"DELETE {API_OF_ONE}")
@refuses(409)
@on_refusal("tenancy/domain.html", _values, FIELDS)
async def remove(org_slug: str, domain: str, form: Form) -> Response:
    """Remove an organization's domain."""
    claim = await domains.get(ports(), acting_member(), domain_of_path(domain))
    check_typed_name(form, claim.domain)
    await domains.remove(ports(), acting_member(), claim.domain)
    return redirect_with_notice("domain-removed", _path())


# The domains' identity providers


async def _route_values(form: Form) -> dict[str, Any]:
    return {
        "path": _path(),
        "routes": await domains.list_routes(ports(), acting_member()),
        "providers": [
            *((each.slug, each.name) for each in await domains.list_connections(ports(), acting_member())),
            *ports().policy.provider_names.items(),
        ],
        "typed": form,
    }


@serves_form(routes, ROUTES, f"GET {ROUTES_API}", f"PUT {API_OF_ROUTE}", f"DELETE {API_OF_ROUTE}")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"PUT {API_OF_ROUTE}")
@on_refusal("tenancy/domain_routes.html", _route_values, ROUTE_FIELDS)
async def set_route(org_slug: str, form: Form) -> Response:
    """Set a domain's identity provider."""
    slug = form.get("provider", "")
    of_platform, own = (slug, None) if slug in PLATFORM_CONNECTIONS else (None, slug)
    route = to_model(HomeRealmRouteRequest, form, {"provider": lambda _: of_platform, "connection": lambda _: own})
    await domains.set_route(ports(), acting_member(), Domain(route.domain), route.target)
    return redirect_with_notice("route-saved", _path("routes"))


@routes.post(f"{ROUTES}/<domain>/remove")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"DELETE {API_OF_ROUTE}")
async def remove_route(org_slug: str, domain: str) -> Response:
    """Remove a domain's identity provider."""
    await domains.remove_route(ports(), acting_member(), domain_of_path(domain))
    return redirect_with_notice("route-removed", _path("routes"))


# What other organizations have at a domain


@routes.get(f"{ONE}/accounts")
@member_page(Capability.INTEGRATIONS_MANAGE)
@shows(f"GET {API_OF_ONE}/accounts")
async def show_foreign_accounts(org_slug: str, domain: str, query_args: PageQuery) -> Response:
    """List the accounts at a verified domain that another organization created."""
    name = domain_of_path(domain)
    result = await domains.list_foreign_accounts(ports(), acting_member(), name, query_args.page_request())
    return await console_page(
        "tenancy/domain_others.html",
        domain=name,
        path=_path(name),
        tab="accounts",
        rows=result.items,
        **neighbors(query_args, result.total),
    )


@routes.get(f"{ONE}/invitations")
@member_page(Capability.INTEGRATIONS_MANAGE)
@shows(f"GET {API_OF_ONE}/invitations")
async def show_foreign_invitations(org_slug: str, domain: str, query_args: PageQuery) -> Response:
    """List the pending invitations from other organizations to addresses at a verified domain."""
    name = domain_of_path(domain)
    result = await domains.list_foreign_invitations(ports(), acting_member(), name, query_args.page_request())
    return await console_page(
        "tenancy/domain_others.html",
        domain=name,
        path=_path(name),
        tab="invitations",
        rows=result.items,
        **neighbors(query_args, result.total),
    )
