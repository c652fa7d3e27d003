"""The events of the area billing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.kernel.values import rfc3339

if TYPE_CHECKING:
    from core.billing.subscriptions_rules import Subscription
from core.kernel.event_catalog import EVENT_KINDS, Event


def subscription_created(subscription: Subscription) -> Event:
    """Somebody was subscribed to a plan."""
    details = _subscriber(subscription) | _subscription(subscription)
    return Event(EVENT_KINDS["subscription.created"], str(subscription.id), org_id=subscription.org_id, details=details)


def subscription_updated(old: Subscription, new: Subscription) -> Event:
    """A subscription was changed: old and new value by the name of the field."""
    was, is_ = _subscription(old), _subscription(new)
    changes = {name: {"old": was[name], "new": is_[name]} for name in was if was[name] != is_[name]}
    return Event(EVENT_KINDS["subscription.updated"], str(new.id), org_id=new.org_id, details=_subscriber(new) | changes)


def subscription_expired(subscription: Subscription) -> Event:
    """A subscription was found past its period."""
    changes = {"status": {"old": "active", "new": subscription.status.value}}
    return Event(
        EVENT_KINDS["subscription.updated"],
        str(subscription.id),
        org_id=subscription.org_id,
        details=_subscriber(subscription) | changes,
        by_time=True,
    )


def subscription_canceled(subscription: Subscription) -> Event:
    """A subscription was ended; it is what it was before."""
    details = _subscriber(subscription) | _subscription(subscription)
    return Event(EVENT_KINDS["subscription.canceled"], str(subscription.id), org_id=subscription.org_id, details=details)


def _subscriber(subscription: Subscription) -> dict[str, Any]:
    return {"service_id": str(subscription.service_id), "user_id": str(subscription.user_id)}


def _subscription(subscription: Subscription) -> dict[str, Any]:
    return {
        "plan_id": str(subscription.plan.id),
        "plan_name": subscription.plan.name,
        "status": subscription.status.value,
        "current_period_end": rfc3339(subscription.current_period_end),
    }
