"""An organization's API resources: settings, clients, and assigned users."""

from typing import Annotated
from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.applications.model.users import AccessPolicy
from core.kernel import values
from core.kernel.roles import Capability
from core.programs import api_resources
from core.programs.api_resources import ApiResourceChanges
from core.programs.model.api_resources import DEFAULT_TOKEN_SECONDS, MAX_TOKEN_SECONDS, MIN_TOKEN_SECONDS, ResourceScope
from entrypoints.http import kit
from entrypoints.http.api.tenancy.assignments import (
    AssignedGroupListResponse,
    AssignedUserResponse,
    AssignmentRequest,
    AssignmentsQuery,
    to_group_list,
)

routes = Blueprint("api_resources", __name__)


@kit.before_body
async def existing_resource(resource_id: UUID, **_: object) -> None:
    """Answer 404 if there is no API resource `<resource_id>`."""
    await api_resources.find(kit.ports(), kit.acting(), resource_id)


TokenSeconds = Annotated[int, Field(ge=MIN_TOKEN_SECONDS, le=MAX_TOKEN_SECONDS)]


class ResourceScopeRequest(kit.RequestModel):
    """An API resource's scope."""

    name: kit.Text = Field(
        description="The scope, as applications ask for it. It must not be an OpenID Connect scope.", examples=["orders:read"]
    )
    description: kit.Description = Field(description="What it allows. Users read this before they agree.", examples=["Read your orders"])
    implies: kit.Texts = Field(default=[], description="Other scopes that are granted with this scope.", examples=[[]])


Scopes = Annotated[list[ResourceScopeRequest], Field(max_length=100)]


class ApiResourceRequest(kit.RequestModel):
    """A new API resource."""

    identifier: kit.Text = Field(
        description="The API's URL at the organization's verified domain, or `urn:gatehouse:<organization id>:<name>`. It"
        " becomes the `aud` in access tokens, and cannot be changed.",
        examples=["https://api.example.com/"],
    )
    name: kit.Name = Field(description="The name of the API, which users see.", examples=["Orders API"])
    scopes: Scopes = Field(
        default=[],
        description="The scopes that applications can ask for: at most 50. Their names, joined by spaces, have at most 1,500 characters.",
    )
    token_seconds: TokenSeconds = Field(default=DEFAULT_TOKEN_SECONDS, description="The lifetime of access tokens in seconds.")


class ApiResourceUpdateRequest(kit.RequestModel):
    """The API resource's fields to change."""

    model_config = kit.AT_LEAST_ONE_FIELD

    name: kit.Name | values.Keep = kit.optional(description="The name of the API.")
    scopes: Scopes | values.Keep = kit.optional(description="All scopes. They replace the previous scopes.")
    token_seconds: TokenSeconds | values.Keep = kit.optional(description="The lifetime of access tokens in seconds.")


class ResourceScopeResponse(kit.ResponseModel):
    """An API resource's scope."""

    name: str = Field(description="The scope, as applications ask for it.")
    description: str = Field(description="What it allows.")
    implies: list[str] = Field(description="Other scopes that are granted with this scope.")


class ApiResourceResponse(kit.ResponseModel):
    """An API resource."""

    id: UUID = Field(description="The id of the API resource, which is also its client id for introspection.")
    identifier: str = Field(description="The `aud` of its access tokens.")
    name: str = Field(description="The name of the API.")
    scopes: list[ResourceScopeResponse] = Field(description="The scopes that applications can ask for.")
    token_seconds: int = Field(description="The lifetime of its access tokens in seconds.")
    policy: AccessPolicy = Field(description="The users that applications get tokens for.")
    is_active: bool = Field(
        description="Whether tokens are issued. False if the organization no longer has the verified domain of the identifier."
    )
    created_at: kit.Timestamp = Field(description="The time at which the API resource was created, in UTC.")


class ApiResourceListResponse(kit.ResponseModel):
    """An organization's API resources."""

    api_resources: list[ApiResourceResponse] = Field(description="The API resources, oldest first. There are at most 100.")


def to_scopes(scopes: list[ResourceScopeRequest]) -> list[ResourceScope]:
    """Return the scopes in a request."""
    return [ResourceScope(scope.name, scope.description, tuple(scope.implies)) for scope in scopes]


