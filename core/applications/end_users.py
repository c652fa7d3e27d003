"""End users of an organization: the people who use its services (organizations.md sections 2.10 and 4.5; decisions, points 58, 133, 202 and
203).

Of a person, an organization sees the account and what happened in its own services, and nothing of anybody else's (security.md T-3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.applications import events
from core.kernel.errors import refuse
from core.kernel.principals import Capability
from core.kernel.values import Email
from core.tenancy import organizations

if TYPE_CHECKING:
    from uuid import UUID

    from core.kernel.principals import Member
    from core.kernel.values import Listed, Page
    from ports import Ports
from core.applications.end_users_rules import Details, EndUserNotFound, ListedEndUser


async def listed(
    ports: Ports, caller: Member, page: Page, *, search: str | None = None, service_id: UUID | None = None
) -> Listed[ListedEndUser]:
    """Who uses the organization's services, or this one of them; who began last to do so comes first.

    `search` is part of their addresses, in any case, and of their domains in either form. Those whose account is deactivated, and those
    whom the directory has deactivated, are left out (decisions, point 133).
    """
    wanted = Email.parse_part(search or "") or None
    async with ports.storage.reading() as read:
        return await read.end_users.page(caller.acts_in.id, page, search=wanted, service_id=service_id)


async def find(ports: Ports, caller: Member, user_id: UUID) -> Details:
    """One of them. Raises EndUserNotFound."""
    org_id = caller.acts_in.id
    async with ports.storage.reading() as read:
        return Details(
            person=await read.end_users.by_id(org_id, user_id) or refuse(EndUserNotFound),
            services=await read.end_users.services(org_id, user_id),
            identities=await read.end_users.identities(org_id, user_id),
            sessions=await read.sessions.live_in(org_id, user_id, ports.clock.now()),
        )


async def revoke_sessions(ports: Ports, caller: Member, user_id: UUID) -> int:
    """End the person's sessions in the organization, those of its services and those that selected it; how many it were (security.md S-4).

    With them goes what would begin another one: codes, approvals of devices, sign-ons. All other sessions go on. Raises EndUserNotFound,
    and what organizations.enter raises.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.enter(tx, caller, Capability.END_USERS_MANAGE)
        # Asked first, so that nobody locks an account that they have no say about; and again, since whoever signs in holds the account, and
        # so does whoever takes a service away from its user.
        await tx.end_users.by_id(organization.id, user_id) or refuse(EndUserNotFound)
        await tx.accounts.lock(user_id) or refuse(EndUserNotFound)
        await tx.end_users.by_id(organization.id, user_id) or refuse(EndUserNotFound)
        revoked = await tx.sessions.end_in(organization.id, [user_id], now)
        tx.record(events.sessions_revoked(organization.id, user_id, revoked))
    return revoked
