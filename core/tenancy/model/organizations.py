"""Organizations and their governance."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from core.accounts.model.accounts import AccountSummary
from core.kernel import callers, errors
from core.kernel.display import PRODUCT
from core.kernel.roles import NO_RIGHTS, OWNER, Authority, Capability, Rights, RoleName
from core.kernel.values import Slug

# The limit if neither the organization nor its tier sets one.
DEFAULT_LIMIT = 5
INITIAL_TIER = "free"  # a new organization's tier; a platform owner can change it later
DEVICE_TRUST_DAYS = 30  # as a new organization starts
# How many records at most are removed in the transaction that deletes an organization. The
# housekeeper removes the rest. Only large organizations have more.
IMMEDIATE_PURGE_LIMIT = 10_000


class SlugTaken(errors.Invalid):
    """An organization with this slug already exists. Choose another slug."""


class TooManyWaiting(errors.Invalid):
    """Too many of your organizations wait for approval. Wait until one is approved or rejected, or delete one."""


class EmptyOrganizationUpdate(errors.Invalid):
    """The request changes nothing. Send name, device_trust_days, personal_tokens or members_see_end_users."""


@dataclass(frozen=True, slots=True)
class Tier:
    """The default limits for organizations, and their price per month."""

    id: UUID
    name: str
    display_name: str
    default_max_services: int
    default_max_users: int
    price_cents: int


class LimitSource(StrEnum):
    """Where a limit that is in effect comes from."""

    ORGANIZATION = "organization"
    TIER = "tier"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that is in effect, and its origin."""

    value: int
    source: LimitSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Organization:
    """A tenant. Times are UTC.

    `max_services` and `max_users` are the organization's own limits. With None, the tier's limit applies. Transactions
    that add or remove members also update `member_count`.
    """

    id: UUID
    slug: Slug
    name: str
    status: callers.OrganizationStatus
    tier: Tier | None
    max_services: int | None
    max_users: int | None
    device_trust_days: int
    personal_tokens: bool  # members may use personal access tokens in it
    members_see_end_users: bool  # otherwise only roles above `member` see them
    member_count: int
    created_at: datetime
    updated_at: datetime
    approved_at: datetime | None
    rejected_reason: str | None
    suspended_reason: str | None
    members_changed_at: datetime | None = None  # when a member was last added or removed

    @property
    def user_limit(self) -> Limit:
        """Return how many members the organization may have."""
        return effective_limit(self.max_users, self.tier.default_max_users if self.tier else None)

    @property
    def service_limit(self) -> Limit:
        """Return how many services the organization may have."""
        return effective_limit(self.max_services, self.tier.default_max_services if self.tier else None)


def effective_limit(organization_limit: int | None, tier_limit: int | None) -> Limit:
    """Return an organization's limit, from its own limit and its tier's limit. None means that there is no limit."""
    if organization_limit is not None:
        return Limit(organization_limit, LimitSource.ORGANIZATION)
    if tier_limit is not None:
        return Limit(tier_limit, LimitSource.TIER)
    return Limit(DEFAULT_LIMIT, LimitSource.DEFAULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A user's membership in an organization. Times are UTC.

    `confirmed_at` is None until the member has used the organization. Until that time, the organization has no control
    over the account (security R-5). `rights`, `role_label` and `group_roles` are known for a loaded membership. A new
    membership has none before it is stored.
    """

    id: UUID
    org_id: UUID
    user_id: UUID
    role: RoleName
    created_at: datetime
    confirmed_at: datetime | None
    rights: Rights = NO_RIGHTS
    role_label: str | None = None  # the role's name, if the organization has defined it
    group_roles: tuple[RoleName, ...] | None = None  # further roles, which groups give; None: they give none

    @property
    def roles(self) -> tuple[RoleName, ...]:
        """Return all role names that the member has: the own role first."""
        return (self.role, *(self.group_roles or ()))

    @property
    def is_owner(self) -> bool:
        return self.role == OWNER

    @property
    def authority(self) -> Authority:
        return Authority(self.role, self.rights)


def to_membership_state(organization: Organization, membership: Membership | None) -> callers.MembershipState:
    """Return the facts that `access.require_capability` checks. The membership is the caller's."""
    role, rights = (None, NO_RIGHTS) if membership is None else (membership.role, membership.rights)
    return callers.MembershipState(organization.id, organization.slug, organization.status, role, rights)


class InactiveForMembers(errors.OrganizationNotActive):
    """This organization can't be used now. Ask its owner or one of its admins."""


class ApplicationClosed(errors.OrganizationNotActive):
    """You can't sign in to this application now. Ask the people who run it."""

    def __init__(self, org_slug: str) -> None:
        super().__init__(type(self).__doc__)
        self.org_slug = org_slug


def inactive_refusal(organization: Organization, rights: Rights) -> errors.OrganizationNotActive:
    """Return the refusal for a member whose organization is not active. Only its owner and admins learn why."""
    if Capability.ORGANIZATION_MANAGE not in rights:
        return InactiveForMembers()
    name = organization.name
    match organization.status:
        case callers.OrganizationStatus.SUSPENDED:
            fact = f"The operator of {PRODUCT} has suspended {name}. Until that ends, users cannot sign in to its applications."
            reason = organization.suspended_reason
        case callers.OrganizationStatus.REJECTED:
            fact, reason = f"The operator of {PRODUCT} did not approve {name}.", organization.rejected_reason
        case _:
            return errors.OrganizationNotActive(f"{name} waits for the approval of the operator of {PRODUCT}.")
    return errors.OrganizationNotActive(f"{fact} The reason: {reason}" if reason else f"{fact} Ask the operator about the reason.")


class TierNotFound(errors.NotFound):
    """There is no tier with this id. GET /api/platform/tiers lists the tiers."""


class WrongOrganizationStatus(errors.Invalid):
    """The organization's status does not allow this. Change the status first."""

    def __init__(self, status: callers.OrganizationStatus, allowed: str) -> None:
        super().__init__(f"The organization is {status}. This is possible only while it is {allowed}.")


@dataclass(frozen=True, slots=True)
class OrganizationDetails:
    """An organization with its owner, its service count, and the networks from which its admins may act."""

    organization: Organization
    owner: AccountSummary
    resembles: tuple[str, ...]  # as in `ListedOrganization`
    service_count: int
    admin_networks: tuple[str, ...]  # empty for all


@dataclass(frozen=True, slots=True)
class ListedOrganization:
    """An organization with the account that owns it.

    `resembles` are the names that its name or slug contains: the product's name, and other organizations' names. Case,
    accents, spaces, punctuation and look-alike letters do not matter. Names with fewer than 4 letters count only as a
    whole. At most 5 are listed.
    """

    organization: Organization
    owner: AccountSummary
    resembles: tuple[str, ...] = ()
