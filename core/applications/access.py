"""Access to services: settings, which users are assigned (decision 57), what a user may use, and why."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final
from uuid import UUID

from core.accounts.own_account import lock_person
from core.applications import events, services
from core.applications.model import access_reasons, users
from core.applications.model.authorization import GivingGroup
from core.applications.model.services import Service, ServiceNotFound
from core.applications.model.users import EndUserNotFound
from core.kernel import access, callers, values
from core.kernel.access import may_view
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.roles import Capability, rights_of
from core.kernel.values import Page
from core.tenancy.group_names import require_free_shared_name
from core.tenancy.model import groups
from core.tenancy.model.groups import Group
from ports import Ports
from ports.storage import Reading, Transaction


async def save_settings(
    ports: Ports, caller: callers.OrganizationCaller, slug: str, settings: users.AccessSettings
) -> users.AccessSettings:
    """Replace a service's access settings, and return them.

    If users lose access, their sessions end now, and the application is notified. Only services with the policy
    `assigned` are SCIM groups. With another policy the directory could no longer remove users, so changing the policy
    from `assigned` ends its assignments.

    Raises: LaunchUrlInvalid, ServiceNotFound; SharedNameTaken if the service's name is taken.
    """
    settings = settings.validated()
    async with ports.storage.transaction(by=caller) as tx:
        _, old = await services.lock_organization_for(tx, caller, slug, Capability.SERVICES_MANAGE)
        if settings != old.access:
            new = replace(old, access=settings, updated_at=ports.clock.now())
            if settings.policy is users.AccessPolicy.ASSIGNED and old.access.policy is not users.AccessPolicy.ASSIGNED:
                await require_free_shared_name(tx, new.org_id, new.name, of=new.id)
            if old.access.policy is users.AccessPolicy.ASSIGNED and settings.policy is not users.AccessPolicy.ASSIGNED:
                await _end_directory_assignments(tx, old)  # before the service changes, because of the lock order
            await tx.services.save(new)
            await tx.organization_sessions.end_without_access(new.org_id, [new.id], None, new.updated_at)
            tx.record(events.access_updated(old, new))
    return settings


async def load_audience(ports: Ports, caller: callers.OrganizationCaller, service: Service | None) -> users.Audience:
    """Return the users that each policy would admit today to a service, or to a new one. Numbers that the caller may not see are None."""
    sees_members = access.may_view(caller, Capability.MEMBERS_VIEW)
    sees_users = access.may_view(caller, Capability.END_USERS_VIEW)
    async with ports.storage.reading() as read:
        organization = await read.organizations.by_id(caller.acts_in.id) or refuse(access.OrganizationNotFound)
        assigned, groups_assigned = 0, 0
        if service is not None and sees_users:
            assigned = (await read.assignments.page(service.org_id, service.id, values.Page(1, 1))).total
            groups_assigned = len(await read.assignments.groups(service.org_id, service.id))
    return users.Audience(
        organization.name,
        organization.member_count if sees_members else None,
        assigned if sees_users else None,
        groups_assigned if sees_users else None,
    )


async def _end_directory_assignments(tx: Transaction, service: Service) -> None:
    """End all directory assignments to a service in a locked organization."""
    user_ids = await tx.assignments.by_directory(service.org_id, service.id, None)
    await tx.scim_users.lock(service.org_id, user_ids)
    # Read again after the lock: an account may have been deleted, and its assignments with it.
    await unassign_users(
        tx, service, await tx.assignments.by_directory(service.org_id, service.id, user_ids), users.EnrollmentOrigin.DIRECTORY
    )


async def list_assignments(
    ports: Ports, caller: callers.OrganizationCaller, slug: str, page: values.Page, *, search: str | None = None
) -> values.PageResult[users.Assignment]:
    """Return a page with the users who are assigned to the service. `search` is a part of an email address."""
    text = values.Email.parse_part(search or "") or None
    async with ports.storage.reading() as read:
        service = await read.services.by_slug(caller.acts_in.id, slug) or refuse(ServiceNotFound)
        return await read.assignments.page(service.org_id, service.id, page, search=text)


async def assign(ports: Ports, caller: callers.OrganizationCaller, slug: str, user_id: UUID) -> None:
    """Assign the organization's confirmed member or end user to a service.

    Other users are refused: being an end user would show the organization more about them, although
    they took no part. Nothing changes if an admin or an API key has assigned the user.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, slug, Capability.END_USERS_MANAGE)
        await lock_assignee(tx, service.org_id, user_id)
        await assign_users(tx, service, [user_id], users.EnrollmentOrigin.ADMIN, now)


