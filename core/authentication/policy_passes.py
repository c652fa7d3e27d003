"""The passes of sessions that meet a sign-in policy, and the reports of break glass: a listed user came without the required connection."""

from datetime import datetime
from uuid import UUID

from core.accounts.model.email_queue import EmailKind, new_email
from core.authentication.model.policy import IDLE_PARTS, MIN_PASS_TTL, PASS_TTL, PolicyPass, PolicySubject
from core.kernel.callers import Person
from core.kernel.sign_in_policy.decision import Decision
from core.tenancy import events
from ports import Ports
from ports.storage import Transaction


def _pass_of(subject: PolicySubject, decision: Decision, session_id: UUID, now: datetime) -> PolicyPass:
    """Return the pass of a session that is allowed."""
    ttl = PASS_TTL if decision.idle is None else max(MIN_PASS_TTL, min(PASS_TTL, decision.idle / IDLE_PARTS))
    valid_until = now + ttl if decision.valid_until is None else min(now + ttl, decision.valid_until)
    return PolicyPass(
        session_id=session_id,
        org_id=subject.policy.org_id,
        replacing_service_id=subject.replacing_service_id,
        version=subject.policy.version,
        roles_key=subject.roles_key,
        valid_until=valid_until,
        used_at=now,
    )


async def save(tx: Transaction, subject: PolicySubject, decision: Decision, session_id: UUID, now: datetime) -> None:
    """Store the pass of a session that is allowed, and report the use of break glass."""
    await tx.policy_passes.save(_pass_of(subject, decision, session_id, now))
    await report_break_glass(tx, subject, decision, session_id, now)


async def save_at_once(ports: Ports, user: Person, subject: PolicySubject, decision: Decision, session_id: UUID, now: datetime) -> None:
    """Store the pass of a session that is allowed, outside of a transaction. The report of break glass opens one."""
    if decision.breaks_glass:
        async with ports.storage.transaction(by=user) as tx:
            await save(tx, subject, decision, session_id, now)
    else:
        async with ports.storage.autocommit() as statements:
            await statements.policy_passes.save(_pass_of(subject, decision, session_id, now))


async def report_break_glass(tx: Transaction, subject: PolicySubject, decision: Decision, session_id: UUID, now: datetime) -> None:
    """If the decision uses break glass, record it, and email all admins and platform owners. A session is reported once."""
    org_id, account = subject.policy.org_id, subject.account
    if org_id is None or decision.connection is None or not decision.breaks_glass:
        return
    if not await tx.policy_passes.add_break_glass_use(org_id, session_id, now):
        return
    tx.record(events.break_glass_used(org_id, account.id, decision.connection.slug))
    for address in sorted({*await tx.members.admin_addresses(org_id), *await tx.accounts.platform_owner_addresses()}):
        await tx.email_queue.add(new_email(EmailKind.BREAK_GLASS_USED, address, now, token=account.email, org_id=org_id))
