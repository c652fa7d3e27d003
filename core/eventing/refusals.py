"""Entries about refused changes in organizations' audit logs (security L-5).

The entry is written in its own transaction, because the change's transaction is rolled back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from core.eventing import events
from core.kernel import callers
from core.kernel.causes import Caller
from core.kernel.errors import Refusal
from core.kernel.rate_limits import Bucket
from ports import Ports

# Entries per organization and caller: ten at once, and at most twenty in any hour.
ENTRIES = Bucket("refused", 360.0, 10)
ARGUMENT_LENGTH = 200  # characters; no existing object has a longer name


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """A change that was refused. `route` is the path template, and `arguments` are its path parameters without the organization."""

    method: str
    route: str
    arguments: Mapping[str, str]


async def record(ports: Ports, caller: Caller | None, change: RefusedChange, refusal: Refusal) -> None:
    """Record that an organization's member or credential was refused, if this refusal is audited.

    Other callers write to no organization's log. A caller who is refused again and again writes at
    most twenty entries an hour, so that they cannot fill the log.

    Raises: SessionEnded if the member's session has ended.
    """
    caller = refusal.caller or caller
    actor = None if caller is None or not refusal.audited else _actor(caller)
    if caller is None or actor is None:
        return
    org_id, actor_id = actor
    async with ports.storage.autocommit() as statements:
        if await statements.rates.take(f"refused {org_id} {actor_id}", (ENTRIES,), ports.clock.now()) > 0:
            return
    arguments = {name: value[:ARGUMENT_LENGTH] for name, value in change.arguments.items()}
    async with ports.storage.transaction(by=caller) as tx:
        tx.record(events.access_refused(org_id, change.method, change.route, arguments, refusal))


def _actor(caller: Caller) -> tuple[UUID, UUID] | None:
    """Return the organization that a caller acts in, and the id of member or credential."""
    match caller:
        case callers.Member():
            return caller.acts_in.id, caller.user_id
        case callers.ServiceAccountCaller():
            return None if caller.org_id is None else (caller.org_id, caller.account_id)
        case callers.ServiceKey():
            return caller.service.org_id, caller.key_id
        case callers.ScimClient() | callers.RegistrationClient():
            return caller.org_id, caller.token_id
        case callers.SetupLinkCaller():
            return caller.org_id, caller.link_id
    return None
