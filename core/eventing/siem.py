"""Forwarding an organization's audit log to its SIEM (docs/adr/0014).

While forwarding is on, every entry is queued in the transaction that records it. The forwarder leases an organization,
sends the first entries in its queue, and removes the accepted entries. Every entry therefore arrives at least once and
in order. The entries are read when they are sent, so a redacted or removed entry is not sent. The token is stored
encrypted (security W-7).
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from core.eventing import events
from core.eventing.audit import lock_organization_to_forward
from core.eventing.model import audit, siem
from core.eventing.model.audit import AuditEntry
from core.kernel import callers, outbound
from core.kernel.causes import SYSTEM
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.kernel.values import new_id
from core.tenancy import organizations
from ports import Ports
from ports.storage import Transaction

_RESULTS: Final[Mapping[outbound.SendFailure, siem.SiemResult]] = {reason: siem.SiemResult[reason.name] for reason in outbound.SendFailure}


async def configure(
    ports: Ports, caller: callers.OrganizationCaller, *, provider: siem.SiemProvider, endpoint_url: str, token: str, enabled: bool
) -> siem.SiemStatus:
    """Replace the organization's SIEM configuration.

    If the configuration is enabled, new entries are forwarded from now on. Entries that are already queued go to the
    new SIEM, too. The SIEM gets what the audit log shows, so the caller may read the log.
    """
    sink = siem.new_sink(caller.acts_in.id, provider=provider, endpoint_url=endpoint_url, token=token, enabled=enabled)
    async with ports.storage.transaction(by=caller) as tx:
        await store(tx, caller, sink, ports.clock.now())
        status = await tx.siem.status(sink.org_id)
    return status or refuse(siem.SiemNotConfigured)


async def store(tx: Transaction, caller: callers.OrganizationCaller, sink: siem.SiemSink, now: datetime) -> None:
    """Lock the organization, and replace its SIEM configuration."""
    await lock_organization_to_forward(tx, caller, Capability.INTEGRATIONS_MANAGE)
    await tx.siem.put(new_id(), sink, now)
    tx.record(events.siem_configured(sink))


async def get_status(ports: Ports, caller: callers.OrganizationCaller) -> siem.SiemStatus:
    """Return the configuration and the forwarding state. Raises: SiemNotConfigured."""
    async with ports.storage.reading() as read:
        return await read.siem.status(caller.acts_in.id) or refuse(siem.SiemNotConfigured)


async def remove(ports: Ports, caller: callers.OrganizationCaller) -> None:
    """Remove the configuration and stop forwarding. Queued entries are not sent."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        removed = await tx.siem.remove(organization.id, ports.clock.now()) or refuse(siem.SiemNotConfigured)
        tx.record(events.siem_removed(removed))


async def send_test_entry(ports: Ports, caller: callers.OrganizationCaller) -> siem.SiemResult:
    """Send an entry that is not in the log, even if forwarding is disabled.

    An organization can run one test at a time; for a second test, return SiemResult.BUSY.
    """
    org_id, now = caller.acts_in.id, ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        sink = await tx.siem.sink(org_id) or refuse(siem.SiemNotConfigured)
        if not await tx.siem.begin_test(org_id, now, now + siem.LEASE):
            return siem.SiemResult.BUSY
    try:
        return await post(ports, sink, siem.encode_entries(sink.provider, [_test_entry(caller, now)], now)[0])
    finally:
        async with ports.storage.transaction(by=caller) as tx:
            await tx.siem.end_test(org_id, now + siem.LEASE)


def _test_entry(caller: callers.OrganizationCaller, now: datetime) -> AuditEntry:
    is_shown = not callers.acts_for_platform(caller)
    return AuditEntry(
        id=new_id(),
        org_id=caller.acts_in.id,
        actor=audit.actor_of(caller),
        impersonator=None,
        action="siem.test",
        target_type="organization",
        target_id=str(caller.acts_in.id),
        address=caller.address if is_shown else None,
        agent=caller.agent if is_shown else None,
        success=True,
        details={},
        created_at=now,
    )


async def post(ports: Ports, sink: siem.SiemSink, content: bytes) -> siem.SiemResult:
    """Send a request to the SIEM and return the result."""
    try:
        return siem.result_of(await ports.sender.post(sink.endpoint_url, content, siem.build_headers(sink), siem.POST_TIMEOUT))
    except outbound.SendFailed as failure:
        return _RESULTS[failure.reason]


async def claim_queue(ports: Ports, *, struggling: bool) -> siem.ClaimedSiemQueue | None:
    """Lease the queue that has been due for the longest time, or return None if none is due.

    With `struggling`, this may be a queue with a slow or failed last attempt.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        return await tx.siem.claim(now, now + siem.LEASE, struggling=struggling)


async def attempt(ports: Ports, claimed: siem.ClaimedSiemQueue) -> siem.SiemAttempt | None:
    """Send the queue's first entries.

    Return None if the lease ends too soon for a request. After None, the lease expires, and a later attempt sends the
    entries.
    """
    if claimed.sink is None:
        return siem.SiemAttempt(siem.SiemResult.NOT_SENT)
    async with ports.storage.reading() as read:
        waiting = await read.siem.waiting(claimed.org_id, claimed.id, siem.compute_batch_limit(claimed.failures), siem.MAX_BYTES)
    now = ports.clock.now()
    entries = [queued.entry for queued in waiting if queued.entry is not None]
    content, count = siem.encode_entries(claimed.sink.provider, entries, now)
    unsent = {entry.id for entry in entries[count:]}
    positions = [queued.position for queued in waiting if queued.entry is None or queued.entry.id not in unsent]
    if count == 0:
        return siem.SiemAttempt(siem.SiemResult.GOOD, positions)
    if now + timedelta(seconds=siem.POST_TIMEOUT) > claimed.leased_until:
        return None
    return siem.SiemAttempt(await post(ports, claimed.sink, content), positions, count)


async def settle(ports: Ports, claimed: siem.ClaimedSiemQueue, outcome: siem.SiemAttempt, *, slow: bool, spread: float) -> datetime | None:
    """Record an attempt and end the lease. If the attempt failed, return when the next attempt is due.

    `spread` is a random number from 0 to 1 that varies this time.
    """
    now = ports.clock.now()
    due_at = None if outcome.result is siem.SiemResult.GOOD else now + siem.compute_backoff(claimed.failures + 1, spread)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        if due_at is None:
            await tx.siem.record_success(claimed, outcome.positions, now, posted=outcome.sent > 0, slow=slow)
        else:
            await tx.siem.record_failure(claimed, outcome.result, now, due_at)
    return due_at
