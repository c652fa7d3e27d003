"""Who calls, and what they may: callers, roles and their capabilities, API keys and their permissions, and the functions that decide.

`person` turns a token and a row into a person; `require` decides what a person may do in an organization, and `require_permission` what an
API key may do to its service, at the edge and again inside the transaction that writes (security.md Z-5).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final
from uuid import UUID

from core.kernel.errors import Forbidden, NotFound, OrganizationNotActive, SessionEnded
from core.kernel.values import Email


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


class Permission(StrEnum):
    """What an API key lets its holder do to its service; none implies another one (identity.md section 2.3; security.md K-2)."""

    READ_USERS = "read:users"
    WRITE_USERS = "write:users"
    DELETE_USERS = "delete:users"
    READ_SUBSCRIPTIONS = "read:subscriptions"
    WRITE_SUBSCRIPTIONS = "write:subscriptions"
    DELETE_SUBSCRIPTIONS = "delete:subscriptions"
    READ_ANALYTICS = "read:analytics"
    READ_SERVICE = "read:service"
    WRITE_SERVICE = "write:service"


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
class ServiceContext:
    """A service that somebody is signed in to, or that a key is for, and its organization, as they stand now."""

    id: UUID
    slug: str
    client_id: UUID
    is_public: bool  # a mobile or desktop application, which can keep no secret (organizations.md section 2.1)
    org_id: UUID
    org_slug: str
    status: OrganizationStatus  # of the organization


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceKey(Caller):
    """A program that holds an API key of a service (identity.md section 4.5)."""

    key_id: UUID
    permissions: frozenset[Permission]
    service: ServiceContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ScimClient(Caller):
    """A directory that holds a SCIM token of an organization (identity.md section 4.6)."""

    token_id: UUID
    org_id: UUID
    org_slug: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Person(Caller):
    """A person with a live session; every right is read from the database for this request (security.md J-5).

    With `service` it is an application that holds the token, which it got by signing the person in to this service: it may do little with
    it (security.md J-9). `mfa_missing` is a session from before the person switched the second factor on, in another one.
    """

    user_id: UUID
    email: Email
    email_verified: bool = False
    session_id: UUID
    is_platform_owner: bool = False
    organization: OrganizationContext | None = None
    service: ServiceContext | None = None
    impersonator_id: UUID | None = None
    mfa_missing: bool = False


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """The session of a browser on our own pages: how and when, in UTC, the person signed in there, and on what device.

    All factors were shown, and nobody is behind it but the person. `provider` is None for one that an earlier release began.
    """

    id: UUID
    provider: str | None
    device_id: UUID | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor(Person):
    """A person who is signed in in a browser, on our own pages. This session is what makes single sign-on."""

    browser: BrowserSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(Person):
    """A person who acts in the organization that a path names; the token's own organization is only context (decisions, point 54)."""

    acts_in: OrganizationContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What an access token of ours says (identity.md section 5, rule 4; decisions, point 36).

    `org_id` goes beside `org` so that a token of a deleted organization is worth nothing in a later one of the same name
    (security.md J-6). A token of a service names it, and has its `client_id` for audience; `plan`, `subscription_status` and `features`
    are the person's there when the token was made (decisions, point 37), and nothing of ours goes by them. Times are UTC.
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
    service: str = ""
    client_id: UUID | None = None
    plan: str | None = None
    subscription_status: str | None = None
    features: tuple[str, ...] | None = None
    impersonator_id: UUID | None = None  # who acts as the person; the session is then the impersonation's (identity.md section 4.8)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreAuthClaims:
    """What a pre-auth token of ours says: a first factor was right (identity.md section 5). Times are UTC."""

    id: UUID  # of what waits for the second factor
    user_id: UUID
    issued_at: datetime
    expires_at: datetime
    saml_state: str | None = field(default=None, repr=False)  # of the sign-on that it is for


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
    """What one statement knows of a live session: the person, the organization of the token, if the person is a member of it, the
    organization of the path, if that was asked about and exists; or of a session of an application, its service and whether the person
    still uses that."""

    user_id: UUID
    email: Email
    email_verified_at: datetime | None
    is_platform_owner: bool
    organization: OrganizationContext | None
    impersonator_id: UUID | None = None
    acts_in: OrganizationStanding | None = None
    service: ServiceContext | None = None
    uses_service: bool = False
    mfa_missing: bool = False


