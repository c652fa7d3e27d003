"""Storage for audit logs, webhooks, their deliveries, and SIEM forwarding."""

from collections.abc import Awaitable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.eventing.model import audit, siem, webhooks
from core.eventing.model.sentences import Names
from core.kernel import values

# Audit logs


class AuditRead(Protocol):
    """Read access to the organizations' audit logs.

    Without `org_id`, the log is the platform's: the entries that belong to no organization.
    """

    async def page(self, org_id: UUID | None, filter_: audit.AuditFilter, page: values.Page) -> values.PageResult[audit.AuditEntry]:
        """Return a page with the matching entries, newest first, with the total number.

        In the platform's log, and with a filter by success, time or found objects, only the newest MAX_LISTED matching
        entries have pages and are counted. Runs two statements.
        """

    async def by_id(self, org_id: UUID | None, entry_id: UUID) -> audit.AuditEntry | None: ...

    async def batch(
        self, org_id: UUID | None, filter_: audit.AuditFilter, last: audit.AuditEntry | None, limit: int
    ) -> list[audit.AuditEntry]:
        """Return the next matching entries, newest first. `last` is the last entry in the batch before, or None."""

    async def names(self, org_id: UUID | None, objects: Mapping[str, Collection[str]]) -> Names:
        """Return these objects' names today, ids by type. Objects that the organization does not know are left out.

        For an organization, a user's own name is there only if the membership is confirmed (security R-9).
        """

    async def find_objects(self, org_id: UUID | None, text: str, limit: int) -> list[audit.ObjectKey]:
        """Return at most `limit` members, application users and further objects in the organization, if an address or name has the text.

        Members are found by any part of the address and the beginning of a name, application users by the beginning of
        the address, invitations by the whole address, further objects by a part of the name.

        For the platform, accounts are found by the whole address or the beginning of a name, organizations by the slug,
        the platform's service accounts by a part of the name.
        """


class Audit(Protocol):
    """Write access to the audit logs. `Transaction.record` adds the entries."""

    async def forget(self, user_id: UUID) -> None:
        """Remove the entries about the user's own activity only from all logs.

        Such entries are about the account's security, the user's sign-ins, and their address changes. The totals that
        count entries and members' logins are decremented, too.
        """

    async def forget_in_service(self, org_id: UUID, user_id: UUID, service_slug: str) -> None:
        """Remove the entries about the user's own activity in this service only from the organization's log.

        The entry totals are decremented, too.
        """


class AuditOutcomes(Protocol):
    """Changing the outcome of recorded requests."""

    async def mark_failed(self, entry_id: UUID) -> None:
        """Set `success` to false in an entry `impersonation.request`."""


# Webhooks


class WebhooksRead(Protocol):
    """Read access to the organizations' webhooks."""

    async def of_org(self, org_id: UUID) -> list[webhooks.Webhook]:
        """Return all the organization's webhooks, oldest first."""

    async def by_id(self, org_id: UUID, webhook_id: UUID) -> webhooks.Webhook | None: ...


class Webhooks(WebhooksRead, Protocol):
    """Write access to webhooks. Callers lock the organization first. Secrets are stored encrypted."""

    async def add(self, webhook: webhooks.Webhook, secret: str) -> None:
        """Add a webhook. Raises: WebhookNameTaken."""

    async def save(self, webhook: webhooks.Webhook) -> None:
        """Store a webhook's changes and wake the dispatchers in all processes. Raises: WebhookNameTaken."""

    async def rotate(self, webhook: webhooks.Webhook, secret: str, former_until: datetime) -> None:
        """Replace the signing secret.

        The old secret signs beside the new secret until `former_until`. Older secrets sign until their own time ends.
        Only the newest FORMER_SECRETS_KEPT older secrets are kept.
        """

    async def delete(self, org_id: UUID, webhook_id: UUID, now: datetime) -> None:
        """Delete a webhook. The housekeeper deletes the webhook's deliveries."""


# Webhook deliveries


class DeliveriesRead(Protocol):
    """Read access to webhook deliveries."""

    async def page(
        self, org_id: UUID, webhook_id: UUID, page: values.Page, *, event_type: str | None, delivered: bool | None
    ) -> values.PageResult[webhooks.Delivery]:
        """Return a page with the deliveries, newest first, with the total number. Runs two statements."""

    async def by_id(self, org_id: UUID, webhook_id: UUID, delivery_id: UUID) -> webhooks.Delivery | None: ...

    async def health(self, org_id: UUID, webhook_ids: Sequence[UUID]) -> dict[UUID, webhooks.WebhookHealth]:
        """Return these webhooks' health. Webhooks without an attempt are left out."""

    async def count_to_resend(self, org_id: UUID, webhook_id: UUID, since: datetime | None) -> int:
        """Return how many deliveries `resend` would queue without a limit, at most COUNTED_TO_RESEND."""


