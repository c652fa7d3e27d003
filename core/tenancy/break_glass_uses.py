"""The report of a use of break glass: a listed user came without the connection that the sign-in policy requires."""

from datetime import datetime
from uuid import UUID

from core.accounts.model.email_queue import EmailKind, new_email
from core.kernel.values import Email
from core.tenancy import events
from ports.storage import Transaction


async def report(tx: Transaction, org_id: UUID, user_id: UUID, email: Email, connection: str, session_id: UUID, now: datetime) -> None:
    """Record a use of break glass, and mail it to all admins and platform owners. A session is reported once.

    `connection` is the slug of the required one.
    """
    if not await tx.policy_passes.add_break_glass_use(org_id, session_id, now):
        return
    tx.record(events.break_glass_used(org_id, user_id, connection))
    for address in sorted({*await tx.members.admin_addresses(org_id), *await tx.accounts.platform_owner_addresses()}):
        await tx.email_queue.add(new_email(EmailKind.BREAK_GLASS_USED, address, now, token=email, org_id=org_id))
