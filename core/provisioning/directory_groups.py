"""SCIM groups that directories create. A directory sees such groups if *directory groups* is switched on for its token.

All directories in an organization share their groups: a new token continues where a revoked token ended.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from uuid import UUID

from core.kernel import values
from core.kernel.callers import ScimClient
from core.provisioning import tokens as scim_tokens
from core.provisioning.model import groups as groups_model
from core.provisioning.model.filters import ScimFilter
from core.tenancy import groups
from core.tenancy.model.groups import Group
from ports import Ports
from ports.storage import Transaction


def to_scim_group(group: Group) -> groups_model.ScimGroup:
    """Return the group as a directory sees it."""
    return groups_model.ScimGroup(
        id=group.id,
        name=group.name,
        external_id=group.external_id,
        created_at=group.created_at,
        updated_at=max(group.updated_at, group.members_changed_at),
        kind=groups_model.GroupKind.DIRECTORY,
    )


def _of_directory(group: Group | None) -> Group:
    """Return the group. Raises: GroupNotFound if there is none, or an admin created it."""
    if group is None or group.scim_token_id is None:
        raise groups_model.GroupNotFound
    return group


async def list_matching(ports: Ports, caller: ScimClient, filter_: ScimFilter | None) -> list[groups_model.ScimGroup]:
    """Return the groups that match the filter, by name. Without the switch there are no groups."""
    if not caller.directory_groups:
        return []
    async with ports.storage.reading() as read:
        found = [group for group in await read.groups.of_org(caller.org_id) if group.scim_token_id is not None]
        if filter_ is None:
            return [to_scim_group(group) for group in found]
        ids = groups_model.named_member_ids(filter_)
        members = await read.groups.with_members(caller.org_id, ids) if ids else {}
    return [
        scim_group
        for group in found
        if groups_model.matches_group(
            filter_, scim_group := to_scim_group(group), members.get(group.id, ()), has_members=group.member_count > 0
        )
    ]


async def find(ports: Ports, caller: ScimClient, group_id: UUID) -> groups_model.ScimGroup | None:
    """Return the group, or None if there is none that the directory may see."""
    if not caller.directory_groups:
        return None
    async with ports.storage.reading() as read:
        group = await read.groups.by_id(caller.org_id, group_id)
    return None if group is None or group.scim_token_id is None else to_scim_group(group)


def list_member_ids(ports: Ports, caller: ScimClient, group_id: UUID) -> values.Batches[UUID]:
    """Return the ids of the group's members in order, also deactivated users."""

    async def read_batch(last: UUID | None, count: int) -> Sequence[UUID]:
        async with ports.storage.reading() as read:
            return await read.groups.member_ids(caller.org_id, group_id, last, count)

    return values.Batches(read_batch, size=groups_model.BATCH_SIZE)


async def create(ports: Ports, caller: ScimClient, changes: groups_model.GroupChanges) -> groups_model.ScimGroup:
    """Create a group with its members."""
    if changes.name is values.KEEP:
        raise groups_model.GroupNameMissing
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        locked_organization = scim_tokens.lock_organization(tx, caller, now, creates_groups=True)
        org_id = (await locked_organization()).id
        external_id = None if changes.external_id is values.KEEP else changes.external_id
        new = groups.new_group(org_id, changes.name, now, external_id=external_id, scim_token_id=caller.token_id)
        group = await groups.add(tx, new)
        joining = await _known_users(tx, org_id, changes.provisioned.added, changes)
        return to_scim_group(await groups.change_members(tx, group, joining, (), now))


async def change(ports: Ports, caller: ScimClient, group_id: UUID, changes: groups_model.GroupChanges) -> groups_model.ScimGroup:
    """Change a group's name and external id, and add and remove members: everything or nothing.

    Unless all members are replaced, the cost does not grow with the group. A user that the directory deactivated stays
    in the group, and can be added to it. A deactivated user gets nothing through the group until the directory
    activates them.

    Raises: GroupNotFound, GroupNameTaken, GroupFull, AssigneeUnknown, ScimTokenInvalid, OrganizationNotActive.
    """
    now, members = ports.clock.now(), changes.provisioned
    async with ports.storage.transaction(by=caller) as tx:
        locked_organization = scim_tokens.lock_organization(tx, caller, now, creates_groups=True)
        found = await tx.groups.by_id(caller.org_id, group_id)
        org_id, old = (await locked_organization()).id, _of_directory(found)
        group = await groups.save(
            tx,
            old,
            replace(
                old,
                name=old.name if changes.name is values.KEEP else changes.name,
                external_id=old.external_id if changes.external_id is values.KEEP else changes.external_id,
            ),
            now,
        )
        named = None if members.replace_all else members.added | members.removed
        present = await tx.groups.present(org_id, group.id, named) if named is None or named else set[UUID]()
        leaving = present - members.added if members.replace_all else present & members.removed
        joining = await _known_users(tx, org_id, members.added - present, changes)
        return to_scim_group(await groups.change_members(tx, group, joining, leaving, now))


async def delete(ports: Ports, caller: ScimClient, group_id: UUID) -> None:
    """Delete a group. The group's users lose the access that only the group gave."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        locked_organization = scim_tokens.lock_organization(tx, caller, now, creates_groups=True)
        found = await tx.groups.by_id(caller.org_id, group_id)
        await locked_organization()
        await groups.remove(tx, _of_directory(found), now)


async def _known_users(tx: Transaction, org_id: UUID, user_ids: Collection[UUID], changes: groups_model.GroupChanges) -> set[UUID]:
    """Return which of these ids belong to the organization's users, or to users that its directory knows.

    Group ids are noted as ids that the changes ignore.

    Raises: AssigneeUnknown for other ids.
    """
    if not user_ids:
        return set()
    users = await tx.assignments.assignable(org_id, user_ids)
    if others := set(user_ids) - users:
        users |= {member.user_id for member in await tx.scim_users.group_members(org_id, others)}
    if others := set(user_ids) - users:
        if others - await tx.groups.ids(org_id, others):
            raise groups_model.AssigneeUnknown
        changes.nested.extend(map(str, others))
    return users
