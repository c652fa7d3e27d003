"""Cancellations at the payment provider, for subscriptions that ended here.

Every cancellation is requested by a database row. The transaction that makes the change also writes the row. Three
writers request cancellations. These are core.billing.subscriptions, core.billing.provider_state for a purchase after
the service was deleted, and a database trigger for a subscription that is deleted with its service, organization or
account. The use case tries the cancellation immediately. The reconciler retries the cancellation until it succeeds. If
the provider does not know the subscription, the reconciler gives up after GIVE_UP_AFTER.
"""

from uuid import UUID

from core.applications import events
from core.applications.model import plans
from core.kernel import errors
from core.kernel.causes import SYSTEM
from ports import Ports


async def cancel_now(ports: Ports, org_id: UUID, service_id: UUID) -> None:
    """Cancel the subscriptions for this service that just ended, up to IMMEDIATE_LIMIT.

    The reconciler does the rest, and retries the cancellations that fail.
    """
    if not ports.payments.is_on:
        return
    started = ports.clock.now()
    try:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            due = await tx.cancellations.claim_of_service(org_id, service_id, started, started + plans.LEASE, plans.IMMEDIATE_LIMIT)
        for cancellation in due:
            is_in_time = ports.clock.now() < started + plans.IMMEDIATE_TIMEOUT
            if is_in_time and await ports.payments.cancel(cancellation.provider_subscription_id):
                await _record_now(ports, cancellation)
    except (errors.PaymentsFailed, errors.StorageDown):
        pass  # the change itself is done; the adapter has logged the provider's failure


async def _record_now(ports: Ports, cancellation: plans.Cancellation) -> None:
    try:
        await _record(ports, cancellation)
    except errors.StorageDown as error:
        raise plans.CancellationNotRecorded from error


async def cancel_next(ports: Ports) -> bool:
    """Cancel the subscription that has been due longest. Return whether there was a subscription to cancel.

    A cancellation that fails is due again after RETRY_INTERVAL.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        due = await tx.cancellations.claim(now, now + plans.RETRY_INTERVAL)
    if due is None:
        return False
    if await ports.payments.cancel(due.provider_subscription_id):
        await _record(ports, due)
    elif due.asked_at < now - plans.GIVE_UP_AFTER:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await tx.cancellations.complete(due)
    return True


async def _record(ports: Ports, cancellation: plans.Cancellation) -> None:
    async with ports.storage.transaction(by=SYSTEM) as tx:
        # Locks the facts first: an event about this subscription that arrives now waits here, and
        # then finds it ended.
        await tx.billing.mark_ended(cancellation.provider_subscription_id, ports.clock.now())
        organization = await tx.organizations.lock(cancellation.org_id)
        subscription = await tx.subscriptions.lock_of_provider(cancellation.org_id, cancellation.provider_subscription_id)
        if subscription is not None and subscription.status.is_live:
            # An API key reactivated the subscription while the cancellation was on its way. The
            # subscription continues without the provider.
            await tx.subscriptions.detach_from_provider(subscription.org_id, subscription.id, ports.clock.now())
        is_first = await tx.cancellations.complete(cancellation)
        # A subscription that still exists got its audit entry when it ended. A deleted organization
        # has no audit log.
        if is_first and organization is not None and not await tx.subscriptions.exists(cancellation.org_id, cancellation.subscription_id):
            tx.record(events.subscription_canceled_at_provider(cancellation))
