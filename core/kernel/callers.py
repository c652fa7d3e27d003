"""Callers with credentials, and the organization, service or session that they act in."""

from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from core.kernel import roles, shares
from core.kernel.api_scopes import ApiScope
from core.kernel.causes import Caller
from core.kernel.errors import Refusal
from core.kernel.proofs import Proofs, SessionProofs, Strength, in_session, seen_in
from core.kernel.sign_in_age import LastSignIn
from core.kernel.values import Email


class OrganizationStatus(StrEnum):
    """The lifecycle states of an organization."""

    PENDING = "pending"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class OrganizationContext:
    """The current state of a token's organization, with the caller's role and rights in it."""

    id: UUID
    slug: str
    status: OrganizationStatus
    role: roles.RoleName
    rights: roles.Rights


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceContext:
    """The current state of the service that a session or an API key belongs to, and of its organization."""

    id: UUID
    slug: str
    client_id: UUID
    is_public: bool  # a single-page, mobile or desktop application, which cannot keep a secret
    org_id: UUID
    org_slug: str
    status: OrganizationStatus  # the organization's
    access_token_seconds: int | None = None  # how long its tokens live; None: as long as the platform's
    refresh_token_seconds: int | None = None
    enterprise: bool = False  # follows the rules in IPSIE SL1
    has_sign_in_policy: bool = False  # its organization has a policy
    required_strength: Strength = Strength.ONE  # for every sign-in
    require_pushed_authorization_requests: bool = False  # RFC 9126 section 6
    dpop_bound_access_tokens: bool = False  # RFC 9449 section 5.2
    always_ask_consent: bool = False  # in every sign-in
    client_uri: str | None = None  # an external client's address, or None for a registered application

    @property
    def is_external(self) -> bool:
        """Whether this is an external client, and not an application that the organization registered."""
        return self.client_uri is not None

    @property
    def client_name(self) -> str:
        """The client id in requests, tokens and answers: the address for an external client, and the id for a registered application."""
        return self.client_uri or str(self.client_id)

    @property
    def refuses_passwords(self) -> bool:
        """Whether the application gets no tokens for the user's password or email code.

        A sign-in with either has no pushed request, no DPoP proof, and no page that asks for consent.
        """
        is_bound = self.require_pushed_authorization_requests or self.dpop_bound_access_tokens
        return self.is_public or self.is_code_flow_only or is_bound or self.always_ask_consent

    @property
    def is_code_flow_only(self) -> bool:
        """Whether applications can start sessions with the authorization code flow only, and not by password or device flow.

        IPSIE SL1 has no other flow. No other flow lets us ask for the second factor again. A trusted device skips
        this factor, and a device approval comes from a session that may lack it.
        """
        return self.enterprise or self.required_strength > Strength.ONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceKey(Caller):
    """A program with a service's API key."""

    key_id: UUID
    permissions: frozenset[roles.Permission]
    service: ServiceContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ScimClient(Caller):
    """A directory with an organization's SCIM token."""

    token_id: UUID
    org_id: UUID
    org_slug: str
    directory_groups: bool = False  # whether the directory may create groups
    has_attributes: bool = False  # whether the organization has declared user attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationClient(Caller):
    """A client that registers itself with an organization's registration token."""

    token_id: UUID
    org_id: UUID
    name: str  # the token's name


class SetupPart(StrEnum):
    """An integration that a set-up link prepares."""

    CONNECTION = "connection"
    DOMAIN = "domain"
    DIRECTORY = "directory"
    CERTIFICATE = "certificate"  # a renewed certificate for an existing connection
    SIEM = "siem"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupLinkCaller(Caller):
    """The browser that opened a set-up link. The link only makes proposals, and has no rights."""

    link_id: UUID
    org_id: UUID
    name: str  # the link's name
    parts: tuple[SetupPart, ...]


@dataclass(frozen=True, slots=True)
class PersonalTokenContext:
    """A live personal access token. The token acts in one organization, or on the user's own account if `org_id` is None."""

    id: UUID
    prefix: str
    scopes: frozenset[ApiScope]
    org_id: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Person(Caller):
    """A user with a live session. Every right is read from the database for this request (security J-5).

    `service` is set if an application holds the token, because the user signed in to that service. An application's token allows only a few
    actions (security J-9). `impersonated_in` is the only organization that an impersonation may act in, or None if it may act in all the
    user's organizations. `restricted_to` is the only organization in which the session is good, because it began at this organization's
    connection. `restricted_to` is None for an unrestricted session. `mfa_missing` is true if the user enabled the second factor in another
    session after this session had started. `personal_token` is set if a program presents the user's personal access token. The personal
    token's id is also `session_id`.
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
    restricted_to: UUID | None = None
    mfa_missing: bool = False
    personal_token: PersonalTokenContext | None = None
    key_thumbprint: str | None = None  # the access token's key
    sign_in: LastSignIn | None = None  # the session's last sign-in; None during an impersonation, and for a personal access token
    openid_scope: tuple[str, ...] = ()  # for an application's token with OpenID Connect; empty for all other tokens
    time_zone: str | None = None  # from the profile, on our own pages; None during an impersonation

    @property
    def actor_id(self) -> UUID:
        return self.user_id

    def sees(self, scope: str) -> bool:
        """Return whether the token shows the data that this OpenID Connect scope gives. Only applications with `openid` need the scope."""
        return not self.openid_scope or scope in self.openid_scope


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A browser session on our own pages: its device, and the proofs from the last sign-in.

    All factors were verified, except a second factor that a trusted device skipped. No impersonator uses a browser
    session.
    """

    id: UUID
    device_id: UUID | None
    proofs: SessionProofs
    risk_is_high: bool = False  # its sign-in had a high risk


