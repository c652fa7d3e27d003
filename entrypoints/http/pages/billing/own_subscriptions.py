"""The pages for the user's subscriptions."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.billing import subscriptions
from core.billing.model.subscriptions import OwnSubscription
from entrypoints.http import kit
from entrypoints.http.pages import console, console_forms

routes = Blueprint("account_subscriptions", __name__)

SUBSCRIPTIONS: Final = "/app/account/subscriptions"


def _values(own: OwnSubscription) -> dict[str, Any]:
    subscription = own.subscription
    return {
        "id": subscription.id,
        "plan": subscription.plan.name,
        "service": own.service,
        "organization": own.organization,
        "status": kit.label(subscription.status).lower(),
        "end": subscription.current_period_end,
        "is_live": subscription.status.is_live,
        "is_charged": subscription.provider_subscription_id is not None,
    }


@routes.get(SUBSCRIPTIONS)
@kit.page_session
@console.shows("GET /api/subscription")
async def show_subscriptions() -> Response:
    """List your subscriptions. These are the current subscriptions to applications' plans, or else the last subscriptions."""
    result = [_values(own) for own in await subscriptions.list_own_subscriptions(kit.ports(), kit.signed_in())]
    return await console.console_page("billing/own_subscriptions.html", subscriptions=result)


@routes.get(f"{SUBSCRIPTIONS}/<subscription_id>")
@kit.page_session
@kit.describes_page({200: "The page.", 404: "You have no such subscription, or it has ended."}, api=["GET /api/subscription"])
async def show_subscription(subscription_id: UUID) -> Response:
    """Ask before your subscription is canceled."""
    own = await subscriptions.find_own_live(kit.ports(), kit.signed_in(), subscription_id)
    return await console.console_page("billing/own_subscription.html", subscription=_values(own))


@routes.post(f"{SUBSCRIPTIONS}/<subscription_id>/cancel")
@kit.page_session(kit.CHANGES)
@console_forms.accepts(answers={303: console_forms.REDIRECTED, 404: "You have no such subscription, or it has ended."})
async def cancel_subscription(subscription_id: UUID) -> Response:
    """Cancel your subscription.

    It ends at once. If a payment provider manages it, it is canceled there, too.
    """
    await subscriptions.cancel_own(kit.ports(), kit.signed_in(), subscription_id)
    return console.redirect_with_notice("subscription-canceled", SUBSCRIPTIONS)
