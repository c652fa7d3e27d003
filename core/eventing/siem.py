"""Forwarding the audit log of an organization to a SIEM of its own (decisions, point 213; ops/decisions/0014).

Whatever is recorded while forwarding is on waits in a queue, from the transaction on that records it. The forwarder claims an organization
for a moment, sends the beginning of its queue, and removes what was taken: so each entry arrives at least once, and in its order. What is
sent is read when it is sent, so what was blanked or removed meanwhile is not told. The token is kept sealed (security.md W-7).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from core.eventing import audit_rules, events
from core.eventing.audit_rules import AuditEntry
from core.kernel.errors import refuse
from core.kernel.outbound import SendFailed, SendFailure
from core.kernel.principals import SYSTEM, Capability
from core.kernel.values import new_id
from core.tenancy import organizations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from core.kernel.principals import Member
    from ports import Ports
from core.eventing.siem_rules import (
    LEASE,
    MOST_BYTES,
    WITHIN,
    SiemAttempt,
    ClaimedSiemQueue,
    NotForwarded,
    SiemResult,
    SiemProvider,
    SiemSink,
    SiemStatus,
    at_once,
    backoff,
    body,
    headers,
    judged,
    new_sink,
)

_OF_TROUBLE: Final[Mapping[SendFailure, SiemResult]] = {trouble: SiemResult[trouble.name] for trouble in SendFailure}


async def configure(ports: Ports, caller: Member, *, provider: SiemProvider, endpoint_url: str, token: str, enabled: bool) -> SiemStatus:
    """Forward what is recorded from now on, or not, as this says. What waits already goes where it says, too.

    Raises outbound.TargetInvalid, TokenUnusable, and what organizations.lock_organization_for raises.
    """
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        sink = new_sink(organization.id, provider=provider, endpoint_url=endpoint_url, token=token, enabled=enabled)
        await tx.siem.put(new_id(), sink, ports.clock.now())
        tx.record(events.siem_configured(sink))
        standing = await tx.siem.standing(sink.org_id)
    return standing or refuse(NotForwarded)


async def current(ports: Ports, caller: Member) -> SiemStatus:
    """Where it is forwarded to, and how that goes. Raises NotForwarded."""
    async with ports.storage.reading() as read:
        return await read.siem.standing(caller.acts_in.id) or refuse(NotForwarded)


async def remove(ports: Ports, caller: Member) -> None:
    """Forward nothing any more, not even what waits. Raises NotForwarded, and what organizations.lock_organization_for raises."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        removed = await tx.siem.remove(organization.id, ports.clock.now()) or refuse(NotForwarded)
        tx.record(events.siem_removed(removed))


async def try_out(ports: Ports, caller: Member) -> SiemResult:
    """Send one entry that is in no log, enabled or not; of one organization one at a time. Raises NotForwarded."""
    org_id, now = caller.acts_in.id, ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        sink = await tx.siem.sink(org_id) or refuse(NotForwarded)
        if not await tx.siem.begin_test(org_id, now, now + LEASE):
            return SiemResult.BUSY
    try:
        return await post(ports, sink, body(sink.provider, [_test_entry(caller, now)], now)[0])
    finally:
        async with ports.storage.transaction(by=caller) as tx:
            await tx.siem.end_test(org_id, now + LEASE)


def _test_entry(caller: Member, now: datetime) -> AuditEntry:
    return AuditEntry(
        id=new_id(),
        org_id=caller.acts_in.id,
        actor=audit_rules.AuditActor(str(caller.user_id), caller.email, caller.is_platform_owner),
        impersonator=None,
        action="siem.test",
        target_type="organization",
        target_id=str(caller.acts_in.id),
        address=caller.address,
        agent=caller.agent,
        success=True,
        details={},
        created_at=now,
    )


async def post(ports: Ports, sink: SiemSink, content: bytes) -> SiemResult:
    """Send this, and say what came of it."""
    try:
        return judged(await ports.sender.post(sink.endpoint_url, content, headers(sink), WITHIN))
    except SendFailed as failure:
        return _OF_TROUBLE[failure.reason]


async def claim_queue(ports: Ports, *, struggling: bool) -> ClaimedSiemQueue | None:
    """The organization whose turn it is, leased to the caller; with `struggling` also one that was slow or failed the last time."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        return await tx.siem.claim(now, now + LEASE, struggling=struggling)


async def attempt(ports: Ports, claimed: ClaimedSiemQueue) -> SiemAttempt | None:
    """Send the beginning of the queue, as it is now. None where there was no time left for it: the lease ends, and another one does it."""
    if claimed.sink is None:
        return SiemAttempt(SiemResult.NOT_SENT)
    async with ports.storage.reading() as read:
        waiting = await read.siem.waiting(claimed.org_id, claimed.id, at_once(claimed.failures), MOST_BYTES)
    now = ports.clock.now()
    entries = [each.entry for each in waiting if each.entry is not None]
    content, count = body(claimed.sink.provider, entries, now)
    left = {entry.id for entry in entries[count:]}
    positions = [each.position for each in waiting if each.entry is None or each.entry.id not in left]
    if count == 0:
        return SiemAttempt(SiemResult.GOOD, positions)
    if now + timedelta(seconds=WITHIN) > claimed.leased_until:
        return None
    return SiemAttempt(await post(ports, claimed.sink, content), positions, count)


async def settle(ports: Ports, claimed: ClaimedSiemQueue, done: SiemAttempt, *, slow: bool, spread: float) -> datetime | None:
    """Keep what came of an attempt, and let go of the lease: when the next one is due, if this one failed."""
    now = ports.clock.now()
    due_at = None if done.result is SiemResult.GOOD else now + backoff(claimed.failures + 1, spread)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        if due_at is None:
            await tx.siem.taken(claimed, done.positions, now, posted=done.sent > 0, slow=slow)
        else:
            await tx.siem.failed(claimed, done.result, now, due_at)
    return due_at
