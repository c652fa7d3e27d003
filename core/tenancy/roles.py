"""The roles that an organization defines itself: creating, changing and deleting them (security R-10).

No member creates, changes or deletes a role with a right that they do not have.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from core.accounts import security_notices
from core.kernel import callers, roles, values
from core.kernel.access import may_view
from core.kernel.errors import refuse
from core.tenancy import events, grants, organizations
from core.tenancy.model import roles as roles_model
from core.tenancy.model.groups import RightsByGroupItself, find_unfounded, to_name_key
from core.tenancy.model.members import CannotChangeOwnRole, require_assignable
from ports import Ports, storage

# The right that shows the holders per kind in lists
_VIEWED_BY: Final[Mapping[roles_model.HolderKind, roles.Capability]] = {
    roles_model.HolderKind.MEMBER: roles.Capability.MEMBERS_VIEW,
    roles_model.HolderKind.INVITATION: roles.Capability.MEMBERS_MANAGE,
    roles_model.HolderKind.SERVICE_ACCOUNT: roles.Capability.SERVICE_ACCOUNTS_MANAGE,
    roles_model.HolderKind.GROUP: roles.Capability.MEMBERS_VIEW,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChanges:
    """A role's new values. Fields that are KEEP stay as they are.

    With a `version`, the change is refused if the role has been changed since. `confirmed`: the caller has seen the
    holders who lose rights.
    """

    name: str | values.Keep = values.KEEP
    description: str | values.Keep = values.KEEP
    capabilities: Collection[str] | values.Keep = values.KEEP
    version: int | None = None
    confirmed: bool = False


async def list_all(ports: Ports, caller: callers.OrganizationCaller) -> list[roles_model.ListedRole]:
    """Return the built-in roles and the organization's roles, with their member counts."""
    org_id = caller.acts_in.id
    async with ports.storage.reading() as read:
        own, counts = await read.roles.own(org_id), await read.roles.counts(org_id)
    return roles_model.list_roles(own, counts)


async def find(ports: Ports, caller: callers.OrganizationCaller, slug: str) -> roles_model.ListedRole:
    """Return a role, built in or the organization's."""
    org_id = caller.acts_in.id
    async with ports.storage.reading() as read:
        own = [] if slug in roles.ROLES else [await _find_own(read, org_id, slug)]
        counts = await read.roles.counts(org_id, slug)
    return next(role for role in roles_model.list_roles(own, counts) if role.name == slug)


async def require_role(ports: Ports, caller: callers.OrganizationCaller, slug: str) -> None:
    """Check that this role exists."""
    async with ports.storage.reading() as read:
        await read.roles.find(caller.acts_in.id, slug) or refuse(roles_model.OrganizationRoleNotFound)


async def list_choices(ports: Ports, caller: callers.OrganizationCaller) -> Sequence[roles.Role]:
    """Return all roles in the organization, for lists to choose from."""
    async with ports.storage.reading() as read:
        return await read.roles.all(caller.acts_in.id)


async def find_holders(
    ports: Ports, caller: callers.OrganizationCaller, slug: str
) -> tuple[roles_model.OrganizationRole, roles_model.RoleHolders]:
    """Return an organization's role, and its holders as `_find_holders` returns them."""
    async with ports.storage.reading() as read:
        role = await _find_own(read, caller.acts_in.id, slug)
        return role, await _find_holders(read, caller, role, ports.clock.now())


async def has_power_over_holders(ports: Ports, caller: callers.OrganizationCaller, role: roles_model.OrganizationRole) -> bool:
    """Return whether the caller may act on every member with this role, before a page offers it (security R-10)."""
    async with ports.storage.reading() as read:
        return await _has_power(read, roles.Authority(caller.acts_in.role, caller.acts_in.rights), role)


async def create(ports: Ports, caller: callers.OrganizationCaller, request: roles_model.NewRole) -> roles_model.OrganizationRole:
    """Create a role."""
    if request.slug:
        return await _create(ports, caller, request, roles_model.parse_slug(request.slug))

    async def with_slug(slug: str) -> roles_model.OrganizationRole:
        return await _create(ports, caller, request, roles_model.parse_slug(slug if slug[0].isalpha() else f"role-{slug}"[:50]))

    return await values.create_with_free_slug(request.name, "role", with_slug, roles_model.RoleSlugTaken)


