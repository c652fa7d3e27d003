"""End users of an organization: the users of its services.

An organization sees a user's account and the activity in its own services, and nothing of other
organizations (security T-3).
"""

from uuid import UUID

from core.applications.model.users import EndUserDetails, EndUserNotFound, EndUserSummary
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.kernel.values import Email, Page, PageResult
from core.tenancy import events, organizations
from ports import Ports


async def list_end_users(
    ports: Ports, caller: OrganizationCaller, page: Page, *, search: str | None = None, service_id: UUID | None = None
) -> PageResult[EndUserSummary]:
    """Return a page of the organization's end users, newest first, optionally of one service only.

    `search` matches any part of an email address. Case is ignored, and a domain matches in its
    Unicode and in its ASCII form. Deactivated accounts, and users that the directory deactivated,
    are left out.
    """
    text = Email.parse_part(search or "") or None
    async with ports.storage.reading() as read:
        return await read.end_users.page(caller.acts_in.id, page, search=text, service_id=service_id)


async def find(ports: Ports, caller: OrganizationCaller, user_id: UUID) -> EndUserDetails:
    """Return one end user. Raises: EndUserNotFound."""
    org_id = caller.acts_in.id
    async with ports.storage.reading() as read:
        return EndUserDetails(
            user=await read.end_users.by_id(org_id, user_id) or refuse(EndUserNotFound),
            services=await read.end_users.services(org_id, user_id),
            identities=await read.end_users.identities(org_id, user_id),
            sessions=await read.organization_sessions.count_live(org_id, user_id, ports.clock.now()),
        )


async def revoke_sessions(ports: Ports, caller: OrganizationCaller, user_id: UUID) -> int:
    """End the user's sessions in the organization and return their number (security S-4).

    These are the sessions of the organization's services, and those that selected the organization.
    Authorization codes, approvals of devices and pending sign-ons end as well, because they would
    start new sessions. All other sessions continue.

    Raises: EndUserNotFound.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.END_USERS_MANAGE)
        # Checked before the lock, so that callers cannot lock accounts of other organizations.
        # Checked again after it, because a parallel call may have removed the user from the service.
        # A sign-in to a service, and a removal from it, also lock the account.
        await tx.end_users.by_id(organization.id, user_id) or refuse(EndUserNotFound)
        await tx.accounts.lock(user_id) or refuse(EndUserNotFound)
        await tx.end_users.by_id(organization.id, user_id) or refuse(EndUserNotFound)
        revoked = await tx.organization_sessions.end(organization.id, [user_id], now)
        tx.record(events.sessions_revoked(organization.id, user_id, revoked))
    return revoked
