"""The health of connections. A refresh reads all organizations' connections."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine.records import Record
from adapters.postgres.engine.statements import Repository
from adapters.postgres.kernel.connections import CERTIFICATE_EXPIRES, FAILING, WITHOUT_DOMAIN
from core.federation.connections.model.health import ConnectionConcern, ConnectionHealth, HealthState

HEALTH: Final = Record(ConnectionHealth, "h", health=HealthState)
FIXED: Final = ("org_id", "connection_id")


class ConnectionHealths(Repository):
    """Implements `ports.storage.federation.connections.ConnectionHealths`."""

    async def of_org(self, org_id: UUID) -> dict[UUID, ConnectionHealth]:
        sql = f"""
            select {HEALTH.columns} from connection_health h
            join connections c on c.org_id = h.org_id and c.id = h.connection_id and c.state = 'active'
            where h.org_id = %(org_id)s and h.refreshed_at is not null"""
        return {health.connection_id: health for health in await self._all(HEALTH.read, sql, org_id=org_id)}

    async def figures(self) -> tuple[dict[HealthState, int], datetime | None]:
        sql = """
            select coalesce(h.health, 'unknown'), count(*), min(h.certificate_end) from connections c
            left join connection_health h on h.connection_id = c.id
            where c.state = 'active' and c.org_id is not null group by 1"""
        rows = await self._all(lambda row: (HealthState(row[0]), row[1], row[2]), sql)
        return {health: count for health, count, _ in rows}, min((end for *_, end in rows if end is not None), default=None)

    async def concerns(self, limit: int, certificates_until: datetime) -> list[ConnectionConcern]:
        sql = f"""
            select o.slug, c.slug, case when {FAILING} then h.problem end, case when {CERTIFICATE_EXPIRES} then h.certificate_end end,
                   {WITHOUT_DOMAIN}
            from connections c join organizations o on o.id = c.org_id and o.status = 'active'
            left join connection_health h on h.org_id = c.org_id and h.connection_id = c.id
            where c.state = 'active' and ({FAILING} or {CERTIFICATE_EXPIRES} or {WITHOUT_DOMAIN})
            order by o.slug collate "C", c.slug collate "C" limit %(limit)s"""
        return await self._all(lambda row: ConnectionConcern(*row), sql, limit=limit, certificates_until=certificates_until)

    async def next_due(self) -> datetime | None:
        return await self._one(lambda row: row[0], "select h.due_at from connection_health h order by h.due_at limit 1")

    async def add_new(self, now: datetime) -> None:
        sql = """
            insert into connection_health (org_id, connection_id, due_at)
            select c.org_id, c.id, %(now)s from connections c
            where c.state = 'active' and c.org_id is not null and not exists (select from connection_health h where h.connection_id = c.id)
            on conflict do nothing"""
        await self._run(sql, now=now)

    async def claim(self, now: datetime, until: datetime) -> ConnectionHealth | None:
        sql = f"""
            update connection_health h set due_at = %(until)s
            where h.connection_id = (
                select due.connection_id from connection_health due where due.due_at <= %(now)s
                order by due.due_at limit 1 for update skip locked)
            returning {HEALTH.columns}"""
        return await self._one(HEALTH.read, sql, now=now, until=until)

    async def claim_refetch(self, org_id: UUID, connection_id: UUID, now: datetime, before: datetime) -> bool:
        sql = """
            insert into connection_health as h (org_id, connection_id, due_at, refetched_at)
            values (%(org_id)s, %(connection_id)s, %(now)s, %(now)s)
            on conflict (connection_id) do update set refetched_at = excluded.refetched_at
            where h.refetched_at is null or h.refetched_at <= %(before)s"""
        return await self._run(sql, org_id=org_id, connection_id=connection_id, now=now, before=before) == 1

    async def make_due(self, org_id: UUID, connection_id: UUID) -> None:
        sql = "update connection_health set due_at = 'epoch' where org_id = %(org_id)s and connection_id = %(connection_id)s"
        await self._run(sql, org_id=org_id, connection_id=connection_id)

    async def save(self, health: ConnectionHealth, claimed_until: datetime) -> bool:
        sql = f"""
            update connection_health set {HEALTH.assignments(without=FIXED)}
            where org_id = %(org_id)s and connection_id = %(connection_id)s and due_at = %(claimed_until)s"""
        return await self._run(sql, **HEALTH.values(health), claimed_until=claimed_until) == 1
