"""The check before users change a fact that decides whether they have to come through a connection (security SP-9).

Otherwise a user could take another address, or remove the link, and continue by a password after the identity provider has removed them.

The undo of an address change is not checked: its user must get the account back, whatever a thief has changed. Instead, a user
who could free themselves by an undo can neither remove a link nor join an organization.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from core.accounts import events
from core.accounts.model import required_connections
from core.accounts.model.accounts import Account
from core.kernel.display import format_utc
from core.kernel.values import Email
from ports import Ports
from ports.storage import Transaction


async def require_kept_at(tx: Transaction, account: Account, email: Email) -> None:
    """Check that a new address keeps a locked account bound to required connections. Connections of applications alone do not count."""
    for requirement in await _load_lost(tx, account, email):
        if not requirement.is_end_user:
            advice = "Sign in there once to link your account, or leave the organization. Then change the address."
            raise required_connections.ConnectionStaysRequired(requirement.organization, advice)


async def block_at(tx: Transaction, account: Account, email: Email, now: datetime) -> None:
    """Block a locked account at the applications of organizations, if their required connections do not bind it at another address.

    Their users have no membership to leave, and an organization must not hold the address of an account that is the user's own.
    """
    for requirement in await _load_lost(tx, account, email):
        await _block(tx, account, requirement.org_id, now)


async def unblock_undone(tx: Transaction, account: Account, now: datetime) -> None:
    """End the blocks by `block_at` that came with the address changes which were undone `now`. The account is locked."""
    for org_id in await tx.end_users.unblock_undone(account.id, now):
        tx.record(events.unblocked_at_applications(org_id, account.id))


async def find_organizations_that_block(ports: Ports, user_id: UUID, email: Email) -> Sequence[str]:
    """Return the names of the organizations that would block the user with another address (`block_at`)."""
    async with ports.storage.reading() as read:
        requirements = await read.sign_in_policies.requirements(user_id, email)
    return [each.organization for each in requirements if each.is_end_user and each.needs_address]


async def give_up_link(tx: Transaction, account: Account, connection_id: UUID, now: datetime) -> None:
    """Check that a locked account stays bound to its required connections without a link, also after an undo.

    As in `block_at`, a user who only uses applications is blocked there.
    """
    await _give_up_link(tx, account, account.email, connection_id, None, now)
    change = await tx.email_changes.last_undoable(account.id, now)
    if change is not None and change.undo_until is not None:
        advice = f"You can undo the change of your address until {format_utc(change.undo_until)}. Unlink your account after that."
        await _give_up_link(tx, account, change.old_email, connection_id, advice, now)


async def require_kept_by_undo(tx: Transaction, account: Account, org_id: UUID, now: datetime) -> None:
    """Refuse to join an organization that requires a connection, if undoing an address change would lift the requirement."""
    change = await tx.email_changes.last_undoable(account.id, now)
    if change is None or change.undo_until is None:
        return
    requirement = (await _load_bound(tx, account.id, account.email)).get(org_id)
    if requirement is not None and org_id not in await _load_bound(tx, account.id, change.old_email):
        until = format_utc(change.undo_until)
        advice = f"Sign in there to join, or accept the invitation after {until}, when you can no longer undo the change of your address."
        raise required_connections.ConnectionStaysRequired(requirement.organization, advice)


async def _give_up_link(tx: Transaction, account: Account, email: Email, connection_id: UUID, advice: str | None, now: datetime) -> None:
    for requirement in (await _load_bound(tx, account.id, email)).values():
        if requirement.without_link(connection_id).is_bound:
            continue
        if not requirement.is_end_user:
            way_out = "" if requirement.is_blocked else " You can also leave the organization."
            raise required_connections.ConnectionStaysRequired(requirement.organization, advice or f"An admin can unlink you.{way_out}")
        await _block(tx, account, requirement.org_id, now)


async def _block(tx: Transaction, account: Account, org_id: UUID, now: datetime) -> None:
    if await tx.end_users.block(org_id, account.id, now):
        await tx.organization_sessions.end(org_id, [account.id], now)
        tx.record(events.blocked_at_applications(org_id, account.id))


async def _load_lost(tx: Transaction, account: Account, email: Email) -> Sequence[required_connections.ConnectionRequirement]:
    """Return the requirements that bind the user now, and not at this address."""
    bound = await _load_bound(tx, account.id, account.email)
    kept = await _load_bound(tx, account.id, email) if bound else {}
    return [requirement for org_id, requirement in bound.items() if org_id not in kept]


async def _load_bound(tx: Transaction, user_id: UUID, email: Email) -> Mapping[UUID, required_connections.ConnectionRequirement]:
    """Return the requirements that bind the user at this address, by organization."""
    return {each.org_id: each for each in await tx.sign_in_policies.requirements(user_id, email) if each.is_bound}
