"""An organization's SCIM group, and its members (security C-6)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from core.kernel import values
from core.kernel.callers import ScimClient
from core.kernel.errors import refuse
from core.kernel.roles import MEMBER
from core.provisioning import events as provisioning_events
from core.provisioning import tokens as scim_tokens
from core.provisioning.model import groups, users
from core.provisioning.model.filters import ScimFilter
from core.tenancy import events, grants, members
from ports import Ports
from ports.storage import Transaction


async def list_matching(ports: Ports, caller: ScimClient, filter_: ScimFilter | None) -> list[groups.ScimGroup]:
    """Return the group if it matches the filter."""
    async with ports.storage.reading() as read:
        organization = await read.organizations.by_id(caller.org_id)
        if organization is None:
            return []
        group = groups.to_group(organization, (await read.scim_users.group_external_ids(organization.id)).get(organization.id))
        if filter_ is None:
            return [group]
        ids = groups.named_member_ids(filter_)
        group_members = await read.scim_users.group_members(caller.org_id, ids) if ids else []
    is_match = groups.matches_group(filter_, group, {member.user_id for member in group_members if member.role is not None})
    return [group] if is_match else []


async def find(ports: Ports, caller: ScimClient, group_id: UUID) -> groups.ScimGroup:
    """Return the group."""
    groups.require_own_group(caller, group_id)
    async with ports.storage.reading() as read:
        organization = await read.organizations.by_id(group_id) or refuse(groups.GroupNotFound)
        return groups.to_group(organization, (await read.scim_users.group_external_ids(group_id)).get(group_id))


def list_member_ids(ports: Ports, caller: ScimClient, group_id: UUID) -> values.Batches[UUID]:
    """Return all members' ids in order."""

    async def read_batch(last: UUID | None, count: int) -> Sequence[UUID]:
        async with ports.storage.reading() as read:
            return await read.scim_users.group_ids(group_id, last, count)

    return values.Batches(read_batch, size=groups.BATCH_SIZE)


async def change(ports: Ports, caller: ScimClient, group_id: UUID, changes: groups.GroupChanges) -> groups.ScimGroup:
    """Add and remove members, and set the external id: everything or nothing.

    New members get the role member; other roles stay. A user that the directory blocks becomes a member
    when it activates them, so adding them changes nothing. A change that replaces all members keeps
    the owner, platform owners and members with more rights than the directory even if it does not name them.

    Raises: GroupNotFound, GroupMemberUnknown, ProtectedUser, MemberAboveDirectory, MembersFull, ScimTokenInvalid,
    OrganizationNotActive.
    """
    groups.require_own_group(caller, group_id)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        locked_organization = scim_tokens.lock_organization(tx, caller, now)
        joining, leaving, known = await _find_changed_members(tx, caller.org_id, changes)
        organization = await locked_organization()
        if known < len(changes.others.added):
            raise groups.GroupMemberUnknown
        if joining or leaving:
            await tx.scim_users.lock(organization.id, [member.user_id for member in (*joining, *leaving)])
        leaving = await _without_protected(tx, caller, leaving, changes)
        users.require_member_capacity(organization, len(joining) - len(leaving))
        await _remove_members(tx, organization.id, leaving, now)
        await _restore_members(tx, organization.id, joining, now)
        present_id = (await tx.scim_users.group_external_ids(organization.id)).get(organization.id)
        external_id = present_id if changes.external_id is values.KEEP else changes.external_id
        if external_id != present_id:
            await tx.scim_users.save_group_external_id(organization.id, organization.id, external_id, now)
            tx.record(provisioning_events.group_external_id_changed(organization.id, present_id, external_id))
        if joining or leaving or external_id != present_id:
            organization = replace(organization, members_changed_at=now)
    return groups.to_group(organization, external_id)


