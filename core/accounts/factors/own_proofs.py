"""Proofs by an account's own factors: its passkey, or otherwise its strongest factor (security PK-12, security Y-4)."""

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from core.accounts import relying_party
from core.accounts.model import accounts
from core.kernel.access import AccountGone
from core.kernel.callers import Person
from core.kernel.errors import refuse
from core.kernel.proofs import Proofs, Strength, recent, seen_in, strength_of
from core.kernel.sign_in_age import SignInNotRecent
from core.kernel.sign_in_policy.decision import Decision
from core.kernel.sign_in_policy.steps import step_up_to
from ports import Ports, storage


async def require_strongest_proof(
    ports: Ports, read: storage.Reading | storage.Transaction, caller: Person, account: accounts.Account, now: datetime
) -> None:
    """Check that the caller has just shown the strongest factor that their account itself has. No sign-in policy counts (security Y-4).

    Without a passkey, this is the second factor, or else the first factor, with the sign-in age that the route asks for. A sign-in at an
    organization's connection shows no factor of the account.
    """
    proofs = await load_proofs(read, caller.session_id, account.id, now)
    if (missing := await find_passkey_step(ports, read, account, proofs, now)) is not None:
        raise accounts.PasskeyNeeded(missing, ports.policy.fresh_sign_in_ttl)
    needed = Strength.TWO if account.second_factors else Strength.ONE
    if strength_of(recent(proofs, now - ports.policy.recent_sign_in_ttl)) < needed:
        raise SignInNotRecent(ports.policy.recent_sign_in_ttl, needed)


async def find_missing_passkey(ports: Ports, caller: Person) -> Decision | None:
    """Return the sign-in with a passkey that `require_strongest_proof` asks of the caller, or None."""
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(caller.user_id) or refuse(AccountGone)
        if not await relying_party.has_passkey(ports, read, account):
            return None
        # The proofs are read last, so that they have the passkey that the session has just registered.
        return await find_passkey_step(ports, read, account, await load_proofs(read, caller.session_id, account.id, now), now)


async def find_passkey_step(
    ports: Ports, read: storage.Reading | storage.Transaction, account: accounts.Account, proofs: Proofs, now: datetime
) -> Decision | None:
    """Return the missing sign-in with a passkey. None: the account has no passkey, or the user has just shown a passkey."""
    fresh = recent(proofs, now - ports.policy.fresh_sign_in_ttl)
    if strength_of(fresh) is Strength.PHISHING_RESISTANT or not await relying_party.has_passkey(ports, read, account):
        return None
    return replace(step_up_to(Strength.PHISHING_RESISTANT, None), max_age=ports.policy.fresh_sign_in_ttl)


async def load_proofs(read: storage.Reading | storage.Transaction, session_id: UUID, user_id: UUID, now: datetime) -> Proofs:
    """Return the session's proofs by the account's own factors."""
    session = await read.session_sign_ins.load_factors(session_id, user_id)
    return () if session is None else seen_in(session.proofs, None, now)
