"""The recovery of an account that lost its factors, in two parts: a link by email, and a code (security M-8).

An admin or a platform owner issues it. The platform's server mails the link to the verified address, and the issuer sees the code once, and
gives it after checking who asks. Neither part alone opens anything.
"""

import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from core.accounts import email_changes, factor_changes, mfa, passkeys, platform, relying_party
from core.accounts import events as account_events
from core.accounts.email_queue import require_within_limit
from core.accounts.factors import backup_codes, totp
from core.accounts.factors.backup_codes import BackupCodes
from core.accounts.model import email_queue
from core.accounts.model.accounts import Account
from core.accounts.model.mfa import CODE_ALPHABET, ENABLED, MfaEvent, MfaSetup, SetupCodeMalformed, SetupCodeWrong
from core.accounts.model.passkeys import HANDLE_BYTES, Ceremony, ChallengeBinding, Json, PasskeyKind
from core.applications.model.users import EndUserNotFound
from core.authentication import events
from core.authentication.model import recovery as recovery_model
from core.authentication.model.login import AccountInRecovery
from core.kernel import callers, errors, roles, values
from core.kernel.access import OrganizationNotFound
from core.kernel.causes import Caller
from core.kernel.display import PRODUCT
from core.kernel.proofs import FactorKind, Method, Proofs, reachable_strength, strength_of
from core.tenancy import organizations
from core.tenancy.model import members
from core.tenancy.model.organizations import Organization
from core.tenancy.model.sign_in_policies import recovery_methods
from ports import Ports, storage

NO_RECOVERY: Final = UUID(int=0)


# For issuers


async def issue_in_organization(
    ports: Ports, caller: callers.Member, user_id: UUID, reason: str, capability: roles.Capability
) -> recovery_model.IssuedRecovery:
    """Start the recovery of an account that only the caller's organization controls.

    It replaces any earlier recovery for the account.

    `capability` is the right over members or over end users. All sessions of the user end. The user gets an email with the link, and the
    organization's admins, except the caller, get a notice.
    """
    code, salt, code_hash = await _new_code(ports)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, account = await _lock_controlled(tx, caller, user_id, capability)
        admins = [address for address in await tx.members.admin_addresses(organization.id) if address != caller.email]
        recovery = _new_recovery(account, caller.user_id, organization.id, salt, now)
        is_repeated = await _start(ports, tx, caller, recovery, account, code_hash, reason, now)
        for address in admins:
            await tx.email_queue.add(
                email_queue.new_email(email_queue.EmailKind.RECOVERY_ISSUED, address, now, token=account.email, org_id=organization.id)
            )
        tx.record(events.recovery_issued(recovery, reason))
    return recovery_model.IssuedRecovery(code, recovery.expires_at, is_repeated)


async def cancel_in_organization(ports: Ports, caller: callers.Member, user_id: UUID, capability: roles.Capability) -> None:
    """End the open recovery that the organization issued for the user."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, account = await _lock_controlled(tx, caller, user_id, capability)
        tx.record(events.recovery_canceled(await _cancel(tx, account, organization.id)))


async def issue_by_platform(ports: Ports, caller: callers.Person, user_id: UUID, reason: str) -> recovery_model.IssuedRecovery:
    """Start the recovery of an account, unless it belongs to a platform owner. All platform owners except the caller get a notice."""
    if user_id == caller.user_id:
        raise recovery_model.PlatformOwnerNotRecovered
    code, salt, code_hash = await _new_code(ports)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await platform.lock_account(tx, caller, user_id)
        if account.is_platform_owner:
            raise recovery_model.PlatformOwnerNotRecovered
        owners = [address for address in await tx.accounts.platform_owner_addresses() if address != caller.email]
        recovery = _new_recovery(account, caller.user_id, None, salt, now)
        is_repeated = await _start(ports, tx, caller, recovery, account, code_hash, reason, now)
        for address in owners:
            await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.RECOVERY_ISSUED, address, now, token=account.email))
        platform.record_with_reason(tx, events.recovery_issued(recovery), reason)
    return recovery_model.IssuedRecovery(code, recovery.expires_at, is_repeated)


async def cancel_by_platform(ports: Ports, caller: callers.Person, user_id: UUID) -> None:
    """End an account's open recovery, no matter who issued it."""
    async with ports.storage.transaction(by=caller) as tx:
        account = await platform.lock_account(tx, caller, user_id)
        tx.record(events.recovery_canceled(await _cancel(tx, account, None), by_platform=True))


