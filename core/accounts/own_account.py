"""The locks on the caller's own account, and on another account before something is stored about its user."""

from datetime import datetime
from uuid import UUID

from core.accounts.model.accounts import Account
from core.kernel import errors
from core.kernel.access import AccountGone
from core.kernel.callers import Person
from ports.storage import Transaction


async def lock_own_account(tx: Transaction, caller: Person, now: datetime) -> Account:
    """Lock the caller's account before a change, and check that their session has not ended.

    The previous holder of the lock may have ended the session: a password reset, for example, or an
    anonymization (security Z-5).
    """
    account = await tx.accounts.lock(caller.user_id) or errors.refuse(AccountGone)
    if caller.service is None:
        await tx.session_contexts.load(caller.session_id, caller.user_id, None, now) or errors.refuse(errors.SessionEnded)
    else:
        await tx.session_contexts.load_of_application(caller.service.client_id, caller.session_id, caller.user_id, now) or errors.refuse(
            errors.SessionEnded
        )
    return account


async def lock_person(tx: Transaction, user_id: UUID) -> Account | None:
    """Lock an account and return it, or None if it was deleted or anonymized: nothing may be stored about its user any longer."""
    account = await tx.accounts.lock(user_id)
    return None if account is None or account.anonymized_at is not None else account
