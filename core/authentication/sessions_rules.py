"""Entities, refusals and pure rules of `core.authentication.sessions`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from core.billing.subscriptions_rules import Entitlement
from core.kernel import principals
from core.kernel.errors import Unauthenticated

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.kernel.principals import OrganizationStatus, Role, ServiceContext
    from core.kernel.values import Email

# More than can happen: each time, another request has renewed the tokens of the same session at the very same moment.
LOST_RACES = 100
SHOWN = 100  # sessions at most, to whose they are
NOTHING = Entitlement()


class RefreshTokenInvalid(Unauthenticated):
    """The refresh token is not valid. Sign in again."""


class RefreshTokenNotYours(RefreshTokenInvalid):
    """This refresh token is for another application, or for one that has to show its client secret with it at POST /auth/token."""


class RefreshTokenReused(RefreshTokenInvalid):
    """The refresh token was used before, so its session was ended. Sign in again."""


class MembershipEnded(principals.NotAMember):
    """You are not a member of this organization any more. Sign in again."""


class Grant(StrEnum):
    """What of ours an application exchanged for its first tokens (RFC 6749 section 4.1, RFC 8628)."""

    AUTHORIZATION_CODE = "authorization_code"
    DEVICE_CODE = "device_code"


@dataclass(frozen=True, slots=True)
class Session:
    """One login on one device, alive until it ends or lapses. Times are UTC.

    `provider` is how the person signed in, as in the records of logins; None where nobody did, as for an impersonator.
    """

    id: UUID
    user_id: UUID
    created_at: datetime
    expires_at: datetime  # slides with each refresh
    ends_at: datetime  # never slides (S-3)
    address: str | None
    agent: str | None
    impersonator_id: UUID | None = None
    service: ServiceContext | None = None  # what it is a session of, where an application has its tokens
    device_id: UUID | None = None
    impersonator_session_id: UUID | None = None  # in which the impersonator began this one
    org_id: UUID | None = None  # the organization that it begins in; a service says its own
    provider: str | None = None
    grant: Grant | None = None  # that gave it to an application; None where the person signed in there


@dataclass(frozen=True, slots=True)
class Presenter:
    """Which application presents a token of a session, as far as it says so: the service, None for the platform itself, and whether it has
    shown its client secret or can have none."""

    is_named: bool = False
    service_id: UUID | None = None
    is_authenticated: bool = False


SOMEBODY: Final = Presenter()


@dataclass(frozen=True, slots=True)
class TokenPair:
    """What signing in and refreshing give. `expires_in` is the real remaining life of the access token, in whole seconds."""

    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    expires_in: int


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What a rotated refresh token belongs to, as it stands now."""

    session_id: UUID
    user_id: UUID
    email: Email
    email_verified_at: datetime | None
    ends_at: datetime
    impersonator_id: UUID | None
    org_id: UUID | None
    org_slug: str | None
    service: ServiceContext | None
    entitlement: Entitlement  # what the person has of it


@dataclass(frozen=True, slots=True)
class LiveSessions:
    """How many sessions somebody has somewhere, and when the last of them began, in UTC."""

    count: int
    last_created_at: datetime | None


@dataclass(frozen=True, slots=True)
class LiveSession:
    """A live session of somebody's, for them to look at. Times are UTC.

    `organization` and `service` are the names of its context, None where it has none. `by_support` says that it is somebody's who acts as
    the person, `in_browser` that it is one of our own pages.
    """

    id: UUID
    created_at: datetime
    expires_at: datetime
    address: str | None
    agent: str | None
    organization: str | None
    service: str | None
    by_support: bool
    in_browser: bool


@dataclass(frozen=True, slots=True)
class Presented:
    """What is known of a refresh token that could not be rotated: why not."""

    session_id: UUID
    rotated_at: datetime | None
    is_previous: bool  # only one token is newer than this one
    session_is_live: bool
    org_id: UUID | None
    organization_status: OrganizationStatus | None
    role: Role | None
    service_id: UUID | None
    uses_service: bool  # which is there, and the person uses it
    fits: bool  # whether it is the presenter's to use
