"""A service's plans, managed by members."""

import re
from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, Field, WithJsonSchema
from quart import Blueprint, Response
from quart_schema import document_response

from core.applications import plans
from core.applications.model.plans import PlanChanges, PlanTerms
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.applications import services

routes = Blueprint("plans", __name__)

Price = Annotated[int, Field(ge=0, lt=2**31)]
_PRICE_ID = re.compile(r"[!-~]{1,255}")


def _check_price_id(text: str) -> str:
    if not _PRICE_ID.fullmatch(text):
        raise ValueError("it must have 1 to 255 printable ASCII characters, without spaces")
    return text


# The id is sent to the payment provider. With invisible characters only, a plan would look as if it
# had a price, but could not be bought.
PriceId = Annotated[str, AfterValidator(_check_price_id), WithJsonSchema({"type": "string", "pattern": f"^{_PRICE_ID.pattern}$"})]


@kit.before_body
async def existing_plan(org_slug: str, service_slug: str, plan_id: UUID) -> None:
    """Answer 404 if the service has no plan `<plan_id>`."""
    await plans.require(kit.ports(), kit.acting(), service_slug, plan_id)


class PlanRequest(kit.RequestModel):
    """A new plan for a service."""

    name: kit.Name = Field(description="The name of the plan.", examples=["Professional"])
    price_cents: Price = Field(description="The price of a period, in the smallest unit of the currency.", examples=[1900])
    currency: kit.Text = Field(description="The currency, a code of three letters.", examples=["usd"])
    features: kit.Texts | None = Field(
        default=None,
        description="The plan's features. Its subscribers' tokens contain them, so they are limited to 3,000 bytes as JSON.",
        examples=[["exports", "support"]],
    )
    billing_price_id: PriceId | None = Field(
        default=None, description="The id of the price at the payment provider. A plan without it cannot be bought."
    )

    def build(self) -> PlanTerms:
        """Return the plan's terms."""
        return PlanTerms(**{**dict(self), "features": self.features or ()})


@routes.post("/api/organizations/<org_slug>/services/<service_slug>/plans")
@kit.member(Capability.BILLING_MANAGE, kit.CHANGES)
@services.existing_service
async def create(org_slug: str, service_slug: str, data: PlanRequest) -> services.PlanResponse:
    """Create a plan.

    Users can buy the plan as soon as it has a `billing_price_id`. The service's API keys can subscribe users to it
    immediately.
    """
    return services.PlanResponse.of(await plans.create(kit.ports(), kit.acting(), service_slug, data.build()))


class PlanListResponse(kit.ResponseModel):
    """All plans in a service."""

    plans: list[services.PlanResponse] = Field(description="The plans, oldest first.")
    total: int = Field(description="The number of plans.")


@routes.get("/api/organizations/<org_slug>/services/<service_slug>/plans")
@kit.member(Capability.SERVICES_VIEW)
@document_response(PlanListResponse)
async def list_plans(org_slug: str, service_slug: str) -> Response:
    """List plans.

    Returns all the service's plans, oldest first, without deleted plans.
    """
    return await kit.stream_list(
        await plans.list_plans(kit.ports(), kit.acting(), service_slug), services.PlanResponse.of, name="plans", count_name="total"
    )


class PlanUpdateRequest(kit.RequestModel):
    """The plan's fields to change, at least one field."""

    model_config = kit.AT_LEAST_ONE_FIELD

    name: kit.Name = kit.optional(description="The name of the plan.")
    price_cents: Price = kit.optional(description="The price of a period, in the smallest unit of the currency.")
    currency: kit.Text = kit.optional(description="The currency, a code of three letters.")
    features: kit.Texts | None = kit.optional(description="The plan's features. They replace all previous features; null removes them.")
    billing_price_id: PriceId | None = kit.optional(
        description="The id of the price at the payment provider. With null the plan can no longer be bought."
    )


@routes.patch("/api/organizations/<org_slug>/services/<service_slug>/plans/<plan_id>")
@kit.member(Capability.BILLING_MANAGE, kit.CHANGES)
@existing_plan
async def update(org_slug: str, service_slug: str, plan_id: UUID, data: PlanUpdateRequest) -> services.PlanResponse:
    """Change a plan.

    Only the fields in the request change. Subscribers' tokens contain new features from their next refresh on.
    """
    changes = PlanChanges(**{**dict(data), "features": () if data.features is None else data.features})
    return services.PlanResponse.of(await plans.update(kit.ports(), kit.acting(), service_slug, plan_id, changes))


@routes.delete("/api/organizations/<org_slug>/services/<service_slug>/plans/<plan_id>")
@kit.member(Capability.BILLING_MANAGE, kit.CHANGES)
@kit.refuses(400)
@kit.describes({204: "The plan is deleted."})
async def delete(org_slug: str, service_slug: str, plan_id: UUID) -> None:
    """Delete a plan.

    Plans with active or past due subscriptions cannot be deleted. Ended subscriptions keep the
    plan.
    """
    await plans.delete(kit.ports(), kit.acting(), service_slug, plan_id)
