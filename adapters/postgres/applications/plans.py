"""Plans of services."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine.statements import Repository, Row
from core.applications.model.plans import Plan

# In the order in which `to_plan` reads them
COLUMNS: Final = "id, org_id, service_id, name, price_cents, currency, features, billing_price_id, created_at, updated_at"


def to_plan(row: Row) -> Plan:
    return Plan(
        id=row[0],
        org_id=row[1],
        service_id=row[2],
        name=row[3],
        price_cents=row[4],
        currency=row[5],
        features=tuple(row[6]),
        billing_price_id=row[7],
        created_at=row[8],
        updated_at=row[9],
    )


class Plans(Repository):
    """Implements `ports.storage.applications.Plans`."""

    async def by_id(self, org_id: UUID, service_id: UUID, plan_id: UUID) -> Plan | None:
        return await self._one(
            to_plan,
            f"""
            select {COLUMNS} from plans
            where org_id = %(org_id)s and service_id = %(service_id)s and id = %(plan_id)s and removed_at is null""",
            org_id=org_id,
            service_id=service_id,
            plan_id=plan_id,
        )

    async def service_id_of(self, org_id: UUID, plan_id: UUID) -> UUID | None:
        return await self._one(
            lambda row: row[0],
            "select service_id from plans where org_id = %(org_id)s and id = %(plan_id)s and removed_at is null",
            org_id=org_id,
            plan_id=plan_id,
        )

    async def list_after(self, org_id: UUID, service_id: UUID, after: Plan | None, limit: int) -> list[Plan]:
        newer = "and (created_at, id) > (%(created_at)s, %(id)s)" if after is not None else ""
        return await self._all(
            to_plan,
            f"""
            select {COLUMNS} from plans
            where org_id = %(org_id)s and service_id = %(service_id)s and removed_at is null {newer}
            order by created_at, id limit %(limit)s""",
            org_id=org_id,
            service_id=service_id,
            created_at=after.created_at if after else None,
            id=after.id if after else None,
            limit=limit,
        )

    async def add(self, plan: Plan) -> None:
        await self._run(
            """
            insert into plans (id, org_id, service_id, created_at, name, price_cents, currency, features, billing_price_id, updated_at)
            values (%(id)s, %(org_id)s, %(service_id)s, %(created_at)s, %(name)s, %(price_cents)s, %(currency)s, %(features)s,
                    %(billing_price_id)s, %(updated_at)s)""",
            service_id=plan.service_id,
            created_at=plan.created_at,
            **_changeable(plan),
        )

    async def save(self, plan: Plan) -> None:
        await self._run(
            """
            update plans set
                name = %(name)s, price_cents = %(price_cents)s, currency = %(currency)s, features = %(features)s,
                billing_price_id = %(billing_price_id)s, updated_at = %(updated_at)s
            where org_id = %(org_id)s and id = %(id)s""",
            **_changeable(plan),
        )

    async def remove(self, org_id: UUID, plan_id: UUID, now: datetime) -> None:
        await self._run(
            "update plans set removed_at = %(now)s where org_id = %(org_id)s and id = %(plan_id)s and removed_at is null",
            org_id=org_id,
            plan_id=plan_id,
            now=now,
        )


def _changeable(plan: Plan) -> dict[str, object]:
    return {
        "id": plan.id,
        "org_id": plan.org_id,
        "name": plan.name,
        "price_cents": plan.price_cents,
        "currency": plan.currency,
        "features": list(plan.features),
        "billing_price_id": plan.billing_price_id,
        "updated_at": plan.updated_at,
    }
