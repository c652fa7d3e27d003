"""An organization's groups: names, members, roles that they give (security R-11), and the access that ends with a group.

Admins change the groups that they created. A directory changes its own (`core.provisioning.directory_groups`).

A member with `roles.manage` and every right in a role lets a group give it. When they lose such a right, the group stops giving the role.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from core.accounts.own_account import lock_person
from core.kernel import access, callers, values
from core.kernel.errors import refuse
from core.kernel.roles import Authority, Capability, Role, may_act_on
from core.tenancy import events, grants, organizations
from core.tenancy.group_names import require_free_name
from core.tenancy.model import groups
from core.tenancy.model.members import require_assignable, require_power_over
from ports import Ports, storage


async def list_page(
    ports: Ports, caller: callers.OrganizationCaller, page: values.Page, *, search: str | None = None
) -> values.PageResult[groups.Group]:
    """Return a page with the organization's groups by name. `search` is a part of the name, in any case."""
    async with ports.storage.reading() as read:
        return await read.groups.page(caller.acts_in.id, page, search=groups.to_name_key((search or "").strip()) or None)


async def list_all(ports: Ports, caller: callers.OrganizationCaller) -> Sequence[groups.Group]:
    """Return all groups in the organization by name."""
    async with ports.storage.reading() as read:
        return await read.groups.of_org(caller.acts_in.id)


async def find(ports: Ports, caller: callers.OrganizationCaller, group_id: UUID) -> groups.Group:
    """Return a group."""
    async with ports.storage.reading() as read:
        return await read.groups.by_id(caller.acts_in.id, group_id) or refuse(groups.OrganizationGroupNotFound)


async def list_of_user(ports: Ports, caller: callers.OrganizationCaller, user_id: UUID) -> Sequence[groups.Group]:
    """Return the organization's groups that the user is in, by name."""
    async with ports.storage.reading() as read:
        return await read.groups.of_user(caller.acts_in.id, user_id)


async def list_members(
    ports: Ports, caller: callers.OrganizationCaller, group_id: UUID, page: values.Page, *, search: str | None = None
) -> values.PageResult[groups.MemberOfGroup]:
    """Return a page with the users in a group. `search` is a part of an email address."""
    text = values.Email.parse_part(search or "") or None
    async with ports.storage.reading() as read:
        group = await read.groups.by_id(caller.acts_in.id, group_id) or refuse(groups.OrganizationGroupNotFound)
        return await read.groups.members(group.org_id, group.id, page, search=text)


async def create(ports: Ports, caller: callers.OrganizationCaller, name: str, description: str | None = None) -> groups.Group:
    """Create a group without members."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.GROUPS_MANAGE)
        return await add(tx, new_group(organization.id, name, ports.clock.now(), description=description))


async def update(
    ports: Ports,
    caller: callers.OrganizationCaller,
    group_id: UUID,
    *,
    name: str | values.Keep = values.KEEP,
    description: str | values.Keep | None = values.KEEP,
) -> groups.Group:
    """Change a group's name or description, and return the group.

    Raises: NoGroupChanges, OrganizationGroupNotFound, ManagedByDirectory, GroupNameTaken.
    """
    changes = values.provided(name=name, description=description)
    if not changes:
        raise groups.NoGroupChanges
    async with ports.storage.transaction(by=caller) as tx:
        old = await lock_own_group(tx, caller, group_id, changes_users=False)
        return await save(tx, old, replace(old, **changes), ports.clock.now())


async def delete(ports: Ports, caller: callers.OrganizationCaller, group_id: UUID) -> None:
    """Delete a group. Users lose the access that only the group gave.

    Like removing its members, this needs power over every member (security R-10).
    """
    async with ports.storage.transaction(by=caller) as tx:
        await remove(tx, await lock_own_group(tx, caller, group_id, of_all=True), ports.clock.now())


async def add_member(ports: Ports, caller: callers.OrganizationCaller, group_id: UUID, user_id: UUID) -> None:
    """Add the organization's confirmed member or end user to a group. Nothing changes if the user is in the group."""
    async with ports.storage.transaction(by=caller) as tx:
        group = await lock_own_group(tx, caller, group_id, user_id)
        # Checked before the lock, so that callers cannot lock accounts in other organizations. While the organization
        # is locked, no other transaction removes its users.
        await tx.assignments.assignable(group.org_id, [user_id]) or refuse(groups.GroupUserNotFound)
        await lock_person(tx, user_id) or refuse(groups.GroupUserNotFound)
        present = await tx.groups.present(group.org_id, group.id, [user_id])
        await change_members(tx, group, {user_id} - present, set(), ports.clock.now())


