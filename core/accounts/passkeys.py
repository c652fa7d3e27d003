"""The passkeys and security keys of the caller's own account: offer, add, list, rename and delete them (security #passkeys)."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from core.accounts import (
    email_changes,
    events,
    factor_changes,
    mfa,
    passkey_waits,
    relying_party,
    security_notices,
    session_proofs,
    ways_in,
)
from core.accounts.factor_changes import LostAccess
from core.accounts.factors import backup_codes
from core.accounts.model import passkeys
from core.accounts.model.accounts import Account
from core.accounts.model.email_queue import EmailKind
from core.accounts.model.mfa import MfaEvent
from core.kernel import access, proofs
from core.kernel.callers import Person
from core.kernel.causes import Caller
from core.kernel.errors import refuse
from core.kernel.values import new_id
from ports import Ports, storage

# Functions that write also raise the errors of `factor_changes.lock_account`.


async def start(
    ports: Ports, caller: Person, kind: passkeys.PasskeyKind = passkeys.PasskeyKind.PASSKEY, *, conditional: bool = False
) -> passkeys.Json:
    """Return the options with which the caller's browser creates a passkey, in this session.

    `conditional`: right after a sign-in with a password, without asking the user (WebAuthn section 5.1.3).

    Raises: NoPasskeysHere; TooManyPasskeys; AddressNotVerified.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await factor_changes.lock_account_to_add(ports, tx, caller, now)
        party = await relying_party.load(ports, tx)
        known = [passkey for passkey in await tx.passkeys.of_user(account.id) if passkey.rp_id == party.id]
        _check_account(account)
        handle = await tx.passkeys.handle(account.id, secrets.token_bytes(passkeys.HANDLE_BYTES))
    challenge = ports.passkeys.new_challenge(_binding(caller), now)
    return ports.passkeys.creation_options(party, challenge, account, handle, kind, known, conditional=conditional)


async def register(
    ports: Ports,
    caller: Person,
    credential: passkeys.Json,
    name: str | None,
    kind: passkeys.PasskeyKind = passkeys.PasskeyKind.PASSKEY,
    *,
    second: bool | None = None,
    conditional: bool = False,
) -> tuple[passkeys.Passkey, Sequence[str]]:
    """Add the passkey or security key that the caller's browser created.

    Without a name, it gets its product's name.

    With `second`, and by default for a security key, sign-ins ask for a key of the account from now on. The new backup codes are returned
    if the account had none. A passkey that verified its user makes the session's sign-in phishing-resistant. With `conditional`, it is a
    passkey, and its authenticator need not have asked the user. It proves nothing yet.

    Raises: PasskeyNotAdded; PasskeyTaken; NoPasskeysHere; TooManyPasskeys; AddressNotVerified.
    """
    if conditional:
        kind, second = passkeys.PasskeyKind.PASSKEY, False
    verified = await verify_new(ports, credential, _binding(caller), kind, caller.user_id, name, conditional=conditional)
    passkey, now = verified.passkey, verified.passkey.created_at
    is_second = kind is passkeys.PasskeyKind.SECURITY_KEY if second is None else second
    codes = await _new_codes(ports, caller) if is_second else backup_codes.NO_CODES
    async with ports.storage.transaction(by=caller) as tx:
        account = await factor_changes.lock_account_to_add(ports, tx, caller, now)
        _check_account(account)
        had_one = await relying_party.has_passkey(ports, tx, account)
        await add_verified(ports, tx, verified)
        await passkey_waits.end(tx, account, "passkey")
        if not had_one:  # a password thief may have requested a new address without a passkey
            await email_changes.cancel_of_other_sessions(tx, account.id, caller.session_id, now)
        await security_notices.notify(tx, account, EmailKind.PASSKEY_ADDED, now, session_id=caller.session_id, detail=passkey.description)
        # It makes the sign-in stronger, and not newer.
        proof = passkeys.proof_of(passkey, user_verified=passkey.user_verified, at=now if caller.sign_in is None else caller.sign_in.at)
        if is_second and account.passkey_second_at is None:
            await _make_second(tx, caller, account, codes, proof, [MfaEvent.PASSKEY_ADDED], now)
        else:
            await tx.mfa.log(account.id, [MfaEvent.PASSKEY_ADDED], caller, now)
            if not (proof.is_second or conditional):
                await session_proofs.add_second(tx, caller.session_id, account, proof)
    ports.metrics.passkey_ceremony(passkeys.Ceremony.REGISTER, None)
    return passkey, codes.texts


