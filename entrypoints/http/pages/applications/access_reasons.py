"""The page that answers what a user may do, and why."""

from uuid import UUID

from quart import Blueprint, Response

from core.applications import access_reasons
from core.applications.model.access_reasons import OrganizationAccess, RightSource, UserState
from core.kernel.roles import Capability
from core.tenancy.model.roles import ALL_SENTENCES
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import member_page
from entrypoints.http.edge.queries import PageQuery
from entrypoints.http.pages.console import console_page, may, neighbors, organization_path, shows

routes = Blueprint("access_reasons_pages", __name__)


@routes.get("/app/organizations/<org_slug>/users/<user_id>/access")
@member_page(Capability.END_USERS_VIEW)
@shows("GET /api/organizations/<org_slug>/users/<user_id>/access")
async def show_reasons(org_slug: str, user_id: UUID, query_args: PageQuery) -> Response:
    """Show what a user may do in the organization and its applications, and why."""
    access = await access_reasons.load(ports(), acting_member(), user_id, query_args.page_request())
    return await console_page(
        "applications/access_reasons.html",
        user=access.user,
        organization=access.organization,
        rights=_rights(access.organization) if access.organization else [],
        applications=access.applications,
        back=_back(access.user),
        groups_path=organization_path("/groups"),
        applications_path=organization_path("/applications"),
        **neighbors(query_args, access.total),
    )


def _back(user: UserState) -> tuple[str, str]:
    """Return the label and path for a page about the user that the caller may open."""
    if user.is_member and may(Capability.MEMBERS_MANAGE):
        return "Member", organization_path(f"/members/{user.user_id}")
    return ("User", organization_path(f"/users/{user.user_id}")) if user.is_end_user else ("Users", organization_path("/users"))


def _rights(access: OrganizationAccess) -> list[tuple[str, list[RightSource]]]:
    """Return a member's rights: the sentence, and the roles that give it."""
    return [(sentence, sources) for capability, sentence in ALL_SENTENCES.items() if (sources := access.sources_of(capability))]
