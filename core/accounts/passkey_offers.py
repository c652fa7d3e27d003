"""The offer to create a passkey, after a sign-in with a password."""

from datetime import datetime
from uuid import UUID

from core.accounts import factor_changes, passkeys, relying_party
from core.accounts.model.passkeys import MAX_PASSKEYS, OFFER_PAUSE, Json
from core.kernel.callers import Person
from ports import Ports
from ports.storage import Reading


async def is_due(ports: Ports, user_id: UUID, session_id: UUID, now: datetime) -> bool:
    """Return whether a passkey is to be offered in this session.

    The address is verified, and the account has no passkey that works here and had no offer for a while. The user's sign-in policies accept
    this sign-in for a passkey: an offer is no reason to ask for another sign-in.
    """
    if not relying_party.has_host(ports):
        return False
    async with ports.storage.reading() as read:
        hosts = await read.passkeys.find_offerable(user_id, now - OFFER_PAUSE)
        if hosts is None or relying_party.present_id(ports, hosts) in hosts.passkeys:
            return False
        return await _may_create(ports, read, user_id, session_id, now)


async def _may_create(ports: Ports, read: Reading, user_id: UUID, session_id: UUID, now: datetime) -> bool:
    account = await read.accounts.by_id(user_id)
    if account is None or account.key_count >= MAX_PASSKEYS:
        return False
    return await factor_changes.may_add(ports, read, session_id, account, now)


async def show(ports: Ports, caller: Person) -> tuple[Json, Json] | None:
    """Return the options for a conditional and a usual registration on the offer page.

    None: there is no offer now.

    The time of the offer is stored, so "Not now" needs no request.
    """
    now = ports.clock.now()
    if not await is_due(ports, caller.user_id, caller.session_id, now):
        return None
    options = await passkeys.start(ports, caller, conditional=True), await passkeys.start(ports, caller)
    async with ports.storage.transaction(by=caller) as tx:
        await tx.passkeys.set_offered(caller.user_id, now)
    return options


async def offer_again(ports: Ports, caller: Person) -> Json | None:
    """Return the options for another attempt, or None if the caller can create no passkey now."""
    async with ports.storage.reading() as read:
        if not await _may_create(ports, read, caller.user_id, caller.session_id, ports.clock.now()):
            return None
    return await passkeys.start(ports, caller)
