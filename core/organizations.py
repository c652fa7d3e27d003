"""Organizations: tiers, limits, memberships, and what members do with the organization itself (organizations.md sections 2.3 and 2.4;
decisions, points 204 to 207). What platform owners do with it is in `core/governance.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

from core import access, events
from core.access import AddressNotVerified, Capability, OrganizationNotFound, OrganizationStanding, OrganizationStatus, Role
from core.errors import Invalid, refuse
from core.values import KEEP, Keep, Slug, given, new_id

if TYPE_CHECKING:
    from core.access import Member, Person
    from ports import Ports
    from ports.storage import Transaction

# What holds where neither the organization nor its tier says anything (decisions, points 154 and 155).
DEFAULT_LIMIT = 5
FIRST_TIER = "free"  # until a platform owner gives it another one (organizations.md section 3)
DEVICE_TRUST_DAYS = 30  # of a new organization
# How much of the records of an organization goes in the transaction that deletes it: all of them, unless it is a large one.
PURGED_AT_ONCE = 10_000


class SlugTaken(Invalid):
    """An organization with this slug exists already. Choose another one."""


class NothingToChange(Invalid):
    """Say what to change: name, device_trust_days, or both."""


@dataclass(frozen=True, slots=True)
class Tier:
    """What an organization may have unless it has limits of its own (organizations.md section 2.3). The price is per month."""

    id: UUID
    name: str
    display_name: str
    default_max_services: int
    default_max_users: int
    price_cents: int


class LimitSource(StrEnum):
    """Where an effective limit comes from."""

    ORGANIZATION = "organization"
    TIER = "tier"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Limit:
    """How many there may be, and who says so."""

    value: int
    source: LimitSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Organization:
    """A tenant. Times are UTC; `max_services` and `max_users` are its own limits, None for those of its tier.

    `member_count` is kept by the transactions that add and remove members.
    """

    id: UUID
    slug: Slug
    name: str
    status: OrganizationStatus
    tier: Tier | None
    max_services: int | None
    max_users: int | None
    device_trust_days: int
    member_count: int
    created_at: datetime
    updated_at: datetime
    approved_at: datetime | None
    rejected_reason: str | None
    suspended_reason: str | None
    members_changed_at: datetime | None = None  # when somebody last came or went

    @property
    def user_limit(self) -> Limit:
        """How many members it may have."""
        return _limit(self.max_users, self.tier.default_max_users if self.tier else None)

    @property
    def service_limit(self) -> Limit:
        """How many services it may have."""
        return _limit(self.max_services, self.tier.default_max_services if self.tier else None)


def _limit(own: int | None, of_tier: int | None) -> Limit:
    if own is not None:
        return Limit(own, LimitSource.ORGANIZATION)
    if of_tier is not None:
        return Limit(of_tier, LimitSource.TIER)
    return Limit(DEFAULT_LIMIT, LimitSource.DEFAULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A person in an organization (organizations.md section 2.4). Times are UTC.

    `confirmed_at` is None until the member took part in it: before that the organization has no say about the account (R-5).
    """

    id: UUID
    org_id: UUID
    user_id: UUID
    role: Role
    created_at: datetime
    confirmed_at: datetime | None


async def enter(tx: Transaction, caller: Member, capability: Capability, *, inactive: bool = False) -> tuple[Organization, Membership]:
    """The organization that `caller` acts in and the caller's membership, both locked, if the caller may still do this (security.md Z-5).

    With this begins every change that a member makes: the row of the organization comes first in the order of locks.
    Raises what access.require raises.
    """
    organization = await tx.organizations.lock(caller.acts_in.id) or refuse(OrganizationNotFound)
    membership = await tx.members.lock(organization.id, caller.user_id)
    access.require(standing(organization, membership), capability, inactive=inactive)
    assert membership is not None, "who is no member is refused"
    return organization, membership


def standing(organization: Organization, membership: Membership | None) -> OrganizationStanding:
    """What access.require judges by."""
    return OrganizationStanding(
        id=organization.id,
        slug=organization.slug,
        status=organization.status,
        role=membership.role if membership else None,
        confirmed=membership is not None and membership.confirmed_at is not None,
    )


async def create(ports: Ports, caller: Person, slug: str, name: str) -> tuple[Organization, Membership]:
    """A new tenant, which the caller owns; it waits for approval, unless the operator chose otherwise (decisions, points 50 and 204).

    Raises SlugInvalid, SlugReserved, SlugTaken, AddressNotVerified, AccountGone, SessionEnded.
    """
    wanted, now = Slug.parse(slug), ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization = await add(tx, ports, wanted, name, now)
        account = await access.enter(tx, caller, now)
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
