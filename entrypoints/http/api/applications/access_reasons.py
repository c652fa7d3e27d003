"""What a user may do in an organization and its applications, and why."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.applications import access as applications_access
from core.applications.model.access_reasons import AccessReason, ApplicationAccess, OrganizationAccess
from core.applications.model.users import AccessPolicy
from core.kernel.roles import Capability
from core.tenancy.model.roles import ALL_SENTENCES
from entrypoints.http import kit
from entrypoints.http.api.applications import role_assignments

routes = Blueprint("access_reasons", __name__)


class RightSourceResponse(kit.ResponseModel):
    """A role that gives the right."""

    role: str = Field(description="The role, as in the list of roles.", examples=["admin"])
    group: role_assignments.GivingGroupResponse | None = Field(description="The group that gives the role; null for the member's own role.")


class RightOfMemberResponse(kit.ResponseModel):
    """A right of the member in the organization."""

    capability: str = Field(description="The name of the right, as in `GET /api/capabilities`.", examples=["members.view"])
    sources: list[RightSourceResponse] = Field(description="The roles that give the right. The own role comes first.")


class OrganizationAccessResponse(kit.ResponseModel):
    """A member's rights in the organization."""

    confirmed: bool = Field(description="Whether the member has confirmed the membership. Until then, there are no rights.")
    rights: list[RightOfMemberResponse] = Field(description="The rights, in the order of `GET /api/capabilities`.")


class RoleAtApplicationResponse(kit.ResponseModel):
    """A role of the user at the application."""

    slug: str = Field(description="The slug of the role.")
    name: str = Field(description="The name of the role.")
    permissions: list[str] = Field(description="The permissions that the role gives.")
    direct: bool = Field(description="Whether the user has the role themselves.")
    groups: list[role_assignments.GivingGroupResponse] = Field(description=role_assignments.GIVING_GROUPS)


class ApplicationAccessResponse(kit.ResponseModel):
    """What the user may do at an application."""

    service_slug: str = Field(description="The slug of the service.")
    service_name: str = Field(description="The name of the service.")
    policy: AccessPolicy = Field(description="The users that the service admits.")
    may_use: bool = Field(description="Whether the user may use the service. Its sign-in policy can ask for more, such as a second factor.")
    reason: AccessReason = Field(description="The reason why the user may use the service, or may not.")
    groups: list[role_assignments.GivingGroupResponse] = Field(
        description="The groups of the user that are assigned to the service, by name."
    )
    roles: list[RoleAtApplicationResponse] = Field(description="The roles of the user, by slug. They give nothing without access.")
    permissions: list[str] = Field(description="The permissions that the user has, sorted. The list is empty without access.")


class UserAccessResponse(kit.ResponseModel):
    """What a user may do in the organization, and why."""

    user_id: UUID = Field(description="The id of the user.")
    email: str = Field(description="The email address of the user.")
    organization: OrganizationAccessResponse | None = Field(
        description="The rights of a member; null without a membership, and if you may not see members."
    )
    groups: list[role_assignments.GivingGroupResponse] = Field(
        description="The groups of the user, by name. The list is empty if you may not see members."
    )
    applications: list[ApplicationAccessResponse] = Field(description="A page of the organization's services, by name.")
    pagination: kit.Pagination = Field(description="The position of this page in the service list.")


def _to_organization(access: OrganizationAccess) -> OrganizationAccessResponse:
    rights = [
        RightOfMemberResponse(
            capability=capability,
            sources=[
                RightSourceResponse(role=source.role, group=role_assignments.GivingGroupResponse.of(source.group) if source.group else None)
                for source in sources
            ],
        )
        for capability in ALL_SENTENCES
        if (sources := access.sources_of(capability))
    ]
    return OrganizationAccessResponse(confirmed=access.is_confirmed, rights=rights)


def _to_application(access: ApplicationAccess) -> ApplicationAccessResponse:
    application = access.application
    return ApplicationAccessResponse(
        service_slug=application.slug,
        service_name=application.name,
        policy=application.policy,
        may_use=access.reason.admits,
        reason=access.reason,
        groups=role_assignments.GivingGroupResponse.list_of(application.groups),
        roles=[
            RoleAtApplicationResponse(
                slug=role.slug,
                name=role.name,
                permissions=list(role.permissions),
                direct=role.is_direct,
                groups=role_assignments.GivingGroupResponse.list_of(role.groups),
            )
            for role in application.roles
        ],
        permissions=access.permissions,
    )


@routes.get("/api/organizations/<org_slug>/users/<user_id>/access")
@kit.member(Capability.END_USERS_VIEW)
async def get(org_slug: str, user_id: UUID, query_args: kit.PageQuery) -> UserAccessResponse:
    """Get what a user may do in the organization, and why.

    The user is a member or an end user. The answer has the rights in the organization, and the roles that give them.
    For every service, it has the access with its reason, the roles with their sources, and the permissions.
    """
    access = await applications_access.load_user_access(kit.ports(), kit.acting(), user_id, query_args.page_request())
    return UserAccessResponse(
        user_id=access.user.user_id,
        email=access.user.email,
        organization=_to_organization(access.organization) if access.organization else None,
        groups=role_assignments.GivingGroupResponse.list_of(access.groups),
        applications=[_to_application(each) for each in access.applications],
        pagination=query_args.pagination(access.total),
    )
