"""The second factor of an account: turn it on and off, and replace its backup codes."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from core.accounts import attempt_limits, events
from core.accounts.factors import backup_codes, totp
from core.accounts.model.accounts import Account
from core.accounts.model.attempt_limits import SecretKind
from core.accounts.model.email_queue import EmailKind
from core.accounts.model.mfa import (
    AlreadyEnabled,
    MfaEnrollment,
    MfaEvent,
    MfaSetup,
    MfaStatus,
    NotEnabled,
    NotSetUp,
    SetupCodeMalformed,
    SetupCodeWrong,
    attempt_subject,
)
from core.accounts.notices import security_notices
from core.accounts.own_account import lock_own_account
from core.kernel.access import AccountGone
from core.kernel.callers import Person
from core.kernel.causes import Caller
from core.kernel.display import PRODUCT
from core.kernel.errors import refuse
from core.kernel.proofs import Method, Proof
from ports import Ports
from ports.storage import Transaction

# The caller's own second factor. Functions that write also raise the errors of `lock_own_account`.


async def get_status(ports: Ports, caller: Person) -> MfaStatus:
    """Return the status of the caller's second factor. Raises: AccountGone."""
    async with ports.storage.reading() as read:
        return await read.mfa.status(caller.user_id) or refuse(AccountGone)


async def is_enabled(ports: Ports, user_id: UUID) -> bool:
    """Return whether sign-ins to the account require a second factor."""
    async with ports.storage.reading() as read:
        status = await read.mfa.status(user_id)
    return status is not None and status.enabled_at is not None


async def start_setup(ports: Ports, caller: Person) -> MfaSetup:
    """Create a secret for the caller to confirm. It replaces an unconfirmed one.

    A confirmed secret is neither replaced nor returned (security M-5).

    Raises: AlreadyEnabled.
    """
    secret, now = ports.codes.new_secret(), ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_own_account(tx, caller, now)
        if account.mfa_enabled_at is not None:
            raise AlreadyEnabled
        await tx.mfa.save_pending_secret(account.id, secret, now)
        await tx.mfa.log(account.id, [MfaEvent.SETUP_INITIATED], caller, now)
    return MfaSetup(secret, ports.codes.uri(secret, account.email, PRODUCT))


async def find_pending_setup(ports: Ports, caller: Person) -> MfaSetup | None:
    """Return the setup that the caller can still confirm, to show it again after a wrong code."""
    async with ports.storage.reading() as read:
        enrollment = await read.mfa.enrollment(caller.user_id)
    if enrollment is None or not enrollment.is_pending(ports.clock.now()):
        return None
    return MfaSetup(enrollment.secret, ports.codes.uri(enrollment.secret, caller.email, PRODUCT))


async def confirm_setup(ports: Ports, caller: Person, code: str) -> Sequence[str]:
    """Confirm the new secret with one of its codes, enable the second factor, and return the backup codes.

    The code is used up (security M-1). Device trust, pre-auth tokens and personal access tokens end (security M-6, S-1).
    Sessions continue, but only the caller's session can sign in to applications without the second
    factor (security X-8).

    Raises: SetupCodeMalformed; NotSetUp; AlreadyEnabled; TooManyAttempts; SetupCodeWrong, which
    counts as a failed attempt (security M-2).
    """
    if not totp.accepts(code):
        raise SetupCodeMalformed
    async with ports.storage.reading() as read:
        enrollment = _confirmable(await read.mfa.enrollment(caller.user_id), ports.clock.now())
    await attempt_limits.count_attempt(ports, SecretKind.MFA, attempt_subject(caller.user_id))
    now = ports.clock.now()
    step = ports.codes.matching_step(enrollment.secret, code, now)
    if step is None:
        async with ports.storage.transaction(by=caller) as tx:
            await tx.mfa.log(caller.user_id, [MfaEvent.SETUP_FAILED], caller, now)
            tx.record(events.mfa_failed(caller.user_id, "setup"))
        raise SetupCodeWrong
    await attempt_limits.clear(ports, SecretKind.MFA, attempt_subject(caller.user_id))  # the code was right, even if the rest fails
    codes, salt, hashes = await backup_codes.generate(ports)
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_own_account(tx, caller, now)
        # Checked again under the lock: another request may have confirmed or replaced the secret
        # while the backup codes were hashed.
        _confirmable(await tx.mfa.enrollment(account.id), now)
        if not await tx.mfa.use_step(account.id, enrollment.setup_at, step):
            raise SetupCodeWrong
        await tx.accounts.set_mfa(account.id, now, now)
        await tx.session_sign_ins.require_mfa_again(account.id, caller.session_id, Proof(Method.TOTP, now))
        await tx.sessions.end_personal_tokens(account.id, now)
        await tx.mfa.replace_codes(account.id, salt, hashes)
        await tx.devices.distrust(account.id, now)
        await tx.flows.forget_user(account.id)
        await tx.mfa.log(account.id, [MfaEvent.SETUP_COMPLETED, MfaEvent.ENABLED, MfaEvent.BACKUP_CODES_GENERATED], caller, now)
        await security_notices.notify(tx, account, EmailKind.MFA_ENABLED, now, session_id=caller.session_id)
        for event in events.mfa_enabled(account.id):
            tx.record(event)
    return codes


