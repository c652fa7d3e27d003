"""Changes to an account's email address (security A-9).

A user's change is pending until the new address is proved. Until then the account keeps its address. The notice to the
old address has a link that undoes the change, also after it took effect (`undo`). Organizations can change addresses at
once in accounts that they control.
"""

from datetime import datetime
from uuid import UUID

from core.accounts import events, factor_changes, required_connections, security_notices
from core.accounts.email_queue import require_within_limit
from core.accounts.model import accounts, email_queue
from core.accounts.own_account import lock_own_account
from core.kernel.callers import Person
from core.kernel.values import Email
from ports import Ports
from ports.storage import Transaction


async def find_pending(ports: Ports, user_id: UUID) -> accounts.EmailChange | None:
    """Return the user's pending change, if any."""
    async with ports.storage.reading() as read:
        return await read.email_changes.pending(user_id, ports.clock.now())


async def request(ports: Ports, caller: Person, email: Email) -> accounts.EmailChange | None:
    """Request to change the caller's address, and return the pending change.

    The new address gets a link that proves it. If the present address is verified, the user gets a notice with a link
    that undoes the change (`security_notices.find_undo_address`). A new request replaces the pending change. For the
    same address again, only the proof is sent again. The present address cancels the pending change, and returns None.

    Raises: SignInNotRecent for another address, if the sign-in is not fresh; EmailNotFree;
    TooManyEmailChanges; ConnectionStaysRequired.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_own_account(tx, caller, now)
        if email == account.email:
            await tx.email_changes.cancel_pending(account.id, now)
            return None
        await factor_changes.require_fresh_sign_in(ports, tx, caller, account, now)
        await required_connections.require_kept_at(tx, account, email)
        pending = await tx.email_changes.pending(account.id, now)
        if pending is None or pending.new_email != email:
            pending = await _add(ports, tx, account, caller.session_id, email, now)
        await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.CONFIRM_EMAIL_CHANGE, email, now, email_change_id=pending.id))
    return pending


async def _add(
    ports: Ports, tx: Transaction, account: accounts.Account, session_id: UUID, email: Email, now: datetime
) -> accounts.EmailChange:
    # This limit replaces the recipient limit for the notices: a session thief must not be able to
    # use that limit up and then change the address without a notice.
    earlier = await tx.email_changes.nth_newest_at(account.id, ports.policy.mails_per_recipient)
    require_within_limit(earlier, now, accounts.TooManyEmailChanges)
    if await tx.email_changes.is_taken(email, account.id, now):
        raise accounts.EmailNotFree
    undo_address = await security_notices.find_undo_address(tx, account, now)
    change = accounts.new_email_change(account, undo_address, session_id, email, ports.policy.verification_ttl, now)
    await tx.email_changes.cancel_pending(account.id, now)
    await tx.email_changes.add(change)
    if change.undo_until is not None:
        await security_notices.notify(tx, account, email_queue.EmailKind.EMAIL_CHANGE_REQUESTED, now, session_id=session_id)
    tx.record(events.email_change_requested(account.id))
    return change


async def cancel(ports: Ports, caller: Person) -> None:
    """Cancel the caller's pending change. If nothing is pending, nothing happens."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_own_account(tx, caller, now)
        await tx.email_changes.cancel_pending(account.id, now)


async def cancel_of_other_sessions(tx: Transaction, user_id: UUID, session_id: UUID, now: datetime) -> None:
    """Cancel a locked account's pending change, unless this session requested it."""
    pending = await tx.email_changes.pending(user_id, now)
    if pending is not None and pending.session_id != session_id:
        await tx.email_changes.cancel_pending(user_id, now)


async def resend(ports: Ports, caller: Person) -> bool:
    """Queue another email with the link that proves the new address. Return whether a change is pending."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_own_account(tx, caller, now)
        pending = await tx.email_changes.pending(account.id, now)
        if pending is not None:
            await tx.email_queue.add(
                email_queue.new_email(email_queue.EmailKind.CONFIRM_EMAIL_CHANGE, pending.new_email, now, email_change_id=pending.id)
            )
    return pending is not None


async def complete(tx: Transaction, account: accounts.Account, email: Email, now: datetime) -> None:
    """Give a locked account the address that its pending change names, and that was just proved.

    Links to the old address and pending sign-ins end. All sessions end, except the session that requested
    the change.

    Raises: LinkInvalid if no change to this address is pending; NewEmailTaken; ConnectionStaysRequired.
    """
    change = await tx.email_changes.pending(account.id, now)
    if change is None or change.new_email != email:
        raise accounts.LinkInvalid
    await required_connections.require_kept_at(tx, account, email)  # a policy may be newer than the request
    await required_connections.block_at(tx, account, email, now)
    try:
        await _set_email(tx, account, email, now)
    except accounts.EmailNotFree:
        raise accounts.NewEmailTaken from None
    await tx.accounts.mark_verified(account.id, now)
    await tx.email_changes.mark_proved(change.id, now)
    await tx.sessions.end_others(account.id, change.session_id, now)
    tx.record(events.email_changed(account.id))


async def change_at_once(tx: Transaction, account: accounts.Account, email: Email, now: datetime) -> None:
    """Give a locked account another address, which is unverified, on behalf of an organization that controls the account.

    Links sent to the old address, pending sign-ins and the user's own changes end. These can no longer
    be undone either: the organization decides the address. The caller decides which sessions end.

    Raises: EmailNotFree.
    """
    await _set_email(tx, account, email, now)
    await end_all(tx, account, now)


async def end_all(tx: Transaction, account: accounts.Account, now: datetime) -> None:
    """Cancel a locked account's pending change, and let no undo link work any longer."""
    await tx.email_changes.end_all(account.id, now)
    await tx.security_notices.end_all(account.id, now)


async def _set_email(tx: Transaction, account: accounts.Account, email: Email, now: datetime) -> None:
    """Set an unverified address. End pending sign-ins, and links that were sent to the old address. Raises: EmailNotFree."""
    try:
        await tx.accounts.change_email(account.id, email, now)
    except accounts.EmailTaken:
        raise accounts.EmailNotFree from None  # the API answers 400 here, and 409 at registration
    await _end_links(tx, account)


async def _end_links(tx: Transaction, account: accounts.Account) -> None:
    for purpose in email_queue.TokenPurpose:
        await tx.one_time_tokens.void(account.id, purpose)
    await tx.flows.forget_user(account.id)


async def undo_since(tx: Transaction, account: accounts.Account, since: datetime, now: datetime) -> Email:
    """Undo the changes to a locked account's address since then, and return its address. Links in emails end in any case."""
    change = await tx.email_changes.first_since(account.id, since)
    if change is None:
        await _end_links(tx, account)
        return account.email
    await tx.email_changes.undo(change, now)
    await required_connections.unblock_undone(tx, account, now)
    if account.email == change.old_email:
        await _end_links(tx, account)
    else:
        await _set_email(tx, account, change.old_email, now)
        await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.EMAIL_CHANGED, account.email, now))
        tx.record(events.email_changed(account.id))
    tx.record(events.email_change_undone(account.id))
    return change.old_email
