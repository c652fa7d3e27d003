"""What is asked of storage about deliveries of webhooks."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.deliveries import ClaimedDelivery, Delivery, Outcome, Room
from core.values import Listed, Page
from ports.storage.soon import Soon


class DeliveriesRead(Protocol):
    """What webhooks were told, looked at."""

    async def page(self, org_id: UUID, webhook_id: UUID, page: Page, *, event_type: str | None, delivered: bool | None) -> Listed[Delivery]:
        """The newest first. Two statements, one for the total."""
        ...


class Deliveries(DeliveriesRead, Protocol):
    """The queue of what webhooks are to be told. Events come into it by `Transaction.record`."""

    async def add(
        self, delivery_id: UUID, org_id: UUID, webhook_id: UUID, event_type: str, payload: str, actor_id: UUID, now: datetime
    ) -> Delivery:
        """Also wakes the dispatchers of all processes, when the transaction commits. The organization is locked before."""
        ...

    async def repeat(self, org_id: UUID, webhook_id: UUID, delivery_id: UUID, new_id: UUID, now: datetime) -> Delivery | None:
        """The same with the payload of a delivery that there was to this webhook."""
        ...

    async def purge(self, webhook_id: UUID, limit: int) -> None:
        """Remove at most `limit` deliveries to a webhook that was deleted."""
        ...

    async def record(self, outcomes: Sequence[Outcome]) -> None:
        """What became of attempts. A failure is without effect where the delivery has been claimed again since: it is another's now."""
        ...

    async def wake(self, now: datetime, limit: int) -> None:
        """Put at most `limit` of those that have come due among those that can be claimed; `claim` looks at no others."""
        ...

    def next_due(self) -> Soon[datetime]:
        """When the next one falls due that waits; or fell, if there were more than could be woken at once."""
        ...

    async def claim(self, now: datetime, lease_until: datetime, room: Room) -> list[ClaimedDelivery]:
        """Due deliveries to active webhooks of active organizations, as many as there is room for, that nobody else holds; they fall due
        again at `lease_until`. The lowest share is one, and organizations and webhooks take turns."""
        ...
