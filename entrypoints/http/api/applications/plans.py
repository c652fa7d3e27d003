"""Plans of a service (organizations.md section 4.1; decisions, points 160 and 161)."""

import re
from functools import wraps
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, Field, WithJsonSchema
from quart import Blueprint, Response
from quart_schema import document_response, validate_request, validate_response

from core.applications import plans
from core.kernel.principals import Capability
from entrypoints.http.api.applications.services import PlanShown, of_a_service, show_plan
from entrypoints.http.edge.access import View, member
from entrypoints.http.edge.bodies import Name, RequestModel, ResponseModel, Text, Texts, maybe
from entrypoints.http.edge.context import acting_member, no_content, ports
from entrypoints.http.edge.openapi import describes, refuses
from entrypoints.http.edge.queries import path_id
from entrypoints.http.edge.streaming import streamed

routes = Blueprint("plans", __name__)

Price = Annotated[int, Field(ge=0, lt=2**31)]
_PRICE_ID = re.compile(r"[!-~]{1,255}")


def _visible(text: str) -> str:
    if not _PRICE_ID.fullmatch(text):
        raise ValueError("it must have 1 to 255 printable ASCII characters, without spaces")
    return text


# As the payment provider names it, to which it is sent. One that cannot be seen would make a plan look purchasable that is not.
PriceId = Annotated[str, AfterValidator(_visible), WithJsonSchema({"type": "string", "pattern": f"^{_PRICE_ID.pattern}$"})]


def of_a_plan(view: View) -> View:
    """For routes of `<plan_id>`: that the service has no such plan is told before the body is looked at (decisions, point 16)."""

    @wraps(view)
    async def found(org_slug: str, service_slug: str, plan_id: str) -> Any:
        id_ = path_id(plan_id)
        await plans.find(ports(), acting_member(), service_slug, id_)
        return await view(org_slug=org_slug, service_slug=service_slug, plan_id=id_)

    return found


class NewPlan(RequestModel):
    """The currency is a code of three letters. A plan can be bought once it has a price at the payment provider, `billing_price_id`."""

    name: Name
    price_cents: Price
    currency: Text
    features: Texts | None = None
    billing_price_id: PriceId | None = None


@routes.post("/api/organizations/<org_slug>/services/<service_slug>/plans")
@member(Capability.BILLING_MANAGE)
@of_a_service
@validate_request(NewPlan)
@validate_response(PlanShown)
async def create(org_slug: str, service_slug: str, data: NewPlan) -> PlanShown:
    """Create a plan of a service."""
    plan = await plans.create(
        ports(),
        acting_member(),
        service_slug,
        name=data.name,
        price_cents=data.price_cents,
        currency_code=data.currency,
        offers=data.features or (),
        billing_price_id=data.billing_price_id,
    )
    return show_plan(plan)


class Plans(ResponseModel):
    """All plans of a service, the oldest first, and how many that are."""

    plans: list[PlanShown]
    total: int


@routes.get("/api/organizations/<org_slug>/services/<service_slug>/plans")
@member(Capability.SERVICES_VIEW)
@document_response(Plans)
async def listed(org_slug: str, service_slug: str) -> Response:
    """List the plans of a service."""
    return await streamed(await plans.listed(ports(), acting_member(), service_slug), show_plan, named="plans", counted="total")


class PlanChange(RequestModel):
    """What to change, at least one of the fields. Features replace those that were there; null clears them, and the price identifier."""

    name: Name = maybe()
    price_cents: Price = maybe()
    currency: Text = maybe()
    features: Texts | None = maybe()
    billing_price_id: PriceId | None = maybe()


@routes.patch("/api/organizations/<org_slug>/services/<service_slug>/plans/<plan_id>")
@member(Capability.BILLING_MANAGE)
@of_a_plan
@validate_request(PlanChange)
@validate_response(PlanShown)
async def update(org_slug: str, service_slug: str, plan_id: UUID, data: PlanChange) -> PlanShown:
    """Change a plan."""
    plan = await plans.update(
        ports(),
        acting_member(),
        service_slug,
        plan_id,
        name=data.name,
        price_cents=data.price_cents,
        currency_code=data.currency,
        offers=() if data.features is None else data.features,
        billing_price_id=data.billing_price_id,
    )
    return show_plan(plan)


@routes.delete("/api/organizations/<org_slug>/services/<service_slug>/plans/<plan_id>")
@member(Capability.BILLING_MANAGE)
@refuses(400)
@describes({204: "The plan is gone; subscriptions that have ended keep it."})
async def delete(org_slug: str, service_slug: str, plan_id: str) -> Response:
    """Delete a plan that nobody is subscribed to."""
    await plans.delete(ports(), acting_member(), service_slug, path_id(plan_id))
    return no_content()
