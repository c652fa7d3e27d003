"""The API for an organization's roles, as resources, in descriptions and as form options, and the capability catalog."""

from collections.abc import Collection, Iterable, Sequence
from typing import Annotated

from pydantic import Field, WithJsonSchema
from quart import Blueprint

from core.kernel import roles as kernel_roles
from core.kernel.display import to_words
from core.kernel.roles import MEMBER, Capability, RoleName
from core.kernel.values import Keep
from core.tenancy import roles
from core.tenancy.model.organizations import Membership
from core.tenancy.model.roles import SENTENCES, ListedRole, MemberCount, NewRole, in_catalog_order
from core.tenancy.roles import list_choices
from entrypoints.http import kit

routes = Blueprint("roles", __name__)

RoleDescription = Annotated[str, Field(max_length=200), kit.PRINTABLE]
CAPABILITIES = "The capabilities that the role gives. You need all of them yourself. `GET /api/capabilities` lists them."


class CapabilityResponse(kit.ResponseModel):
    """A capability that a role can give."""

    name: Capability = Field(description="The name of the capability.")
    description: str = Field(description="What members with the capability can do.")


class CapabilityListResponse(kit.ResponseModel):
    """The capabilities that organization roles can give."""

    capabilities: list[CapabilityResponse] = Field(description="The capabilities, in the order of the console.")


@routes.get("/api/capabilities")
@kit.anyone
async def list_capabilities() -> CapabilityListResponse:
    """List the capabilities that an organization's roles can give.

    `organization.own` is missing: an organization has one owner, who can transfer it. Every role lets its holders
    see the organization (`organization.view`).
    """
    return CapabilityListResponse(capabilities=[CapabilityResponse(name=name, description=text) for name, text in SENTENCES.items()])


class OrganizationRoleRequest(kit.RequestModel):
    """A new role."""

    slug: kit.Text = Field(
        default="",
        description="The role's name in the API: 1 to 50 lower-case letters, digits, hyphens and underscores, with a "
        "letter first. It never changes. Without it, a name that resembles the role's name.",
        examples=["billing-manager"],
    )
    name: kit.Name = Field(description="The name of the role on pages and in emails.", examples=["Billing manager"])
    description: RoleDescription = Field(default="", description="What the role is for.")
    capabilities: kit.Texts = Field(description=CAPABILITIES, examples=[["members.view", "billing.manage"]])


class OrganizationRoleUpdateRequest(kit.RequestModel):
    """The role's fields to change."""

    model_config = kit.AT_LEAST_ONE_FIELD

    name: kit.Name | Keep = kit.optional(description="The name of the role on pages and in emails.")
    description: RoleDescription | Keep = kit.optional(description="What the role is for.")
    capabilities: kit.Texts | Keep = kit.optional(description=f"{CAPABILITIES} They replace the previous ones.")
    version: int | None = Field(default=None, description="The version that you have seen: 409 if the role has changed since.")


class OrganizationRoleResponse(kit.ResponseModel):
    """A role, built in or the organization's."""

    slug: str = Field(description="The name of the role in the API.", examples=["billing-manager"])
    name: str = Field(description="The name of the role on pages and in emails.")
    description: str = Field(description="What the role is for.")
    built_in: bool = Field(description="Whether every organization has the role. Then it cannot be changed.")
    capabilities: list[str] = Field(description="The capabilities that the role gives, without `organization.view`.")
    members: int = Field(description="How many members have this as their own role.")
    members_by_groups: int = Field(description="How many other members have the role by a group.")
    version: int | None = Field(description="The role's version, which grows with every change. Null if it is built in.")
    created_at: kit.Timestamp | None = Field(description="When the role was created, or null if it is built in.")
    updated_at: kit.Timestamp | None = Field(description="When the role was last changed, or null if it is built in.")


class OrganizationRoleListResponse(kit.ResponseModel):
    """An organization's roles."""

    roles: list[OrganizationRoleResponse] = Field(description="The built-in roles, then the organization's roles by name.")


def _to_response(listed: ListedRole) -> OrganizationRoleResponse:
    own = listed.own
    return OrganizationRoleResponse(
        slug=listed.name,
        name=listed.role.label,
        description=listed.description,
        built_in=own is None,
        capabilities=[*in_catalog_order(listed.role.rights), *(listed.role.rights & {Capability.ORGANIZATION_OWN})],
        members=listed.members.own,
        members_by_groups=listed.members.by_groups,
        version=None if own is None else own.version,
        created_at=None if own is None else own.created_at,
        updated_at=None if own is None else own.updated_at,
    )


@kit.before_body
async def existing_role(role_name: str, **_: object) -> None:
    """Answer 404 if there is no role `<role_name>`."""
    await roles.require_role(kit.ports(), kit.acting(), role_name)


@routes.get("/api/organizations/<org_slug>/roles")
@kit.member(Capability.MEMBERS_VIEW)
async def list_roles(org_slug: str) -> OrganizationRoleListResponse:
    """List the organization's roles.

    The built-in roles come first. An organization can have 50 further roles.
    """
    return OrganizationRoleListResponse(roles=[_to_response(role) for role in await roles.list_all(kit.ports(), kit.acting())])