async def _find_changed_members(
    tx: Transaction, org_id: UUID, changes: groups.GroupChanges
) -> tuple[list[groups.GroupMember], list[groups.GroupMember], int]:
    """Return the users who join, the users who leave, and how many known users the changes add by name."""
    joining, leaving, known = list[groups.GroupMember](), list[groups.GroupMember](), 0
    async for batch in _load_members(tx, org_id, changes):
        for member in batch:
            known += member.user_id in changes.others.added
            own = changes.of(provisioned=member.is_provisioned)
            is_removed = not member.is_protected if own.replace_all else member.user_id in own.removed
            if member.user_id in own.added:
                if member.role is None and not member.is_blocked:
                    joining.append(member)
            elif member.role is not None and is_removed:
                leaving.append(member)
    return joining, leaving, known


async def _without_protected(
    tx: Transaction, caller: ScimClient, leaving: list[groups.GroupMember], changes: groups.GroupChanges
) -> list[groups.GroupMember]:
    """Return the locked users who may leave. Making a user a platform owner does not lock the organization, so this right is read again.

    Raises: ProtectedUser, MemberAboveDirectory if the changes name a user who must stay.
    """
    if not leaving:
        return leaving
    user_ids = [member.user_id for member in leaving]
    owners = await tx.scim_users.platform_owners(user_ids)
    above = await tx.scim_users.with_other_rights(caller.org_id, user_ids, (await scim_tokens.authority_of(tx, caller)).rights)
    named = [member for member in leaving if not changes.of(provisioned=member.is_provisioned).replace_all]
    if any(member.is_protected or member.user_id in owners for member in named):
        raise users.ProtectedUser
    if any(member.user_id in above for member in named):
        raise users.MemberAboveDirectory
    return [member for member in leaving if member.user_id not in owners | above]


def _load_members(tx: Transaction, org_id: UUID, changes: groups.GroupChanges) -> values.Batches[groups.GroupMember]:
    """Load the users that the changes name, or all known users if one batch cannot hold the named users.

    A group can have a hundred thousand members. Other requests run between the batches.
    """
    named = changes.others.added | changes.others.removed
    ids = named if not changes.provisioned.replace_all and len(named) < groups.BATCH_SIZE else None

    async def read_batch(last: groups.GroupMember | None, count: int) -> Sequence[groups.GroupMember]:
        if ids is not None:
            return await tx.scim_users.group_members(org_id, ids)  # shorter than a batch, so it is read only once
        return await tx.scim_users.all_group_members(org_id, None if last is None else last.user_id, count)

    return values.Batches(read_batch, size=groups.BATCH_SIZE)


async def _remove_members(tx: Transaction, org_id: UUID, leaving: Sequence[groups.GroupMember], now: datetime) -> None:
    """End memberships and everything that depends on them. Organization and users are locked."""
    if not leaving:
        return
    user_ids = [member.user_id for member in leaving]
    await tx.scim_users.remove_members(org_id, user_ids, now)
    await tx.service_users.remove_former_members(org_id, user_ids)
    await tx.groups.remove_former_members(org_id, user_ids)
    await tx.organization_sessions.end(org_id, user_ids, now)
    await members.remove_links(tx, org_id, user_ids, now)
    for member in leaving:
        assert member.role is not None, "only users in the group can leave it"
        tx.record(events.user_removed(org_id, member.user_id, member.role))
    givers = await tx.group_roles.givers(org_id, user_ids)
    for user_id in givers:
        await tx.service_accounts.end_going_on(user_id, org_id, now)
    await grants.void_grants(tx, org_id, givers, now)
    await members.revoke_invitations_to(tx, org_id, user_ids, now)


async def _restore_members(tx: Transaction, org_id: UUID, joining: Sequence[groups.GroupMember], now: datetime) -> None:
    """Make locked users members in a locked organization."""
    if not joining:
        return
    await tx.scim_users.restore_members(org_id, [member.user_id for member in joining], now)
    for member in joining:
        tx.record(events.user_joined(org_id, member.user_id, MEMBER))
