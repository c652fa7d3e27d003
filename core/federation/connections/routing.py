"""The ways of a user to the connection of their organization: from an email address, and from an authorization request.

Source: decision 103. They choose where the user signs in, and give access to nothing. A sign-in at a connection is good in its own
organization only (security S-10), so the application of another one leads to none.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from core.authentication.flow.model import Flow
from core.federation.connections.model.connections import OrganizationConnectionNotFound
from core.federation.connections.model.settings import OidcSettings
from core.federation.oauth.model.authorization import (
    AuthorizationRequest,
    DomainHintInvalid,
    RequestedConnectionUnknown,
    RequestedOrganizationUnknown,
)
from core.kernel import uris
from core.kernel.callers import OrganizationStatus, ServiceContext
from core.kernel.connections import ConnectionRef
from core.kernel.errors import Invalid, refuse
from core.kernel.page_paths import HOME_PATH
from core.kernel.values import Domain, DomainInvalid, Email, EmailInvalid, is_printable, parse_id
from ports import Ports
from ports.storage import Reading

KNOWN_ROUTES_TTL: Final = timedelta(seconds=30)


class InitiatorUnknown(Invalid):
    """The iss is missing, or is not the issuer of this connection. Copy the initiate login URI to the identity provider again."""


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
        return await _of_domain(read, domain, flow.org_id)


async def choose_connections(ports: Ports, request: AuthorizationRequest, service: ServiceContext | None) -> Sequence[ConnectionRef]:
    """Return the connections that an authorization request asks for. With one, the user signs in there without the sign-in page.

    `service` is the application, or None for the platform itself. A domain without a route is no error: hints only help.

    Raises: RequestedOrganizationUnknown, RequestedConnectionUnknown, DomainHintInvalid.
    """
    domain = _hinted_domain(request)
    if request.organization is None and request.connection is None and domain is None:
        return ()
    org_id = None if service is None else service.org_id
    async with ports.storage.reading() as read:
        if request.organization is not None:
            org_id = await _find_organization(read, request.organization, service) or refuse(RequestedOrganizationUnknown)
        active = [] if request.organization is None and request.connection is None else await _active_connections(read, org_id)
        if request.connection is not None:
            return [each for each in active if each.slug == request.connection] or refuse(RequestedConnectionUnknown)
        connection = None if domain is None else await _of_domain(read, domain, org_id)
    return active if connection is None else (connection,)


async def find_initiated_target(ports: Ports, connection_id: UUID, issuer: str | None, target: str | None) -> str:
    """Return the URL at which a user continues after a sign-in that the identity provider initiates, or the path of the console.

    Only URLs that the organization has listed count, because any page can send a browser here (OpenID Connect Core section 4;
    security O-13).

    Raises: OrganizationConnectionNotFound, InitiatorUnknown.
    """
    async with ports.storage.reading() as read:
        connection = await read.connections.of_active_org(connection_id) or refuse(OrganizationConnectionNotFound)
    settings = connection.settings
    if not isinstance(settings, OidcSettings) or not issuer or issuer != settings.issuer:
        raise InitiatorUnknown
    canonical = uris.canonicalize(target) if target else ""
    return canonical if canonical in settings.targets else HOME_PATH


def _hinted_domain(request: AuthorizationRequest) -> Domain | None:
    if request.domain_hint is not None:
        try:
            return Domain.parse(request.domain_hint)
        except DomainInvalid:
            raise DomainHintInvalid from None
    with suppress(EmailInvalid):
        return None if request.login_hint is None else Email.parse(request.login_hint).domain
    return None


async def _find_organization(read: Reading, name: str, service: ServiceContext | None) -> UUID | None:
    """Return the active organization with this slug or id, or None. An application learns nothing about other organizations."""
    if service is not None:
        return service.org_id if name in (service.org_slug, str(service.org_id)) else None
    org_id = parse_id(name) or (await read.organizations.id_by_slug(name) if is_printable(name) else None)
    organization = None if org_id is None else await read.organizations.by_id(org_id)
    return None if organization is None or organization.status is not OrganizationStatus.ACTIVE else organization.id


async def _active_connections(read: Reading, org_id: UUID | None) -> list[ConnectionRef]:
    return [] if org_id is None else [each for each in await read.home_realm.connections(org_id) if each.is_active]


async def _of_domain(read: Reading, domain: Domain, org_id: UUID | None) -> ConnectionRef | None:
    match = await read.home_realm.match(domain)
    connection = None if match is None else match.connection
    return connection if connection is not None and org_id in (None, connection.org_id) else None
