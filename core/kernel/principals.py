"""Callers, roles with their capabilities, API key permissions, and the authorization decisions.

`person` combines the claims of a token with the current state of its session. `require` decides
whether a role allows an action in an organization. `require_permission` decides whether an API key
may act on its service. Both run at the edge, and again inside the transaction that writes (security
Z-5). The module is longer than 400 lines, because the callers and the decisions about them belong
together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Self
from uuid import UUID

from core.kernel.api_scopes import ApiScope, ScopeInsufficient, in_order, scope_of
from core.kernel.errors import Forbidden, NotFound, OrganizationNotActive, SessionEnded
from core.kernel.policy import Policy
from core.kernel.sign_in_age import AuthenticationInsufficient, SignInAge, SignInFacts, check_sign_in
from core.kernel.values import Email

# The client id of the platform's own frontend, a public client that signs users in to the platform
# itself.
FRONTEND_CLIENT_ID: Final = "frontend"


class Role(StrEnum):
    """Membership roles, from the most to the least powerful."""

    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"

    def is_above(self, other: Self) -> bool:
        """Return whether this role is more powerful than the other (security R-1)."""
        roles = list(Role)
        return roles.index(self) < roles.index(other)


# Every endpoint of an organization or the platform requires exactly one.
class Capability(StrEnum):
    """A right of a role, or of platform owners."""

    ORGANIZATION_VIEW = "organization.view"  # every role has it
    ORGANIZATION_MANAGE = "organization.manage"
    ORGANIZATION_OWN = "organization.own"  # transfer or delete the organization; only the owner has it
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
    RESOURCES_VIEW = "resources.view"
    RESOURCES_MANAGE = "resources.manage"
    SERVICE_ACCOUNTS_MANAGE = "service_accounts.manage"
    WEBHOOKS_MANAGE = "webhooks.manage"
    INTEGRATIONS_MANAGE = "integrations.manage"  # SAML, SCIM, SIEM, SMTP, domain
    AUDIT_VIEW = "audit.view"
    ANALYTICS_VIEW = "analytics.view"
    # Of platform owners, who have them in no organization
    PLATFORM_ORGANIZATIONS_VIEW = "platform_organizations.view"
    PLATFORM_ORGANIZATIONS_MANAGE = "platform_organizations.manage"
    PLATFORM_USERS_VIEW = "platform_users.view"
    PLATFORM_USERS_MANAGE = "platform_users.manage"
    PLATFORM_AUDIT_VIEW = "platform_audit.view"
    PLATFORM_INSTALLATION_VIEW = "platform_installation.view"
    PLATFORM_OWN = "platform.own"  # owners, impersonation, deletion of organizations, service accounts

    @property
    def is_of_platform(self) -> bool:
        return self.startswith("platform")


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
CAPABILITIES: Final[Mapping[Role, frozenset[Capability]]] = MappingProxyType(
    {
        Role.OWNER: _OF_ORGANIZATION,
        Role.ADMIN: _OF_ORGANIZATION - {Capability.ROLES_MANAGE, Capability.ORGANIZATION_OWN},
        Role.MEMBER: _VIEWED_BY_MEMBERS,
    }
)
# The capabilities that an owner can grant a service account by name, and the changes that each allows: effects
# that remain when the account is gone. No other one is ever granted.
GRANTABLE: Final[Mapping[Capability, str]] = MappingProxyType(
    {
        Capability.MEMBERS_MANAGE: (
            "Invite admins, remove members, unblock users, send password resets, accept invitations, and revoke personal tokens."
        ),
        Capability.ROLES_MANAGE: "Change the roles of members.",
        Capability.SERVICES_CREATE: "Create applications.",
        Capability.SERVICES_MANAGE: "Change applications, who may use them, their secrets, and their identity providers.",
        Capability.API_KEYS_MANAGE: "Create and delete API keys.",
        Capability.END_USERS_MANAGE: "Assign users to applications.",
        Capability.RESOURCES_MANAGE: "Create, change and delete API resources, with their clients, users and credentials.",
        Capability.WEBHOOKS_MANAGE: "Create, change and delete webhooks.",
        Capability.INTEGRATIONS_MANAGE: "Change the domain, SAML, SCIM tokens, SIEM and the mail server.",
        Capability.PLATFORM_ORGANIZATIONS_MANAGE: "Approve, reject, suspend and activate organizations, and change their tiers.",
        Capability.PLATFORM_USERS_MANAGE: "Deactivate users, end their sessions, send password resets, and remove second factors.",
    }
)


class Permission(StrEnum):
    """A right of an API key on its service. No permission implies another one."""

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
    """The lifecycle states of an organization."""

    PENDING = "pending"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The cause of a change. `transaction(by=...)` writes it into audit entries."""

    address: str | None = None
    agent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Anonymous(Caller):
    """An HTTP client without credentials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System(Caller):
    """The service itself: an actor, or a command that the operator runs."""


SYSTEM = System()


@dataclass(frozen=True, slots=True)
class OrganizationContext:
    """The current state of the organization that a token was issued for."""

    id: UUID
    slug: str
    status: OrganizationStatus
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceContext:
    """The current state of the service of a session or an API key, and of its organization."""

    id: UUID
    slug: str
    client_id: UUID
    is_public: bool  # a single-page, mobile or desktop application, which cannot keep a secret
    org_id: UUID
    org_slug: str
    status: OrganizationStatus  # of the organization
    access_token_seconds: int | None = None  # the lifetimes of its tokens; None for those of the platform
    refresh_token_seconds: int | None = None
    enterprise: bool = False  # the rules of IPSIE SL1
    requires_second_factor: bool = False  # in each sign-in
    require_pushed_authorization_requests: bool = False  # RFC 9126 section 6
    dpop_bound_access_tokens: bool = False  # RFC 9449 section 5.2
    always_ask_consent: bool = False  # in each sign-in

    @property
    def refuses_passwords(self) -> bool:
        """Whether the application gets no tokens for a password or an email code of the user.

        A sign-in with either has no pushed request, no DPoP proof, and no page that asks for consent.
        """
        is_bound = self.require_pushed_authorization_requests or self.dpop_bound_access_tokens
        return self.is_public or self.is_code_flow_only or is_bound or self.always_ask_consent

    @property
    def is_code_flow_only(self) -> bool:
        """Whether applications can start sessions with the authorization code flow only, and not by password or device flow.

        IPSIE SL1 has no other flow. In no other flow can we ask for the second factor again: a
        trusted device skips it, and a device approval comes from a session that may lack it.
        """
        return self.enterprise or self.requires_second_factor


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceKey(Caller):
    """A program with an API key of a service."""

    key_id: UUID
    permissions: frozenset[Permission]
    service: ServiceContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ScimClient(Caller):
    """A directory with a SCIM token of an organization."""

    token_id: UUID
    org_id: UUID
    org_slug: str


@dataclass(frozen=True, slots=True)
class PersonalTokenContext:
    """A live personal access token. It acts in one organization, or on the user's own account if `org_id` is None."""

    id: UUID
    prefix: str
    scopes: frozenset[ApiScope]
    org_id: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Person(Caller):
    """A user with a live session. Every right is read from the database for this request (security J-5).

    `service` is set if an application holds the token, because the user signed in to that service.
    Such a token allows only a few actions (security J-9). `impersonated_in` is the only organization
    that an impersonation may act in, or None if it may act in all organizations of the user.
    `mfa_missing` is true if the user enabled the second factor in another session after this one
    had started. `personal_token` is set if a program presents a personal access token of the user. Its
    id is also `session_id`.
    """

    user_id: UUID
    email: Email
    email_verified: bool = False
    session_id: UUID
    is_platform_owner: bool = False
    organization: OrganizationContext | None = None
    service: ServiceContext | None = None
    impersonator_id: UUID | None = None
    impersonated_in: UUID | None = None
    mfa_missing: bool = False
    personal_token: PersonalTokenContext | None = None
    key_thumbprint: str | None = None  # of the key that the access token is bound to
    sign_in: SignInFacts | None = None  # the last one in the session; None during an impersonation, and for a personal access token
    openid_scope: tuple[str, ...] = ()  # of an application's token with OpenID Connect; empty for all other tokens

    @property
    def actor_id(self) -> UUID:
        return self.user_id

    def sees(self, scope: str) -> bool:
        """Return whether the token shows what this scope of OpenID Connect gives. Only applications with `openid` need the scope."""
        return not self.openid_scope or scope in self.openid_scope


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A browser session on our own pages: provider, device and time (UTC) of the sign-in.

    All factors were verified, and no impersonator uses it. `provider` is None if an earlier release
    started the session.
    """

    id: UUID
    provider: str | None
    device_id: UUID | None
    created_at: datetime
    second_factor: bool = False  # whether this sign-in used it; a trusted device skips it
    is_fresh: bool = True  # False if an identity provider may have authenticated the user before this sign-in


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor(Person):
    """A user who is signed in on our own pages in a browser. This session is the basis of single sign-on."""

    browser: BrowserSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(Person):
    """A user who acts in the organization of the path. The organization of the token is only context."""

    acts_in: OrganizationContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccountCaller(Caller):
    """A program with an access token of a service account. Every right is read from the database for this request.

    `scopes` are those of the token that the account still has. `granted` are the capabilities that an
    owner granted by name. `org_id` is None for a service account of the platform.
    """

    account_id: UUID
    credential_id: UUID
    name: str
    scopes: frozenset[ApiScope]
    granted: frozenset[Capability] = frozenset()
    org_id: UUID | None = None

    @property
    def actor_id(self) -> UUID:
        return self.account_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ActingServiceAccount(ServiceAccountCaller):
    """A service account that acts in its organization."""

    acts_in: OrganizationContext


# The callers of the routes of an organization. A route that needs a person has a Member.
OrganizationCaller = Member | ActingServiceAccount
# The callers of the routes of the platform.
PlatformCaller = Person | ServiceAccountCaller


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """The requirements of a route on its caller.

    `scope` is needed by tokens that have scopes. None: such tokens cannot use the route. A route that
    `needs_person` needs a user with a session. The effect of a route that `outlives` remains when
    its caller is gone.
    """

    capability: Capability | None = None
    scope: ApiScope | None = None
    inactive: bool = False  # the organization need not be active
    needs_person: bool = False
    outlives: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The claims of an access token. Times are UTC.

    `org_id` accompanies the slug `org`, so that a token of a deleted organization is not valid for
    a later organization with the same slug (security J-6). The token of a service names the
    service, and its audience is the service's `client_id`, unless `audience` is set. `plan`,
    `subscription_status` and `features` describe the subscription when the token was issued,
    and `auth_time`, `acr` and `amr` how the user authenticated (RFC 9068 section
    2.2.1). Gatehouse itself never decides by them.
    """

    user_id: UUID
    session_id: UUID
    email: Email | None  # None for an application that was granted `openid` without `email`
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
    impersonator_id: UUID | None = None  # set if the session is an impersonation
    audience: str | None = None  # of a token of OpenID Connect: the userinfo endpoint, or a resource (RFC 8707)
    scope: tuple[str, ...] = ()  # granted with `openid`
    auth_time: datetime | None = None
    acr: str | None = None
    amr: tuple[str, ...] = ()
    key_thumbprint: str | None = None  # of the key that the token is bound to (`cnf.jkt`, RFC 9449 section 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramClaims:
    """The claims of an access token that a program got for itself (RFC 6749 section 4.4). Times are UTC.

    The subject is the program itself, a service account or an application (RFC 9068 section 2.2).
    `credential_id` is the credential with which it authenticated, and takes the place of a session.
    """

    client_id: UUID
    credential_id: UUID
    token_id: UUID
    issued_at: datetime
    expires_at: datetime
    audience: str
    scope: tuple[str, ...]
    is_of_api: bool = False  # for our own API, and not for an API resource of an organization
    org: str = ""  # the organization of the program; empty for a program of the platform
    org_id: UUID | None = None
    key_thumbprint: str | None = None  # of the key that the token is bound to (`cnf.jkt`)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreAuthClaims:
    """The claims of a pre-auth token: the first factor was verified. Times are UTC."""

    id: UUID  # of the pending sign-in
    user_id: UUID
    issued_at: datetime
    expires_at: datetime
    saml_state: str | None = field(default=None, repr=False)  # of the SAML sign-on that started this sign-in


