"""SCIM users: the organization's users, as its directory sees and changes them.

A directory knows its organization's members, the users it deactivated, and the users it provisioned and removed from
the group. Some accounts are also used elsewhere: `core.tenancy.model.members` decides whether the organization controls
the account. The names that a directory gives to a user are visible in its organization only.

Deactivating or deleting a user blocks them (`core.provisioning.blocks`). The membership ends, and
nothing remembers it: activating or creating the user again makes them a member with the role
member.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace as with_changes
from datetime import datetime
from functools import partial
from uuid import UUID

from core.accounts import mailbox
from core.accounts.model import accounts, profiles
from core.accounts.model.email_queue import EmailKind
from core.kernel import roles, values
from core.kernel.callers import ScimClient
from core.kernel.errors import refuse
from core.provisioning import events, user_changes
from core.provisioning import tokens as scim_tokens
from core.provisioning.model import patches, schemas, users
from core.provisioning.model.directories import with_rights_of
from core.provisioning.model.filters import ScimFilter
from core.provisioning.model.profiles import ScimProfile, to_account_profile
from core.provisioning.model.resources import SkippedParts
from core.tenancy import attributes, grants, members
from core.tenancy import events as tenancy_events
from core.tenancy.model import organizations
from core.tenancy.model.attributes import AttributeWriter, UserAttributeNotWritable, UserAttributeValueInvalid
from ports import Ports
from ports.storage import Transaction


async def schema_of(ports: Ports, caller: ScimClient) -> schemas.ScimSchema:
    """Return the user schema in the directory's organization, which may have declared attributes."""
    if not caller.has_attributes:
        return schemas.USER
    async with ports.storage.reading() as read:
        return schemas.user_schema(await read.attributes.list_declared(caller.org_id))


async def list_users(
    ports: Ports, caller: ScimClient, filter_: ScimFilter | None, start: int, count: int
) -> values.PageResult[users.ScimUser]:
    """Return up to `count` matching users, oldest first. `start` is the first user's number, from 1."""
    async with ports.storage.reading() as read:
        return await read.scim_users.page(caller.org_id, filter_, start - 1, count)


async def find(ports: Ports, caller: ScimClient, user_id: UUID) -> users.ScimUser:
    """Return a user."""
    async with ports.storage.reading() as read:
        return await read.scim_users.by_id(caller.org_id, user_id) or refuse(users.ScimUserNotFound)


async def find_to_change(ports: Ports, caller: ScimClient, user_id: UUID) -> users.ScimUser:
    """Return a user for a change. A former member can be deactivated while their service accounts go on (security #own-end)."""
    async with ports.storage.reading() as read:
        user = await read.scim_users.by_id(caller.org_id, user_id)
        if user is None and await read.service_accounts.goes_on(caller.org_id, user_id, ports.clock.now()):
            account = await read.accounts.by_id(user_id) or refuse(users.ScimUserNotFound)
            user = _new_user(account, users.ScimUserData(account.email, ScimProfile(), active=True))
        return user or refuse(users.ScimUserNotFound)