async def cancel_by_sign_in(ports: Ports, tx: storage.Transaction, caller: Caller, account: Account, proofs: Proofs, now: datetime) -> None:
    """End the open recovery of a locked account if its user signs in as strongly as the account can: then no factor is lost.

    A weaker sign-in changes nothing: the user may need the recovery for a missing factor. If only a recovery gives a factor back, as after
    an undo, no sign-in ends the recovery (security A-13). A repeated recovery refuses all sign-ins: a squatter's passkey may have ended
    the earlier recovery.
    """
    recovery = await tx.recoveries.of_user(account.id, now)
    if recovery is None:
        return
    if await _is_repeated(tx, account.id, recovery.created_at):
        raise AccountInRecovery(account.id)
    if strength_of(proofs) < reachable_strength(account.factors) or await tx.accounts.is_recovery_required(account.id):
        return
    if await factor_changes.needs_recovery(ports, tx, account, now):
        return
    tx.record(events.recovery_canceled(await _cancel(tx, account, None)))
    await tx.mfa.log(account.id, [MfaEvent.RECOVERY_ENDED], caller, now)


async def _is_repeated(tx: storage.Transaction, user_id: UUID, at: datetime) -> bool:
    """Return whether a recovery that begins at `at` is repeated: a sign-in ended another recovery in the REPEAT_TTL before."""
    ended_at = await tx.mfa.newest_at(user_id, MfaEvent.RECOVERY_ENDED)
    return ended_at is not None and at - ended_at <= recovery_model.REPEAT_TTL


async def is_open(ports: Ports, user_id: UUID) -> bool:
    """Return whether the account has an open recovery."""
    async with ports.storage.reading() as read:
        return await read.recoveries.of_user(user_id, ports.clock.now()) is not None


async def load_choices(ports: Ports, caller: callers.Member, user_id: UUID, capability: roles.Capability) -> recovery_model.RecoveryChoices:
    """Return what the caller can do to recover another user in their organization."""
    async with ports.storage.reading() as read:
        organization = await read.organizations.by_id(caller.acts_in.id) or errors.refuse(OrganizationNotFound)
        control = await read.accounts.account_control(user_id, organization.id)
        recovery = await read.recoveries.of_user(user_id, ports.clock.now(), organization.id)
    refusal = _find_refusal(control, caller.acts_in.rights, capability)
    return recovery_model.RecoveryChoices(
        can_start=refusal is None, can_cancel=refusal is None and recovery is not None, reason=None if refusal is None else refusal.message
    )


async def _new_code(ports: Ports) -> tuple[str, bytes, bytes]:
    """Return a code, its salt and its hash. Raises: Limited if too many hashes are queued."""
    letters, salt = "".join(secrets.choice(CODE_ALPHABET) for _ in range(recovery_model.CODE_LETTERS)), ports.passwords.new_salt()
    return recovery_model.format_code(letters), salt, await ports.passwords.derive(letters, salt)


def _new_recovery(account: Account, issuer_id: UUID, org_id: UUID | None, salt: bytes, now: datetime) -> recovery_model.AccountRecovery:
    return recovery_model.AccountRecovery(
        id=values.new_id(),
        user_id=account.id,
        org_id=org_id,
        issuer_id=issuer_id,
        code_salt=salt,
        created_at=now,
        expires_at=now + recovery_model.RECOVERY_TTL,
    )


