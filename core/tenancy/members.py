"""Members: their roles, their removal, and the ownership transfer.

The rules are in decision 199 and security R-1, R-2, R-6.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Final
from uuid import UUID

from core.accounts import accounts, factor_changes, own_account
from core.accounts.factors import own_proofs
from core.accounts.model import email_queue
from core.accounts.model.accounts import RecoveryRequired
from core.accounts.model.protection import AskedStrength, HeldFactor, Protection
from core.kernel import access, callers, roles, values
from core.kernel.errors import refuse
from core.kernel.sign_in_policy.decision import strictest
from core.tenancy import events, grants, organizations
from core.tenancy.grants import let_programs_go_on
from core.tenancy.model import members as members_model
from core.tenancy.model.organizations import Membership
from core.tenancy.model.roles import require_giveable
from ports import Ports, storage

EXPORT_BATCH: Final = 500  # members that an export reads at once


async def list_page(
    ports: Ports,
    caller: callers.OrganizationCaller,
    role: str | None,
    page: values.Page,
    *,
    search: str | None = None,
    state: members_model.MemberState | None = None,
    protection: Protection | None = None,
    factor: HeldFactor | None = None,
    order: members_model.MemberOrder = members_model.MemberOrder.JOINED,
) -> members_model.MembersPage:
    """Return a page with the members who have this role, state, protection and factor, in this order.

    `search` matches any part of an email address, or the user's id. Case is ignored, and a domain matches in its
    internationalized form, too.

    Raises: OrganizationNotFound; RoleFilterUnknown; the errors of `require_view` if a filter needs the right to manage members.
    """
    if not (state is None and protection is None and factor is None):
        access.require_view(caller, roles.Capability.MEMBERS_MANAGE)
    async with ports.storage.reading() as read:
        selected = await _select(read, caller.acts_in.id, role, search, state)
        selected = replace(selected, protection=protection, factor=factor, asked=await asked_strength(ports, read, caller.acts_in.id))
        return await read.members.page(caller.acts_in.id, selected, page, order=order) or refuse(access.OrganizationNotFound)


async def _select(
    read: storage.Reading, org_id: UUID, role: str | None, search: str | None, state: members_model.MemberState | None
) -> members_model.MemberFilter:
    selected = None if role is None else await read.roles.find(org_id, role) or refuse(members_model.RoleFilterUnknown)
    return members_model.MemberFilter(None if selected is None else selected.name, values.Email.parse_part(search or "") or None, state)


async def asked_strength(ports: Ports, read: storage.Reading, org_id: UUID) -> AskedStrength:
    """Return the strength that the organization's sign-in policy asks now in every sign-in."""
    policy, now = await read.sign_in_policies.effective(org_id), ports.clock.now()
    return AskedStrength(*(strictest(policy, is_admin=is_admin, now=now) for is_admin in (False, True)))


async def export(
    ports: Ports,
    caller: callers.OrganizationCaller,
    role: str | None,
    *,
    search: str | None = None,
    state: members_model.MemberState | None = None,
    protection: Protection | None = None,
    factor: HeldFactor | None = None,
) -> values.Batches[members_model.ExportedMember]:
    """Return all members that `list_page` selects, in the order in which they joined, with their accounts, groups and further roles.

    Callers who may not see end users get no groups and no application roles.
    """
    access.require_view(caller, roles.Capability.MEMBERS_MANAGE)
    org_id, sees_holdings = caller.acts_in.id, access.may_view(caller, roles.Capability.END_USERS_VIEW)
    async with ports.storage.reading() as read:
        selected = await _select(read, org_id, role, search, state)
        selected = replace(selected, protection=protection, factor=factor, asked=await asked_strength(ports, read, org_id))

    async def load_next(last: members_model.ExportedMember | None, count: int) -> Sequence[members_model.ExportedMember]:
        async with ports.storage.reading() as read:
            accounts = await read.members.batch(org_id, selected, None if last is None else last.account.member.membership, count)
            holdings = await read.access_reasons.holdings(org_id, [account.member.user_id for account in accounts])
        if not sees_holdings:
            holdings = {user_id: replace(held, groups=(), application_roles=()) for user_id, held in holdings.items()}
        return [members_model.ExportedMember(account, holdings[account.member.user_id]) for account in accounts]

    return values.Batches(load_next, size=EXPORT_BATCH)


