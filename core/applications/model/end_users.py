"""End users as their organization sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.kernel.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from core.authentication.model.sessions import LiveSessions
    from core.kernel.providers import Provider
    from core.kernel.values import Email


class EndUserNotFound(NotFound):
    """This user does not use any service of the organization."""


@dataclass(frozen=True, slots=True)
class EndUserSummary:
    """An end user in a list. Times are UTC."""

    id: UUID
    email: Email
    created_at: datetime  # of the account
    mfa_enabled: bool
    last_login_at: datetime | None  # to any service of the organization
    services: tuple[str, ...]  # slugs


@dataclass(frozen=True, slots=True)
class EndUser:
    """The account of an end user. Times are UTC."""

    id: UUID
    email: Email
    email_verified: bool
    mfa_enabled: bool
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class UsedService:
    """A service that an end user uses. Times are UTC. They are None if an API key created the user, and the user has not signed in yet."""

    id: UUID
    slug: str
    name: str
    first_login_at: datetime | None
    last_login_at: datetime | None


@dataclass(frozen=True, slots=True)
class LinkedIdentity:
    """An account at an identity provider with which an end user signs in to a service. Times are UTC."""

    provider: Provider
    provider_user_id: str
    email: str | None
    linked_at: datetime


@dataclass(frozen=True, slots=True)
class EndUserDetails:
    """Everything that an organization may see of one of its end users."""

    user: EndUser
    services: Sequence[UsedService]
    identities: Sequence[LinkedIdentity]
    sessions: LiveSessions

    @property
    def last_login_at(self) -> datetime | None:
        """Return the time of the last login to any service of the organization (UTC), or None if there was none."""
        return max((service.last_login_at for service in self.services if service.last_login_at is not None), default=None)
