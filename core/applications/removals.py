"""Removing members with a view to the organization's applications: which stay open to them, and the block that closes these."""

from collections.abc import Collection
from uuid import UUID

from core.applications import end_users
from core.applications.model.users import RemovalOutlook
from core.kernel.access import OrganizationNotFound, may_view, require_view
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.tenancy import members, organizations
from ports import Ports


async def load_outlook(ports: Ports, caller: OrganizationCaller, user_ids: Collection[UUID]) -> RemovalOutlook:
    """Return what the removal of these members would leave open to them."""
    require_view(caller, Capability.MEMBERS_MANAGE)
    org_id, now = caller.acts_in.id, ports.clock.now()
    async with ports.storage.reading() as read:
        organization = await read.organizations.by_id(org_id) or refuse(OrganizationNotFound)
        return RemovalOutlook(
            organization.name,
            await read.end_users.open_to_former_members(org_id, user_ids, now) if may_view(caller, Capability.SERVICES_VIEW) else None,
            await read.end_users.used_before_membership(org_id, user_ids),
            await read.end_users.blocked_by_admin(org_id, user_ids),
        )


async def remove_member(ports: Ports, caller: OrganizationCaller, user_id: UUID, *, blocks: bool) -> None:
    """Remove a member as `members.remove` does. With `blocks`, also block them at all applications of the organization.

    The block needs the right to manage end users. It ends the sessions and consents there in the same transaction.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        if blocks:
            await organizations.lock_organization_for(tx, caller, Capability.END_USERS_MANAGE)
        await members.remove_within(tx, caller, user_id, now)
        if blocks and await tx.accounts.lock(user_id) is not None:
            await end_users.block_locked(tx, caller.acts_in.id, user_id, now)
