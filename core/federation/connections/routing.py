"""The ways of a user to the connection of their organization: from an email address, and from the identity provider.

Sources: decision 103; security O-13. `core/federation/oauth/connection_choice.py` has the ways from an authorization request.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from core.authentication.flow.model import Flow
from core.federation.connections.model.connections import ConnectionProblem, OrganizationConnection, OrganizationConnectionNotFound
from core.kernel import uris
from core.kernel.connections import ConnectionRef
from core.kernel.errors import Invalid, refuse
from core.kernel.page_paths import HOME_PATH
from core.kernel.values import Domain
from core.tenancy import home_realm
from ports import Ports

KNOWN_ROUTES_TTL: Final = timedelta(seconds=30)


class InitiatorUnknown(Invalid):
    """This identity provider cannot start sign-ins here: the iss is not that of the connection, or the connection does not allow it."""


@dataclass(frozen=True, slots=True)
class ConnectionReach:
    """The domains of an organization that decide who can sign in through one of its connections, and who is led there."""

    verified: Sequence[Domain]
    leading: Sequence[Domain]  # verified, with a route to the connection

    @property
    def problems(self) -> Iterator[ConnectionProblem]:
        if not self.verified:
            message = "No domain is verified, so each first sign-in is refused. Verify the domain of your users."
            yield ConnectionProblem("no_domain", True, message)
        elif not self.leading:
            message = "No verified domain leads to this connection, so the sign-in page offers it to no user. Choose it for a domain."
            yield ConnectionProblem("no_route", False, message)


async def find_reach(ports: Ports, connection: OrganizationConnection) -> ConnectionReach:
    """Return the domains that decide about the users of a connection."""
    async with ports.storage.reading() as read:
        claims = await read.domains.of_organization(connection.org_id)
        routes = await read.home_realm.routes(connection.org_id)
    leading = [each.domain for each in routes if each.verified and each.connection is not None and each.connection.id == connection.id]
    return ConnectionReach([claim.domain for claim in claims if claim.verified_at is not None], leading)


@dataclass(slots=True)
class KnownRoutes:
    """Whether any domain leads to a connection, as last read, so that sign-in pages need no other statement."""

    lead_to_connections: bool = False
    read_at: datetime | None = None  # UTC


async def asks_address_first(ports: Ports, known: KnownRoutes) -> bool:
    """Return whether sign-in pages ask for the address alone, because it may lead to a connection."""
    now = ports.clock.now()
    if known.read_at is None or now - known.read_at >= KNOWN_ROUTES_TTL:
        async with ports.storage.reading() as read:
            known.lead_to_connections = await read.home_realm.leads_to_connections()
        known.read_at = now
    return known.lead_to_connections


async def find_connection(ports: Ports, flow: Flow, domain: Domain) -> ConnectionRef | None:
    """Return the connection to which this domain leads in a flow, or None. It does not depend on accounts (security B-4)."""
    async with ports.storage.reading() as read:
        return await home_realm.find_connection(read, domain, flow.org_id)


async def find_initiated_target(ports: Ports, connection_id: UUID, issuer: str | None, target: str | None) -> str:
    """Return the URL at which a user continues after a sign-in that the identity provider initiates, or the path of the console.

    `issuer` is the entity id of a SAML identity provider. Only URLs that the organization has listed count, because any page can send
    a browser here (OpenID Connect Core section 4; security O-13).
    """
    async with ports.storage.reading() as read:
        connection = await read.connections.of_active_org(connection_id) or refuse(OrganizationConnectionNotFound)
    settings = connection.settings
    if not issuer or issuer != settings.initiator:
        raise InitiatorUnknown
    canonical = uris.canonicalize(target) if target else ""
    return canonical if canonical in settings.targets else HOME_PATH


async def find_initiator(ports: Ports, connection_id: UUID) -> str:
    """Return the identity provider that can initiate sign-ins at this connection, or an empty text."""
    async with ports.storage.reading() as read:
        connection = await read.connections.of_active_org(connection_id)
    return "" if connection is None else connection.settings.initiator
