"""Roles with their capabilities, and API key permissions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NewType

# A role name, as rows, tokens, events and responses have it.
RoleName = NewType("RoleName", str)
OWNER: Final = RoleName("owner")
ADMIN: Final = RoleName("admin")
MEMBER: Final = RoleName("member")


# Every endpoint for an organization or the platform requires exactly one capability.
class Capability(StrEnum):
    """A right that a role or a platform owner has."""

    ORGANIZATION_VIEW = "organization.view"  # every role has it
    ORGANIZATION_MANAGE = "organization.manage"
    ORGANIZATION_OWN = "organization.own"  # transfer or delete the organization; only the owner has it
    MEMBERS_VIEW = "members.view"
    MEMBERS_MANAGE = "members.manage"
    ROLES_MANAGE = "roles.manage"
    GROUPS_MANAGE = "groups.manage"
    BILLING_MANAGE = "billing.manage"
    SERVICES_VIEW = "services.view"
    SERVICES_CREATE = "services.create"
    SERVICES_MANAGE = "services.manage"
    API_KEYS_VIEW = "api_keys.view"
    API_KEYS_MANAGE = "api_keys.manage"
    END_USERS_VIEW = "end_users.view"
    END_USERS_MANAGE = "end_users.manage"
    SERVICE_ROLES_ASSIGN = "service_roles.assign"  # application roles
    RESOURCES_VIEW = "resources.view"
    RESOURCES_MANAGE = "resources.manage"
    SERVICE_ACCOUNTS_MANAGE = "service_accounts.manage"
    WEBHOOKS_MANAGE = "webhooks.manage"
    INTEGRATIONS_MANAGE = "integrations.manage"  # SAML, SCIM, SIEM, SMTP, domain
    AUDIT_VIEW = "audit.view"
    SIGN_INS_VIEW = "sign_ins.view"
    SIGN_IN_POLICY_MANAGE = "sign_in_policy.manage"
    ANALYTICS_VIEW = "analytics.view"
    # For platform owners, who have them in no organization
    PLATFORM_ORGANIZATIONS_VIEW = "platform_organizations.view"
    PLATFORM_ORGANIZATIONS_MANAGE = "platform_organizations.manage"
    PLATFORM_USERS_VIEW = "platform_users.view"
    PLATFORM_USERS_MANAGE = "platform_users.manage"
    PLATFORM_AUDIT_VIEW = "platform_audit.view"
    PLATFORM_SIGN_INS_VIEW = "platform_sign_ins.view"
    PLATFORM_INSTALLATION_VIEW = "platform_installation.view"
    PLATFORM_OWN = "platform.own"  # owners, impersonation, organization deletion, service accounts

    @property
    def is_of_platform(self) -> bool:
        return self.startswith("platform")


Rights = frozenset[Capability]
NO_RIGHTS: Final[Rights] = frozenset()

_VIEWED_BY_MEMBERS: Final = frozenset(
    {
        Capability.ORGANIZATION_VIEW,
        Capability.MEMBERS_VIEW,
        Capability.SERVICES_VIEW,
        Capability.API_KEYS_VIEW,
        Capability.END_USERS_VIEW,
        Capability.RESOURCES_VIEW,
        Capability.ANALYTICS_VIEW,
    }
)


_OF_ORGANIZATION: Final = frozenset(capability for capability in Capability if not capability.is_of_platform)


# The rights that an organization's role can give. Ownership is transferred, and every role lets its holders see the organization.
CUSTOMIZABLE: Final[Rights] = _OF_ORGANIZATION - {Capability.ORGANIZATION_OWN, Capability.ORGANIZATION_VIEW}


@dataclass(frozen=True, slots=True)
class Role:
    """A role in an organization, built in or defined by the organization: its name, and the rights that it gives."""

    name: RoleName
    label: str  # on pages
    phrase: str  # in emails: completes "... as ..."
    rights: Rights

    @property
    def is_built_in(self) -> bool:
        return self.name in ROLES


# The roles that every organization has, from the most to the least powerful.
ROLES: Final[Mapping[RoleName, Role]] = MappingProxyType(
    {
        OWNER: Role(OWNER, "Owner", "the owner", _OF_ORGANIZATION),
        ADMIN: Role(ADMIN, "Admin", "an administrator", _OF_ORGANIZATION - {Capability.ROLES_MANAGE, Capability.ORGANIZATION_OWN}),
        MEMBER: Role(MEMBER, "Member", "a member", _VIEWED_BY_MEMBERS),
    }
)
_RIGHTS: Final[dict[str | None, Rights]] = {name: role.rights for name, role in ROLES.items()}
_RIGHTS_WITHOUT_END_USERS: Final = {**_RIGHTS, MEMBER: _VIEWED_BY_MEMBERS - {Capability.END_USERS_VIEW}}
# What a platform owner may do.
PLATFORM_RIGHTS: Final[Rights] = frozenset(capability for capability in Capability if capability.is_of_platform)


# The capabilities that an owner can grant a service account by name, and the changes that they allow: effects that
# remain when the account is gone. No other capability is ever granted.
GRANTABLE: Final[Mapping[Capability, str]] = MappingProxyType(
    {
        Capability.ORGANIZATION_MANAGE: "Change the settings of the organization, its branding, and the attributes of its users.",
        Capability.MEMBERS_MANAGE: (
            "Invite people, remove members, unblock users, send password resets, accept and cancel invitations, and revoke personal tokens."
        ),
        Capability.ROLES_MANAGE: "Create, change and delete roles, and change the roles of members.",
        Capability.GROUPS_MANAGE: "Create, change and delete groups, and change their members.",
        Capability.BILLING_MANAGE: "Create, change and delete plans.",
        Capability.SERVICES_CREATE: "Create applications.",
        Capability.SERVICES_MANAGE: "Change applications, who may use them, their secrets, and their identity providers.",
        Capability.API_KEYS_MANAGE: "Create and delete API keys.",
        Capability.END_USERS_MANAGE: "Assign users to applications, block users there, send password resets, and remove second factors.",
        Capability.SERVICE_ROLES_ASSIGN: "Give users roles of applications, and take them away.",
        Capability.RESOURCES_MANAGE: "Create, change and delete API resources, with their clients, users and credentials.",
        Capability.WEBHOOKS_MANAGE: "Create, change and delete webhooks.",
        Capability.INTEGRATIONS_MANAGE: "Change the domain, SAML, connections, SCIM tokens, SIEM and the mail server.",
        Capability.PLATFORM_ORGANIZATIONS_MANAGE: "Approve, reject, suspend and activate organizations, and change their tiers.",
        Capability.PLATFORM_USERS_MANAGE: "Deactivate users, end their sessions, send password resets, and remove second factors.",
    }
)


# The granted capabilities with which a service account gives roles, if its role has `roles.manage`
_PROMOTING: Final = frozenset({Capability.MEMBERS_MANAGE, Capability.ROLES_MANAGE})


class Permission(StrEnum):
    """A right that an API key has on its service. A permission never implies another permission."""

    READ_USERS = "read:users"
    WRITE_USERS = "write:users"
    DELETE_USERS = "delete:users"
    READ_SUBSCRIPTIONS = "read:subscriptions"
    WRITE_SUBSCRIPTIONS = "write:subscriptions"
    DELETE_SUBSCRIPTIONS = "delete:subscriptions"
    READ_ANALYTICS = "read:analytics"
    READ_SERVICE = "read:service"
    WRITE_SERVICE = "write:service"
    WRITE_ROLES = "write:roles"  # give and take the service's roles
    EVALUATE_ACCESS = "evaluate:access"


_CAPABILITIES: Final = frozenset(Capability)
_CUSTOMIZABLE: Final[Mapping[str, Capability]] = MappingProxyType({capability.value: capability for capability in CUSTOMIZABLE})


@dataclass(frozen=True, slots=True)
class Authority:
    """The role that a member or a service account has, and all their rights."""

    role: RoleName | None  # None: for the platform
    rights: Rights


def find_role(name: str | None) -> Role | None:
    """Return the built-in role with this name, or None for organization roles and roles from later releases."""
    return None if name is None else ROLES.get(RoleName(name))


def rights_of(name: str | None, *, members_see_end_users: bool = True) -> Rights:
    """Return the rights that the built-in role with this name gives. None and other names have no rights.

    `members_see_end_users` is the organization's setting. If it is false, the role `member` does not see end users.
    """
    return (_RIGHTS if members_see_end_users else _RIGHTS_WITHOUT_END_USERS).get(name, NO_RIGHTS)


def names_with(capability: Capability) -> tuple[RoleName, ...]:
    """Return the names of the built-in roles that give this right."""
    return tuple(role.name for role in ROLES.values() if capability in role.rights)


def custom_rights(capabilities: Iterable[str]) -> Rights:
    """Return the rights that an organization's role gives. A later release may have stored capabilities that are unknown here."""
    return frozenset(_CUSTOMIZABLE[name] for name in capabilities if name in _CUSTOMIZABLE) | {Capability.ORGANIZATION_VIEW}


