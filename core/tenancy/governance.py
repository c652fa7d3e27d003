"""Organizations in the hands of platform owners: their lifecycle, their tiers, and the list of all of them (organizations.md sections 3
and 4.6; decisions, points 236 to 240)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from core.kernel import event_catalogue
from core.kernel.errors import refuse
from core.kernel.principals import SYSTEM, NotAPlatformOwner, OrganizationNotFound, OrganizationStatus
from core.kernel.values import KEEP
from core.tenancy import events, organizations, organizations_rules

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    from core.kernel.principals import Person
    from core.kernel.values import Keep, Listed
    from core.tenancy.organizations_rules import Organization, Tier
    from ports import Ports
    from ports.storage import Transaction
from core.tenancy.governance_rules import ListedOrganization, NotInThisStatus, TierNotFound


async def tiers(ports: Ports) -> list[Tier]:
    """Every tier, the smallest first."""
    async with ports.storage.reading() as read:
        return await read.tiers.all()


async def put_tiers(ports: Ports, wanted: Collection[Tier]) -> None:
    """See to it that there are these tiers, with these limits and prices, known by their names; others stay as they are.

    Several processes may do so at the same time, so all take the rows in the same order.
    """
    if not wanted:
        return
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for tier in sorted(wanted, key=lambda tier: tier.name):
            await tx.tiers.put(tier)


async def listed(
    ports: Ports, status: OrganizationStatus | None, tier_id: UUID | None, *, limit: int, offset: int
) -> Listed[ListedOrganization]:
    """Those with this status and tier, the newest first, and how many there are."""
    async with ports.storage.reading() as read:
        return await read.organizations.governed(status, tier_id, limit, offset)


async def find(ports: Ports, org_id: UUID) -> Organization:
    """The organization. Raises OrganizationNotFound."""
    async with ports.storage.reading() as read:
        return await read.organizations.by_id(org_id) or refuse(OrganizationNotFound)


async def approve(ports: Ports, caller: Person, org_id: UUID, tier_id: UUID | None) -> Organization:
    """Let a pending organization begin: on this tier, or else the one that it has, or else the free one (organizations.md section 3).

    Raises OrganizationNotFound, NotAPlatformOwner, TierNotFound, NotInThisStatus.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization = await _enter(tx, caller, org_id)
        if tier_id is None:
            tier = organization.tier or await tx.tiers.by_name(organizations_rules.FIRST_TIER) or refuse(TierNotFound)
        else:
            tier = await tx.tiers.by_id(tier_id) or refuse(TierNotFound)
        _require(organization, OrganizationStatus.PENDING)  # an unknown tier comes first (decisions, point 16)
        approved = replace(organization, status=OrganizationStatus.ACTIVE, tier=tier, approved_at=now, updated_at=now)
        await tx.organizations.save(approved)
        tx.record(events.organization_approved(approved.id, tier.name))
    return approved


async def reject(ports: Ports, caller: Person, org_id: UUID, reason: str) -> Organization:
    """Turn a pending organization away for good: all that can become of it is to be deleted.

    Raises OrganizationNotFound, NotAPlatformOwner, NotInThisStatus.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization = await _enter(tx, caller, org_id, OrganizationStatus.PENDING)
        rejected = replace(organization, status=OrganizationStatus.REJECTED, rejected_reason=reason, updated_at=now)
        await tx.organizations.save(rejected)
        told = events.organization_rejected(rejected.id)
        tx.record(told)
        tx.record(event_catalogue.for_the_platform(told, reason))
    return rejected


async def suspend(ports: Ports, caller: Person, org_id: UUID, reason: str | None) -> Organization:
    """Stop an active organization, from its members' next requests on. Sessions live on, and work again once it is activated.

    Raises OrganizationNotFound, NotAPlatformOwner, NotInThisStatus.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization = await _enter(tx, caller, org_id, OrganizationStatus.ACTIVE)
        suspended = replace(organization, status=OrganizationStatus.SUSPENDED, suspended_reason=reason, updated_at=now)
        await tx.organizations.save(suspended)
        told = events.organization_suspended(suspended.id)
        tx.record(told)
        tx.record(event_catalogue.for_the_platform(told, reason))
    return suspended


async def activate(ports: Ports, caller: Person, org_id: UUID) -> Organization:
    """Let a suspended organization go on. Raises OrganizationNotFound, NotAPlatformOwner, NotInThisStatus."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization = await _enter(tx, caller, org_id, OrganizationStatus.SUSPENDED)
        activated = replace(organization, status=OrganizationStatus.ACTIVE, suspended_reason=None, updated_at=now)
        await tx.organizations.save(activated)
        tx.record(events.organization_activated(activated.id))
    return activated


async def change_tier(
    ports: Ports,
    caller: Person,
    org_id: UUID,
    tier_id: UUID,
    *,
    max_services: int | Keep | None = KEEP,
    max_users: int | Keep | None = KEEP,
) -> Organization:
    """Give the organization another tier, and limits of its own, or None for those of the tier; below what it has now is allowed, and
    keeps it from having more (decisions, points 156 and 238).

    Raises OrganizationNotFound, NotAPlatformOwner, TierNotFound, NotInThisStatus.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization = await _enter(tx, caller, org_id)
        tier = await tx.tiers.by_id(tier_id) or refuse(TierNotFound)
        # A rejected organization is past everything but its deletion (decisions, point 236).
        _require(organization, OrganizationStatus.PENDING, OrganizationStatus.ACTIVE, OrganizationStatus.SUSPENDED)
        changed = replace(
            organization,
            tier=tier,
            max_services=organization.max_services if max_services is KEEP else max_services,
            max_users=organization.max_users if max_users is KEEP else max_users,
            updated_at=now,
        )
        await tx.organizations.save(changed)
        tx.record(events.organization_tier_updated(organization.id, old=_terms(organization), new=_terms(changed)))
    return changed


async def delete(ports: Ports, caller: Person, org_id: UUID) -> None:
    """Delete an organization for good, whatever its status. Raises OrganizationNotFound, NotAPlatformOwner."""
    async with ports.storage.transaction(by=caller) as tx:
        await organizations.remove(tx, await _enter(tx, caller, org_id), ports.clock.now())


def _terms(organization: Organization) -> dict[str, object]:
    return {
        "tier": organization.tier.name if organization.tier else None,
        "max_services": organization.max_services,
        "max_users": organization.max_users,
    }


async def _enter(tx: Transaction, caller: Person, org_id: UUID, *allowed: OrganizationStatus) -> Organization:
    """The organization, locked, if the caller is a platform owner now, who stays one until the transaction ends (security.md Z-5, Z-6), and
    if its status is one of those that are allowed, where any are named.

    Raises OrganizationNotFound, NotAPlatformOwner, NotInThisStatus.
    """
    organization = await tx.organizations.lock(org_id) or refuse(OrganizationNotFound)
    if not await tx.accounts.lock_platform_owner(caller.user_id):
        raise NotAPlatformOwner
    _require(organization, *(allowed or OrganizationStatus))
    return organization


def _require(organization: Organization, *allowed: OrganizationStatus) -> None:
    """Raises NotInThisStatus."""
    if organization.status not in allowed:
        *others, last = allowed
        raise NotInThisStatus(organization.status, f"{', '.join(others)} and {last}" if others else str(last))
