"""Users of SCIM: the people of an organization, as its directory sees and changes them (identity.md sections 2.7, 3 and 4.6; decisions,
points 121 to 142; security.md section 10).

A directory knows the members of its organization, those whom it has deactivated, and those whom it has made and taken out of the group.
What it may do to an account that others share follows from where the account was born (core/origins.py); what it says of a person's names
is its organization's alone, and nothing to anybody else.
"""

from __future__ import annotations

from dataclasses import fields
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Any, Final

from core.accounts import accounts
from core.accounts.accounts_rules import EmailNotFree, AccountOrigin, new_account
from core.accounts.email_queue_rules import EmailKind, new_email
from core.kernel.errors import refuse
from core.kernel.principals import Role
from core.kernel.values import Email, new_id
from core.provisioning import events
from core.provisioning import tokens as scim_tokens
from core.tenancy import events as tenancy_events
from core.tenancy import members
from core.tenancy.organizations_rules import Membership

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from core.accounts.accounts_rules import Account
    from core.kernel.principals import ScimClient
    from core.kernel.values import PageResult
    from core.provisioning.filters import ScimFilter
    from core.provisioning.patches import Resource
    from core.tenancy.organizations_rules import Organization
    from ports import Ports
    from ports.storage import Transaction
from core.provisioning.users_rules import (
    OUTSIDE_PER_MEMBER,
    EmailNotManaged,
    ScimProfile,
    UserNameReserved,
    UserNameTaken,
    TooManyInactiveUsers,
    ScimUser,
    ScimUserNotFound,
    AnonymizedUser,
    ProtectedUser,
    ScimUserData,
    require_member_capacity,
    to_resource,
    wanted,
)


def _readdressed(before: Mapping[str, Any], after: Resource) -> Resource:
    """A patch that makes another of the emails the primary one, and names no userName, means both (decisions, point 130). Where none is
    said to be, it is that of work, and never a private one."""
    if "userName" in after:
        return after
    emails: Sequence[Mapping[str, Any]] = after.get("emails") or []
    primary = [each for each in emails if each.get("primary")]
    of_work = [each for each in emails if each.get("primary") is None and each.get("type", "work").lower() == "work"]
    chosen = next(iter(primary or of_work), {}).get("value") if emails != before.get("emails") else None
    return {**after, "userName": chosen or before["userName"]}


# What directories do


async def listed(ports: Ports, caller: ScimClient, found: ScimFilter | None, start: int, count: int) -> PageResult[ScimUser]:
    """Whom the directory knows, if the filter holds of them, in the order in which they came: `count` of them, from the one with the number
    `start`, which begins at 1."""
    async with ports.storage.reading() as read:
        return await read.scim_users.page(caller.org_id, found, start - 1, count)


async def find(ports: Ports, caller: ScimClient, user_id: UUID) -> ScimUser:
    """One of them. Raises ScimUserNotFound."""
    async with ports.storage.reading() as read:
        return await read.scim_users.by_id(caller.org_id, user_id) or refuse(ScimUserNotFound)


