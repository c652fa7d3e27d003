"""The groups that a connection gives by the claims of its identity provider, renewed at each sign-in (security R-11).

A member maps a value of the claim to a group that they could fill by hand. When they lose the rights for that, the mapping adds no
user from then on.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from uuid import UUID

from core.federation.connections import events
from core.federation.connections.access import lock_to_change
from core.federation.connections.model import connections
from core.federation.connections.model.asserted import AssertedPerson
from core.federation.connections.model.people import ConnectionSubject
from core.kernel import callers
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.kernel.values import new_id
from core.tenancy import groups
from core.tenancy.model.groups import Group, GroupFull, may_map
from ports import Ports
from ports.storage import Transaction


async def list_all(ports: Ports, caller: callers.OrganizationCaller, slug: str) -> Sequence[connections.MappedGroup]:
    """Return the groups that a connection gives: first the groups for all its users."""
    async with ports.storage.reading() as read:
        connection = await read.connections.by_slug(caller.acts_in.id, slug) or refuse(connections.OrganizationConnectionNotFound)
        return await read.connections.mapped_groups(connection.org_id, connection.id)


async def add(ports: Ports, caller: callers.Member, slug: str, value: str | None, group_id: UUID) -> connections.MappedGroup:
    """Let a connection give a group to users with this value of the claim, or with None to all its users.

    It takes effect at their next sign-in.
    """
    async with ports.storage.transaction(by=caller) as tx:
        connection = await lock_to_change(tx, caller, slug)
        group = await groups.lock_own_group(tx, caller, group_id)
        present = await tx.connections.mapped_groups(connection.org_id, connection.id)
        if len(present) >= connections.MAX_GROUPS:
            raise connections.TooManyMappedGroups
        if any((each.mapping.value, each.mapping.group_id) == (value, group_id) for each in present):
            raise connections.GroupMappedAlready
        mapping = connections.ConnectionGroup(
            id=new_id(),
            org_id=connection.org_id,
            connection_id=connection.id,
            value=value,
            group_id=group_id,
            mapped_by=caller.user_id,
            mapped_at=ports.clock.now(),
        )
        await tx.connections.add_group(mapping)
        tx.record(events.group_mapped(connection, mapping))
    return connections.MappedGroup(mapping, group.name)


async def remove(ports: Ports, caller: callers.Member, slug: str, mapping_id: UUID) -> None:
    """Let a connection give a group no longer. Users lose the group at their next sign-in."""
    async with ports.storage.transaction(by=caller) as tx:
        connection = await lock_to_change(tx, caller, slug)
        present = {each.mapping.id: each.mapping for each in await tx.connections.mapped_groups(connection.org_id, connection.id)}
        mapping = present.get(mapping_id) or refuse(connections.MappedGroupNotFound)
        await groups.lock_own_group(tx, caller, mapping.group_id)
        await tx.connections.remove_group(connection.org_id, connection.id, mapping.id)
        tx.record(events.group_unmapped(connection, mapping))


async def require_power(tx: Transaction, caller: callers.OrganizationCaller, connection: connections.OrganizationConnection) -> None:
    """Check that the caller could fill each mapped group by hand, before another claim decides about the groups."""
    mapped = await tx.connections.mapped_groups(connection.org_id, connection.id)
    for group_id in sorted({each.mapping.group_id for each in mapped}):
        await groups.lock_own_group(tx, caller, group_id)


# At a sign-in


async def renew(tx: Transaction, known: ConnectionSubject, person: AssertedPerson, user_id: UUID, now: datetime) -> None:
    """Put a member into the groups of their claims, and take them out of those that earlier claims gave.

    The caller has locked the organization and the account. The claims are compared with what this connection gave. A group that an
    admin gave stays, and one that an admin took stays taken.
    """
    org_id, connection_id, wanted = person.org_id, person.connection_id, known.groups_for(person.groups)
    for group_id in sorted(known.given - wanted):
        was_member = await tx.connection_identities.forget_group(org_id, connection_id, user_id, group_id)
        group = await tx.groups.by_id(org_id, group_id)
        if group is not None and not was_member and await tx.groups.present(org_id, group_id, [user_id]):
            await groups.change_members(tx, group, (), [user_id], now)
            # Another connection may have given it, too. It gives the group again when the user signs in there.
            await tx.connection_identities.forget_groups(org_id, [user_id], group_id)
    for group_id in sorted(wanted - known.given):
        group = await tx.groups.by_id(org_id, group_id)
        mappers = {each.mapped_by for each in known.mapped if each.group_id == group_id}
        if group is None or group.directory is not None or not [each for each in mappers if await _may_fill(tx, group, each)]:
            continue
        was_member = bool(await tx.groups.present(org_id, group_id, [user_id]))
        with suppress(GroupFull):
            if not was_member:
                await groups.change_members(tx, group, [user_id], (), now)
            await tx.connection_identities.remember_group(org_id, connection_id, user_id, group_id, was_member=was_member)


async def _may_fill(tx: Transaction, group: Group, user_id: UUID) -> bool:
    """Return whether this user is a member who could still put any user into the group."""
    account = await tx.members.account(group.org_id, user_id)
    if account is None or account.member.membership.confirmed_at is None:
        return False
    rights = account.member.membership.rights
    if not {Capability.GROUPS_MANAGE, Capability.INTEGRATIONS_MANAGE} <= rights:
        return False
    role = None if group.role is None else await tx.roles.find(group.org_id, group.role)
    if group.role is not None and (role is None or not may_map(rights, role.rights)):
        return False
    return await tx.groups.rights_given(group.org_id, group.id) <= rights
