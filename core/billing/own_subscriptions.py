"""The signed-in user's subscriptions, which the user can cancel."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from core.accounts.own_account import lock_own_account
from core.applications import cancellations
from core.billing import subscriptions
from core.billing.model.subscriptions import OwnSubscription, OwnSubscriptionNotFound
from core.kernel.callers import Person
from core.kernel.errors import refuse
from ports import Ports

MAX_LISTED: Final = 200


async def list_own(ports: Ports, caller: Person) -> Sequence[OwnSubscription]:
    """Return the caller's current subscriptions, one per service, live ones first, at most MAX_LISTED."""
    async with ports.storage.reading() as read:
        return await read.subscriptions.list_of_user(caller.user_id, MAX_LISTED, ports.clock.now())


async def find_live(ports: Ports, caller: Person, subscription_id: UUID) -> OwnSubscription:
    """Return the caller's live subscription with this id."""
    for own in await list_own(ports, caller):
        if own.subscription.id == subscription_id and own.subscription.status.is_live:
            return own
    raise OwnSubscriptionNotFound


async def cancel(ports: Ports, caller: Person, subscription_id: UUID) -> None:
    """End the caller's live subscription at once, as `subscriptions.end` does."""
    known = (await find_live(ports, caller, subscription_id)).subscription
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        await tx.organizations.lock(known.org_id) or refuse(OwnSubscriptionNotFound)
        await lock_own_account(tx, caller, now)
        current = await tx.subscriptions.lock_of_user(known.org_id, known.service_id, caller.user_id, now)
        if current is None or current.id != subscription_id or not current.status.is_live:
            raise OwnSubscriptionNotFound
        await subscriptions.end_locked(tx, current, now)
    if current.provider_subscription_id is not None:
        await cancellations.cancel_now(ports, current.org_id, current.service_id)