def to_changes(data: ApiResourceUpdateRequest) -> ApiResourceChanges:
    """Return the changes in a request."""
    scopes = values.KEEP if isinstance(data.scopes, values.Keep) else to_scopes(data.scopes)
    return ApiResourceChanges(name=data.name, scopes=scopes, token_seconds=data.token_seconds)


@routes.get("/api/organizations/<org_slug>/api-resources")
@kit.member(Capability.RESOURCES_VIEW)
async def list_resources(org_slug: str) -> ApiResourceListResponse:
    """List the organization's API resources.

    Every API resource has its identifier, its scopes and its access tokens' lifetime.
    """
    return ApiResourceListResponse(api_resources=ApiResourceResponse.list_of(await api_resources.list_resources(kit.ports(), kit.acting())))


@routes.post("/api/organizations/<org_slug>/api-resources")
@kit.member(Capability.RESOURCES_MANAGE, kit.GIVES)
@kit.refuses(409)
@kit.returns(201)
async def create(org_slug: str, data: ApiResourceRequest) -> ApiResourceResponse:
    """Create an API resource.

    An API resource is an API that applications get access tokens for. At first, no application may ask for it, and its
    policy admits every user. The host in an https identifier must be the organization's verified domain, or below it.
    """
    resource = await api_resources.create(kit.ports(), kit.acting(), data.identifier, data.name, to_scopes(data.scopes), data.token_seconds)
    return ApiResourceResponse.of(resource)


@routes.get("/api/organizations/<org_slug>/api-resources/<resource_id>")
@kit.member(Capability.RESOURCES_VIEW)
async def get(org_slug: str, resource_id: UUID) -> ApiResourceResponse:
    """Get an API resource.

    It is inactive while the organization has not verified the host in its identifier.
    """
    return ApiResourceResponse.of(await api_resources.find(kit.ports(), kit.acting(), resource_id))


@routes.patch("/api/organizations/<org_slug>/api-resources/<resource_id>")
@kit.member(Capability.RESOURCES_MANAGE, kit.GIVES)
@existing_resource
async def update(org_slug: str, resource_id: UUID, data: ApiResourceUpdateRequest) -> ApiResourceResponse:
    """Change an API resource.

    Access tokens have a removed scope until they expire. An application loses a removed scope that it
    had for itself.
    """
    return ApiResourceResponse.of(await api_resources.update(kit.ports(), kit.acting(), resource_id, to_changes(data)))


@routes.delete("/api/organizations/<org_slug>/api-resources/<resource_id>")
@kit.member(Capability.RESOURCES_MANAGE, kit.GIVES)
@kit.describes({204: "The API resource is deleted."})
async def delete(org_slug: str, resource_id: UUID) -> None:
    """Delete an API resource.

    Applications get no further tokens for it. Introspection calls its tokens inactive from now on; an
    API that checks tokens by itself accepts them until they expire.
    """
    await api_resources.delete(kit.ports(), kit.acting(), resource_id)


# The users that applications get tokens for


class ApiResourceAccessRequest(kit.RequestModel):
    """An API resource's access policy."""

    policy: Annotated[AccessPolicy, Field(strict=False)] = Field(
        description="The users that applications get tokens for. `anyone`: every user of the application. `members`: members of the "
        "organization. `assigned`: users that an admin assigned to the API resource, and users in an assigned group. "
        "`members_and_assigned`: members, and these users.",
        examples=["members"],
    )


class ApiResourceAccessResponse(kit.ResponseModel):
    """An API resource's access policy."""

    policy: AccessPolicy = Field(description="The users that applications get tokens for.")


@routes.get("/api/organizations/<org_slug>/api-resources/<resource_id>/access")
@kit.member(Capability.RESOURCES_VIEW)
async def get_access(org_slug: str, resource_id: UUID) -> ApiResourceAccessResponse:
    """Get an API resource's access policy.

    The policy decides which users applications get access tokens for.
    """
    return ApiResourceAccessResponse(policy=(await api_resources.find(kit.ports(), kit.acting(), resource_id)).policy)