async def add_member_by_email(ports: Ports, caller: callers.OrganizationCaller, group_id: UUID, email: values.Email) -> UUID:
    """Add the user with this address to a group, as `add_member` does. Return the user's id.

    The refusal is the same for an address without an account.
    """
    async with ports.storage.reading() as read:
        await read.groups.by_id(caller.acts_in.id, group_id) or refuse(groups.OrganizationGroupNotFound)
        account = await read.accounts.by_email(email) or refuse(groups.GroupUserNotFound)
    await add_member(ports, caller, group_id, account.id)
    return account.id


async def remove_member(ports: Ports, caller: callers.OrganizationCaller, group_id: UUID, user_id: UUID) -> None:
    """Remove a user from a group. The user loses the access that only the group gave."""
    async with ports.storage.transaction(by=caller) as tx:
        group = await lock_own_group(tx, caller, group_id, user_id)
        await tx.groups.present(group.org_id, group.id, [user_id]) or refuse(groups.NotInGroup)
        await change_members(tx, group, set(), {user_id}, ports.clock.now())


async def lock_own_group(
    tx: storage.Transaction,
    caller: callers.OrganizationCaller,
    group_id: UUID,
    user_id: UUID | None = None,
    *,
    changes_users: bool = True,
    of_all: bool = False,
) -> groups.Group:
    """Lock the organization, and return a group that admins manage.

    The caller has power over the user who joins or leaves the group, and with `of_all` over all its members. If the change gives or takes
    the group's access and roles, the caller needs all rights to give a single user the same. For a group with a role, the caller must also
    be a person who may give this role.
    """
    organization, authority = await organizations.lock_authority(tx, caller, Capability.GROUPS_MANAGE)
    group = await tx.groups.by_id(organization.id, group_id) or refuse(groups.OrganizationGroupNotFound)
    if group.directory is not None:
        raise groups.ManagedByDirectory(group.directory)
    if changes_users and group.role is not None:
        if not isinstance(caller, callers.Member) or caller.personal_token is not None:
            raise access.NeedsPerson
        groups.require_mappable(authority.rights, await tx.roles.find(organization.id, group.role))
    if changes_users:
        needed = await tx.groups.rights_given(group.org_id, group.id)
        if missing := needed - access.lasting_rights(caller, authority.rights):
            raise groups.GroupOpensMore(min(missing))
        access.require_scopes_for(caller, needed)
    membership = None if user_id is None else await tx.members.lock(organization.id, user_id)
    if membership is not None:
        require_power_over(authority, membership)
    if of_all:
        await require_power_over_members(tx, authority, group)
    return group


async def require_power_over_members(tx: storage.Transaction, actor: Authority, group: groups.Group) -> None:
    """Check that a caller may act on every member in the group (security R-10)."""
    if not await _has_power(tx, actor, group):
        raise groups.GroupAboveOwn


async def has_power_over(ports: Ports, caller: callers.OrganizationCaller, group: groups.Group) -> bool:
    """Return whether the caller may act on every member in the group, before a page offers it."""
    async with ports.storage.reading() as read:
        return await _has_power(read, Authority(caller.acts_in.role, caller.acts_in.rights), group)


async def _has_power(read: storage.Reading | storage.Transaction, actor: Authority, group: groups.Group) -> bool:
    return all(may_act_on(actor, each) for each in await read.group_roles.authorities(group.org_id, [group.id]))


