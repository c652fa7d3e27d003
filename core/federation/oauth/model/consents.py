"""Consents: the scopes that users share with applications."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from core.authentication.model.openid import OpenIdGrant, Scope
from core.federation.oauth.model.external_clients import ClientFacts
from core.kernel.errors import NotFound
from core.programs.model.api_resources import ResourceAccess
from core.programs.model.external_clients import client_host


class ConsentNotFound(NotFound):
    """You share nothing with this application, or you have already withdrawn your consent. Your account page lists your consents."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The scopes of an application that a user need not be asked for: of OpenID Connect, and of one API resource.

    `api` is None if the user has not agreed to the API resource at all. It can be empty. The other two are about an external
    client: the redirect URIs that the user has agreed to, and how the client authenticated then.
    """

    scope: frozenset[Scope]
    api: frozenset[str] | None = None
    redirect_uris: frozenset[str] = frozenset()
    authentication: str | None = None

    @property
    def is_first(self) -> bool:
        """Whether the user has agreed to nothing yet."""
        return not self.scope and self.api is None and self.authentication is None

    def covers(self, grant: OpenIdGrant, client: ClientFacts | None) -> bool:
        """Return whether the user need not be asked for anything in this grant. `client` are the facts about an external client."""
        if not self.scope >= grant.consent_scopes:
            return False
        if client is not None and client.authentication != self.authentication:
            return False
        if client is not None and client.redirect_uri is not None and client.redirect_uri not in self.redirect_uris:
            return False
        return grant.api is None or (self.api is not None and self.api.issuperset(grant.api.scope))


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
    client_uri: str | None = None  # the address of an external client
    apis: tuple[ResourceAccess, ...] = ()  # by name; without scopes that an API resource no longer has

    @property
    def client_host(self) -> str | None:
        """The host of an external client, or None for an application, and for a client that registered itself."""
        return None if self.client_uri is None else client_host(self.client_uri)
