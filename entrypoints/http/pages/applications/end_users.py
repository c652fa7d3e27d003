"""The pages of the users of an organization's applications."""

from typing import Final
from uuid import UUID

from pydantic import Field
from quart import Blueprint, Response

from core.applications import end_users
from core.kernel.roles import Capability
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import member_page
from entrypoints.http.edge.bodies import Text
from entrypoints.http.edge.queries import PageQuery
from entrypoints.http.pages.console import console_page, neighbors, organization_path, redirect_with_notice, shows
from entrypoints.http.pages.console_forms import accepts

routes = Blueprint("end_user_pages", __name__)

LIST: Final = "/app/organizations/<org_slug>/users"
API: Final = "/api/organizations/<org_slug>/users"


class UsersQuery(PageQuery):
    """The search, and the page."""

    search: Text | None = Field(None, description="A part of the email address.")


@routes.get(LIST)
@member_page(Capability.END_USERS_VIEW)
@shows(f"GET {API}")
async def show_users(org_slug: str, query_args: UsersQuery) -> Response:
    """List the users of an organization's applications."""
    result = await end_users.list_end_users(ports(), acting_member(), query_args.page_request(), search=query_args.search, service_id=None)
    return await console_page(
        "applications/users.html",
        images_of=[user.id for user in result.items],
        users=result.items,
        path=organization_path("/users"),
        query=query_args,
        **neighbors(query_args, result.total),
    )


@routes.get(f"{LIST}/<user_id>")
@member_page(Capability.END_USERS_VIEW)
@shows(f"GET {API}/<user_id>", f"DELETE {API}/<user_id>/sessions")
async def show_user(org_slug: str, user_id: UUID) -> Response:
    """Show a user of an organization's applications."""
    details = await end_users.find(ports(), acting_member(), user_id)
    return await console_page("applications/user.html", images_of=[user_id], details=details, path=organization_path("/users"))


@routes.post(f"{LIST}/<user_id>/end-sessions")
@member_page(Capability.END_USERS_MANAGE, outlives=False)
@accepts(f"DELETE {API}/<user_id>/sessions")
async def end_sessions(org_slug: str, user_id: UUID) -> Response:
    """End the sessions of a user in an organization's applications."""
    count = await end_users.revoke_sessions(ports(), acting_member(), user_id)
    return redirect_with_notice("sessions-ended", organization_path(f"/users/{user_id}"), count=count)
