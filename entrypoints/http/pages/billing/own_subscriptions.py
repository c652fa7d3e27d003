"""The pages for the user's subscriptions."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.billing import subscriptions
from core.billing.model.subscriptions import OwnSubscription
from entrypoints.http.base.context import ports, signed_in
from entrypoints.http.base.rendering.labels import label
from entrypoints.http.edge.access import CHANGES, page_session
from entrypoints.http.edge.openapi import describes_page
from entrypoints.http.pages.console import console_page, redirect_with_notice
from entrypoints.http.pages.console_forms import REDIRECTED, accepts

routes = Blueprint("account_subscriptions", __name__)

SUBSCRIPTIONS: Final = "/app/account/subscriptions"


def _values(own: OwnSubscription) -> dict[str, Any]:
    subscription = own.subscription
    return {
        "id": subscription.id,
        "plan": subscription.plan.name,
        "service": own.service,
        "organization": own.organization,
        "status": label(subscription.status).lower(),
        "end": subscription.current_period_end,
        "is_live": subscription.status.is_live,
        "is_charged": subscription.provider_subscription_id is not None,
    }


@routes.get(SUBSCRIPTIONS)
@page_session
@describes_page({200: "The list."}, api=["GET /api/subscription"])
async def show_subscriptions() -> Response:
    """List your subscriptions.

    These are the current subscriptions to applications' plans, or else the last subscriptions.
    """
    result = [_values(own) for own in await subscriptions.list_own_subscriptions(ports(), signed_in())]
    return await console_page("billing/own_subscriptions.html", subscriptions=result)


@routes.get(f"{SUBSCRIPTIONS}/<subscription_id>")
@page_session
@describes_page({200: "The page.", 404: "You have no such subscription, or it has ended."}, api=["GET /api/subscription"])
async def show_subscription(subscription_id: UUID) -> Response:
    """Ask before your subscription is canceled.

    The page has the form that cancels it.
    """
    own = await subscriptions.find_own_live(ports(), signed_in(), subscription_id)
    return await console_page("billing/own_subscription.html", subscription=_values(own))


@routes.post(f"{SUBSCRIPTIONS}/<subscription_id>/cancel")
@page_session(CHANGES)
@accepts(answers={303: REDIRECTED, 404: "You have no such subscription, or it has ended."})
async def cancel_subscription(subscription_id: UUID) -> Response:
    """Cancel your subscription.

    It ends at once. If a payment provider manages it, it is canceled there, too.
    """
    await subscriptions.cancel_own(ports(), signed_in(), subscription_id)
    return redirect_with_notice("subscription-canceled", SUBSCRIPTIONS)