@dataclass(frozen=True, slots=True)
class VerifiedNewPasskey:
    """A passkey that a browser created, with its verified answer. It is not stored yet."""

    passkey: passkeys.Passkey
    party: passkeys.RelyingParty
    challenge: passkeys.UsedChallenge


async def verify_new(
    ports: Ports,
    credential: passkeys.Json,
    binding: passkeys.ChallengeBinding,
    kind: passkeys.PasskeyKind,
    user_id: UUID,
    name: str | None = None,
    *,
    conditional: bool = False,
) -> VerifiedNewPasskey:
    """Verify a passkey that a browser created. Pass the result to `add_verified`."""
    async with ports.storage.reading() as read:
        party = await relying_party.load(ports, read)
    now, verification = ports.clock.now(), kind is passkeys.PasskeyKind.PASSKEY and not conditional
    try:
        created = await ports.passkeys.verify_registration(
            credential, party, binding, now, verification=verification, presence=not conditional
        )
    except passkeys.CeremonyRefused as refusal:
        ports.metrics.passkey_ceremony(binding.ceremony, refusal.reason)
        raise passkeys.PasskeyNotAdded from None
    return VerifiedNewPasskey(_to_passkey(created, user_id, name, kind, party, now), party, created.challenge)


async def add_verified(ports: Ports, tx: storage.Transaction, verified: VerifiedNewPasskey) -> None:
    """Store a locked account's new passkey, and record it. Raises: PasskeyNotAdded if its challenge was used; PasskeyTaken."""
    # Another process may have another base URL, and have added the first passkey.
    if not await relying_party.adopt(ports, tx, verified.party) or not await tx.passkeys.use_challenge(verified.challenge):
        raise passkeys.PasskeyNotAdded
    await tx.passkeys.add(verified.passkey)
    tx.record(events.passkey_added(verified.passkey))


async def load_own(ports: Ports, caller: Person) -> passkeys.OwnPasskeys:
    """Return the caller's passkeys and security keys, and what authenticators may know about the account."""
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(caller.user_id) or refuse(access.AccountGone)
        own, handle = await read.passkeys.of_user(account.id), await read.passkeys.handle_of(account.id)
        rp_id = (await relying_party.load(ports, read)).id if relying_party.has_host(ports) else None
        restorable = [] if rp_id is None else await read.passkeys.restorable(account.id, rp_id)
    return passkeys.OwnPasskeys(account=account, passkeys=own, rp_id=rp_id, handle=handle, restorable=restorable)


async def rename(ports: Ports, caller: Person, passkey_id: UUID, name: str) -> passkeys.Passkey:
    """Rename the caller's passkey."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        await factor_changes.lock_account(ports, tx, caller, now)
        passkey = await tx.passkeys.by_id(caller.user_id, passkey_id) or refuse(passkeys.PasskeyNotFound)
        await tx.passkeys.rename(caller.user_id, passkey_id, name)
    return replace(passkey, name=name)


async def delete(ports: Ports, caller: Person, passkey_id: UUID) -> bool:
    """Delete the caller's passkey.

    Return whether sign-ins asked for passkeys as the second factor, and this was the last passkey.

    Sessions that it started continue.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await factor_changes.lock_account(ports, tx, caller, now)
        passkey = await tx.passkeys.by_id(account.id, passkey_id) or refuse(passkeys.PasskeyNotFound)
        left = _without(account, passkey)
        if not await ways_in.remaining(ports, tx, account, without=passkey.id):
            raise passkeys.OnlySignInMethod
        await factor_changes.require_left(ports, tx, account, left, now, removed=passkey.id)
        await tx.passkeys.remove(account.id, passkey_id, now)
        await session_proofs.forget_passkey(tx, left, passkey_id)
        await tx.mfa.log(account.id, [MfaEvent.PASSKEY_REMOVED], caller, now)
        await security_notices.notify(tx, account, EmailKind.PASSKEY_REMOVED, now, session_id=caller.session_id, detail=passkey.description)
        tx.record(events.passkey_removed(account.id, passkey_id))
        return left.key_count == 0 and await mfa.turn_off(tx, caller, account, proofs.FactorKind.PASSKEY, now)


