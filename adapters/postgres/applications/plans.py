"""Service plans, and the plan that a user has at a service by the status of their subscription."""

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Repository
from core.applications.model import plans
from core.applications.model.plans import FREE_PLAN_NAME

PLAN: Final = Record(plans.Plan, "p", features=tuple)
INSERT: Final = PLAN.insert("plans")
FIXED: Final = ("id", "org_id", "service_id", "created_at")
UPDATE: Final = f"update plans set {PLAN.assignments(without=FIXED)} where org_id = %(org_id)s and id = %(id)s"


class Plans(Repository):
    """Implements `ports.storage.applications.services.Plans`."""

    async def by_id(self, org_id: UUID, service_id: UUID, plan_id: UUID) -> plans.Plan | None:
        sql = f"""
            select {PLAN.columns} from plans p
            where org_id = %(org_id)s and service_id = %(service_id)s and id = %(plan_id)s and removed_at is null"""
        return await self._one(PLAN.read, sql, org_id=org_id, service_id=service_id, plan_id=plan_id)

    async def service_id_of(self, org_id: UUID, plan_id: UUID) -> UUID | None:
        sql = "select service_id from plans where org_id = %(org_id)s and id = %(plan_id)s and removed_at is null"
        return await self._one(lambda row: row[0], sql, org_id=org_id, plan_id=plan_id)

    async def list_after(self, org_id: UUID, service_id: UUID, after: plans.Plan | None, limit: int) -> list[plans.Plan]:
        newer = "and (created_at, id) > (%(created_at)s, %(id)s)" if after is not None else ""
        return await self._all(
            PLAN.read,
            f"""
            select {PLAN.columns} from plans p
            where org_id = %(org_id)s and service_id = %(service_id)s and removed_at is null {newer}
            order by created_at, id limit %(limit)s""",
            org_id=org_id,
            service_id=service_id,
            created_at=after.created_at if after else None,
            id=after.id if after else None,
            limit=limit,
        )

    async def add(self, plan: plans.Plan) -> None:
        await self._run(INSERT, **PLAN.values(plan))

    async def save(self, plan: plans.Plan) -> None:
        await self._run(UPDATE, **PLAN.values(plan))

    async def remove(self, org_id: UUID, plan_id: UUID, now: datetime) -> None:
        sql = "update plans set removed_at = %(now)s where org_id = %(org_id)s and id = %(plan_id)s and removed_at is null"
        await self._run(sql, org_id=org_id, plan_id=plan_id, now=now)


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
ENTITLEMENT: Final = Record(plans.Entitlement, "n", plan="n.name", status=plans.SubscriptionStatus, features=tuple)