async def create(ports: Ports, caller: ScimClient, new: ScimUserData) -> ScimUser:
    """A new account with this address, verified and without a password, which is a member of the organization; unless it is not active yet.
    A mail welcomes its holder.

    An account that there is stays as it is, whosesoever it is (security.md C-2). Whom the directory has put away counts against no limit of
    members, but nobody new is made while there are ten times as many of them as there may be members: each has an address that its
    holder, who need not know of any of this, could have an account of their own with. Raises UserNameTaken, UserNameReserved, MembersFull,
    TooManyInactiveUsers, and what scim_tokens.lock_organization_deferred tells.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        entered = scim_tokens.lock_organization_deferred(tx, caller, now)
        account = new_account(new.email, None, now, verified=True, origin=AccountOrigin.SCIM, org_id=caller.org_id)
        outside = tx.scim_users.count_non_members_deferred(caller.org_id)
        kept = tx.scim_users.claim_email_deferred(caller.org_id, account.id, account.email)
        # Born here, so the membership counts (the terms of security.md).
        membership = Membership(id=new_id(), org_id=caller.org_id, user_id=account.id, role=Role.MEMBER, created_at=now, confirmed_at=now)
        await tx.scim_users.provision(account, membership, new.description)
        organization = entered()
        if kept.value:
            raise UserNameReserved
        most = OUTSIDE_PER_MEMBER * organization.user_limit.value
        if (outside.value or 0) >= most:
            raise TooManyInactiveUsers(most)
        if new.active is not False:  # last, as a directory that hears of the name finds whose it is
            require_member_capacity(organization, 1)
        for event in events.provisioned(organization.id, account.id):
            tx.record(event)
        tx.record(tenancy_events.user_joined(organization.id, account.id, Role.MEMBER))
        user = _provisioned(account, new.description)
        if new.active is False:
            await _deactivate(tx, user, organization, now)
            return await tx.scim_users.by_id(organization.id, user.id) or refuse(ScimUserNotFound)
        await _tell(ports, tx, EmailKind.WELCOME, account.email, organization.id, now)
    return user


def _provisioned(account: Account, description: ScimProfile) -> ScimUser:
    return ScimUser(
        id=account.id,
        email=account.email,
        description=description,
        active=True,
        created_at=account.created_at,
        updated_at=account.created_at,
        role=Role.MEMBER,
        deactivated_here=False,
        whole_account=False,
        is_platform_owner=False,
        is_anonymized=False,
    )


async def _tell(ports: Ports, tx: Transaction, kind: EmailKind, email: Email, org_id: UUID, now: datetime) -> None:
    """Have a mail sent to whoever has the address. A directory can name anybody's, and as many as it likes: so of its mails, so many go out
    in a day as the organization may send invitations (security.md E-5), and the others in the days after."""
    await tx.email_queue.add_within(new_email(kind, email, now, org_id=org_id), ports.policy.invitations_per_day)


async def replace(ports: Ports, caller: ScimClient, user_id: UUID, new: ScimUserData) -> ScimUser:
    """The person as a whole resource says; of what it does not say nothing is kept, but whether they are active (decisions, point 129).

    Raises ScimUserNotFound, and what `_change` raises.
    """
    return await _settle(ports, caller, user_id, new) or refuse(ScimUserNotFound)


async def patch(ports: Ports, caller: ScimClient, user_id: UUID, apply_operations: Callable[[Resource], Awaitable[Resource]]) -> ScimUser:
    """The person as `apply_operations` has them be, which is told what they are, but not whether they are active: a patch that says nothing of
    that leaves it at that, also where deactivating once more would close more by now, or others have closed the account. Nor is it told
    their userName: one that is named wins over the emails, also where it is what it was.

    It may take its time, over very many operations: nobody is locked meanwhile. If somebody else changes the person before it is done, it
    is asked once more. Raises ScimUserNotFound, what `apply_operations` raises, AttributeValueInvalid, EmailInvalid, and what `_change` raises.
    """
    while True:
        before = to_resource(await find(ports, caller, user_id))
        told = {name: value for name, value in before.items() if name not in ("active", "userName")}
        new = wanted(_readdressed(before, await apply_operations(told)))
        settled = await _settle(ports, caller, user_id, new, before)
        if settled is not None:
            return settled


async def _settle(ports: Ports, caller: ScimClient, user_id: UUID, new: ScimUserData, before: Resource | None = None) -> ScimUser | None:
    """The person as `new` says; None if they are not any more what they were `before`, and nothing happened.

    Who is deactivated by it keeps the address where it cannot be the one that is wanted: else somebody could see to it that they are never
    deactivated, by giving themselves another address, which directories that send all of a person go on contradicting.
    """
    try:
        return await _try(ports, caller, user_id, new, before)
    except (EmailNotManaged, UserNameTaken, UserNameReserved):
        if new.active is not False:
            raise
        return await _try(ports, caller, user_id, new, before, keeps_name=True)


async def _try(
    ports: Ports, caller: ScimClient, user_id: UUID, new: ScimUserData, before: Resource | None, *, keeps_name: bool = False
) -> ScimUser | None:
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        user, account, organization = await _enter(tx, caller, user_id, now)
        if before is not None and to_resource(user) != before:
            return None
        named = replaced(new, email=user.email) if keeps_name else new
        return await _change(ports, tx, user, account, organization, named, now)


async def delete(ports: Ports, caller: ScimClient, user_id: UUID) -> None:
    """Remove the person: the account for good where it is nobody's but the organization's, and else the membership (decisions, point 132),
    after which the organization's services stay closed to them until somebody there invites them.

    Raises ScimUserNotFound, ProtectedUser, and what scim_tokens.lock_organization_deferred tells.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        user, account, organization = await _enter(tx, caller, user_id, now)
        if user.is_untouchable:
            raise ProtectedUser
        control = await tx.accounts.account_control(account.id, organization.id)
        permanently = control.directory_controls_account and not user.is_anonymized
        tx.record(events.deprovisioned(organization.id, account.id, user.role, permanently=permanently))
        if permanently:
            await members.delete_account(tx, organization.id, account.id, now)
            return
        await members.end_membership(tx, organization.id, account.id, now)
        if user.whole_account:  # it may be others' by now, who shall not find it closed
            await tx.accounts.reactivate(account.id, now)
        if user.is_anonymized:
            await tx.scim_users.forget(organization.id, account.id)
        else:
            # Who could not come in any more while they were deactivated can do so even less by being deleted.
            await tx.scim_users.block(organization.id, account.id, now)


