"""The organizations' SIEM configurations and their queues. The tokens are stored encrypted."""

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Final
from uuid import UUID

import structlog

from adapters.postgres.engine import statements
from adapters.postgres.engine.records import Record
from adapters.postgres.eventing.audit import ACCOUNTS, ENTRY
from core.eventing.model import siem
from core.eventing.model.siem import PENDING_CAP
from ports import crypto

log = structlog.get_logger("storage")

CONFIGURATION: Final = Record(siem.SiemConfiguration, "s", provider=siem.SiemProvider)
STATUS: Final = Record(
    siem.SiemStatus,
    "s",
    provider=siem.SiemProvider,
    last_failure=lambda name: siem.SiemResult[name],
    pending=f"(select count(*) from (select from siem_queue q where q.org_id = s.org_id and q.siem_id = s.id limit {PENDING_CAP}) q)",
)
# Keep the scalar subquery: it uses the index for every row, whereas a join may read the whole
# queue. Keep the common table expression: without it, the planner may update more rows than the
# limit.
CLAIM: Final = f"""
    with due as (
        select s.org_id from siem_configurations s join organizations o on o.id = s.org_id
        where s.enabled and s.due_at <= %(now)s and (s.leased_until is null or s.leased_until <= %(now)s) and o.status = 'active'
          and (%(struggling)s or s.failures = 0 and not s.is_slow)
          and (select true from siem_queue q where q.org_id = s.org_id and q.siem_id = s.id order by q.position limit 1)
        order by s.due_at, s.org_id limit 1 for update of s skip locked)
    update siem_configurations s set leased_until = %(leased_until)s, claims = s.claims + 1
    from due where s.org_id = due.org_id
    returning {CONFIGURATION.columns}, s.token, s.id, s.leased_until, s.claims, s.failures, s.is_slow"""
# Only the details make an entry long. The first entry is returned whatever its size.
WAITING: Final = f"""
    with head as (
        select position, entry_id from siem_queue where org_id = %(org_id)s and siem_id = %(siem_id)s
        order by position limit %(limit)s),
    entries as (
        select h.position, l.*,
               sum(octet_length(l.details::text))
                   over (order by h.position rows between unbounded preceding and 1 preceding) as before
        from head h left join audit_log l on l.id = h.entry_id and l.org_id = %(org_id)s)
    select l.position, {ENTRY.columns} from entries l {ACCOUNTS} where coalesce(l.before, 0) < %(most_bytes)s order by l.position"""
to_entry_if_any: Final = ENTRY.if_any("id")


def secret_context(org_id: UUID) -> crypto.SecretContext:
    return crypto.SecretContext("siem_configurations", str(org_id), "token")


def to_queued(row: statements.Row) -> siem.QueuedEntry:
    return siem.QueuedEntry(row[0], to_entry_if_any(row[1:]))


