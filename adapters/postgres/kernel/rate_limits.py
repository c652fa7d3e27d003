"""Rate limits, shared by all processes. A charge is a single atomic statement."""

from datetime import datetime
from functools import cache
from typing import Final, LiteralString

from adapters.postgres.engine import statements
from adapters.postgres.engine.driver import Connection
from adapters.postgres.engine.queued import Statement
from core.kernel import rate_limits
from core.kernel.errors import Limited
from core.kernel.values import digest

# Seconds. `expires_at` is a multiple of this step, so most charges do not change it. `expires_at` is indexed, and an
# update that changes no indexed column writes no index entries.
EXPIRY_STEP: Final = 600
# The amounts are arrays, because after a concurrent charge the statement computes them again with its own row. The rows are locked in
# client order: two sign-ins could have the same addresses.
GIVE_BACK: Final = """
    with kept as (
        delete from sign_in_charges where sign_in_hash = %(sign_in_hash)s
        returning client, bucket as name, least(period, extract(epoch from expires_at - %(now)s))::float8 as seconds),
    amounts as (
        select client, array_agg(name) as names, array_agg(seconds) as seconds from (
            select client, name, sum(seconds) as seconds from (
                select client, name, seconds from kept where seconds > 0
                union all select %(client)s, * from unnest(%(names)s::text[], %(seconds)s::float8[])) each
            group by client, name) total
        group by client),
    locked as (
        select r.client from rates r join amounts a on a.client = r.client where r.tats ?| a.names order by r.client for update of r)
    update rates r set tats = r.tats || (
        select jsonb_object_agg(b.name, (r.tats ->> b.name)::float8 - b.seconds)
        from unnest(a.names, a.seconds) b (name, seconds) where r.tats ? b.name)
    from amounts a join locked l on l.client = a.client where r.client = a.client and r.tats ?| a.names"""


class Rates(statements.Repository):
    """Implements `ports.storage.kernel.Rates` with the generic cell rate algorithm (GCRA).

    A bucket is a number: the theoretical arrival time (tat) at which it would be full again. A request is allowed if
    that time is at most `(burst - 1) * period` ahead, and then adds `period` to it. All of a client's buckets are in a
    single row, so that a single upsert checks them and charges either all or none. A window is an array in the same
    row: when its latest charges were.
    """

    async def take(self, client: str, buckets: tuple[rate_limits.Bucket, ...], now: datetime) -> float:
        return await self._one(lambda row: float(row[0]), charge_sql(len(buckets)), **charge_parameters(client, buckets, now)) or 0.0

    def take_of_request(self, tokens: rate_limits.RequestTokens) -> statements.Answer[None]:
        return take_tokens(self._connection, tokens)

    async def charge_window(self, client: str, window: rate_limits.Window, now: datetime) -> float:
        return await self._one(lambda row: float(row[0]), CHARGE_WINDOW, **_window_parameters(client, window, now)) or 0.0

    async def window_wait(self, client: str, window: rate_limits.Window, now: datetime) -> float:
        return await self._one(lambda row: float(row[0]), WINDOW_WAIT, **_window_parameters(client, window, now)) or 0.0

    async def keep(self, sign_in_hash: bytes, client: str, buckets: tuple[rate_limits.Bucket, ...]) -> None:
        await self._run(
            """
            insert into sign_in_charges (sign_in_hash, client, bucket, period, expires_at)
            select %(sign_in_hash)s, r.client, b.name, b.period, to_timestamp((r.tats ->> b.name)::float8)
            from rates r, unnest(%(names)s::text[], %(periods)s::float8[]) b (name, period)
            where r.client = %(client)s and r.tats ? b.name""",
            sign_in_hash=sign_in_hash,
            client=client,
            names=[bucket.name for bucket in buckets],
            periods=[bucket.period for bucket in buckets],
        )

    async def give_back(self, sign_in_hash: bytes, client: str, buckets: tuple[rate_limits.Bucket, ...], now: datetime) -> None:
        await self._run(GIVE_BACK, **_return_parameters(sign_in_hash, client, buckets, now))


def take_tokens(connection: Connection, tokens: rate_limits.RequestTokens) -> statements.Answer[None]:
    """Take a request's tokens. Raises: Limited."""

    def check(done: Statement) -> None:
        tokens.are_taken = True
        wait = done.rows[0][0]
        if wait > 0 and tokens.can_refuse:
            raise Limited(wait)

    values = charge_parameters(tokens.client, tokens.buckets, tokens.at)
    return statements.Answer(connection, connection.queue(charge_sql(len(tokens.buckets)), values), check)


async def take_open_tokens(connection: Connection) -> None:
    """Take the current request's tokens, if it has taken none yet. Raises: Limited."""
    tokens = rate_limits.request_tokens.get()
    if tokens is not None and not tokens.are_taken:
        await take_tokens(connection, tokens)


