"""Storage for the organizations' connections, their keys, certificates and health, and the accounts that they know."""

from collections.abc import Awaitable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.federation.connections.model import connections, people
from core.federation.connections.model.health import ConnectionConcern, ConnectionHealth, HealthState
from core.federation.connections.model.logins import ConnectionLogin
from core.federation.saml.model import configuration
from core.kernel import values
from core.kernel.roles import Authority


class OrganizationConnectionsRead(Protocol):
    """Read access to the organizations' connections. The platform's connections are not included."""

    async def of_org(self, org_id: UUID) -> list[connections.OrganizationConnection]:
        """Return the organization's connections, by slug."""

    async def by_slug(self, org_id: UUID, slug: str) -> connections.OrganizationConnection | None: ...

    async def of_active_org(self, connection_id: UUID) -> connections.OrganizationConnection | None:
        """Return the connection, in any state, if its organization is active."""

    def credentials(self, connection_id: UUID, now: datetime) -> Awaitable[connections.ConnectionCredentials | None]:
        """Return the connection as `of_active_org` does, with our credentials and the identity provider's. Raises: SealBroken."""

    async def client_secret(self, org_id: UUID, connection_id: UUID, issuer: str) -> str | None:
        """Return the secret for the identity provider with this issuer, or None. Raises: SealBroken."""

    async def mapped_groups(self, org_id: UUID, connection_id: UUID) -> list[connections.MappedGroup]:
        """Return the groups that the connection gives: groups for all users first, then by value."""


class OrganizationConnections(OrganizationConnectionsRead, Protocol):
    """Changes to the organizations' connections. Lock order: the organization before any call."""

    async def add(self, connection: connections.OrganizationConnection) -> None:
        """Add a connection without a client secret. Raises: ConnectionSlugTaken."""

    async def save(self, connection: connections.OrganizationConnection) -> None:
        """Save all fields that can change, except the client secret."""

    async def save_client_secret(self, org_id: UUID, connection_id: UUID, secret: str | None, set_at: datetime | None) -> None:
        """Store the client secret in place of the earlier secret, or with None remove it."""

    async def remove(self, org_id: UUID, connection_id: UUID) -> None:
        """Delete the connection with its keys, certificates, groups and known accounts."""

    def use_message(self, org_id: UUID, connection_id: UUID, message_hash: bytes, expires_at: datetime) -> Awaitable[bool]:
        """Note until `expires_at` that an identity provider's message was used: an assertion, a logout request or a logout token.

        Return False if the message was used before. Exactly one concurrent call succeeds.
        """

    async def add_group(self, group: connections.ConnectionGroup) -> None: ...
    async def remove_group(self, org_id: UUID, connection_id: UUID, id_: UUID) -> bool: ...


class ConnectionHealthsRead(Protocol):
    """Read access to the health of connections."""

    async def of_org(self, org_id: UUID) -> Mapping[UUID, ConnectionHealth]:
        """Return the health of the organization's active connections, by connection id. New connections are left out."""

    async def figures(self) -> tuple[Mapping[HealthState, int], datetime | None]:
        """Return how many active connections there are by health, and when their first certificate expires."""

    async def concerns(self, limit: int, certificates_until: datetime) -> list[ConnectionConcern]:
        """Return connections in all organizations that an admin should look at, by the slugs, at most `limit`."""

    async def next_due(self) -> datetime | None:
        """Return when the next connection refresh is due, or None."""


class ConnectionHealths(ConnectionHealthsRead, Protocol):
    """Changes to the health of connections. Lock order: the organization before any call."""

    async def add_new(self, now: datetime) -> None:
        """Make a refresh due for every active connection that had none yet."""

    async def claim(self, now: datetime, until: datetime) -> ConnectionHealth | None:
        """Return the health of the connection with the oldest refresh that is due, or None. The refresh is due again at `until`."""

    async def claim_refetch(self, org_id: UUID, connection_id: UUID, now: datetime, before: datetime) -> bool:
        """Note a refresh because of an unknown certificate.

        Return False, and change nothing, if there was such a refresh since `before`.
        """

    async def make_due(self, org_id: UUID, connection_id: UUID) -> None:
        """Let a connection that changed be refreshed now. A refresh that is under way stores nothing."""

    async def save(self, health: ConnectionHealth, claimed_until: datetime) -> bool:
        """Store a refresh's result. Return False, and store nothing, if the connection changed after it was claimed."""


class ConnectionKeysRead(Protocol):
    """Read access to our keys at identity providers, and to the providers' certificates.

    A connection has a single kind of key: with OpenID Connect it signs our client assertions, with SAML it signs our requests and decrypts
    assertions. A key stays encrypted until it is used, which can raise SealBroken.
    """

    async def of_connection(
        self, org_id: UUID, connection_id: UUID, now: datetime
    ) -> Mapping[configuration.CertificateState, configuration.SamlCertificate]:
        """Return the connection's keys, in the order of `CertificateState`. The previous key is left out when its time is over."""

    async def certificates(self, org_id: UUID, connection_id: UUID) -> Sequence[connections.ProviderCertificate]:
        """Return the identity provider's certificates, also inactive certificates, oldest first."""