def known_rights(names: Iterable[str]) -> Rights:
    """Return the rights with these names. A later release may have stored names that are unknown here."""
    return frozenset(Capability(name) for name in names if name in _CAPABILITIES)


def custom_role(slug: str, name: str, capabilities: Iterable[str]) -> Role:
    """Return the role that an organization has defined with these values."""
    return Role(RoleName(slug), name, phrase_of(slug, name), custom_rights(capabilities))


def phrase_of(name: str, label: str | None) -> str:
    """Return the phrase for a role in emails. `label` is the name that the organization gave the role; built-in roles need no label."""
    built_in = find_role(name)
    return f"“{label or name}”" if built_in is None else built_in.phrase


def is_admin(rights: Rights) -> bool:
    """Return whether a member with these rights counts as an admin: they hold a right that the role `member` does not give.

    A member without any right counts as an admin. A role without any right is unknown: a later release
    has stored it.
    """
    return not rights or not rights <= _VIEWED_BY_MEMBERS


def has_rights_of_admin(rights: Rights) -> bool:
    """Return whether a caller with these rights has every right that an admin has.

    Only such a caller may let another system decide about members: a directory (security C-3), or a connection's identity provider
    (security S-12).
    """
    return ROLES[ADMIN].rights <= rights


def needs_roles_manage(name: str) -> bool:
    """Return whether only a caller with `roles.manage` may give this role to a person, as for every role but `member`."""
    return name != MEMBER


