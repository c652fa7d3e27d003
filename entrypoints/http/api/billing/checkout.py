"""Hosted checkout for members."""

from pydantic import Field
from quart import Blueprint

from core.billing import checkout
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.applications.services import existing_service
from entrypoints.http.edge.access.effects import CHECKOUT

routes = Blueprint("checkout", __name__)


class CheckoutRequest(kit.RequestModel):
    """The plan to buy, and where the browser returns to."""

    plan_id: kit.Id = Field(description="The id of a service's plan that has a `billing_price_id`.")
    success_url: kit.Text = Field(
        description="The page to open after the purchase. The provider replaces `{CHECKOUT_SESSION_ID}` in it with the session's id.",
        examples=["https://shop.example.com/thanks?session={CHECKOUT_SESSION_ID}"],
    )
    cancel_url: kit.Text = Field(description="The page to open if the user cancels.", examples=["https://shop.example.com/plans"])


class CheckoutResponse(kit.ResponseModel):
    """A checkout at the payment provider."""

    checkout_url: str = Field(description="The page of the payment provider. Redirect the user's browser to it.")
    session_id: str = Field(description="The id of the checkout session at the payment provider.")


@routes.post("/api/organizations/<org_slug>/services/<service_slug>/checkout")
@kit.member(Capability.SERVICES_VIEW, CHECKOUT)
@existing_service
@kit.refuses(501)
async def begin(org_slug: str, service_slug: str, data: CheckoutRequest) -> CheckoutResponse:
    """Start a checkout.

    The subscription is for the caller, who buys the plan on the payment provider's page. It becomes active when the
    provider confirms the payment, some seconds after the browser returns. Members with an active or past due
    subscription to the service cannot buy a second subscription. Without a payment provider in the settings, the
    response is 501.
    """
    session = await checkout.begin(kit.ports(), kit.acting_member(), service_slug, data.plan_id, data.success_url, data.cancel_url)
    return CheckoutResponse(checkout_url=session.url, session_id=session.session_id)
