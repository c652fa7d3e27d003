"""Access to an organization's services: settings, assigned users, and the signed-in user's applications."""

from typing import Annotated
from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.applications import access, services
from core.applications.model import users
from core.kernel.api_scopes import Area
from core.kernel.roles import Capability
from core.kernel.values import Email
from entrypoints.http import kit
from entrypoints.http.api.applications.services import existing_service
from entrypoints.http.api.tenancy.assignments import (
    AssignedGroupListResponse,
    AssignedUserResponse,
    AssignmentRequest,
    AssignmentsQuery,
    to_group_list,
)
from entrypoints.http.base.context import app_context

routes = Blueprint("service_access", __name__)

SELF_ENROLLED = "Whether SAML also admits users who signed up by themselves. It matters under the policy `anyone`."
LAUNCH_URL = 'The page of the application that "Your applications" opens, unless SAML opens it; null if there is none.'


class ServiceAccessRequest(kit.RequestModel):
    """A service's access settings. They replace the previous settings."""

    policy: Annotated[users.AccessPolicy, Field(strict=False)] = Field(
        description="The users that the service admits. `anyone`: every account, which becomes an end user by signing in. `members`: "
        "members of the organization. `assigned`: users that an admin, an API key or the directory assigned, users in an assigned group, "
        "and subscribers. `members_and_assigned`: members, and these users.",
        examples=["assigned"],
    )
    saml_self_enrolled: bool = Field(default=False, description=SELF_ENROLLED)
    launch_url: kit.Text | None = Field(default=None, description=LAUNCH_URL, examples=["https://shop.example.com/"])


class ServiceAccessResponse(kit.ResponseModel):
    """A service's access settings."""

    policy: users.AccessPolicy = Field(description="The users that the service admits.")
    saml_self_enrolled: bool = Field(description=SELF_ENROLLED)
    launch_url: str | None = Field(description=LAUNCH_URL)


@routes.get("/api/organizations/<org_slug>/services/<service_slug>/access")
@kit.member(Capability.SERVICES_VIEW)
async def get(org_slug: str, service_slug: str) -> ServiceAccessResponse:
    """Get a service's access settings.

    They decide who may use the service: anyone, members, assigned users, or members and assigned users.
    """
    return ServiceAccessResponse.of((await services.find(kit.ports(), kit.acting(), service_slug)).access)


@routes.put("/api/organizations/<org_slug>/services/<service_slug>/access")
@kit.member(Capability.SERVICES_MANAGE, kit.GIVES)
@kit.refuses(409)
@existing_service
async def replace(org_slug: str, service_slug: str, data: ServiceAccessRequest) -> ServiceAccessResponse:
    """Replace a service's access settings.

    Users who lose access are signed out of the service at once. Users that the organization's directory blocks are
    never admitted. Changing the policy from `assigned` to a different policy ends the assignments by the directory.
    409: a group has the name of a service with the policy `assigned`.
    """
    settings = users.AccessSettings(data.policy, data.saml_self_enrolled, data.launch_url)
    return ServiceAccessResponse.of(await access.save_settings(kit.ports(), kit.acting(), service_slug, settings))


class AssignmentResponse(kit.ResponseModel):
    """A user that is assigned to the service."""

    user_id: UUID = Field(description="The id of the user.")
    email: str = Field(description="The email address of the user.")
    assigned_by: users.EnrollmentOrigin = Field(description="Who assigned the user: `admin`, `api_key` or `directory`.")
    first_login_at: kit.Timestamp | None = Field(description="The time of the first login, in UTC, or null if there was none.")
    last_login_at: kit.Timestamp | None = Field(description="The time of the last login, in UTC, or null if there was none.")


class AssignmentListResponse(kit.ResponseModel):
    """A page of the users that are assigned to the service."""

    assignments: list[AssignmentResponse] = Field(description="The assigned users, in the order in which they came to the service.")
    pagination: kit.Pagination = Field(description="The position of this page in the list.")


@routes.get("/api/organizations/<org_slug>/services/<service_slug>/assignments")
@kit.member(Capability.END_USERS_VIEW)
async def list_assignments(org_slug: str, service_slug: str, query_args: AssignmentsQuery) -> AssignmentListResponse:
    """List the users that are assigned to a service.

    Users with a subscription are admitted like assigned users, but are not in this list.
    """
    result = await access.list_assignments(kit.ports(), kit.acting(), service_slug, query_args.page_request(), search=query_args.search)
    return AssignmentListResponse(assignments=AssignmentResponse.list_of(result.items), pagination=query_args.pagination(result.total))


@routes.post("/api/organizations/<org_slug>/services/<service_slug>/assignments")
@kit.member(Capability.END_USERS_MANAGE, kit.GIVES)
@existing_service
async def assign_by_email(org_slug: str, service_slug: str, data: AssignmentRequest) -> AssignedUserResponse:
    """Assign a user to a service by email address.

    The rules for `PUT` apply. An address without an account is refused like a user who does not belong to the
    organization.
    """
    user_id = await access.assign_by_email(kit.ports(), kit.acting(), service_slug, Email(data.email))
    return AssignedUserResponse(user_id=user_id)