async def lock_assignee(tx: Transaction, org_id: UUID, user_id: UUID) -> None:
    """Lock the account if its user is a confirmed member or an end user in a locked organization.

    Raises: AssigneeNotFound, also for an anonymized account.
    """
    # Checked before the lock, so that callers cannot lock accounts in other organizations. While the organization is
    # locked, no other transaction removes its users.
    await tx.assignments.assignable(org_id, [user_id]) or refuse(users.AssigneeNotFound)
    await lock_person(tx, user_id) or refuse(users.AssigneeNotFound)


async def assign_by_email(ports: Ports, caller: callers.OrganizationCaller, slug: str, email: values.Email) -> UUID:
    """Assign the user with this address to a service, as `assign` does. Return the user's id.

    The refusal is the same for an address without an account.
    """
    async with ports.storage.reading() as read:
        await read.services.by_slug(caller.acts_in.id, slug) or refuse(ServiceNotFound)
        account = await read.accounts.by_email(email) or refuse(users.AssigneeNotFound)
    await assign(ports, caller, slug, account.id)
    return account.id


async def assign_users(
    tx: Transaction, service: Service, user_ids: Collection[UUID], origin: users.EnrollmentOrigin, now: datetime
) -> None:
    """Assign locked accounts to a service in a locked organization. Assignments with this or a stronger origin stay."""
    old = await tx.assignments.origins(service.org_id, service.id, user_ids)
    joining = [user_id for user_id in sorted(user_ids) if user_id not in old or origin.replaces(old[user_id])]
    if not joining:
        return
    are_assigned = await tx.assignments.add(service.org_id, service.id, joining, origin, now)
    assert are_assigned, "deleting the service needs the lock on its organization"
    for user_id in joining:
        tx.record(events.user_assigned(service, user_id, origin))


async def unassign(ports: Ports, caller: callers.OrganizationCaller, slug: str, user_id: UUID) -> None:
    """End a user's assignment to a service.

    A user who loses access is signed out from the service at once.

    The user remains an end user if they have signed in to the service, or if an API key created them.
    """
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, slug, Capability.END_USERS_MANAGE)
        # Checked before the lock, as in `assign`. While the organization is locked, no other
        # transaction ends an assignment.
        origin = (await tx.assignments.origins(service.org_id, service.id, [user_id])).get(user_id)
        if origin is None or not origin.is_assigned:
            raise users.NotAssigned
        await tx.accounts.lock(user_id) or refuse(users.NotAssigned)
        await unassign_users(tx, service, [user_id], origin)
        await tx.organization_sessions.end_without_access(service.org_id, [service.id], [user_id], ports.clock.now())


async def unassign_users(tx: Transaction, service: Service, user_ids: Collection[UUID], origin: users.EnrollmentOrigin) -> None:
    """End the assignments with this origin between locked accounts and a service in a locked organization."""
    await tx.assignments.end(service.org_id, service.id, user_ids)
    if origin is not users.EnrollmentOrigin.API_KEY:
        await tx.assignments.remove_unused(service.org_id, service.id, user_ids)
    for user_id in sorted(user_ids):
        tx.record(events.user_unassigned(service, user_id, origin))


# Groups


async def list_groups(ports: Ports, caller: callers.OrganizationCaller, slug: str) -> Sequence[groups.AssignedGroup]:
    """Return the groups that are assigned to the service, by name."""
    async with ports.storage.reading() as read:
        service = await read.services.by_slug(caller.acts_in.id, slug) or refuse(ServiceNotFound)
        return await read.assignments.groups(service.org_id, service.id)


async def list_services_of_group(ports: Ports, caller: callers.OrganizationCaller, group_id: UUID) -> Sequence[Service]:
    """Return the services that the group is assigned to, by name."""
    async with ports.storage.reading() as read:
        await read.groups.by_id(caller.acts_in.id, group_id) or refuse(groups.OrganizationGroupNotFound)
        return await read.services.of_group(caller.acts_in.id, group_id)


