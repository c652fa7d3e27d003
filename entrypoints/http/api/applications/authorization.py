"""A service's permissions and roles, in a document or alone, managed by members."""

from typing import Annotated

from pydantic import Field, WithJsonSchema
from quart import Blueprint

from core.applications import authorization
from core.applications.authorization import AuthorizationCaller
from core.applications.model.authorization import (
    MAX_PERMISSION_LENGTH,
    MAX_PERMISSIONS,
    MAX_ROLES,
    NO_HOLDERS,
    PERMISSION_PATTERN,
    AuthorizationDocument,
    AuthorizationResult,
    DeclaredPermission,
    HolderCount,
    RoleDefinition,
    ServiceAuthorization,
    StoredRole,
)
from core.kernel.roles import Capability
from core.kernel.values import KEEP
from core.tenancy.model.roles import ROLE_PATTERN
from entrypoints.http import kit
from entrypoints.http.api.applications.services import existing_service
from entrypoints.http.edge.versions import expected_versions, version_headers

routes = Blueprint("authorization", __name__)

SERVICE = "/api/organizations/<org_slug>/services/<service_slug>"
NAME_OF_PERMISSION = "The name of the permission, such as `documents:write`."
DESCRIPTION_OF_PERMISSION = "What the permission allows, for the admins who make roles; null without."
SLUG_OF_ROLE = "The name of the role in tokens and URLs. It cannot be changed, and is not one of the organization's roles."
DESCRIPTION_OF_ROLE = "What the role is for, for the admins who give it; null without."
USERS_OF_ROLE = "The number of users who have the role themselves."
GROUPS_OF_ROLE = "The number of groups that have the role."
PERMISSIONS_OF_ROLE = "The permissions that the role gives. The service declares each of them."

# Plain strings, because the use case names the wrong string.
PermissionName = Annotated[
    kit.Text, WithJsonSchema({"type": "string", "pattern": f"^{PERMISSION_PATTERN}$", "maxLength": MAX_PERMISSION_LENGTH})
]
RoleSlug = Annotated[kit.Text, WithJsonSchema({"type": "string", "pattern": f"^{ROLE_PATTERN}$"})]
PermissionNames = Annotated[list[PermissionName], Field(max_length=MAX_PERMISSIONS)]


class DeclaredPermissionRequest(kit.RequestModel):
    """A permission of a service."""

    name: PermissionName = Field(description=NAME_OF_PERMISSION, examples=["documents:write"])
    description: kit.Description | None = Field(default=None, description=DESCRIPTION_OF_PERMISSION, examples=["Change documents"])


class RoleDefinitionRequest(kit.RequestModel):
    """A role of a service."""

    slug: RoleSlug = Field(description=SLUG_OF_ROLE, examples=["editor"])
    name: kit.Name = Field(description="The name of the role on pages.", examples=["Editor"])
    description: kit.Description | None = Field(default=None, description=DESCRIPTION_OF_ROLE)
    permissions: PermissionNames = Field(default=[], description=PERMISSIONS_OF_ROLE, examples=[["documents:write"]])

    def build(self) -> RoleDefinition:
        """Return the role."""
        return RoleDefinition(self.slug, self.name, self.description, tuple(self.permissions))


class RoleOfDocumentRequest(RoleDefinitionRequest):
    """A role in the document with all roles. It always says its permissions, so that a mistyped name takes none away."""

    permissions: PermissionNames = Field(description=PERMISSIONS_OF_ROLE, examples=[["documents:write"]])


class AuthorizationRequest(kit.RequestModel):
    """All permissions and roles in a service. They replace the previous permissions and roles. The order does not matter."""

    permissions: Annotated[list[DeclaredPermissionRequest], Field(max_length=MAX_PERMISSIONS)] = Field(
        description="The permissions that the service declares, at most 200."
    )
    roles: Annotated[list[RoleOfDocumentRequest], Field(max_length=MAX_ROLES)] = Field(
        description="The roles that the service makes of its permissions, at most 50."
    )

    def build(self) -> AuthorizationDocument:
        """Return the document."""
        return AuthorizationDocument.parse(
            (DeclaredPermission(each.name, each.description) for each in self.permissions), (role.build() for role in self.roles)
        )


