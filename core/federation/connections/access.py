"""The connection that a member names: read with its keys, or locked for a change."""

from datetime import datetime

from core.federation.connections.model.connections import OrganizationConnection, OrganizationConnectionNotFound
from core.federation.connections.model.details import ConnectionDetails
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.tenancy import organizations
from ports.storage import Reading, Transaction


async def load_details(read: Reading | Transaction, connection: OrganizationConnection, now: datetime) -> ConnectionDetails:
    """Return a connection with its keys and certificates."""
    return ConnectionDetails(
        connection,
        await read.connection_keys.of_connection(connection.org_id, connection.id, now),
        await read.connection_keys.certificates(connection.org_id, connection.id),
    )


async def lock(tx: Transaction, caller: OrganizationCaller, slug: str) -> OrganizationConnection:
    """Lock the organization, check the caller's rights, and return the connection.

    Raises: OrganizationConnectionNotFound.
    """
    organization, _ = await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
    return await tx.connections.by_slug(organization.id, slug) or refuse(OrganizationConnectionNotFound)


async def lock_to_refresh(tx: Transaction, caller: OrganizationCaller, slug: str) -> OrganizationConnection:
    """Lock a connection as `lock` does, and let it be refreshed after the change. Raises: OrganizationConnectionNotFound."""
    connection = await lock(tx, caller, slug)
    await tx.connection_healths.make_due(connection.org_id, connection.id)
    return connection