@routes.post("/api/organizations/<org_slug>/roles")
@kit.member(Capability.ROLES_MANAGE, kit.PROMOTES)
@kit.refuses(409)
@kit.returns(201)
async def create(org_slug: str, data: OrganizationRoleRequest) -> OrganizationRoleResponse:
    """Create a role.

    You can give it to members, in invitations and to service accounts. Its slug stands wherever the API has a
    role. No role can give `organization.own`.
    """
    request = NewRole(name=data.name, slug=data.slug, description=data.description, capabilities=data.capabilities)
    created = await roles.create(kit.ports(), kit.acting(), request)
    return _to_response(ListedRole(role=created.role, description=created.description, members=MemberCount(), own=created))


@routes.get("/api/organizations/<org_slug>/roles/<role_name>")
@kit.member(Capability.MEMBERS_VIEW)
async def get(org_slug: str, role_name: str) -> OrganizationRoleResponse:
    """Get a role, built in or the organization's.

    The version lets you change it only if no other request has changed it since.
    """
    return _to_response(await roles.find(kit.ports(), kit.acting(), role_name))


class ConfirmQuery(kit.Query):
    """Whether the caller has seen the role's holders."""

    confirm: kit.Flag = Field(default=False, description="`true`: change the role although it has holders. The refusal names them.")


@routes.patch("/api/organizations/<org_slug>/roles/<role_name>")
@kit.member(Capability.ROLES_MANAGE, kit.PROMOTES)
@kit.refuses(409)
@existing_role
async def update(org_slug: str, role_name: str, data: OrganizationRoleUpdateRequest, query_args: ConfirmQuery) -> OrganizationRoleResponse:
    """Change a role.

    Its holders have the new rights from their next request on. To take a right away from a role that has holders, send `confirm=true`.
    Without it, the response is 409 `ROLE_IN_USE` with their number, and the first 20 that you may see. Pending invitations, roles and
    credentials that holders gave with this right end. A group stops to give the role if the member who gave it to the group lacks a new
    right: this needs `confirm=true`, too. You need every right in the role, before and after the change. A service account cannot add
    rights to a role that has holders.
    """
    changes = roles.RoleChanges(
        name=data.name,
        description=data.description,
        capabilities=data.capabilities,
        version=data.version,
        confirmed=query_args.confirm,
    )
    await roles.update(kit.ports(), kit.acting(), role_name, changes)
    return _to_response(await roles.find(kit.ports(), kit.acting(), role_name))


class RoleDeletionQuery(ConfirmQuery):
    """The role that the holders get instead."""

    replacement: kit.Text | None = Field(
        default=None, description="The role that the holders get instead: `admin`, `member` or a slug. Required if the role has holders."
    )


@routes.delete("/api/organizations/<org_slug>/roles/<role_name>")
@kit.member(Capability.ROLES_MANAGE, kit.PROMOTES)
@kit.refuses(400, 409)
@kit.describes({204: "The role is deleted."})
async def delete(org_slug: str, role_name: str, query_args: RoleDeletionQuery) -> None:
    """Delete a role.

    If it has holders, send `confirm=true` and a `replacement`. Without these, the response is 409 `ROLE_IN_USE` with their number, and the
    first 20 that you may see. Members, pending invitations, service accounts and groups get the replacement. You need every right in the
    deleted and the replacing role, and every right that a member with the role has. You cannot delete the role that you have yourself. You
    answer for the groups' roles from then on. A service account cannot give a group a replacement with rights that the old role lacks.
    """
    await roles.delete(kit.ports(), kit.acting(), role_name, replacement=query_args.replacement, confirmed=query_args.confirm)


# A role's name: `owner`, `admin`, `member`, or the slug of a role that the organization has defined.
Role = Annotated[RoleName, WithJsonSchema({"type": "string"}), Field(examples=[MEMBER])]
# The name of a role that can be given to a person.
AssignableRole = Annotated[kit.Text, Field(examples=[MEMBER])]


def options(choices: Iterable[kernel_roles.Role]) -> list[tuple[str, str]]:
    """Return the roles as form options: pairs of value and label."""
    return [(role.name, role.label) for role in choices]


def role_text(membership: Membership) -> str:
    """Return a member's role name inside a line of text."""
    return membership.role_label or to_words(membership.role).lower()


async def role_labels(names: Collection[RoleName]) -> list[str]:
    """Return these organization roles' names on pages. Without names, nothing is read."""
    return [role.label for role in await role_choices() if role.name in names] if names else []


async def role_choices() -> Sequence[kernel_roles.Role]:
    """Return all the organization's roles."""
    return await list_choices(kit.ports(), kit.acting_member())


def role_filter(choices: Iterable[kernel_roles.Role]) -> list[tuple[str, str]]:
    """Return the options for a role filter."""
    return [("", "All roles"), *options(choices)]


def giveable_options(choices: Iterable[kernel_roles.Role], *, to_program: bool = False) -> list[tuple[str, str]]:
    """Return the roles in `choices` that the acting member may give, the least powerful built-in role first."""
    giveable = kernel_roles.giveable(kit.acting_member().acts_in.rights, choices, to_program=to_program)
    built_in, own = [role for role in giveable if role.is_built_in], [role for role in giveable if not role.is_built_in]
    return options([*built_in[::-1], *own])
