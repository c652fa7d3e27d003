"""Governance by platform owners: entities and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.kernel.errors import Invalid, NotFound

if TYPE_CHECKING:
    from core.accounts.model.accounts import AccountSummary
    from core.kernel.principals import OrganizationStatus
    from core.tenancy.model.organizations import Organization


class TierNotFound(NotFound):
    """There is no tier with this id. GET /api/platform/tiers lists the tiers."""


class WrongOrganizationStatus(Invalid):
    """The organization's status does not allow this. Change the status first."""

    def __init__(self, status: OrganizationStatus, allowed: str) -> None:
        super().__init__(f"The organization is {status}. This is possible only while it is {allowed}.")


@dataclass(frozen=True, slots=True)
class OrganizationDetails:
    """An organization with its owner and the number of its services."""

    organization: Organization
    owner: AccountSummary
    resembles: tuple[str, ...]  # as in `ListedOrganization`
    service_count: int


@dataclass(frozen=True, slots=True)
class ListedOrganization:
    """An organization with the account that owns it.

    `resembles` are the names that its name or slug contains: that of the product, and those of other
    organizations. Case, accents, spaces, punctuation and look-alike letters do not matter. Names of fewer
    than 4 letters count only as a whole. At most 5 are listed.
    """

    organization: Organization
    owner: AccountSummary
    resembles: tuple[str, ...] = ()
