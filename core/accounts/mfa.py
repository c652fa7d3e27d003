"""The second factor: codes of an authenticator app, and backup codes for whoever has lost it (identity.md sections 3 and 4.2; security.md
section 6; decisions, points 42 to 44).

Whoever signs in with it asks `check`, outside of any transaction, whether a code is right; and within the one that signs in has `redeem`
use it up, and `accept` judge what came of that, so that no code is good twice.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from core.accounts import attempt_limits, events
from core.accounts.attempt_limits_rules import SecretKind
from core.accounts.email_queue_rules import EmailKind, new_email
from core.accounts.own_account import lock_own_account
from core.kernel.display import PRODUCT
from core.kernel.errors import refuse
from core.kernel.principals import AccountGone

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from core.accounts.accounts_rules import Account
    from core.kernel.deferred import Deferred
    from core.kernel.principals import Caller, Person
    from ports import Ports
    from ports.storage import Transaction
from core.accounts.mfa_rules import (
    TOTP_CODE,
    ALPHABET,
    BACKUP_CODES,
    AlreadyEnabled,
    CodeWrong,
    MfaEnrollment,
    MfaEvent,
    NotEnabled,
    NotSetUp,
    VerifiedCode,
    RedeemedCode,
    MfaSetup,
    SetupCodeMalformed,
    SetupCodeWrong,
    MfaStatus,
    attempt_subject,
)

# What people do with their own


async def get_status(ports: Ports, caller: Person) -> MfaStatus:
    """Raises AccountGone, as all of these do; those that change something also raise SessionEnded."""
    async with ports.storage.reading() as read:
        return await read.mfa.status(caller.user_id) or refuse(AccountGone)


async def is_enabled(ports: Ports, user_id: UUID) -> bool:
    """Whether the second factor is asked for."""
    async with ports.storage.reading() as read:
        found = await read.mfa.status(user_id)
    return found is not None and found.enabled_at is not None


async def start_setup(ports: Ports, caller: Person) -> MfaSetup:
    """A secret to confirm, in place of one that was not confirmed. One that is asked for is never touched, nor told (security.md M-5).

    Raises AlreadyEnabled.
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
    """What the caller has set up and can still confirm, for a page that shows it again after a wrong code."""
    async with ports.storage.reading() as read:
        enrollment = await read.mfa.enrollment(caller.user_id)
    if enrollment is None or not enrollment.is_pending(ports.clock.now()):
        return None
    return MfaSetup(enrollment.secret, ports.codes.uri(enrollment.secret, caller.email, PRODUCT))


async def confirm_setup(ports: Ports, caller: Person, code: str) -> Sequence[str]:
    """Confirm the secret that was set up by one of its codes, from when on the second factor is asked for: the backup codes.

    The code is used up by this (security.md M-1). Device trust and pre-auth tokens end (M-6). Sessions go on, but only this one signs in
    elsewhere (X-8).
    Raises SetupCodeMalformed, NotSetUp, AlreadyEnabled, TooManyGuesses, and SetupCodeWrong, which counts as a wrong guess (M-2).
    """
    if not TOTP_CODE.fullmatch(code):
        raise SetupCodeMalformed
    async with ports.storage.reading() as read:
        enrollment = _confirmable(await read.mfa.enrollment(caller.user_id), ports.clock.now())
    await attempt_limits.count_attempt(ports, SecretKind.MFA, attempt_subject(caller.user_id))
    now = ports.clock.now()
    step = ports.codes.step_of(enrollment.secret, code, now)
    if step is None:
        async with ports.storage.autocommit() as at_once:
            await at_once.mfa.log(caller.user_id, [MfaEvent.SETUP_FAILED], caller, now)
        raise SetupCodeWrong
    await attempt_limits.clear(ports, SecretKind.MFA, attempt_subject(caller.user_id))  # it was right, whatever comes of it
    codes, salt, hashes = await _new_codes(ports)
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_own_account(tx, caller, now)
        # Read again under the lock: it may have been confirmed, or set up anew, while the codes were hashed.
        _confirmable(await tx.mfa.enrollment(account.id), now)
        if not await tx.mfa.use_step(account.id, enrollment.setup_at, step):
            raise SetupCodeWrong
        await tx.accounts.set_mfa(account.id, now, now)
        await tx.sessions.require_mfa_again(account.id, but=caller.session_id)
        await tx.mfa.replace_codes(account.id, salt, hashes)
        await tx.devices.distrust(account.id, now)
        await tx.pre_auths.remove_all(account.id)
        await tx.mfa.log(account.id, [MfaEvent.SETUP_COMPLETED, MfaEvent.ENABLED, MfaEvent.BACKUP_CODES_GENERATED], caller, now)
        await tx.email_queue.add(new_email(EmailKind.MFA_ENABLED, account.email, now))
        for event in events.mfa_enabled(account.id):
            tx.record(event)
    return codes


def _confirmable(enrollment: MfaEnrollment | None, now: datetime) -> MfaEnrollment:
    if enrollment is not None and enrollment.enabled_at is not None:
        raise AlreadyEnabled
    if enrollment is None or not enrollment.is_pending(now):
        raise NotSetUp
    return enrollment