async def _end_programs(ports: Ports, caller: ScimClient, user_id: UUID) -> None:
    """End a former member's service accounts at once, because the directory removes the member, too (security #own-end)."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        locked_organization = scim_tokens.lock_organization(tx, caller, now)
        ended = await tx.service_accounts.end_going_on(user_id, caller.org_id, now)
        await locked_organization()
        if ended:
            await grants.settle_ends(tx, caller.org_id, user_id, now)


async def list_groups(ports: Ports, caller: ScimClient, user_ids: Collection[UUID]) -> Mapping[UUID, Sequence[users.GroupOfUser]]:
    """Return the directory groups that the users are in, per user and by name. Without directory groups, there are none."""
    if not caller.directory_groups or not user_ids:
        return {}
    async with ports.storage.reading() as read:
        return await read.scim_users.groups(caller.org_id, user_ids)


async def create(ports: Ports, caller: ScimClient, data: users.ScimUserData) -> users.ScimUser:
    """Create an account with a membership in the organization, and send a welcome email.

    The account has no password, and its email address counts as verified. With `active` false, the
    user is created deactivated.

    An existing account is taken over, and gets the new data, in two cases (security C-2):

    1. The directory blocks its user.
    2. The organization has verified the domain, and another organization created the account or its
       address was never verified.

    Raises: DomainOfAnother, UserNameTaken, MembersFull, TooManyInactiveUsers, ScimTokenInvalid,
    OrganizationNotActive; the errors of `apply_changes`.
    """
    try:
        return await _create_account(ports, caller, data)
    except users.UserNameTaken:
        pass
    try:
        return await _take_existing(ports, caller, data)
    except users.UserNameTaken:
        if data.active is False:
            async with ports.storage.reading() as read:
                account = await read.accounts.by_email(data.email)
            if account is not None:
                await _end_programs(ports, caller, account.id)
        raise


async def _create_account(ports: Ports, caller: ScimClient, data: users.ScimUserData) -> users.ScimUser:
    now = ports.clock.now()
    profile = profiles.ProfileChanges.valid_parts(profiles.NO_PROFILE, to_account_profile(data.profile)).apply_to(profiles.NO_PROFILE)
    account = accounts.new_account(
        data.email, None, now, verified=True, origin=accounts.AccountOrigin.SCIM, org_id=caller.org_id, profile=profile
    )
    # The organization creates the account, so the membership is confirmed from the start
    # (docs/specification/security.md, Terms).
    membership = organizations.Membership(
        id=values.new_id(), org_id=caller.org_id, user_id=account.id, role=roles.MEMBER, created_at=now, confirmed_at=now
    )
    user = _new_user(account, data)
    async with ports.storage.transaction(by=caller) as tx:
        locked_organization = scim_tokens.lock_organization(tx, caller, now)
        non_members = tx.scim_users.count_non_members(caller.org_id)
        domain_owner = tx.domains.verified_owner(account.email)
        is_taken = tx.scim_users.claim_user_name(caller.org_id, account.id, data.profile.user_name or account.email)
        if data.active is not False:  # before the checks, so that it is sent together with them
            await user_changes.queue_email(ports, tx, EmailKind.WELCOME, account.email, caller.org_id, now)
        await tx.scim_users.provision(account, membership, data.profile)
        organization = await locked_organization()
        if await domain_owner not in (None, caller.org_id):
            raise users.DomainOfAnother
        if await is_taken:
            raise users.UserNameTaken
        users.require_inactive_capacity(organization, await non_members)
        if data.active is not False:  # checked last: after UserNameTaken, a directory can look up the user
            users.require_member_capacity(organization, 1)
        if data.values:
            await attributes.change(tx, organization.id, account.id, data.values, AttributeWriter.DIRECTORY, now)
        tx.record(*events.user_provisioned(organization.id, account.id))
        tx.record(tenancy_events.user_joined(organization.id, account.id, roles.MEMBER))
        if data.active is False:
            await user_changes.deactivate(tx, user, organization, now)
            return await tx.scim_users.by_id(organization.id, user.id) or refuse(users.ScimUserNotFound)
    return user


async def _take_existing(ports: Ports, caller: ScimClient, data: users.ScimUserData) -> users.ScimUser:
    """Take an existing account, as `create` does. Raises: UserNameTaken, ProtectedUser, MembersFull."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        locked_organization = scim_tokens.lock_organization(tx, caller, now)
        domain_owner = await tx.domains.verified_owner(data.email)
        organization = await locked_organization()
        known = await tx.accounts.by_email(data.email) or refuse(users.UserNameTaken)
        membership = await tx.members.lock(organization.id, known.id)
        account = await tx.accounts.lock_by_email(data.email) or refuse(users.UserNameTaken)
        if account.id != known.id:  # the address moved to another account before the lock was granted
            raise users.UserNameTaken
        is_blocked = await tx.directory_blocks.exists(organization.id, account.id)
        is_foreign = account.origin_org_id not in (None, organization.id) or account.first_verified_at is None
        is_takeover = domain_owner == organization.id and is_foreign
        if not (is_blocked or is_takeover):
            raise users.UserNameTaken
        if account.is_platform_owner or (membership is not None and membership.is_owner):
            raise users.ProtectedUser
        is_above = await _is_above(tx, caller, membership)
        if is_above and is_takeover:
            raise users.MemberAboveDirectory
        is_taken = tx.scim_users.claim_user_name(organization.id, account.id, data.profile.user_name or data.email)
        if is_takeover:
            account = await _take_over(tx, account, organization, now)
        await tx.scim_users.mark_provisioned(organization.id, account.id, now)
        if await is_taken:
            raise users.UserNameTaken
        if data.active is False:
            pass  # `apply_changes` blocks the user, or leaves an existing block as it is
        elif is_blocked:
            await user_changes.activate(ports, tx, account, organization, now)
        elif membership is None:
            users.require_member_capacity(organization, 1)
            await tx.scim_users.restore_members(organization.id, [account.id], now)
            await user_changes.queue_welcome(ports, tx, account, organization.id, now)
            tx.record(tenancy_events.user_joined(organization.id, account.id, roles.MEMBER))
        user = await tx.scim_users.by_id(organization.id, account.id) or refuse(users.ScimUserNotFound)
        return await user_changes.apply_changes(ports, tx, user, account, organization, data, now, is_above=is_above)


