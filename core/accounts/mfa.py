"""An account's second factor: turn it on and off, and replace its backup codes. `passkeys` adds passkeys and security keys."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from core.accounts import attempt_limits, events, factor_changes, passkey_waits, security_notices, session_proofs
from core.accounts.factor_changes import LostAccess
from core.accounts.factors import backup_codes, totp
from core.accounts.model import email_queue, mfa
from core.accounts.model.accounts import Account
from core.accounts.model.attempt_limits import SecretKind
from core.kernel import proofs
from core.kernel.access import AccountGone
from core.kernel.callers import Person
from core.kernel.causes import Caller
from core.kernel.display import PRODUCT
from core.kernel.errors import refuse
from ports import Ports, storage

# The caller's own second factor. Functions that write also raise the errors of `factor_changes.lock_account`.


async def get_status(ports: Ports, caller: Person) -> mfa.MfaStatus:
    """Return the caller's second-factor status."""
    async with ports.storage.reading() as read:
        return await read.mfa.status(caller.user_id) or refuse(AccountGone)


async def is_enabled(ports: Ports, user_id: UUID) -> bool:
    """Return whether sign-ins to the account require a second factor."""
    async with ports.storage.reading() as read:
        status = await read.mfa.status(user_id)
    return status is not None and status.enabled_at is not None


async def start_setup(ports: Ports, caller: Person) -> mfa.MfaSetup:
    """Create a secret for the caller to confirm.

    It replaces an unconfirmed secret.

    A confirmed secret is neither replaced nor returned (security M-5).
    """
    secret, now = ports.codes.new_secret(), ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await factor_changes.lock_account_to_add(ports, tx, caller, now)
        if account.mfa_enabled_at is not None:
            raise mfa.AlreadyEnabled
        await tx.mfa.save_pending_secret(account.id, secret, now)
        await tx.mfa.log(account.id, [mfa.MfaEvent.SETUP_INITIATED], caller, now)
    return mfa.MfaSetup(secret, ports.codes.uri(secret, account.email, PRODUCT))


async def find_pending_setup(ports: Ports, caller: Person) -> mfa.MfaSetup | None:
    """Return the setup that the caller can still confirm, to show it again after a wrong code."""
    async with ports.storage.reading() as read:
        enrollment = await read.mfa.enrollment(caller.user_id)
    if enrollment is None or enrollment.secret is None or not enrollment.is_pending(ports.clock.now()):
        return None
    return mfa.MfaSetup(enrollment.secret, ports.codes.uri(enrollment.secret, caller.email, PRODUCT))


async def confirm_setup(ports: Ports, caller: Person, code: str) -> Sequence[str]:
    """Confirm the new secret with a code, make the app a second factor, and return new backup codes.

    The code is used up (security M-1).

    Raises: SetupCodeMalformed; NotSetUp; AlreadyEnabled; TooManyAttempts; SetupCodeWrong, which
    counts as a failed attempt (security M-2).
    """
    if not totp.accepts(code):
        raise mfa.SetupCodeMalformed
    async with ports.storage.reading() as read:
        secret, setup_at = _confirmable(await read.mfa.enrollment(caller.user_id), ports.clock.now())
    await attempt_limits.count_attempt(ports, SecretKind.MFA, mfa.attempt_subject(caller.user_id))
    now = ports.clock.now()
    step = ports.codes.matching_step(secret, code, now)
    if step is None:
        async with ports.storage.transaction(by=caller) as tx:
            await tx.mfa.log(caller.user_id, [mfa.MfaEvent.SETUP_FAILED], caller, now)
            tx.record(events.mfa_failed(caller.user_id, "setup"))
        raise mfa.SetupCodeWrong
    await attempt_limits.clear(ports, SecretKind.MFA, mfa.attempt_subject(caller.user_id))  # the code was right, even if the rest fails
    codes = await backup_codes.generate(ports)
    async with ports.storage.transaction(by=caller) as tx:
        account = await factor_changes.lock_account_to_add(ports, tx, caller, now)
        # Checked again under the lock: another request may have confirmed or replaced the secret
        # while the backup codes were hashed.
        _confirmable(await tx.mfa.enrollment(account.id), now)
        if not await tx.mfa.use_step(account.id, setup_at, step):
            raise mfa.SetupCodeWrong
        await tx.accounts.set_mfa(account.id, now, now)
        await tx.mfa.replace_codes(account.id, codes.salt, codes.hashes)
        log = [mfa.MfaEvent.SETUP_COMPLETED, mfa.MfaEvent.ENABLED, mfa.MfaEvent.BACKUP_CODES_GENERATED]
        await turn_on(tx, caller, account, proofs.FactorKind.TOTP, proofs.Proof(proofs.Method.TOTP, now), log, now)
    return codes.texts


