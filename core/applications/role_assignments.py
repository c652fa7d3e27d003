"""The users and groups that have application roles. Members give and take roles, and so do programs with the service's API key.

An API key acts only on its service's users, and on groups that are assigned to it (security K-3). Members act on all the organization's
users and groups.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from core.accounts.own_account import lock_person
from core.applications import access, api_keys, events, services
from core.applications.authorization import AuthorizationCaller
from core.applications.model import authorization, users
from core.applications.model.services import Service, ServiceNotFound
from core.kernel import callers, roles, values
from core.kernel.errors import refuse
from core.tenancy.model import groups
from ports import Ports, storage


async def list_holders(
    ports: Ports, caller: callers.OrganizationCaller, slug: str, role_slug: str, page: values.Page, *, search: str | None = None
) -> values.PageResult[authorization.ServiceRoleHolder]:
    """Return a page with the users who have a role. `search` is a part of an email address."""
    text = values.Email.parse_part(search or "") or None
    async with ports.storage.reading() as read:
        role = await _find_own_role(read, caller, slug, role_slug)
        return await read.role_assignments.page(caller.acts_in.id, role.id, page, search=text)


async def find_holder(
    ports: Ports, caller: callers.OrganizationCaller, slug: str, role_slug: str, user_id: UUID
) -> authorization.ServiceRoleHolder:
    """Return a user who has the role."""
    async with ports.storage.reading() as read:
        role = await _find_own_role(read, caller, slug, role_slug)
        return await read.role_assignments.find(caller.acts_in.id, role.id, user_id) or refuse(authorization.RoleNotAssigned)


async def list_of_user(ports: Ports, caller: callers.OrganizationCaller, user_id: UUID) -> list[authorization.RoleOfUser]:
    """Return a user's roles in all the organization's services, with the roles from the user's groups."""
    async with ports.storage.reading() as read:
        if not await read.members.exists(caller.acts_in.id, user_id):
            await read.end_users.by_id(caller.acts_in.id, user_id) or refuse(users.EndUserNotFound)
        return await read.role_assignments.of_user(caller.acts_in.id, user_id)


async def list_of_service_user(ports: Ports, caller: callers.ServiceKey, user_id: UUID) -> list[authorization.RoleOfUser]:
    """Return a user's roles in the key's service."""
    service = caller.service
    async with ports.storage.reading() as read:
        await read.service_users.by_id(service.org_id, service.id, user_id) or refuse(users.ServiceUserNotFound)
        return await read.role_assignments.of_user(service.org_id, user_id, service.id)


async def assign(ports: Ports, caller: AuthorizationCaller, slug: str, role_slug: str, user_id: UUID) -> None:
    """Give a user a service's role. Nothing changes if the user has the role.

    For a member, the user must be the organization's confirmed member or end user. For an API key, the user must use
    its service.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        service = await _lock_service(tx, caller, slug, now)
        role = await _find_role(tx, service, role_slug)
        await _lock_user(tx, caller, service, user_id)
        if await tx.role_assignments.find(service.org_id, role.id, user_id) is not None:
            return
        if await tx.role_assignments.count_of_user(service.org_id, user_id) >= authorization.MAX_ASSIGNMENTS:
            raise authorization.TooManyRoleAssignments
        await tx.role_assignments.add(service.org_id, service.id, role.id, user_id, now)
        tx.record(events.role_assigned(service, user_id, role.definition))


async def assign_by_email(ports: Ports, caller: callers.OrganizationCaller, slug: str, role_slug: str, email: values.Email) -> UUID:
    """Give the user with this address a role, as `assign` does. Return the user's id.

    The refusal is the same for an address without an account.
    """
    async with ports.storage.reading() as read:
        await _find_own_role(read, caller, slug, role_slug)
        account = await read.accounts.by_email(email) or refuse(users.AssigneeNotFound)
    await assign(ports, caller, slug, role_slug, account.id)
    return account.id


async def unassign(ports: Ports, caller: AuthorizationCaller, slug: str, role_slug: str, user_id: UUID) -> None:
    """Take a service's role from a user.

    Raises: ServiceNotFound, ServiceRoleNotFound, RoleNotAssigned; ServiceUserNotFound for an API key.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        service = await _lock_service(tx, caller, slug, now)
        role = await _find_role(tx, service, role_slug)
        if isinstance(caller, callers.ServiceKey):
            await _lock_user(tx, caller, service, user_id)
        if not await tx.role_assignments.remove(service.org_id, role.id, user_id):
            raise authorization.RoleNotAssigned
        tx.record(events.role_unassigned(service, user_id, role.definition))


