"""The users that an organization's directory blocks.

The directory blocks a user by deactivating or deleting them. While the block stands, the user has no membership in the
organization, and cannot use its services by any protocol. The block ends when the directory activates the user or
creates them again, or when an admin removes it.
"""

from datetime import datetime
from uuid import UUID

from core.accounts.model.accounts import Account
from core.kernel import values
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.provisioning import events
from core.provisioning.model import users
from core.tenancy import members, organizations
from core.tenancy.model.members import require_power_over
from ports import Ports
from ports.storage import Transaction


async def list_page(ports: Ports, caller: OrganizationCaller, page: values.Page) -> values.PageResult[users.DirectoryBlock]:
    """Return a page with the users that the organization's directory blocks, newest block first."""
    async with ports.storage.reading() as read:
        return await read.directory_blocks.page(caller.acts_in.id, page)


async def remove(ports: Ports, caller: OrganizationCaller, user_id: UUID) -> None:
    """Remove a user's block, so that they can be invited again and use services again.

    The user does not become a member. The directory forgets users that it did not provision, so the directory cannot
    bring them back.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, authority = await organizations.lock_authority(tx, caller, Capability.MEMBERS_MANAGE)
        if not await tx.directory_blocks.exists(organization.id, user_id):
            raise users.NotBlocked
        if (membership := await tx.members.lock(organization.id, user_id)) is not None:
            require_power_over(authority, membership)
        account = await tx.accounts.lock(user_id) or refuse(users.NotBlocked)
        reopened = await remove_block(tx, organization.id, account, now)
        await tx.groups.remove_former_members(organization.id, [user_id])
        await members.remove_links(tx, organization.id, [user_id], now)
        await tx.scim_users.forget_unprovisioned(organization.id, user_id)
        tx.record(events.user_unblocked(organization.id, user_id, whole_account=reopened))


async def remove_block(tx: Transaction, org_id: UUID, account: Account, now: datetime) -> bool:
    """Remove the block from a locked account, and activate the account if the organization created it.

    Among organizations, only the account's creator can have deactivated it. Return whether the account was activated.
    An account stays inactive if the platform has deactivated it, too, or it was deleted.
    """
    await tx.directory_blocks.remove(org_id, account.id)
    if account.deactivated_at is None or account.origin_org_id != org_id:
        return False
    await tx.accounts.reactivate(account.id, now)
    return account.platform_deactivated_at is None and account.closed_at is None
