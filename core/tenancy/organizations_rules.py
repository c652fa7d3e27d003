"""Entities, refusals and pure rules of `core.tenancy.organizations`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from core.kernel.errors import Invalid
from core.kernel.principals import OrganizationStanding, OrganizationStatus, Role

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.kernel.values import Slug

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


def standing(organization: Organization, membership: Membership | None) -> OrganizationStanding:
    """What access.require judges by."""
    return OrganizationStanding(
        id=organization.id,
        slug=organization.slug,
        status=organization.status,
        role=membership.role if membership else None,
        confirmed=membership is not None and membership.confirmed_at is not None,
    )
