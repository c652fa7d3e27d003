"""The check before users change a fact that decides whether they have to come through a connection (security SP-9).

Otherwise a user could take another address, or remove the link, and continue by a password after the identity provider has removed them.

An undo of a change of the address is not checked: its user must get the account back, whatever a thief has changed. Instead, no user
removes a link or joins an organization who could free themselves by an undo.
"""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from core.accounts.model.accounts import Account
from core.accounts.model.required_connections import ConnectionRequirement, ConnectionStaysRequired
from core.kernel.display import format_utc
from core.kernel.values import Email
from ports.storage import Transaction


async def require_kept_at(tx: Transaction, account: Account, email: Email) -> None:
    """Check that a locked account stays bound to its required connections at another address. Raises: ConnectionStaysRequired."""
    bound = await _load_bound(tx, account.id, account.email)
    kept = await _load_bound(tx, account.id, email) if bound else {}
    for org_id, requirement in bound.items():
        if org_id not in kept:
            raise ConnectionStaysRequired(requirement.organization, "Sign in there once to link your account. Then change the address.")


async def require_kept_without(tx: Transaction, account: Account, connection_id: UUID, now: datetime) -> None:
    """Check that a locked account stays bound to its required connections without a link, also after an undo.

    Raises: ConnectionStaysRequired.
    """
    await _require_not_bound_by(
        tx, account.id, account.email, connection_id, "An admin can unlink you. You can also leave the organization."
    )
    change = await tx.email_changes.last_undoable(account.id, now)
    if change is not None and change.undo_until is not None:
        advice = f"You can undo the change of your address until {format_utc(change.undo_until)}. Unlink your account after that."
        await _require_not_bound_by(tx, account.id, change.old_email, connection_id, advice)


async def require_kept_by_undo(tx: Transaction, account: Account, org_id: UUID, now: datetime) -> None:
    """Check that an undo cannot free the user of a locked account from the required connections of an organization that they join.

    Raises: ConnectionStaysRequired.
    """
    change = await tx.email_changes.last_undoable(account.id, now)
    if change is None or change.undo_until is None:
        return
    requirement = (await _load_bound(tx, account.id, account.email)).get(org_id)
    if requirement is not None and org_id not in await _load_bound(tx, account.id, change.old_email):
        until = format_utc(change.undo_until)
        advice = f"Sign in there to join, or accept the invitation after {until}, when you can no longer undo the change of your address."
        raise ConnectionStaysRequired(requirement.organization, advice)


async def _require_not_bound_by(tx: Transaction, user_id: UUID, email: Email, connection_id: UUID, advice: str) -> None:
    """Check that at this address no requirement binds the user only by the link. Raises: ConnectionStaysRequired."""
    for requirement in (await _load_bound(tx, user_id, email)).values():
        if not requirement.without_link(connection_id).is_bound:
            raise ConnectionStaysRequired(requirement.organization, advice)


async def _load_bound(tx: Transaction, user_id: UUID, email: Email) -> Mapping[UUID, ConnectionRequirement]:
    """Return the requirements that bind the user at this address, by organization."""
    return {each.org_id: each for each in await tx.sign_in_policies.requirements(user_id, email) if each.is_bound}
