"""An organization's end users, who are the users of its services, and what admins can do with them.

An organization sees a user's account and the activity in its own services, and nothing about other organizations
(security T-3).

An organization has power over its own applications: it ends sessions and blocks users there. An organization has power over an account only
if it created the account, and no other organization uses it.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from uuid import UUID

from core.accounts import mfa
from core.accounts.model import email_queue
from core.accounts.model.accounts import Account
from core.accounts.own_account import lock_person
from core.applications import events
from core.applications.model import users
from core.kernel import roles, values
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.tenancy import events as tenancy_events
from core.tenancy import members as tenancy_members
from core.tenancy import organizations
from core.tenancy.model import members
from core.tenancy.model.organizations import Membership, Organization
from ports import Ports
from ports.storage import Transaction


async def list_end_users(
    ports: Ports,
    caller: OrganizationCaller,
    page: values.Page,
    *,
    search: str | None = None,
    service_id: UUID | None = None,
    blocked: bool = False,
) -> values.PageResult[users.EndUserSummary]:
    """Return a page with the organization's end users, newest first, optionally for one service only.

    `search` matches any part of an email address, or the user's id. Case is ignored, and a domain matches in its
    Unicode and in its ASCII form. Deactivated accounts, and users that the directory deactivated, are left out.

    With `blocked`, the list has the users that the organization's admins blocked, also users who have left its
    services.
    """
    text = values.Email.parse_part(search or "") or None
    async with ports.storage.reading() as read:
        asked = await tenancy_members.asked_strength(ports, read, caller.acts_in.id)
        return await read.end_users.page(caller.acts_in.id, page, search=text, service_id=service_id, blocked=blocked, asked=asked)


async def find_address(ports: Ports, caller: OrganizationCaller, user_id: UUID) -> values.Email:
    """Return the address of an end user, or of a blocked user who has left the services."""
    async with ports.storage.reading() as read:
        return await read.end_users.address(caller.acts_in.id, user_id) or refuse(users.EndUserNotFound)


async def find(ports: Ports, caller: OrganizationCaller, user_id: UUID) -> users.EndUserDetails:
    """Return an end user."""
    org_id, now = caller.acts_in.id, ports.clock.now()
    async with ports.storage.reading() as read:
        asked = await tenancy_members.asked_strength(ports, read, org_id)
        user = await read.end_users.by_id(org_id, user_id, asked) or refuse(users.EndUserNotFound)
        control = await read.accounts.account_control(user_id, org_id)
        return users.EndUserDetails(
            user=user,
            services=await read.end_users.services(org_id, user_id),
            identities=await read.end_users.identities(org_id, user_id),
            sessions=await read.organization_sessions.count_live(org_id, user_id, now),
            blocked_at=await read.end_users.blocked_at(org_id, user_id),
            may_remove_second_factor=control.may_remove_second_factor and not await mfa.is_protected(read, user_id, now, org_id),
        )


async def revoke_sessions(ports: Ports, caller: OrganizationCaller, user_id: UUID) -> int:
    """End the user's sessions in the organization and return their number (security S-4).

    The sessions at the organization's services end, and the sessions that selected the organization. Authorization
    codes, device approvals and pending sign-ons end as well, because they would start new sessions. All other sessions
    continue.
    """
    async with ports.storage.transaction(by=caller) as tx:
        organization, _, account = await _lock_end_user(tx, caller, user_id)
        revoked = await tx.organization_sessions.end(organization.id, [account.id], ports.clock.now())
        tx.record(tenancy_events.sessions_revoked(organization.id, account.id, revoked))
    return revoked


async def send_password_reset(ports: Ports, caller: OrganizationCaller, user_id: UUID) -> None:
    """Email an end user a link to set a new password, as `members.send_password_reset` does (security R-8)."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, membership, account = await _lock_end_user(tx, caller, user_id)
        if membership is not None and membership.is_owner:
            raise members.CannotResetOwner
        if not account.is_usable:
            raise users.EndUserDeactivated
        if account.email_verified_at is None:
            raise users.EndUserNotVerified
        await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.MEMBER_RESET, account.email, now, org_id=organization.id))
        tx.record(tenancy_events.password_reset_sent(organization.id, account.id))


