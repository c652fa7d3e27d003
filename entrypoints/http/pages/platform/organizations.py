"""The pages for all organizations: the list, and an organization with its lifecycle, tier and limits."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.kernel.callers import OrganizationStatus
from core.tenancy import governance
from core.tenancy.model.organizations import WrongOrganizationStatus
from entrypoints.http import kit
from entrypoints.http.api.tenancy.governance import (
    ApprovalRequest,
    OrganizationsQuery,
    OrganizationTierRequest,
    RejectionRequest,
    RemoveNetworksRequest,
    SuspensionRequest,
)
from entrypoints.http.pages import consequences, console, console_forms, form_values
from entrypoints.http.pages.navigation import ORGANIZATION_PATH

routes = Blueprint("platform_organization_pages", __name__)

LIST: Final = "/app/platform/organizations"
ONE: Final = f"{LIST}/<org_id>"
API: Final = "/api/platform/organizations"
API_OF_ONE: Final = f"{API}/<org_id>"
STATUSES: Final = [("", "All states"), *((status.value, status.value.capitalize()) for status in OrganizationStatus)]
MOST_WAITING: Final = 20  # shown above the list


@routes.get(LIST)
@kit.platform_page
@console.shows(f"GET {API}")
async def show_organizations(query_args: OrganizationsQuery) -> Response:
    """List all organizations. Organizations that wait for approval come first."""
    query, tier_id = query_args, None if query_args.tier_id is None else kit.path_id(query_args.tier_id)
    result = await governance.list_organizations(
        kit.ports(), query.status, tier_id, limit=query.limit, offset=query.offset, search=query.search
    )
    is_start = not (query.offset or query.search or query.status or query.tier_id)
    waiting = (
        await governance.list_organizations(kit.ports(), OrganizationStatus.PENDING, None, limit=MOST_WAITING, offset=0)
        if is_start
        else None
    )
    return await console.console_page(
        "platform/organizations.html",
        images_of=[each.organization.id for each in result.items],
        organizations=result.items,
        waiting=waiting.items if waiting else [],
        waiting_total=waiting.total if waiting else 0,
        query=query,
        statuses=STATUSES,
        tiers=[("", "All tiers"), *await _tiers()],
        **console.neighbors(query, result.total),
    )


async def _values(typed: console_forms.Form, org_id: UUID) -> dict[str, Any]:
    details = await governance.describe(kit.ports(), org_id)
    organization = details.organization
    stored = {
        "tier_id": str(organization.tier.id) if organization.tier else "",
        "max_users": "" if organization.max_users is None else str(organization.max_users),
        "max_services": "" if organization.max_services is None else str(organization.max_services),
    }
    return {
        "organization": organization,
        "owner": details.owner,
        "resembles": details.resembles,
        "is_own": details.owner.id == str(kit.signed_in().user_id),
        "services": details.service_count,
        "networks": details.admin_networks,
        "tiers": await _tiers(),
        "path": f"{LIST}/{organization.id}",
        "typed": {**stored, **typed},
    }


async def _tiers() -> list[tuple[str, str]]:
    return [(str(tier.id), tier.display_name) for tier in await governance.list_tiers(kit.ports())]


@routes.get(ONE)
@kit.platform_page
@console.shows(f"GET {API_OF_ONE}", f"PATCH {API_OF_ONE}/tier", f"DELETE {API_OF_ONE}")
async def show_organization(org_id: UUID) -> Response:
    """Show an organization in any state."""
    return await console.console_page("platform/organization.html", images_of=[org_id], **await _values({}, org_id))


@routes.post(f"{ONE}/approve")
@kit.platform_page(kit.GIVES)
@console_forms.accepts(f"POST {API_OF_ONE}/approve")
@console_forms.on_refusal("platform/organization.html", _values)
async def approve(org_id: UUID, form: console_forms.Form) -> Response:
    """Approve a pending organization. The organization's owner goes on to its overview."""
    data = form_values.to_model(ApprovalRequest, form, {"tier_id": form_values.to_optional})
    await governance.approve(kit.ports(), kit.signed_in(), org_id, data.tier_id)
    details = await governance.describe(kit.ports(), org_id)
    if details.owner.id == str(kit.signed_in().user_id):
        return console.redirect_with_notice("organization-approved", ORGANIZATION_PATH.format(slug=details.organization.slug))
    return console.redirect_with_notice("organization-approved", f"{LIST}/{org_id}")


