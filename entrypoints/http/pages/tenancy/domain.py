"""The page of an organization's domain: the DNS record that verifies it, and the identity provider of each domain."""

from typing import Any, Final

from quart import Blueprint, Response

from core.kernel.connections import ConnectionSlug
from core.kernel.roles import Capability
from core.kernel.values import Domain
from core.tenancy import domains, home_realm
from core.tenancy.model.domains import DomainClaim, DomainNotSet, DuplicateDomain, HomeRealmRoute
from entrypoints.http.api.tenancy.domains import DomainRequest
from entrypoints.http.api.tenancy.home_realm import HomeRealmRoutesRequest
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import member_page
from entrypoints.http.edge.queries import PageQuery
from entrypoints.http.pages.console import console_page, neighbors, organization_path, redirect_with_notice, shows
from entrypoints.http.pages.console_forms import Fields, Form, accepts, check_typed_name, on_refusal
from entrypoints.http.pages.form_values import FieldInvalid, to_lines, to_model

routes = Blueprint("domain_pages", __name__)

PAGE: Final = "/app/organizations/<org_slug>/domain"
API: Final = "/api/organizations/<org_slug>/domain"
ROUTES_API: Final = "/api/organizations/<org_slug>/hrd"
FIELDS: Final[Fields] = {DuplicateDomain: "domains"}


async def _values(typed: Form) -> dict[str, Any]:
    claim, result = await _claim(), await home_realm.list_routes(ports(), acting_member())
    return {
        "path": _path(),
        "claim": claim,
        "routes": result,
        "typed": {"domain": "", "domains": _to_text(result), **typed},
        "providers": list(ports().policy.provider_names.values()),
    }


def _path() -> str:
    return organization_path("/domain")


async def _claim() -> DomainClaim | None:
    try:
        return await domains.get(ports(), acting_member())
    except DomainNotSet:
        return None


def _to_text(result: list[HomeRealmRoute]) -> str:
    names = ports().policy.provider_names
    return "\n".join(f"{route.domain} {names[route.provider]}" for route in result)


@routes.get(PAGE)
@member_page(Capability.INTEGRATIONS_MANAGE)
@shows(f"GET {API}", f"POST {API}", f"POST {API}/verify", f"GET {ROUTES_API}", f"PUT {ROUTES_API}", f"DELETE {API}")
async def show_domain(org_slug: str) -> Response:
    """Show the domain of an organization, and the DNS record that verifies it."""
    return await console_page("tenancy/domain.html", **await _values({}))


@routes.post(PAGE)
@member_page(Capability.INTEGRATIONS_MANAGE, outlives=True)
@accepts(f"POST {API}")
@on_refusal("tenancy/domain.html", _values, FIELDS)
async def claim(org_slug: str, form: Form) -> Response:
    """Set the domain of an organization."""
    await domains.claim(ports(), acting_member(), Domain(to_model(DomainRequest, form).domain))
    return redirect_with_notice("domain-set", _path())


@routes.post(f"{PAGE}/verify")
@member_page(Capability.INTEGRATIONS_MANAGE, outlives=True)
@accepts(f"POST {API}/verify")
@on_refusal("tenancy/domain.html", _values, FIELDS)
async def verify(org_slug: str, form: Form) -> Response:
    """Look up the DNS record, and verify the domain."""
    await domains.verify(ports(), acting_member())
    return redirect_with_notice("domain-verified", _path())


@routes.post(f"{PAGE}/routes")
@member_page(Capability.INTEGRATIONS_MANAGE, outlives=True)
@accepts(f"PUT {ROUTES_API}")
@on_refusal("tenancy/domain.html", _values, FIELDS)
async def replace_routes(org_slug: str, form: Form) -> Response:
    """Set the identity providers of domains."""
    await home_realm.replace_routes(ports(), acting_member(), _parse_routes(form.get("domains", "")))
    return redirect_with_notice("routes-saved", _path())


def _parse_routes(text: str) -> list[tuple[Domain, ConnectionSlug]]:
    """Return the routes in a text with one domain and one provider per line, by its name or its slug. Raises: FieldInvalid."""
    slugs = {name.casefold(): slug for slug, name in ports().policy.provider_names.items()}
    found = []
    for line in to_lines(text):
        domain, _, provider = line.partition(" ")
        found.append({"domain": domain, "provider": slugs.get(provider.strip().casefold(), provider.strip())})
    try:
        data = to_model(HomeRealmRoutesRequest, {}, {"domains": lambda _: found})
    except FieldInvalid as refusal:
        raise FieldInvalid(f"Write one domain and one identity provider per line. {refusal.message}", "domains") from None
    return [(Domain(route.domain), route.provider) for route in data.domains]


@routes.post(f"{PAGE}/remove")
@member_page(Capability.INTEGRATIONS_MANAGE, outlives=True)
@accepts(f"DELETE {API}")
@on_refusal("tenancy/domain.html", _values, FIELDS)
async def remove(org_slug: str, form: Form) -> Response:
    """Remove the domain of an organization."""
    check_typed_name(form, (await domains.get(ports(), acting_member())).domain)
    await domains.remove(ports(), acting_member())
    return redirect_with_notice("domain-removed", _path())


# What other organizations have at the domain


@routes.get(f"{PAGE}/accounts")
@member_page(Capability.INTEGRATIONS_MANAGE)
@shows(f"GET {API}/accounts")
async def show_foreign_accounts(org_slug: str, query_args: PageQuery) -> Response:
    """List the accounts at the verified domain that other organizations created."""
    result = await domains.list_foreign_accounts(ports(), acting_member(), query_args.page_request())
    return await console_page(
        "tenancy/domain_others.html", path=_path(), tab="accounts", rows=result.items, **neighbors(query_args, result.total)
    )


@routes.get(f"{PAGE}/invitations")
@member_page(Capability.INTEGRATIONS_MANAGE)
@shows(f"GET {API}/invitations")
async def show_foreign_invitations(org_slug: str, query_args: PageQuery) -> Response:
    """List the pending invitations of other organizations to addresses at the verified domain."""
    result = await domains.list_foreign_invitations(ports(), acting_member(), query_args.page_request())
    return await console_page(
        "tenancy/domain_others.html", path=_path(), tab="invitations", rows=result.items, **neighbors(query_args, result.total)
    )