async def _create(
    ports: Ports, caller: callers.OrganizationCaller, request: roles_model.NewRole, slug: roles.RoleName
) -> roles_model.OrganizationRole:
    now, capabilities = ports.clock.now(), roles_model.parse_capabilities(request.capabilities)
    async with ports.storage.transaction(by=caller) as tx:
        organization, rights = await organizations.lock_organization_for(tx, caller, roles.Capability.ROLES_MANAGE)
        if not capabilities <= rights:
            raise roles_model.RoleAboveOwn
        own = await tx.roles.own(organization.id)
        if len(own) >= roles_model.MAX_ROLES:
            raise roles_model.TooManyRoles
        _require_free_name(own, request.name)
        if (application := await tx.authorizations.application_with_role(organization.id, slug)) is not None:
            raise roles_model.RoleSlugOfApplication(application)
        role = roles_model.OrganizationRole(
            id=values.new_id(),
            org_id=organization.id,
            slug=slug,
            name=request.name,
            description=request.description,
            capabilities=capabilities,
            created_at=now,
            updated_at=now,
        )
        await tx.roles.add(role)
        tx.record(events.role_created(role))
    return role


async def update(ports: Ports, caller: callers.OrganizationCaller, slug: str, changes: RoleChanges) -> roles_model.OrganizationRole:
    """Change a role. The role's holders have the new rights from their next request on.

    Invitations, roles and credentials end that holders gave with a right that they lose (security R-4). Without a confirmation, no right is
    taken from holders, and no group stops to give the role. A service account adds no rights to a role with holders, because the rights
    would stay when the account is gone.
    """
    fields = values.provided(name=changes.name, description=changes.description, capabilities=changes.capabilities)
    if not fields:
        raise roles_model.NoRoleChanges
    if "capabilities" in fields:
        fields["capabilities"] = roles_model.parse_capabilities(fields["capabilities"])
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, authority = await organizations.lock_authority(tx, caller, roles.Capability.ROLES_MANAGE)
        old = await _find_own(tx, organization.id, slug)
        if changes.version not in (None, old.version):
            raise roles_model.RoleChanged
        new = replace(old, **fields)
        if not old.capabilities | new.capabilities <= authority.rights:
            raise roles_model.RoleAboveOwn
        if new == old:
            return old
        if new.name != old.name:
            _require_free_name([role for role in await tx.roles.own(organization.id) if role.id != old.id], new.name)
        new = replace(new, version=old.version + 1, updated_at=now)
        if new.capabilities == old.capabilities:
            await tx.roles.save(new)
            tx.record(events.role_updated(old, new))
            return new
        await _check_holders(tx, caller, authority, old, new, now, confirmed=changes.confirmed)
        givers = await tx.roles.givers(organization.id, old.slug)
        await tx.roles.save(new)
        await _check_stopping_groups(tx, caller, authority, new, now, confirmed=changes.confirmed)
        if not new.capabilities <= old.capabilities:
            await _require_power_over_directories(tx, new.org_id, new.role, now)
        tx.record(events.role_updated(old, new))
        await _replace_of_programs(tx, organization.id, old.role, new.role, now)
        await _void_grants(tx, organization.id, givers, old.role.rights, new.role.rights, now)
    return new


async def _check_holders(
    tx: storage.Transaction,
    caller: callers.OrganizationCaller,
    authority: roles.Authority,
    old: roles_model.OrganizationRole,
    new: roles_model.OrganizationRole,
    now: datetime,
    *,
    confirmed: bool,
) -> None:
    """Check that the caller may change the rights of the role's holders, and has confirmed a loss."""
    loses = not old.capabilities <= new.capabilities
    if loses:
        await _require_power_over_holders(tx, authority, old)
    holders = await _find_holders(tx, caller, old, now)
    if not isinstance(caller, callers.Member) and holders.total and not new.capabilities <= old.capabilities:
        raise roles_model.RoleWidenedByProgram
    if holders.total and not confirmed and loses:
        raise roles_model.RoleInUse(holders)


