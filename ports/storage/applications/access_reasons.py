"""Storage for the facts that decide what a user may do at applications."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.applications.model.access_reasons import ApplicationFacts, UserState
from core.kernel.values import Page, PageResult
from core.tenancy.model.members import MemberHoldings


class AccessReasonsRead(Protocol):
    """Read access to the facts about a user at an organization's applications."""

    async def find(self, org_id: UUID, user_id: UUID) -> UserState | None:
        """Return the state of a member or end user in the organization, or None."""

    async def applications(self, org_id: UUID, user_id: UUID, page: Page, now: datetime) -> PageResult[ApplicationFacts]:
        """Return a page with the organization's applications, by name, and the facts about the user at every application."""

    async def holdings(self, org_id: UUID, user_ids: Sequence[UUID]) -> dict[UUID, MemberHoldings]:
        """Return these users' groups, application roles and attributes in the organization."""