def _confirmable(enrollment: mfa.MfaEnrollment | None, now: datetime) -> tuple[str, datetime]:
    """Return the pending secret, and when it was set up."""
    if enrollment is not None and enrollment.enabled_at is not None:
        raise mfa.AlreadyEnabled
    if enrollment is None or enrollment.secret is None or enrollment.setup_at is None or not enrollment.is_pending(now):
        raise mfa.NotSetUp
    return enrollment.secret, enrollment.setup_at


async def turn_on(
    tx: storage.Transaction,
    caller: Person,
    account: Account,
    factor: proofs.FactorKind,
    proof: proofs.Proof | None,
    log: Sequence[mfa.MfaEvent],
    now: datetime,
) -> None:
    """End what would go around a new second factor of a locked account, and record it with the entries `log`. The caller has stored it.

    Device trust, pre-auth tokens and personal access tokens end (security M-6, S-1). Sessions continue, but only a session in which it was
    proved can sign in to applications (security X-8). `proof` is from the caller's session.
    """
    await tx.session_sign_ins.require_mfa_again(account.id, caller.session_id, is_proved=proof is not None)
    await session_proofs.forget_seconds_where_missing(tx, account.id)
    if proof is not None:
        await session_proofs.add_second(tx, caller.session_id, account, proof)
    await tx.sessions.end_personal_tokens(account.id, now)
    await tx.devices.distrust(account.id, now)
    await tx.flows.forget_user(account.id)
    await tx.mfa.log(account.id, log, caller, now)
    await security_notices.notify(tx, account, email_queue.EmailKind.MFA_ENABLED, now, session_id=caller.session_id, detail=factor)
    tx.record(*events.mfa_enabled(account.id, factor))


async def disable(ports: Ports, caller: Person) -> bool:
    """Remove the caller's authenticator app, and return whether it was a second factor. A pending secret is deleted too.

    Passkeys and security keys that are a second factor stay, with the backup codes.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await factor_changes.lock_account(ports, tx, caller, now)
        await factor_changes.require_left(ports, tx, account, replace(account, mfa_enabled_at=None), now)
        return await turn_off(tx, caller, account, proofs.FactorKind.TOTP, now)


async def list_losses(ports: Ports, account: Account) -> Sequence[LostAccess]:
    """Return the organizations and applications that would ask this account's user for a new factor without the app."""
    return await factor_changes.list_losses(ports, account, replace(account, mfa_enabled_at=None))


async def turn_off(tx: storage.Transaction, caller: Person, account: Account, factor: proofs.FactorKind, now: datetime) -> bool:
    """End a second factor of a locked account, as its user wishes, and return whether it was on. An undo restores it."""
    if factor is proofs.FactorKind.TOTP and account.mfa_enabled_at is not None:
        await tx.mfa.retire(account.id, account.mfa_enabled_at, now)
    if not await end_factors(tx, caller, account, [factor], now):
        return False
    stays_on = None not in (account.mfa_enabled_at, account.passkey_second_at)
    detail = f"{factor}:on" if stays_on else factor.value
    await security_notices.notify(tx, account, email_queue.EmailKind.MFA_DISABLED, now, session_id=caller.session_id, detail=detail)
    return True


async def regenerate_backup_codes(ports: Ports, caller: Person) -> Sequence[str]:
    """Replace all backup codes, and return the new codes."""
    async with ports.storage.reading() as read:
        status = await read.mfa.status(caller.user_id) or refuse(AccountGone)
    if status.enabled_at is None:
        raise mfa.NotEnabled
    codes = await backup_codes.generate(ports)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await factor_changes.lock_account(ports, tx, caller, now)
        if not account.second_factors:
            raise mfa.NotEnabled
        await tx.mfa.replace_codes(account.id, codes.salt, codes.hashes)
        await session_proofs.forget_backup_codes(tx, account, kept=caller.session_id)
        await tx.mfa.log(account.id, [mfa.MfaEvent.BACKUP_CODES_GENERATED], caller, now)
        await security_notices.notify(tx, account, email_queue.EmailKind.BACKUP_CODES_REGENERATED, now, session_id=caller.session_id)
    return codes.texts