class DeclaredPermissionResponse(kit.ResponseModel):
    """A permission that the service declares."""

    name: str = Field(description=NAME_OF_PERMISSION)
    description: str | None = Field(description=DESCRIPTION_OF_PERMISSION)


class RoleDefinitionResponse(kit.ResponseModel):
    """A role of the service, as the document has it."""

    slug: str = Field(description=SLUG_OF_ROLE)
    name: str = Field(description="The name of the role on pages.")
    description: str | None = Field(description=DESCRIPTION_OF_ROLE)
    permissions: list[str] = Field(description=PERMISSIONS_OF_ROLE)


class AuthorizationResponse(kit.ResponseModel):
    """All the service's permissions and roles. It can be sent back with `PUT`."""

    version: int = Field(description="The number of changes so far. The `ETag` has it, too.")
    permissions: list[DeclaredPermissionResponse] = Field(description="The permissions, sorted by name.")
    roles: list[RoleDefinitionResponse] = Field(description="The roles, sorted by slug.")


class RoleUpdateResponse(kit.ResponseModel):
    """A role that changes."""

    slug: str = Field(description="The slug of the role.")
    fields: list[str] = Field(description="The fields that change: `name` and `description`.")
    permissions_added: list[str] = Field(description="The permissions that its users get.")
    permissions_removed: list[str] = Field(description="The permissions that its users lose.")
    user_count: int = Field(description=USERS_OF_ROLE)
    group_count: int = Field(description=GROUPS_OF_ROLE)


class RoleRemovalResponse(kit.ResponseModel):
    """A role that is deleted."""

    slug: str = Field(description="The slug of the role.")
    user_count: int = Field(description="The number of users who had the role themselves.")
    group_count: int = Field(description="The number of groups that lose the role.")


class AuthorizationChangesResponse(kit.ResponseModel):
    """The difference to the previous document."""

    permissions_added: list[str] = Field(description="The permissions that are new.")
    permissions_updated: list[str] = Field(description="The permissions with another description.")
    permissions_removed: list[str] = Field(description="The permissions that are no longer declared.")
    roles_added: list[str] = Field(description="The slugs of the roles that are new.")
    roles_updated: list[RoleUpdateResponse] = Field(description="The roles that change.")
    roles_removed: list[RoleRemovalResponse] = Field(description="The roles that are deleted.")
    needs_confirmation: bool = Field(description="Whether users or groups lose a role. Then the change needs `confirm=true`.")


class AuthorizationResultResponse(AuthorizationResponse):
    """All the service's permissions and roles after the change, and what changed. After a dry run, `version` is the present version."""

    dry_run: bool = Field(description="Whether nothing was changed, because the request asked for a dry run.")
    changes: AuthorizationChangesResponse = Field(description="The difference to the previous document.")


class ConfirmationQuery(kit.Query):
    """The confirmation for a deletion."""

    confirm: kit.Flag = Field(default=False, description="Whether to delete roles that users or groups have. They lose them.")


class AuthorizationQuery(ConfirmationQuery):
    """The way in which the document is replaced."""

    dry_run: kit.Flag = Field(default=False, description="Whether to return the changes without making them.")


async def get_authorization(caller: AuthorizationCaller, slug: str) -> tuple[AuthorizationResponse, int, dict[str, str]]:
    """Return the response with a service's permissions and roles."""
    found = await authorization.get(kit.ports(), caller, slug)
    return to_authorization_response(found), 200, version_headers(found.version)


def to_authorization_response(found: ServiceAuthorization) -> AuthorizationResponse:
    """Return the response with these permissions and roles."""
    document = found.document
    return AuthorizationResponse.of(
        document,
        version=found.version,
        permissions=DeclaredPermissionResponse.list_of(document.permissions),
        roles=RoleDefinitionResponse.list_of(document.roles),
    )


async def replace_authorization(
    caller: AuthorizationCaller, slug: str, query: AuthorizationQuery, data: AuthorizationRequest
) -> tuple[AuthorizationResultResponse, int, dict[str, str]]:
    """Replace a service's permissions and roles, or only preview the changes, and return the response."""
    document, versions = data.build(), expected_versions()
    if query.dry_run:
        result = await authorization.preview(kit.ports(), caller, slug, document, versions=versions)
    else:
        result = await authorization.replace_document(kit.ports(), caller, slug, document, versions=versions, confirmed=query.confirm)
    return _to_result_response(result, dry_run=query.dry_run), 200, version_headers(result.version)


