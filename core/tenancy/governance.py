"""Governance by platform owners: tiers, the list of all organizations, and their lifecycle.

The rules are in decisions 236 and 238. The organization states: docs/specification/lifecycles.md.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from core.accounts import platform
from core.accounts.model import email_queue
from core.kernel import callers, values
from core.kernel.access import OrganizationNotFound
from core.kernel.causes import SYSTEM
from core.kernel.errors import refuse
from core.kernel.roles import NO_RIGHTS
from core.kernel.sign_in_policy.rules import Rule
from core.tenancy import events, organizations
from core.tenancy.model import organizations as organizations_model
from core.tenancy.model import sign_in_policies
from ports import Ports
from ports.storage import Transaction


async def list_tiers(ports: Ports) -> list[organizations_model.Tier]:
    """Return all tiers, the smallest first."""
    async with ports.storage.reading() as read:
        return await read.tiers.all()


async def save_tiers(ports: Ports, tiers: Collection[organizations_model.Tier]) -> None:
    """Add or update these tiers by name. Other tiers stay as they are."""
    if not tiers:
        return
    async with ports.storage.transaction(by=SYSTEM) as tx:
        # Lock order: by name. Several processes save the tiers at the same time when they start.
        for tier in sorted(tiers, key=lambda tier: tier.name):
            await tx.tiers.put(tier)


async def list_organizations(
    ports: Ports, status: callers.OrganizationStatus | None, tier_id: UUID | None, *, limit: int, offset: int, search: str | None = None
) -> values.PageResult[organizations_model.ListedOrganization]:
    """Return a part of the organizations with this status and tier, newest first, and the total number.

    None means any status or any tier. `search` is a part of the slug or the name, in any case.
    """
    text = search.strip().lower() if search else None
    async with ports.storage.reading() as read:
        page = await read.organizations.page_with_owners(status, tier_id, limit, offset, text or None)
        resembled = await read.organizations.resembled([listed.organization.id for listed in page.items])
    return replace(page, items=[replace(listed, resembles=resembled.get(listed.organization.id, ())) for listed in page.items])


async def count_organizations(ports: Ports) -> Mapping[callers.OrganizationStatus, int]:
    """Return how many organizations have which status."""
    async with ports.storage.reading() as read:
        return await read.organizations.counts()


async def get(ports: Ports, org_id: UUID) -> organizations_model.Organization:
    """Return the organization with this id."""
    async with ports.storage.reading() as read:
        return await read.organizations.by_id(org_id) or refuse(OrganizationNotFound)


async def describe(ports: Ports, org_id: UUID) -> organizations_model.OrganizationDetails:
    """Return an organization in any status, with facts that platform owners need."""
    async with ports.storage.reading() as read:
        listed = await read.organizations.with_owner(org_id) or refuse(OrganizationNotFound)
        resembled = await read.organizations.resembled([org_id])
        policy = await read.sign_in_policies.find(org_id)
        return organizations_model.OrganizationDetails(
            organization=listed.organization,
            owner=listed.owner,
            resembles=resembled.get(org_id, ()),
            service_count=await read.services.count(org_id),
            admin_networks=() if policy is None else tuple(policy.rules.document.get(Rule.ADMIN_NETWORKS, ())),
        )


async def create_approved(ports: Ports, caller: callers.Person, slug: str, name: str) -> organizations_model.Organization:
    """Create an active organization that the caller owns, who is a platform owner.

    Without a slug, the slug is the first free one that resembles the name.
    """

    async def create(valid_slug: values.Slug) -> organizations_model.Organization:
        now = ports.clock.now()
        async with ports.storage.transaction(by=caller) as tx:
            organization, account = await organizations.add_for_account(tx, ports, caller, valid_slug, name, now)
            await platform.lock_rights(tx, caller)
            await organizations.add_first_owner(tx, organization, account.id, now)
            if organization.status is callers.OrganizationStatus.ACTIVE:  # approval is off
                return organization
            tier = organization.tier or refuse(organizations_model.TierNotFound)
            approved = replace(
                organization, status=callers.OrganizationStatus.ACTIVE, approved_at=now, member_count=1, members_changed_at=now
            )
            await tx.organizations.save(approved)
            tx.record(events.organization_approved(approved.id, tier.name))
        return approved

    if slug:
        return await create(values.Slug.parse(slug))
    return await values.create_with_free_slug(name, "organization", create, organizations_model.SlugTaken)


async def approve(
    ports: Ports, caller: callers.PlatformCaller, org_id: UUID, tier_id: UUID | None, *, notify: bool = True
) -> organizations_model.Organization:
    """Approve a pending organization, and return it. The organization's owner gets an email, unless `notify` is false.

    The organization's tier becomes `tier_id`. With None, the organization keeps its tier, or gets the initial tier if
    it has none.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization = await _lock_as_platform_owner(tx, caller, org_id)
        if tier_id is None:
            tier = organization.tier or await tx.tiers.by_name(organizations_model.INITIAL_TIER) or refuse(organizations_model.TierNotFound)
        else:
            tier = await tx.tiers.by_id(tier_id) or refuse(organizations_model.TierNotFound)
        # After the tier look-up, because 404 comes before 400.
        _require_status(organization, callers.OrganizationStatus.PENDING)
        approved = replace(organization, status=callers.OrganizationStatus.ACTIVE, tier=tier, approved_at=now, updated_at=now)
        await tx.organizations.save(approved)
        tx.record(events.organization_approved(approved.id, tier.name))
        if notify:
            await _notify_owner(tx, email_queue.EmailKind.ORGANIZATION_APPROVED, approved, now)
    return approved


