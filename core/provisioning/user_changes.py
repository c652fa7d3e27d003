"""Changes to a locked SCIM user: the profile, the email address, and whether the user is active."""

from collections.abc import Awaitable
from dataclasses import replace as with_changes
from datetime import datetime
from uuid import UUID

from core.accounts import email_changes
from core.accounts.model import accounts, email_queue
from core.accounts.model.profiles import ProfileChanges
from core.kernel.errors import refuse
from core.kernel.values import Email
from core.provisioning import blocks, events
from core.provisioning.model import profiles, users
from core.tenancy import attributes, members
from core.tenancy.model.attributes import AttributeWriter
from core.tenancy.model.organizations import Organization
from ports import Ports
from ports.storage import Transaction


async def apply_changes(
    ports: Ports,
    tx: Transaction,
    user: users.ScimUser,
    account: accounts.Account,
    organization: Organization,
    new: users.ScimUserData,
    now: datetime,
    *,
    is_above: bool,
) -> users.ScimUser:
    """Store the differences between the locked user and the new data, if there are any.

    The account's address changes if the new address is neither the account's address nor the address that a former
    member is listed with. The caller has checked that the organization may change the address. `is_above` says that the
    user has more rights than the directory.
    """
    is_inactive = user.is_blocked or user.is_anonymized
    changes_active = new.active is not None and new.active == is_inactive
    changes_profile, changes_shown_email = new.profile != user.profile, new.email != user.email
    if not (changes_profile or changes_shown_email or changes_active or new.values):
        return user
    _require_changeable(user, is_above=is_above)
    changes_email = new.email not in (user.email, account.email)
    activates = changes_active and bool(new.active)
    is_taken = _claim_user_name(tx, user, account, organization.id, new, activates=activates)
    if changes_email:
        await _change_email(ports, tx, user, account, organization.id, new.email, now)
    if changes_profile:
        await _change_profile(tx, user, account, organization.id, new.profile, now)
    if changes_shown_email or changes_profile or new.values:
        await tx.scim_users.save_profile(organization.id, user.id, new.profile, new.email, now)
    if new.values:
        await attributes.change(tx, organization.id, user.id, new.values, AttributeWriter.DIRECTORY, now)
    if activates:
        await activate(ports, tx, with_changes(account, email=new.email) if changes_email else account, organization, now)
    elif changes_active:
        await deactivate(tx, user, organization, now)
    if is_taken is not None and await is_taken:
        raise users.UserNameTaken
    return await tx.scim_users.by_id(organization.id, user.id) or refuse(users.ScimUserNotFound)


def _require_changeable(user: users.ScimUser, *, is_above: bool) -> None:
    if user.is_protected:
        raise users.ProtectedUser
    if is_above:
        raise users.MemberAboveDirectory
    if user.is_anonymized:
        raise users.AnonymizedUser


def _claim_user_name(
    tx: Transaction, user: users.ScimUser, account: accounts.Account, org_id: UUID, new: users.ScimUserData, *, activates: bool
) -> Awaitable[bool] | None:
    """Claim the user name in the new data, if it can differ from the present name. Return whether another user has the name."""
    changes_name = (new.profile.user_name, new.email) != (user.profile.user_name, user.email)
    if not changes_name and not (activates and user.email != account.email):
        return None
    keeps_address = activates and new.email in (user.email, account.email)
    user_name = new.profile.user_name or (account.email if keeps_address else new.email)
    return tx.scim_users.claim_user_name(org_id, user.id, user_name)


async def _change_profile(
    tx: Transaction, user: users.ScimUser, account: accounts.Account, org_id: UUID, new: profiles.ScimProfile, now: datetime
) -> None:
    """Record the new profile, and change the account's profile in the same way, if the organization controls the account.

    Attributes that are not valid for an account do not change its profile.
    """
    tx.record(events.user_profile_updated(org_id, user.id, profiles.changed_attributes(user.profile, new)))
    control = await tx.accounts.account_control(account.id, org_id)
    changes = ProfileChanges.valid_parts(profiles.to_account_profile(user.profile), profiles.to_account_profile(new))
    profile = changes.apply_to(account.profile)
    if control.controls_account and profile != account.profile:
        await tx.accounts.set_profile(account.id, profile, now)