class NotAMember(Forbidden):
    """You are not a member of the organization that this token was issued for."""


class NotOfThisOrganization(Forbidden):
    """You are not a member of this organization."""


class RoleInsufficient(Forbidden):
    """Your role in this organization does not allow this."""


class NotAnEndUser(Forbidden):
    """You do not use the service that this token was issued for any more. Sign in to it again."""


class NotForApplications(Forbidden):
    """A token of an application cannot do this. Do it yourself, signed in to your account."""


class PermissionMissing(Forbidden):
    """This API key does not have the permission for this."""

    def __init__(self, permission: Permission) -> None:
        super().__init__(f"This API key does not have the permission {permission.value}.")


class DirectoryForbids(Forbidden):
    """The organization has deactivated you, so that you cannot use its services. Ask those who look after its directory."""


class NotAPlatformOwner(Forbidden):
    """Only platform owners may do this."""


class NotWhileImpersonating(Forbidden):
    """This cannot be done while impersonating somebody."""


class MfaMissing(Forbidden):
    """You have switched on two-factor authentication since you signed in here. Sign in again to do this."""


class AddressNotVerified(Forbidden):
    """Verify your e-mail address first: follow the link in the mail that we sent you, or ask for another one."""


class AccountGone(NotFound):
    """The account does not exist any more."""


class OrganizationNotFound(NotFound):
    """There is no such organization."""


def person(claims: Claims, standing: Standing | None, *, address: str | None, agent: str | None, anywhere: bool = False) -> Person:
    """The person that `claims` and the database together describe.

    Raises SessionEnded when the session, the account or the service of the token is no longer live; and unless `anywhere` is true, where
    the token's organization or service is only context (decisions, point 54): NotAMember when the person does not belong to that
    organization any more, NotAnEndUser when the person does not use that service any more (decisions, point 52).
    """
    if standing is None:
        raise SessionEnded
    organization = standing.organization if claims.org_id is not None else None
    if standing.service is not None:
        if not standing.uses_service and not anywhere:
            raise NotAnEndUser
    elif claims.org_id is not None and organization is None and not anywhere:
        raise NotAMember
    return Person(
        user_id=standing.user_id,
        email=standing.email,
        email_verified=standing.email_verified_at is not None,
        session_id=claims.session_id,
        is_platform_owner=standing.is_platform_owner,
        organization=organization,
        service=standing.service,
        impersonator_id=standing.impersonator_id,
        mfa_missing=standing.mfa_missing,
        address=address,
        agent=agent,
    )


def require_mfa(person: Person) -> None:
    """Whoever has a second factor has shown it, or comes with a device that is trusted, before they are signed in anywhere else
    (security.md A-10, V-3, X-8). Raises MfaMissing."""
    if person.mfa_missing:
        raise MfaMissing


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


def require_permission(key: ServiceKey, permission: Permission) -> None:
    """Raises PermissionMissing, OrganizationNotActive, in this order (decisions, point 16)."""
    if permission not in key.permissions:
        raise PermissionMissing(permission)
    if key.service.status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive


def may(role: Role, capability: Capability) -> bool:
    """Whether a role has a capability."""
    return capability in CAPABILITIES[role]


def member(found: Person, organization: OrganizationContext) -> Member:
    """The person, acting in this organization."""
    return Member(**{field.name: getattr(found, field.name) for field in fields(Person)}, acts_in=organization)