async def list_losses(ports: Ports, account: Account, passkey: passkeys.Passkey | None = None) -> Sequence[LostAccess]:
    """Return the organizations and applications that would ask the user for another factor without this passkey.

    None: if passkeys and security keys were no second factor.
    """
    left = replace(account, passkey_second_at=None) if passkey is None else _without(account, passkey)
    return await factor_changes.list_losses(ports, account, left, removed=None if passkey is None else passkey.id)


def _without(account: Account, passkey: passkeys.Passkey) -> Account:
    if passkey.kind is passkeys.PasskeyKind.SECURITY_KEY:
        return replace(account, security_key_count=account.security_key_count - 1)
    return replace(account, passkey_count=account.passkey_count - 1)


async def set_second(ports: Ports, caller: Person, *, on: bool) -> Sequence[str]:
    """Choose whether sign-ins ask for a passkey or security key of the caller after a password or another first factor.

    Return new backup codes if the account had none.
    """
    codes, now = await _new_codes(ports, caller) if on else backup_codes.NO_CODES, ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        lock = factor_changes.lock_account_to_add if on else factor_changes.lock_account
        account = await lock(ports, tx, caller, now)
        if not on:
            await factor_changes.require_left(ports, tx, account, replace(account, passkey_second_at=None), now)
            await mfa.turn_off(tx, caller, account, proofs.FactorKind.PASSKEY, now)
            return ()
        party = await relying_party.load(ports, tx)
        if not any(passkey.rp_id == party.id for passkey in await tx.passkeys.of_user(account.id)):
            raise passkeys.NoSecondKey
        if account.passkey_second_at is not None:
            return ()
        await _make_second(tx, caller, account, codes, None, [], now)
    return codes.texts


async def _new_codes(ports: Ports, caller: Person) -> backup_codes.BackupCodes:
    """Return new backup codes for an account that has none."""
    async with ports.storage.reading() as read:
        status = await read.mfa.status(caller.user_id)
    return await backup_codes.generate(ports) if status is not None and status.backup_codes == 0 else backup_codes.NO_CODES


async def _make_second(
    tx: storage.Transaction,
    caller: Person,
    account: Account,
    codes: backup_codes.BackupCodes,
    proof: proofs.Proof | None,
    log: Sequence[MfaEvent],
    now: datetime,
) -> None:
    """Make a locked account's keys its second factor.

    `proof` is a second-factor proof in the caller's session, `log` the entries before it.
    """
    await tx.passkeys.set_second(account.id, now, now)
    if codes.texts:
        await tx.mfa.replace_codes(account.id, codes.salt, codes.hashes)
    log = [*log, MfaEvent.PASSKEY_ENABLED, *([MfaEvent.BACKUP_CODES_GENERATED] if codes.texts else [])]
    await mfa.turn_on(tx, caller, account, proofs.FactorKind.PASSKEY, proof, log, now)


async def end_added(tx: storage.Transaction, caller: Caller, user_id: UUID, passkey_id: UUID, now: datetime) -> None:
    """Delete a locked account's passkey, which a thief may have added.

    No undo restores it.

    With the account's last key, passkeys end as a second factor.
    """
    await tx.passkeys.end(user_id, passkey_id)
    await tx.mfa.log(user_id, [MfaEvent.PASSKEY_REMOVED], caller, now)
    tx.record(events.passkey_removed(user_id, passkey_id))
    account = await tx.accounts.lock(user_id)
    if account is not None and account.key_count == 0:
        await mfa.end_factors(tx, caller, account, [proofs.FactorKind.PASSKEY], now)