async def _lock_controlled(
    tx: storage.Transaction, caller: callers.Member, user_id: UUID, capability: roles.Capability
) -> tuple[Organization, Account]:
    """Lock the organization and an account that it controls."""
    organization, rights = await organizations.lock_organization_for(tx, caller, capability)
    if user_id == caller.user_id:
        raise recovery_model.CannotRecoverSelf
    membership = await tx.members.lock(organization.id, user_id)
    # Checked before the lock, so that callers cannot lock accounts outside their organization.
    is_own = await tx.end_users.by_id(organization.id, user_id) if capability is roles.Capability.END_USERS_MANAGE else membership
    missing = EndUserNotFound if capability is roles.Capability.END_USERS_MANAGE else members.MemberNotFound
    if is_own is None:
        raise missing
    account = await tx.accounts.lock(user_id) or errors.refuse(missing)
    if refusal := _find_refusal(await tx.accounts.account_control(account.id, organization.id), rights, capability):
        raise refusal
    return organization, account


def _find_refusal(control: members.AccountControl, rights: roles.Rights, capability: roles.Capability) -> errors.Refusal | None:
    """Return why an issuer with these rights in the organization cannot recover this account, or None."""
    if not control.controls_account or (control.is_of_admin and capability is not roles.Capability.MEMBERS_MANAGE):
        return recovery_model.RecoveryNotAllowed()
    needed = control.rights or roles.rights_of(roles.OWNER)  # an unknown role has unknown rights
    is_stronger = control.role is not None and not needed <= rights
    return recovery_model.RecoversMoreRights() if is_stronger else None


async def _start(
    ports: Ports,
    tx: storage.Transaction,
    caller: Caller,
    recovery: recovery_model.AccountRecovery,
    account: Account,
    code_hash: bytes,
    reason: str,
    now: datetime,
) -> bool:
    """Store a recovery of a locked account, end what the account has open, and queue the email with the link.

    Return whether the recovery refuses sign-ins. The code is useless without the link. So the limit of these emails refuses the whole
    recovery (security E-5).
    """
    if not account.is_usable or account.email_verified_at is None:
        raise recovery_model.RecoveryNotReachable
    earlier = await tx.email_queue.nth_newest_at(account.email, email_queue.EmailKind.RECOVERY_LINK, ports.policy.mails_per_recipient)
    require_within_limit(earlier, now, recovery_model.TooManyRecoveries)
    await tx.recoveries.put(recovery, code_hash)
    await tx.one_time_tokens.void(account.id, email_queue.TokenPurpose.RECOVER_ACCOUNT)
    await mfa.end_sign_ins(tx, account.id, now)
    await tx.email_changes.cancel_pending(account.id, now)  # another address would end the link
    await tx.mfa.log(account.id, [MfaEvent.RECOVERY_ISSUED], caller, now, reason=reason)
    await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.RECOVERY_LINK, account.email, now, org_id=recovery.org_id))
    return await _is_repeated(tx, account.id, now)


async def _cancel(tx: storage.Transaction, account: Account, org_id: UUID | None) -> recovery_model.AccountRecovery:
    recovery = await tx.recoveries.remove(account.id, org_id) or errors.refuse(recovery_model.RecoveryNotFound)
    await tx.one_time_tokens.void(account.id, email_queue.TokenPurpose.RECOVER_ACCOUNT)
    return recovery


# For the user, who has no session