def _to_result_response(result: AuthorizationResult, *, dry_run: bool) -> AuthorizationResultResponse:
    return AuthorizationResultResponse(
        version=result.version,
        permissions=DeclaredPermissionResponse.list_of(result.document.permissions),
        roles=RoleDefinitionResponse.list_of(result.document.roles),
        dry_run=dry_run,
        changes=AuthorizationChangesResponse.of(result.changes),
    )


@routes.get(f"{SERVICE}/authorization")
@kit.member(Capability.SERVICES_VIEW)
@kit.has_version
async def get(org_slug: str, service_slug: str) -> tuple[AuthorizationResponse, int, dict[str, str]]:
    """Get a service's permissions and roles.

    The response can be changed and sent back with `PUT`, with its `ETag` in `If-Match`.
    """
    return await get_authorization(kit.acting(), service_slug)


@routes.put(f"{SERVICE}/authorization")
@kit.member(Capability.SERVICES_MANAGE, kit.GIVES)
@kit.takes_version
@kit.refuses(409)
@existing_service
async def replace(
    org_slug: str, service_slug: str, query_args: AuthorizationQuery, data: AuthorizationRequest
) -> tuple[AuthorizationResultResponse, int, dict[str, str]]:
    """Replace a service's permissions and roles.

    A build pipeline can always send the same document: without a difference, nothing changes. With `dry_run=true`,
    nothing changes, and the answer has the changes. Users with a role that stays get and lose its permissions at once.
    To delete a role that users or groups have, send `confirm=true`.
    """
    return await replace_authorization(kit.acting(), service_slug, query_args, data)


# A single permission or role


@kit.before_body
async def existing_permission(service_slug: str, permission_name: str, **_: object) -> None:
    """Answer 404 if the service declares no permission `<permission_name>`."""
    await authorization.find_permission(kit.ports(), kit.acting(), service_slug, permission_name)


@routes.post(f"{SERVICE}/permissions")
@kit.member(Capability.SERVICES_MANAGE, kit.GIVES)
@kit.refuses(409)
@existing_service
@kit.returns(201)
async def declare_permission(org_slug: str, service_slug: str, data: DeclaredPermissionRequest) -> DeclaredPermissionResponse:
    """Declare a permission for a service.

    No role has it yet.
    """
    permission = DeclaredPermission(data.name, data.description)
    await authorization.declare_permission(kit.ports(), kit.acting(), service_slug, permission)
    return DeclaredPermissionResponse.of(permission)


class DeclaredPermissionUpdateRequest(kit.RequestModel):
    """A permission's new description."""

    description: kit.Description | None = Field(description=DESCRIPTION_OF_PERMISSION)


@routes.patch(f"{SERVICE}/permissions/<permission_name>")
@kit.member(Capability.SERVICES_MANAGE, kit.CHANGES)
@existing_permission
async def describe_permission(
    org_slug: str, service_slug: str, permission_name: str, data: DeclaredPermissionUpdateRequest
) -> DeclaredPermissionResponse:
    """Change a permission's description.

    The name cannot be changed, because the application's code checks it.
    """
    await authorization.describe_permission(kit.ports(), kit.acting(), service_slug, permission_name, data.description)
    return DeclaredPermissionResponse(name=permission_name, description=data.description)


@routes.delete(f"{SERVICE}/permissions/<permission_name>")
@kit.member(Capability.SERVICES_MANAGE, kit.GIVES)
@kit.describes({204: "The permission is no longer declared, and no role has it."})
async def remove_permission(org_slug: str, service_slug: str, permission_name: str) -> None:
    """Remove a permission from a service.

    It is taken from all the service's roles.
    """
    await authorization.remove_permission(kit.ports(), kit.acting(), service_slug, permission_name)


class ServiceRoleResponse(RoleDefinitionResponse):
    """A role of the service."""

    user_count: int = Field(description=USERS_OF_ROLE)
    group_count: int = Field(description=GROUPS_OF_ROLE)
    created_at: kit.Timestamp = Field(description="The time at which the role was created, in UTC.")
    updated_at: kit.Timestamp = Field(description="The time of the role's last change, in UTC.")