@dataclass(frozen=True, slots=True)
class StoredSignIn:
    """The sign-in in a session of any kind. `org_id` is the organization that its application belongs to, if any."""

    session_id: UUID
    org_id: UUID | None
    mfa_missing: bool
    proofs: SessionProofs


def acts_for_platform(caller: Caller) -> bool:
    """Return whether the caller acts for the platform.

    This is a platform program, or a platform owner, also as a member or as another user. The address and the agent of
    such a caller stay in the platform's log (security #addresses-of-platform-owners).
    """
    if isinstance(caller, ServiceAccountCaller):
        return caller.org_id is None
    return isinstance(caller, Person) and (caller.is_platform_owner or caller.impersonator_id is not None)


def proofs_at(service: ServiceContext | None, proofs: SessionProofs, now: datetime) -> Proofs:
    """Return which proofs count at an application, or at the platform's own frontend, which has the session's reach."""
    return in_session(proofs) if service is None else seen_in(proofs, service.org_id, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor(Person):
    """A user who is signed in on our own pages in a browser. This session is the basis for single sign-on."""

    browser: BrowserSession


@dataclass(frozen=True, slots=True)
class ConnectionSignIn:
    """A member's sign-in through the connection that the organization requires.

    The sign-in counts in this organization for the sign-in age.
    """

    is_required: bool  # otherwise the session's last sign-in counts, also for break glass
    refusal: Refusal | None = None  # None: the sign-in is as young as the request needs


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(Person):
    """A user who acts in the organization that the path names. The token's organization is only context."""

    acts_in: OrganizationContext
    has_sign_in_policy: bool = False  # the organization has a policy, and it counts in this request
    connection_sign_in: ConnectionSignIn | None = None  # None: the request asks for no age, or without a policy


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccountCaller(Caller):
    """A program with a service account's access token. Every right is read from the database for this request.

    `scopes` are the token's scopes that the account still has. `granted` are the capabilities that an owner granted by
    name. `org_id` is None for a platform service account.
    """

    account_id: UUID
    credential_id: UUID
    name: str
    scopes: frozenset[ApiScope]
    granted: frozenset[roles.Capability] = frozenset()
    org_id: UUID | None = None

    @property
    def actor_id(self) -> UUID:
        return self.account_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ActingServiceAccount(ServiceAccountCaller):
    """A service account that acts in its organization."""

    acts_in: OrganizationContext


# The callers for an organization's routes. A route that needs a person has a Member.
OrganizationCaller = Member | ActingServiceAccount


def organization_of(caller: OrganizationCaller | None) -> UUID | None:
    """Return the id of the organization that the caller acts in, or None without a caller: then the whole platform is meant."""
    return None if caller is None else caller.acts_in.id


def share_of(caller: Caller) -> shares.Share:
    """Return the caller's share: the organization's, or the user's own if they act in no organization.

    Without credentials, return the current share.
    """
    if isinstance(caller, Member | ActingServiceAccount):
        return shares.of_organization(caller.acts_in.id)
    if isinstance(caller, ServiceKey):
        return shares.of_organization(caller.service.org_id)
    if isinstance(caller, ScimClient | SetupLinkCaller | RegistrationClient | ServiceAccountCaller):
        return shares.of_organization(caller.org_id)
    if not isinstance(caller, Person):
        return shares.current_share.get()
    if caller.service is not None:
        return shares.of_organization(caller.service.org_id)
    return shares.of_account(caller.user_id) if caller.organization is None else shares.of_organization(caller.organization.id)


# The callers for the platform's routes.
PlatformCaller = Person | ServiceAccountCaller


@dataclass(frozen=True, slots=True)
class PolicyState:
    """The sign-in policy that counts for a request, the organization's or the platform's: `is_met` if the session has a live pass."""

    is_met: bool
    admin_networks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MembershipState:
    """An organization's status, and the user's role and rights in it. `role` is None if the user is not a member."""

    id: UUID
    slug: str
    status: OrganizationStatus
    role: roles.RoleName | None
    rights: roles.Rights
    confirmed: bool = False  # whether the member has confirmed the membership (security, Terms)
    policy: PolicyState | None = None  # None without a sign-in policy


@dataclass(frozen=True, slots=True)
class SessionContext:
    """A live session, loaded by one statement: its user, and the organizations or the service around it.

    `organization` is the token's organization, or None if the user is not a member there. `acts_in` is the path's
    organization, or None if the path has none or an unknown one. An application's session has a `service` instead, and
    `uses_service` tells whether the user still uses it.
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
    restricted_to: UUID | None = None  # as in `Person`
    sign_in: LastSignIn | None = None
    time_zone: str | None = None  # only for a browser session


def to_acting_service_account(account: ServiceAccountCaller, organization: OrganizationContext) -> ActingServiceAccount:
    """Return the service account, acting in its organization."""
    return ActingServiceAccount(
        **{field.name: getattr(account, field.name) for field in fields(ServiceAccountCaller)}, acts_in=organization
    )


def to_acting_member(user: Person, state: MembershipState | None) -> Member | None:
    """Return the user as a member who acts in this organization, or None if they are not a member. The role may not allow any action."""
    if state is None or state.role is None:
        return None
    return to_member(user, OrganizationContext(state.id, state.slug, state.status, state.role, state.rights))


def to_member(user: Person, organization: OrganizationContext, *, has_sign_in_policy: bool = False) -> Member:
    """Return the user as a member who acts in this organization."""
    own = {field.name: getattr(user, field.name) for field in fields(Person)}
    return Member(**own, acts_in=organization, has_sign_in_policy=has_sign_in_policy)
