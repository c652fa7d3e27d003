"""Subscriptions: the caller's own, and a service's subscriptions for its API keys."""

from dataclasses import asdict
from typing import Annotated
from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.applications.model.plans import SubscriptionStatus
from core.billing import subscriptions
from core.billing.model.subscriptions import Subscription
from core.kernel import roles
from entrypoints.http import kit
from entrypoints.http.api.applications.services import existing_service

routes = Blueprint("subscriptions", __name__)

# Not strict, because JSON can express an enumeration only by its values.
Status = Annotated[SubscriptionStatus, Field(strict=False)]


class SubscriptionResponse(kit.ResponseModel):
    """A user's subscription to a service's plan."""

    id: UUID = Field(description="The id of the subscription.")
    user_id: UUID = Field(description="The id of the user.")
    plan_id: UUID = Field(description="The id of the plan.")
    plan_name: str = Field(description="The name of the plan.")
    status: SubscriptionStatus = Field(description="The current status.")
    current_period_end: kit.Timestamp = Field(description="The end of the current period, in UTC.")


class OwnSubscriptionResponse(SubscriptionResponse):
    """The caller's subscription, with the features of its plan."""

    features: list[str] = Field(description="The features of the plan.")


@routes.get("/api/subscription")
@kit.person(applications=kit.ApplicationTokens.ALL, restricted=kit.Restricted.ITS_ORGANIZATION)
@kit.refuses(400, 404)
async def get_own() -> OwnSubscriptionResponse:
    """Get your own subscription.

    Returns your subscription to the service that the access token was issued for: the active or
    past due subscription, or else the newest. Tokens without a service are refused.
    """
    subscription = await subscriptions.find_own(kit.ports(), kit.signed_in())
    return OwnSubscriptionResponse(**dict(_to_response(subscription)), features=list(subscription.plan.features))


class SubscriptionsQuery(kit.PartQuery):
    """A part of the subscriptions, optionally only with one status."""

    status: SubscriptionStatus | None = Field(default=None, description="Return only subscriptions with this current status.")


class SubscriptionListResponse(kit.ResponseModel):
    """A part of the service's subscriptions."""

    subscriptions: list[SubscriptionResponse] = Field(description="The subscriptions, oldest first.")
    total: int = Field(description="How many subscriptions there are, with this status if a status is given.")


@routes.get("/api/service/subscriptions")
@kit.service_key(roles.Permission.READ_SUBSCRIPTIONS)
async def list_subscriptions(query_args: SubscriptionsQuery) -> SubscriptionListResponse:
    """List subscriptions to the service.

    A subscription is expired as soon as its period has ended, unless the payment provider manages
    it.
    """
    page = await subscriptions.list_subscriptions(
        kit.ports(), kit.acting_key(), query_args.status, limit=query_args.limit, offset=query_args.offset
    )
    return SubscriptionListResponse(subscriptions=[_to_response(subscription) for subscription in page.items], total=page.total)


class ListedSubscriptionResponse(SubscriptionResponse):
    """A subscription with its user's address."""

    email: str | None = Field(description="The email address of the user.")


class BillingCustomerResponse(kit.ResponseModel):
    """The organization's customer record at the payment provider."""

    id: str = Field(description="The id of the customer at the payment provider.")
    user_id: UUID | None = Field(description="The id of the user that the record names, or null.")
    payment_method_id: str | None = Field(
        description="The id of the payment method at the payment provider that was attached last, or null if there is none."
    )


class ServiceSubscriptionListResponse(kit.ResponseModel):
    """A part of the service's subscriptions, for members."""

    subscriptions: list[ListedSubscriptionResponse] = Field(description="The subscriptions, oldest first.")
    total: int = Field(description="How many subscriptions there are, with this status if a status is given.")
    customer: BillingCustomerResponse | None = Field(
        description="The customer that pays for the subscriptions that the payment provider manages, or null if there is none."
    )


