"""Storage of the area eventing."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.eventing.audit_rules import AuditEntry, AuditFilter
from core.eventing.deliveries_rules import ClaimedDelivery, Delivery, DeliveryOutcome, DispatchCapacity
from core.eventing.siem_rules import ClaimedSiemQueue, SiemConfiguration, QueuedEntry, SiemResult, SiemSink, SiemStatus
from core.eventing.webhooks_rules import Webhook
from core.kernel.deferred import Deferred
from core.kernel.values import PageResult, Page

# audit: What is asked of storage about audit logs.


class AuditRead(Protocol):
    async def page(self, org_id: UUID, wanted: AuditFilter, page: Page) -> PageResult[AuditEntry]:
        """The organization's entries, the newest first. Two statements: how many there are, and those of the page."""
        ...


class Audit(Protocol):
    async def forget(self, user_id: UUID) -> None:
        """Remove the entries, in whatever log, that tell of nothing but this person's own account. Also counts them out."""
        ...


# webhooks: What is asked of storage about webhooks.


class WebhooksRead(Protocol):
    """The webhooks of organizations, looked at."""

    async def of_org(self, org_id: UUID) -> list[Webhook]:
        """The oldest first."""
        ...

    async def by_id(self, org_id: UUID, webhook_id: UUID) -> Webhook | None: ...


class Webhooks(WebhooksRead, Protocol):
    """The same, changed; their secrets are sealed. The organization is locked before any of these."""

    async def add(self, webhook: Webhook, secret: str) -> None:
        """Raises core.webhooks.WebhookNameTaken."""
        ...

    async def save(self, webhook: Webhook) -> None:
        """Write what may change of it. Also wakes the dispatchers of all processes. Raises core.webhooks.WebhookNameTaken."""
        ...

    async def rotate(self, webhook: Webhook, secret: str, former_until: datetime) -> None:
        """Sign with this secret, and until then with the one that it had as well, beside those before it whose time has not come; of all
        former ones the newest core.webhooks.FORMER_SECRETS_KEPT are kept."""
        ...

    async def delete(self, org_id: UUID, webhook_id: UUID, now: datetime) -> None:
        """Its deliveries are past their use from now on."""
        ...


# deliveries: What is asked of storage about deliveries of webhooks.


class DeliveriesRead(Protocol):
    """What webhooks were told, looked at."""

    async def page(self, org_id: UUID, webhook_id: UUID, page: Page, *, event_type: str | None, delivered: bool | None) -> PageResult[Delivery]:
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

    async def record(self, outcomes: Sequence[DeliveryOutcome]) -> None:
        """What became of attempts. A failure is without effect where the delivery has been claimed again since: it is another's now."""
        ...

    async def wake(self, now: datetime, limit: int) -> None:
        """Put at most `limit` of those that have come due among those that can be claimed; `claim` looks at no others."""
        ...

    def next_due(self) -> Deferred[datetime]:
        """When the next one falls due that waits; or fell, if there were more than could be woken at once."""
        ...

    async def claim(self, now: datetime, lease_until: datetime, room: DispatchCapacity) -> list[ClaimedDelivery]:
        """Due deliveries to active webhooks of active organizations, as many as there is room for, that nobody else holds; they fall due
        again at `lease_until`. The lowest share is one, and organizations and webhooks take turns."""
        ...


# siem: What is asked of storage about forwarding to SIEMs.


class SiemRead(Protocol):
    """Where the audit logs of organizations are forwarded to, looked at."""

    async def standing(self, org_id: UUID) -> SiemStatus | None:
        """With what waits, of which core.siem.COUNTED are counted."""
        ...

    async def sink(self, org_id: UUID) -> SiemSink | None:
        """With its token. Raises SealBroken."""
        ...

    async def waiting(self, org_id: UUID, siem_id: UUID, limit: int, most_bytes: int) -> list[QueuedEntry]:
        """The beginning of the queue, with the entries as they are now: at most `limit`, and no more of them after that many bytes."""
        ...


class Siem(SiemRead, Protocol):
    """Where the audit logs of organizations are forwarded to, changed; tokens are sealed. Records look here, and wait for nobody.

    The organization is locked before `put` and `remove`.
    """

    async def put(self, siem_id: UUID, sink: SiemSink, now: datetime) -> None:
        """In place of what was there, if anything was, which then keeps its id and its queue."""
        ...

    async def remove(self, org_id: UUID, now: datetime) -> SiemConfiguration | None:
        """What was there. Nobody can reach the queue any more; the housekeeper removes it."""
        ...

    async def begin_test(self, org_id: UUID, now: datetime, until: datetime) -> bool:
        """False while another test is running."""
        ...

    async def end_test(self, org_id: UUID, until: datetime) -> None:
        """That of the one that began with this `until`."""
        ...

    async def claim(self, now: datetime, leased_until: datetime, *, struggling: bool) -> ClaimedSiemQueue | None:
        """The one that has been due for the longest, of those that are enabled, whose organizations are active, and for which something
        waits; of those that were slow or failed the last time only with `struggling`. Nobody else claims it before `leased_until`."""
        ...

    async def taken(self, claimed: ClaimedSiemQueue, positions: Sequence[int], now: datetime, *, posted: bool, slow: bool) -> None:
        """Remove these from the queue, and have the rest be due now. What was posted went well; else nothing is known of that."""
        ...

    async def failed(self, claimed: ClaimedSiemQueue, failure: SiemResult, now: datetime, due_at: datetime) -> None:
        """Keep the queue until then. Nothing happens if the lease has ended and somebody else has it."""
        ...


# The repositories of this area, by the kind of access


class EventingReading(Protocol):
    """Read access to the repositories of eventing."""

    @property
    def audit(self) -> AuditRead: ...
    @property
    def deliveries(self) -> DeliveriesRead: ...
    @property
    def siem(self) -> SiemRead: ...
    @property
    def webhooks(self) -> WebhooksRead: ...


class EventingTransaction(Protocol):
    """The repositories of eventing in a transaction."""

    @property
    def audit(self) -> Audit: ...
    @property
    def deliveries(self) -> Deliveries: ...
    @property
    def siem(self) -> Siem: ...
    @property
    def webhooks(self) -> Webhooks: ...
