"""The connection of an organization at which an authorization request lets the user sign in (security O-13)."""

from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from core.federation.oauth.model import authorization
from core.kernel import callers, values
from core.kernel.connections import ConnectionRef
from core.kernel.errors import refuse
from core.tenancy import domains
from ports import Ports
from ports.storage import Reading


async def choose_connections(
    ports: Ports, request: authorization.AuthorizationRequest, service: callers.ServiceContext | None
) -> Sequence[ConnectionRef]:
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
            org_id = await _find_organization(read, request.organization, service) or refuse(authorization.RequestedOrganizationUnknown)
        active = [] if request.organization is None and request.connection is None else await _active_connections(read, org_id)
        if request.connection is not None:
            return [each for each in active if each.slug == request.connection] or refuse(authorization.RequestedConnectionUnknown)
        connection = None if domain is None else await domains.find_connection(read, domain, org_id)
    return active if connection is None else (connection,)


def _hinted_domain(request: authorization.AuthorizationRequest) -> values.Domain | None:
    if request.domain_hint is not None:
        try:
            return values.Domain.parse(request.domain_hint)
        except values.DomainInvalid:
            raise authorization.DomainHintInvalid from None
    with suppress(values.EmailInvalid):
        return None if request.login_hint is None else values.Email.parse(request.login_hint).domain
    return None


async def _find_organization(read: Reading, name: str, service: callers.ServiceContext | None) -> UUID | None:
    """Return the active organization with this slug or id, or None. An application learns nothing about other organizations."""
    if service is not None:
        return service.org_id if name in (service.org_slug, str(service.org_id)) else None
    org_id = values.parse_id(name) or (await read.organizations.id_by_slug(name) if values.is_printable(name) else None)
    organization = None if org_id is None else await read.organizations.by_id(org_id)
    return None if organization is None or organization.status is not callers.OrganizationStatus.ACTIVE else organization.id


async def _active_connections(read: Reading, org_id: UUID | None) -> list[ConnectionRef]:
    return [] if org_id is None else [each for each in await read.home_realm.connections(org_id) if each.is_active]