@dataclass(frozen=True, slots=True)
class MembershipState:
    """The status of an organization, and the role of a user in it. `role` is None if the user is not a member."""

    id: UUID
    slug: str
    status: OrganizationStatus
    role: Role | None
    confirmed: bool = False  # whether the member has confirmed the membership (security, Terms)


@dataclass(frozen=True, slots=True)
class SessionContext:
    """A live session, loaded by one statement: its user, and the organizations or the service around it.

    `organization` is the organization of the token, or None if the user is not a member of it.
    `acts_in` is the organization of the path, or None if the path has none or an unknown one. The
    session of an application has a `service` instead, and `uses_service` tells whether the user
    still uses it.
    """

    user_id: UUID
    email: Email
    email_verified_at: datetime | None
    is_platform_owner: bool
    organization: OrganizationContext | None
    impersonator_id: UUID | None = None
    acts_in: MembershipState | None = None
    service: ServiceContext | None = None
    uses_service: bool = False
    mfa_missing: bool = False
    impersonated_in: UUID | None = None
    sign_in: SignInFacts | None = None


class NotAMember(Forbidden):
    """You are not a member of the organization that this token was issued for. Sign in again."""


class NotOfThisOrganization(Forbidden):
    """You are not a member of this organization."""


class OwnMembershipNotConfirmed(Forbidden):
    """Confirm first that you are a member of this organization. The page of your organizations has a button for it."""


