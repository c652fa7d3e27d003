"""The wait of 24 hours after which a user can remove passkeys that they lost (security PK-13).

The wait is for accounts that have and had no second factor, and no sign-in policy that asks for a passkey. All accounts with such a factor
or policy need a recovery (security M-8).
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from core.accounts import events, factor_changes, relying_party, security_notices, session_proofs
from core.accounts.email_queue import require_within_limit
from core.accounts.factors import history, own_proofs
from core.accounts.model import accounts, passkeys
from core.accounts.model.email_queue import EmailKind
from core.accounts.model.mfa import MfaEvent
from core.accounts.model.security_notices import AFTER_WAIT
from core.accounts.own_account import lock_own_account
from core.kernel import access
from core.kernel.callers import Person
from core.kernel.causes import SYSTEM
from core.kernel.errors import refuse
from core.kernel.proofs import Method, first_proof, recent
from core.kernel.sign_in_policy import decision
from core.kernel.sign_in_policy.rules import Rule
from ports import Ports, storage


async def find(ports: Ports, caller: Person) -> passkeys.PasskeyWait | None:
    """Return the caller's wait, or None."""
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(caller.user_id) or refuse(access.AccountGone)
    return passkeys.PasskeyWait.of(account, ports.clock.now())


async def needs_recovery(ports: Ports, caller: Person) -> bool | None:
    """Return whether only a recovery replaces the caller's lost passkey, and no wait does.

    None in a session for a single organization, which must not learn the policies of other organizations.
    """
    return None if caller.restricted_to is not None else await find_refusal(ports, caller) is not None


async def find_refusal(ports: Ports, caller: Person) -> passkeys.RecoveryReplacesPasskey | None:
    """Return why only a recovery replaces the caller's lost passkey, or None. None also if the caller has no passkey for this RP ID."""
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(caller.user_id) or refuse(access.AccountGone)
        if not await relying_party.load_passkeys(ports, read, account):
            return None
        return await _find_refusal(ports, read, account, ports.clock.now())


async def _find_refusal(
    ports: Ports, read: storage.Reading | storage.Transaction, account: accounts.Account, now: datetime
) -> passkeys.RecoveryReplacesPasskey | None:
    """Return why only a recovery replaces this account's lost passkey, or None.

    A recovery is needed if the account has a second factor, or had a second factor 72 hours ago. A recovery is also needed if a sign-in
    policy asks for more, now or later, than all factors except passkeys give together.
    """
    if account.second_factors or (await history.load(ports, read, account, now)).had_one(now):
        return passkeys.RecoveryReplacesPasskey()
    linked = (identity.provider for identity in await read.identities.list_of_user(account.id, None))
    proofs = tuple(first_proof(name, now) for name in (Method.PASSWORD, Method.EMAIL, *linked))
    present = await relying_party.load_without_lost_keys(ports, read, account)
    step_ups = (await factor_changes.load_demands(ports, read, account.id, now)).list_step_ups(present, proofs)
    if step_ups or await factor_changes.needs_recovery(ports, read, account, now):
        return passkeys.RecoveryReplacesPasskey(sorted({step_up.source or "" for step_up in step_ups}))
    return None


async def start(ports: Ports, caller: Person) -> passkeys.PasskeyWait:
    """Start the caller's wait.

    They have shown the password and the mailbox. The addresses of `security_notices` get an email.

    Raises: the errors of `_lock`; PasskeyWaitNotOver if it has started before; TooManyPasskeyWaits.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account, _ = await _lock(ports, tx, caller, now)
        if passkeys.PasskeyWait.of(account, now) is not None:
            raise passkeys.PasskeyWaitNotOver
        earlier = await tx.email_queue.nth_newest_at(account.email, EmailKind.PASSKEY_WAIT_STARTED, ports.policy.mails_per_recipient)
        require_within_limit(earlier, now, passkeys.TooManyPasskeyWaits)
        await tx.passkeys.set_wait(account.id, now)
        await security_notices.notify(tx, account, EmailKind.PASSKEY_WAIT_STARTED, now, session_id=caller.session_id)
        tx.record(events.passkey_wait_started(account.id))
    return passkeys.PasskeyWait(now)


async def finish(ports: Ports, caller: Person) -> None:
    """Remove the caller's lost passkeys after the wait, which works once. An undo restores them."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account, lost = await _lock(ports, tx, caller, now)
        wait = passkeys.PasskeyWait.of(account, now) or refuse(passkeys.NoPasskeyWait)
        if now < wait.over_at:
            raise passkeys.PasskeyWaitNotOver
        await end(tx, account, "removal")
        for passkey in lost:
            await tx.passkeys.remove(account.id, passkey.id, now)
            await session_proofs.forget_passkey(tx, account, passkey.id)
            tx.record(events.passkey_removed(account.id, passkey.id))
        await tx.mfa.log(account.id, [MfaEvent.PASSKEY_REMOVED] * len(lost), caller, now)
        await security_notices.notify(tx, account, EmailKind.PASSKEY_REMOVED, now, session_id=caller.session_id, detail=AFTER_WAIT)