# Changes in a locked organization, by an admin or by the directory


def new_group(
    org_id: UUID,
    name: str,
    now: datetime,
    *,
    description: str | None = None,
    external_id: str | None = None,
    scim_token_id: UUID | None = None,
) -> groups.Group:
    """Return a group without members, which is not stored yet."""
    return groups.Group(
        id=values.new_id(),
        org_id=org_id,
        name=name,
        description=description,
        external_id=external_id,
        scim_token_id=scim_token_id,
        directory=None,
        member_count=0,
        created_at=now,
        updated_at=now,
        members_changed_at=now,
    )


async def add(tx: storage.Transaction, group: groups.Group) -> groups.Group:
    """Add a new group, and return it. Raises: TooManyGroups, GroupNameTaken."""
    if await tx.groups.count(group.org_id) >= groups.MAX_GROUPS:
        raise groups.TooManyGroups
    await require_free_name(tx, group.org_id, group.name)
    await tx.groups.add(group)
    tx.record(events.group_created(group))
    return group


async def save(tx: storage.Transaction, old: groups.Group, new: groups.Group, now: datetime) -> groups.Group:
    """Store a changed group, and return it. Nothing is written if nothing changed."""
    if new == old:
        return old
    if new.name != old.name:
        await require_free_name(tx, new.org_id, new.name, of=new.id)
    new = replace(new, updated_at=now)
    await tx.groups.save(new)
    tx.record(events.group_updated(old, new))
    return new


async def remove(tx: storage.Transaction, group: groups.Group, now: datetime) -> None:
    """Delete a group. The group's members lose the access that only the group gave."""
    services = await tx.assignments.services_of_group(group.org_id, group.id)
    givers = await tx.group_roles.givers_in(group.org_id, [group.id]) if group.gives_role else ()
    members = await tx.groups.present(group.org_id, group.id, None) if services else set()
    if members:
        await tx.scim_users.lock(group.org_id, members)
    await tx.groups.remove(group.org_id, group.id)
    await _end_access(tx, group, services, members, now)
    tx.record(events.group_deleted(group))
    if group.gives_role:
        await grants.void_grants(tx, group.org_id, givers, now)


async def change_members(
    tx: storage.Transaction, group: groups.Group, joining: Collection[UUID], leaving: Collection[UUID], now: datetime
) -> groups.Group:
    """Add and remove a group's users, and return the group. The cost depends on the added and removed users, and not on the group's size.

    The caller has checked who may join, and that the leaving users are members. Users who leave lose the
    access that only the group gave, with their sessions at these applications.

    Raises: GroupFull.
    """
    if not joining and not leaving:
        return group
    if group.member_count + len(joining) - len(leaving) > groups.MAX_GROUP_MEMBERS:
        raise groups.GroupFull
    # Lock order: the accounts before the group's counter and before sessions. An anonymization that is in progress ends
    # first, and its account is not added.
    await tx.scim_users.lock(group.org_id, [*joining, *leaving])
    if leaving:
        await tx.groups.remove_members(group.org_id, group.id, leaving, now)
        await _end_access(tx, group, await tx.assignments.services_of_group(group.org_id, group.id), leaving, now)
    joined = await tx.groups.add_members(group.org_id, group.id, joining, now) if joining else set()
    for batch in _batches(joined):
        tx.record(events.group_members_added(group, batch))
    for batch in _batches(leaving):
        tx.record(events.group_members_removed(group, batch))
    if leaving and group.gives_role:
        await grants.void_grants(tx, group.org_id, await tx.group_roles.givers(group.org_id, leaving), now)
    return replace(group, member_count=group.member_count + len(joined) - len(leaving), members_changed_at=now)


def _batches(user_ids: Collection[UUID]) -> list[list[UUID]]:
    in_order = sorted(user_ids)
    return [in_order[start : start + groups.MEMBERS_PER_EVENT] for start in range(0, len(in_order), groups.MEMBERS_PER_EVENT)]