async def reject(ports: Ports, caller: callers.PlatformCaller, org_id: UUID, reason: str) -> organizations_model.Organization:
    """Reject a pending organization, and return it. Rejecting is final: a rejected organization can only be deleted.

    The organization's owner gets an email with the reason.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization = await _lock_as_platform_owner(tx, caller, org_id, callers.OrganizationStatus.PENDING)
        rejected = replace(organization, status=callers.OrganizationStatus.REJECTED, rejected_reason=reason, updated_at=now)
        await tx.organizations.save(rejected)
        platform.record_with_reason(tx, events.organization_rejected(rejected.id), reason)
        await _notify_owner(tx, email_queue.EmailKind.ORGANIZATION_REJECTED, rejected, now, reason)
    return rejected


async def suspend(ports: Ports, caller: callers.PlatformCaller, org_id: UUID, reason: str | None) -> organizations_model.Organization:
    """Suspend an active organization, and return it.

    Requests by its members are refused from then on. The members' sessions do not end. Sessions work again when the
    organization is activated. The organization's owner gets an email with the reason, if a reason is given.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization = await _lock_as_platform_owner(tx, caller, org_id, callers.OrganizationStatus.ACTIVE)
        suspended = replace(organization, status=callers.OrganizationStatus.SUSPENDED, suspended_reason=reason, updated_at=now)
        await tx.organizations.save(suspended)
        platform.record_with_reason(tx, events.organization_suspended(suspended.id), reason)
        await _notify_owner(tx, email_queue.EmailKind.ORGANIZATION_SUSPENDED, suspended, now, reason)
    return suspended


async def activate(ports: Ports, caller: callers.PlatformCaller, org_id: UUID) -> organizations_model.Organization:
    """Activate a suspended organization, and return it. The organization's owner gets an email."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization = await _lock_as_platform_owner(tx, caller, org_id, callers.OrganizationStatus.SUSPENDED)
        activated = replace(organization, status=callers.OrganizationStatus.ACTIVE, suspended_reason=None, updated_at=now)
        await tx.organizations.save(activated)
        tx.record(events.organization_activated(activated.id))
        await _notify_owner(tx, email_queue.EmailKind.ORGANIZATION_ACTIVATED, activated, now)
    return activated


async def change_tier(
    ports: Ports,
    caller: callers.PlatformCaller,
    org_id: UUID,
    tier_id: UUID,
    *,
    max_services: int | values.Keep | None = values.KEEP,
    max_users: int | values.Keep | None = values.KEEP,
) -> organizations_model.Organization:
    """Change the organization's tier and its own limits, and return it.

    If a limit is None, the tier's limit applies. A limit may be lower than the current member or service count: nothing
    is removed, but nothing can be added.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization = await _lock_as_platform_owner(tx, caller, org_id)
        tier = await tx.tiers.by_id(tier_id) or refuse(organizations_model.TierNotFound)
        # A rejected organization can only be deleted.
        _require_status(
            organization, callers.OrganizationStatus.PENDING, callers.OrganizationStatus.ACTIVE, callers.OrganizationStatus.SUSPENDED
        )
        changed = replace(
            organization,
            tier=tier,
            max_services=organization.max_services if max_services is values.KEEP else max_services,
            max_users=organization.max_users if max_users is values.KEEP else max_users,
            updated_at=now,
        )
        await tx.organizations.save(changed)
        tx.record(events.organization_tier_updated(organization.id, old=_tier_and_limits(organization), new=_tier_and_limits(changed)))
    return changed


