"""The organization roles that groups give to their members, beside the member's own role (security R-11).

A member with `roles.manage` and every right in a role lets a group give it. When they lose such a right, the group stops giving the role.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from core.kernel.callers import Member
from core.kernel.errors import refuse
from core.kernel.roles import Capability, Role
from core.kernel.values import Email
from core.tenancy import events, grants, organizations
from core.tenancy.groups import has_power_over, require_power_over_members
from core.tenancy.model.group_roles import RightsByGroupItself, find_unfounded, may_map, require_mappable
from core.tenancy.model.groups import Group, GroupWithoutRole, OrganizationGroupNotFound
from core.tenancy.model.members import require_assignable
from ports import Ports


@dataclass(frozen=True, slots=True)
class GroupRoleChoices:
    """The roles that a member may let a group give, and the address of the member who gave it the present role.

    `has_power`: the member may act on every member in the group. `mapper` is None without a role, and if the mapper is no member any
    longer.
    """

    roles: Sequence[Role]
    may_take: bool
    has_power: bool
    mapper: Email | None


async def load_choices(ports: Ports, caller: Member, group: Group) -> GroupRoleChoices:
    """Return the roles that the caller may let a group give. There are no choices if the caller may not take the present role away."""
    rights, org_id = caller.acts_in.rights, caller.acts_in.id
    async with ports.storage.reading() as read:
        roles = await read.roles.all(org_id)
        mapper = None if group.mapped_by is None else await read.members.account(org_id, group.mapped_by)
    has_power = await has_power_over(ports, caller, group)
    mappable = [role for role in roles if has_power and may_map(rights, role.rights)]
    may_take = group.role in {role.name for role in mappable}
    choices = mappable if may_take or group.role is None else []
    return GroupRoleChoices(choices, may_take, has_power, None if mapper is None else mapper.member.email)


async def give(ports: Ports, caller: Member, group_id: UUID, role: str) -> Group:
    """Let a group give this role to its confirmed members, and return the group. The role replaces the role that the group gave.

    A stopped mapping starts again, and the caller answers for it.

    The role changes for every member in the group, so the caller needs power over every member, as for `take` (security
    R-10).
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, authority = await organizations.lock_authority(tx, caller, Capability.ROLES_MANAGE)
        old = await tx.groups.by_id(organization.id, group_id) or refuse(OrganizationGroupNotFound)
        new_role = require_assignable(await tx.roles.find(organization.id, role))
        require_mappable(authority.rights, new_role)
        if old.role is not None:
            require_mappable(authority.rights, await tx.roles.find(organization.id, old.role))
        await require_power_over_members(tx, authority, old)
        new = replace(old, role=new_role.name, role_label=None if new_role.is_built_in else new_role.label)
        new = replace(new, mapped_by=caller.user_id, mapped_at=now, mapping_stopped_at=None)
        if old.gives_role and replace(new, mapped_at=old.mapped_at) == old:
            return old
        if old.scim_token_id is not None:
            await grants.require_power_over_directories(tx, organization.id, new_role.rights, now)
        await tx.group_roles.save(new)
        if any(each.group_id == group_id for each in find_unfounded(await tx.group_roles.active(organization.id))):
            raise RightsByGroupItself
        tx.record(events.group_role_mapped(old, new))
        await grants.void_grants(tx, organization.id, await tx.group_roles.givers_in(organization.id, [group_id]), now)
    return new


async def take(ports: Ports, caller: Member, group_id: UUID) -> None:
    """Let a group give no role any longer. With their next request, the group's members lose the rights that only the group gave.

    Raises: OrganizationGroupNotFound, GroupWithoutRole, GroupGivesMore, GroupAboveOwn.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, authority = await organizations.lock_authority(tx, caller, Capability.ROLES_MANAGE)
        old = await tx.groups.by_id(organization.id, group_id) or refuse(OrganizationGroupNotFound)
        if old.role is None:
            raise GroupWithoutRole
        require_mappable(authority.rights, await tx.roles.find(organization.id, old.role))
        await require_power_over_members(tx, authority, old)
        await tx.group_roles.save(replace(old, role=None, mapped_by=None, mapped_at=None, mapping_stopped_at=None))
        tx.record(events.group_role_unmapped(old))
        await grants.void_grants(tx, organization.id, await tx.group_roles.givers_in(organization.id, [group_id]), now)
