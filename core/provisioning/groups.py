"""Groups of SCIM: the one that there is, which is the organization, and its members (identity.md sections 2.7 and 4.6; decisions, points
134 to 138; security.md C-6)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from core.kernel.errors import refuse
from core.kernel.principals import Role
from core.kernel.values import Batches, parse_id
from core.provisioning import tokens as scim_tokens
from core.provisioning.filters import ScimField, Value, comparisons, holds
from core.provisioning.patches import GroupMemberUnknown
from core.provisioning.users_rules import ProtectedUser, require_member_capacity
from core.tenancy import events, members

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from core.kernel.principals import ScimClient
    from core.provisioning.filters import ScimFilter
    from core.provisioning.patches import MemberChanges
    from core.tenancy.organizations_rules import Organization
    from ports import Ports
    from ports.storage import Transaction
from core.provisioning.groups_rules import BATCH, ScimGroup, GroupNotFound, GroupMember, check, to_group


async def listed(ports: Ports, caller: ScimClient, found: ScimFilter | None) -> ScimGroup | None:
    """The one group, if the filter holds of it."""
    async with ports.storage.reading() as read:
        organization = await read.organizations.by_id(caller.org_id)
        if organization is None:
            return None
        if found is None:
            return to_group(organization)
        asked = {each.operand for each in comparisons(found) if each.field is ScimField.MEMBER}
        ids = [found_id for each in asked if isinstance(each, str) and (found_id := parse_id(each)) is not None]
        group_members = await read.scim_users.group_members(caller.org_id, ids) if ids else []
    there = frozenset(str(each.user_id) for each in group_members if each.role is not None)
    return to_group(organization) if _holds(found, organization, there) else None


def _holds(found: ScimFilter, organization: Organization, there: frozenset[str]) -> bool:
    values: dict[ScimField, Value] = {
        ScimField.ID: str(organization.id),
        ScimField.DISPLAY_NAME: organization.name,
        ScimField.RESOURCE_TYPE: "Group",
        ScimField.CREATED: organization.created_at,
        ScimField.LAST_MODIFIED: to_group(organization).updated_at,
        ScimField.MEMBER: there,  # of those whom the filter names
    }
    return holds(found, values.__getitem__)


async def find(ports: Ports, caller: ScimClient, group_id: UUID) -> ScimGroup:
    """Raises GroupNotFound for every other one."""
    async with ports.storage.reading() as read:
        if group_id != caller.org_id:
            raise GroupNotFound
        return to_group(await read.organizations.by_id(group_id) or refuse(GroupNotFound))


def member_list(ports: Ports, caller: ScimClient) -> Batches[UUID]:
    """And who are in the group, those whom the directory has deactivated included, by their ids."""

    async def read_on(last: UUID | None, count: int) -> Sequence[UUID]:
        async with ports.storage.reading() as read:
            return await read.scim_users.group(caller.org_id, last, count)

    return Batches(read_on, size=BATCH)


async def change(ports: Ports, caller: ScimClient, group_id: UUID, changes: MemberChanges) -> ScimGroup:
    """The group with these members; if one of them cannot come or go, nobody does. Whoever is an owner is one still although they are not
    named (decisions, point 135), and nobody gets another role.

    Raises GroupNotFound, GroupMemberUnknown, ProtectedUser, MembersFull, and what scim_tokens.lock_organization_deferred tells.
    """
    check(caller, group_id)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        entered = scim_tokens.lock_organization_deferred(tx, caller, now)
        joining, leaving, known = list[GroupMember](), list[GroupMember](), 0
        async for batch in _group_members(tx, caller.org_id, changes):
            for each in batch:
                if each.user_id in changes.added:
                    known += 1
                    if each.role is None:
                        joining.append(each)
                elif each.role is not None and (not _stays(each) if changes.afresh else each.user_id in changes.removed):
                    leaving.append(each)
        organization = entered()
        if known < len(changes.added):
            raise GroupMemberUnknown
        if joining or leaving:
            await tx.scim_users.lock(organization.id, [each.user_id for each in (*joining, *leaving)])
        if leaving:  # somebody may have become a platform owner meanwhile, for which nobody holds the organization
            owners = await tx.scim_users.platform_owners([each.user_id for each in leaving])
            if not changes.afresh and any(_stays(each) or each.user_id in owners for each in leaving):
                raise ProtectedUser
            leaving = [each for each in leaving if each.user_id not in owners]
        require_member_capacity(organization, _counted(joining) - _counted(leaving))
        await _move(tx, organization.id, joining, leaving, now)
        if joining or leaving:
            organization = replace(organization, members_changed_at=now)
    return to_group(organization)


def _group_members(tx: Transaction, org_id: UUID, changes: MemberChanges) -> Batches[GroupMember]:
    """Of those whom the changes concern and the directory knows, or of all where that may be more: little by little, so that nobody else
    waits for a hundred thousand at once."""
    asked = changes.added | changes.removed if not changes.afresh and len(changes.added) + len(changes.removed) < BATCH else None

    async def read_on(last: GroupMember | None, count: int) -> Sequence[GroupMember]:
        if asked is not None:
            return await tx.scim_users.group_members(org_id, asked)  # fewer than a batch, so that there is one
        return await tx.scim_users.all_group_members(org_id, None if last is None else last.user_id, count)

    return Batches(read_on, size=BATCH)


def _stays(standing: GroupMember) -> bool:
    return standing.role is Role.OWNER or standing.is_platform_owner


def _counted(group_members: Sequence[GroupMember]) -> int:
    return sum(not each.is_deactivated for each in group_members)


async def _move(tx: Transaction, org_id: UUID, joining: Sequence[GroupMember], leaving: Sequence[GroupMember], now: datetime) -> None:
    """Let some in and others out, who are locked, and their organization before them."""
    if leaving:
        gone = [each.user_id for each in leaving]
        await tx.scim_users.remove_members(org_id, gone, now)
        await tx.service_users.remove_former_members(org_id, gone)
        await tx.sessions.end_in_organization(org_id, gone, now)
        for each in leaving:
            assert each.role is not None, "who is not in the group does not leave it"
            tx.record(events.user_removed(org_id, each.user_id, each.role))
            if each.role is not Role.MEMBER:  # nobody else may have invited anybody
                await members.revoke_invitations_from(tx, org_id, each.user_id, None, now)
        await members.revoke_invitations_to(tx, org_id, gone, now)
    if joining:
        await tx.scim_users.admit(org_id, [each.user_id for each in joining], now)
        for each in joining:
            tx.record(events.user_joined(org_id, each.user_id, Role.MEMBER))