async def _end_access(
    tx: storage.Transaction, group: groups.Group, services: Collection[UUID], user_ids: Collection[UUID], now: datetime
) -> None:
    """At these services, end the sessions of users who may no longer use them."""
    if services and user_ids:
        await tx.organization_sessions.end_without_access(group.org_id, services, user_ids, now)


@dataclass(frozen=True, slots=True)
class GroupRoleChoices:
    """The roles that a member may let a group give, and the address of the member who gave it the present role.

    `has_power`: the member may act on every member in the group. `mapper` is None without a role, and if the mapper is no member any
    longer.
    """

    roles: Sequence[Role]
    may_take: bool
    has_power: bool
    mapper: values.Email | None


async def load_role_choices(ports: Ports, caller: callers.Member, group: groups.Group) -> GroupRoleChoices:
    """Return the roles that the caller may let a group give. There are no choices if the caller may not take the present role away."""
    rights, org_id = caller.acts_in.rights, caller.acts_in.id
    async with ports.storage.reading() as read:
        roles = await read.roles.all(org_id)
        mapper = None if group.mapped_by is None else await read.members.account(org_id, group.mapped_by)
    has_power = await has_power_over(ports, caller, group)
    mappable = [role for role in roles if has_power and groups.may_map(rights, role.rights)]
    may_take = group.role in {role.name for role in mappable}
    choices = mappable if may_take or group.role is None else []
    return GroupRoleChoices(choices, may_take, has_power, None if mapper is None else mapper.member.email)


async def give_role(ports: Ports, caller: callers.Member, group_id: UUID, role: str) -> groups.Group:
    """Let a group give this role to its confirmed members, and return the group. The role replaces the role that the group gave.

    A stopped mapping starts again, and the caller answers for it.

    The role changes for every member in the group, so the caller needs power over every member, as for `take_role` (security
    R-10).
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, authority = await organizations.lock_authority(tx, caller, Capability.ROLES_MANAGE)
        old = await tx.groups.by_id(organization.id, group_id) or refuse(groups.OrganizationGroupNotFound)
        new_role = require_assignable(await tx.roles.find(organization.id, role))
        groups.require_mappable(authority.rights, new_role)
        if old.role is not None:
            groups.require_mappable(authority.rights, await tx.roles.find(organization.id, old.role))
        await require_power_over_members(tx, authority, old)
        new = replace(old, role=new_role.name, role_label=None if new_role.is_built_in else new_role.label)
        new = replace(new, mapped_by=caller.user_id, mapped_at=now, mapping_stopped_at=None)
        if old.gives_role and replace(new, mapped_at=old.mapped_at) == old:
            return old
        if old.scim_token_id is not None:
            await grants.require_power_over_directories(tx, organization.id, new_role.rights, now)
        await tx.group_roles.save(new)
        if any(each.group_id == group_id for each in groups.find_unfounded(await tx.group_roles.active(organization.id))):
            raise groups.RightsByGroupItself
        tx.record(events.group_role_mapped(old, new))
        await grants.void_grants(tx, organization.id, await tx.group_roles.givers_in(organization.id, [group_id]), now)
    return new


async def take_role(ports: Ports, caller: callers.Member, group_id: UUID) -> None:
    """Let a group give no role any longer. With their next request, the group's members lose the rights that only the group gave."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, authority = await organizations.lock_authority(tx, caller, Capability.ROLES_MANAGE)
        old = await tx.groups.by_id(organization.id, group_id) or refuse(groups.OrganizationGroupNotFound)
        if old.role is None:
            raise groups.GroupWithoutRole
        groups.require_mappable(authority.rights, await tx.roles.find(organization.id, old.role))
        await require_power_over_members(tx, authority, old)
        await tx.group_roles.save(replace(old, role=None, mapped_by=None, mapped_at=None, mapping_stopped_at=None))
        tx.record(events.group_role_unmapped(old))
        await grants.void_grants(tx, organization.id, await tx.group_roles.givers_in(organization.id, [group_id]), now)