@routes.post(f"{ONE}/reject")
@kit.platform_page(kit.GIVES)
@console_forms.accepts(f"POST {API_OF_ONE}/reject")
@console_forms.on_refusal("platform/organization.html", _values)
async def reject(org_id: UUID, form: console_forms.Form) -> Response:
    """Reject a pending organization."""
    await governance.reject(kit.ports(), kit.signed_in(), org_id, form_values.to_model(RejectionRequest, form).reason)
    return console.redirect_with_notice("organization-rejected", f"{LIST}/{org_id}")


@routes.post(f"{ONE}/suspend")
@kit.platform_page(kit.GIVES)
@console_forms.accepts(f"POST {API_OF_ONE}/suspend")
@console_forms.on_refusal("platform/organization.html", _values)
async def suspend(org_id: UUID, form: console_forms.Form) -> Response:
    """Suspend an active organization."""
    console_forms.check_typed_name(form, (await governance.get(kit.ports(), org_id)).slug)
    data = form_values.to_model(SuspensionRequest, form, {"reason": form_values.to_optional})
    await governance.suspend(kit.ports(), kit.signed_in(), org_id, data.reason)
    return console.redirect_with_notice("organization-suspended", f"{LIST}/{org_id}")


@routes.post(f"{ONE}/activate")
@kit.platform_page(kit.GIVES)
@console_forms.accepts(f"POST {API_OF_ONE}/activate")
@console_forms.on_refusal("platform/organization.html", _values, refusals=(WrongOrganizationStatus,))
async def activate(org_id: UUID, form: console_forms.Form) -> Response:
    """Activate a suspended organization."""
    await governance.activate(kit.ports(), kit.signed_in(), org_id)
    return console.redirect_with_notice("organization-activated", f"{LIST}/{org_id}")


@routes.post(f"{ONE}/tier")
@kit.platform_page(kit.CHANGES)
@console_forms.accepts(f"PATCH {API_OF_ONE}/tier")
@console_forms.on_refusal("platform/organization.html", _values)
async def change_tier(org_id: UUID, form: console_forms.Form) -> Response:
    """Change an organization's tier and limits. An empty limit means the tier's limit."""
    data = form_values.to_model(OrganizationTierRequest, form, {"max_services": form_values.to_number, "max_users": form_values.to_number})
    await governance.change_tier(
        kit.ports(), kit.signed_in(), org_id, data.tier_id, max_services=data.max_services, max_users=data.max_users
    )
    return console.redirect_with_notice("tier-changed", f"{LIST}/{org_id}")


async def _networks_removal(org_id: UUID) -> consequences.Question:
    details = await governance.describe(kit.ports(), org_id)
    networks = f"only from {', '.join(details.admin_networks)}" if details.admin_networks else "from any network"
    return consequences.Question(
        verb="Remove the networks of",
        target=details.organization.name,
        consequences=(
            f"Its owner and admins may act {networks}.",
            "Without the networks, they may act from anywhere, and can set the rule again. All other rules stay.",
            "Check who asks before you continue. They get an email with the reason.",
        ),
        button="Remove networks",
        back=(details.organization.name, f"{LIST}/{org_id}"),
        reason="Reason, for the platform log and the email",
    )


@consequences.asks(routes, f"{ONE}/admin-networks")
@kit.platform_page(kit.OWNS)
@consequences.accepts_answer(f"DELETE {API_OF_ONE}/admin-networks", _networks_removal)
async def remove_admin_networks(org_id: UUID, form: console_forms.Form) -> Response:
    """Remove the networks from which an organization's admins may act."""
    await governance.remove_admin_networks(kit.ports(), kit.signed_in(), org_id, form_values.to_model(RemoveNetworksRequest, form).reason)
    return console.redirect_with_notice("admin-networks-removed", f"{LIST}/{org_id}")


@routes.post(f"{ONE}/delete")
@kit.platform_page(kit.OWNS)
@console_forms.accepts(f"DELETE {API_OF_ONE}")
@console_forms.on_refusal("platform/organization.html", _values)
async def delete(org_id: UUID, form: console_forms.Form) -> Response:
    """Delete an organization permanently."""
    console_forms.check_typed_name(form, (await governance.get(kit.ports(), org_id)).slug)
    await governance.delete(kit.ports(), kit.signed_in(), org_id)
    return console.redirect_with_notice("organization-deleted", LIST)