def _confirmable(enrollment: MfaEnrollment | None, now: datetime) -> MfaEnrollment:
    """Return the enrollment if it is pending. Raises: AlreadyEnabled; NotSetUp."""
    if enrollment is not None and enrollment.enabled_at is not None:
        raise AlreadyEnabled
    if enrollment is None or not enrollment.is_pending(now):
        raise NotSetUp
    return enrollment


async def disable(ports: Ports, caller: Person) -> bool:
    """Disable the caller's second factor, and return whether it was enabled. A pending secret is deleted too."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_own_account(tx, caller, now)
        if account.mfa_enabled_at is not None:
            await tx.mfa.retire(account.id, account.mfa_enabled_at, now)  # an undo restores it
        if not await remove_factor(tx, account, now):
            return False
        await tx.mfa.log(account.id, [MfaEvent.DISABLED], caller, now)
        await security_notices.notify(tx, account, EmailKind.MFA_DISABLED, now, session_id=caller.session_id)
        for event in events.mfa_disabled(account.id):
            tx.record(event)
    return True


async def regenerate_backup_codes(ports: Ports, caller: Person) -> Sequence[str]:
    """Replace all backup codes, and return the new ones. Raises: NotEnabled."""
    async with ports.storage.reading() as read:
        status = await read.mfa.status(caller.user_id) or refuse(AccountGone)
    if status.enabled_at is None:
        raise NotEnabled
    codes, salt, hashes = await backup_codes.generate(ports)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_own_account(tx, caller, now)
        if account.mfa_enabled_at is None:
            raise NotEnabled
        await tx.mfa.replace_codes(account.id, salt, hashes)
        await tx.mfa.log(account.id, [MfaEvent.BACKUP_CODES_GENERATED], caller, now)
        await security_notices.notify(tx, account, EmailKind.BACKUP_CODES_REGENERATED, now, session_id=caller.session_id)
    return codes


async def end_added_factor(tx: Transaction, caller: Caller, account: Account, now: datetime) -> None:
    """Delete the second factor of a locked account that a thief may have added, or is about to add."""
    if await remove_factor(tx, account, now):
        await tx.mfa.log(account.id, [MfaEvent.DISABLED], caller, now)
        for event in events.mfa_disabled(account.id):
            tx.record(event)


async def remove_factor(tx: Transaction, account: Account, now: datetime) -> bool:
    """Delete the second factor of a locked account, and return whether it was enabled.

    Device trust, pre-auth tokens and personal access tokens end. The caller records the event.
    """
    await tx.mfa.remove(account.id)
    if account.mfa_enabled_at is None:
        return False
    await tx.accounts.set_mfa(account.id, None, now)
    await tx.devices.distrust(account.id, now)
    await tx.flows.forget_user(account.id)
    await tx.sessions.end_personal_tokens(account.id, now)
    return True