async def cancel(ports: Ports, caller: Person) -> None:
    """Cancel the caller's wait."""
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_own_account(tx, caller, ports.clock.now())
        await end(tx, account, "cancel") or refuse(passkeys.NoPasskeyWait)


async def end(tx: storage.Transaction, account: accounts.Account, by: str) -> bool:
    """End a locked account's wait, and return whether there was a wait. `by` is as in the event."""
    if account.passkey_wait_at is None:
        return False
    await tx.passkeys.set_wait(account.id, None)
    tx.record(events.passkey_wait_ended(account.id, by))
    return True


async def find_missing_proof(ports: Ports, caller: Person) -> decision.Decision | None:
    """Return the next sign-in that `start` and `finish` need from the caller, or None."""
    async with ports.storage.reading() as read:
        return await _find_missing_proof(ports, read, caller, ports.clock.now())


async def _find_missing_proof(
    ports: Ports, read: storage.Reading | storage.Transaction, caller: Person, now: datetime
) -> decision.Decision | None:
    proofs = await own_proofs.load_proofs(read, caller.session_id, caller.user_id, now)
    shown = {proof.method for proof in recent(proofs, now - ports.policy.fresh_sign_in_ttl)}
    missing = next((method for method in (Method.PASSWORD, Method.EMAIL) if method not in shown), None)
    if missing is None:
        return None
    return decision.Decision(
        outcome=decision.Outcome.STEP_UP, rule=Rule.METHODS, methods=frozenset((missing,)), max_age=ports.policy.fresh_sign_in_ttl
    )


async def _lock(
    ports: Ports, tx: storage.Transaction, caller: Person, now: datetime
) -> tuple[accounts.Account, Sequence[passkeys.Passkey]]:
    """Lock the caller's account, and return it with the passkeys that the wait is about."""
    account = await lock_own_account(tx, caller, now)
    lost = await relying_party.load_passkeys(ports, tx, account) or refuse(passkeys.NoPasskey)
    if account.email_verified_at is None:
        raise access.AddressNotVerified
    if account.password_hash is None:
        raise passkeys.PasswordMissing
    if (refusal := await _find_refusal(ports, tx, account, now)) is not None:
        raise refusal
    if (missing := await _find_missing_proof(ports, tx, caller, now)) is not None:
        raise accounts.PasswordAndMailboxNeeded(missing, ports.policy.fresh_sign_in_ttl)
    return account, lost


async def sweep(ports: Ports, holder: UUID) -> dict[str, int] | None:
    """Email the users whose wait is over, and end the waits that expired unused. Return the number of these waits.

    `holder` is not needed, because the lock on the account protects its wait. Only the email depends on this sweep.
    """
    count = 0
    while True:
        now = ports.clock.now()
        async with ports.storage.reading() as read:
            account = await read.passkeys.next_wait(now)
        if account is None:
            return {"passkey_waits": count} if count else {}
        async with ports.storage.transaction(by=SYSTEM) as tx:
            locked = await tx.accounts.lock(account.id)
            if locked is None or locked.passkey_wait_at != account.passkey_wait_at:
                continue  # it has ended, or another process was faster
            if passkeys.PasskeyWait.of(locked, now) is None or not locked.is_usable:
                await end(tx, locked, "expiry")
            elif await tx.passkeys.announce_wait(locked.id):
                await security_notices.notify(tx, locked, EmailKind.PASSKEY_WAIT_OVER, now, session_id=None)
                tx.record(events.passkey_wait_over(locked.id))
        count += 1