async def disable(ports: Ports, caller: Person) -> bool:
    """Ask for the second factor no more; whether it was asked for. Where it was not, only a pending secret is forgotten."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_own_account(tx, caller, now)
        if not await remove_factor(tx, account, now):
            return False
        await tx.mfa.log(account.id, [MfaEvent.DISABLED], caller, now)
        await tx.email_queue.add(new_email(EmailKind.MFA_DISABLED, account.email, now))
        for event in events.mfa_disabled(account.id):
            tx.record(event)
    return True


async def regenerate_backup_codes(ports: Ports, caller: Person) -> Sequence[str]:
    """Other backup codes in place of all earlier ones, used and unused. Raises NotEnabled."""
    async with ports.storage.reading() as read:
        found = await read.mfa.status(caller.user_id) or refuse(AccountGone)
    if found.enabled_at is None:
        raise NotEnabled
    codes, salt, hashes = await _new_codes(ports)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_own_account(tx, caller, now)
        if account.mfa_enabled_at is None:
            raise NotEnabled
        await tx.mfa.replace_codes(account.id, salt, hashes)
        await tx.mfa.log(account.id, [MfaEvent.BACKUP_CODES_GENERATED], caller, now)
        await tx.email_queue.add(new_email(EmailKind.BACKUP_CODES_REGENERATED, account.email, now))
    return codes


async def _new_codes(ports: Ports) -> tuple[Sequence[str], bytes, Sequence[bytes]]:
    """A set of backup codes, its salt, and the hash of each."""
    codes: dict[str, None] = {}
    while len(codes) < BACKUP_CODES:
        letters = "".join(secrets.choice(ALPHABET) for _ in range(8))
        codes[f"{letters[:4]}-{letters[4:]}"] = None
    salt = ports.passwords.new_salt()
    return [*codes], salt, [await ports.passwords.derive(code, salt) for code in codes]


async def check_code(ports: Ports, user_id: UUID, enrollment: MfaEnrollment | None, code: str) -> VerifiedCode:
    """What this code proves, if it is right; to be told to `redeem`, which alone uses it up.

    The guess was counted before, whatever kind of code it is and wherever it comes from (security.md M-2). Raises CodeWrong, and Limited
    when too many hashes are waiting.
    """
    proof = None
    if enrollment is not None and enrollment.enabled_at is not None:
        if TOTP_CODE.fullmatch(code):
            proof = _timed_proof(ports, enrollment, code)
        else:
            proof = await _backup_proof(ports, user_id, enrollment, code)
    return proof or refuse(CodeWrong)


async def log_failed_code(ports: Ports, caller: Caller, user_id: UUID) -> None:
    """Log that a code was wrong."""
    async with ports.storage.autocommit() as at_once:
        await at_once.mfa.log(user_id, [MfaEvent.VERIFY_ATTEMPT, MfaEvent.VERIFY_FAILED], caller, ports.clock.now())


def _timed_proof(ports: Ports, enrollment: MfaEnrollment, code: str) -> VerifiedCode | None:
    step = ports.codes.step_of(enrollment.secret, code, ports.clock.now())
    if step is None or (enrollment.last_step is not None and step <= enrollment.last_step):
        return None
    return VerifiedCode(step=step, setup_at=enrollment.setup_at)


async def _backup_proof(ports: Ports, user_id: UUID, enrollment: MfaEnrollment, code: str) -> VerifiedCode | None:
    if enrollment.codes_salt is None:
        return None
    code_hash = await ports.passwords.derive(code, enrollment.codes_salt)
    async with ports.storage.reading() as read:
        unused = await read.mfa.has_unused_code(user_id, code_hash)
    return VerifiedCode(code_hash=code_hash) if unused else None


def redeem_code(tx: Transaction, user_id: UUID, pre_auth_id: UUID, proof: VerifiedCode, now: datetime) -> Deferred[RedeemedCode]:
    """Lock an account and end a sign-in to it that waits, by what `check` has found right, which is used up; for `accept`.

    It happens with the transaction's next statement. Nothing comes of it where the sign-in does not wait any more.
    """
    if proof.step is not None and proof.setup_at is not None:
        return tx.mfa.redeem_step(pre_auth_id, user_id, proof.setup_at, proof.step, now)
    assert proof.code_hash is not None, "what is no code of a step is a backup code"
    return tx.mfa.redeem_backup_code(pre_auth_id, user_id, proof.code_hash, now)


async def accept_code(tx: Transaction, caller: Caller, redeemed: RedeemedCode, proof: VerifiedCode, now: datetime) -> Account:
    """The locked account whose second factor was shown; forgets the wrong guesses.

    Raises CodeWrong when somebody else was faster with the code, or the second factor is another one by now.
    """
    account = redeemed.account
    if not redeemed.code_taken:
        raise CodeWrong
    log = [MfaEvent.VERIFY_ATTEMPT, MfaEvent.VERIFY_SUCCESS]
    if proof.code_hash is not None:
        log.append(MfaEvent.BACKUP_CODE_USED)
        await tx.email_queue.add(new_email(EmailKind.BACKUP_CODE_USED, account.email, now))
    await tx.mfa.log(account.id, log, caller, now)
    await tx.attempt_limits.clear(SecretKind.MFA, attempt_subject(account.id))
    return account


async def remove_factor(tx: Transaction, account: Account, now: datetime) -> bool:
    """Forget secret and backup codes of a locked account, and end its device trust and pre-auth tokens; whether the second factor was
    asked for. To record it is left to whoever calls this."""
    await tx.mfa.remove(account.id)
    if account.mfa_enabled_at is None:
        return False
    await tx.accounts.set_mfa(account.id, None, now)
    await tx.devices.distrust(account.id, now)
    await tx.pre_auths.remove_all(account.id)
    return True