def to_role_response(role: StoredRole, number: HolderCount) -> ServiceRoleResponse:
    """Return the response for a stored role with this many users and groups."""
    return ServiceRoleResponse.of(
        role.definition, user_count=number.users, group_count=number.groups, created_at=role.created_at, updated_at=role.updated_at
    )


class ServiceRoleListResponse(kit.ResponseModel):
    """All roles in a service."""

    roles: list[ServiceRoleResponse] = Field(description="The roles, sorted by slug.")


@routes.get(f"{SERVICE}/roles")
@kit.member(Capability.SERVICES_VIEW)
async def list_roles(org_slug: str, service_slug: str) -> ServiceRoleListResponse:
    """List a service's roles.

    Every role says how many users and groups have it.
    """
    found, counts = await authorization.get_with_counts(kit.ports(), kit.acting(), service_slug)
    return ServiceRoleListResponse(roles=[to_role_response(role, counts.get(role.definition.slug, NO_HOLDERS)) for role in found.roles])


@routes.post(f"{SERVICE}/roles")
@kit.member(Capability.SERVICES_MANAGE, kit.GIVES)
@kit.refuses(409)
@existing_service
@kit.returns(201)
async def create_role(org_slug: str, service_slug: str, data: RoleDefinitionRequest) -> ServiceRoleResponse:
    """Create a role in a service.

    Its permissions must be declared.
    """
    await authorization.create_role(kit.ports(), kit.acting(), service_slug, data.build())
    return to_role_response(*await authorization.find_role_with_count(kit.ports(), kit.acting(), service_slug, data.slug))


@kit.before_body
async def existing_role(service_slug: str, role_slug: str, **_: object) -> None:
    """Answer 404 if the service has no role `<role_slug>`."""
    await authorization.find_role(kit.ports(), kit.acting(), service_slug, role_slug)


@routes.get(f"{SERVICE}/roles/<role_slug>")
@kit.member(Capability.SERVICES_VIEW)
async def get_role(org_slug: str, service_slug: str, role_slug: str) -> ServiceRoleResponse:
    """Get a service's role.

    The response says how many users and groups have it.
    """
    return to_role_response(*await authorization.find_role_with_count(kit.ports(), kit.acting(), service_slug, role_slug))


class RoleDefinitionUpdateRequest(kit.RequestModel):
    """The role's fields to change, at least one field."""

    model_config = kit.AT_LEAST_ONE_FIELD

    name: kit.Name = kit.optional(description="The name of the role on pages.")
    description: kit.Description | None = kit.optional(description=DESCRIPTION_OF_ROLE)
    permissions: PermissionNames = kit.optional(description="The permissions that the role gives. They replace the previous permissions.")


@routes.patch(f"{SERVICE}/roles/<role_slug>")
@kit.member(Capability.SERVICES_MANAGE, kit.GIVES)
@existing_role
async def update_role(org_slug: str, service_slug: str, role_slug: str, data: RoleDefinitionUpdateRequest) -> ServiceRoleResponse:
    """Change a service's role.

    Its users get and lose the permissions at once. The slug cannot be changed.
    """
    names: object = data.permissions
    permissions = tuple(names) if isinstance(names, list) else KEEP
    await authorization.update_role(
        kit.ports(), kit.acting(), service_slug, role_slug, name=data.name, description=data.description, permissions=permissions
    )
    return to_role_response(*await authorization.find_role_with_count(kit.ports(), kit.acting(), service_slug, role_slug))


@routes.delete(f"{SERVICE}/roles/<role_slug>")
@kit.member(Capability.SERVICES_MANAGE, kit.GIVES)
@kit.refuses(409)
@kit.describes({204: "The role is deleted. No user or group has it."})
async def delete_role(org_slug: str, service_slug: str, role_slug: str, query_args: ConfirmationQuery) -> None:
    """Delete a service's role.

    If users or groups have the role, the answer is 409, and names the first users and groups that you may see. With
    `confirm=true`, they lose it.
    """
    await authorization.delete_role(kit.ports(), kit.acting(), service_slug, role_slug, confirmed=query_args.confirm)
