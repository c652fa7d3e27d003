"""Hosted checkout (organizations.md sections 2.11 and 4.1)."""

from quart import Blueprint
from quart_schema import validate_request, validate_response

from core.billing import checkout
from core.kernel.principals import Capability
from entrypoints.http.api.applications.services import of_a_service
from entrypoints.http.edge.access import member
from entrypoints.http.edge.bodies import Id, RequestModel, ResponseModel, Text
from entrypoints.http.edge.context import acting_member, ports

routes = Blueprint("checkout", __name__)


class NewCheckout(RequestModel):
    """Which plan, and where the browser comes back to. success_url may hold {CHECKOUT_SESSION_ID}, for which the provider puts the id."""

    plan_id: Id
    success_url: Text
    cancel_url: Text


class CheckoutBegun(ResponseModel):
    """Where the browser goes on, and what the provider calls it."""

    checkout_url: str
    session_id: str


@routes.post("/api/organizations/<org_slug>/services/<service_slug>/checkout")
@member(Capability.SERVICES_VIEW)
@of_a_service
@validate_request(NewCheckout)
@validate_response(CheckoutBegun)
async def begin(org_slug: str, service_slug: str, data: NewCheckout) -> CheckoutBegun:
    """Begin to buy a plan of a service for yourself, on a page of the payment provider."""
    begun = await checkout.begin(ports(), acting_member(), service_slug, data.plan_id, data.success_url, data.cancel_url)
    return CheckoutBegun(checkout_url=begun.url, session_id=begun.session_id)
