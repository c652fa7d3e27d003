"""Connections of an organization: its own identity providers, through which its users sign in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from core.federation.connections.model.settings import ClaimMapping, OidcSettings, SamlSettings
from core.federation.saml.model import configuration
from core.kernel import connections, errors, values
from core.kernel.display import to_words

MAX_CONNECTIONS: Final = 20  # of one organization
MAX_GROUPS: Final = 200  # mappings of one connection
MAX_CERTIFICATES: Final = 8  # of one identity provider
# The path of the page that creates a connection, and the names of the platform's connections.
RESERVED_SLUGS: Final = frozenset({"new", *connections.PLATFORM_CONNECTIONS})


class OrganizationConnectionNotFound(errors.NotFound):
    """This connection does not exist. See the list of connections."""


class ConnectionSlugTaken(errors.Conflict):
    """Another connection of the organization has this slug. Choose another one."""


class TooManyConnections(errors.Conflict):
    """The organization has 20 connections. Remove one that is no longer used."""


class ConnectionIncomplete(errors.Invalid):
    """An active connection needs more values than this one has. Set them first."""


class ConnectionForTestsOnly(errors.Conflict):
    """The test provider signs no users in. Create a connection to your identity provider, and activate that one."""


class ConnectionChanged(errors.Conflict):
    """The connection has changed since you read it. Read its values again, then repeat your last step."""


class ConnectionChangedByOthers(errors.Conflict):
    """Others have changed this connection since it was last active. Read its values, then send `version` or `issuer` with the request."""


class ConnectionTestOver(errors.NotFound):
    """This test sign-in is over, or you began it in another browser. Go back to the connection, and begin another one."""


class ConnectionAboveOwn(errors.Forbidden):
    """Users with more rights than yours sign in through this connection. Ask a member with these rights to make this change."""

    audited = True


class ConnectionNeedsAdmin(errors.Forbidden):
    """An identity provider can act as each user of an active connection. This needs all rights of an admin. Ask an admin or the owner."""

    audited = True


class MappedGroupNotFound(errors.NotFound):
    """This connection has no such mapping of a group. See the list of its groups."""


class GroupMappedAlready(errors.Conflict):
    """This connection already gives this group for this value. Nothing was changed."""


class TooManyMappedGroups(errors.Conflict):
    """This connection has 200 mappings of groups. Remove one that is no longer used."""


class ConnectionProtocolMissing(errors.Invalid):
    """Send either oidc or saml: a connection has one protocol."""


class NoConnectionChanges(errors.Invalid):
    """The request changes nothing. Send a name, settings or a mapping."""


class ConnectionFieldFixed(errors.Conflict):
    """The protocol is fixed, and from the first activation on the issuer, entity ID and subject. Create another connection."""


class ConnectionRouted(errors.Conflict):
    """Domains lead to this connection. First remove their routes, or choose another identity provider for them."""


class ClientSecretNotUsed(errors.Invalid):
    """Connections with SAML have no client secret."""


class NextKeyExists(errors.Conflict):
    """This connection already has a next key. Give it to the identity provider, and activate it."""


class ConnectionKeyNotFound(errors.NotFound):
    """This connection has no next key. Create one, and give it to the identity provider before you activate it."""


class ProviderCertificateInvalid(errors.Invalid):
    """The certificate must be one X.509 certificate in PEM, with an RSA key of 2048 to 8192 bits, without a private key."""


class ProviderCertificateNotFound(errors.NotFound):
    """This connection has no such certificate. See the list of its certificates."""


class ProviderCertificateExists(errors.Conflict):
    """This connection already has this certificate. Nothing was changed."""


class TooManyProviderCertificates(errors.Conflict):
    """The connection has 8 certificates. Remove one that the identity provider no longer uses."""


class ConnectionState(StrEnum):
    """Whether users sign in through a connection."""

    DRAFT = "draft"  # it was never active
    ACTIVE = "active"
    INACTIVE = "inactive"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrganizationConnection:
    """An identity provider of an organization. Times are UTC."""

    id: UUID
    org_id: UUID
    slug: values.Slug
    name: str
    preset: str | None  # the product, of PRESETS, or TEST_PROVIDER
    state: ConnectionState
    mapping: ClaimMapping
    client_secret_set_at: datetime | None = None  # of the secret that we have for the identity provider
    created_at: datetime
    # From then on the issuer, the entity id and the subject are fixed: with others, all users would be unknown.
    first_activated_at: datetime | None = None
    changed_by: tuple[UUID, ...] = ()  # the members and service accounts that changed it since its last activation
    settings: OidcSettings | SamlSettings

    @property
    def is_active(self) -> bool:
        return self.state is ConnectionState.ACTIVE

    def is_changed_by_others(self, actor_id: UUID) -> bool:
        """Return whether another member or service account may have changed the connection since its last activation."""
        return not {*self.changed_by} <= {actor_id}

    @property
    def as_required(self) -> connections.RequiredConnection:
        """The connection as sign-in policies name it."""
        return connections.RequiredConnection(self.id, self.slug)

    @property
    def uses_test_provider(self) -> bool:
        """Whether an admin plays its identity provider. It is a draft forever."""
        return self.preset == connections.TEST_PROVIDER

    @property
    def protocol(self) -> connections.ConnectionProtocol:
        return self.settings.protocol

    @property
    def has_certificates(self) -> bool:
        """Whether its identity provider signs with keys of certificates that an admin, or a set-up link, gives."""
        return self.protocol is connections.ConnectionProtocol.SAML and not self.uses_test_provider


@dataclass(frozen=True, slots=True)
class ConnectionProblem:
    """A problem of a connection, with a sentence for admins."""

    code: str
    is_error: bool  # users cannot sign in because of it
    message: str


class MissingPart(StrEnum):
    """What a connection needs before users can sign in through it."""

    ISSUER = "issuer"
    CLIENT_ID = "client_id"
    CLIENT_SECRET = "client_secret"  # noqa: S105  (a name)
    ENTITY_ID = "entity_id"
    SSO_URL = "sso_url"
    CERTIFICATE = "certificate"  # of the identity provider
    KEY = "key"  # of ours

    @property
    def label(self) -> str:
        """The words for users."""
        return _LABELS.get(self, to_words(self))


_LABELS: Final = {
    MissingPart.CLIENT_ID: "Client ID",
    MissingPart.ENTITY_ID: "Entity ID",
    MissingPart.SSO_URL: "Sign-in URL",
    MissingPart.CERTIFICATE: "Certificate of the identity provider",
    MissingPart.KEY: "Key of this connection",
}


class CertificateSource(StrEnum):
    """How we got a certificate of an identity provider."""

    METADATA = "metadata"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFacts:
    """What a certificate says. Times are UTC."""

    certificate: str  # PEM
    fingerprint: str  # SHA-256 in hexadecimal
    valid_from: datetime
    valid_until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderCertificate:
    """A certificate with which an identity provider signs. Times are UTC."""

    fingerprint: str  # SHA-256 in hexadecimal
    certificate: str = field(repr=False)  # PEM
    valid_from: datetime
    valid_until: datetime
    source: CertificateSource
    is_active: bool
    added_at: datetime


@dataclass(frozen=True, slots=True)
class ConnectionCredentials:
    """A connection with our client secret and our keys, and the certificates of its identity provider, for a sign-in."""

    connection: OrganizationConnection
    client_secret: str | None = field(repr=False)
    keys: Mapping[configuration.CertificateState, configuration.SamlCertificate]
    certificates: Sequence[ProviderCertificate]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionIdentity:
    """An account that is known at a connection by the subject. Times are UTC."""

    org_id: UUID
    connection_id: UUID
    user_id: UUID
    subject: str
    email: values.Email | None  # as the identity provider sent it last
    linked_at: datetime
    last_used_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionGroup:
    """A group that a connection gives: to users with this value, or with None to all who come through it. The time is UTC."""

    id: UUID
    org_id: UUID
    connection_id: UUID
    value: str | None
    group_id: UUID
    mapped_by: UUID  # this account may no longer exist
    mapped_at: datetime


@dataclass(frozen=True, slots=True)
class MappedGroup:
    """A mapping with the name of its group."""

    mapping: ConnectionGroup
    group_name: str
