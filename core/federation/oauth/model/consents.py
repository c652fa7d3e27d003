"""Consents, the scopes that users share with applications, and users' grants to external clients."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from core.applications.model.client_settings import known_name
from core.authentication.model.openid import Scope
from core.kernel.errors import NotFound
from core.kernel.values import Email
from core.programs.model.api_resources import ResourceAccess


class ConsentNotFound(NotFound):
    """You share nothing with this application, or you have already withdrawn your consent. Your account page lists your consents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """A user's consent to an application, with the names that the user knows."""

    service_id: UUID
    service_slug: str
    service: str
    org_id: UUID
    org_slug: str
    organization: str  # the name that its pages show
    logo_url: str | None  # of the organization
    scope: tuple[Scope, ...]
    granted_at: datetime  # UTC; when the user last agreed to a new scope
    last_sign_in_at: datetime | None = None  # UTC; at the application
    last_used_at: datetime | None = None  # UTC; when the application last got a token; None if its sessions have ended long ago
    client_uri: str | None = None  # the client id of an external client
    apis: tuple[ResourceAccess, ...] = ()  # by name; without scopes that an API resource no longer has

    @property
    def is_external(self) -> bool:
        """Whether this is an external client, and not an application of the organization."""
        return self.client_uri is not None

    @property
    def known_name(self) -> str | None:
        """The name of an external client that it did not choose, or None for an application."""
        return None if self.client_uri is None else known_name(self.client_uri)


class ExternalGrantNotFound(NotFound):
    """This user has not connected this client to the API resource, or the connection has already ended. The list has the present ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalGrant:
    """The access of an external client to an API resource that a user has agreed to. Times are UTC."""

    user_id: UUID
    email: Email
    client_id: UUID
    service_id: UUID
    client_uri: str  # the address of the client
    client_name: str  # by the client itself
    scopes: tuple[str, ...]  # in the order of the API resource, without those that it no longer has
    granted_at: datetime  # when the user last agreed to a new scope
    last_used_at: datetime | None  # when the client last got a token; None if its sessions have ended long ago