class RoleInsufficient(Forbidden):
    """Your role in this organization does not allow this. Ask an admin or the owner of the organization."""

    audited = True


class NotAnEndUser(Forbidden):
    """You are no longer a user of the service that this token was issued for. Sign in to it again."""


class NotForApplications(Forbidden):
    """An application's token cannot do this. Sign in to your account and do it there."""


class NotWithOpenId(NotForApplications):
    """No scope of OpenID Connect gives this data to an application. Its users can see it in their account."""


class NeedsPerson(Forbidden):
    """Only a signed-in user can do this. Sign in, and use the access token of that session."""

    audited = True


class NotForServiceAccounts(Forbidden):
    """The effect of this remains when the service account is gone. Do it as a user, or ask an owner to grant the capability by name."""

    audited = True

    def __init__(self, capability: Capability) -> None:
        super().__init__(
            "The effect of this remains when the service account is gone. "
            f"Do it as a user, or ask an owner to grant the service account the capability {capability.value}."
        )


class NotForPersonalTokens(Forbidden):
    """Personal access tokens cannot do this. Sign in, and use the access token of that session."""


class PersonalTokenElsewhere(Forbidden):
    """This personal access token is limited to another organization, or to your own account. Create one for this organization."""


class PermissionMissing(Forbidden):
    """This API key does not have the required permission. Use a key that has it."""

    audited = True

    def __init__(self, permission: Permission, key: ServiceKey) -> None:
        super().__init__(f"This API key does not have the permission {permission.value}.")
        self.caller = key