async def load_accounts(
    ports: Ports, caller: callers.OrganizationCaller, members: Sequence[members_model.ListedMember]
) -> dict[UUID, members_model.MemberAccount]:
    """Return the account facts that the organization may see about these members, by user id."""
    access.require_view(caller, roles.Capability.MEMBERS_MANAGE)
    async with ports.storage.reading() as read:
        return await read.members.accounts_of(caller.acts_in.id, members, await asked_strength(ports, read, caller.acts_in.id))


async def require_member(ports: Ports, caller: callers.OrganizationCaller, user_id: UUID) -> None:
    """Check that this user is a member in the caller's organization."""
    async with ports.storage.reading() as read:
        if not await read.members.exists(caller.acts_in.id, user_id):
            raise members_model.MemberNotFound


async def require_power(ports: Ports, caller: callers.OrganizationCaller, user_id: UUID) -> None:
    """Check that the caller may act on this user, before a page offers it (security R-10). Only members have rights."""
    own = caller.acts_in
    async with ports.storage.reading() as read:
        account = await read.members.account(own.id, user_id)
    if account is not None:
        members_model.require_power_over(roles.Authority(own.role, own.rights), account.member.membership)


async def find(ports: Ports, caller: callers.OrganizationCaller, user_id: UUID) -> members_model.MemberDetails:
    """Return one member, with their live sessions in the organization and who invited them (security R-9)."""
    org_id = caller.acts_in.id
    async with ports.storage.reading() as read:
        asked = await asked_strength(ports, read, org_id)
        account = await read.members.account(org_id, user_id, asked) or refuse(members_model.MemberNotFound)
        sessions = await read.organization_sessions.count_live(org_id, user_id, ports.clock.now())
        blocked_at = await read.end_users.blocked_at(org_id, user_id)
        accepted = await read.invitations.accepted_by(org_id, user_id)
    if accepted is None:
        return members_model.MemberDetails(account, sessions, blocked_at)
    return members_model.MemberDetails(account, sessions, blocked_at, accepted.inviter, accepted.invitation.created_at)


async def revoke_sessions(ports: Ports, caller: callers.OrganizationCaller, user_id: UUID) -> int:
    """End a member's sessions in the organization and return their number (security S-4, R-9).

    Authorization codes, device approvals and pending sign-ons in the organization end as well. The membership and all
    other sessions continue.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, authority = await organizations.lock_authority(tx, caller, roles.Capability.MEMBERS_MANAGE)
        members_model.require_power_over(authority, await tx.members.lock(organization.id, user_id) or refuse(members_model.MemberNotFound))
        await tx.accounts.lock(user_id) or refuse(members_model.MemberNotFound)
        revoked = await tx.organization_sessions.end(organization.id, [user_id], now)
        tx.record(events.sessions_revoked(organization.id, user_id, revoked))
    return revoked


async def change_role(ports: Ports, caller: callers.OrganizationCaller, user_id: UUID, role: str) -> members_model.ListedMember:
    """Change a member's role and return the member (security R-1).

    Nothing changes if the member already has this role. A role above member that a service account gave
    ends with the account, unless a person sets the role again (security R-4).
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, authority = await organizations.lock_authority(tx, caller, roles.Capability.ROLES_MANAGE)
        rights = authority.rights
        membership = await tx.members.lock(organization.id, user_id) or refuse(members_model.MemberNotFound)
        if user_id == caller.actor_id:
            raise members_model.CannotChangeOwnRole
        if membership.is_owner:
            raise members_model.CannotChangeOwnerRole
        new = members_model.require_assignable(await tx.roles.find(organization.id, role))
        new_role, old = new.name, await tx.roles.find(organization.id, membership.role)
        members_model.require_power_over(authority, membership)
        for role_of_change in (new, old):  # no caller takes away a role that they could not give
            require_giveable(rights, role_of_change)
        account = await own_account.lock_person(tx, user_id) or refuse(members_model.MemberNotFound)
        is_person = isinstance(caller, callers.Member)
        if new_role != membership.role:
            promoted_by = caller.actor_id if roles.needs_roles_manage(new_role) and not is_person else None
            await tx.members.set_role(organization.id, user_id, new_role, promoted_by=promoted_by)
            tx.record(events.user_role_updated(organization.id, user_id, membership.role, new_role))
            await grants.void_grants(tx, organization.id, [user_id], now)
        elif is_person:  # the person answers for the role now, if a service account had given it
            await tx.members.set_role(organization.id, user_id, new_role)
    name = None if membership.confirmed_at is None else account.profile.name
    changed = replace(membership, role=new_role, role_label=None if new.is_built_in else new.label)
    return members_model.ListedMember(account.email, name, account.is_platform_owner, changed)