async def open_in_browser(ports: Ports, caller: Caller, token: str, code: str, browser_id: str) -> UUID:
    """Open a recovery with the link and the code, in this browser alone, and return its id.

    A wrong link and a wrong code get the same answer, at the same cost. MAX_ATTEMPTS codes can be tried. Raises: RecoveryRefused;
    Limited if too many hashes are queued.
    """
    now, letters = ports.clock.now(), recovery_model.normalize_code(code)
    async with ports.storage.reading() as read:
        address = await read.one_time_tokens.live_email(values.digest(token), email_queue.TokenPurpose.RECOVER_ACCOUNT, now)
        recovery = None if address is None else await read.recoveries.of_address(address, now)
    salt = ports.passwords.new_salt() if recovery is None else recovery.code_salt
    typed_hash = await ports.passwords.derive(letters or "", salt)
    async with ports.storage.autocommit() as statements:
        attempt = await statements.recoveries.count_attempt(
            NO_RECOVERY if recovery is None else recovery.id, recovery_model.MAX_ATTEMPTS, now
        )
    if recovery is None or attempt is None:  # without an attempt, another request has ended or opened the recovery
        raise recovery_model.RecoveryRefused
    if not hmac.compare_digest(attempt.code_hash, typed_hash):
        await _record_failure(ports, caller, recovery, now, is_last=attempt.number == recovery_model.MAX_ATTEMPTS)
        raise recovery_model.RecoveryRefused
    async with ports.storage.transaction(by=caller) as tx:
        account = await tx.accounts.lock(recovery.user_id) or errors.refuse(recovery_model.RecoveryRefused)
        is_opened = account.is_usable and await tx.recoveries.open(recovery, values.digest(browser_id), ports.codes.new_secret(), now)
        if (
            not is_opened
            or await tx.one_time_tokens.redeem(values.digest(token), email_queue.TokenPurpose.RECOVER_ACCOUNT, now) != account.email
        ):
            raise recovery_model.RecoveryRefused
    return recovery.id


async def find_resumable(ports: Ports, token: str, browser_id: str) -> UUID | None:
    """Return the recovery that is open in this browser, if the link with this token is used up, or None."""
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        if await read.one_time_tokens.live_email(values.digest(token), email_queue.TokenPurpose.RECOVER_ACCOUNT, now) is not None:
            return None
        return await read.recoveries.open_in(values.digest(browser_id), now)


async def _record_failure(ports: Ports, caller: Caller, recovery: recovery_model.AccountRecovery, now: datetime, *, is_last: bool) -> None:
    """Record a wrong code. The last wrong code ends the recovery."""
    user_id = recovery.user_id
    async with ports.storage.transaction(by=caller) as tx:
        if is_last and await tx.accounts.lock(user_id) is not None and await tx.recoveries.end(recovery.id):
            await tx.one_time_tokens.void(user_id, email_queue.TokenPurpose.RECOVER_ACCOUNT)
        await tx.mfa.log(user_id, [MfaEvent.RECOVERY_FAILED], caller, now)
        tx.record(events.recovery_failed(recovery))


async def find_open(ports: Ports, recovery_id: UUID, browser_id: str) -> recovery_model.OpenRecovery:
    """Return the recovery that is open in this browser."""
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        recovery, secret = await read.recoveries.of_browser(recovery_id, values.digest(browser_id), now) or errors.refuse(
            recovery_model.RecoveryEnded
        )
        account = await read.accounts.by_id(recovery.user_id)
        if account is None or not account.is_usable:
            raise recovery_model.RecoveryEnded
        methods = await load_methods(read, recovery, now)
    return recovery_model.OpenRecovery(recovery, account.email, MfaSetup(secret, ports.codes.uri(secret, account.email, PRODUCT)), methods)


async def load_methods(
    read: storage.Reading | storage.Transaction, recovery: recovery_model.AccountRecovery, now: datetime
) -> frozenset[Method]:
    """Return the factors that the recovery can set up, because the account's sign-in policies accept them."""
    return recovery_methods(await read.sign_in_policies.anywhere(recovery.user_id, recovery.org_id), now)


async def finish_with_app(ports: Ports, caller: Caller, recovery_id: UUID, browser_id: str, code: str) -> Sequence[str]:
    """Make an authenticator app the second factor, in place of all earlier factors, and return new backup codes.

    Raises: RecoveryEnded, FactorNotEnough, SetupCodeMalformed, SetupCodeWrong; Limited if too many hashes are queued.
    """
    opened = await find_open(ports, recovery_id, browser_id)
    if not opened.allows_app:
        raise recovery_model.FactorNotEnough
    if not totp.accepts(code):
        raise SetupCodeMalformed
    now = ports.clock.now()
    step = ports.codes.matching_step(opened.setup.secret, code, now)
    if step is None:
        raise SetupCodeWrong
    codes = await backup_codes.generate(ports)
    async with ports.storage.transaction(by=caller) as tx:
        account = await _use_up(tx, caller, opened, browser_id, now)
        await tx.mfa.save_pending_secret(account.id, opened.setup.secret, now)
        await tx.mfa.use_step(account.id, now, step)
        await tx.accounts.set_mfa(account.id, now, now)
        await _finish(tx, caller, opened.recovery, account, FactorKind.TOTP, codes, now)
    return codes.texts