def may_give(giver: Rights, role: Role | None, *, to_program: bool = False) -> bool:
    """Return whether a caller with these rights may give this role (security R-1). None is an unknown role.

    The giver needs every right that the role gives. To give a person another role than `member`, the giver needs
    `roles.manage`, too. No role gives a person the ownership: it is transferred. A program stops with the rights of the
    user who answers for it, so it needs no `roles.manage`.
    """
    if role is None or not role.rights <= giver:
        return False
    if to_program or not needs_roles_manage(role.name):
        return True
    return Capability.ROLES_MANAGE in giver and Capability.ORGANIZATION_OWN not in role.rights


def giveable(giver: Rights, roles: Iterable[Role], *, to_program: bool = False) -> tuple[Role, ...]:
    """Return which of these roles a caller with these rights may give, in the same order."""
    return tuple(role for role in roles if may_give(giver, role, to_program=to_program))


def loses_promotion(old: Rights, old_granted: Rights, new: Rights, new_granted: Rights) -> bool:
    """Return whether an account with these rights and granted capabilities loses a way to give roles above member (security R-4)."""
    keeps = Capability.ROLES_MANAGE in new and old_granted & _PROMOTING <= new_granted
    return Capability.ROLES_MANAGE in old and not keeps


def lasting(rights: Rights, granted: Rights) -> Rights:
    """Return the service account rights by which it may give something that remains when the account is gone.

    The account needs an owner's grant for every right that can be granted.
    """
    return rights - (GRANTABLE.keys() - granted)


def has_rights_of(actor: Authority, target: Authority) -> bool:
    """Return whether the actor has every right that the target has. An unknown role's rights are unknown, so no actor has them."""
    return bool(target.rights) and target.rights <= actor.rights


def may_act_on(actor: Authority, target: Authority) -> bool:
    """Return whether a member or service account may remove, block, sign out, reset or recover this member (security R-10).

    The actor needs every right that the target has. Owners and admins keep the power that they have over each other: an
    admin may sign out the owner. An unknown role's rights are unknown, so only owners and admins may act on it.
    """
    if has_rights_of(actor, target):
        return True
    of_role = rights_of(target.role)
    return actor.role in (OWNER, ADMIN) and target.rights <= of_role
