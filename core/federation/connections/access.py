"""The connection that a member names: read with its keys, or locked for a change."""

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from core.federation.connections.model import connections
from core.federation.connections.model.details import ConnectionDetails
from core.kernel import access, errors, roles
from core.kernel.callers import OrganizationCaller
from core.tenancy import organizations
from ports import storage


async def load_details(
    read: storage.Reading | storage.Transaction, connection: connections.OrganizationConnection, now: datetime
) -> ConnectionDetails:
    """Return a connection with its keys and certificates, and the groups that it gives."""
    return ConnectionDetails(
        connection,
        await read.connection_keys.of_connection(connection.org_id, connection.id, now),
        await read.connection_keys.certificates(connection.org_id, connection.id),
        await read.connections.mapped_groups(connection.org_id, connection.id),
    )


async def lock(tx: storage.Transaction, caller: OrganizationCaller, slug: str) -> connections.OrganizationConnection:
    """Lock the organization, check the caller's rights, and return the connection."""
    organization, _ = await organizations.lock_organization_for(tx, caller, roles.Capability.INTEGRATIONS_MANAGE)
    return await tx.connections.by_slug(organization.id, slug) or errors.refuse(connections.OrganizationConnectionNotFound)


async def require_power_over_users(tx: storage.Transaction, caller: OrganizationCaller) -> None:
    """Check that the caller may decide which users an active connection signs in (security S-12).

    Its identity provider can act as each user that it names, also as one who becomes an admin later.
    """
    _, rights = await organizations.lock_organization_for(tx, caller, roles.Capability.INTEGRATIONS_MANAGE)
    access.require_power_of_admin(caller, rights, roles.ROLES[roles.ADMIN].rights, connections.ConnectionNeedsAdmin)


async def require_rights_of_people(
    tx: storage.Transaction,
    caller: OrganizationCaller,
    connection: connections.OrganizationConnection,
    refusal: type[errors.Forbidden],
    user_id: UUID | None = None,
) -> None:
    """Check that the caller has all rights of each member that a connection knows, or of this one (security S-12).

    A certificate stays when the caller has left. So a service account needs the grants of the rights that the role `member` lacks, and a
    token their scopes.

    Raises: the refusal; the errors of `require_lasting`.
    """
    _, authority = await organizations.lock_authority(tx, caller, roles.Capability.INTEGRATIONS_MANAGE)
    people = await tx.connection_identities.authorities(connection.org_id, connection.id, user_id)
    if not all(roles.has_rights_of(authority, each) for each in people):
        raise refusal
    access.require_lasting(
        caller, authority.rights, frozenset().union(*(each.rights for each in people)) - roles.ROLES[roles.MEMBER].rights
    )


async def lock_to_refresh(tx: storage.Transaction, caller: OrganizationCaller, slug: str) -> connections.OrganizationConnection:
    """Lock a connection as `lock` does, and let it be refreshed after the change."""
    connection = await lock(tx, caller, slug)
    await tx.connection_healths.make_due(connection.org_id, connection.id)
    return connection


async def lock_to_change(tx: storage.Transaction, caller: OrganizationCaller, slug: str) -> connections.OrganizationConnection:
    """Lock a connection as `lock_to_refresh` does, and note that the caller changes the connection."""
    connection = await lock_to_refresh(tx, caller, slug)
    if caller.actor_id not in connection.changed_by:
        connection = replace(connection, changed_by=(*connection.changed_by, caller.actor_id))
        await tx.connections.save(connection)
    return connection