async def remove(ports: Ports, caller: callers.OrganizationCaller, user_id: UUID) -> None:
    """Remove a member, and end their sessions in this organization (security R-6).

    If a former member has just left, end their service accounts that have no more rights than the caller (security #own-end).
    """
    async with ports.storage.transaction(by=caller) as tx:
        await remove_within(tx, caller, user_id, ports.clock.now())


async def remove_within(tx: storage.Transaction, caller: callers.OrganizationCaller, user_id: UUID, now: datetime) -> None:
    """Remove a member, as `remove` does, in this transaction. Afterwards, the organization and the account are locked."""
    organization, authority = await organizations.lock_authority(tx, caller, roles.Capability.MEMBERS_MANAGE)
    membership = await tx.members.lock(organization.id, user_id)
    if membership is None and await tx.service_accounts.end_going_on(user_id, organization.id, now, within=authority.rights):
        await grants.settle_ends(tx, organization.id, user_id, now)
        return
    membership = membership or refuse(members_model.MemberNotFound)
    if user_id == caller.actor_id:
        raise members_model.CannotRemoveSelf
    if membership.is_owner:
        raise members_model.CannotRemoveOwner
    members_model.require_power_over(authority, membership)
    await _end_locked_membership(tx, membership, now)


async def send_password_reset(ports: Ports, caller: callers.OrganizationCaller, user_id: UUID) -> None:
    """Email a member a link to set a new password (security R-8).

    Only the mailbox's owner can use the link, so the caller gets no power over the account. The email has its own limit
    per recipient.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, authority = await organizations.lock_authority(tx, caller, roles.Capability.MEMBERS_MANAGE)
        membership = await tx.members.lock(organization.id, user_id) or refuse(members_model.MemberNotFound)
        if membership.is_owner:
            raise members_model.CannotResetOwner
        members_model.require_power_over(authority, membership)
        if membership.confirmed_at is None:  # the user has no relation to the organization yet (security R-5)
            raise members_model.MembershipNotConfirmed
        account = await tx.accounts.by_id(user_id) or refuse(members_model.MemberNotFound)
        if not account.is_usable or account.email_verified_at is None:
            raise members_model.MemberNotReachable
        await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.MEMBER_RESET, account.email, now, org_id=organization.id))
        tx.record(events.password_reset_sent(organization.id, user_id))


async def confirm(ports: Ports, caller: callers.Person, slug: str) -> None:
    """Confirm the caller's own membership in an organization with any status (docs/specification/security.md, Terms)."""
    async with ports.storage.reading() as read:
        org_id = await read.organizations.id_by_slug(slug) or refuse(access.OrganizationNotFound)
        if not await read.members.exists(org_id, caller.user_id):
            raise access.NotOfThisOrganization
    async with ports.storage.autocommit() as statements:
        await statements.members.confirm(org_id, caller.user_id, ports.clock.now())


