"""Service plans."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Repository
from core.applications.model.plans import Plan

PLAN: Final = Record(Plan, "p", features=tuple)
INSERT: Final = PLAN.insert("plans")
FIXED: Final = ("id", "org_id", "service_id", "created_at")
UPDATE: Final = f"update plans set {PLAN.assignments(without=FIXED)} where org_id = %(org_id)s and id = %(id)s"


class Plans(Repository):
    """Implements `ports.storage.applications.services.Plans`."""

    async def by_id(self, org_id: UUID, service_id: UUID, plan_id: UUID) -> Plan | None:
        sql = f"""
            select {PLAN.columns} from plans p
            where org_id = %(org_id)s and service_id = %(service_id)s and id = %(plan_id)s and removed_at is null"""
        return await self._one(PLAN.read, sql, org_id=org_id, service_id=service_id, plan_id=plan_id)

    async def service_id_of(self, org_id: UUID, plan_id: UUID) -> UUID | None:
        sql = "select service_id from plans where org_id = %(org_id)s and id = %(plan_id)s and removed_at is null"
        return await self._one(lambda row: row[0], sql, org_id=org_id, plan_id=plan_id)

    async def list_after(self, org_id: UUID, service_id: UUID, after: Plan | None, limit: int) -> list[Plan]:
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

    async def add(self, plan: Plan) -> None:
        await self._run(INSERT, **PLAN.values(plan))

    async def save(self, plan: Plan) -> None:
        await self._run(UPDATE, **PLAN.values(plan))

    async def remove(self, org_id: UUID, plan_id: UUID, now: datetime) -> None:
        sql = "update plans set removed_at = %(now)s where org_id = %(org_id)s and id = %(plan_id)s and removed_at is null"
        await self._run(sql, org_id=org_id, plan_id=plan_id, now=now)
