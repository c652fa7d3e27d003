"""The question what a user may do in an organization and its applications, and why."""

from collections.abc import Sequence
from uuid import UUID

from core.applications.model import access_reasons
from core.applications.model.authorization import GivingGroup
from core.applications.model.users import EndUserNotFound
from core.kernel.access import may_view
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.roles import Capability, rights_of
from core.kernel.values import Page
from core.tenancy.model.groups import Group
from ports import Ports
from ports.storage import Reading


async def load(ports: Ports, caller: OrganizationCaller, user_id: UUID, page: Page) -> access_reasons.UserAccess:
    """Return what a member or an end user may do, with a page of the organization's applications by name.

    Callers who may not see members see no rights in the organization, no groups, and no members without an application.

    Raises: EndUserNotFound.
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
