"""Storage for the answers that sign-in policies gave about sessions."""

from collections.abc import Awaitable
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.authentication.model.policy import PolicyPass, PolicySubject
from core.kernel.callers import PolicyState


class PolicyPassesRead(Protocol):
    """Read access to sign-in policies, and to the facts that they judge. `org_id` None is the platform."""

    def load(self, org_id: UUID | None, service_id: UUID | None, user_id: UUID, session_id: UUID | None) -> Awaitable[PolicySubject | None]:
        """Return the user with the organization's policy and its application's policy, or None without a policy.

        The session's facts are included, if it exists.
        """

    async def state_on_platform(self, session_id: UUID, now: datetime) -> PolicyState | None:
        """Return whether the session has a pass from the platform's policy, or None without a policy."""


class PolicyPasses(PolicyPassesRead, Protocol):
    """Write access to passes."""

    async def save(self, new: PolicyPass) -> None:
        """Store a pass, in place of the session's earlier pass in this organization. Nothing is stored without the session."""

    async def add_break_glass_use(self, org_id: UUID, session_id: UUID, now: datetime) -> bool:
        """Store that the session uses break glass.

        Return False if this was stored before, also for the browser session that the session comes from.
        """


class PolicyPassUse(Protocol):
    """Changes to passes that commit by themselves."""

    async def save(self, new: PolicyPass) -> None:
        """As `PolicyPasses.save`."""

    async def claim_reminder(self, user_id: UUID, now: datetime, before: datetime) -> bool:
        """Store that the user is reminded now that a rule starts later. Return False if that was done after `before`."""
