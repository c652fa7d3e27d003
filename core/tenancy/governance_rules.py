"""Entities, refusals and pure rules of `core.tenancy.governance`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.kernel.errors import Invalid, NotFound

if TYPE_CHECKING:
    from core.accounts.accounts_rules import AccountSummary
    from core.kernel.principals import OrganizationStatus
    from core.tenancy.organizations_rules import Organization


class TierNotFound(NotFound):
    """There is no such tier. GET /api/platform/tiers lists those there are."""


class NotInThisStatus(Invalid):
    """The organization is not in a status that allows this."""

    def __init__(self, status: OrganizationStatus, wanted: str) -> None:
        super().__init__(f"The organization is {status}. Only {wanted} organizations allow this.")


@dataclass(frozen=True, slots=True)
class ListedOrganization:
    """An organization and who owns it."""

    organization: Organization
    owner: AccountSummary
