"""Entities, refusals and pure rules of `core.applications.end_users`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.kernel.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from core.authentication.sessions_rules import LiveSessions
    from core.kernel.providers import Provider
    from core.kernel.values import Email


class EndUserNotFound(NotFound):
    """This person does not use any service of the organization."""


@dataclass(frozen=True, slots=True)
class ListedEndUser:
    """A person, as a list shows them. Times are UTC; `created_at` is the account's, `services` are slugs."""

    id: UUID
    email: Email
    created_at: datetime
    mfa_enabled: bool
    last_login_at: datetime | None  # to any service of the organization
    services: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndUser:
    """A person's account, as an organization whose services they use may see it. Times are UTC."""

    id: UUID
    email: Email
    email_verified: bool
    mfa_enabled: bool
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class UsedService:
    """A service that a person uses; without logins, it was its API key that made the account. Times are UTC."""

    id: UUID
    slug: str
    name: str
    first_login_at: datetime | None
    last_login_at: datetime | None


@dataclass(frozen=True, slots=True)
class LinkedIdentity:
    """An account at an external provider with which a person signs in to a service. Times are UTC."""

    provider: Provider
    provider_user_id: str
    email: str | None
    linked_at: datetime


@dataclass(frozen=True, slots=True)
class Details:
    """All that an organization may know of one of its end users."""

    person: EndUser
    services: Sequence[UsedService]
    identities: Sequence[LinkedIdentity]
    sessions: LiveSessions

    @property
    def last_login_at(self) -> datetime | None:
        """To any service of the organization, in UTC."""
        return max((service.last_login_at for service in self.services if service.last_login_at is not None), default=None)
