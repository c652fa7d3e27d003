"""Locking the caller's own account before a change of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.kernel.errors import SessionEnded, refuse
from core.kernel.principals import AccountGone, Person

if TYPE_CHECKING:
    from datetime import datetime

    from core.accounts.accounts_rules import Account
    from ports.storage import Transaction


async def lock_own_account(tx: Transaction, caller: Person, now: datetime) -> Account:
    """The caller's own account, locked for a change of it, while the session that the caller comes with lives still: whatever held the lock
    before, a reset of the password or an anonymization, may have ended it (security.md Z-5). Raises AccountGone, SessionEnded.
    """
    account = await tx.accounts.lock(caller.user_id) or refuse(AccountGone)
    if caller.service is None:
        await tx.sessions.load_session_context(caller.session_id, caller.user_id, None, now) or refuse(SessionEnded)
    else:
        await tx.sessions.load_application_session_context(caller.service.client_id, caller.session_id, caller.user_id, now) or refuse(SessionEnded)
    return account
