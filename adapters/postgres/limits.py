"""Rate limits and counters of wrong guesses: each charge is one atomic statement, shared by all processes."""

from datetime import datetime

from adapters.postgres.statements import Repository
from core.guesses import Allowance, Secret
from core.limits import Bucket


class Rates(Repository):
    """ports.storage.Rates, by the generic cell rate algorithm (GCRA).

    A bucket is one number: the theoretical arrival time (tat) at which it would be full again. A request is admitted while that is at most
    `(burst - 1) * period` ahead, and then moves it on by `period`. All buckets of a client are one row, so that one upsert
    checks them all and charges either all or none.
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


class Guesses(Repository):
    """ports.storage.Guesses.

    The guess that reaches the limit is still admitted, and blocks the next one; each later guess is admitted when its wait is over, and
    doubles the wait. A quiet window forgets everything.
    """

    async def charge(self, secret: Secret, subject: bytes, allowance: Allowance, now: datetime) -> datetime | None:
        return await self._one(
            lambda row: row[0],
            """
            insert into guesses as g (secret, subject, failures, refused, started_at, blocked_until, expires_at)
            values (%(secret)s, %(subject)s, 1, false, %(now)s,
                    case when %(limit)s <= 1 then %(now)s + %(first_wait)s end, %(now)s + %(window)s + %(longest_wait)s)
            on conflict (secret, subject) do update set (failures, refused, started_at, blocked_until, expires_at) = (
                select failures, refused, started_at,
                       case when refused then g.blocked_until
                            when failures >= %(limit)s
                            then %(now)s + least(%(first_wait)s * power(2, least(failures - %(limit)s, 20)), %(longest_wait)s) end,
                       %(now)s + %(window)s + %(longest_wait)s
                from (select case when refused then g.failures when fresh then 1 else g.failures + 1 end as failures,
                             refused,
                             case when fresh then %(now)s else g.started_at end as started_at
                      from (select coalesce(g.blocked_until > %(now)s, false) as refused,
                                   %(now)s >= coalesce(g.blocked_until, g.started_at) + %(window)s as fresh) as judged
                     ) as counted)
            returning case when refused then blocked_until end""",
            secret=secret,
            subject=subject,
            limit=allowance.limit,
            window=allowance.window,
            first_wait=allowance.first_wait,
            longest_wait=allowance.longest_wait,
            now=now,
        )

    async def clear(self, secret: Secret, subject: bytes) -> None:
        await self._run("delete from guesses where secret = %(secret)s and subject = %(subject)s", secret=secret, subject=subject)
