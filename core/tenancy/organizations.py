"""Organizations: tiers, limits, memberships, and what members do with the organization itself (organizations.md sections 2.3 and 2.4;
decisions, points 204 to 207). What platform owners do with it is in `core/governance.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from core.accounts import own_account
from core.kernel import principals
from core.kernel.errors import refuse
from core.kernel.principals import AddressNotVerified, Capability, OrganizationNotFound, OrganizationStatus, Role
from core.kernel.values import KEEP, Keep, Slug, given, new_id
from core.tenancy import events

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.kernel.principals import Member, Person
    from ports import Ports
    from ports.storage import Transaction
from core.tenancy.organizations_rules import (
    DEVICE_TRUST_DAYS,
    FIRST_TIER,
    PURGED_AT_ONCE,
    Membership,
    NothingToChange,
    Organization,
    standing,
)


async def enter(tx: Transaction, caller: Member, capability: Capability, *, inactive: bool = False) -> tuple[Organization, Membership]:
    """The organization that `caller` acts in and the caller's membership, both locked, if the caller may still do this (security.md Z-5).

    With this begins every change that a member makes: the row of the organization comes first in the order of locks.
    Raises what access.require raises.
    """
    organization = await tx.organizations.lock(caller.acts_in.id) or refuse(OrganizationNotFound)
    membership = await tx.members.lock(organization.id, caller.user_id)
    principals.require(standing(organization, membership), capability, inactive=inactive)
    assert membership is not None, "who is no member is refused"
    return organization, membership


async def create(ports: Ports, caller: Person, slug: str, name: str) -> tuple[Organization, Membership]:
    """A new tenant, which the caller owns; it waits for approval, unless the operator chose otherwise (decisions, points 50 and 204).

    Raises SlugInvalid, SlugReserved, SlugTaken, AddressNotVerified, AccountGone, SessionEnded.
    """
    wanted, now = Slug.parse(slug), ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization = await add(tx, ports, wanted, name, now)
        account = await own_account.lock_own_account(tx, caller, now)
        if account.email_verified_at is None:  # the address may have been changed since the request came in
            raise AddressNotVerified
        membership = await begin(tx, organization, account.id, now if caller.impersonator_id is None else None, now)
    return replace(organization, member_count=1, members_changed_at=now), membership


async def add(tx: Transaction, ports: Ports, slug: Slug, name: str, now: datetime) -> Organization:
    """A new tenant without an owner, for `begin`. Raises SlugTaken."""
    approved = ports.policy.auto_approve_organizations
    organization = Organization(
        id=new_id(),
        slug=slug,
        name=name,
        status=OrganizationStatus.ACTIVE if approved else OrganizationStatus.PENDING,
        tier=await tx.tiers.by_name(FIRST_TIER),
        max_services=None,
        max_users=None,
        device_trust_days=DEVICE_TRUST_DAYS,
        member_count=0,
        created_at=now,
        updated_at=now,
        approved_at=now if approved else None,
        rejected_reason=None,
        suspended_reason=None,
    )
    await tx.organizations.add(organization)
    return organization


async def begin(tx: Transaction, organization: Organization, owner_id: UUID, confirmed_at: datetime | None, now: datetime) -> Membership:
    """The first owner of a new tenant."""
    membership = Membership(
        id=new_id(), org_id=organization.id, user_id=owner_id, role=Role.OWNER, created_at=now, confirmed_at=confirmed_at
    )
    await tx.members.add(membership)
    tx.record(events.organization_created(organization))
    return membership


async def of_person(ports: Ports, caller: Person) -> list[tuple[Organization, Membership]]:
    """The organizations that the caller is a member of, whatever their status, by slug."""
    async with ports.storage.reading() as read:
        return await read.organizations.of_person(caller.user_id)


async def current(ports: Ports, caller: Member) -> Organization:
    """The organization that the caller acts in. Raises OrganizationNotFound."""
    async with ports.storage.reading() as read:
        return await read.organizations.by_id(caller.acts_in.id) or refuse(OrganizationNotFound)


async def update(ports: Ports, caller: Member, *, name: str | Keep = KEEP, device_trust_days: int | Keep = KEEP) -> Organization:
    """The organization with what its managers may change of it. Raises NothingToChange, and what `enter` raises."""
    wanted = given(name=name, device_trust_days=device_trust_days)
    if not wanted:
        raise NothingToChange
    async with ports.storage.transaction(by=caller) as tx:
        old, _ = await enter(tx, caller, Capability.ORGANIZATION_MANAGE)
        new = replace(old, **wanted)
        if new != old:
            new = replace(new, updated_at=ports.clock.now())
            await tx.organizations.save(new)
            tx.record(events.organization_updated(old, new))
    return new


async def delete(ports: Ports, caller: Member) -> None:
    """Delete the organization that the caller acts in and owns. Raises what `enter` raises."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await enter(tx, caller, Capability.ORGANIZATION_OWN)
        await remove(tx, organization, ports.clock.now())


async def remove(tx: Transaction, organization: Organization, now: datetime) -> None:
    """Delete a locked organization for good, with all that belongs to it (decisions, point 240).

    The accounts of its members stay, and those that its directory has closed are open again: nobody else could open them (decisions, point
    132). Of a large one, the housekeeper removes the rest of the records, which nobody can reach any more.
    """
    await tx.scim_users.release(organization.id, now)
    await tx.organizations.delete(organization.id, now)
    await tx.organizations.purge(organization.id, PURGED_AT_ONCE)
    tx.record(events.organization_deleted(organization))
