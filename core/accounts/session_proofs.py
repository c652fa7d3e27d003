"""The proofs of a session, after its user has signed in: a reauthentication, or a second factor that they proved or set up."""

from datetime import datetime
from uuid import UUID

from core.accounts.model.accounts import Account
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
from ports import Ports
from ports.storage import Reading, Transaction


async def renew(ports: Ports, tx: Transaction, session_id: UUID, account: Account, new: Proofs, now: datetime) -> None:
    """Store a reauthentication in the session of a locked account. Recent first factors by other methods stay.

    A sign-in at an identity provider that may not have asked the user makes no session newer if the account has a password.
    """
    proofs, since = await _load(tx, session_id, account), now - ports.policy.fresh_sign_in_ttl
    is_silent = new[0].is_own and account.password_hash is not None and not is_fresh(new)
    proofs = with_silent(proofs, new[0]) if is_silent else renewed(proofs, new, since)
    await tx.session_sign_ins.reauthenticate(session_id, account.id, proofs)


async def add_second(tx: Transaction, session_id: UUID, account: Account, second: Proof) -> None:
    """Add a second factor to the session of a locked account. The sign-in does not become newer."""
    await tx.session_sign_ins.reauthenticate(session_id, account.id, with_second(await _load(tx, session_id, account), second))


async def find_recent_second(ports: Ports, read: Reading | Transaction, session_id: UUID, account: Account, now: datetime) -> Proof | None:
    """Return the second factor that the user proved in this session a few minutes ago, or None. It is not asked again."""
    if not account.second_factors:
        return None
    since = now - min(ports.policy.fresh_sign_in_ttl, SECOND_FACTOR_TTL)
    return next((proof for proof in recent(in_session(await _load(read, session_id, account)), since) if proof.is_second), None)


async def _load(tx: Reading | Transaction, session_id: UUID, account: Account) -> SessionProofs:
    session = await tx.session_sign_ins.load_factors(session_id, account.id)
    return () if session is None else session.proofs