class BlockedByDirectory(Forbidden):
    """The organization's directory has deactivated you, so you cannot use its services. Ask your organization's administrators."""


class NotAPlatformOwner(Forbidden):
    """Only platform owners may do this. Ask the operator of Gatehouse."""


class ImpersonatedElsewhere(Forbidden):
    """This impersonation is limited to another organization. Start one that names this organization, or none."""


class NotWhileImpersonating(Forbidden):
    """This cannot be done while impersonating a user. End the impersonation first."""


class MfaMissing(AuthenticationInsufficient):
    """You have enabled two-factor authentication since you signed in here. Sign in again to do this."""

    needed: Mapping[str, str] = {"acr_values": "mfa"}


class AddressNotVerified(Forbidden):
    """Verify your email address first. Open the link in the email that we sent you, or request a new one."""


class AccountGone(NotFound):
    """The account no longer exists."""


class OrganizationNotFound(NotFound):
    """This organization does not exist."""


def to_person(
    claims: Claims, session: SessionContext | None, *, address: str | None, agent: str | None, allow_former_users: bool = False
) -> Person:
    """Return the user of a token, from its claims and the current state of its session.

    `allow_former_users` accepts users who have left the organization or the service of the token,
    which is only context then.

    Raises: SessionEnded if the session, the account or the service is no longer live; NotAMember if
    the user has left the organization; NotAnEndUser if the user no longer uses the service.
    """
    if session is None:
        raise SessionEnded
    organization = session.organization if claims.org_id is not None else None
    if session.service is not None:
        if not session.uses_service and not allow_former_users:
            raise NotAnEndUser
    elif claims.org_id is not None and organization is None and not allow_former_users:
        raise NotAMember
    return Person(
        user_id=session.user_id,
        email=session.email,
        email_verified=session.email_verified_at is not None,
        session_id=claims.session_id,
        is_platform_owner=session.is_platform_owner,
        organization=organization,
        service=session.service,
        impersonator_id=session.impersonator_id,
        impersonated_in=session.impersonated_in,
        mfa_missing=session.mfa_missing,
        key_thumbprint=claims.key_thumbprint,
        sign_in=session.sign_in,
        openid_scope=() if session.service is None else claims.scope,
        address=address,
        agent=agent,
    )


def require_mfa(person: Person) -> None:
    """Check that the session of a user with a second factor started with that factor, or on a trusted device.

    Call this before every sign-in to an application (security A-10, V-3, X-8).

    Raises: MfaMissing.
    """
    if person.mfa_missing:
        raise MfaMissing