async def undo_since(
    tx: storage.Transaction, caller: Caller, account: Account, since: datetime, now: datetime, *, restored_since: datetime
) -> None:
    """Delete the passkeys that were added to a locked account since `since`. Restore the passkeys from before `restored_since`."""
    removed = await tx.passkeys.remove_added_since(account.id, since)
    restored = await tx.passkeys.restore(account.id, restored_since)
    log = [MfaEvent.PASSKEY_REMOVED] * len(removed) + [MfaEvent.PASSKEY_ADDED] * len(restored)
    if log:
        await tx.mfa.log(account.id, log, caller, now)
    for passkey_id in removed:
        tx.record(events.passkey_removed(account.id, passkey_id))
    for passkey in restored:
        tx.record(events.passkey_added(passkey))


def _binding(caller: Person) -> passkeys.ChallengeBinding:
    return passkeys.ChallengeBinding(passkeys.Ceremony.REGISTER, caller.session_id.bytes)


def _check_account(account: Account) -> None:
    if account.email_verified_at is None:
        raise access.AddressNotVerified
    if account.key_count >= passkeys.MAX_PASSKEYS:
        raise passkeys.TooManyPasskeys


def _to_passkey(
    created: passkeys.NewPasskey, user_id: UUID, name: str | None, kind: passkeys.PasskeyKind, party: passkeys.RelyingParty, now: datetime
) -> passkeys.Passkey:
    passkey = passkeys.Passkey(
        id=new_id(),
        user_id=user_id,
        kind=kind,
        name=name or "",
        credential_id=created.credential_id,
        public_key=created.public_key,
        algorithm=created.algorithm,
        rp_id=party.id,
        sign_count=created.sign_count,
        aaguid=created.aaguid,
        backup_eligible=created.backup_eligible,
        backed_up=created.backed_up,
        user_verified=created.user_verified,
        transports=created.transports,
        created_at=now,
    )
    return passkey if name else replace(passkey, name=passkey.product or passkeys.DEFAULT_NAMES[kind])


async def is_offer_due(ports: Ports, user_id: UUID, session_id: UUID, now: datetime) -> bool:
    """Return whether a passkey is to be offered in this session.

    The address is verified, and the account has no passkey that works here and had no offer for a while. The user's sign-in policies accept
    this sign-in for a passkey: an offer is no reason to ask for another sign-in.
    """
    if not relying_party.has_host(ports):
        return False
    async with ports.storage.reading() as read:
        hosts = await read.passkeys.find_offerable(user_id, now - passkeys.OFFER_PAUSE)
        if hosts is None or relying_party.present_id(ports, hosts) in hosts.passkeys:
            return False
        return await _may_create(ports, read, user_id, session_id, now)


async def _may_create(ports: Ports, read: storage.Reading, user_id: UUID, session_id: UUID, now: datetime) -> bool:
    account = await read.accounts.by_id(user_id)
    if account is None or account.key_count >= passkeys.MAX_PASSKEYS:
        return False
    return await factor_changes.may_add(ports, read, session_id, account, now)


async def show_offer(ports: Ports, caller: Person) -> tuple[passkeys.Json, passkeys.Json] | None:
    """Return the options for a conditional and a usual registration on the offer page.

    None: there is no offer now.

    The time of the offer is stored, so "Not now" needs no request.
    """
    now = ports.clock.now()
    if not await is_offer_due(ports, caller.user_id, caller.session_id, now):
        return None
    options = await start(ports, caller, conditional=True), await start(ports, caller)
    async with ports.storage.transaction(by=caller) as tx:
        await tx.passkeys.set_offered(caller.user_id, now)
    return options


async def offer_again(ports: Ports, caller: Person) -> passkeys.Json | None:
    """Return the options for another attempt, or None if the caller can create no passkey now."""
    async with ports.storage.reading() as read:
        if not await _may_create(ports, read, caller.user_id, caller.session_id, ports.clock.now()):
            return None
    return await start(ports, caller)
