"""Members of an organization: who they are, their roles, their removal, and the transfer of ownership (organizations.md sections 2.4, 3
and 4.4; decisions, points 199 to 201; security.md section 9)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from core.accounts import accounts
from core.kernel.errors import refuse
from core.kernel.principals import Capability, OrganizationNotFound, Role
from core.kernel.values import Listed
from core.tenancy import events, organizations

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from core.kernel.principals import Member
    from core.kernel.values import Page
    from core.tenancy.organizations_rules import Limit, Membership
    from ports import Ports
    from ports.storage import Transaction
from core.tenancy.members_rules import (
    ListedMember,
    MemberNotFound,
    NewOwnerNotActive,
    NewOwnerNotAMember,
    OwnerAlready,
    OwnersRemoval,
    OwnersRole,
    OwnRemoval,
    OwnRole,
    assignable,
    grantable,
)


async def listed(ports: Ports, caller: Member, role: Role | None, page: Page) -> tuple[Listed[ListedMember], Limit]:
    """The members with this role, the oldest first, and how many members there may be. Raises OrganizationNotFound."""
    async with ports.storage.reading() as read:
        organization = await read.organizations.by_id(caller.acts_in.id) or refuse(OrganizationNotFound)
        total = organization.member_count if role is None else await read.members.count(organization.id, role)
        return Listed(await read.members.page(organization.id, role, page), total), organization.user_limit


async def find(ports: Ports, caller: Member, user_id: UUID) -> None:
    """Raises MemberNotFound unless this person is a member of the organization that the caller acts in, or would be, had its directory not
    deactivated them."""
    async with ports.storage.reading() as read:
        if not await read.members.exists(caller.acts_in.id, user_id):
            raise MemberNotFound


async def _enter(tx: Transaction, org_id: UUID, user_id: UUID) -> Membership:
    """The membership of somebody in a locked organization, locked; or the one that the directory has put away, which gives them back what
    they were if nobody changes it. Raises MemberNotFound."""
    return await tx.members.lock(org_id, user_id) or await tx.members.put_away(org_id, user_id) or refuse(MemberNotFound)


async def change_role(ports: Ports, caller: Member, user_id: UUID, role: str) -> ListedMember:
    """The member with the new role; nothing happens where it is the one they have (decisions, point 201; security.md R-1).

    Raises MemberNotFound, OwnRole, OwnersRole, OwnershipNotAssigned, RoleUnknown, and what organizations.enter raises.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.enter(tx, caller, Capability.ROLES_MANAGE)
        target = await _enter(tx, organization.id, user_id)
        if user_id == caller.user_id:
            raise OwnRole
        if target.role is Role.OWNER:
            raise OwnersRole
        new_role = assignable(role)
        account = await tx.accounts.by_id(user_id) or refuse(MemberNotFound)
        if new_role is not target.role:
            await tx.members.set_role(organization.id, user_id, new_role)
            tx.record(events.role_updated(organization.id, user_id, target.role, new_role))
            await void_invitations(tx, organization.id, user_id, new_role, now)
    return ListedMember(user_id, account.email, account.is_platform_owner, replace(target, role=new_role))


async def remove(ports: Ports, caller: Member, user_id: UUID) -> None:
    """End a membership, and with it the person's sessions in this organization (decisions, point 199; security.md R-6).

    Raises MemberNotFound, OwnRemoval, OwnersRemoval, and what organizations.enter raises.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.enter(tx, caller, Capability.MEMBERS_MANAGE)
        target = await _enter(tx, organization.id, user_id)
        if user_id == caller.user_id:
            raise OwnRemoval
        if target.role is Role.OWNER:
            raise OwnersRemoval
        # Whoever ends several sessions of a person holds the person's account, so that no two of them wait for each other's rows.
        await tx.accounts.lock(user_id)
        tx.record(events.removed(organization.id, user_id, target.role))
        await end(tx, organization.id, user_id, now)


async def end(tx: Transaction, org_id: UUID, user_id: UUID, now: datetime) -> None:
    """End a locked membership, or the one that the organization's directory has put away, of somebody whose account is locked; and what
    they had by it: the use of services that they have signed in to with SAML alone, sessions in the organization, invitations. The
    directory knows the person no more, and cannot take them back; they are invited if they shall come again.

    Whoever ends it says so, before this.
    """
    await tx.members.remove(org_id, user_id, now)
    await tx.service_users.remove_former_members(org_id, [user_id])
    await leave(tx, org_id, user_id, now)


async def erase(tx: Transaction, org_id: UUID, user_id: UUID, now: datetime) -> None:
    """Remove a locked account, a member of nothing else, for good, and with it what it may be in this organization: a member, or one whose
    membership the directory has put away. Whoever does it says so, before this."""
    # Whoever renews a token holds that and wants its session next: so all of them go before a membership that ends holds the sessions.
    await tx.sessions.remove(user_id)
    await end(tx, org_id, user_id, now)
    await accounts.erase(tx, user_id)


async def leave(tx: Transaction, org_id: UUID, user_id: UUID, now: datetime) -> None:
    """End what somebody has by a membership that is none any more: sessions in the organization with all that would begin another one,
    invitations, those to them included."""
    await tx.sessions.end_in(org_id, [user_id], now)
    await void_invitations(tx, org_id, user_id, None, now)
    await withdraw_invitations(tx, org_id, [user_id], now)


async def transfer_ownership(ports: Ports, caller: Member, new_owner_id: UUID) -> None:
    """Make another member the owner, and the caller, who is it, an admin (organizations.md section 3; security.md R-2).

    Raises OwnerAlready, NewOwnerNotAMember, NewOwnerNotActive, and what organizations.enter raises.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, old = await organizations.enter(tx, caller, Capability.ORGANIZATION_OWN)
        if new_owner_id == caller.user_id:
            raise OwnerAlready
        new = await tx.members.lock(organization.id, new_owner_id) or refuse(NewOwnerNotAMember)
        account = await tx.accounts.lock(new_owner_id) or refuse(NewOwnerNotAMember)
        if not account.is_usable:
            raise NewOwnerNotActive
        # In this order, because an index allows one owner and looks after each statement.
        for membership, role in ((old, Role.ADMIN), (new, Role.OWNER)):
            await tx.members.set_role(organization.id, membership.user_id, role)
            tx.record(events.role_updated(organization.id, membership.user_id, membership.role, role))
        tx.record(events.owner_changed(organization.id, caller.user_id, new_owner_id))
        await void_invitations(tx, organization.id, caller.user_id, Role.ADMIN, now)


async def void_invitations(tx: Transaction, org_id: UUID, user_id: UUID, role: Role | None, now: datetime) -> None:
    """Revoke what the person has invited to and could not any more, being of this role now, or of none (security.md R-4)."""
    for invitation in await tx.invitations.void(org_id, user_id, frozenset(Role) - grantable(role), now):
        tx.record(events.invitation_revoked(invitation))


async def withdraw_invitations(tx: Transaction, org_id: UUID, user_ids: Sequence[UUID], now: datetime) -> None:
    """Revoke what these people are invited to. Whom a directory makes or takes back may have been invited before, and would come back by
    that when they are to leave."""
    for invitation in await tx.invitations.withdraw(org_id, user_ids, now):
        tx.record(events.invitation_revoked(invitation))
