"""Organizations: creation, and the changes that their members make (decision 207).

The changes that platform owners make are in `core.tenancy.governance`.
"""

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from core.accounts import own_account
from core.accounts.model import email_queue
from core.accounts.model.accounts import Account
from core.kernel import access, callers, errors, roles, values
from core.tenancy import events, grants
from core.tenancy.group_names import require_free_new_name
from core.tenancy.model import organizations
from ports import Ports
from ports.storage import Transaction


async def lock_organization_for(
    tx: Transaction, caller: callers.OrganizationCaller, capability: roles.Capability
) -> tuple[organizations.Organization, roles.Rights]:
    """Lock the organization as `lock_authority` does, and return it with the caller's rights."""
    organization, authority = await lock_authority(tx, caller, capability)
    return organization, authority.rights


async def lock_authority(
    tx: Transaction, caller: callers.OrganizationCaller, capability: roles.Capability
) -> tuple[organizations.Organization, roles.Authority]:
    """Lock the caller's organization and membership, or service account, and check the capability again (security Z-5).

    Return the organization, and the caller's role and rights. Every change by a member or a service account
    starts here, because the organization comes first in the lock order.

    Raises: OrganizationNotFound, NotOfThisOrganization, RoleInsufficient, OrganizationNotActive; ProgramStopped
    if the service account is no longer live.
    """
    organization = await tx.organizations.lock(caller.acts_in.id) or errors.refuse(access.OrganizationNotFound)
    if isinstance(caller, callers.Member):
        authority = (await tx.members.lock(organization.id, caller.user_id) or errors.refuse(access.NotOfThisOrganization)).authority
    elif (live := await tx.service_accounts.lock_live(organization.id, caller.account_id, caller.credential_id)) is not None:
        authority = live
    else:
        raise errors.ProgramStopped
    access.require_right(authority.rights, capability, organization.status)
    return organization, authority


async def create(ports: Ports, caller: callers.Person, slug: str, name: str) -> tuple[organizations.Organization, organizations.Membership]:
    """Create an organization that the caller owns.

    The organization is pending until a platform owner approves it, unless the operator turned approval off. The
    platform owners get an email about a pending organization, unless the operator turned these emails off.
    """
    valid_slug, now = values.Slug.parse(slug), ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, account = await add_for_account(tx, ports, caller, valid_slug, name, now)
        is_waiting = organization.status is callers.OrganizationStatus.PENDING
        # Counted under the lock on the account, so that concurrent requests cannot exceed the limit.
        if is_waiting and await tx.organizations.count_waiting(account.id) >= ports.policy.waiting_organizations:
            raise organizations.TooManyWaiting
        membership = await add_first_owner(tx, organization, account.id, now)
        if is_waiting and ports.policy.notify_owners_of_organizations:
            await _notify_platform_owners(tx, organization, account, now)
    return replace(organization, member_count=1, members_changed_at=now), membership


async def add_for_account(
    tx: Transaction, ports: Ports, caller: callers.Person, slug: values.Slug, name: str, now: datetime
) -> tuple[organizations.Organization, Account]:
    """Add an organization without an owner for the caller, and lock the caller's account."""
    organization = await add_organization(tx, ports, slug, name, now)
    account = await own_account.lock_own_account(tx, caller, now)
    # The address may have changed since the request arrived.
    if account.email_verified_at is None:
        raise access.AddressNotVerified
    return organization, account


async def create_by_form(
    ports: Ports, caller: callers.Person, slug: str, name: str
) -> tuple[organizations.Organization, organizations.Membership]:
    """Create an organization as `create` does. Without a slug, the slug is the first free one that resembles the name."""
    if slug:
        return await create(ports, caller, slug, name)
    return await values.create_with_free_slug(name, "organization", lambda free: create(ports, caller, free, name), organizations.SlugTaken)


async def _notify_platform_owners(tx: Transaction, organization: organizations.Organization, creator: Account, now: datetime) -> None:
    """Queue an email to every platform owner, except the creator, about an organization that waits for approval."""
    for address in await tx.accounts.platform_owner_addresses():
        if address != creator.email:
            await tx.email_queue.add(
                email_queue.new_email(email_queue.EmailKind.ORGANIZATION_WAITING, address, now, org_id=organization.id)
            )


