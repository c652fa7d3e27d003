"""What is asked of storage about plans."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.services import Plan


class PlansRead(Protocol):
    """Plans, looked at; those that were removed are not there any more."""

    async def by_id(self, org_id: UUID, service_id: UUID, plan_id: UUID) -> Plan | None: ...

    async def service_of(self, org_id: UUID, plan_id: UUID) -> UUID | None:
        """Which service of the organization has this plan."""
        ...

    async def listed(self, org_id: UUID, service_id: UUID, after: Plan | None, limit: int) -> list[Plan]:
        """Those of the service that come after this one, the oldest first."""
        ...


class Plans(PlansRead, Protocol):
    """Plans, changed. The organization is locked before any of these."""

    async def add(self, plan: Plan) -> None: ...

    async def save(self, plan: Plan) -> None:
        """Write all that can change of it."""
        ...

    async def remove(self, org_id: UUID, plan_id: UUID, now: datetime) -> None:
        """The plan is gone for everybody but those whose subscription to it has ended."""
        ...