async def leave(ports: Ports, caller: callers.Person, slug: str) -> None:
    """End the caller's own membership in an organization with any status, and their sessions in it.

    Raises: OrganizationNotFound, NotOfThisOrganization, OwnerCannotLeave, PasskeyNeeded.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        org_id = await tx.organizations.id_by_slug(slug) or refuse(access.OrganizationNotFound)
        await tx.organizations.lock(org_id) or refuse(access.OrganizationNotFound)
        membership = await tx.members.lock(org_id, caller.user_id) or refuse(access.NotOfThisOrganization)
        if membership.is_owner:
            raise members_model.OwnerCannotLeave
        account = await own_account.lock_own_account(tx, caller, now)
        await own_proofs.require_strongest_proof(ports, tx, caller, account, now)
        await let_programs_go_on(tx, caller.user_id, caller.email, org_id, now)
        await _end_locked_membership(tx, membership, now, by_self=True)
        with suppress(RecoveryRequired):  # only this organization may have asked for a recovery
            await factor_changes.require_no_recovery(ports, tx, account, now)


async def _end_locked_membership(tx: storage.Transaction, membership: Membership, now: datetime, *, by_self: bool = False) -> None:
    # Lock order: the account before its sessions. Otherwise two transactions that each end several
    # sessions of one user could wait for each other.
    await tx.accounts.lock(membership.user_id)
    tx.record(events.user_removed(membership.org_id, membership.user_id, membership.role))
    await end_membership(tx, membership.org_id, membership.user_id, now, by_self=by_self)


async def end_membership(tx: storage.Transaction, org_id: UUID, user_id: UUID, now: datetime, *, by_self: bool = False) -> None:
    """End a membership and everything that the user had through it.

    The user leaves groups, and services that they used only as a member. The user's sessions in the organization end,
    and invitations from and to them are revoked. The directory forgets the user. Unless the directory blocks the user,
    they can come back with an invitation. With `by_self`, the user's service accounts go on for a while.

    The caller has locked the membership and the account, and has recorded the event.
    """
    await tx.members.remove(org_id, user_id, now)
    await tx.service_users.remove_former_members(org_id, [user_id])
    await tx.groups.remove_former_members(org_id, [user_id])
    await end_access(tx, org_id, user_id, now, by_self=by_self)
    await remove_links(tx, org_id, [user_id], now)


async def remove_links(tx: storage.Transaction, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> None:
    """Unlink former members from the organization's connections, and end their sign-ins there. The accounts are locked.

    Users of the organization's applications keep the link, which can bind them there (security SP-9).
    """
    await end_sign_ins_at_connections(tx, org_id, user_ids, now)
    await tx.connection_identities.remove_of_strangers(org_id, user_ids)


async def end_sign_ins_at_connections(tx: storage.Transaction, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> None:
    """End former members' sign-ins through the organization's connections. The accounts are locked, and keep their links."""
    for connection_id, user_id in await tx.connection_identities.connections_of(org_id, user_ids):
        await tx.session_sign_ins.end_of_connection(org_id, connection_id, user_id, now)
    await tx.connection_identities.forget_groups(org_id, user_ids)


async def delete_account(tx: storage.Transaction, org_id: UUID, user_id: UUID, now: datetime) -> None:
    """Delete a locked account permanently, with its membership in this organization.

    The account must have no other membership. The caller has recorded the event.
    """
    # Lock order: refresh token, then session, as in a token refresh. Therefore remove the sessions
    # and their tokens before `end_membership` locks sessions.
    await tx.sessions.remove(user_id, now)
    await tx.service_accounts.end_going_on(user_id, None, now)
    await end_membership(tx, org_id, user_id, now)
    await accounts.delete_account(tx, user_id, now)


async def end_access(tx: storage.Transaction, org_id: UUID, user_id: UUID, now: datetime, *, by_self: bool = False) -> None:
    """End a former member's access: sessions, pending sign-ins and invitations.

    Invitations that the user sent or received end, too. The user's service accounts stop, and the roles
    that they gave are void. With `by_self`, service accounts with an end (`ends_at`) go on (security #own-end).
    """
    if not by_self:
        await tx.service_accounts.end_going_on(user_id, org_id, now)
    await tx.organization_sessions.end(org_id, [user_id], now)
    await grants.void_grants(tx, org_id, [user_id], now)
    await revoke_invitations_to(tx, org_id, [user_id], now)


async def transfer_ownership(ports: Ports, caller: callers.Member, new_owner_id: UUID, reason: str | None = None) -> None:
    """Make another member the owner, and the caller, who is the owner, an admin (security R-2).

    The new and the old owner get an email.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, roles.Capability.ORGANIZATION_OWN)
        if new_owner_id == caller.user_id:
            raise members_model.AlreadyOwner
        new = await tx.members.lock(organization.id, new_owner_id) or refuse(members_model.NewOwnerNotMember)
        account = await tx.accounts.lock(new_owner_id) or refuse(members_model.NewOwnerNotMember)
        if not account.is_usable:
            raise members_model.NewOwnerNotActive
        old = await tx.members.lock(organization.id, caller.user_id) or refuse(access.NotOfThisOrganization)
        # The old owner first: a unique index allows one owner, and is checked after every
        # statement.
        for membership, role in ((old, roles.ADMIN), (new, roles.OWNER)):
            await tx.members.set_role(organization.id, membership.user_id, role)
            tx.record(events.user_role_updated(organization.id, membership.user_id, membership.role, role))
        for address in (caller.email, account.email):
            await tx.email_queue.add(
                email_queue.new_email(email_queue.EmailKind.ORGANIZATION_TRANSFERRED, address, now, token=reason, org_id=organization.id)
            )
        tx.record(events.owner_changed(organization.id, caller.user_id, new_owner_id, reason))
        await grants.void_grants(tx, organization.id, [caller.user_id], now)


async def revoke_invitations_to(tx: storage.Transaction, org_id: UUID, user_ids: Sequence[UUID], now: datetime) -> None:
    """Revoke the pending invitations that these users received.

    A user can become a member without answering an older invitation, if the directory provisions or restores them. An
    older invitation must not bring the user back after their removal.
    """
    for invitation in await tx.invitations.cancel_to(org_id, user_ids, now):
        tx.record(events.invitation_revoked(invitation))