class Deliveries(DeliveriesRead, Protocol):
    """The queue for webhook deliveries. `Transaction.record` adds the deliveries for events."""

    async def add(
        self, delivery_id: UUID, org_id: UUID, webhook_id: UUID, event_type: str, payload: str, actor_id: UUID, now: datetime
    ) -> webhooks.Delivery:
        """Queue a delivery. The commit wakes the dispatchers in all processes. Callers lock the organization first."""

    async def add_copy(self, org_id: UUID, webhook_id: UUID, delivery_id: UUID, new_id: UUID, now: datetime) -> webhooks.Delivery | None:
        """Queue a copy of a delivery, with the id `new_id`.

        Return None if the webhook has no delivery `delivery_id`. Otherwise as `add`.
        """

    async def resend(self, org_id: UUID, webhook_id: UUID, since: datetime | None, now: datetime) -> int:
        """Queue copies of deliveries that failed in all attempts, oldest first, at most RESEND_LIMIT. Return their number.

        Deliveries that were sent again before, tests, and events before `since` are left out.
        """

    async def purge(self, webhook_id: UUID, limit: int) -> None:
        """Delete at most `limit` deliveries to a deleted webhook."""

    async def record(self, outcomes: Sequence[webhooks.DeliveryOutcome[webhooks.ClaimedDelivery]]) -> None:
        """Store attempt outcomes.

        A failure is ignored if the delivery was claimed again since, because the later attempt
        decides.
        """

    async def wake(self, now: datetime, limit: int) -> None:
        """Change at most `limit` waiting deliveries to due if their time has come. `claim` sees only due deliveries."""

    def next_due(self) -> Awaitable[datetime | None]:
        """Return when the earliest waiting delivery is due.

        None means that no delivery is waiting. The time is in the past if more deliveries were due
        than `wake` could change.
        """

    async def claim(self, now: datetime, lease_until: datetime, capacity: webhooks.DispatchCapacity) -> list[webhooks.ClaimedDelivery]:
        """Lease due deliveries to active webhooks, as far as there is capacity.

        Webhooks in inactive organizations are skipped.

        A delivery becomes due again at `lease_until`. Organizations and webhooks share the slots by the rules in
        DispatchCapacity.
        """


# Logout notices


class LogoutNotices(Protocol):
    """The queue for logout notices. When an OpenID Connect session ends, a notice is added if its application wants notices.

    The queue works as the queue for webhook deliveries, but a notice that was delivered or given up is deleted.
    """

    async def record(self, outcomes: Sequence[webhooks.DeliveryOutcome[webhooks.ClaimedLogoutNotice]]) -> list[UUID]:
        """Store attempt outcomes. Return the ids of the notices that were given up with this call."""

    async def wake(self, now: datetime, limit: int) -> None:
        """Change at most `limit` waiting notices to due if their time has come."""

    def next_due(self) -> Awaitable[datetime | None]:
        """Return when the earliest waiting notice is due, as for deliveries."""

    async def claim(self, now: datetime, lease_until: datetime, capacity: webhooks.DispatchCapacity) -> list[webhooks.ClaimedLogoutNotice]:
        """Lease due notices, as far as there is capacity.

        Applications without a logout URI, and applications in inactive organizations, are skipped.
        """


# SIEM forwarding


class SiemRead(Protocol):
    """Read access to the organizations' SIEM configurations and queues."""

    async def status(self, org_id: UUID) -> siem.SiemStatus | None:
        """Return the configuration and the forwarding state. Queued entries are counted up to PENDING_CAP."""

    async def sink(self, org_id: UUID) -> siem.SiemSink | None:
        """Return the configuration with its token. Raises: SealBroken."""

    async def waiting(self, org_id: UUID, siem_id: UUID, limit: int, max_bytes: int) -> list[siem.QueuedEntry]:
        """Return the queue's first positions with the entries as they are now.

        The list has at most `limit` positions, and ends after the entry that reaches `max_bytes`.
        """


class Siem(SiemRead, Protocol):
    """Write access to SIEM configurations and queues.

    Tokens are stored encrypted. Callers of `put` and `remove` lock the organization first.
    Recording an entry reads the configuration without a lock.
    """

    async def put(self, siem_id: UUID, sink: siem.SiemSink, now: datetime) -> None:
        """Add the configuration, or replace the present configuration, which keeps its id and its queue."""

    async def remove(self, org_id: UUID, now: datetime) -> siem.SiemConfiguration | None:
        """Remove and return the configuration. The housekeeper deletes the queue."""

    async def begin_test(self, org_id: UUID, now: datetime, until: datetime) -> bool:
        """Reserve the organization's test until this time. Return False if another test is running."""

    async def end_test(self, org_id: UUID, until: datetime) -> None:
        """End the reservation that `begin_test` made with the same `until`."""

    async def claim(self, now: datetime, leased_until: datetime, *, struggling: bool) -> siem.ClaimedSiemQueue | None:
        """Lease the queue that has been due for the longest time.

        Only enabled configurations with a queued entry in active organizations are considered.

        With `struggling`, this may be a queue with a slow or failed last attempt. No second process can claim the queue
        before `leased_until`.
        """

    async def record_success(
        self, claimed: siem.ClaimedSiemQueue, positions: Sequence[int], now: datetime, *, posted: bool, slow: bool
    ) -> None:
        """Remove these positions from the queue and make the rest due now.

        `posted` is false if no request was necessary. Without a request, the forwarding state stays as it is.
        """

    async def record_failure(self, claimed: siem.ClaimedSiemQueue, failure: siem.SiemResult, now: datetime, due_at: datetime) -> None:
        """End the lease, keep all entries, and make the queue due at `due_at`.

        Does nothing if another process leased the queue after this lease expired.
        """