async def reset_factors(tx: storage.Transaction, caller: Caller, account: Account, now: datetime) -> None:
    """Remove all passkeys and second factors from a locked account, and record it.

    All sign-ins end, because a thief may have made any of them.
    """
    await end_factors(tx, caller, account, tuple(mfa.ENABLED), now)
    await passkey_waits.end(tx, account, "recovery")
    await tx.passkeys.remove_all(account.id)
    await end_sign_ins(tx, account.id, now)
    await tx.accounts.set_recovery_required(account.id, None)


async def end_sign_ins(tx: storage.Transaction, user_id: UUID, now: datetime) -> None:
    """End a locked account's sessions, trusted devices and pending sign-ins."""
    await tx.sessions.end_all(user_id, now)
    await tx.devices.distrust(user_id, now)
    await tx.flows.forget_user(user_id)


async def end_factors(
    tx: storage.Transaction, caller: Caller, account: Account, factors: Collection[proofs.FactorKind], now: datetime
) -> tuple[proofs.FactorKind, ...]:
    """End second factors of a locked account, and record their ends. Return the factors that were on. A pending secret is deleted, too."""
    removed = await remove_factors(tx, account, now, factors)
    for factor in removed:
        await tx.mfa.log(account.id, [mfa.DISABLED[factor]], caller, now)
        tx.record(*events.mfa_disabled(account.id, factor))
    return removed


async def is_protected(read: storage.Reading | storage.Transaction, user_id: UUID, now: datetime, org_id: UUID | None = None) -> bool:
    """Return whether only a recovery replaces this user's second factor.

    That is so if a policy, also of an application, asks for a second factor at some risk.

    A removal would go around the policy (security M-8). The platform's policy protects platform owners. `org_id` is the caller's
    organization, if any.
    """
    return await factor_changes.strictest_anywhere(read, user_id, now, org_id) >= proofs.Strength.TWO


async def force_removal(
    tx: storage.Transaction, caller: Caller, account: Account, now: datetime, *, org_id: UUID | None = None, reason: str | None = None
) -> tuple[proofs.FactorKind, ...]:
    """Remove the second factors from a locked account without its user, and return the factors that were on.

    The caller records the events.

    All the user's sessions end, and the user gets an email. `org_id` is the caller's organization, if any.

    Raises: RecoveryNeeded, or OwnerRecoveryNeeded for a platform owner, if the second factor is protected.
    """
    if await is_protected(tx, account.id, now, org_id):
        raise mfa.OwnerRecoveryNeeded if account.is_platform_owner else mfa.RecoveryNeeded
    removed = await remove_factors(tx, account, now)
    if removed:
        await tx.sessions.end_all(account.id, now)
        await tx.mfa.log(account.id, [mfa.FORCE_DISABLED[factor] for factor in removed], caller, now, reason=reason)
        await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.MFA_REMOVED, account.email, now, org_id=org_id))
    return removed


async def remove_factors(
    tx: storage.Transaction, account: Account, now: datetime, factors: Collection[proofs.FactorKind] = tuple(mfa.ENABLED)
) -> tuple[proofs.FactorKind, ...]:
    """End second factors of a locked account, and return the factors that were on.

    Passkeys and security keys stay, but are not asked for.

    Device trust, pre-auth tokens and personal access tokens end, and the backup codes with the last factor. In no session do proofs by
    these factors count as a second factor any longer. The caller records the events.
    """
    is_on = {proofs.FactorKind.TOTP: account.mfa_enabled_at is not None, proofs.FactorKind.PASSKEY: account.passkey_second_at is not None}
    keeps_codes = any(on and factor not in factors for factor, on in is_on.items())
    if proofs.FactorKind.TOTP in factors:
        await tx.mfa.remove(account.id, keeps_codes=keeps_codes)
    elif not keeps_codes:
        await tx.mfa.remove_codes(account.id)
    removed = tuple(factor for factor in factors if is_on[factor])
    if proofs.FactorKind.TOTP in removed:
        await tx.accounts.set_mfa(account.id, None, now)
    if proofs.FactorKind.PASSKEY in removed:
        await tx.passkeys.set_second(account.id, None, now)
    if removed:
        await session_proofs.forget_seconds(tx, account.id, removed, has_others=keeps_codes)
        await tx.devices.distrust(account.id, now)
        await tx.flows.forget_user(account.id)
        await tx.sessions.end_personal_tokens(account.id, now)
    return removed