async def block(ports: Ports, caller: OrganizationCaller, user_id: UUID) -> None:
    """Refuse the user at all the organization's services from now on, and end their sessions and consents there.

    The user is an end user, a member or a former member. Nothing changes if the user is blocked already. The account, other organizations
    and a membership stay.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, membership, account = await _lock_user(tx, caller, user_id, tx.end_users.is_blockable)
        if membership is not None and roles.is_admin(membership.rights):
            raise users.AdminNotBlockable
        await block_locked(tx, organization.id, account.id, now)


async def block_locked(tx: Transaction, org_id: UUID, user_id: UUID, now: datetime) -> None:
    """Block a user with a locked account, as `block` does."""
    if await tx.end_users.block(org_id, user_id, now):
        await tx.organization_sessions.end(org_id, [user_id], now)
        await tx.consents.remove_in_organization(org_id, user_id)
        tx.record(events.end_user_blocked(org_id, user_id))


async def unblock(ports: Ports, caller: OrganizationCaller, user_id: UUID) -> bool:
    """Admit a blocked user to the organization's services again, and return whether the user still uses a service there.

    Nothing changes without a block. Raises: EndUserNotFound if the user has no block and uses no service.
    """
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, roles.Capability.END_USERS_MANAGE)
        is_end_user = await tx.end_users.by_id(organization.id, user_id) is not None
        if await tx.end_users.unblock(organization.id, user_id):
            tx.record(events.end_user_unblocked(organization.id, user_id))
        elif not is_end_user:
            raise users.EndUserNotFound
    return is_end_user


async def remove_second_factor(ports: Ports, caller: OrganizationCaller, user_id: UUID) -> bool:
    """Remove the second factor from an account that only this organization controls.

    Return whether the second factor was enabled (security M-6).

    All the user's sessions end, and the user gets an email.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _, account = await _lock_end_user(tx, caller, user_id)
        control = await tx.accounts.account_control(account.id, organization.id)
        if control.is_of_admin:
            raise users.AdminSecondFactorNotManaged
        if not account.is_usable:
            raise users.EndUserDeactivated
        if not control.controls_account:
            raise users.SecondFactorNotManaged
        removed = await mfa.force_removal(tx, caller, account, now, org_id=organization.id)
        for factor in removed:
            tx.record(*events.second_factor_removed(organization.id, account.id, factor))
    return bool(removed)


async def _lock_end_user(tx: Transaction, caller: OrganizationCaller, user_id: UUID) -> tuple[Organization, Membership | None, Account]:
    """Lock the organization, this end user's membership, and the account."""
    return await _lock_user(tx, caller, user_id, tx.end_users.exists)


async def _lock_user(
    tx: Transaction, caller: OrganizationCaller, user_id: UUID, is_known: Callable[[UUID, UUID], Awaitable[bool]]
) -> tuple[Organization, Membership | None, Account]:
    organization, authority = await organizations.lock_authority(tx, caller, roles.Capability.END_USERS_MANAGE)
    # Checked before the lock, so that callers cannot lock accounts in other organizations. The user
    # is checked again after the lock, because a parallel call may have removed them from the
    # service. A sign-in to a service, and a removal from it, also lock the account.
    await is_known(organization.id, user_id) or refuse(users.EndUserNotFound)
    membership = await tx.members.lock(organization.id, user_id)
    if membership is not None:
        members.require_power_over(authority, membership)
    account = await lock_person(tx, user_id) or refuse(users.EndUserNotFound)
    await is_known(organization.id, user_id) or refuse(users.EndUserNotFound)
    return organization, membership, account