def require_sign_in(user: Person, age: SignInAge, policy: Policy, now: datetime) -> None:
    """Check that the last sign-in in the user's session is as young as `age` demands (security A-12).

    Programs are not asked: neither personal access tokens nor, unless the sign-in must be fresh, the tokens of applications.

    Raises: SignInNotRecent; NotWhileImpersonating.
    """
    if user.personal_token is not None or (user.service is not None and age is SignInAge.RECENT):
        return
    if user.impersonator_id is not None and age is not SignInAge.ANY:
        raise NotWhileImpersonating
    check_sign_in(user.sign_in, age, policy, now)


def require_capability(state: MembershipState | None, capability: Capability, *, inactive: bool = False) -> OrganizationContext:
    """Return the organization to act in, if the role has `capability`. `inactive` accepts an organization that is not active.

    Raises: OrganizationNotFound, NotOfThisOrganization, RoleInsufficient, OrganizationNotActive,
    checked in this order.
    """
    if state is None:
        raise OrganizationNotFound
    if state.role is None:
        raise NotOfThisOrganization
    if not has_capability(state.role, capability):
        raise RoleInsufficient
    if state.status is not OrganizationStatus.ACTIVE and not inactive:
        raise OrganizationNotActive
    return OrganizationContext(state.id, state.slug, state.status, state.role)


def require_permission(key: ServiceKey, permission: Permission) -> None:
    """Check that an API key has `permission` and that its organization is active.

    Raises: PermissionMissing, OrganizationNotActive, checked in this order.
    """
    if permission not in key.permissions:
        raise PermissionMissing(permission, key)
    if key.service.status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive


def check_service_account(account: ServiceAccountCaller, requirement: Requirement) -> None:
    """Check that a service account may call a route with this requirement. The caller has checked its role.

    Raises: NeedsPerson, NotForServiceAccounts, ScopeInsufficient, checked in this order.
    """
    capability = requirement.capability
    is_grantable = capability is not None and capability in GRANTABLE
    is_granted = is_grantable and capability in account.granted
    if requirement.scope is None or (requirement.needs_person and not is_granted):
        raise NeedsPerson
    if requirement.outlives and not is_granted:
        raise NotForServiceAccounts(capability) if is_grantable and capability is not None else NeedsPerson()
    if requirement.scope not in account.scopes:
        raise ScopeInsufficient(requirement.scope)


def check_personal_token(token: PersonalTokenContext, requirement: Requirement, org_id: UUID | None) -> None:
    """Check that a personal access token may call a route with this requirement.

    `org_id` is the organization that the route acts in, or None for the user's own account.

    Raises: NotForPersonalTokens, PersonalTokenElsewhere, ScopeInsufficient, checked in this order.
    """
    if requirement.scope is None or requirement.needs_person:
        raise NotForPersonalTokens
    if token.org_id != org_id:
        raise PersonalTokenElsewhere
    if requirement.scope not in token.scopes:
        raise ScopeInsufficient(requirement.scope)


def allowed_scopes(role: Role, scopes: frozenset[ApiScope] | None) -> tuple[ApiScope, ...]:
    """Return the scopes that a token of an organization's caller with this role can use. `scopes` narrows them, unless it is None."""
    usable = {
        scope
        for capability in CAPABILITIES[role]
        for changes in ((False,) if capability.endswith(".view") else (False, True))
        if (scope := scope_of(capability, changes=changes)) is not None
    }
    return in_order(usable if scopes is None else usable & scopes)


def has_capability(role: Role, capability: Capability) -> bool:
    """Return whether a role has a capability."""
    return capability in CAPABILITIES[role]


def to_acting_service_account(account: ServiceAccountCaller, organization: OrganizationContext) -> ActingServiceAccount:
    """Return the service account as one that acts in its organization."""
    return ActingServiceAccount(
        **{field.name: getattr(account, field.name) for field in fields(ServiceAccountCaller)}, acts_in=organization
    )


def to_acting_member(user: Person, state: MembershipState | None) -> Member | None:
    """Return the user as a member who acts in this organization, or None if they are not a member. The role may not allow any action."""
    if state is None or state.role is None:
        return None
    return to_member(user, OrganizationContext(state.id, state.slug, state.status, state.role))


def to_member(user: Person, organization: OrganizationContext) -> Member:
    """Return the user as a member who acts in this organization."""
    return Member(**{field.name: getattr(user, field.name) for field in fields(Person)}, acts_in=organization)
