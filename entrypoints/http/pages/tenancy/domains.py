"""The pages for an organization's domains: the DNS record that verifies a domain, and the domain's identity provider."""

from typing import Any, Final

from quart import Blueprint, Response

from core.kernel.connections import PLATFORM_CONNECTIONS
from core.kernel.roles import Capability
from core.kernel.values import Domain
from core.tenancy import domains
from core.tenancy.model.domains import MAX_DOMAINS, DomainTooLong, RouteTargetUnknown, TooManyDomains, TooManyRoutes
from entrypoints.http import kit
from entrypoints.http.api.tenancy.domains import PATH as API
from entrypoints.http.api.tenancy.domains import ROUTES_PATH as ROUTES_API
from entrypoints.http.api.tenancy.domains import DomainRequest, HomeRealmRouteRequest, domain_of_path
from entrypoints.http.pages import console, console_forms
from entrypoints.http.pages.form_values import to_model

routes = Blueprint("domain_pages", __name__)

LIST: Final = "/app/organizations/<org_slug>/domains"
ONE: Final = f"{LIST}/<domain>"
ROUTES: Final = f"{LIST}/routes"
API_OF_ONE: Final = f"{API}/<domain>"
API_OF_ROUTE: Final = f"{ROUTES_API}/<domain>"
FIELDS: Final[console_forms.Fields] = {DomainTooLong: "domain", TooManyDomains: "domain"}
ROUTE_FIELDS: Final[console_forms.Fields] = {TooManyRoutes: "domain", RouteTargetUnknown: "provider"}


def _path(domain: str = "") -> str:
    return console.organization_path(f"/domains{domain and '/'}{domain}")


async def _list_values(form: console_forms.Form) -> dict[str, Any]:
    return {
        "path": _path(),
        "claims": await domains.list_own(kit.ports(), kit.acting_member()),
        "most": MAX_DOMAINS,
        "typed": form,
    }


@console_forms.serves_form(routes, LIST, f"GET {API}", f"POST {API}")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API}")
@console_forms.on_refusal("tenancy/domains.html", _list_values, FIELDS)
async def claim(org_slug: str, form: console_forms.Form) -> Response:
    """Add a domain to an organization."""
    added = await domains.claim(kit.ports(), kit.acting_member(), Domain(to_model(DomainRequest, form).domain))
    return console.redirect_with_notice("domain-set", _path(added.domain))


async def _values(_: console_forms.Form, domain: str) -> dict[str, Any]:
    claim = await domains.get(kit.ports(), kit.acting_member(), domain_of_path(domain))
    return {"claim": claim, "list_path": _path(), "path": _path(claim.domain)}


@routes.get(ONE)
@kit.member_page(Capability.INTEGRATIONS_MANAGE)
@console.shows(f"GET {API_OF_ONE}", f"POST {API_OF_ONE}/verify", f"DELETE {API_OF_ONE}")
async def show_domain(org_slug: str, domain: str) -> Response:
    """Show an organization's domain, and the DNS record that verifies it."""
    return await console.console_page("tenancy/domain.html", **await _values({}, domain))


@routes.post(f"{ONE}/verify")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API_OF_ONE}/verify")
@console_forms.on_refusal("tenancy/domain.html", _values, FIELDS)
async def verify(org_slug: str, domain: str, form: console_forms.Form) -> Response:
    """Look up the DNS record, and verify the domain."""
    verified = await domains.verify(kit.ports(), kit.acting_member(), domain_of_path(domain))
    return console.redirect_with_notice("domain-verified", _path(verified.domain))


@routes.post(f"{ONE}/remove")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {API_OF_ONE}")
@kit.refuses(409)
@console_forms.on_refusal("tenancy/domain.html", _values, FIELDS)
async def remove(org_slug: str, domain: str, form: console_forms.Form) -> Response:
    """Remove an organization's domain."""
    claim = await domains.get(kit.ports(), kit.acting_member(), domain_of_path(domain))
    console_forms.check_typed_name(form, claim.domain)
    await domains.remove(kit.ports(), kit.acting_member(), claim.domain)
    return console.redirect_with_notice("domain-removed", _path())


# The domains' identity providers


async def _route_values(form: console_forms.Form) -> dict[str, Any]:
    return {
        "path": _path(),
        "routes": await domains.list_routes(kit.ports(), kit.acting_member()),
        "providers": [
            *((each.slug, each.name) for each in await domains.list_connections(kit.ports(), kit.acting_member())),
            *kit.ports().policy.provider_names.items(),
        ],
        "typed": form,
    }


@console_forms.serves_form(routes, ROUTES, f"GET {ROUTES_API}", f"PUT {API_OF_ROUTE}", f"DELETE {API_OF_ROUTE}")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"PUT {API_OF_ROUTE}")
@console_forms.on_refusal("tenancy/domain_routes.html", _route_values, ROUTE_FIELDS)
async def set_route(org_slug: str, form: console_forms.Form) -> Response:
    """Set a domain's identity provider."""
    slug = form.get("provider", "")
    of_platform, own = (slug, None) if slug in PLATFORM_CONNECTIONS else (None, slug)
    route = to_model(HomeRealmRouteRequest, form, {"provider": lambda _: of_platform, "connection": lambda _: own})
    await domains.set_route(kit.ports(), kit.acting_member(), Domain(route.domain), route.target)
    return console.redirect_with_notice("route-saved", _path("routes"))


@routes.post(f"{ROUTES}/<domain>/remove")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {API_OF_ROUTE}")
async def remove_route(org_slug: str, domain: str) -> Response:
    """Remove a domain's identity provider."""
    await domains.remove_route(kit.ports(), kit.acting_member(), domain_of_path(domain))
    return console.redirect_with_notice("route-removed", _path("routes"))


# What other organizations have at a domain


@routes.get(f"{ONE}/accounts")
@kit.member_page(Capability.INTEGRATIONS_MANAGE)
@console.shows(f"GET {API_OF_ONE}/accounts")
async def show_foreign_accounts(org_slug: str, domain: str, query_args: kit.PageQuery) -> Response:
    """List the accounts at a verified domain that another organization created."""
    name = domain_of_path(domain)
    result = await domains.list_foreign_accounts(kit.ports(), kit.acting_member(), name, query_args.page_request())
    return await console.console_page(
        "tenancy/domain_others.html",
        domain=name,
        path=_path(name),
        tab="accounts",
        rows=result.items,
        **console.neighbors(query_args, result.total),
    )


@routes.get(f"{ONE}/invitations")
@kit.member_page(Capability.INTEGRATIONS_MANAGE)
@console.shows(f"GET {API_OF_ONE}/invitations")
async def show_foreign_invitations(org_slug: str, domain: str, query_args: kit.PageQuery) -> Response:
    """List the pending invitations from other organizations to addresses at a verified domain."""
    name = domain_of_path(domain)
    result = await domains.list_foreign_invitations(kit.ports(), kit.acting_member(), name, query_args.page_request())
    return await console.console_page(
        "tenancy/domain_others.html",
        domain=name,
        path=_path(name),
        tab="invitations",
        rows=result.items,
        **console.neighbors(query_args, result.total),
    )