async def assign_group(ports: Ports, caller: callers.OrganizationCaller, slug: str, group_id: UUID) -> None:
    """Assign a group to a service: under the policy `assigned`, its users may use the service.

    Assigning the group again changes nothing.
    """
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, slug, Capability.END_USERS_MANAGE)
        group = await tx.groups.by_id(service.org_id, group_id) or refuse(groups.OrganizationGroupNotFound)
        if await tx.assignments.add_group(service.org_id, service.id, group.id, ports.clock.now()):
            tx.record(events.group_assigned(service, group))


async def unassign_group(ports: Ports, caller: callers.OrganizationCaller, slug: str, group_id: UUID) -> None:
    """End a group's assignment. Users lose the access that only the group gave, with their sessions."""
    async with ports.storage.transaction(by=caller) as tx:
        _, service = await services.lock_organization_for(tx, caller, slug, Capability.END_USERS_MANAGE)
        group = await tx.groups.by_id(service.org_id, group_id) or refuse(users.GroupNotAssigned)
        await tx.assignments.remove_group(service.org_id, service.id, group.id) or refuse(users.GroupNotAssigned)
        tx.record(events.group_unassigned(service, group))
        user_ids = await tx.groups.present(service.org_id, group.id, None)
        if user_ids:
            await tx.scim_users.lock(service.org_id, user_ids)
            await tx.organization_sessions.end_without_access(service.org_id, [service.id], user_ids, ports.clock.now())


MAX_OWN_LISTED: Final = 200


async def list_own_applications(ports: Ports, caller: callers.Person) -> list[users.OwnApplication]:
    """Return the applications that the caller may use, by organization and name, at most MAX_LISTED.

    The list has applications that the caller has used or is assigned to, and all applications in organizations that the caller is a
    confirmed member of. A session that is good in a single organization shows no other organization.
    """
    async with ports.storage.reading() as read:
        return await read.own_applications.of_user(caller.user_id, MAX_OWN_LISTED, ports.clock.now(), org_id=caller.restricted_to)


async def load_user_access(ports: Ports, caller: OrganizationCaller, user_id: UUID, page: Page) -> access_reasons.UserAccess:
    """Return what a member or an end user may do, with a page of the organization's applications by name.

    Callers who may not see members see no rights in the organization, no groups, and no members without an application.
    """
    org_id, now = caller.acts_in.id, ports.clock.now()
    async with ports.storage.reading() as read:
        user = await read.access_reasons.find(org_id, user_id) or refuse(EndUserNotFound)
        sees_members = may_view(caller, Capability.MEMBERS_VIEW)
        if not sees_members and not user.is_end_user:
            raise EndUserNotFound
        groups = await read.groups.of_user(org_id, user_id) if sees_members else []
        organization = await _load_rights(read, org_id, user, groups) if user.is_member and sees_members else None
        listed = await read.access_reasons.applications(org_id, user_id, page, now)
    applications = [access_reasons.ApplicationAccess(each, access_reasons.reason_of(user, each)) for each in listed.items]
    return access_reasons.UserAccess(
        user, organization, applications, listed.total, [GivingGroup(group.id, group.name) for group in groups]
    )


async def _load_rights(
    read: Reading, org_id: UUID, user: access_reasons.UserState, groups: Sequence[Group]
) -> access_reasons.OrganizationAccess | None:
    """Return the member's own role, and the roles that these groups give."""
    member, organization = await read.members.account(org_id, user.user_id), await read.organizations.by_id(org_id)
    if member is None or organization is None:  # the user has just left
        return None
    membership = member.member.membership
    if membership.confirmed_at is None:
        return access_reasons.OrganizationAccess((), is_confirmed=False)
    # A platform owner's groups give no role, so the membership has no group roles.
    giving = [group for group in groups if group.gives_role and group.role in membership.roles]
    origins = [(membership.role, None), *((group.role, GivingGroup(group.id, group.name)) for group in giving)]
    roles, sees = {role.name: role for role in await read.roles.all(org_id)}, organization.members_see_end_users
    sources = []
    for name, group in origins:
        if name is not None and (role := roles.get(name)) is not None:
            rights = rights_of(name, members_see_end_users=sees) if role.is_built_in else role.rights
            sources.append(access_reasons.RightSource(name, role.label, rights, group))
    return access_reasons.OrganizationAccess(sources, is_confirmed=True)
