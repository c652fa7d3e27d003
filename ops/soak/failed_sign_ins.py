"""The rows from an attack on sign-ins, `./run soak failures [--hours N]`: 1 million failed attempts in a day.

They are spread over the day, and fail at one application: at known accounts, at strangers' accounts and at none, all
from different addresses. Only the attempts' records are written, by the service's own statement. The exit code is 1 if
a day adds 100,000 rows or more. With fewer hours, only the day's beginning is attacked.
"""

import argparse
import random
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final
from uuid import UUID, uuid4

import trio

from adapters.postgres.engine.migrate import migrate
from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.authentication.model.login import LoginFailure
from core.authentication.model.sign_in_log import FailedLogin
from tests.fakes.outside import FakeClock
from tests.proof.e2e.process import DatabaseServer
from tests.support.builders import add_organization, make_vault, run_sql
from tests.support.database import reachable_directory
from tests.support.services import add_service

KNOWN: Final = 20_000  # the application's users
STRANGERS: Final = 20_000
LIMIT: Final = 100_000  # rows
CONNECTIONS: Final = 8
DAY: Final = timedelta(days=1)
ATTEMPTS: Final = 1_000_000  # in a day
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
USERS: Final = """
    insert into users (id, email, origin, created_at, updated_at)
    select gen_random_uuid(), %s || n || '@soak.example', 'platform', %s, %s from generate_series(1, %s) n returning id"""
ENROLLED: Final = """
    insert into service_users (service_id, user_id, org_id, email, deactivated, created_at)
    select %s, id, %s, email, false, created_at from users where id = any(%s)"""


async def _attack(pool: Pool, attempts: int) -> int:
    """Send the attempts, and return how many rows they made."""
    storage = Postgres(pool, make_vault(), FakeClock())
    org = await add_organization(pool, "soak")
    service = await add_service(pool, org)
    known, strangers = [
        [id_ for (id_,) in await run_sql(pool, USERS, name, START, START, count)]
        for name, count in (("known-", KNOWN), ("other-", STRANGERS))
    ]
    await run_sql(pool, ENROLLED, service, org, known)
    await run_sql(pool, "analyze")
    numbers, draw = iter(range(attempts)), random.Random(1)  # noqa: S311  (which accounts an attacker tries)
    accounts: Sequence[Sequence[UUID | None]] = (known, known, strangers, [None])

    async def send() -> None:
        for number in numbers:
            address = IPv6Address(draw.getrandbits(128)) if number % 2 else IPv4Address(draw.getrandbits(32))
            failure = FailedLogin(
                id=uuid4(),
                user_id=draw.choice(accounts[number % 4]),
                reason=LoginFailure.CREDENTIALS,
                provider="password",
                at=START + DAY * number / ATTEMPTS,
                org_id=org,
                service_id=service,
                address=str(address),
                agent="soak",
            )
            async with storage.autocommit() as statements:
                await statements.failed_logins.record_failure(failure)
            if (number + 1) % 50_000 == 0:
                sys.stdout.write(f"{number + 1:>10,} attempts: {await _count(pool):>8,} rows\n")
                sys.stdout.flush()

    async with trio.open_nursery() as nursery:
        for _ in range(CONNECTIONS):
            nursery.start_soon(send)
    [(counted,)] = await run_sql(pool, "select sum(attempts) from login_events where seen_by <> 'organization'")
    assert counted == attempts, "each attempt is counted once for the platform"
    return await _count(pool)


async def _count(pool: Pool) -> int:
    [(rows,)] = await run_sql(pool, "select count(*) from login_events")
    return int(rows)


async def _run(conninfo: str, hours: float) -> float:
    """Return how many rows a day adds."""
    await migrate(conninfo)
    attempts = round(ATTEMPTS * hours / 24)
    pool, started = Pool(conninfo, size=CONNECTIONS + 1), time.monotonic()
    try:
        rows = await _attack(pool, attempts)
        [(size,)] = await run_sql(pool, "select pg_size_pretty(pg_total_relation_size('login_events'))")
    finally:
        await pool.aclose()
    sys.stdout.write(f"{attempts:,} attempts in {hours:g} hours: {rows:,} rows, {size}; recorded in {time.monotonic() - started:.0f} s\n")
    return rows * 24 / hours


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./run soak failures", description="Count the rows that failed sign-ins of a day add.")
    parser.add_argument("--hours", type=float, default=24, help="length of the attack (default: %(default)s)")
    options: Any = parser.parse_args(arguments)
    with reachable_directory() as home:
        server = DatabaseServer(home).start()
        try:
            rows = trio.run(partial(_run, server.conninfo, options.hours))
        finally:
            server.stop()
    return 0 if rows < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