@routes.put("/api/organizations/<org_slug>/api-resources/<resource_id>/access")
@kit.member(Capability.RESOURCES_MANAGE, kit.GIVES)
@existing_resource
async def replace_access(org_slug: str, resource_id: UUID, data: ApiResourceAccessRequest) -> ApiResourceAccessResponse:
    """Replace an API resource's access policy.

    A user who loses access loses it at the next refresh, and introspection calls their tokens
    inactive at once. Users that the organization's directory blocks never have access.
    """
    resource = await api_resources.save_policy(kit.ports(), kit.acting(), resource_id, data.policy)
    return ApiResourceAccessResponse.of(resource)


class ResourceAssignmentResponse(kit.ResponseModel):
    """A user that is assigned to an API resource."""

    user_id: UUID = Field(description="The id of the user.")
    email: str = Field(description="The email address of the user.")
    assigned_at: kit.Timestamp = Field(description="The time of the assignment, in UTC.")


class ResourceAssignmentListResponse(kit.ResponseModel):
    """A page of the users that are assigned to an API resource."""

    assignments: list[ResourceAssignmentResponse] = Field(description="The assigned users, earliest first.")
    pagination: kit.Pagination = Field(description="The position of this page in the list.")


@routes.get("/api/organizations/<org_slug>/api-resources/<resource_id>/assignments")
@kit.member(Capability.RESOURCES_VIEW)
async def list_assignments(org_slug: str, resource_id: UUID, query_args: AssignmentsQuery) -> ResourceAssignmentListResponse:
    """List the users that are assigned to an API resource.

    Assignments count under the policies `assigned` and `members_and_assigned`. 403 if your role does not see the organization's end users.
    """
    result = await api_resources.list_assignments(
        kit.ports(), kit.acting(), resource_id, query_args.page_request(), search=query_args.search
    )
    return ResourceAssignmentListResponse(
        assignments=ResourceAssignmentResponse.list_of(result.items), pagination=query_args.pagination(result.total)
    )


@routes.post("/api/organizations/<org_slug>/api-resources/<resource_id>/assignments")
@kit.member(Capability.RESOURCES_MANAGE, kit.GIVES)
@existing_resource
async def assign_by_email(org_slug: str, resource_id: UUID, data: AssignmentRequest) -> AssignedUserResponse:
    """Assign a user to an API resource by email address.

    The rules for `PUT` apply. An address without an account is refused like a user who does not belong to the
    organization.
    """
    user_id = await api_resources.assign_by_email(kit.ports(), kit.acting(), resource_id, values.Email(data.email))
    return AssignedUserResponse(user_id=user_id)


@routes.put("/api/organizations/<org_slug>/api-resources/<resource_id>/assignments/<user_id>")
@kit.member(Capability.RESOURCES_MANAGE, kit.GIVES)
@kit.describes({204: "The user is assigned to the API resource."})
async def assign(org_slug: str, resource_id: UUID, user_id: UUID) -> None:
    """Assign a user to an API resource.

    The user must be an end user or a confirmed member of the organization. Assigning a user again
    changes nothing. When a user's membership ends, their assignments end, too.
    """
    await api_resources.assign(kit.ports(), kit.acting(), resource_id, user_id)


@routes.delete("/api/organizations/<org_slug>/api-resources/<resource_id>/assignments/<user_id>")
@kit.member(Capability.RESOURCES_MANAGE, kit.GIVES)
@kit.describes({204: "The user is no longer assigned to the API resource."})
async def unassign(org_slug: str, resource_id: UUID, user_id: UUID) -> None:
    """End a user's assignment to an API resource.

    Unless another rule admits them, the user loses access at the next refresh, and introspection calls
    their tokens inactive at once.
    """
    await api_resources.unassign(kit.ports(), kit.acting(), resource_id, user_id)


@routes.get("/api/organizations/<org_slug>/api-resources/<resource_id>/groups")
@kit.member(Capability.RESOURCES_VIEW)
async def list_groups(org_slug: str, resource_id: UUID) -> AssignedGroupListResponse:
    """List the groups that are assigned to an API resource.

    Under the policies `assigned` and `members_and_assigned`, applications get tokens for their users. 403 if your role
    does not see the organization's end users.
    """
    return to_group_list(await api_resources.list_groups(kit.ports(), kit.acting(), resource_id))


