"""The page that answers what a user may do, and why."""

from uuid import UUID

from quart import Blueprint, Response

from core.applications import access_reasons
from core.applications.model.access_reasons import OrganizationAccess, RightSource, UserState
from core.kernel.roles import Capability
from core.tenancy.model.roles import ALL_SENTENCES
from entrypoints.http import kit
from entrypoints.http.pages import console

routes = Blueprint("access_reasons_pages", __name__)


@routes.get("/app/organizations/<org_slug>/users/<user_id>/access")
@kit.member_page(Capability.END_USERS_VIEW)
@console.shows("GET /api/organizations/<org_slug>/users/<user_id>/access")
async def show_reasons(org_slug: str, user_id: UUID, query_args: kit.PageQuery) -> Response:
    """Show what a user may do in the organization and its applications, and why."""
    access = await access_reasons.load(kit.ports(), kit.acting_member(), user_id, query_args.page_request())
    return await console.console_page(
        "applications/access_reasons.html",
        user=access.user,
        organization=access.organization,
        rights=_rights(access.organization) if access.organization else [],
        applications=access.applications,
        back=_back(access.user),
        groups_path=console.organization_path("/groups"),
        applications_path=console.organization_path("/applications"),
        **console.neighbors(query_args, access.total),
    )


def _back(user: UserState) -> tuple[str, str]:
    """Return the label and path for a page about the user that the caller may open."""
    if user.is_member and console.may(Capability.MEMBERS_MANAGE):
        return "Member", console.organization_path(f"/members/{user.user_id}")
    return (
        ("User", console.organization_path(f"/users/{user.user_id}"))
        if user.is_end_user
        else ("Users", console.organization_path("/users"))
    )


def _rights(access: OrganizationAccess) -> list[tuple[str, list[RightSource]]]:
    """Return a member's rights: the sentence, and the roles that give it."""
    return [(sentence, sources) for capability, sentence in ALL_SENTENCES.items() if (sources := access.sources_of(capability))]
