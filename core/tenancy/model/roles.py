"""The roles that an organization defines itself, the capability catalog, and their refusals."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from core.kernel import errors, roles
from core.kernel.roles import MEMBER
from core.kernel.values import SlugReserved

MAX_ROLES: Final = 50  # per organization, without the built-in roles
MAX_HOLDERS: Final = 20  # that a refusal and a page name
ROLE_PATTERN: Final = "[a-z][a-z0-9_-]{0,49}"  # for slugs
_SLUG: Final = re.compile(ROLE_PATTERN)

# The capabilities that a role can have, in the order that pages show. Every sentence completes "Holders of the role can ...".
SENTENCES: Final[Mapping[roles.Capability, str]] = MappingProxyType(
    {
        roles.Capability.ORGANIZATION_MANAGE: "Change the name, the branding, the settings and the attributes of the organization.",
        roles.Capability.MEMBERS_VIEW: "See the members, their roles, and the roles of the organization.",
        roles.Capability.MEMBERS_MANAGE: "Invite and remove members, and help them with their sign-in.",
        roles.Capability.ROLES_MANAGE: "Create, change and delete roles, and give them to members.",
        roles.Capability.GROUPS_MANAGE: "Create, change and delete groups, and change their members.",
        roles.Capability.BILLING_MANAGE: "Create, change and delete plans.",
        roles.Capability.SERVICES_VIEW: "See the applications and their settings.",
        roles.Capability.SERVICES_CREATE: "Create applications.",
        roles.Capability.SERVICES_MANAGE: "Change applications, their access and their roles, and replace their secrets.",
        roles.Capability.SERVICE_ROLES_ASSIGN: "Give and take the roles of applications.",
        roles.Capability.API_KEYS_VIEW: "See the API keys of applications, without their secrets.",
        roles.Capability.API_KEYS_MANAGE: "Create and delete API keys.",
        roles.Capability.END_USERS_VIEW: "See the users of the applications, their assignments and subscriptions.",
        roles.Capability.END_USERS_MANAGE: "Assign, block and sign out users of the applications, and help them with their sign-in.",
        roles.Capability.RESOURCES_VIEW: "See the API resources.",
        roles.Capability.RESOURCES_MANAGE: "Create, change and delete API resources, and their credentials.",
        roles.Capability.SERVICE_ACCOUNTS_MANAGE: "Create, change and delete service accounts with rights that the holder has, too.",
        roles.Capability.WEBHOOKS_MANAGE: "See and delete webhooks. With the audit log: create and change them, and see their deliveries.",
        roles.Capability.INTEGRATIONS_MANAGE: (
            "Prepare single sign-on, and change SAML, the SIEM, the domain and the mail server. "
            "With all rights of an admin: activate connections, and create SCIM tokens."
        ),
        roles.Capability.AUDIT_VIEW: "Read and export the audit log.",
        roles.Capability.SIGN_INS_VIEW: "Read and export the sign-in log.",
        roles.Capability.SIGN_IN_POLICY_MANAGE: "Change how members and users sign in.",
        roles.Capability.ANALYTICS_VIEW: "See figures about sign-ins.",
    }
)
# For all rights: the owner has a right that no other role can have.
ALL_SENTENCES: Final[Mapping[roles.Capability, str]] = MappingProxyType(
    {**SENTENCES, roles.Capability.ORGANIZATION_OWN: "Transfer or delete the organization, and delete applications."}
)


class OrganizationRoleNotFound(errors.NotFound):
    """This role does not exist in the organization."""


class RoleSlugInvalid(errors.Invalid):
    """A role has a slug of 1 to 50 lower-case letters, digits, hyphens and underscores. It begins with a letter."""


class RoleSlugTaken(errors.Conflict):
    """The organization has a role with this slug already. Choose another slug."""


class RoleNameTaken(errors.Conflict):
    """The organization has a role with this name already. Choose another name. Case does not count."""


class RoleSlugOfApplication(RoleSlugTaken):
    """An application of the organization has a role with this slug, and tokens list both kinds. Choose another slug."""

    def __init__(self, application: str) -> None:
        super().__init__(f"The application {application} has a role with this slug, and tokens list both kinds. Choose another slug.")


class TooManyRoles(errors.Invalid):
    """The organization has the maximum number of roles of its own. Delete one that is no longer used."""

    def __init__(self) -> None:
        super().__init__(f"The organization has the maximum of {MAX_ROLES} roles of its own. Delete one that is no longer used.")


class CapabilityUnknown(errors.Invalid):
    """These capabilities do not exist, or no role can have them: NAMES. Leave them out."""

    def __init__(self, names: Collection[str]) -> None:
        named = ", ".join(sorted(name[:50] for name in names))
        super().__init__(f"These capabilities do not exist, or no role of an organization can have them: {named}. Leave them out.")


class RoleAboveOwn(errors.Forbidden):
    """This role has rights that you do not have yourself. Ask the owner of the organization."""

    audited = True


class RoleHolderHasMore(errors.Forbidden):
    """A member with this role has rights that you do not have yourself. Ask the owner of the organization."""

    audited = True


class RolesManageMissing(errors.Forbidden):
    """Giving a person another role than member needs the right roles.manage. Ask the owner of the organization."""

    audited = True


class BuiltInRole(errors.Invalid):
    """The roles owner, admin and member are built in, and cannot be changed or deleted. Create a role of your own instead."""


class NoRoleChanges(errors.Invalid):
    """The request changes nothing. Send at least one of name, description and capabilities."""


class RoleChanged(errors.Conflict):
    """Another request has changed this role. Load it again, and repeat your change."""


class ReplacementMissing(errors.Invalid):
    """This role has holders. Name the role that they get instead in the parameter replacement."""


class RoleWidenedByProgram(errors.Forbidden):
    """A service account cannot add rights to a role that has holders. Create another role, or do it as a user."""

    audited = True


class HolderKind(StrEnum):
    """The rows that can have a role."""

    MEMBER = "member"
    INVITATION = "invitation"  # pending
    SERVICE_ACCOUNT = "service_account"
    GROUP = "group"  # that gives the role


@dataclass(frozen=True, slots=True)
class RoleHolder:
    """A member, a pending invitation, a service account or a group with a role. `name` is the address or the name."""

    kind: HolderKind
    id: UUID
    name: str


@dataclass(frozen=True, slots=True)
class RoleHolders:
    """How many holders a role has by their kind, and the first MAX_HOLDERS holders."""

    counts: Mapping[HolderKind, int]
    first: Sequence[RoleHolder]

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def more(self) -> int:
        return self.total - len(self.first)


class RoleInUse(errors.Conflict):
    """This role has holders. Look at them, and repeat the request with confirm=true."""

    code = "ROLE_IN_USE"

    def __init__(self, holders: RoleHolders) -> None:
        super().__init__()
        first = [{"kind": holder.kind.value, "id": str(holder.id), "name": holder.name} for holder in holders.first]
        self.fields: Mapping[str, Any] = {"holders": {kind.value: holders.counts.get(kind, 0) for kind in HolderKind}, "first": first}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRole:
    """A role to create. Without a slug, the slug is the first free one that resembles the name."""

    name: str
    slug: str = ""
    description: str = ""
    capabilities: Collection[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OrganizationRole:
    """A role that an organization has defined. Times are UTC.

    A role's holders have the capabilities, and see the organization. `version` counts the changes.
    """

    id: UUID
    org_id: UUID
    slug: roles.RoleName
    name: str
    description: str
    capabilities: frozenset[roles.Capability]
    created_at: datetime
    updated_at: datetime
    version: int = 1

    @property
    def role(self) -> roles.Role:
        return roles.custom_role(self.slug, self.name, self.capabilities)


@dataclass(frozen=True, slots=True)
class MemberCount:
    """How many members have a role as their own role, and how many other members have it by groups."""

    own: int = 0
    by_groups: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRole:
    """A role, built in or the organization's, with its member counts. Built-in roles have no id, version and times."""

    role: roles.Role
    description: str
    members: MemberCount
    own: OrganizationRole | None = None

    @property
    def name(self) -> roles.RoleName:
        return self.role.name