async def start_passkey(ports: Ports, caller: Caller, recovery_id: UUID, browser_id: str) -> Json:
    """Return the options with which the browser creates a passkey. Raises: RecoveryEnded; NoPasskeysHere."""
    recovery = (await find_open(ports, recovery_id, browser_id)).recovery
    async with ports.storage.transaction(by=caller) as tx:
        account = await tx.accounts.lock(recovery.user_id) or errors.refuse(recovery_model.RecoveryEnded)
        party = await relying_party.load(ports, tx)
        handle = await tx.passkeys.handle(account.id, secrets.token_bytes(HANDLE_BYTES))
    challenge = ports.passkeys.new_challenge(_binding(recovery), ports.clock.now())
    return ports.passkeys.creation_options(party, challenge, account, handle, PasskeyKind.PASSKEY, ())


async def finish_with_passkey(ports: Ports, caller: Caller, recovery_id: UUID, browser_id: str, credential: Json) -> Sequence[str]:
    """Add the passkey that the browser created, in place of all earlier factors, and return new backup codes.

    It is also the second factor after a password.

    Raises: RecoveryEnded, PasskeyNotAccepted, PasskeyNotAdded, PasskeyTaken, NoPasskeysHere; Limited if too many hashes are queued.
    """
    opened = await find_open(ports, recovery_id, browser_id)
    if not opened.allows_passkey:
        raise recovery_model.PasskeyNotAccepted
    verified = await passkeys.verify_new(ports, credential, _binding(opened.recovery), PasskeyKind.PASSKEY, opened.recovery.user_id)
    codes, now = await backup_codes.generate(ports), ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await _use_up(tx, caller, opened, browser_id, now)
        await passkeys.add_verified(ports, tx, verified)
        await tx.passkeys.set_second(account.id, now, now)
        await _finish(tx, caller, opened.recovery, account, FactorKind.PASSKEY, codes, now)
    return codes.texts


def _binding(recovery: recovery_model.AccountRecovery) -> ChallengeBinding:
    return ChallengeBinding(Ceremony.RECOVER, recovery.id.bytes)


async def _use_up(tx: storage.Transaction, caller: Caller, opened: recovery_model.OpenRecovery, browser_id: str, now: datetime) -> Account:
    """Lock the account, end its recovery, its factors and its sign-ins, and return it."""
    account = await tx.accounts.lock(opened.recovery.user_id) or errors.refuse(recovery_model.RecoveryEnded)
    # Checked again under the lock: another request may have finished or canceled it.
    if not account.is_usable or not await tx.recoveries.take(opened.recovery.id, values.digest(browser_id), now):
        raise recovery_model.RecoveryEnded
    await mfa.reset_factors(tx, caller, account, now)
    await email_changes.end_all(tx, account, now)  # an undo link could restore an earlier factor
    return account


async def _finish(
    tx: storage.Transaction,
    caller: Caller,
    recovery: recovery_model.AccountRecovery,
    account: Account,
    factor: FactorKind,
    codes: BackupCodes,
    now: datetime,
) -> None:
    await tx.mfa.replace_codes(account.id, codes.salt, codes.hashes)
    await tx.mfa.log(account.id, [MfaEvent.RECOVERED, ENABLED[factor], MfaEvent.BACKUP_CODES_GENERATED], caller, now)
    await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.RECOVERED, account.email, now))
    for event in (*account_events.mfa_enabled(account.id, factor), events.recovery_used(recovery, factor)):
        tx.record(event)
