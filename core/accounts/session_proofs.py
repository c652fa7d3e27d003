"""A session's proofs, after its user has signed in: a reauthentication, or a second factor that they proved or set up."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Final
from uuid import UUID

from core.accounts.model.accounts import Account
from core.kernel import proofs
from core.kernel.callers import StoredSignIn
from core.kernel.sign_in_policy import silent_sign_ins
from core.kernel.values import digest
from ports import Ports, storage

_METHODS: Final[Mapping[proofs.FactorKind, proofs.Method]] = MappingProxyType(
    {proofs.FactorKind.TOTP: proofs.Method.TOTP, proofs.FactorKind.PASSKEY: proofs.Method.PASSKEY}
)


async def renew(ports: Ports, tx: storage.Transaction, session_id: UUID, account: Account, new: proofs.Proofs, now: datetime) -> None:
    """Store a reauthentication in a locked account's session.

    Recent proofs by different methods stay.

    A sign-in at an identity provider that may not have asked the user makes no session newer if the account has a password.
    """
    old, first = await _load(tx, session_id, account), new[0]
    if proofs.is_fresh(new) or account.password_hash is None:
        stored = proofs.renewed(old, new, now - ports.policy.fresh_sign_in_ttl)
    else:
        stored = silent_sign_ins.with_silent(old, first) if first.is_own else silent_sign_ins.with_vouching(old, first)
    await tx.session_sign_ins.reauthenticate(session_id, account.id, stored)


async def add_second(tx: storage.Transaction, session_id: UUID, account: Account, second: proofs.Proof) -> None:
    """Add a second factor to a locked account's session. The sign-in does not become newer."""
    await tx.session_sign_ins.reauthenticate(session_id, account.id, proofs.with_second(await _load(tx, session_id, account), second))


async def forget_seconds(tx: storage.Transaction, user_id: UUID, factors: Collection[proofs.FactorKind], *, has_others: bool) -> None:
    """Forget second factors that a locked account no longer has.

    With the last factor, also forget the backup codes.

    No proof by them counts any longer, in any session. A passkey that verified its user is more than a second factor, and stays.
    `has_others`: the account still has a second factor. Then a session without a second factor lacks it.
    """
    methods = {_METHODS[factor] for factor in factors} | (set() if has_others else {proofs.Method.BACKUP_CODE})
    await _forget(tx, user_id, lambda _, proof: proof.is_second and proof.method in methods, asks_again=has_others)


async def forget_backup_codes(tx: storage.Transaction, account: Account, kept: UUID) -> None:
    """Forget the replaced backup codes of a locked account, except in the `kept` session, in which the user replaced them."""

    def is_gone(sign_in: StoredSignIn, proof: proofs.Proof) -> bool:
        return sign_in.session_id != kept and proof.method is proofs.Method.BACKUP_CODE

    await _forget(tx, account.id, is_gone, asks_again=True)


async def forget_passkey(tx: storage.Transaction, account: Account, passkey_id: UUID) -> None:
    """Forget a passkey that a locked account no longer has. `account` is as it is afterwards.

    A session that began with it continues. If it has no further first factor, its first factor is unknown.
    """

    def is_gone(_: StoredSignIn, proof: proofs.Proof) -> bool:
        return proof.method is proofs.Method.PASSKEY and proof.passkey == passkey_id

    await _forget(tx, account.id, is_gone, asks_again=bool(account.second_factors))


async def forget_seconds_where_missing(tx: storage.Transaction, user_id: UUID) -> None:
    """Forget the second factors in sessions that lack the factor which a locked account's user has just set up."""
    await _forget(tx, user_id, lambda sign_in, proof: sign_in.mfa_missing and proof.is_second, asks_again=True)


async def _forget(
    tx: storage.Transaction, user_id: UUID, is_gone: Callable[[StoredSignIn, proofs.Proof], bool], *, asks_again: bool
) -> None:
    weakened = []
    for sign_in in await tx.session_sign_ins.list_of_user(user_id):
        every = proofs.every_proof(sign_in.proofs)
        left = tuple(proof for proof in every if not is_gone(sign_in, proof))
        if len(left) == len(every):
            continue
        if not any(proof.is_own and not proof.is_second for proof in left):  # it would be good in fewer places, or in none
            began = (proof for proof in every if is_gone(sign_in, proof) and not proof.is_second)
            left = (*(proofs.Proof(None, proof.at, is_fresh=proof.is_fresh) for proof in began), *left)
        weakened.append(replace(sign_in, proofs=left))
    if weakened:
        await tx.session_sign_ins.weaken(weakened, user_id, asks_again=asks_again)


async def find_recent_seconds(
    ports: Ports, read: storage.Reading | storage.Transaction, session_id: UUID, account: Account, now: datetime
) -> proofs.Proofs:
    """Return the second factors that the user proved in this session a few minutes ago. They are not asked again."""
    return _recent_seconds(ports, await _load(read, session_id, account), now) if account.second_factors else ()


async def find_recent_seconds_of_browser(
    ports: Ports, tx: storage.Transaction, cookie: str, account: Account, now: datetime
) -> proofs.Proofs:
    """Return the second factors that this user proved a few minutes ago in the live session with this cookie, if it is theirs."""
    found = await tx.session_contexts.load_of_browser(digest(cookie), now)
    if found is None or found[1].user_id != account.id or found[1].mfa_missing:
        return ()
    return _recent_seconds(ports, found[0].proofs, now)


async def has_connection(read: storage.Reading, session_id: UUID, account: Account) -> bool:
    """Return whether the user signed in at an organization's connection in this session. A second factor makes that sign-in no newer."""
    return proofs.has_connection(await _load(read, session_id, account))


def _recent_seconds(ports: Ports, session: proofs.SessionProofs, now: datetime) -> proofs.Proofs:
    since = now - min(ports.policy.fresh_sign_in_ttl, proofs.SECOND_FACTOR_TTL)
    return tuple(proof for proof in proofs.recent(proofs.in_session(session), since) if proof.can_be_second)


async def _load(tx: storage.Reading | storage.Transaction, session_id: UUID, account: Account) -> proofs.SessionProofs:
    session = await tx.session_sign_ins.load_factors(session_id, account.id)
    return () if session is None else session.proofs