@routes.get("/api/organizations/<org_slug>/services/<service_slug>/subscriptions")
@kit.member(roles.Capability.END_USERS_VIEW)
@existing_service
async def list_of_service(org_slug: str, service_slug: str, query_args: SubscriptionsQuery) -> ServiceSubscriptionListResponse:
    """List subscriptions to a service, for members.

    The service's API keys list the same subscriptions at `/api/service/subscriptions`.
    """
    page = await subscriptions.list_of_service(
        kit.ports(), kit.acting(), service_slug, query_args.status, limit=query_args.limit, offset=query_args.offset
    )
    listed = [ListedSubscriptionResponse(**dict(_to_response(item.subscription)), email=item.email) for item in page.items]
    customer = None if page.customer is None else BillingCustomerResponse(**asdict(page.customer))
    return ServiceSubscriptionListResponse(subscriptions=listed, total=page.total, customer=customer)


class SubscriptionRequest(kit.RequestModel):
    """A new subscription."""

    user_id: kit.Id = Field(description="The id of the service's user.")
    plan_id: kit.Id = Field(description="The id of the service's plan.")
    status: Status | None = Field(default=None, description="The status. By default `active`.")
    current_period_end: kit.DateTime | None = Field(default=None, description="The end of the current period. By default 30 days from now.")


@routes.post("/api/service/subscriptions")
@kit.service_key(roles.Permission.WRITE_SUBSCRIPTIONS)
@kit.refuses(404)
async def create(data: SubscriptionRequest) -> SubscriptionResponse:
    """Subscribe a user to a plan.

    A user can have only one active or past due subscription to a service. The payment provider is not involved:
    charge the user yourself.
    """
    subscription = await subscriptions.create(
        kit.ports(),
        kit.acting_key(),
        data.user_id,
        data.plan_id,
        status=data.status or SubscriptionStatus.ACTIVE,
        current_period_end=data.current_period_end,
    )
    return _to_response(subscription)


@routes.get("/api/service/subscriptions/<user_id>")
@kit.service_key(roles.Permission.READ_SUBSCRIPTIONS)
async def get(user_id: UUID) -> SubscriptionResponse:
    """Get a user's subscription.

    Returns the active or past due subscription, or else the newest.
    """
    return _to_response(await subscriptions.find_of_user(kit.ports(), kit.acting_key(), user_id))


@kit.before_body
async def existing_subscription(user_id: UUID) -> None:
    """Answer 404 if `<user_id>` has no subscription to the service."""
    await subscriptions.find_of_user(kit.ports(), kit.acting_key(), user_id)


class SubscriptionUpdateRequest(kit.RequestModel):
    """The subscription's fields to change, at least one field."""

    model_config = kit.AT_LEAST_ONE_FIELD

    status: Status = kit.optional(description="The new status. Any status may follow another.")
    current_period_end: kit.DateTime = kit.optional(description="The new end of the current period.")
    plan_id: kit.Id = kit.optional(description="The id of another plan for the service.")


@routes.patch("/api/service/subscriptions/<user_id>")
@kit.service_key(roles.Permission.WRITE_SUBSCRIPTIONS)
@existing_subscription
async def update(user_id: UUID, data: SubscriptionUpdateRequest) -> SubscriptionResponse:
    """Change a user's subscription.

    To reactivate an expired subscription, send `status` together with a `current_period_end` in the future. If the
    payment provider manages the subscription and you end it, it is canceled at the provider.
    """
    subscription = await subscriptions.update(
        kit.ports(), kit.acting_key(), user_id, status=data.status, current_period_end=data.current_period_end, plan_id=data.plan_id
    )
    return _to_response(subscription)


@routes.delete("/api/service/subscriptions/<user_id>")
@kit.service_key(roles.Permission.DELETE_SUBSCRIPTIONS)
@kit.describes({204: "The subscription is deleted, or canceled if the payment provider manages it."})
async def end(user_id: UUID) -> None:
    """End a user's subscription.

    The subscription is deleted. If the payment provider manages it, it is canceled there, and stays
    with the status `cancelled`.
    """
    await subscriptions.end(kit.ports(), kit.acting_key(), user_id)


def _to_response(subscription: Subscription) -> SubscriptionResponse:
    return SubscriptionResponse.of(subscription, plan_id=subscription.plan.id, plan_name=subscription.plan.name)
