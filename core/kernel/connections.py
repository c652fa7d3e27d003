"""Connections: the identity providers that sign users in, under neutral slugs.

The operator sets up the platform's connections. `websuite` and `officesuite` speak OpenID Connect. `codehost` speaks
plain OAuth, so the adapter requests the email address with a separate call.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NewType, Self
from uuid import UUID

from core.kernel.providers import ProviderClient
from core.kernel.uris import origin_of
from core.kernel.values import Domain, Slug

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


@dataclass(frozen=True, slots=True)
class ConnectionRef:
    """An organization's connection, as other areas name it."""

    id: UUID
    org_id: UUID
    slug: Slug
    name: str
    is_active: bool  # users can sign in through it


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """The settings for a connection. The last URLs depend on the protocol."""

    client: ProviderClient | None  # None: only services have credentials
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
    """An identity provider that signs users in, as its owner has set it up."""

    id: UUID
    org_id: UUID | None  # the owner; None for the platform
    slug: ConnectionSlug
    protocol: ConnectionProtocol
    settings: ConnectionSettings

    @property
    def can_reauthenticate(self) -> bool:
        """Return whether the identity provider can be told to authenticate the user again.

        Plain OAuth has no parameter for a new authentication.
        """
        return self.protocol is ConnectionProtocol.OIDC

    def is_issuer(self, issuer: str) -> bool:
        """Return whether the callback parameter `iss` names this provider (RFC 9207)."""
        if self.protocol is ConnectionProtocol.OAUTH:  # it defines no issuer
            return origin_of(issuer) == origin_of(self.settings.authorize_url)
        return issuer == self.settings.issuer


def platform_connection(slug: ConnectionSlug, settings: ConnectionSettings) -> Connection:
    """Return the platform connection with this slug."""
    id_, protocol = PLATFORM_CONNECTIONS[slug]
    return Connection(id_, None, slug, protocol, settings)


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

    domain: Domain | None = None  # the address's domain, if this organization has proved it
    known_at: frozenset[UUID] = frozenset()  # the ids of the organization's connections that know the user
    is_listed: bool = False  # for break glass


UNKNOWN_AT_CONNECTIONS: Final = ConnectionFacts()
