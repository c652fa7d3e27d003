"""The page that connects an application: code for its framework, and whether a user has signed in yet."""

from typing import Final

from pydantic import Field
from quart import Blueprint, Response

from core.applications import services
from core.kernel.roles import Capability
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import member_page
from entrypoints.http.edge.openapi import describes_page, refuses
from entrypoints.http.edge.queries import Flag, Query
from entrypoints.http.pages.applications import frameworks
from entrypoints.http.pages.applications.activity import activity_values
from entrypoints.http.pages.applications.applications import APPLICATION, SERVICE, application_values
from entrypoints.http.pages.console import console_page

routes = Blueprint("application_setup_pages", __name__)

PAGE: Final = f"{APPLICATION}/setup"


class SetupQuery(Query):
    """Whether the page has the activity alone, for the script that waits for the first sign-in."""

    brief: Flag | None = Field(None, description="Whether the page leaves the code out.")


@routes.get(PAGE)
@member_page(Capability.SERVICES_VIEW)
@refuses(400)
@describes_page({200: "The page."}, api=[f"GET {SERVICE}", "GET /api/organizations/<org_slug>/sign-ins"])
async def show_setup(org_slug: str, service_slug: str, query_args: SetupQuery) -> Response:
    """Show how to connect an application, and whether a user has signed in to it yet."""
    service = await services.find(ports(), acting_member(), service_slug)
    values = {**application_values(service), **await activity_values(service, waits=True), **frameworks.values_of(service, None)}
    return await console_page("applications/setup.html", is_brief=bool(query_args.brief), **values)
