"""Service accounts: entities, refusals and pure rules."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from core.kernel.api_scopes import ApiScope, Area, in_order
from core.kernel.callers import MembershipState
from core.kernel.errors import Forbidden, Invalid, NotFound
from core.kernel.roles import GRANTABLE, PLATFORM_RIGHTS, Capability, Rights, Role, RoleName, may_give
from core.kernel.values import Email

MAX_ACCOUNTS: Final = 100  # per organization, and for the platform


class ServiceAccountNotFound(NotFound):
    """This service account does not exist."""


class TooManyServiceAccounts(Invalid):
    """There are 100 service accounts already. Delete one that is no longer used."""


class NoServiceAccountChanges(Invalid):
    """The request changes nothing. Send at least one of name, owner_id, role, scopes and granted_capabilities."""


class ServiceAccountRoleUnknown(Invalid):
    """This role does not exist. Use owner, admin, member, or the slug of a role of the organization."""


class ServiceAccountAboveRole(Forbidden):
    """The role of this service account has rights that you do not have yourself. Ask the owner of the organization."""

    audited = True


class OnlyOwnersGrant(Forbidden):
    """Only the owner of the organization can grant capabilities to a service account. Ask the owner."""

    audited = True


class OnlyOwnersNameOthers(Forbidden):
    """Only the owner of the organization can make another user the owner of a service account. Name yourself, or ask the owner."""

    audited = True


class OwnerNotYourself(Forbidden):
    """You can only make yourself the owner of a service account of the platform. Name yourself, or ask that user to take it over."""

    audited = True


class OwnerCannotOwnServiceAccount(Invalid):
    """The owner of a service account must be an active member. Their role must be admin or owner, and not below the role of the account."""


class ServiceAccountEnds(Invalid):
    """This service account ends soon, because its owner has left. Make yourself its owner first, then repeat this step."""


class ServiceAccountScopeUnknown(Invalid):
    """One of these scopes is not for service accounts of this kind. The documentation lists the scopes of organizations and platform."""


class CapabilityNotGrantable(Invalid):
    """These capabilities cannot be granted to this service account: NAMES. Leave them out."""

    def __init__(self, names: Iterable[str]) -> None:
        named = ", ".join(sorted(name[:50] for name in names))
        super().__init__(f"These capabilities cannot be granted to this service account: {named}. Leave them out.")


class AccountResourceNotFound(NotFound):
    """This service account has no scopes of this API resource."""


class NoResourceScopes(Invalid):
    """List at least one scope of the API resource. To take all scopes away, delete the grant."""


@dataclass(frozen=True, slots=True)
class AccountResource:
    """An API resource that a service account gets tokens for, and the scopes that it has there."""

    resource_id: UUID
    identifier: str
    name: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccount:
    """A program that acts for an organization or for the platform. Times are UTC.

    A service account has its role's rights, narrowed by `scopes`. If a route's effect outlives its caller, the account
    also needs the route's capability in `granted`: an owner granted it by name.
    """

    id: UUID
    org_id: UUID | None  # None: for the platform, which has no roles
    name: str
    owner_id: UUID  # the user who answers for it
    role: RoleName | None
    scopes: frozenset[ApiScope] | None  # None: all that the role allows
    granted: frozenset[Capability] = frozenset()
    created_by: UUID
    created_at: datetime
    updated_at: datetime
    ends_at: datetime | None = None  # the end of an account whose owner has left or deleted their own account (security #own-end)


@dataclass(frozen=True, slots=True)
class ListedServiceAccount:
    """A service account as its organization or the platform sees it.

    `owner_email` is None if the owner has left. `is_active` is false if the owner could not create the
    account now: then it can do nothing.
    """

    account: ServiceAccount
    role: Role | None  # None: for the platform
    owner_email: Email | None
    is_active: bool


@dataclass(frozen=True, slots=True)
class ServiceAccountContext:
    """A live service account, loaded by one statement for a request.

    Live means that the token's credential is valid and that its owner could create it now. `acts_in` is the path's
    organization, or None if the path has none or an unknown one. The role there is None if the account belongs to
    another organization, or to the platform.
    """

    name: str
    org_id: UUID | None  # None: for the platform
    role: RoleName | None
    scopes: frozenset[ApiScope] | None  # None: all that the role allows
    granted: frozenset[Capability]
    acts_in: MembershipState | None


def rights_of_account(role: Role | None) -> Rights:
    """Return the rights that a service account with this role has, before its scopes narrow them. `role` is None on the platform."""
    return PLATFORM_RIGHTS if role is None else role.rights


def may_manage(manager: Rights, role: Role | None) -> bool:
    """Return whether a user with these rights may create, change or own a service account with `role` (security R-1).

    `role` is None on the platform.
    """
    if role is None:
        return Capability.PLATFORM_OWN in manager
    return Capability.SERVICE_ACCOUNTS_MANAGE in manager and may_give(manager, role, to_program=True)


def may_grant(manager: Rights) -> bool:
    """Return whether a user with these rights may grant capabilities by name, and name other users as owners of service accounts."""
    return not manager.isdisjoint({Capability.ORGANIZATION_OWN, Capability.PLATFORM_OWN})


def possible_scopes(*, of_platform: bool) -> list[ApiScope]:
    """Return the scopes that service accounts can have, which act in an organization or on the platform."""
    return [scope for scope in ApiScope if scope.area is not Area.ACCOUNT and scope.area.is_of_platform == of_platform]


def check_scopes(scopes: Iterable[ApiScope] | None, *, of_platform: bool) -> frozenset[ApiScope] | None:
    """Check a service account's scopes. None means all that the role allows."""
    if scopes is None:
        return None
    distinct_scopes = frozenset(scopes)
    if not distinct_scopes <= frozenset(possible_scopes(of_platform=of_platform)):
        raise ServiceAccountScopeUnknown
    return distinct_scopes


def parse_capabilities(names: Iterable[str], rights: Rights) -> frozenset[Capability]:
    """Return the capabilities with these names, if a service account with these rights can be granted them."""
    distinct_names = frozenset(names)
    if refused := distinct_names - frozenset(grantable_capabilities(rights)):
        raise CapabilityNotGrantable(refused)
    return frozenset(Capability(name) for name in distinct_names)


def grantable_capabilities(rights: Rights) -> list[Capability]:
    """Return the capabilities that can be granted to a service account with these rights."""
    return [each for each in GRANTABLE if each in rights]


def in_declared_order(capabilities: Iterable[Capability]) -> list[Capability]:
    """Return the capabilities in the order that `Capability` has."""
    members = frozenset(capabilities)
    return [capability for capability in Capability if capability in members]


def scopes_in_order(scopes: frozenset[ApiScope] | None) -> list[ApiScope] | None:
    """Return the scopes in the order that `ApiScope` has."""
    return None if scopes is None else list(in_order(scopes))