def return_tokens(connection: Connection, now: datetime) -> None:
    """Give back the current request's tokens, and the tokens that were kept for its browser, because it signs in.

    The tokens return in the same round trip as the commit, but after the commit, because many requests wait for an address's row.
    """
    if (tokens := rate_limits.request_tokens.get()) is not None:
        buckets = tokens.buckets if tokens.are_taken else ()
        connection.queue_after_commit(GIVE_BACK, _return_parameters(digest(tokens.browser or ""), tokens.client, buckets, now))


def _return_parameters(sign_in_hash: bytes, client: str, buckets: tuple[rate_limits.Bucket, ...], now: datetime) -> dict[str, object]:
    """Return the parameters for `GIVE_BACK`."""
    return {
        "sign_in_hash": sign_in_hash,
        "client": client,
        "names": [bucket.name for bucket in buckets],
        "seconds": [bucket.period for bucket in buckets],
        "now": now,
    }


def charge_parameters(client: str, buckets: tuple[rate_limits.Bucket, ...], now: datetime) -> dict[str, object]:
    """Return the parameters for `charge_sql`."""
    values: dict[str, object] = {"client": client, "seconds": now.timestamp()}
    for number, bucket in enumerate(buckets):
        values[f"name_{number}"] = bucket.name
        values[f"period_{number}"] = bucket.period
        values[f"ahead_{number}"] = (bucket.burst - 1) * bucket.period
    return values


def _window_parameters(client: str, window: rate_limits.Window, now: datetime) -> dict[str, object]:
    return {"client": client, "name": window.name, "count": window.count, "period": window.seconds, "seconds": now.timestamp()}


@cache
def charge_sql(count: int, source: LiteralString = "") -> LiteralString:
    """Return the statement that charges `count` buckets if `source`, a FROM clause, has a row. The statement returns the wait in seconds.

    The statement has separate parameters for every bucket, because with arrays and aggregates it takes twice as long.
    """
    numbers = range(count)
    # A new bucket is full: greatest() ignores null.
    bases = [f"greatest((r.tats ->> %(name_{n})s)::float8, %(seconds)s)" for n in numbers]
    first = [f"%(seconds)s::float8 + %(period_{n})s::float8" for n in numbers]
    next_ = [f"{base} + %(period_{n})s" for n, base in enumerate(bases)]
    wait = f"greatest(0, {', '.join(f'{base} - %(seconds)s - %(ahead_{n})s::float8' for n, base in enumerate(bases))})"
    return f"""
        insert into rates as r (client, tats, wait, expires_at)
        select %(client)s, {_tats(first)}, 0, {_expiry(first)} {source}
        on conflict (client) do update set
            tats = case when {wait} = 0 then r.tats || {_tats(next_)} else r.tats end,
            wait = {wait},
            expires_at = greatest(r.expires_at, {_expiry(next_)})
        returning wait"""


def _tats(values: list[str]) -> str:
    return f"jsonb_build_object({', '.join(f'%(name_{n})s::text, {value}' for n, value in enumerate(values))})"


def _expiry(values: list[str]) -> str:
    return f"to_timestamp(ceil(greatest({', '.join(values)}) / {EXPIRY_STEP}) * {EXPIRY_STEP})"


# Times do not decrease, although the processes' clocks differ and a charge can wait for an earlier charge.
_NAME: Final = "%(name)s::text"
_TIME: Final = f"greatest((r.tats -> {_NAME} ->> -1)::float8, %(seconds)s::float8)"
_TIMES: Final = f"coalesce(r.tats -> {_NAME}, '[]')"
# A window is full until the oldest of its `count` latest times has left it.
_WAIT: Final = f"greatest(0, (r.tats -> {_NAME} ->> -%(count)s::int)::float8 + %(period)s::float8 - {_TIME})"
WINDOW_WAIT: Final = f"select {_WAIT} from rates r where r.client = %(client)s"
CHARGE_WINDOW: Final = f"""
    insert into rates as r (client, tats, wait, expires_at)
    select %(client)s, jsonb_build_object({_NAME}, jsonb_build_array(%(seconds)s::float8)), 0,
           {_expiry(["%(seconds)s::float8 + %(period)s::float8"])}
    on conflict (client) do update set
        tats = case when {_WAIT} > 0 then r.tats else r.tats || jsonb_build_object({_NAME},
            case when jsonb_array_length({_TIMES}) < %(count)s::int then {_TIMES} else {_TIMES} - 0 end || to_jsonb({_TIME})) end,
        wait = {_WAIT},
        expires_at = greatest(r.expires_at, {_expiry([f"{_TIME} + %(period)s::float8"])})
    returning wait"""
