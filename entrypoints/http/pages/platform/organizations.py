"""The pages of all organizations: the list, and an organization with its lifecycle, tier and limits."""

from collections.abc import Mapping
from typing import Any, Final

from quart import Blueprint, Response

from core.kernel.callers import OrganizationStatus
from core.kernel.errors import Refusal
from core.kernel.sign_in_age import SignInAge
from core.tenancy import governance
from core.tenancy.model.organizations import WrongOrganizationStatus
from entrypoints.http.api.tenancy.governance import (
    ApprovalRequest,
    OrganizationsQuery,
    OrganizationTierRequest,
    RejectionRequest,
    SuspensionRequest,
)
from entrypoints.http.edge.access import platform_page
from entrypoints.http.edge.context import ports, signed_in
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.edge.queries import path_id, validate_querystring
from entrypoints.http.pages.console import (
    ListQuery,
    accepts,
    check_typed_name,
    console_page,
    neighbors,
    read_console_form,
    redirect_with_notice,
    refused_console_page,
    shows,
    to_model,
    to_number,
    to_optional,
    wrong_field,
)
from entrypoints.http.pages.navigation import ORGANIZATION_PATH

routes = Blueprint("platform_organization_pages", __name__)

LIST: Final = "/app/platform/organizations"
ONE: Final = f"{LIST}/<org_id>"
API: Final = "/api/platform/organizations"
API_OF_ONE: Final = f"{API}/<org_id>"
STATUSES: Final = [("", "All states"), *((status.value, status.value.capitalize()) for status in OrganizationStatus)]
MOST_WAITING: Final = 20  # shown above the list


class OrganizationListQuery(ListQuery, OrganizationsQuery):
    """The search, the filters, and the part of the list."""


@routes.get(LIST)
@platform_page
@refuses(400)
@validate_querystring(OrganizationListQuery)
@shows(f"GET {API}")
async def show_organizations(query_args: OrganizationListQuery) -> Response:
    """List all organizations. Those that wait for approval come first."""
    query, tier_id = query_args, None if query_args.tier_id is None else path_id(query_args.tier_id)
    result = await governance.list_organizations(
        ports(), query.status, tier_id, limit=query.limit, offset=query.offset, search=query.search
    )
    is_start = not (query.offset or query.search or query.status or query.tier_id)
    waiting = (
        await governance.list_organizations(ports(), OrganizationStatus.PENDING, None, limit=MOST_WAITING, offset=0) if is_start else None
    )
    return await console_page(
        "platform/organizations.html",
        organizations=result.items,
        waiting=waiting.items if waiting else [],
        waiting_total=waiting.total if waiting else 0,
        query=query,
        statuses=STATUSES,
        tiers=[("", "All tiers"), *await _tiers()],
        **neighbors(query, result.total),
    )


async def _values(org_id: str, typed: Mapping[str, Any] | None = None) -> dict[str, Any]:
    details = await governance.describe(ports(), path_id(org_id))
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
        "is_own": details.owner.id == str(signed_in().user_id),
        "services": details.service_count,
        "tiers": await _tiers(),
        "path": f"{LIST}/{organization.id}",
        "typed": {**stored, **(typed or {})},
    }


async def _tiers() -> list[tuple[str, str]]:
    return [(str(tier.id), tier.display_name) for tier in await governance.list_tiers(ports())]


async def _refused(refusal: Refusal, org_id: str, typed: Mapping[str, Any]) -> Response:
    values = await _values(org_id, typed)
    return await refused_console_page(refusal, "platform/organization.html", wrong=wrong_field(refusal, {}), **values)


@routes.get(ONE)
@platform_page
@shows(f"GET {API_OF_ONE}", f"PATCH {API_OF_ONE}/tier", f"DELETE {API_OF_ONE}")
async def show_organization(org_id: str) -> Response:
    """Show an organization in any state."""
    return await console_page("platform/organization.html", **await _values(org_id))


@routes.post(f"{ONE}/approve")
@platform_page
@accepts(f"POST {API_OF_ONE}/approve")
async def approve(org_id: str) -> Response:
    """Approve a pending organization.

    The owner of the organization goes on to its overview.
    """
    form = await read_console_form()
    try:
        data = to_model(ApprovalRequest, form, {"tier_id": to_optional})
        await governance.approve(ports(), signed_in(), path_id(org_id), data.tier_id)
    except Refusal as refusal:
        return await _refused(refusal, org_id, form)
    details = await governance.describe(ports(), path_id(org_id))
    if details.owner.id == str(signed_in().user_id):
        return redirect_with_notice("organization-approved", ORGANIZATION_PATH.format(slug=details.organization.slug))
    return redirect_with_notice("organization-approved", f"{LIST}/{path_id(org_id)}")


@routes.post(f"{ONE}/reject")
@platform_page
@accepts(f"POST {API_OF_ONE}/reject")
async def reject(org_id: str) -> Response:
    """Reject a pending organization."""
    form = await read_console_form()
    try:
        await governance.reject(ports(), signed_in(), path_id(org_id), to_model(RejectionRequest, form).reason)
    except Refusal as refusal:
        return await _refused(refusal, org_id, form)
    return redirect_with_notice("organization-rejected", f"{LIST}/{path_id(org_id)}")


@routes.post(f"{ONE}/suspend")
@platform_page
@accepts(f"POST {API_OF_ONE}/suspend")
async def suspend(org_id: str) -> Response:
    """Suspend an active organization."""
    form = await read_console_form()
    try:
        check_typed_name(form, (await governance.get(ports(), path_id(org_id))).slug)
        data = to_model(SuspensionRequest, form, {"reason": to_optional})
        await governance.suspend(ports(), signed_in(), path_id(org_id), data.reason)
    except Refusal as refusal:
        return await _refused(refusal, org_id, form)
    return redirect_with_notice("organization-suspended", f"{LIST}/{path_id(org_id)}")


@routes.post(f"{ONE}/activate")
@platform_page
@accepts(f"POST {API_OF_ONE}/activate")
async def activate(org_id: str) -> Response:
    """Activate a suspended organization."""
    await read_console_form()
    try:
        await governance.activate(ports(), signed_in(), path_id(org_id))
    except WrongOrganizationStatus as refusal:
        return await _refused(refusal, org_id, {})
    return redirect_with_notice("organization-activated", f"{LIST}/{path_id(org_id)}")


@routes.post(f"{ONE}/tier")
@platform_page
@accepts(f"PATCH {API_OF_ONE}/tier")
async def change_tier(org_id: str) -> Response:
    """Change the tier and the limits of an organization. An empty limit is that of the tier."""
    form = await read_console_form()
    try:
        data = to_model(OrganizationTierRequest, form, {"max_services": to_number, "max_users": to_number})
        await governance.change_tier(
            ports(), signed_in(), path_id(org_id), data.tier_id, max_services=data.max_services, max_users=data.max_users
        )
    except Refusal as refusal:
        return await _refused(refusal, org_id, form)
    return redirect_with_notice("tier-changed", f"{LIST}/{path_id(org_id)}")


@routes.post(f"{ONE}/delete")
@platform_page(sign_in=SignInAge.FRESH)
@accepts(f"DELETE {API_OF_ONE}")
async def delete(org_id: str) -> Response:
    """Delete an organization permanently."""
    form = await read_console_form()
    try:
        check_typed_name(form, (await governance.get(ports(), path_id(org_id))).slug)
        await governance.delete(ports(), signed_in(), path_id(org_id))
    except Refusal as refusal:
        return await _refused(refusal, org_id, form)
    return redirect_with_notice("organization-deleted", LIST)
