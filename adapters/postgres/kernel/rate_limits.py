"""Rate limits, shared by all processes. Each charge is one atomic statement."""

from datetime import datetime

from adapters.postgres.engine.statements import Repository
from core.kernel.rate_limits import Bucket


class Rates(Repository):
    """Implements `ports.storage.kernel.Rates` with the generic cell rate algorithm (GCRA).

    A bucket is one number: the theoretical arrival time (tat) at which it would be full again. A
    request is allowed if that time is at most `(burst - 1) * period` ahead, and then adds `period`
    to it. All buckets of a client are one row, so that one upsert checks all of them and charges
    either all or none.
    """

    async def charge(self, client: str, buckets: tuple[Bucket, ...], now: datetime) -> float:
        seconds = now.timestamp()
        return (
            await self._one(
                lambda row: float(row[0]),
                """
                insert into rates as r (client, tats, wait, expires_at)
                select %(client)s, jsonb_object_agg(name, %(seconds)s::float8 + period), 0, to_timestamp(max(%(seconds)s::float8 + period))
                from unnest(%(names)s::text[], %(periods)s::float8[], %(bursts)s::int[]) as asked (name, period, burst)
                on conflict (client) do update set (tats, wait, expires_at) = (
                    select case when max(wait) <= 0 then r.tats || jsonb_object_agg(name, base + period) else r.tats end,
                           greatest(max(wait), 0),
                           greatest(r.expires_at, to_timestamp(max(base + period)))
                    from (select name, period, base, base - %(seconds)s::float8 - (burst - 1) * period as wait
                          from (select name, period, burst,
                                       greatest(coalesce((r.tats ->> name)::float8, 0), %(seconds)s::float8) as base
                                from unnest(%(names)s::text[], %(periods)s::float8[], %(bursts)s::int[]) as asked (name, period, burst)
                               ) as based
                         ) as judged)
                returning wait""",
                client=client,
                seconds=seconds,
                names=[bucket.name for bucket in buckets],
                periods=[bucket.period for bucket in buckets],
                bursts=[bucket.burst for bucket in buckets],
            )
            or 0.0
        )
