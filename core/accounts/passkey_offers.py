"""The offer to create a passkey, after a sign-in with a password."""

from datetime import datetime
from uuid import UUID

from core.accounts import passkeys, relying_party
from core.accounts.model.passkeys import OFFER_PAUSE, Json
from core.kernel.callers import Person
from ports import Ports


async def is_due(ports: Ports, user_id: UUID, now: datetime) -> bool:
    """Return whether a passkey is to be offered.

    The address is verified, and the account has no passkey that works here and had no offer for a while.
    """
    if not relying_party.has_host(ports):
        return False
    async with ports.storage.reading() as read:
        hosts = await read.passkeys.find_offerable(user_id, now - OFFER_PAUSE)
    return hosts is not None and relying_party.present_id(ports, hosts) not in hosts.passkeys


async def show(ports: Ports, caller: Person) -> tuple[Json, Json] | None:
    """Return the options of a conditional and of a usual registration for the page of the offer. None: there is no offer now.

    The time of the offer is stored, so "Not now" needs no request.

    Raises: the errors of `passkeys.start`.
    """
    now = ports.clock.now()
    if not await is_due(ports, caller.user_id, now):
        return None
    options = await passkeys.start(ports, caller, conditional=True), await passkeys.start(ports, caller)
    async with ports.storage.transaction(by=caller) as tx:
        await tx.passkeys.set_offered(caller.user_id, now)
    return options
