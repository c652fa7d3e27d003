"""Service accounts: entities, refusals and pure rules."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from core.kernel import api_scopes, errors, roles
from core.kernel.callers import MembershipState
from core.kernel.values import Email

MAX_ACCOUNTS: Final = 100  # per organization, and for the platform


class ServiceAccountNotFound(errors.NotFound):
    """This service account does not exist."""


class TooManyServiceAccounts(errors.Invalid):
    """There are 100 service accounts already. Delete one that is no longer used."""


class NoServiceAccountChanges(errors.Invalid):
    """The request changes nothing. Send at least one of name, owner_id, role, scopes and granted_capabilities."""


class ServiceAccountRoleUnknown(errors.Invalid):
    """This role does not exist. Use owner, admin, member, or the slug of a role of the organization."""


class ServiceAccountAboveRole(errors.Forbidden):
    """The role of this service account has rights that you do not have yourself. Ask the owner of the organization."""

    audited = True


class OnlyOwnersGrant(errors.Forbidden):
    """Only the owner of the organization can grant capabilities to a service account. Ask the owner."""

    audited = True


class OnlyOwnersNameOthers(errors.Forbidden):
    """Only the owner of the organization can make another user the owner of a service account. Name yourself, or ask the owner."""

    audited = True


class OwnerNotYourself(errors.Forbidden):
    """You can only make yourself the owner of a service account of the platform. Name yourself, or ask that user to take it over."""

    audited = True


class OwnerCannotOwnServiceAccount(errors.Invalid):
    """The owner of a service account must be an active member. Their role must be admin or owner, and not below the role of the account."""


class ServiceAccountEnds(errors.Invalid):
    """This service account ends soon, because its owner has left. Make yourself its owner first, then repeat this step."""


class ServiceAccountScopeUnknown(errors.Invalid):
    """One of these scopes is not for service accounts of this kind. The documentation lists the scopes of organizations and platform."""


class CapabilityNotGrantable(errors.Invalid):
    """These capabilities cannot be granted to this service account: NAMES. Leave them out."""

    def __init__(self, names: Iterable[str]) -> None:
        named = ", ".join(sorted(name[:50] for name in names))
        super().__init__(f"These capabilities cannot be granted to this service account: {named}. Leave them out.")


class AccountResourceNotFound(errors.NotFound):
    """This service account has no scopes of this API resource."""


class NoResourceScopes(errors.Invalid):
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
    role: roles.RoleName | None
    scopes: frozenset[api_scopes.ApiScope] | None  # None: all that the role allows
    granted: frozenset[roles.Capability] = frozenset()
    created_by: UUID
    created_at: datetime
    updated_at: datetime
    ends_at: datetime | None = None  # the end of an account whose owner has left or deleted their own account (security #own-end)


class TakenOverCredentials(StrEnum):
    """What became of the credentials of a service account that got another owner, for the user who chose the owner."""

    ENDED = "No credential of this service account works: those that its former owner made have ended. Create a new one."
    END_LATER = "The credentials that the former owner made end when the service account would have ended. Replace them before."
    KNOWN = "The former owner may know the credentials that they made. Replace them."


@dataclass(frozen=True, slots=True)
class ListedServiceAccount:
    """A service account as its organization or the platform sees it.

    `owner_email` is None if the owner has left. `is_active` is false if the owner could not create the
    account now: then it can do nothing.
    """

    account: ServiceAccount
    role: roles.Role | None  # None: for the platform
    owner_email: Email | None
    is_active: bool
    taken_over: TakenOverCredentials | None = None  # after a change of the owner, if something is to be done


@dataclass(frozen=True, slots=True)
class ServiceAccountContext:
    """A live service account, loaded by one statement for a request.

    Live means that the token's credential is valid and that its owner could create it now. `acts_in` is the path's
    organization, or None if the path has none or an unknown one. The role there is None if the account belongs to
    another organization, or to the platform.
    """

    name: str
    org_id: UUID | None  # None: for the platform
    role: roles.RoleName | None
    scopes: frozenset[api_scopes.ApiScope] | None  # None: all that the role allows
    granted: frozenset[roles.Capability]
    acts_in: MembershipState | None


def rights_of_account(role: roles.Role | None) -> roles.Rights:
    """Return the rights that a service account with this role has, before its scopes narrow them. `role` is None on the platform."""
    return roles.PLATFORM_RIGHTS if role is None else role.rights


def may_manage(manager: roles.Rights, role: roles.Role | None) -> bool:
    """Return whether a user with these rights may create, change or own a service account with `role` (security R-1).

    `role` is None on the platform.
    """
    if role is None:
        return roles.Capability.PLATFORM_OWN in manager
    return roles.Capability.SERVICE_ACCOUNTS_MANAGE in manager and roles.may_give(manager, role, to_program=True)


def may_grant(manager: roles.Rights) -> bool:
    """Return whether a user with these rights may grant capabilities by name, and name other users as owners of service accounts."""
    return not manager.isdisjoint({roles.Capability.ORGANIZATION_OWN, roles.Capability.PLATFORM_OWN})


def possible_scopes(*, of_platform: bool) -> list[api_scopes.ApiScope]:
    """Return the scopes that service accounts can have, which act in an organization or on the platform."""
    return [
        scope for scope in api_scopes.ApiScope if scope.area is not api_scopes.Area.ACCOUNT and scope.area.is_of_platform == of_platform
    ]


def check_scopes(scopes: Iterable[api_scopes.ApiScope] | None, *, of_platform: bool) -> frozenset[api_scopes.ApiScope] | None:
    """Check a service account's scopes. None means all that the role allows."""
    if scopes is None:
        return None
    distinct_scopes = frozenset(scopes)
    if not distinct_scopes <= frozenset(possible_scopes(of_platform=of_platform)):
        raise ServiceAccountScopeUnknown
    return distinct_scopes


def parse_capabilities(names: Iterable[str], rights: roles.Rights) -> frozenset[roles.Capability]:
    """Return the capabilities with these names, if a service account with these rights can be granted them."""
    distinct_names = frozenset(names)
    if refused := distinct_names - frozenset(grantable_capabilities(rights)):
        raise CapabilityNotGrantable(refused)
    return frozenset(roles.Capability(name) for name in distinct_names)


def grantable_capabilities(rights: roles.Rights) -> list[roles.Capability]:
    """Return the capabilities that can be granted to a service account with these rights."""
    return [each for each in roles.GRANTABLE if each in rights]


def in_declared_order(capabilities: Iterable[roles.Capability]) -> list[roles.Capability]:
    """Return the capabilities in the order that `Capability` has."""
    members = frozenset(capabilities)
    return [capability for capability in roles.Capability if capability in members]


def scopes_in_order(scopes: frozenset[api_scopes.ApiScope] | None) -> list[api_scopes.ApiScope] | None:
    """Return the scopes in the order that `ApiScope` has."""
    return None if scopes is None else list(api_scopes.in_order(scopes))
