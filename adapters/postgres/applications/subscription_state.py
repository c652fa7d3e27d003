"""SQL for a subscription's status, and for the plan that a user has at a service."""

from typing import Final, LiteralString

from adapters.postgres.engine.records import Record
from core.applications.model.plans import FREE_PLAN_NAME, Entitlement, SubscriptionStatus

# The time decides whether a subscription has expired, even if the sweeper has not marked it yet. If
# a payment provider manages the subscription, the provider's events decide.
RAN_OUT: Final = "s.provider_subscription_id is null and s.current_period_end <= %(now)s"
STATUS: Final = f"case when s.status = 'active' and {RAN_OUT} then 'expired' else s.status end"
# A user's current subscription comes first.
FIRST: Final = f"order by {STATUS} in ('active', 'past_due') desc, s.created_at desc, s.id desc"


def entitlement(service_id: LiteralString, user_id: LiteralString) -> LiteralString:
    """Return a query for the plan that this user has at this service: name, status, features.

    The query has no row if the user has no plan.
    """
    return f"""
        (select p.name, {STATUS} as status, p.features from subscriptions s join plans p on p.id = s.plan_id
         where s.service_id = {service_id} and s.user_id = {user_id} {FIRST} limit 1)
        union all
        (select name, null, features from plans
         where service_id = {service_id} and name = '{FREE_PLAN_NAME}' and removed_at is null order by created_at, id limit 1)
        limit 1"""


# For a row from `entitlement` with the alias `n`
ENTITLEMENT: Final = Record(Entitlement, "n", plan="n.name", status=SubscriptionStatus, features=tuple)