# Groups


async def list_groups(ports: Ports, caller: callers.OrganizationCaller, slug: str, role_slug: str) -> Sequence[groups.AssignedGroup]:
    """Return the groups that have a role, by name."""
    async with ports.storage.reading() as read:
        role = await _find_own_role(read, caller, slug, role_slug)
        return await read.role_assignments.groups(caller.acts_in.id, role.id)


async def list_of_group(ports: Ports, caller: callers.OrganizationCaller, group_id: UUID) -> Sequence[authorization.RoleOfUser]:
    """Return the application roles that a group gives to its users."""
    async with ports.storage.reading() as read:
        await read.groups.by_id(caller.acts_in.id, group_id) or refuse(groups.OrganizationGroupNotFound)
        return await read.role_assignments.of_group(caller.acts_in.id, group_id)


async def assign_to_group(ports: Ports, caller: AuthorizationCaller, slug: str, role_slug: str, group_id: UUID) -> None:
    """Give a group a service's role: its confirmed members and end users have the role. Nothing changes if the group has it.

    The role does not open a service with the policy `assigned`.

    Raises: ServiceNotFound, ServiceRoleNotFound, OrganizationGroupNotFound; GroupNotAssigned for an API key.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        service = await _lock_service(tx, caller, slug, now)
        role = await _find_role(tx, service, role_slug)
        group = await _find_group(tx, caller, service, group_id)
        if await tx.role_assignments.add_group(service.org_id, service.id, role.id, group.id, now):
            tx.record(events.role_given_to_group(service, group, role.definition))


async def unassign_from_group(ports: Ports, caller: AuthorizationCaller, slug: str, role_slug: str, group_id: UUID) -> None:
    """Take a service's role from a group. Users keep the role if they have it alone, or by another group.

    Raises: ServiceNotFound, ServiceRoleNotFound, OrganizationGroupNotFound, RoleNotGivenToGroup; GroupNotAssigned for an API key.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        service = await _lock_service(tx, caller, slug, now)
        role = await _find_role(tx, service, role_slug)
        group = await _find_group(tx, caller, service, group_id)
        if not await tx.role_assignments.remove_group(service.org_id, role.id, group.id):
            raise authorization.RoleNotGivenToGroup
        tx.record(events.role_taken_from_group(service, group, role.definition))


async def _find_group(tx: storage.Transaction, caller: AuthorizationCaller, service: Service, group_id: UUID) -> groups.Group:
    """Return a group. The caller may change its roles."""
    missing = users.GroupNotAssigned if isinstance(caller, callers.ServiceKey) else groups.OrganizationGroupNotFound
    if isinstance(caller, callers.ServiceKey) and service.id not in await tx.assignments.services_of_group(service.org_id, group_id):
        raise users.GroupNotAssigned
    return await tx.groups.by_id(service.org_id, group_id) or refuse(missing)


async def _lock_service(tx: storage.Transaction, caller: AuthorizationCaller, slug: str, now: datetime) -> Service:
    if isinstance(caller, callers.ServiceKey):
        return (await api_keys.lock_organization_for(tx, caller, roles.Permission.WRITE_ROLES, now))[1]
    return (await services.lock_organization_for(tx, caller, slug, roles.Capability.SERVICE_ROLES_ASSIGN))[1]


async def _lock_user(tx: storage.Transaction, caller: AuthorizationCaller, service: Service, user_id: UUID) -> None:
    """Lock the account if its user can get a role."""
    if isinstance(caller, callers.ServiceKey):
        # Checked before the lock, so that a key cannot lock accounts that do not use its service.
        await tx.service_users.by_id(service.org_id, service.id, user_id) or refuse(users.ServiceUserNotFound)
        await lock_person(tx, user_id) or refuse(users.ServiceUserNotFound)
    else:
        await access.lock_assignee(tx, service.org_id, user_id)


async def _find_own_role(read: storage.Reading, caller: callers.OrganizationCaller, slug: str, role_slug: str) -> authorization.StoredRole:
    return await _find_role(read, await read.services.by_slug(caller.acts_in.id, slug) or refuse(ServiceNotFound), role_slug)


async def _find_role(read: storage.Reading | storage.Transaction, service: Service, role_slug: str) -> authorization.StoredRole:
    return await read.authorizations.find_role(service.org_id, service.id, role_slug) or refuse(authorization.ServiceRoleNotFound)
