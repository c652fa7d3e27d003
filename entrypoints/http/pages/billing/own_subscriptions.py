"""The pages for the user's subscriptions."""

from typing import Final
from uuid import UUID

from quart import Blueprint, Response

from core.billing import subscriptions
from entrypoints.http import kit
from entrypoints.http.pages import console, console_forms

routes = Blueprint("account_subscriptions", __name__)

SUBSCRIPTIONS: Final = "/app/account/subscriptions"


@routes.get(SUBSCRIPTIONS)
@kit.page_session
@console.shows("GET /api/subscription")
async def show_subscriptions() -> Response:
    """List your subscriptions. These are the current subscriptions to applications' plans, or else the last subscriptions."""
    own = await subscriptions.list_own_subscriptions(kit.ports(), kit.signed_in())
    return await console.console_page("billing/own_subscriptions.html", subscriptions=own)


@routes.get(f"{SUBSCRIPTIONS}/<subscription_id>")
@kit.page_session
@kit.describes_page({200: "The page.", 404: "You have no such subscription, or it has ended."}, api=["GET /api/subscription"])
async def show_subscription(subscription_id: UUID) -> Response:
    """Ask before your subscription is canceled."""
    own = await subscriptions.find_own_live(kit.ports(), kit.signed_in(), subscription_id)
    return await console.console_page("billing/own_subscription.html", own=own)


@routes.post(f"{SUBSCRIPTIONS}/<subscription_id>/cancel")
@kit.page_session(kit.CHANGES)
@console_forms.accepts(answers={303: console_forms.REDIRECTED, 404: "You have no such subscription, or it has ended."})
async def cancel_subscription(subscription_id: UUID) -> Response:
    """Cancel your subscription.

    It ends at once. If a payment provider manages it, it is canceled there, too.
    """
    await subscriptions.cancel_own(kit.ports(), kit.signed_in(), subscription_id)
    return console.redirect_with_notice("subscription-canceled", SUBSCRIPTIONS)
