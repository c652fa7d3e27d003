"""Application users: who may use an application, an organization's end users, a service's users, and a user's own applications."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Self
from uuid import UUID

from core.accounts.model.protection import HeldFactor, Protection
from core.kernel import errors, uris
from core.kernel.connections import ConnectionSlug
from core.kernel.values import Email
from core.tenancy.model.members import LiveSessions


class NoAccessToService(errors.Forbidden):
    """You don't have access to this application. Ask the application's administrators for access, or sign in as another user."""


class BlockedByAdmin(NoAccessToService):
    """An administrator blocked you at the applications and APIs of this organization. Ask an administrator, or sign in as another user."""


class SecondFactorRequired(NoAccessToService):
    """This application requires a second factor in each sign-in. Set one up, or sign in again with yours or with a passkey."""


class PasskeyRequired(SecondFactorRequired):
    """This application requires a passkey in each sign-in. Add one to your account, or sign in again with yours."""


class LaunchUrlInvalid(errors.Invalid):
    """The launch URL must start with https:// or http://localhost, and must not have a user name, fragment or asterisk."""


class AssigneeNotFound(errors.NotFound):
    """This user is neither an end user nor a confirmed member of the organization. Invite them, and assign them when they have joined."""


class NotAssigned(errors.NotFound):
    """This user is not assigned to the application."""


class AccessPolicy(StrEnum):
    """The users that a service admits, unless the organization's directory blocks them."""

    ANYONE = "anyone"  # every account; signing in enrolls it
    MEMBERS = "members"  # the organization's members
    MEMBERS_AND_ASSIGNED = "members_and_assigned"  # members, and all users that ASSIGNED admits
    ASSIGNED = "assigned"  # assigned users, users in assigned groups, and users with a live subscription


class EnrollmentOrigin(StrEnum):
    """How a user came to a service, from the weakest to the strongest. A stronger origin replaces a weaker origin."""

    SELF = "self"  # also users from before origins were recorded
    SUBSCRIPTION = "subscription"
    DIRECTORY = "directory"
    ADMIN = "admin"
    API_KEY = "api_key"

    @property
    def is_assigned(self) -> bool:
        """Return whether a directory, an admin or an API key assigned the user."""
        return self not in (EnrollmentOrigin.SELF, EnrollmentOrigin.SUBSCRIPTION)

    def replaces(self, other: Self) -> bool:
        """Return whether this origin is stronger than the other origin."""
        order = [*EnrollmentOrigin]
        return order.index(self) > order.index(other)


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Who may use a service, and where "Your applications" opens it.

    `saml_self_enrolled` matters under the policy `anyone`: SAML also admits users who enrolled
    themselves. `launch_url` is None if the service has no such page, or signs in with SAML.
    """

    policy: AccessPolicy = AccessPolicy.ANYONE
    saml_self_enrolled: bool = False
    launch_url: str | None = None

    def validated(self) -> Self:
        """Return the settings with the launch URL in canonical form."""
        if self.launch_url is None:
            return self
        launch_url = uris.canonicalize(self.launch_url)
        if flaw := uris.web_flaw(launch_url):
            raise LaunchUrlInvalid(f"The launch URL is not allowed: {flaw}")
        return replace(self, launch_url=launch_url)


@dataclass(frozen=True, slots=True)
class Audience:
    """The users that each policy would admit today. A number is None if the reader may not see these users."""

    organization: str  # its name
    members: int | None
    assigned: int | None  # users that are assigned to the service one by one
    groups: int | None  # assigned groups


@dataclass(frozen=True, slots=True)
class Assignment:
    """A user who is assigned to a service. Times are UTC, and None if the user has not signed in yet."""

    user_id: UUID
    email: Email
    assigned_by: EnrollmentOrigin
    first_login_at: datetime | None
    last_login_at: datetime | None


class GroupNotAssigned(errors.NotFound):
    """This group is not assigned to the application."""


class EndUserNotFound(errors.NotFound):
    """This user does not use any application of the organization."""


class EndUserDeactivated(errors.Invalid):
    """This account is deactivated. The directory that deactivated it, or the operator, can open it again."""


class EndUserNotVerified(errors.Invalid):
    """The address of this account is not verified. Ask the user to verify it with a new link from the sign-in page."""


class AdminNotBlockable(errors.Invalid):
    """Owners and admins cannot be blocked. Remove them from the organization, or change their role, first."""


class AdminSecondFactorNotManaged(errors.Forbidden):
    """Owners and admins remove their second factor themselves, or ask the operator."""


class SecondFactorNotManaged(errors.Forbidden):
    """Your organization does not manage this account alone, so it cannot remove the second factor. Ask the operator."""


@dataclass(frozen=True, slots=True)
class EndUserSummary:
    """An end user in a list. Times are UTC."""

    id: UUID
    email: Email
    created_at: datetime  # when the account was created
    mfa_enabled: bool
    last_login_at: datetime | None  # to any service in the organization
    services: tuple[str, ...]  # slugs, and external clients' hosts
    blocked: bool  # by an admin in the organization
    protection: Protection | None = None  # None: the user has left the services
    factors: tuple[HeldFactor, ...] | None = None


@dataclass(frozen=True, slots=True)
class RemovalOutlook:
    """What the removal of members would leave open to them. Ids are of these members."""

    organization: str  # its name
    open_applications: Sequence[str] | None  # names, sorted: they admit one of the users without a membership; None: hidden
    used_before: Set[UUID]  # end users before they were members
    blocked: Set[UUID]  # by an admin already


@dataclass(frozen=True, slots=True)
class EndUser:
    """An end user's account. Times are UTC."""

    id: UUID
    email: Email
    email_verified: bool
    mfa_enabled: bool
    created_at: datetime
    updated_at: datetime
    protection: Protection | None = None
    factors: tuple[HeldFactor, ...] | None = None


@dataclass(frozen=True, slots=True)
class UsedService:
    """A service that an end user uses. Times are UTC. Times are None if an API key created the user, and the user has not signed in yet."""

    id: UUID
    slug: str
    name: str
    first_login_at: datetime | None
    last_login_at: datetime | None


@dataclass(frozen=True, slots=True)
class LinkedIdentity:
    """An account at an identity provider with which an end user signs in to a service. Times are UTC."""

    provider: ConnectionSlug
    provider_user_id: str
    email: str | None
    linked_at: datetime


@dataclass(frozen=True, slots=True)
class EndUserDetails:
    """Everything that an organization may see about its end user."""

    user: EndUser
    services: Sequence[UsedService]
    identities: Sequence[LinkedIdentity]
    sessions: LiveSessions
    blocked_at: datetime | None  # when an admin blocked the user (UTC)
    may_remove_second_factor: bool  # whether the organization may do that

    @property
    def last_login_at(self) -> datetime | None:
        """Return the last login time at any service in the organization (UTC), or None if there was none."""
        return max((service.last_login_at for service in self.services if service.last_login_at is not None), default=None)


class ServiceUserNotFound(errors.NotFound):
    """No user of this application has this id."""


class UserNotManaged(errors.Forbidden):
    """Your organization does not manage this account alone, so only the user can change the email address."""


@dataclass(frozen=True, slots=True)
class ServiceUser:
    """A service's user. `created_at` is when the account was created (UTC)."""

    id: UUID
    email: Email
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnApplication:
    """An application that a user may use now."""

    id: UUID
    slug: str
    name: str
    org_slug: str
    organization: str  # the name that its pages show
    logo_url: str | None  # the organization's logo
    launch_url: str | None
    starts_with_saml: bool  # SAML admits the user, and opens the application
