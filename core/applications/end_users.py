"""An organization's end users: the users of its services.

An organization sees a user's account and the activity in its own services, and nothing about other organizations
(security T-3).
"""

from uuid import UUID

from core.accounts import mfa
from core.applications.model.users import EndUserDetails, EndUserNotFound, EndUserSummary
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.values import Email, Page, PageResult
from ports import Ports


async def list_end_users(
    ports: Ports,
    caller: OrganizationCaller,
    page: Page,
    *,
    search: str | None = None,
    service_id: UUID | None = None,
    blocked: bool = False,
) -> PageResult[EndUserSummary]:
    """Return a page with the organization's end users, newest first, optionally for one service only.

    `search` matches any part of an email address, or the user's id. Case is ignored, and a domain matches in its
    Unicode and in its ASCII form. Deactivated accounts, and users that the directory deactivated, are left out.

    With `blocked`, the list has the users that the organization's admins blocked, also users who have left its
    services.
    """
    text = Email.parse_part(search or "") or None
    async with ports.storage.reading() as read:
        return await read.end_users.page(caller.acts_in.id, page, search=text, service_id=service_id, blocked=blocked)


async def find_address(ports: Ports, caller: OrganizationCaller, user_id: UUID) -> Email:
    """Return the address of an end user, or of a blocked user who has left the services."""
    async with ports.storage.reading() as read:
        return await read.end_users.address(caller.acts_in.id, user_id) or refuse(EndUserNotFound)


async def find(ports: Ports, caller: OrganizationCaller, user_id: UUID) -> EndUserDetails:
    """Return an end user."""
    org_id, now = caller.acts_in.id, ports.clock.now()
    async with ports.storage.reading() as read:
        user = await read.end_users.by_id(org_id, user_id) or refuse(EndUserNotFound)
        control = await read.accounts.account_control(user_id, org_id)
        return EndUserDetails(
            user=user,
            services=await read.end_users.services(org_id, user_id),
            identities=await read.end_users.identities(org_id, user_id),
            sessions=await read.organization_sessions.count_live(org_id, user_id, now),
            blocked_at=await read.end_users.blocked_at(org_id, user_id),
            may_remove_second_factor=control.may_remove_second_factor and not await mfa.is_protected(read, user_id, now, org_id),
        )
