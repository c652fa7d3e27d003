"""The passkeys of the caller's own account: add, list, rename and delete them (security #passkeys)."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from core.accounts import events, relying_party
from core.accounts.model.accounts import Account
from core.accounts.model.email_queue import EmailKind
from core.accounts.model.mfa import MfaEvent
from core.accounts.model.passkeys import (
    DEFAULT_NAME,
    HANDLE_BYTES,
    MAX_PASSKEYS,
    Ceremony,
    CeremonyRefused,
    ChallengeBinding,
    Json,
    NewPasskey,
    OnlySignInMethod,
    Passkey,
    PasskeyNotAdded,
    PasskeyNotFound,
    RelyingParty,
    TooManyPasskeys,
)
from core.accounts.notices import security_notices
from core.accounts.own_account import lock_own_account
from core.kernel.callers import Person
from core.kernel.causes import Caller
from core.kernel.errors import refuse
from core.kernel.proofs import ways_in
from core.kernel.values import new_id
from ports import Ports
from ports.storage import Transaction

# Functions that write also raise the errors of `lock_own_account`.


async def start(ports: Ports, caller: Person) -> Json:
    """Return the options with which the caller's browser creates a passkey, in this session. Raises: NoPasskeysHere; TooManyPasskeys."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_own_account(tx, caller, now)
        party = await relying_party.load(ports, tx)
        known = [passkey for passkey in await tx.passkeys.of_user(account.id) if passkey.rp_id == party.id]
        _check_number(account)
        handle = await tx.passkeys.handle(account.id, secrets.token_bytes(HANDLE_BYTES))
    challenge = ports.passkeys.new_challenge(_binding(caller), now)
    return ports.passkeys.creation_options(party, challenge, account, handle, known)


async def register(ports: Ports, caller: Person, credential: Json, name: str | None) -> Passkey:
    """Add the passkey that the caller's browser created. Without a name, it gets that of its product.

    Raises: PasskeyNotAdded; PasskeyTaken; NoPasskeysHere; TooManyPasskeys.
    """
    async with ports.storage.reading() as read:
        party = await relying_party.load(ports, read)
    now = ports.clock.now()
    try:
        created = await ports.passkeys.verify_registration(credential, party, _binding(caller), now)
    except CeremonyRefused as refusal:
        ports.metrics.passkey_ceremony(Ceremony.REGISTER, refusal.reason)
        raise PasskeyNotAdded from None
    passkey = _to_passkey(created, caller.user_id, name, party, now)
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_own_account(tx, caller, now)
        _check_number(account)
        # Another process may have another base URL, and have added the first passkey.
        if not await relying_party.adopt(ports, tx, party) or not await tx.passkeys.use_challenge(created.challenge):
            raise PasskeyNotAdded
        await tx.passkeys.add(passkey)
        await tx.mfa.log(account.id, [MfaEvent.PASSKEY_ADDED], caller, now)
        await security_notices.notify(tx, account, EmailKind.PASSKEY_ADDED, now, session_id=caller.session_id, detail=passkey.product)
        tx.record(events.passkey_added(passkey))
    ports.metrics.passkey_ceremony(Ceremony.REGISTER, None)
    return passkey


async def list_own(ports: Ports, caller: Person) -> Sequence[Passkey]:
    """Return the caller's passkeys, oldest first."""
    async with ports.storage.reading() as read:
        return await read.passkeys.of_user(caller.user_id)


async def rename(ports: Ports, caller: Person, passkey_id: UUID, name: str) -> Passkey:
    """Rename one of the caller's passkeys. Raises: PasskeyNotFound."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        await lock_own_account(tx, caller, now)
        passkey = await tx.passkeys.by_id(caller.user_id, passkey_id) or refuse(PasskeyNotFound)
        await tx.passkeys.rename(caller.user_id, passkey_id, name)
    return replace(passkey, name=name)


async def delete(ports: Ports, caller: Person, passkey_id: UUID) -> None:
    """Delete one of the caller's passkeys. Sessions that it started continue. Raises: PasskeyNotFound; OnlySignInMethod."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_own_account(tx, caller, now)
        passkey = await tx.passkeys.by_id(account.id, passkey_id) or refuse(PasskeyNotFound)
        left = replace(account, passkey_count=account.passkey_count - 1)
        if not ways_in(left.factors) and not await tx.identities.list_of_user(account.id, None):
            raise OnlySignInMethod
        await tx.passkeys.remove(account.id, passkey_id, now)
        await tx.mfa.log(account.id, [MfaEvent.PASSKEY_REMOVED], caller, now)
        await security_notices.notify(tx, account, EmailKind.PASSKEY_REMOVED, now, session_id=caller.session_id, detail=passkey.product)
        tx.record(events.passkey_removed(account.id, passkey_id))


async def undo_since(tx: Transaction, caller: Caller, account: Account, since: datetime, now: datetime) -> None:
    """Give a locked account the passkeys back that it had before `since`."""
    removed = await tx.passkeys.remove_added_since(account.id, since)
    restored = await tx.passkeys.restore(account.id, since)
    log = [MfaEvent.PASSKEY_REMOVED] * len(removed) + [MfaEvent.PASSKEY_ADDED] * len(restored)
    if log:
        await tx.mfa.log(account.id, log, caller, now)
    for passkey_id in removed:
        tx.record(events.passkey_removed(account.id, passkey_id))
    for passkey in restored:
        tx.record(events.passkey_added(passkey))


def _binding(caller: Person) -> ChallengeBinding:
    return ChallengeBinding(Ceremony.REGISTER, caller.session_id.bytes)


def _check_number(account: Account) -> None:
    if account.passkey_count >= MAX_PASSKEYS:
        raise TooManyPasskeys


def _to_passkey(created: NewPasskey, user_id: UUID, name: str | None, party: RelyingParty, now: datetime) -> Passkey:
    passkey = Passkey(
        id=new_id(),
        user_id=user_id,
        name=name or DEFAULT_NAME,
        credential_id=created.credential_id,
        public_key=created.public_key,
        algorithm=created.algorithm,
        rp_id=party.id,
        sign_count=created.sign_count,
        aaguid=created.aaguid,
        backup_eligible=created.backup_eligible,
        backed_up=created.backed_up,
        transports=created.transports,
        created_at=now,
    )
    return passkey if name else replace(passkey, name=passkey.product or DEFAULT_NAME)
