"""The proofs of a session, after its user has signed in: a reauthentication, or a second factor that they proved or set up."""

from datetime import datetime
from uuid import UUID

from core.accounts.model.accounts import Account
from core.kernel import proofs
from core.kernel.proofs import (
    SECOND_FACTOR_TTL,
    Proof,
    Proofs,
    SessionProofs,
    in_session,
    is_fresh,
    recent,
    renewed,
    with_second,
    with_silent,
)
from core.kernel.values import digest
from ports import Ports
from ports.storage import Reading, Transaction


async def renew(ports: Ports, tx: Transaction, session_id: UUID, account: Account, new: Proofs, now: datetime) -> None:
    """Store a reauthentication in the session of a locked account. Recent proofs by other methods stay.

    A sign-in at an identity provider that may not have asked the user makes no session newer if the account has a password.
    """
    old, since = await _load(tx, session_id, account), now - ports.policy.fresh_sign_in_ttl
    is_silent = new[0].is_own and account.password_hash is not None and not is_fresh(new)
    stored = with_silent(old, new[0]) if is_silent else renewed(old, new, since)
    await tx.session_sign_ins.reauthenticate(session_id, account.id, stored)


async def add_second(tx: Transaction, session_id: UUID, account: Account, second: Proof) -> None:
    """Add a second factor to the session of a locked account. The sign-in does not become newer."""
    await tx.session_sign_ins.reauthenticate(session_id, account.id, with_second(await _load(tx, session_id, account), second))


async def find_recent_seconds(ports: Ports, read: Reading | Transaction, session_id: UUID, account: Account, now: datetime) -> Proofs:
    """Return the second factors that the user proved in this session a few minutes ago. They are not asked again."""
    return _recent_seconds(ports, await _load(read, session_id, account), now) if account.second_factors else ()


async def find_recent_seconds_of_browser(ports: Ports, tx: Transaction, cookie: str, account: Account, now: datetime) -> Proofs:
    """Return the second factors that this user proved a few minutes ago in the live session with this cookie, if it is theirs."""
    found = await tx.session_contexts.load_of_browser(digest(cookie), now)
    if found is None or found[1].user_id != account.id or found[1].mfa_missing:
        return ()
    return _recent_seconds(ports, found[0].proofs, now)


async def has_recent_connection(ports: Ports, read: Reading, session_id: UUID, account: Account, now: datetime) -> bool:
    """Return whether the user signed in at an organization's connection a few minutes ago, in this session."""
    return proofs.has_recent_connection(await _load(read, session_id, account), now - ports.policy.fresh_sign_in_ttl)


def _recent_seconds(ports: Ports, session: SessionProofs, now: datetime) -> Proofs:
    since = now - min(ports.policy.fresh_sign_in_ttl, SECOND_FACTOR_TTL)
    return tuple(proof for proof in recent(in_session(session), since) if proof.can_be_second)


async def _load(tx: Reading | Transaction, session_id: UUID, account: Account) -> SessionProofs:
    session = await tx.session_sign_ins.load_factors(session_id, account.id)
    return () if session is None else session.proofs