async def add_organization(tx: Transaction, ports: Ports, slug: values.Slug, name: str, now: datetime) -> organizations.Organization:
    """Add an organization without an owner. The caller then calls `add_first_owner`."""
    approved = ports.policy.auto_approve_organizations
    organization = organizations.Organization(
        id=values.new_id(),
        slug=slug,
        name=name,
        status=callers.OrganizationStatus.ACTIVE if approved else callers.OrganizationStatus.PENDING,
        tier=await tx.tiers.by_name(organizations.INITIAL_TIER),
        max_services=None,
        max_users=None,
        device_trust_days=organizations.DEVICE_TRUST_DAYS,
        personal_tokens=True,
        members_see_end_users=True,
        member_count=0,
        created_at=now,
        updated_at=now,
        approved_at=now if approved else None,
        rejected_reason=None,
        suspended_reason=None,
    )
    await tx.organizations.add(organization)
    return organization


async def add_first_owner(
    tx: Transaction, organization: organizations.Organization, owner_id: UUID, now: datetime
) -> organizations.Membership:
    """Add a new organization's owner, and record that the organization was created. The membership is confirmed."""
    membership = organizations.Membership(
        id=values.new_id(),
        org_id=organization.id,
        user_id=owner_id,
        role=roles.OWNER,
        created_at=now,
        confirmed_at=now,
        rights=roles.rights_of(roles.OWNER),
    )
    await tx.members.add(membership)
    tx.record(events.organization_created(organization))
    return membership


async def list_own(ports: Ports, caller: callers.Person) -> list[tuple[organizations.Organization, organizations.Membership]]:
    """Return the organizations that the caller is a member of, in any status, ordered by slug.

    A session that is good in a single organization shows no other organization.
    """
    async with ports.storage.reading() as read:
        own = await read.organizations.by_member(caller.user_id)
    return [each for each in own if caller.restricted_to in (None, each[0].id)]


async def get(ports: Ports, caller: callers.OrganizationCaller) -> organizations.Organization:
    """Return the organization that the caller acts in."""
    async with ports.storage.reading() as read:
        return await read.organizations.by_id(caller.acts_in.id) or errors.refuse(access.OrganizationNotFound)


async def update(
    ports: Ports,
    caller: callers.OrganizationCaller,
    *,
    name: str | values.Keep = values.KEEP,
    device_trust_days: int | values.Keep = values.KEEP,
    personal_tokens: bool | values.Keep = values.KEEP,
    members_see_end_users: bool | values.Keep = values.KEEP,
) -> organizations.Organization:
    """Change the organization's settings, and return it.

    While `personal_tokens` is false, personal access tokens are refused in the organization. The setting counts from
    the next request on, and does not change when tokens expire. `members_see_end_users` also counts from the next
    request on, and only callers who see end users change it (security R-1).

    Raises: EmptyOrganizationUpdate; SharedNameTaken; RoleInsufficient, ScopeInsufficient, if the caller may not see end users;
    the errors of `lock_organization_for`.
    """
    changes = values.provided(
        name=name, device_trust_days=device_trust_days, personal_tokens=personal_tokens, members_see_end_users=members_see_end_users
    )
    if not changes:
        raise organizations.EmptyOrganizationUpdate
    async with ports.storage.transaction(by=caller) as tx:
        old, rights = await lock_organization_for(tx, caller, roles.Capability.ORGANIZATION_MANAGE)
        if members_see_end_users not in (values.KEEP, old.members_see_end_users):
            # The setting gives a right to all members, or takes it away from them.
            if roles.Capability.END_USERS_VIEW not in rights:
                raise access.RoleInsufficient
            access.require_scopes_for(caller, frozenset({roles.Capability.END_USERS_VIEW}))
        new, now = replace(old, **changes), ports.clock.now()
        await require_free_new_name(tx, old.id, old.name, new.name, of=old.id)
        if new != old:
            new = replace(new, updated_at=now)
            await tx.organizations.save(new)
            tx.record(events.organization_updated(old, new))
        if new.members_see_end_users < old.members_see_end_users:  # members lose a right
            await grants.stop_unfounded(tx, new.id, now)
    return new


async def delete(ports: Ports, caller: callers.Member) -> None:
    """Delete the organization that the caller acts in and owns."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await lock_organization_for(tx, caller, roles.Capability.ORGANIZATION_OWN)
        await delete_locked(tx, organization, ports.clock.now())


async def delete_locked(tx: Transaction, organization: organizations.Organization, now: datetime) -> None:
    """Delete a locked organization permanently, with everything that belongs to it.

    The members' accounts remain. Accounts that the organization created and its directory deactivated are activated
    again, because only this directory could do so later. If the organization has more than IMMEDIATE_PURGE_LIMIT
    records, the housekeeper removes the rest later. No request can reach the remaining records.
    """
    await tx.scim_users.reopen_accounts(organization.id, now)
    await tx.organizations.delete(organization.id, now)
    await tx.organizations.purge(organization.id, organizations.IMMEDIATE_PURGE_LIMIT)
    tx.record(events.organization_deleted(organization))
