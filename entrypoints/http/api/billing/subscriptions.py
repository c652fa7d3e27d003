"""The caller's own subscription (identity.md section 4.2), and those of a service, for its programs (section 4.5)."""

from functools import wraps
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field
from quart import Blueprint, Response
from quart_schema import validate_querystring, validate_request, validate_response

from core.billing import subscriptions
from core.billing.subscriptions_rules import Subscription, SubscriptionStatus
from core.kernel.principals import Permission
from entrypoints.http.edge.access import View, person, service_key
from entrypoints.http.edge.bodies import DateTime, Id, RequestModel, ResponseModel, Timestamp, maybe
from entrypoints.http.edge.context import acting_key, no_content, ports, signed_in
from entrypoints.http.edge.openapi import describes, refuses
from entrypoints.http.edge.queries import PartQuery, path_id

routes = Blueprint("subscriptions", __name__)

# Bodies are judged strictly, and then an enumeration takes none but its own members, which JSON does not have.
Status = Annotated[SubscriptionStatus, Field(strict=False)]


class SubscriptionShown(ResponseModel):
    """A subscription (identity.md section 2.4)."""

    id: UUID
    user_id: UUID
    plan_id: UUID
    plan_name: str
    status: SubscriptionStatus
    current_period_end: Timestamp


class OwnSubscription(SubscriptionShown):
    """A subscription, and the features of its plan."""

    features: list[str]


@routes.get("/api/subscription")
@person(applications=True)
@refuses(400, 404)
@validate_response(OwnSubscription)
async def own() -> OwnSubscription:
    """Show your own subscription to the service that the token was issued for: the one that is active or past due, or else the newest."""
    found = await subscriptions.own(ports(), signed_in())
    return OwnSubscription(**dict(_show(found)), features=list(found.plan.features))


class SubscriptionsQuery(PartQuery):
    """Which part of the subscriptions, and of which status; all of them unless it is given."""

    status: SubscriptionStatus | None = None


class SubscriptionsListed(ResponseModel):
    """Subscriptions, the oldest first, and how many there are."""

    subscriptions: list[SubscriptionShown]
    total: int


@routes.get("/api/service/subscriptions")
@service_key(Permission.READ_SUBSCRIPTIONS)
@refuses(400)
@validate_querystring(SubscriptionsQuery)
@validate_response(SubscriptionsListed)
async def listed(query_args: SubscriptionsQuery) -> SubscriptionsListed:
    """List the subscriptions to the service. One whose period has ended has expired."""
    found = await subscriptions.listed(ports(), acting_key(), query_args.status, limit=query_args.limit, offset=query_args.offset)
    return SubscriptionsListed(subscriptions=[_show(one) for one in found.items], total=found.total)


class NewSubscription(RequestModel):
    """Whom to subscribe to which plan. It is active, and its period ends in 30 days, unless something else is given."""

    user_id: Id
    plan_id: Id
    status: Status | None = None
    current_period_end: DateTime | None = None


@routes.post("/api/service/subscriptions")
@service_key(Permission.WRITE_SUBSCRIPTIONS)
@refuses(404)
@validate_request(NewSubscription)
@validate_response(SubscriptionShown)
async def create(data: NewSubscription) -> SubscriptionShown:
    """Subscribe a user of the service to one of its plans. A user has one subscription at a time that is active or past due."""
    made = await subscriptions.create(
        ports(),
        acting_key(),
        data.user_id,
        data.plan_id,
        status=data.status or SubscriptionStatus.ACTIVE,
        current_period_end=data.current_period_end,
    )
    return _show(made)


@routes.get("/api/service/subscriptions/<user_id>")
@service_key(Permission.READ_SUBSCRIPTIONS)
@validate_response(SubscriptionShown)
async def of_user(user_id: str) -> SubscriptionShown:
    """Show the subscription of a user: the one that is active or past due, or else the newest."""
    return _show(await subscriptions.of_user(ports(), acting_key(), path_id(user_id)))


def of_a_subscriber(view: View) -> View:
    """For routes of `<user_id>`: that somebody has no subscription is told before the body is looked at (decisions, point 16)."""

    @wraps(view)
    async def found(user_id: str) -> Any:
        subscriber_id = path_id(user_id)
        await subscriptions.of_user(ports(), acting_key(), subscriber_id)
        return await view(user_id=subscriber_id)

    return found


class SubscriptionChange(RequestModel):
    """What to change, at least one of them. What has expired and is to be active again needs a status as well as a new period."""

    status: Status = maybe()
    current_period_end: DateTime = maybe()
    plan_id: Id = maybe()


@routes.patch("/api/service/subscriptions/<user_id>")
@service_key(Permission.WRITE_SUBSCRIPTIONS)
@of_a_subscriber
@validate_request(SubscriptionChange)
@validate_response(SubscriptionShown)
async def change(user_id: UUID, data: SubscriptionChange) -> SubscriptionShown:
    """Change the subscription of a user.

    One whose period is over is expired, even if `status` is set to active, unless `current_period_end` is moved along with it.
    """
    changed = await subscriptions.change(
        ports(), acting_key(), user_id, status=data.status, current_period_end=data.current_period_end, plan_id=data.plan_id
    )
    return _show(changed)


@routes.delete("/api/service/subscriptions/<user_id>")
@service_key(Permission.DELETE_SUBSCRIPTIONS)
@describes({204: "The subscription is gone, or cancelled if a payment provider looks after it."})
async def remove(user_id: str) -> Response:
    """End the subscription of a user."""
    await subscriptions.remove(ports(), acting_key(), path_id(user_id))
    return no_content()


def _show(subscription: Subscription) -> SubscriptionShown:
    return SubscriptionShown(
        id=subscription.id,
        user_id=subscription.user_id,
        plan_id=subscription.plan.id,
        plan_name=subscription.plan.name,
        status=subscription.status,
        current_period_end=subscription.current_period_end,
    )