async def _change_email(
    ports: Ports, tx: Transaction, user: users.ScimUser, account: accounts.Account, org_id: UUID, email: Email, now: datetime
) -> None:
    """Change the email address in a locked account that the organization controls (security C-4, A-9).

    The new address counts as verified if the account has no way to sign in yet, as for a new account, or if the
    organization has verified its domain. Otherwise a directory could give a user another person's address.
    """
    owner = await tx.domains.verified_owner(email)
    if owner not in (None, org_id):
        raise users.DomainOfAnother
    control = await tx.accounts.account_control(account.id, org_id)
    try:
        await email_changes.change_at_once(tx, account, email, now)
    except accounts.EmailNotFree:
        raise users.UserNameTaken from None
    await tx.sessions.end_all(account.id, now)
    if user.active and not control.can_sign_in:
        # The change made the link in the old welcome email invalid, and the user has no other way
        # to sign in.
        await tx.email_queue.withdraw(email_queue.EmailKind.WELCOME, account.email, org_id, now)
        await queue_email(ports, tx, email_queue.EmailKind.WELCOME, email, org_id, now)
    if account.email_verified_at is not None:
        await queue_email(ports, tx, email_queue.EmailKind.EMAIL_CHANGED, account.email, org_id, now)
    if not control.can_sign_in or owner == org_id:
        await tx.accounts.mark_verified(account.id, now)
    else:
        await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.VERIFY_EMAIL, email, now))
    tx.record(events.user_email_changed(org_id, user.id))


async def deactivate(tx: Transaction, user: users.ScimUser, organization: Organization, now: datetime) -> None:
    """Block the user, end the membership, and deactivate an account that the organization controls (security C-5).

    The user stays in the directory's groups, which give a blocked user nothing. Directories do not add users again when
    they activate them.
    """
    control = await tx.accounts.account_control(user.id, organization.id)
    await tx.directory_blocks.add(organization.id, user.id, now)
    await tx.scim_users.remove_members(organization.id, [user.id], now)
    await tx.service_users.remove_former_members(organization.id, [user.id])
    await tx.groups.remove_former_members(organization.id, [user.id], keep_in_directory=True)
    await members.end_access(tx, organization.id, user.id, now)
    # The links stay, and open nothing. Without the links, a user who has taken another address could come back without the connection.
    await members.end_sign_ins_at_connections(tx, organization.id, [user.id], now)
    if control.controls_account:
        await tx.accounts.deactivate(user.id, now)
        await tx.sessions.end_all(user.id, now)
        await tx.flows.forget_user(user.id)
        await tx.service_accounts.end_going_on(user.id, None, now)
    tx.record(events.user_deactivated(organization.id, user.id, whole_account=control.controls_account))


async def activate(ports: Ports, tx: Transaction, account: accounts.Account, organization: Organization, now: datetime) -> None:
    """Remove the user's block, and make them a member."""
    users.require_member_capacity(organization, 1)
    reopened = await blocks.remove_block(tx, organization.id, account, now)
    await tx.scim_users.restore_members(organization.id, [account.id], now)
    if reopened:  # a user who was created inactive got no welcome email, and the link in an old email may have expired
        await queue_welcome(ports, tx, account, organization.id, now)
    tx.record(events.user_reactivated(organization.id, account.id, whole_account=reopened))


async def queue_welcome(ports: Ports, tx: Transaction, account: accounts.Account, org_id: UUID, now: datetime) -> None:
    """Queue a welcome email to a user who cannot sign in yet, unless such an email is waiting."""
    control = await tx.accounts.account_control(account.id, org_id)
    if not control.can_sign_in and not await tx.email_queue.is_waiting(email_queue.EmailKind.WELCOME, account.email, org_id):
        await queue_email(ports, tx, email_queue.EmailKind.WELCOME, account.email, org_id, now)


async def queue_email(ports: Ports, tx: Transaction, kind: email_queue.EmailKind, email: Email, org_id: UUID, now: datetime) -> None:
    """Queue an email to a provisioned user, within the daily limit for the organization's directory.

    A directory can name any number of other people's addresses. In a day, a directory therefore causes at most as many
    emails as an organization may send invitations, in addition to these invitations. The rest is sent on the following
    days (security E-5).
    """
    await tx.email_queue.add_within(email_queue.new_email(kind, email, now, org_id=org_id), ports.policy.invitations_per_day)
