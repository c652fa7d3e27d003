"""The pages for an application's plans, and for the subscriptions to them."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.applications import plans, services
from core.applications.model import plans as plans_model
from core.applications.model.plans import Plan, PlanInUse, PlanNotFound, SubscriptionStatus
from core.billing import subscriptions
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.applications.plans import PlanRequest
from entrypoints.http.api.billing.subscriptions import SubscriptionsQuery
from entrypoints.http.pages import console, console_forms, form_values
from entrypoints.http.pages.applications.applications import APPLICATION, SERVICE, application_path, application_values

routes = Blueprint("plan_pages", __name__)

PLANS: Final = f"{APPLICATION}/plans"
API: Final = f"{SERVICE}/plans"
FIELDS: Final[console_forms.Fields] = {plans_model.CurrencyInvalid: "currency", plans_model.FeaturesTooLong: "features"}
STATUSES: Final = [("", "All states"), *kit.LABELS[SubscriptionStatus].items()]
PARSERS: Final = {"price_cents": form_values.to_number, "features": form_values.to_lines}


async def _list(service_slug: str) -> list[Plan]:
    return [plan async for batch in await plans.list_plans(kit.ports(), kit.acting_member(), service_slug) for plan in batch]


@routes.get(PLANS)
@kit.member_page(Capability.SERVICES_VIEW)
@console.shows(f"GET {API}", f"POST {API}")
async def show_plans(org_slug: str, service_slug: str) -> Response:
    """List an application's plans."""
    service = await services.find(kit.ports(), kit.acting_member(), service_slug)
    return await console.console_page("applications/plans.html", plans=await _list(service_slug), **application_values(service))


async def _values(typed: console_forms.Form, service_slug: str, plan_id: UUID | None = None) -> dict[str, Any]:
    service = await services.find(kit.ports(), kit.acting_member(), service_slug)
    plan = None
    if plan_id is not None:
        plan = next((each for each in await _list(service_slug) if each.id == plan_id), None) or refuse(PlanNotFound)
    return {"plan": plan, "typed": {**(_to_typed(plan) if plan else {}), **typed}, **application_values(service)}


@console_forms.serves_form(routes, f"{PLANS}/new")
@kit.member_page(Capability.BILLING_MANAGE, kit.CHANGES)
@console_forms.accepts(f"POST {API}")
@console_forms.once(PLANS, "Open plans", "The plan is in the list.")
@console_forms.on_refusal("applications/plan.html", _values, FIELDS)
async def create(org_slug: str, service_slug: str, form: console_forms.Form) -> Response:
    """Create a plan."""
    await plans.create(
        console_forms.ports_once(), kit.acting_member(), service_slug, form_values.to_model(PlanRequest, form, PARSERS).build()
    )
    return console.redirect_with_notice("plan-created", f"{application_path(service_slug)}/plans")


def _to_typed(plan: Plan) -> dict[str, str]:
    return {
        "name": plan.name,
        "price_cents": str(plan.price_cents),
        "currency": plan.currency,
        "features": "\n".join(plan.features),
        "billing_price_id": plan.billing_price_id or "",
    }


@console_forms.serves_form(routes, f"{PLANS}/<plan_id>", f"PATCH {API}/<plan_id>", f"DELETE {API}/<plan_id>")
@kit.member_page(Capability.BILLING_MANAGE, kit.CHANGES)
@console_forms.accepts(f"PATCH {API}/<plan_id>")
@console_forms.on_refusal("applications/plan.html", _values, FIELDS)
async def change(org_slug: str, service_slug: str, plan_id: UUID, form: console_forms.Form) -> Response:
    """Change a plan."""
    await plans.update(kit.ports(), kit.acting_member(), service_slug, plan_id, form_values.to_model(PlanRequest, form, PARSERS).build())
    return console.redirect_with_notice("plan-saved", f"{application_path(service_slug)}/plans")


@routes.post(f"{PLANS}/<plan_id>/delete")
@kit.member_page(Capability.BILLING_MANAGE, kit.CHANGES)
@console_forms.accepts(f"DELETE {API}/<plan_id>")
@console_forms.on_refusal("applications/plan.html", _values, refusals=(PlanInUse,))
async def delete(org_slug: str, service_slug: str, plan_id: UUID, form: console_forms.Form) -> Response:
    """Delete a plan."""
    await plans.delete(kit.ports(), kit.acting_member(), service_slug, plan_id)
    return console.redirect_with_notice("plan-deleted", f"{application_path(service_slug)}/plans")


@routes.get(f"{APPLICATION}/subscriptions")
@kit.member_page(Capability.END_USERS_VIEW)
@console.shows(f"GET {SERVICE}/subscriptions")
async def show_subscriptions(org_slug: str, service_slug: str, query_args: SubscriptionsQuery) -> Response:
    """List the subscriptions to an application."""
    service = await services.find(kit.ports(), kit.acting_member(), service_slug)
    result = await subscriptions.list_of_service(
        kit.ports(), kit.acting_member(), service_slug, query_args.status, limit=query_args.limit, offset=query_args.offset
    )
    return await console.console_page(
        "applications/subscriptions.html",
        subscriptions=result.items,
        customer=result.customer,
        chosen=query_args.status.value if query_args.status else "",
        statuses=STATUSES,
        **application_values(service),
        **console.neighbors(query_args, result.total),
    )
