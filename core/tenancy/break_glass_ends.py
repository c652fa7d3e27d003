"""The end of entries in the list of break glass: they count for owners and admins, and end with their roles."""

from uuid import UUID

from core.tenancy import events
from ports.storage import Transaction


async def end_of_former_admins(tx: Transaction, org_id: UUID) -> None:
    """Take the users off the list who no longer count as admins, or have left, so that a later role does not bring them back.

    All sessions are asked for the sign-in policy again. The caller has locked the organization, and has stored the change.
    """
    left, ended = await tx.sign_in_policies.end_break_glass(org_id)
    if ended:
        await tx.sign_in_policies.renew(org_id)
        tx.record(events.break_glass_users_changed(org_id, {*left, *ended}, left))
