"""Connections: the identity providers that sign users in, under neutral slugs.

The platform's connections belong to no organization. Each start fills them from the operator's settings. `websuite` and
`officesuite` speak OpenID Connect. `codehost` speaks plain OAuth, so the adapter requests the email address with a separate call.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NewType, Self
from uuid import UUID

from core.kernel import values
from core.kernel.errors import Invalid

# A connection's name in addresses, rows, events and responses. The name never changes, and names only this connection.
ConnectionSlug = NewType("ConnectionSlug", str)
CODEHOST: Final = ConnectionSlug("codehost")
WEBSUITE: Final = ConnectionSlug("websuite")
OFFICESUITE: Final = ConnectionSlug("officesuite")
# The preset for a connection without an identity provider: in a test sign-in, an admin answers in its place. Such a connection stays a
# draft.
TEST_PROVIDER: Final = "test"


class ConnectionProtocol(StrEnum):
    """The protocol between Gatehouse and an identity provider."""

    OAUTH = "oauth"
    OIDC = "oidc"
    SAML = "saml"  # only for organizations


# The platform's connections: id and protocol.
PLATFORM_CONNECTIONS: Final[Mapping[ConnectionSlug, tuple[UUID, ConnectionProtocol]]] = MappingProxyType(
    {
        CODEHOST: (UUID(int=1), ConnectionProtocol.OAUTH),
        WEBSUITE: (UUID(int=2), ConnectionProtocol.OIDC),
        OFFICESUITE: (UUID(int=3), ConnectionProtocol.OIDC),
    }
)
PLATFORM_IDS: Final = frozenset(id_ for id_, _ in PLATFORM_CONNECTIONS.values())


class ReauthenticationNotConfirmed(Invalid):
    """The application requires you to sign in again, and the identity provider did not confirm that you did. Sign in another way."""


@dataclass(frozen=True, slots=True)
class ProviderClient:
    """The OAuth client that is registered at a provider: the platform's, or a service's own."""

    client_id: str
    client_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ProviderTokens:
    """A provider's API tokens for one user. `expires_at` is in UTC, or None if the provider did not say."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    expires_at: datetime | None
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FederatedIdentity:
    """The user that a provider authenticated. Provider, issuer and subject identify them, never the email address (security O-5).

    `email` is None if the provider returned no valid address. `email_verified` is true only if the provider asserts it,
    which `officesuite` never does. `is_fresh` is true if the provider authenticated the user again on request, which
    `codehost` cannot do.
    """

    provider: ConnectionSlug
    issuer: str
    subject: str
    email: values.Email | None
    email_verified: bool
    tokens: ProviderTokens
    is_fresh: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionRef:
    """An organization's connection, as other areas name it."""

    id: UUID
    org_id: UUID
    slug: values.Slug
    name: str
    is_active: bool  # users can sign in through it


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """The settings for a platform connection. The last URLs depend on the protocol."""

    client_id: str | None  # None: only services have credentials
    authorize_url: str
    token_url: str
    userinfo_url: str
    scopes: tuple[str, ...] = ()  # requested in addition to the identifying scopes
    emails_url: str = ""
    issuer: str = ""
    jwks_url: str = ""
    verifies_emails: bool = True


@dataclass(frozen=True, slots=True)
class Connection:
    """A platform connection, as the operator has set it up. It belongs to no organization."""

    id: UUID
    slug: ConnectionSlug
    protocol: ConnectionProtocol
    settings: ConnectionSettings

    @property
    def can_reauthenticate(self) -> bool:
        """Return whether the identity provider can be told to authenticate the user again.

        Plain OAuth has no parameter for a new authentication.
        """
        return self.protocol is ConnectionProtocol.OIDC


def platform_connection(slug: ConnectionSlug, settings: ConnectionSettings) -> Connection:
    """Return the platform connection with this slug."""
    id_, protocol = PLATFORM_CONNECTIONS[slug]
    return Connection(id_, slug, protocol, settings)


@dataclass(frozen=True, slots=True)
class PlatformCredentials:
    """A platform connection, with the client to use there: a service's own, or the platform's."""

    connection: Connection
    client: ProviderClient | None  # None: neither the service nor the platform has one


@dataclass(frozen=True, slots=True)
class RequiredConnection:
    """An organization's connection through which users have to come. The connection's slug never changes."""

    id: UUID
    slug: str

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Self:
        """Return the connection in a stored `document`."""
        return cls(UUID(stored["id"]), stored["slug"])

    @property
    def document(self) -> dict[str, str]:
        """The connection in a stored sign-in policy."""
        return {"id": str(self.id), "slug": self.slug}


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """The facts about a user that decide which organization's connection they have to come through."""

    domain: values.Domain | None = None  # the address's domain, if this organization has proved it
    known_at: frozenset[UUID] = frozenset()  # the ids of the organization's connections that know the user
    is_listed: bool = False  # for break glass


UNKNOWN_AT_CONNECTIONS: Final = ConnectionFacts()
