"""Sign-ins at identity providers that may not have asked the user: a browser that is open there is enough for them.

They make no session newer if the account has a password (security A-12). At an organization's connection, they show that the identity
provider still vouches for the user (security SP-9).
"""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from core.kernel.proofs import OWN_FIRST_METHODS, Method, Proof, Proofs, SessionProofs, every_proof

# Without a code by email: where the identity provider has the mailbox, a browser that is open there is enough for it.
_SHOW_USER: Final = OWN_FIRST_METHODS - {Method.EMAIL}
_NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)


def with_silent(proofs: SessionProofs, silent: Proof) -> Proofs:
    """Return a session's proofs with a proof by an identity provider that may not have asked the user.

    It counts for its method, and is as old as the newest first factor.
    """
    every, method = every_proof(proofs), (silent.method, silent.provider)
    at = _newest_first_time(every, None) or silent.at
    others = tuple(proof for proof in every if (proof.method, proof.provider) != method or proof.at == at)
    is_there = any((proof.method, proof.provider) == method for proof in others)
    return others if is_there else (*others, replace(silent, at=at))


def without_renewal(old: SessionProofs, silent: SessionProofs) -> Proofs:
    """Return a new session's proofs, with first factors no newer than `old`: an identity provider may not have asked the user."""
    new = every_proof(silent)
    newest = _newest_first_time(every_proof(old), next((proof.org for proof in new if proof.org is not None), None))
    if newest is None:
        return new
    return tuple(proof if proof.is_second else _vouched(proof, at=min(proof.at, newest), is_fresh=proof.is_fresh) for proof in new)


def with_vouching(proofs: SessionProofs, silent: Proof) -> Proofs:
    """Return a session's proofs with a sign-in at a connection that may not have asked the user.

    The session becomes no newer, and the connection's proof ends no later.
    """
    every = every_proof(proofs)
    old = next((proof for proof in every if proof.connection == silent.connection), None)
    newest = _newest_first_time(every, silent.org) or silent.at
    at, is_fresh = (min(silent.at, newest), False) if old is None else (old.at, old.is_fresh)
    ends = [proof.until for proof in (silent, old) if proof is not None and proof.until is not None]
    silent = replace(silent, until=min(ends, default=None))
    return (*(proof for proof in every if proof.connection != silent.connection), _vouched(silent, at=at, is_fresh=is_fresh))


def _vouched(proof: Proof, *, at: datetime, is_fresh: bool) -> Proof:
    return replace(proof, at=at, is_fresh=is_fresh, vouched_at=None if proof.is_own else proof.at)


def _newest_first_time(proofs: Proofs, org_id: UUID | None) -> datetime | None:
    """Return the time (UTC) of the newest proof by the account's own first factors or at this organization, or None.

    Without an organization and an own factor, a proof at any connection counts, because the new proof will count there, too.
    """
    firsts = [proof for proof in proofs if not proof.is_second]
    times = [proof.at for proof in firsts if proof.is_own or proof.org == org_id]
    return max(times or [proof.at for proof in firsts if org_id is None], default=None)


def beside_own(proofs: Proofs, *, needs_user: bool = False) -> Proofs:
    """Return the proofs, with the time (UTC) at which proofs at connections count.

    A sign-in that may not have asked the user shows that the identity provider still vouches for them, and an own first factor that they
    are here. Together they count, with the age of the older proof. `needs_user`: such a sign-in does not count alone.
    """
    own_at = max((proof.at for proof in proofs if proof.method in _SHOW_USER and not proof.is_second), default=_NEVER)
    return tuple(proof if proof.is_own else _aged(proof, own_at, needs_user=needs_user) for proof in proofs)


def vouched_at(proof: Proof) -> datetime:
    """Return when a connection's identity provider last signed the user in (UTC)."""
    return proof.vouched_at or proof.at


def _aged(proof: Proof, own_at: datetime, *, needs_user: bool) -> Proof:
    alone = _NEVER if needs_user and not proof.is_fresh else proof.at
    return replace(proof, at=max(alone, min(vouched_at(proof), own_at)), vouched_at=vouched_at(proof))
