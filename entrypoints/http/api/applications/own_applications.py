"""The signed-in user's applications."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.applications import own_applications
from core.applications.model.users import OwnApplication
from core.kernel.api_scopes import Area
from entrypoints.http.base.context import app_context, ports, signed_in
from entrypoints.http.edge.access import person_anywhere
from entrypoints.http.edge.access.declaration import Bounded
from entrypoints.http.edge.bodies import ResponseModel

routes = Blueprint("own_applications", __name__)


class ApplicationOrganizationResponse(ResponseModel):
    """The organization of an application."""

    slug: str = Field(description="The slug of the organization.")
    name: str = Field(description="The organization's name, or its product's name.")
    logo_url: str | None = Field(description="The URL of its logo, or null if there is none.")


class OwnApplicationResponse(ResponseModel):
    """An application that you may use."""

    id: UUID = Field(description="The id of the application.")
    slug: str = Field(description="The slug of the application.")
    name: str = Field(description="The name of the application.")
    organization: ApplicationOrganizationResponse = Field(description="The organization of the application.")
    launch_url: str | None = Field(
        description="The URL to open in your browser. It signs you in with SAML, or is the launch URL of the application; null if there "
        "is neither."
    )


class OwnApplicationListResponse(ResponseModel):
    """The applications that you may use."""

    applications: list[OwnApplicationResponse] = Field(description="The applications, by organization and name. At most 200.")


def launch_url(application: OwnApplication) -> str | None:
    """Return the URL that opens the application for this user, or None if there is none."""
    if application.starts_with_saml:
        return f"{app_context().base_url}/api/organizations/{application.org_slug}/services/{application.slug}/saml/login"
    return application.launch_url


@routes.get("/api/user/applications")
@person_anywhere(area=Area.ACCOUNT, bounded=Bounded.YES)
async def list_own() -> OwnApplicationListResponse:
    """List the applications that you may use.

    These are the applications that you have used or are assigned to, and the applications in organizations that you
    have joined. Applications that would refuse you are left out.
    """
    applications = [
        OwnApplicationResponse.of(
            each,
            organization=ApplicationOrganizationResponse(slug=each.org_slug, name=each.organization, logo_url=each.logo_url),
            launch_url=launch_url(each),
        )
        for each in await own_applications.list_own(ports(), signed_in())
    ]
    return OwnApplicationListResponse(applications=applications)