async def remove_admin_networks(ports: Ports, caller: callers.Person, org_id: UUID, reason: str) -> None:
    """Remove the networks from an organization's sign-in policy, so that its admins can act from anywhere again.

    The admins could not remove the networks themselves after their networks changed (security SP-7). All other rules
    stay. The organization's owner and admins get an email with the reason.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization = await _lock_as_platform_owner(tx, caller, org_id)
        old = await tx.sign_in_policies.find(organization.id) or refuse(sign_in_policies.NoAdminNetworks)
        if not old.rules.admin_networks:
            raise sign_in_policies.NoAdminNetworks
        # A platform owner has no member rights, so rules that members imposed stay imposed.
        new = old.changed_to(replace(old.rules, admin_networks=()), NO_RIGHTS, now, caller.user_id)
        await tx.sign_in_policies.put(new)
        event = events.sign_in_policy_updated(organization.id, None, sign_in_policies.changes_of(old.rules, new.rules))
        platform.record_with_reason(tx, event, reason)
        for address in await tx.members.admin_addresses(organization.id):
            await tx.email_queue.add(
                email_queue.new_email(email_queue.EmailKind.ADMIN_NETWORKS_REMOVED, address, now, token=reason, org_id=organization.id)
            )


async def delete(ports: Ports, caller: callers.PlatformCaller, org_id: UUID) -> None:
    """Delete an organization permanently, in any status."""
    async with ports.storage.transaction(by=caller) as tx:
        await organizations.delete_locked(tx, await _lock_as_platform_owner(tx, caller, org_id), ports.clock.now())


async def _notify_owner(
    tx: Transaction, kind: email_queue.EmailKind, organization: organizations_model.Organization, now: datetime, reason: str | None = None
) -> None:
    """Queue an email about this change to the organization's owner, if the owner's account is usable."""
    address = await tx.organizations.owner_address(organization.id)
    if address is not None:
        await tx.email_queue.add(email_queue.new_email(kind, address, now, token=reason, org_id=organization.id))


def _tier_and_limits(organization: organizations_model.Organization) -> dict[str, object]:
    return {
        "tier": organization.tier.name if organization.tier else None,
        "max_services": organization.max_services,
        "max_users": organization.max_users,
    }


async def _lock_as_platform_owner(
    tx: Transaction, caller: callers.PlatformCaller, org_id: UUID, *allowed: callers.OrganizationStatus
) -> organizations_model.Organization:
    """Lock the organization, and check that the caller is a platform owner.

    The caller stays a platform owner until the transaction ends (security Z-5, Z-6). The organization's status must be
    in `allowed`, if any statuses are given.
    """
    organization = await tx.organizations.lock(org_id) or refuse(OrganizationNotFound)
    await platform.lock_rights(tx, caller)
    _require_status(organization, *(allowed or callers.OrganizationStatus))
    return organization


def _require_status(organization: organizations_model.Organization, *allowed: callers.OrganizationStatus) -> None:
    """Check that the organization has a status from this list."""
    if organization.status not in allowed:
        *others, last = allowed
        raise organizations_model.WrongOrganizationStatus(organization.status, f"{', '.join(others)} or {last}" if others else str(last))