async def _check_stopping_groups(
    tx: storage.Transaction,
    caller: callers.OrganizationCaller,
    authority: roles.Authority,
    new: roles_model.OrganizationRole,
    now: datetime,
    *,
    confirmed: bool,
) -> None:
    """If groups stop giving the changed role, check that the caller has power over their members, and has confirmed the loss."""
    stopping = [each for each in find_unfounded(await tx.group_roles.active(new.org_id)) if each.role == new.slug]
    if not stopping:
        return
    members = await tx.group_roles.authorities(new.org_id, [group.group_id for group in stopping])
    if not all(roles.may_act_on(authority, member) for member in members):  # the groups' members (security R-10)
        raise roles_model.RoleHolderHasMore
    if not confirmed:
        groups = [roles_model.RoleHolder(roles_model.HolderKind.GROUP, each.group_id, each.group_name) for each in stopping]
        raise roles_model.RoleInUse(await _find_holders(tx, caller, new, now, first=groups))


async def delete(
    ports: Ports, caller: callers.OrganizationCaller, slug: str, *, replacement: str | None = None, confirmed: bool = False
) -> None:
    """Delete a role. The role's holders get the role `replacement`, if the caller has seen them.

    From then on, a member answers for the roles that groups give. A service account lets no group give more rights.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, authority = await organizations.lock_authority(tx, caller, roles.Capability.ROLES_MANAGE)
        old = await _find_own(tx, organization.id, slug)
        if not old.capabilities <= authority.rights:
            raise roles_model.RoleAboveOwn
        if authority.role == old.slug:
            raise CannotChangeOwnRole
        await _require_power_over_holders(tx, authority, old)
        holders = await _find_holders(tx, caller, old, now)
        if holders.total and not confirmed:
            raise roles_model.RoleInUse(holders)
        if holders.total and replacement is None:
            raise roles_model.ReplacementMissing
        # Without a holder, invitations that have passed their expiry can still have the role.
        new = require_assignable(await tx.roles.find(organization.id, roles.MEMBER if replacement is None else replacement))
        if new.name == old.slug:
            raise roles_model.ReplacementMissing
        roles_model.require_giveable(authority.rights, new)
        givers = await tx.roles.givers(organization.id, old.slug)
        by_program = caller.actor_id if roles.needs_roles_manage(new.name) and not isinstance(caller, callers.Member) else None
        for user_id in await tx.roles.replace_of_members(organization.id, old.slug, new.name, promoted_by=by_program):
            tx.record(events.user_role_updated(organization.id, user_id, old.slug, new.name))
        await tx.roles.replace_of_invitations(organization.id, old.slug, new.name)
        await _replace_of_groups(tx, caller, old, new, now)
        await _replace_of_programs(tx, organization.id, old.role, new, now)
        await tx.roles.remove(organization.id, old.id)
        tx.record(
            events.role_deleted(
                old, new.name if holders.total else None, {kind.value: holders.counts[kind] for kind in roles_model.HolderKind}
            )
        )
        await _void_grants(tx, organization.id, givers, old.role.rights, new.rights, now)


async def _find_holders(
    read: storage.Reading | storage.Transaction,
    caller: callers.OrganizationCaller,
    role: roles_model.OrganizationRole,
    now: datetime,
    *,
    first: Sequence[roles_model.RoleHolder] = (),
) -> roles_model.RoleHolders:
    """Return a role's holders: `first` comes before all further holders.

    Of the kinds that the caller may not see, only the number remains.
    """
    holders = await read.roles.holders(role.org_id, role.id, now)
    others = [holder for holder in holders.first if holder not in first]
    shown = [holder for holder in (*first, *others) if may_view(caller, _VIEWED_BY[holder.kind])]
    return replace(holders, first=shown[: roles_model.MAX_HOLDERS])


async def _require_power_over_holders(tx: storage.Transaction, actor: roles.Authority, role: roles_model.OrganizationRole) -> None:
    """Check that a caller may act on every member with this role, their own or by a group (security R-10)."""
    if not await _has_power(tx, actor, role):
        raise roles_model.RoleHolderHasMore


async def _has_power(read: storage.Reading | storage.Transaction, actor: roles.Authority, role: roles_model.OrganizationRole) -> bool:
    giving = [each.group_id for each in await read.group_roles.active(role.org_id) if each.role == role.slug]
    return all(roles.may_act_on(actor, holder) for holder in await read.group_roles.authorities(role.org_id, giving, role=role.slug))


async def _require_power_over_directories(tx: storage.Transaction, org_id: UUID, role: roles.Role, now: datetime) -> None:
    """Check that directories' groups may give this role with its new rights, if such a group gives it."""
    if any(each.of_directory and each.role == role.name for each in await tx.group_roles.active(org_id)):
        await grants.require_power_over_directories(tx, org_id, role.rights, now)