async def _enter(tx: Transaction, caller: ScimClient, user_id: UUID, now: datetime) -> tuple[ScimUser, Account, Organization]:
    """The person and their account, both locked, and before them the organization.

    Who is known is asked first, so that a directory locks no account that it has no say about; and again, as the account is locked by now.
    Raises ScimUserNotFound, and what scim_tokens.lock_organization_deferred tells.
    """
    entered = scim_tokens.lock_organization_deferred(tx, caller, now)
    found = await tx.scim_users.by_id(caller.org_id, user_id)
    organization = entered()
    if found is None:
        raise ScimUserNotFound
    await tx.members.lock(organization.id, user_id)
    account = await tx.accounts.lock(user_id) or refuse(ScimUserNotFound)
    user = await tx.scim_users.by_id(organization.id, user_id) or refuse(ScimUserNotFound)
    return user, account, organization


async def _change(
    ports: Ports, tx: Transaction, user: ScimUser, account: Account, organization: Organization, new: ScimUserData, now: datetime
) -> ScimUser:
    """The person as `new` says. Nothing happens where it says nothing new.

    Raises ProtectedUser, AnonymizedUser, EmailNotManaged, UserNameTaken, UserNameReserved, MembersFull.
    """
    email_changes, describes = new.email != user.email, new.description != user.description
    turns = new.active is not None and await _turns(tx, user, organization, active=new.active)
    if not (email_changes or describes or turns):
        return user
    if user.is_untouchable:
        raise ProtectedUser
    if user.is_anonymized:
        raise AnonymizedUser
    if email_changes:
        await _readdress(ports, tx, user, account, organization.id, new.email, now)
    if describes:
        tx.record(events.described(organization.id, user.id, _changed(user.description, new.description)))
    if email_changes or describes:
        await tx.scim_users.describe(organization.id, user.id, new.description, new.email, now)
    if turns and new.active:
        await _activate(ports, tx, user, new.email if email_changes else account.email, organization, now)
    elif turns:
        await _deactivate(tx, user, organization, now)
    # Nobody is there any more if this was the last that the directory had to say of somebody whom it has not made, and who left.
    return await tx.scim_users.by_id(organization.id, user.id) or replaced(user, active=True)


async def _turns(tx: Transaction, user: ScimUser, organization: Organization, *, active: bool) -> bool:
    """Whether it makes a difference to have the person active, or not.

    Whom the directory has deactivated already, it deactivates once more if that closes more by now, or less: somebody may have left all
    others who had the account kept open, or come to be somewhere else, too (security.md C-5).
    """
    if active:
        return not user.active
    if user.is_anonymized:
        return False
    if not user.deactivated_here:
        return True
    return (await tx.accounts.account_control(user.id, organization.id)).directory_controls_account is not user.whole_account


_CALLED: Final = {
    "external_id": "externalId",
    "formatted": "name.formatted",
    "given_name": "name.givenName",
    "family_name": "name.familyName",
    "display_name": "displayName",
}