@routes.put("/api/organizations/<org_slug>/api-resources/<resource_id>/groups/<group_id>")
@kit.member(Capability.RESOURCES_MANAGE, kit.GIVES)
@kit.describes({204: "The group is assigned to the API resource."})
async def assign_group(org_slug: str, resource_id: UUID, group_id: UUID) -> None:
    """Assign a group to an API resource.

    Under these policies, applications get tokens for the group's confirmed members and end users. Assigning a group again changes
    nothing.
    """
    await api_resources.assign_group(kit.ports(), kit.acting(), resource_id, group_id)


@routes.delete("/api/organizations/<org_slug>/api-resources/<resource_id>/groups/<group_id>")
@kit.member(Capability.RESOURCES_MANAGE, kit.GIVES)
@kit.describes({204: "The group is no longer assigned to the API resource."})
async def unassign_group(org_slug: str, resource_id: UUID, group_id: UUID) -> None:
    """End a group's assignment to an API resource.

    Users who lose access by this lose it at the next refresh, and introspection calls their tokens inactive at once.
    """
    await api_resources.unassign_group(kit.ports(), kit.acting(), resource_id, group_id)


# The applications that may ask for it


class ResourceClientRequest(kit.RequestModel):
    """An application's rights at an API resource."""

    scopes: kit.Texts = Field(
        description="The scopes that the application gets for itself, with the grant `client_credentials`. If the list is empty, it gets "
        "tokens on behalf of users only."
    )


class ResourceClientResponse(kit.ResponseModel):
    """An application that may ask for an API resource."""

    client_id: UUID = Field(description="The client id of the application.")
    slug: str = Field(description="The slug of the application.")
    name: str = Field(description="The name of the application.")
    scopes: list[str] = Field(description="The scopes that the application gets for itself, without a user.")
    created_at: kit.Timestamp = Field(description="The time since which the application may ask, in UTC.")


class ResourceClientListResponse(kit.ResponseModel):
    """A page of the applications that may ask for an API resource."""

    clients: list[ResourceClientResponse] = Field(description="The applications, by name.")
    pagination: kit.Pagination = Field(description="The position of this page in the list.")


@routes.get("/api/organizations/<org_slug>/api-resources/<resource_id>/clients")
@kit.member(Capability.RESOURCES_VIEW)
async def list_clients(org_slug: str, resource_id: UUID, query_args: kit.PageQuery) -> ResourceClientListResponse:
    """List the applications that may ask for an API resource.

    `scopes` are the scopes that an application gets for itself, without a user.
    """
    result = await api_resources.list_clients(kit.ports(), kit.acting(), resource_id, query_args.page_request())
    return ResourceClientListResponse(clients=ResourceClientResponse.list_of(result.items), pagination=query_args.pagination(result.total))


@routes.put("/api/organizations/<org_slug>/api-resources/<resource_id>/clients/<client_id>")
@kit.member(Capability.RESOURCES_MANAGE, kit.GIVES)
@existing_resource
async def save_client(org_slug: str, resource_id: UUID, client_id: UUID, data: ResourceClientRequest) -> ResourceClientResponse:
    """Let an application ask for an API resource.

    The application belongs to the same organization. It can ask for all the API resource's scopes on behalf of its
    users, who agree to them. The body has the scopes that it gets for itself.
    """
    return ResourceClientResponse.of(await api_resources.save_client(kit.ports(), kit.acting(), resource_id, client_id, data.scopes))


@routes.delete("/api/organizations/<org_slug>/api-resources/<resource_id>/clients/<client_id>")
@kit.member(Capability.RESOURCES_MANAGE, kit.GIVES)
@kit.describes({204: "The application may no longer ask for the API resource."})
async def remove_client(org_slug: str, resource_id: UUID, client_id: UUID) -> None:
    """Forbid an application to ask for an API resource.

    It gets no further tokens, and introspection calls its tokens inactive at once.
    """
    await api_resources.remove_client(kit.ports(), kit.acting(), resource_id, client_id)
