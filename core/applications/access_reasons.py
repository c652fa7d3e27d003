"""The question what a user may do in an organization and its applications, and why."""

from uuid import UUID

from core.applications.model.access_reasons import ApplicationAccess, OrganizationAccess, RightSource, UserAccess, UserState, reason_of
from core.applications.model.authorization import GivingGroup
from core.applications.model.users import EndUserNotFound
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.roles import NO_RIGHTS, Capability, rights_of
from core.kernel.values import Page
from ports import Ports
from ports.storage import Reading


async def load(ports: Ports, caller: OrganizationCaller, user_id: UUID, page: Page) -> UserAccess:
    """Return what a member or an end user may do, with a page of the organization's applications by name.

    Callers who may not see members see neither the rights in the organization and the groups, nor members who are no end users.

    Raises: EndUserNotFound.
    """
    org_id, now = caller.acts_in.id, ports.clock.now()
    async with ports.storage.reading() as read:
        user = await read.access_reasons.find(org_id, user_id) or refuse(EndUserNotFound)
        sees_members = Capability.MEMBERS_VIEW in caller.acts_in.rights
        if not sees_members and not user.is_end_user:
            raise EndUserNotFound
        organization = await _load_rights(read, org_id, user) if user.is_member and sees_members else None
        groups = await read.groups.of_user(org_id, user_id) if sees_members else []
        listed = await read.access_reasons.applications(org_id, user_id, page, now)
    applications = [ApplicationAccess(each, reason_of(user, each)) for each in listed.items]
    return UserAccess(user, organization, applications, listed.total, [GivingGroup(group.id, group.name) for group in groups])


async def _load_rights(read: Reading, org_id: UUID, user: UserState) -> OrganizationAccess | None:
    member, organization = await read.members.account(org_id, user.user_id), await read.organizations.by_id(org_id)
    if member is None or organization is None:  # they have just left
        return None
    membership = member.member.membership
    is_confirmed = membership.confirmed_at is not None
    role = await read.roles.find(org_id, membership.role)
    rights = NO_RIGHTS if role is None or not is_confirmed else role.rights
    if role is not None and role.is_built_in and is_confirmed:
        rights = rights_of(role.name, members_see_end_users=organization.members_see_end_users)
    return OrganizationAccess([RightSource(membership.role, role.label if role else membership.role, rights)], is_confirmed)
