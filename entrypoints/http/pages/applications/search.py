"""The search of the console: pages, applications, members and users of an organization."""

from typing import Any, Final

from pydantic import Field
from quart import Blueprint, Response

from core.applications import end_users, services
from core.kernel.roles import Capability
from core.kernel.values import Page
from core.tenancy import members
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import member_page
from entrypoints.http.edge.bodies import Text
from entrypoints.http.edge.queries import Query
from entrypoints.http.pages.applications.applications import application_path
from entrypoints.http.pages.console import console_page, may, organization_path, shows
from entrypoints.http.pages.navigation import pages_for

routes = Blueprint("search_pages", __name__)

MOST_SHOWN: Final = 5  # of each kind


class SearchQuery(Query):
    """The text to search for."""

    search: Text = Field("", description="A part of a name, a slug or an email address.")


@routes.get("/app/organizations/<org_slug>/search")
@member_page(Capability.SERVICES_VIEW)
@shows("GET /api/organizations/<org_slug>/services", "GET /api/organizations/<org_slug>/members", "GET /api/organizations/<org_slug>/users")
async def search(org_slug: str, query_args: SearchQuery) -> Response:
    """Search the pages, applications, members and users of an organization.

    Members are shown to users who can open their pages.
    """
    text = query_args.search.strip()
    values: dict[str, Any] = {"pages": [], "applications": [], "members": [], "users": []} if not text else await _find(text)
    return await console_page("applications/search.html", text=text, most=MOST_SHOWN, **values)


async def _find(text: str) -> dict[str, list[tuple[str, str]]]:
    """Return the name and the path of each result, by kind."""
    first = Page(1, MOST_SHOWN + 1)
    batches, _ = await services.list_services(ports(), acting_member(), None, MOST_SHOWN + 1, 0, search=text)
    own = await members.list_page(ports(), acting_member(), None, first, search=text) if may("members.manage") else None
    users = await end_users.list_end_users(ports(), acting_member(), first, search=text, service_id=None) if may("end_users.view") else None
    return {
        "pages": [(name, path) for name, path in pages_for(acting_member()) if text.lower() in name.lower()],
        "applications": [(summary.service.name, application_path(summary.service.slug)) async for batch in batches for summary in batch],
        "members": [(member.email, organization_path(f"/members/{member.user_id}")) for member in (own.members if own else ())],
        "users": [(user.email, organization_path(f"/users/{user.id}")) for user in (users.items if users else ())],
    }
