"""The second factor: codes of an authenticator app, and backup codes for users without it.

A sign-in verifies a code in two steps, so that no code works twice. `check_code` runs outside any
transaction and changes nothing. `redeem_code` and `accept_code` use the code up in the transaction
that starts the session.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from core.accounts import attempt_limits, events
from core.accounts.model.accounts import Account
from core.accounts.model.attempt_limits import SecretKind
from core.accounts.model.email_queue import EmailKind, new_email
from core.accounts.model.mfa import (
    ALPHABET,
    BACKUP_CODES,
    TOTP_CODE,
    AlreadyEnabled,
    CodeWrong,
    MfaEnrollment,
    MfaEvent,
    MfaSetup,
    MfaStatus,
    NotEnabled,
    NotSetUp,
    RedeemedCode,
    SetupCodeMalformed,
    SetupCodeWrong,
    VerifiedCode,
    attempt_subject,
)
from core.accounts.notices import security_notices
from core.accounts.own_account import lock_own_account
from core.kernel.access import AccountGone
from core.kernel.callers import Person
from core.kernel.causes import Caller
from core.kernel.deferred import Deferred
from core.kernel.display import PRODUCT
from core.kernel.errors import refuse
from core.kernel.proofs import Method, Proof

if TYPE_CHECKING:
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
    if not TOTP_CODE.fullmatch(code):
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
    codes, salt, hashes = await _new_codes(ports)
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
        await tx.pre_auths.remove_all(account.id)
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
    codes, salt, hashes = await _new_codes(ports)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_own_account(tx, caller, now)
        if account.mfa_enabled_at is None:
            raise NotEnabled
        await tx.mfa.replace_codes(account.id, salt, hashes)
        await tx.mfa.log(account.id, [MfaEvent.BACKUP_CODES_GENERATED], caller, now)
        await security_notices.notify(tx, account, EmailKind.BACKUP_CODES_REGENERATED, now, session_id=caller.session_id)
    return codes


async def _new_codes(ports: Ports) -> tuple[Sequence[str], bytes, Sequence[bytes]]:
    """Return a set of backup codes, its salt, and the hash of each code."""
    codes: dict[str, None] = {}
    while len(codes) < BACKUP_CODES:
        letters = "".join(secrets.choice(ALPHABET) for _ in range(8))
        codes[f"{letters[:4]}-{letters[4:]}"] = None
    salt = ports.passwords.new_salt()
    return [*codes], salt, [await ports.passwords.derive(code, salt) for code in codes]


async def check_code(ports: Ports, user_id: UUID, enrollment: MfaEnrollment | None, code: str) -> VerifiedCode:
    """Check a code of either kind. Pass the result to `redeem_code`, which uses the code up.

    Callers count the attempt first, for both kinds of codes and all addresses together (security M-2).

    Raises: CodeWrong; Limited if too many hashes are queued.
    """
    verified = None
    if enrollment is not None and enrollment.enabled_at is not None:
        if TOTP_CODE.fullmatch(code):
            verified = _verify_totp_code(ports, enrollment, code)
        else:
            verified = await _verify_backup_code(ports, user_id, enrollment, code)
    return verified or refuse(CodeWrong)


async def log_failed_code(ports: Ports, caller: Caller, user_id: UUID) -> None:
    """Record that a wrong code was sent after the right first factor."""
    async with ports.storage.transaction(by=caller) as tx:
        await tx.mfa.log(user_id, [MfaEvent.VERIFY_ATTEMPT, MfaEvent.VERIFY_FAILED], caller, ports.clock.now())
        tx.record(events.mfa_failed(user_id, "sign_in"))


def _verify_totp_code(ports: Ports, enrollment: MfaEnrollment, code: str) -> VerifiedCode | None:
    step = ports.codes.matching_step(enrollment.secret, code, ports.clock.now())
    if step is None or (enrollment.last_step is not None and step <= enrollment.last_step):
        return None
    return VerifiedCode(step=step, setup_at=enrollment.setup_at)


async def _verify_backup_code(ports: Ports, user_id: UUID, enrollment: MfaEnrollment, code: str) -> VerifiedCode | None:
    if enrollment.codes_salt is None:
        return None
    code_hash = await ports.passwords.derive(code, enrollment.codes_salt)
    async with ports.storage.reading() as read:
        unused = await read.mfa.has_unused_code(user_id, code_hash)
    return VerifiedCode(code_hash=code_hash) if unused else None


def redeem_code(
    tx: Transaction, caller: Caller, user_id: UUID, pre_auth_id: UUID, code: VerifiedCode, now: datetime
) -> Deferred[RedeemedCode]:
    """Lock the account and consume the pending sign-in and the code that `check_code` verified.

    This also logs the verification and clears the failed attempts. The statement runs with the
    transaction's next one. The result is None if the sign-in is no longer pending. Pass it to
    `accept_code`.
    """
    if code.step is not None and code.setup_at is not None:
        return tx.mfa.redeem_step_deferred(pre_auth_id, user_id, code.setup_at, code.step, caller, now)
    assert code.code_hash is not None, "a verified code has a step or a hash"
    return tx.mfa.redeem_backup_code_deferred(pre_auth_id, user_id, code.code_hash, caller, now)


async def accept_code(tx: Transaction, redeemed: RedeemedCode, code: VerifiedCode, now: datetime) -> Account:
    """Return the locked account if the code was used up. Queue an email about a backup code.

    Raises: CodeWrong if another request used the code first, or the second factor was replaced.
    """
    account = redeemed.account
    if not redeemed.code_taken:
        raise CodeWrong
    if code.code_hash is not None:
        await tx.email_queue.add(new_email(EmailKind.BACKUP_CODE_USED, account.email, now))
    return account


async def use_code(tx: Transaction, caller: Person, account: Account, code: VerifiedCode, now: datetime) -> None:
    """Use up a code that `check_code` verified, for a locked account. Queue an email about a backup code.

    Raises: CodeWrong if another request used the code first, or the second factor was replaced.
    """
    happened = [MfaEvent.VERIFY_ATTEMPT, MfaEvent.VERIFY_SUCCESS]
    if code.step is not None and code.setup_at is not None:
        is_taken = await tx.mfa.use_step(account.id, code.setup_at, code.step)
    else:
        assert code.code_hash is not None, "a verified code has a step or a hash"
        is_taken = await tx.mfa.use_backup_code(account.id, code.code_hash, now)
        happened.append(MfaEvent.BACKUP_CODE_USED)
    if not is_taken:
        raise CodeWrong
    await tx.mfa.log(account.id, happened, caller, now)
    await tx.attempt_limits.clear(SecretKind.MFA, attempt_subject(account.id))
    if code.code_hash is not None:
        await tx.email_queue.add(new_email(EmailKind.BACKUP_CODE_USED, account.email, now))


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
    await tx.pre_auths.remove_all(account.id)
    await tx.sessions.end_personal_tokens(account.id, now)
    return True
