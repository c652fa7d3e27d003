"""Who calls, and what they may: callers, roles and their capabilities, and the functions that decide.

`person` turns a token and a row into a person; `require` decides what a person may do in an organization, at the edge and again inside
the transaction that writes (security.md Z-5).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final
from uuid import UUID

from core.errors import Forbidden, NotFound, OrganizationNotActive, SessionEnded
from core.values import Email


class Role(StrEnum):
    """Membership roles, in descending order of power (identity.md section 5, rule 1)."""

    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"


class Capability(StrEnum):
    """What a role lets its holder do; every endpoint of an organization asks for exactly one (decisions, point 189)."""

    ORGANIZATION_VIEW = "organization.view"  # every member's, whatever else a role lacks
    ORGANIZATION_MANAGE = "organization.manage"
    ORGANIZATION_OWN = "organization.own"  # to give it away or to delete it: the owner's alone, and no role can be given it
    MEMBERS_VIEW = "members.view"
    MEMBERS_MANAGE = "members.manage"
    ROLES_MANAGE = "roles.manage"
    BILLING_MANAGE = "billing.manage"
    SERVICES_VIEW = "services.view"
    SERVICES_CREATE = "services.create"
    SERVICES_MANAGE = "services.manage"
    API_KEYS_VIEW = "api_keys.view"
    API_KEYS_MANAGE = "api_keys.manage"
    END_USERS_VIEW = "end_users.view"
    END_USERS_MANAGE = "end_users.manage"
    WEBHOOKS_MANAGE = "webhooks.manage"
    INTEGRATIONS_MANAGE = "integrations.manage"  # SAML, SCIM, SIEM, SMTP, domain
    AUDIT_VIEW = "audit.view"
    ANALYTICS_VIEW = "analytics.view"


_VIEWED_BY_MEMBERS: Final = frozenset(
    {
        Capability.ORGANIZATION_VIEW,
        Capability.MEMBERS_VIEW,
        Capability.SERVICES_VIEW,
        Capability.API_KEYS_VIEW,
        Capability.END_USERS_VIEW,
        Capability.ANALYTICS_VIEW,
    }
)
CAPABILITIES: Final[Mapping[Role, frozenset[Capability]]] = MappingProxyType(
    {
        Role.OWNER: frozenset(Capability),
        Role.ADMIN: frozenset(Capability) - {Capability.ROLES_MANAGE, Capability.ORGANIZATION_OWN},
        Role.MEMBER: _VIEWED_BY_MEMBERS,
    }
)


class OrganizationStatus(StrEnum):
    """organizations.md section 2.3."""

    PENDING = "pending"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whoever caused something: what `transaction(by=...)` writes into audit entries."""

    address: str | None = None
    agent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Anonymous(Caller):
    """Nobody in particular, over HTTP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System(Caller):
    """The service itself: an actor, or a command of the operator."""


SYSTEM = System()


@dataclass(frozen=True, slots=True)
class OrganizationContext:
    """The organization that a token was issued for, as it stands now."""

    id: UUID
    slug: str
    status: OrganizationStatus
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Person(Caller):
    """A person with a live session; every right is read from the database for this request (security.md J-5)."""

    user_id: UUID
    email: Email
    email_verified: bool = False
    session_id: UUID
    is_platform_owner: bool = False
    organization: OrganizationContext | None = None
    impersonator_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(Person):
    """A person who acts in the organization that a path names; the token's own organization is only context (decisions, point 54)."""

    acts_in: OrganizationContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What an access token of ours says (identity.md section 5, rule 4; decisions, point 36).

    `org_id` goes beside `org` so that a token of a deleted organization is worth nothing in a later one of the same name
    (security.md J-6). Times are UTC.
    """

    user_id: UUID
    session_id: UUID
    email: Email
    email_verified: bool
    token_id: UUID
    issued_at: datetime
    expires_at: datetime
    org: str = ""
    org_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class OrganizationStanding:
    """An organization as it stands now, and what somebody is in it; `role` is None for whoever is not a member."""

    id: UUID
    slug: str
    status: OrganizationStatus
    role: Role | None
    confirmed: bool = False  # the membership, by its member's taking part (the terms of security.md)


@dataclass(frozen=True, slots=True)
class Standing:
    """What one statement knows of a live session: the person, the organization of the token, if the person is a member of it, and the
    organization of the path, if that was asked about and exists."""

    user_id: UUID
    email: Email
    email_verified_at: datetime | None
    is_platform_owner: bool
    organization: OrganizationContext | None
    impersonator_id: UUID | None = None
    acts_in: OrganizationStanding | None = None


class NotAMember(Forbidden):
    """You are not a member of the organization that this token was issued for."""


class NotOfThisOrganization(Forbidden):
    """You are not a member of this organization."""


class RoleInsufficient(Forbidden):
    """Your role in this organization does not allow this."""


class NotAPlatformOwner(Forbidden):
    """Only platform owners may do this."""


class NotWhileImpersonating(Forbidden):
    """This cannot be done while impersonating somebody."""


class AddressNotVerified(Forbidden):
    """Verify your e-mail address first: follow the link in the mail that we sent you, or ask for another one."""


class OrganizationNotFound(NotFound):
    """There is no such organization."""


def person(claims: Claims, standing: Standing | None, *, address: str | None, agent: str | None, anywhere: bool = False) -> Person:
    """The person that `claims` and the database together describe.

    Raises SessionEnded when the session, or the account, is no longer live; NotAMember when the token names an organization that
    the person does not belong to any more, unless `anywhere` is true (the organization is only context: decisions, point 54).
    """
    if standing is None:
        raise SessionEnded
    organization = standing.organization if claims.org_id is not None else None
    if claims.org_id is not None and organization is None and not anywhere:
        raise NotAMember
    return Person(
        user_id=standing.user_id,
        email=standing.email,
        email_verified=standing.email_verified_at is not None,
        session_id=claims.session_id,
        is_platform_owner=standing.is_platform_owner,
        organization=organization,
        impersonator_id=standing.impersonator_id,
        address=address,
        agent=agent,
    )


def require(standing: OrganizationStanding | None, capability: Capability, *, inactive: bool = False) -> OrganizationContext:
    """The organization to act in, if whoever stands there so may do what `capability` names.

    `inactive` lets that be while the organization is not active.
    Raises OrganizationNotFound, NotOfThisOrganization, RoleInsufficient, OrganizationNotActive, in this order (decisions, points 16, 17).
    """
    if standing is None:
        raise OrganizationNotFound
    if standing.role is None:
        raise NotOfThisOrganization
    if not may(standing.role, capability):
        raise RoleInsufficient
    if standing.status is not OrganizationStatus.ACTIVE and not inactive:
        raise OrganizationNotActive
    return OrganizationContext(standing.id, standing.slug, standing.status, standing.role)


def may(role: Role, capability: Capability) -> bool:
    """Whether a role has a capability."""
    return capability in CAPABILITIES[role]


def member(found: Person, organization: OrganizationContext) -> Member:
    """The person, acting in this organization."""
    return Member(**{field.name: getattr(found, field.name) for field in fields(Person)}, acts_in=organization)