class Siem(statements.SealingRepository):
    """Implements the port Siem."""

    def _to_sink(self, row: statements.Row) -> siem.SiemSink:
        configuration, sealed = CONFIGURATION.read(row), row[CONFIGURATION.width]
        token = self._vault.open(sealed, secret_context(configuration.org_id)).decode()
        return siem.SiemSink(**{field.name: getattr(configuration, field.name) for field in fields(configuration)}, token=token)

    def _to_claimed(self, row: statements.Row) -> siem.ClaimedSiemQueue:
        org_id, (id_, leased_until, claims, failures, is_slow) = row[0], row[CONFIGURATION.width + 1 :]
        try:
            sink = self._to_sink(row)
        except crypto.SealBroken as error:
            log.error("seal_broken", siem_of=str(org_id), reason=str(error))  # noqa: TRY400  (the traceback adds nothing)
            sink = None
        return siem.ClaimedSiemQueue(
            org_id=org_id,
            id=id_,
            sink=sink,
            leased_until=leased_until,
            claims=claims,
            failures=failures,
            is_struggling=failures > 0 or is_slow,
        )

    async def status(self, org_id: UUID) -> siem.SiemStatus | None:
        sql = f"select {STATUS.columns} from siem_configurations s where s.org_id = %(org_id)s"
        return await self._one(STATUS.read, sql, org_id=org_id)

    async def sink(self, org_id: UUID) -> siem.SiemSink | None:
        sql = f"select {CONFIGURATION.columns}, s.token from siem_configurations s where s.org_id = %(org_id)s"
        return await self._one(self._to_sink, sql, org_id=org_id)

    async def waiting(self, org_id: UUID, siem_id: UUID, limit: int, max_bytes: int) -> list[siem.QueuedEntry]:
        return await self._all(to_queued, WAITING, org_id=org_id, siem_id=siem_id, limit=limit, most_bytes=max_bytes)

    async def put(self, siem_id: UUID, sink: siem.SiemSink, now: datetime) -> None:
        # A running lease continues, so that two processes never send for the same organization. The
        # new value in `claims` makes the outcome of that attempt irrelevant for the new
        # configuration.
        await self._run(
            """
            insert into siem_configurations (org_id, id, provider, endpoint_url, token, enabled, updated_at, due_at)
            values (%(org_id)s, %(siem_id)s, %(provider)s, %(endpoint_url)s, %(token)s, %(enabled)s, %(now)s, %(now)s)
            on conflict (org_id) do update set
                provider = excluded.provider, endpoint_url = excluded.endpoint_url, token = excluded.token, enabled = excluded.enabled,
                updated_at = excluded.updated_at, due_at = excluded.due_at, failures = 0, failing_since = null, last_failure = null,
                last_success_at = null, is_slow = false, claims = siem_configurations.claims + 1""",
            siem_id=siem_id,
            org_id=sink.org_id,
            provider=sink.provider,
            endpoint_url=sink.endpoint_url,
            token=self._vault.seal(sink.token.encode(), secret_context(sink.org_id)),
            enabled=sink.enabled,
            now=now,
        )

    async def remove(self, org_id: UUID, now: datetime) -> siem.SiemConfiguration | None:
        sql = f"""
            with s as (delete from siem_configurations where org_id = %(org_id)s returning *),
            recorded as (insert into removed_siem_configurations (id, org_id, removed_at) select id, org_id, %(now)s from s)
            select {CONFIGURATION.columns} from s"""
        return await self._one(CONFIGURATION.read, sql, org_id=org_id, now=now)

    async def begin_test(self, org_id: UUID, now: datetime, until: datetime) -> bool:
        sql = """
            update siem_configurations set tested_until = %(until)s
            where org_id = %(org_id)s and (tested_until is null or tested_until <= %(now)s) returning 1"""
        return await self._exists(sql, org_id=org_id, now=now, until=until)

    async def end_test(self, org_id: UUID, until: datetime) -> None:
        sql = "update siem_configurations set tested_until = null where org_id = %(org_id)s and tested_until = %(until)s"
        await self._run(sql, org_id=org_id, until=until)

    async def claim(self, now: datetime, leased_until: datetime, *, struggling: bool) -> siem.ClaimedSiemQueue | None:
        return await self._one(self._to_claimed, CLAIM, now=now, leased_until=leased_until, struggling=struggling)

    async def record_success(
        self, claimed: siem.ClaimedSiemQueue, positions: Sequence[int], now: datetime, *, posted: bool, slow: bool
    ) -> None:
        # The accepted entries leave the queue even if the lease expired during the request.
        await self._run(
            """
            with done as (
                delete from siem_queue where org_id = %(org_id)s and siem_id = %(siem_id)s and position = any(%(positions)s))
            update siem_configurations set
                leased_until = null, due_at = %(now)s,
                failures = case when %(posted)s and claims = %(claims)s then 0 else failures end,
                failing_since = case when %(posted)s and claims = %(claims)s then null else failing_since end,
                last_failure = case when %(posted)s and claims = %(claims)s then null else last_failure end,
                last_success_at = case when %(posted)s and claims = %(claims)s then %(now)s else last_success_at end,
                is_slow = case when %(posted)s and claims = %(claims)s then %(slow)s else is_slow end
            where org_id = %(org_id)s and id = %(siem_id)s and leased_until = %(leased_until)s""",
            org_id=claimed.org_id,
            siem_id=claimed.id,
            claims=claimed.claims,
            leased_until=claimed.leased_until,
            positions=list(positions),
            now=now,
            posted=posted,
            slow=slow,
        )

    async def record_failure(self, claimed: siem.ClaimedSiemQueue, failure: siem.SiemResult, now: datetime, due_at: datetime) -> None:
        await self._run(
            """
            update siem_configurations set
                leased_until = null,
                due_at = case when claims = %(claims)s then %(due_at)s else due_at end,
                failures = case when claims = %(claims)s then failures + 1 else failures end,
                failing_since = case when claims = %(claims)s then coalesce(failing_since, %(now)s) else failing_since end,
                last_failure = case when claims = %(claims)s then %(failure)s else last_failure end
            where org_id = %(org_id)s and id = %(siem_id)s and leased_until = %(leased_until)s""",
            org_id=claimed.org_id,
            siem_id=claimed.id,
            claims=claimed.claims,
            leased_until=claimed.leased_until,
            failure=failure.name,
            now=now,
            due_at=due_at,
        )
