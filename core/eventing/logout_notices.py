"""Sending logout notices (OpenID Connect Back-Channel Logout 1.0).

When a session ends, a notice is queued in the same transaction (docs/adr/0031). The notice is sent as a webhook
delivery is: claimed with a lease, and repeated until the application accepts it or the attempts run out. Every attempt
has its own logout token.
"""

from collections.abc import Sequence

from core.authentication.model.openid import LogoutToken
from core.eventing import events
from core.eventing.model.webhooks import (
    HEADERS,
    LEASE_MARGIN,
    LOGOUT_TOKEN_TTL,
    WAKE_LIMIT,
    ClaimedLogoutNotice,
    DeliveryBatch,
    DeliveryFailure,
    DeliveryOutcome,
    DispatchCapacity,
    failed_outcome,
    notice_outcome,
    request_body,
)
from core.kernel.causes import SYSTEM
from core.kernel.outbound import SendFailed
from core.kernel.values import new_id
from ports import Ports
from ports.storage import Transaction


async def attempt(ports: Ports, notice: ClaimedLogoutNotice, spread: float) -> DeliveryOutcome[ClaimedLogoutNotice]:
    """Send the notice once, with a new logout token, and return the outcome.

    `spread` is a random number from 0 to 1 that varies when the next attempt starts.
    """
    now = ports.clock.now()
    if notice.is_lost:
        return failed_outcome(ports.policy, notice, DeliveryFailure.LOST, now, spread)
    token = LogoutToken(
        id=new_id(),
        client_id=str(notice.client_id),
        user_id=notice.user_id,
        session_id=notice.session_id,
        issued_at=now,
        expires_at=now + LOGOUT_TOKEN_TTL,
    )
    body, timeout = request_body(ports.tokens.sign_logout_token(token)), ports.policy.webhook_timeout.total_seconds()
    try:
        reply = await ports.sender.post(notice.url, body, HEADERS, timeout)
    except SendFailed as failure:
        return failed_outcome(ports.policy, notice, failure.reason, ports.clock.now(), spread)
    return notice_outcome(ports.policy, notice, reply, ports.clock.now(), spread)


async def record_and_claim(
    ports: Ports, outcomes: Sequence[DeliveryOutcome[ClaimedLogoutNotice]], capacity: DispatchCapacity
) -> DeliveryBatch[ClaimedLogoutNotice]:
    """Record the outcomes and claim as many notices as the capacity allows, in one transaction."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await _record(tx, outcomes)
        await tx.logout_notices.wake(now, WAKE_LIMIT)
        next_due = tx.logout_notices.next_due()
        lease_until = now + ports.policy.webhook_timeout + LEASE_MARGIN
        claimed = await tx.logout_notices.claim(now, lease_until, capacity) if capacity.free > 0 else []
    return DeliveryBatch(claimed, await next_due)


async def record_outcomes(ports: Ports, outcomes: Sequence[DeliveryOutcome[ClaimedLogoutNotice]]) -> None:
    """Record the outcomes without claiming new notices."""
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await _record(tx, outcomes)


async def _record(tx: Transaction, outcomes: Sequence[DeliveryOutcome[ClaimedLogoutNotice]]) -> None:
    """Record the outcomes, with an event for every notice that is given up."""
    if not outcomes:
        return
    given_up = frozenset(await tx.logout_notices.record(outcomes))
    for outcome in outcomes:
        if outcome.delivery.id in given_up:
            tx.record(events.backchannel_logout_failed(outcome.delivery, outcome.error or "", outcome.status))