def _changed(old: ScimProfile, new: ScimProfile) -> list[str]:
    return [_CALLED[field.name] for field in fields(ScimProfile) if getattr(old, field.name) != getattr(new, field.name)]


async def _readdress(ports: Ports, tx: Transaction, user: ScimUser, account: Account, org_id: UUID, email: Email, now: datetime) -> None:
    """Give a locked account another address (security.md C-4, A-9).

    It counts as verified, as that of a new account does, where nobody can sign in with what they have from before, or the organization has
    proved that the domain is its own; else somebody would come to have, by their directory's word, an address that is another person's.
    Raises EmailNotManaged, UserNameTaken, UserNameReserved.
    """
    control = await tx.accounts.account_control(account.id, org_id)
    if not control.may_change_email or control.is_manager:
        raise EmailNotManaged
    kept = tx.scim_users.claim_email_deferred(org_id, account.id, email)
    try:
        await accounts.change_account_email(tx, account, email, now)
    except EmailNotFree:
        raise UserNameTaken from None
    if kept.value:
        raise UserNameReserved
    await tx.sessions.end_all(account.id, now)
    can_sign_in = control.has_password or control.has_identity
    if user.active and not can_sign_in:
        # The link of the welcome died with the address, whether it has gone out by now or not; and they have nothing else to begin with.
        await tx.email_queue.withdraw(EmailKind.WELCOME, account.email, org_id, now)
        await _tell(ports, tx, EmailKind.WELCOME, email, org_id, now)
    if account.email_verified_at is not None:
        await _tell(ports, tx, EmailKind.EMAIL_CHANGED, account.email, org_id, now)
    vouched = not can_sign_in or (await tx.accounts.account_control(account.id, org_id)).at_verified_domain
    if vouched:
        await tx.accounts.mark_verified(account.id, now)
    else:
        await tx.email_queue.add(new_email(EmailKind.VERIFY_EMAIL, email, now))
    tx.record(events.readdressed(org_id, user.id))


async def _deactivate(tx: Transaction, user: ScimUser, organization: Organization, now: datetime) -> None:
    """Close the account to its holder where it is nobody's but the organization's, and else the organization (security.md C-5).

    The membership is put away: nothing counts it, and nothing lets the person in by it.
    """
    control = await tx.accounts.account_control(user.id, organization.id)
    whole = control.directory_controls_account
    await tx.scim_users.deactivate(organization.id, user.id, now, whole_account=whole)
    await members.end_access(tx, organization.id, user.id, now)
    if whole:
        await tx.accounts.deactivate(user.id, now)
        await tx.sessions.end_all(user.id, now)
        await tx.pre_auths.remove_all(user.id)
    elif user.whole_account:
        await tx.accounts.reactivate(user.id, now)
    tx.record(events.deactivated(organization.id, user.id, whole_account=whole))


async def _activate(ports: Ports, tx: Transaction, user: ScimUser, email: Email, organization: Organization, now: datetime) -> None:
    """Undo what this organization's SCIM did, and nothing else (decisions, point 132). A member is called `email` from now on, whatever
    they were called when they left. Raises MembersFull, UserNameReserved."""
    if not user.deactivated_here:
        return
    if user.role is not None:
        require_member_capacity(organization, 1)
        kept = tx.scim_users.claim_email_deferred(organization.id, user.id, email)
        await tx.scim_users.reactivate(organization.id, user.id, now)
        if kept.value:
            raise UserNameReserved
    else:
        await tx.scim_users.reactivate(organization.id, user.id, now)
    if user.whole_account:
        await tx.accounts.reactivate(user.id, now)
        control = await tx.accounts.account_control(user.id, organization.id)
        can_sign_in = control.has_password or control.has_identity
        # Whoever was not active from the beginning has had no mail yet, and that of others may be too old by now.
        if not can_sign_in and not await tx.email_queue.is_waiting(EmailKind.WELCOME, email, organization.id):
            await _tell(ports, tx, EmailKind.WELCOME, email, organization.id, now)
    tx.record(events.reactivated(organization.id, user.id, whole_account=user.whole_account))
