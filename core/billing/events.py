"""Constructors for subscription events."""

from typing import Any

from core.billing.model.subscriptions import Subscription
from core.kernel.event_catalog import EVENT_KINDS, Event
from core.kernel.values import rfc3339


def subscription_created(subscription: Subscription) -> Event:
    """A user was subscribed to a plan."""
    details = _subscriber_details(subscription) | _subscription_details(subscription)
    return Event(EVENT_KINDS["subscription.created"], str(subscription.id), org_id=subscription.org_id, details=details)


def subscription_updated(old: Subscription, new: Subscription) -> Event:
    """A subscription was changed. For every changed field, the event contains the old and new value."""
    before, after = _subscription_details(old), _subscription_details(new)
    changes = {name: {"old": before[name], "new": after[name]} for name in before if before[name] != after[name]}
    return Event(EVENT_KINDS["subscription.updated"], str(new.id), org_id=new.org_id, details=_subscriber_details(new) | changes)


def subscription_expired(subscription: Subscription) -> Event:
    """A subscription expired because its period ended."""
    changes = {"status": {"old": "active", "new": subscription.status.value}}
    return Event(
        EVENT_KINDS["subscription.updated"],
        str(subscription.id),
        org_id=subscription.org_id,
        details=_subscriber_details(subscription) | changes,
        by_time=True,
    )


def subscription_canceled(subscription: Subscription) -> Event:
    """A subscription was canceled or deleted. The event has its state before that."""
    details = _subscriber_details(subscription) | _subscription_details(subscription)
    return Event(EVENT_KINDS["subscription.canceled"], str(subscription.id), org_id=subscription.org_id, details=details)


def _subscriber_details(subscription: Subscription) -> dict[str, Any]:
    return {"service_id": str(subscription.service_id), "user_id": str(subscription.user_id)}


def _subscription_details(subscription: Subscription) -> dict[str, Any]:
    return {
        "plan_id": str(subscription.plan.id),
        "plan_name": subscription.plan.name,
        "status": subscription.status.value,
        "current_period_end": rfc3339(subscription.current_period_end),
    }