def _require_free_name(others: Iterable[roles_model.OrganizationRole], name: str) -> None:
    """Check that no built-in role and no role in `roles` has this name, because lists to choose from show names."""
    labels = (*(role.label for role in roles.ROLES.values()), *(role.name for role in others))
    if to_name_key(name) in [to_name_key(label) for label in labels]:
        raise roles_model.RoleNameTaken


async def _find_own(read: storage.Reading | storage.Transaction, org_id: UUID, slug: str) -> roles_model.OrganizationRole:
    if slug in roles.ROLES:
        raise roles_model.BuiltInRole
    if not roles_model.is_slug(slug):
        raise roles_model.OrganizationRoleNotFound
    return await read.roles.by_slug(org_id, slug) or refuse(roles_model.OrganizationRoleNotFound)


async def _replace_of_groups(
    tx: storage.Transaction, caller: callers.OrganizationCaller, old: roles_model.OrganizationRole, new: roles.Role, now: datetime
) -> None:
    """Let the groups with a role give another role. From now on, a member answers for the new role.

    For a service account, the members who gave the old role still answer for the new role. A service account therefore
    gets no further rights by the change.
    """
    groups = [group for group in await tx.groups.of_org(old.org_id) if group.role == old.slug]
    if not groups:
        return
    by_member = caller.user_id if isinstance(caller, callers.Member) else None
    if by_member is None and not new.rights <= old.role.rights:
        raise roles_model.RoleWidenedByProgram
    for group in groups:
        tx.record(events.group_role_mapped(group, replace(group, role=new.name)))
    await tx.roles.replace_of_groups(old.org_id, old.slug, new.name, mapped_by=by_member, now=now)
    if not new.rights <= old.role.rights:
        await _require_power_over_directories(tx, old.org_id, new, now)
    unfounded = {each.group_id for each in find_unfounded(await tx.group_roles.active(old.org_id))}
    if by_member is not None and unfounded.intersection(group.id for group in groups):
        raise RightsByGroupItself


async def _replace_of_programs(tx: storage.Transaction, org_id: UUID, old: roles.Role, new: roles.Role, now: datetime) -> None:
    """Give the service accounts with a role another role, or the same role with other rights (security R-4).

    The service accounts lose the granted capabilities that the new role does not have. The service accounts'
    invitations and promotions end if the accounts can no longer give such roles. `void_grants` handles their owners and
    the makers of their credentials.
    """
    losing = []
    for account_id, granted in await tx.service_accounts.with_role(org_id, old.name):
        kept = granted & new.rights
        await tx.service_accounts.set_role(org_id, account_id, new.name, kept, now)
        if roles.loses_promotion(old.rights, granted, new.rights, kept):
            losing.append(account_id)
        if not new.rights <= old.rights:
            await security_notices.end_credentials_of_raised(tx, org_id, account_id, new.rights, now)
    await grants.void_promotions(tx, org_id, losing, now)
    for account_id in await tx.service_accounts.inviting_above(org_id, new.name):
        for invitation in await tx.invitations.cancel_from(org_id, account_id, [new.name], now):
            tx.record(events.invitation_revoked(invitation))


async def _void_grants(
    tx: storage.Transaction, org_id: UUID, givers: Sequence[UUID], old: roles.Rights, new: roles.Rights, now: datetime
) -> None:
    """End the members' grants that need a right that the role has lost, or concern the changed role (security R-4)."""
    await grants.void_grants(tx, org_id, givers, now)
    # The sign-in policy's earlier decisions about the holders counted them as admins, or as
    # members.
    if roles.is_admin(old) != roles.is_admin(new):
        await tx.sign_in_policies.renew(org_id)