class ConnectionKeys(ConnectionKeysRead, Protocol):
    """Changes to keys and certificates. Lock order: the organization before any call."""

    async def add(
        self, org_id: UUID, connection_id: UUID, key: configuration.SamlCertificate, state: configuration.CertificateState
    ) -> None:
        """Add a key. The connection has no key in this state yet."""

    async def move(
        self, org_id: UUID, connection_id: UUID, of: configuration.CertificateState, to: configuration.CertificateState, now: datetime
    ) -> None:
        """Give the key in the state `of` the state `to`, which no key has. The previous key is kept for PREVIOUS_KEPT."""

    async def remove(self, org_id: UUID, connection_id: UUID, state: configuration.CertificateState) -> bool: ...

    async def add_certificate(self, org_id: UUID, connection_id: UUID, certificate: connections.ProviderCertificate) -> bool:
        """Add a certificate. Return False, and change nothing, if the connection has the certificate."""

    async def activate_certificate(self, org_id: UUID, connection_id: UUID, fingerprint: str) -> bool: ...
    async def remove_certificate(self, org_id: UUID, connection_id: UUID, fingerprint: str) -> bool: ...


class ConnectionIdentitiesRead(Protocol):
    """Read access to the accounts that are known at connections."""

    async def page(
        self, org_id: UUID, connection_id: UUID, page: values.Page, *, search: str | None = None
    ) -> values.PageResult[people.ConnectionPerson]:
        """Return a page with the people that the connection knows, the newest link first. `search` is a lower-case part of an address."""

    async def of_user(self, user_id: UUID) -> Sequence[people.OwnConnectionLink]:
        """Return the connections that know the account, by the names of their organizations."""

    async def authorities(self, org_id: UUID, connection_id: UUID, user_id: UUID | None = None) -> Sequence[Authority]:
        """Return the roles with rights that members known to the connection have, without duplicates.

        With a user, return only the user's roles.
        """

    async def connections_of(self, org_id: UUID, user_ids: Collection[UUID]) -> Sequence[tuple[UUID, UUID]]:
        """Return the organization's connections that know these users, as pairs of connection and user."""


class ConnectionIdentities(ConnectionIdentitiesRead, Protocol):
    """Changes to the accounts that are known at connections."""

    async def lock_subject(self, connection_id: UUID, subject: str) -> None:
        """Let only a single transaction at a time sign in this subject. Lock order: before all rows."""

    async def subject(self, org_id: UUID, connection_id: UUID, subject: str) -> people.ConnectionSubject | None:
        """Return this subject's state at the connection, or None without such a connection."""

    async def add(self, identity: connections.ConnectionIdentity) -> bool:
        """Add an identity. Return False, and change nothing, if the connection knows the subject or the account."""

    def use(
        self, org_id: UUID, connection_id: UUID, subject: str, user_id: UUID, email: values.Email | None, now: datetime
    ) -> Awaitable[bool | None]:
        """Note that a known person signed in to their locked account, and the address that the sign-in brought, if any.

        Return whether the directory blocks them. Return None, and change nothing, if the connection is not active or no longer
        knows them.
        """

    async def remove(self, org_id: UUID, connection_id: UUID, user_id: UUID) -> bool: ...

    async def remove_of_strangers(self, org_id: UUID, user_ids: Collection[UUID]) -> None:
        """Remove the links of former members who use no application in the organization."""

    async def remember_group(self, org_id: UUID, connection_id: UUID, user_id: UUID, group_id: UUID, *, was_member: bool) -> None:
        """Note that the user's claims give this group.

        `was_member`: the user was in the group before. If another connection had put the user into the group, False is noted for this
        connection, too.
        """

    async def forget_group(self, org_id: UUID, connection_id: UUID, user_id: UUID, group_id: UUID) -> bool:
        """Forget that the claims gave this group, and return its `was_member`."""

    async def forget_groups(self, org_id: UUID, user_ids: Collection[UUID], group_id: UUID | None = None) -> None:
        """Forget that the organization's connections gave these users this group, or with None all their groups."""

    async def remove_all(self, user_id: UUID) -> None:
        """Remove the account's links to all connections. The caller has ended the account's sessions."""


class ConnectionLoginsRead(Protocol):
    """Read access to the sign-ins at connections. The values for a sign-out are decrypted, which can raise SealBroken."""

    async def find(self, org_id: UUID, id_: UUID, user_id: UUID) -> ConnectionLogin | None:
        """Return a user's sign-in that a session's proofs name (`named_login`), or None."""

    async def newest_of_session(self, org_id: UUID, connection_id: UUID, provider_session: str) -> ConnectionLogin | None:
        """Return the newest sign-in in this session at the identity provider, or None."""

    async def newest_of_user(self, org_id: UUID, connection_id: UUID, user_id: UUID) -> ConnectionLogin | None:
        """Return the user's newest sign-in at the connection, or None."""

    async def by_sign_out(self, secret_hash: bytes) -> ConnectionLogin | None:
        """Return the sign-in that a browser with this secret ends, or None."""


class ConnectionLogins(ConnectionLoginsRead, Protocol):
    """Write access to the sign-ins at connections."""

    async def add(self, login: ConnectionLogin) -> None: ...

    async def save_sign_out(self, org_id: UUID, id_: UUID, secret_hash: bytes, after: str) -> None:
        """Store that a browser with this secret signs out at the provider, and then continues at the path `after`."""

    async def finish_sign_out(self, connection_id: UUID, secret_hash: bytes) -> str | None:
        """Forget the sign-in that a browser with this secret has ended, and return the path at which it continues, or None."""