async def _take_over(
    tx: Transaction, account: accounts.Account, organization: organizations.Organization, now: datetime
) -> accounts.Account:
    """Make a locked account an account that this organization created, and return it.

    The account's sessions end. If a directory deactivated the account, it is activated. If the account's address is not
    verified, another person may know its credentials, so no credential survives (security A-7).
    """
    if account.email_verified_at is None:
        await mailbox.revoke_all_access(tx, account, now)
        await tx.accounts.mark_verified(account.id, now)
    await tx.sessions.end_all(account.id, now)
    if account.deactivated_at is not None:
        await tx.accounts.reactivate(account.id, now)
    await tx.accounts.set_origin(account.id, accounts.AccountOrigin.SCIM, organization.id, now)
    await mailbox.record_release(tx, account)
    tx.record(events.user_taken_over(organization.id, account.id))
    return await tx.accounts.lock(account.id) or refuse(users.UserNameTaken)


def _new_user(account: accounts.Account, data: users.ScimUserData) -> users.ScimUser:
    profile = data.profile
    return users.ScimUser(
        id=account.id,
        email=account.email,
        user_name=profile.user_name or account.email,
        profile=profile,
        active=True,
        created_at=account.created_at,
        updated_at=account.created_at,
        role=roles.MEMBER,
        is_blocked=False,
        is_platform_owner=False,
        is_anonymized=False,
        is_provisioned=True,
        account_profile=account.profile,
        values=data.values,
    )


async def replace(
    ports: Ports, caller: ScimClient, user: users.ScimUser, replacement: users.UserReplacement, schema: schemas.ScimSchema = schemas.USER
) -> tuple[users.ScimUser, SkippedParts]:
    """Replace all attributes that a user has. Return the user, and the request parts that were not applied.

    Without `active` in the replacement, the user stays active or inactive.
    """
    return await _change(ports, caller, user, lambda user: users.replaced(user, replacement, schema))


async def patch(
    ports: Ports, caller: ScimClient, user: users.ScimUser, operations: patches.UserPatch, schema: schemas.ScimSchema = schemas.USER
) -> tuple[users.ScimUser, SkippedParts]:
    """Apply a patch to a user. Return the user, and the patch parts that were not applied."""

    def apply(user: users.ScimUser) -> users.ScimUserChange:
        return users.patched(user, patches.apply_operations(schema, users.to_resource(user, schema), operations.operations), schema)

    return await _change(ports, caller, user, apply, is_large=operations.is_large)


async def _change(
    ports: Ports,
    caller: ScimClient,
    user: users.ScimUser,
    apply: Callable[[users.ScimUser], users.ScimUserChange],
    *,
    is_large: bool = False,
) -> tuple[users.ScimUser, SkippedParts]:
    """Store the change that `apply` returns for the user, and return the user and the parts that were not applied.

    `user` is the state that the caller read. Nothing is locked during `apply`, which runs in a thread
    if `is_large`. If the user has changed by then, `apply` gets the new state.
    """
    while True:
        work = partial(apply, user)
        change = await ports.threads.run(work) if is_large else work()
        stored = await _store(ports, caller, user, change)
        if stored is not None:
            return stored, change.skipped
        user = await find(ports, caller, user.id)