# What the built-in roles are for, on pages and in the API
_BUILT_IN: Final[Mapping[roles.RoleName, str]] = MappingProxyType(
    {
        roles.OWNER: "The one member with all rights, also to delete the organization.",
        roles.ADMIN: "Manages everything but the roles of members, the ownership and the deletion of applications.",
        MEMBER: "Sees the organization, its members and its applications.",
    }
)


def list_roles(own: Sequence[OrganizationRole], counts: Mapping[roles.RoleName, MemberCount]) -> list[ListedRole]:
    """Return the built-in roles and the organization's roles, with their member counts."""
    none = MemberCount()
    built_in = [ListedRole(role=role, description=_BUILT_IN[name], members=counts.get(name, none)) for name, role in roles.ROLES.items()]
    others = [ListedRole(role=each.role, description=each.description, members=counts.get(each.slug, none), own=each) for each in own]
    return [*built_in, *others]


def require_giveable(giver: roles.Rights, role: roles.Role | None) -> None:
    """Check that a caller with these rights may give a person this role (security R-1). None is an unknown role."""
    if role is None or not role.rights <= giver:
        raise RoleAboveOwn
    if not roles.may_give(giver, role):
        raise RolesManageMissing


def is_slug(text: str) -> bool:
    """Return whether an organization's role can have this slug."""
    return _SLUG.fullmatch(text) is not None and text not in roles.ROLES


def parse_slug(text: str) -> roles.RoleName:
    """Return a new role's slug. Raises: RoleSlugInvalid, SlugReserved; RoleSlugTaken if a built-in role has this name."""
    if text in roles.ROLES:
        raise RoleSlugTaken
    if text == "new":  # the page that creates a role
        raise SlugReserved
    if not _SLUG.fullmatch(text):
        raise RoleSlugInvalid
    return roles.RoleName(text)


def parse_capabilities(names: Collection[str]) -> roles.Rights:
    """Return the capabilities with these names, if an organization's role can have them."""
    if unknown := frozenset(names) - roles.CUSTOMIZABLE:
        raise CapabilityUnknown(unknown)
    return frozenset(map(roles.Capability, names))


def in_catalog_order(capabilities: Collection[roles.Capability]) -> list[roles.Capability]:
    """Return the capabilities in the order that `SENTENCES` has."""
    return [capability for capability in SENTENCES if capability in capabilities]
