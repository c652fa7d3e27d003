"""Sending webhook deliveries, and logout notices (OpenID Connect Back-Channel Logout 1.0).

A delivery is queued in its event's transaction, and sent until the receiver accepts it or the attempts run out.

The dispatcher claims deliveries, sends them, and records the outcomes. A claim is a lease that expires, so no delivery
is lost if a process is killed. If a process is killed between sending and recording, the delivery is sent again with
the same id. The delivery order is not guaranteed.

When a session ends, a notice is queued in the same transaction (docs/adr/0031). The notice is sent as a webhook
delivery is: claimed with a lease, and repeated until the application accepts it or the attempts run out. Every attempt
has its own logout token.
"""

from collections.abc import Sequence
from dataclasses import replace

from core.authentication.model.openid import LogoutToken
from core.eventing import events
from core.eventing.model import webhooks
from core.kernel.causes import SYSTEM
from core.kernel.outbound import SendFailed
from core.kernel.values import new_id
from ports import Ports
from ports.storage import Transaction


async def attempt(ports: Ports, delivery: webhooks.ClaimedDelivery, spread: float) -> webhooks.DeliveryOutcome[webhooks.ClaimedDelivery]:
    """Send the delivery once and return the outcome. `spread` is a random number from 0 to 1 that varies when the next attempt starts."""
    if delivery.is_lost:
        return webhooks.failed_outcome(ports.policy, delivery, webhooks.DeliveryFailure.LOST, ports.clock.now(), spread)
    if not delivery.secrets:
        return webhooks.failed_outcome(ports.policy, delivery, webhooks.DeliveryFailure.NOT_SIGNED, ports.clock.now(), spread)
    timeout, started = ports.policy.webhook_timeout.total_seconds(), ports.clock.now()
    try:
        reply = await ports.sender.post(delivery.url, delivery.body, webhooks.build_headers(delivery, started), timeout)
    except SendFailed as failure:
        outcome = webhooks.failed_outcome(ports.policy, delivery, failure.reason, ports.clock.now(), spread)
    else:
        outcome = webhooks.answered_outcome(ports.policy, delivery, reply, ports.clock.now(), spread)
    return replace(outcome, milliseconds=round((outcome.at - started).total_seconds() * 1000))


async def record_and_claim(
    ports: Ports, outcomes: Sequence[webhooks.DeliveryOutcome[webhooks.ClaimedDelivery]], capacity: webhooks.DispatchCapacity
) -> webhooks.DeliveryBatch[webhooks.ClaimedDelivery]:
    """Record the outcomes and claim as many deliveries as the capacity allows.

    The same transaction does both, because the dispatcher does both in every round. The claimed deliveries are leased
    to the caller. If the outcomes of claimed deliveries are not recorded in time, the deliveries become due again.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        if outcomes:
            await tx.deliveries.record(outcomes)
        await tx.deliveries.wake(now, webhooks.WAKE_LIMIT)
        next_due = tx.deliveries.next_due()
        lease_until = now + ports.policy.webhook_timeout + webhooks.LEASE_MARGIN
        claimed = await tx.deliveries.claim(now, lease_until, capacity) if capacity.free > 0 else []
    return webhooks.DeliveryBatch(claimed, await next_due)


async def record_outcomes(ports: Ports, outcomes: Sequence[webhooks.DeliveryOutcome[webhooks.ClaimedDelivery]]) -> None:
    """Record the outcomes without claiming new deliveries."""
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.deliveries.record(outcomes)


async def deactivate_webhook(ports: Ports, delivery: webhooks.ClaimedDelivery) -> None:
    """Deactivate a webhook, because its delivery was answered with 410 Gone. Nothing is sent to it until a member activates it again."""
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.organizations.lock(delivery.org_id)
        old = await tx.webhooks.by_id(delivery.org_id, delivery.webhook_id)
        if old is not None and old.is_active and old.url == delivery.url:  # a member may have changed it already
            new = replace(old, is_active=False, updated_at=ports.clock.now())
            await tx.webhooks.save(new)
            tx.record(events.webhook_updated(old, new))


async def attempt_notice(
    ports: Ports, notice: webhooks.ClaimedLogoutNotice, spread: float
) -> webhooks.DeliveryOutcome[webhooks.ClaimedLogoutNotice]:
    """Send the notice once, with a new logout token, and return the outcome.

    `spread` is a random number from 0 to 1 that varies when the next attempt starts.
    """
    now = ports.clock.now()
    if notice.is_lost:
        return webhooks.failed_outcome(ports.policy, notice, webhooks.DeliveryFailure.LOST, now, spread)
    token = LogoutToken(
        id=new_id(),
        client_id=str(notice.client_id),
        user_id=notice.user_id,
        session_id=notice.session_id,
        issued_at=now,
        expires_at=now + webhooks.LOGOUT_TOKEN_TTL,
    )
    body, timeout = webhooks.request_body(ports.tokens.sign_logout_token(token)), ports.policy.webhook_timeout.total_seconds()
    try:
        reply = await ports.sender.post(notice.url, body, webhooks.HEADERS, timeout)
    except SendFailed as failure:
        return webhooks.failed_outcome(ports.policy, notice, failure.reason, ports.clock.now(), spread)
    return webhooks.notice_outcome(ports.policy, notice, reply, ports.clock.now(), spread)


async def record_and_claim_notices(
    ports: Ports, outcomes: Sequence[webhooks.DeliveryOutcome[webhooks.ClaimedLogoutNotice]], capacity: webhooks.DispatchCapacity
) -> webhooks.DeliveryBatch[webhooks.ClaimedLogoutNotice]:
    """Record the outcomes and claim as many notices as the capacity allows, in one transaction."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await _record_notices(tx, outcomes)
        await tx.logout_notices.wake(now, webhooks.WAKE_LIMIT)
        next_due = tx.logout_notices.next_due()
        lease_until = now + ports.policy.webhook_timeout + webhooks.LEASE_MARGIN
        claimed = await tx.logout_notices.claim(now, lease_until, capacity) if capacity.free > 0 else []
    return webhooks.DeliveryBatch(claimed, await next_due)


async def record_notice_outcomes(ports: Ports, outcomes: Sequence[webhooks.DeliveryOutcome[webhooks.ClaimedLogoutNotice]]) -> None:
    """Record the outcomes without claiming new notices."""
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await _record_notices(tx, outcomes)


async def _record_notices(tx: Transaction, outcomes: Sequence[webhooks.DeliveryOutcome[webhooks.ClaimedLogoutNotice]]) -> None:
    """Record the outcomes, with an event for every notice that is given up."""
    if not outcomes:
        return
    given_up = frozenset(await tx.logout_notices.record(outcomes))
    for outcome in outcomes:
        if outcome.delivery.id in given_up:
            tx.record(events.backchannel_logout_failed(outcome.delivery, outcome.error or "", outcome.status))
