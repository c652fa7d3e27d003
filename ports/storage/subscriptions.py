"""What is asked of storage about subscriptions."""

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.subscriptions import Entitlement, Purchase, SubscribedPlan, Subscription, SubscriptionStatus
from core.values import Listed


class SubscriptionsRead(Protocol):
    """Subscriptions, looked at. One that is active past its period and has no payment provider is shown as expired."""

    async def entitlement(self, service_id: UUID, user_id: UUID, now: datetime) -> Entitlement:
        """What this person has of this service."""
        ...

    async def uses_plan(self, org_id: UUID, plan_id: UUID, now: datetime) -> bool:
        """Whether somebody is subscribed to this plan, active or past due, now."""
        ...

    async def plan(self, plan_id: UUID) -> SubscribedPlan | None:
        """The plan with this id, whatever service it is of, removed or not."""
        ...

    async def purchase(self, org_id: UUID, subscription_id: UUID) -> Purchase | None:
        """What this one is to; None where it is not live any more."""
        ...

    async def page(
        self, org_id: UUID, service_id: UUID, status: SubscriptionStatus | None, limit: int, offset: int, now: datetime
    ) -> Listed[Subscription]:
        """Those to the service that have this status now, the oldest first."""
        ...

    async def counts(self, org_id: UUID, service_id: UUID, now: datetime) -> Mapping[SubscriptionStatus, int]:
        """How many of those to the service have which status now."""
        ...

    async def of_user(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> Subscription | None:
        """The person's live one, or else the newest."""
        ...


class Subscriptions(SubscriptionsRead, Protocol):
    """Subscriptions, changed. The organization is locked before any of these but `expire`."""

    async def lock_of_user(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> Subscription | None:
        """What `of_user` finds, locked until the transaction ends."""
        ...

    async def lock_of_provider(self, org_id: UUID, provider_subscription_id: str) -> Subscription | None:
        """The one that the payment provider has under this name, locked."""
        ...

    async def exists(self, org_id: UUID, subscription_id: UUID) -> bool: ...

    async def add(self, subscription: Subscription) -> None:
        """Also counts it. The account is locked before. Raises AlreadySubscribed."""
        ...

    async def save(self, subscription: Subscription, now: datetime) -> None:
        """Write plan, status and period of a locked one. Raises AlreadySubscribed."""
        ...

    async def let_go(self, org_id: UUID, subscription_id: UUID, now: datetime) -> None:
        """No payment provider looks after it from now on."""
        ...

    async def remove(self, org_id: UUID, subscription_id: UUID) -> None:
        """Also counts it out."""
        ...

    async def expire_of_user(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> list[Subscription]:
        """Mark what has run out of this person's, of which there is one at most."""
        ...

    async def expire(self, now: datetime, limit: int) -> list[Subscription]:
        """Mark at most `limit` that have run out, of whatever organization; those in use are left for later."""
        ...