@routes.put("/api/organizations/<org_slug>/services/<service_slug>/assignments/<user_id>")
@kit.member(Capability.END_USERS_MANAGE, kit.GIVES)
@kit.describes({204: "The user is assigned to the service."})
async def assign(org_slug: str, service_slug: str, user_id: UUID) -> None:
    """Assign a user to a service.

    The user must be an end user or a confirmed member of the organization. A membership is
    confirmed when the member uses the organization. Assigning a user again changes nothing. When a
    user's membership ends, their assignments end, too.
    """
    await access.assign(kit.ports(), kit.acting(), service_slug, user_id)


@routes.delete("/api/organizations/<org_slug>/services/<service_slug>/assignments/<user_id>")
@kit.member(Capability.END_USERS_MANAGE, kit.GIVES)
@kit.describes({204: "The user is no longer assigned to the service."})
async def unassign(org_slug: str, service_slug: str, user_id: UUID) -> None:
    """End a user's assignment to a service.

    Under the policy `assigned`, the user is signed out of the service at once, unless a subscription or a group
    gives access.
    """
    await access.unassign(kit.ports(), kit.acting(), service_slug, user_id)


@routes.get("/api/organizations/<org_slug>/services/<service_slug>/groups")
@kit.member(Capability.END_USERS_VIEW)
async def list_groups(org_slug: str, service_slug: str) -> AssignedGroupListResponse:
    """List the groups that are assigned to a service.

    Under the policy `assigned`, their users may use the service. They are not in the list of assigned users.
    """
    return to_group_list(await access.list_groups(kit.ports(), kit.acting(), service_slug))


@routes.put("/api/organizations/<org_slug>/services/<service_slug>/groups/<group_id>")
@kit.member(Capability.END_USERS_MANAGE, kit.GIVES)
@kit.describes({204: "The group is assigned to the service."})
async def assign_group(org_slug: str, service_slug: str, group_id: UUID) -> None:
    """Assign a group to a service.

    It counts under the policy `assigned`. Users who join the group later may use the service, too. Assigning a group
    again changes nothing.
    """
    await access.assign_group(kit.ports(), kit.acting(), service_slug, group_id)


@routes.delete("/api/organizations/<org_slug>/services/<service_slug>/groups/<group_id>")
@kit.member(Capability.END_USERS_MANAGE, kit.GIVES)
@kit.describes({204: "The group is no longer assigned to the service."})
async def unassign_group(org_slug: str, service_slug: str, group_id: UUID) -> None:
    """End a group's assignment to a service.

    Under the policy `assigned`, users who have access by nothing else lose it, and their sessions there end.
    """
    await access.unassign_group(kit.ports(), kit.acting(), service_slug, group_id)


class GroupServiceResponse(kit.ResponseModel):
    """A service that a group is assigned to."""

    id: UUID = Field(description="The id of the service.")
    slug: str = Field(description="The slug of the service.")
    name: str = Field(description="The name of the service.")


class GroupServiceListResponse(kit.ResponseModel):
    """The services that a group is assigned to."""

    services: list[GroupServiceResponse] = Field(description="The services, by name. The list has no pages.")
    total: int = Field(description="The number of services.")


@routes.get("/api/organizations/<org_slug>/groups/<group_id>/services")
@kit.member(Capability.END_USERS_VIEW)
async def list_services_of_group(org_slug: str, group_id: UUID) -> GroupServiceListResponse:
    """List the services that a group is assigned to.

    Under the policy `assigned`, the group's users may use them.
    """
    listed = await access.list_services_of_group(kit.ports(), kit.acting(), group_id)
    return GroupServiceListResponse(services=GroupServiceResponse.list_of(listed), total=len(listed))


class ApplicationOrganizationResponse(kit.ResponseModel):
    """The organization of an application."""

    slug: str = Field(description="The slug of the organization.")
    name: str = Field(description="The organization's name, or its product's name.")
    logo_url: str | None = Field(description="The URL of its logo, or null if there is none.")


class OwnApplicationResponse(kit.ResponseModel):
    """An application that you may use."""

    id: UUID = Field(description="The id of the application.")
    slug: str = Field(description="The slug of the application.")
    name: str = Field(description="The name of the application.")
    organization: ApplicationOrganizationResponse = Field(description="The organization of the application.")
    launch_url: str | None = Field(
        description="The URL to open in your browser. It signs you in with SAML, or is the launch URL of the application; null if there "
        "is neither."
    )


class OwnApplicationListResponse(kit.ResponseModel):
    """The applications that you may use."""

    applications: list[OwnApplicationResponse] = Field(description="The applications, by organization and name. At most 200.")


def launch_url(application: users.OwnApplication) -> str | None:
    """Return the URL that opens the application for this user, or None if there is none."""
    if application.starts_with_saml:
        return f"{app_context().base_url}/api/organizations/{application.org_slug}/services/{application.slug}/saml/login"
    return application.launch_url


@routes.get("/api/user/applications")
@kit.person_anywhere(area=Area.ACCOUNT, restricted=kit.Restricted.YES)
async def list_own_applications() -> OwnApplicationListResponse:
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
        for each in await access.list_own_applications(kit.ports(), kit.signed_in())
    ]
    return OwnApplicationListResponse(applications=applications)
