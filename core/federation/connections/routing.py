"""The ways of a user to the connection of their organization: from an email address, and from the identity provider.

Sources: decision 103; security O-13. `core/federation/oauth/connection_choice.py` has the ways from an authorization request.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlencode
from uuid import UUID

from core.authentication import oauth_credentials
from core.authentication.flow.model import Flow
from core.federation.connections.model import connections
from core.kernel import errors, page_paths, uris, values
from core.kernel.callers import OrganizationStatus
from core.kernel.connections import Connection, ConnectionRef
from core.tenancy import domains
from core.tenancy.model.domains import HomeRealmMatch
from ports import Ports
from ports.storage import Reading

KNOWN_ROUTES_TTL: Final = timedelta(seconds=30)


class InitiatorUnknown(errors.Invalid):
    """This identity provider cannot start sign-ins here: the iss is not that of the connection, or the connection does not allow it."""


@dataclass(frozen=True, slots=True)
class ConnectionReach:
    """The domains of an organization that decide who can sign in through one of its connections, and who is led there."""

    verified: Sequence[values.Domain]
    leading: Sequence[values.Domain]  # verified, with a route to the connection

    @property
    def problems(self) -> Iterator[connections.ConnectionProblem]:
        if not self.verified:
            message = "No domain is verified, so each first sign-in is refused. Verify the domain of your users."
            yield connections.ConnectionProblem("no_domain", True, message)
        elif not self.leading:
            message = "No verified domain leads to this connection, so the sign-in page offers it to no user. Choose it for a domain."
            yield connections.ConnectionProblem("no_route", False, message)


async def find_reach(ports: Ports, connection: connections.OrganizationConnection) -> ConnectionReach:
    """Return the domains that decide about the users of a connection."""
    async with ports.storage.reading() as read:
        claims = await read.domains.of_organization(connection.org_id)
        routes = await read.home_realm.routes(connection.org_id)
    leading = [each.domain for each in routes if each.verified and each.connection is not None and each.connection.id == connection.id]
    return ConnectionReach([claim.domain for claim in claims if claim.verified_at is not None], leading)


@dataclass(slots=True)
class KnownRoutes:
    """The platform connections, and whether any domain leads to an organization's connection.

    Sign-in pages read this copy, so that they need no further statement.
    """

    platform_connections: Sequence[Connection] = ()
    lead_to_connections: bool = False
    read_at: datetime | None = None  # UTC

    async def refresh(self, ports: Ports) -> None:
        """Load the copy again if it is older than KNOWN_ROUTES_TTL."""
        now = ports.clock.now()
        if self.read_at is None or now - self.read_at >= KNOWN_ROUTES_TTL:
            async with ports.storage.reading() as read:
                listed = read.oauth_credentials.list_connections()
                self.lead_to_connections = await read.home_realm.leads_to_connections()
                self.platform_connections = await listed
            self.read_at = now


async def asks_address_first(ports: Ports, known: KnownRoutes) -> bool:
    """Return whether sign-in pages ask for the address alone, because it may lead to a connection."""
    await known.refresh(ports)
    return known.lead_to_connections


async def find_connection(ports: Ports, flow: Flow, domain: values.Domain) -> ConnectionRef | None:
    """Return the connection to which this domain leads in a flow, or None. It does not depend on accounts (security B-4)."""
    async with ports.storage.reading() as read:
        return await domains.find_connection(read, domain, flow.org_id)


async def find_initiated_target(ports: Ports, connection_id: UUID, issuer: str | None, target: str | None) -> str:
    """Return the URL at which a user continues after a sign-in that the identity provider initiates, or the path of the console.

    `issuer` is the entity id of a SAML identity provider. Only URLs that the organization has listed count, because any page can send
    a browser here (OpenID Connect Core section 4; security O-13).
    """
    async with ports.storage.reading() as read:
        connection = await read.connections.of_active_org(connection_id) or errors.refuse(connections.OrganizationConnectionNotFound)
    settings = connection.settings
    if not issuer or issuer != settings.initiator:
        raise InitiatorUnknown
    canonical = uris.canonicalize(target) if target else ""
    return canonical if canonical in settings.targets else page_paths.HOME_PATH


async def find_initiator(ports: Ports, connection_id: UUID) -> str:
    """Return the identity provider that can initiate sign-ins at this connection, or an empty text."""
    async with ports.storage.reading() as read:
        connection = await read.connections.of_active_org(connection_id)
    return "" if connection is None else connection.settings.initiator


async def find_sign_in(
    ports: Ports, email: values.Email, org_slug: str | None, service_slug: str | None
) -> tuple[HomeRealmMatch, str] | None:
    """Return the organization and the identity provider for this address, and the path that starts a sign-in there.

    If the application with these slugs may use the identity provider, the path names it. Otherwise the path names
    the organization that has proved the domain. The result is None if no route applies. It does not
    depend on accounts (security B-4).
    """
    async with ports.storage.reading() as read:
        match = await read.home_realm.match(email.domain)
        if match is None:
            return None
        target = {"org": match.org_slug}
        if org_slug and service_slug and await _may_use(read, org_slug, service_slug, match):
            target = {"org": org_slug, "service": service_slug}
    if match.connection is not None:
        return match, page_paths.connection_start_path(match.connection.id, **target)
    return match, f"/auth/{match.provider}?{urlencode(target)}"


async def _may_use(read: Reading, org_slug: str, service_slug: str, match: HomeRealmMatch) -> bool:
    """Return whether users can sign in to this service through this identity provider.

    A session that began at a connection is good in its organization only (security S-10).
    """
    client = await read.services.client_by_slug(org_slug, service_slug)
    if client is None or client[1].status is not OrganizationStatus.ACTIVE:
        return False
    if match.provider is None:
        return org_slug == match.org_slug
    own = await read.oauth_credentials.list_of_service(client[1].org_id, client[1].id)
    return match.provider in own or match.provider in await oauth_credentials.find_platform_providers(read)