async def _store(
    ports: Ports, caller: ScimClient, before: users.ScimUser, change: users.ScimUserChange, *, keep_names: bool = False
) -> users.ScimUser | None:
    """Store the change. Return None, and store nothing, if the user is no longer as in `before`.

    A request that deactivates the user keeps the present address and userName if the new values are refused, and so the values of declared
    attributes. Without this rule, users could avoid deactivation: they change their address, and a directory that always sends all
    attributes is always refused.
    """
    try:
        return await _store_once(ports, caller, before, change, keep_names=keep_names)
    except users.ScimUserNotFound:
        if change.data.active is False:
            await _end_programs(ports, caller, before.id)
        raise
    except (users.DomainOfAnother, users.UserNameTaken):
        if change.data.active is not False or keep_names:
            raise
        change.skipped.refuse("userName")
        return await _store(ports, caller, before, change, keep_names=True)
    except (UserAttributeValueInvalid, UserAttributeNotWritable):
        if change.data.active is not False:
            raise
        change.skipped.refuse(schemas.ATTRIBUTES_URN)
        without_values = with_changes(change, data=with_changes(change.data, values={}))
        return await _store(ports, caller, before, without_values, keep_names=keep_names)


async def _store_once(
    ports: Ports, caller: ScimClient, before: users.ScimUser, change: users.ScimUserChange, *, keep_names: bool
) -> users.ScimUser | None:
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        user, account, organization, is_above = await _lock_user(tx, caller, before.id, now)
        if user != before:
            return None
        new = change.data.keeping_names_of(user) if keep_names else change.data
        if new.email != user.email and not (user.is_protected or user.is_anonymized):
            control = await tx.accounts.account_control(account.id, organization.id)
            if not control.may_change_email:
                change.skipped.refuse("emails")
                new = new.keeping_email_of(user)
        return await user_changes.apply_changes(ports, tx, user, account, organization, new, now, is_above=is_above)


async def delete(ports: Ports, caller: ScimClient, user_id: UUID) -> None:
    """Delete the account if the organization may, or else end the membership and block the user."""
    try:
        await _delete(ports, caller, user_id)
    except users.ScimUserNotFound:
        await _end_programs(ports, caller, user_id)
        raise


async def _delete(ports: Ports, caller: ScimClient, user_id: UUID) -> None:
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        user, account, organization, is_above = await _lock_user(tx, caller, user_id, now)
        if user.is_protected:
            raise users.ProtectedUser
        if is_above:
            raise users.MemberAboveDirectory
        control = await tx.accounts.account_control(account.id, organization.id)
        permanently = control.may_delete_account and not user.is_anonymized
        tx.record(events.user_deprovisioned(organization.id, account.id, user.role, permanently=permanently))
        if permanently:
            await members.delete_account(tx, organization.id, account.id, now)
            return
        await members.end_membership(tx, organization.id, account.id, now)
        await tx.directory_blocks.add(organization.id, account.id, now)


async def _lock_user(
    tx: Transaction, caller: ScimClient, user_id: UUID, now: datetime
) -> tuple[users.ScimUser, accounts.Account, organizations.Organization, bool]:
    """Lock the organization, the membership and the account. Return also whether the member has more rights than the directory.

    The user is read before the account is locked, so that a directory cannot lock accounts it does not know. The user
    is read again after that, because they may have changed in between.
    """
    locked_organization = scim_tokens.lock_organization(tx, caller, now)
    unlocked_user = await tx.scim_users.by_id(caller.org_id, user_id)
    organization = await locked_organization()
    if unlocked_user is None:
        raise users.ScimUserNotFound
    is_above = await _is_above(tx, caller, await tx.members.lock(organization.id, user_id))
    account = await tx.accounts.lock(user_id) or refuse(users.ScimUserNotFound)
    user = await tx.scim_users.by_id(organization.id, user_id) or refuse(users.ScimUserNotFound)
    return user, account, organization, is_above


async def _is_above(tx: Transaction, caller: ScimClient, membership: organizations.Membership | None) -> bool:
    """Return whether a member has rights that the directory does not have.

    The rights of the token's creator are read only if an admin's rights are too few.
    """
    if membership is None or roles.may_act_on(with_rights_of(roles.NO_RIGHTS), membership.authority):
        return False
    return not roles.may_act_on(await scim_tokens.authority_of(tx, caller), membership.authority)
