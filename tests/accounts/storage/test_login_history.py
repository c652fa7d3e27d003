"""The statement that reads a user's earlier logins."""

from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from uuid import UUID, uuid4

import pytest
from psycopg.conninfo import make_conninfo

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.devices import Location, LoginHistory
from tests.accounts.storage.locations import LISBON, MINUTE, OSLO, PORTO, PORTUGAL, find_device_of, fingerprint
from tests.fakes.outside import FakeClock
from tests.support.builders import make_vault, run_sql
from tests.support.rows import DAY, HOUR, MICROSECOND, NOW, SECOND, within


async def record(
    pool: Pool,
    user: UUID,
    at: datetime,
    *,
    success: bool = True,
    location: Location | None = None,
    connection: UUID | None = None,
    risk: int = 0,
) -> None:
    await run_sql(
        pool,
        """
        insert into login_events (id, user_id, provider, success, created_at, city, country, connection_id, risk_score)
        values (%s, %s, 'password', %s, %s, %s, %s, %s, %s)""",
        uuid4(),
        user,
        success,
        at,
        location.city if location else None,
        location.country if location else None,
        connection,
        risk,
    )


async def history(storage: Postgres, user: UUID, location: Location | None = None, now: datetime = NOW) -> LoginHistory:
    return (await within(storage, lambda tx: find_device_of(tx, user, fingerprint(location=location), None, now))).history


NOTHING = LoginHistory(failures=0, logins=0, at_this_hour=False, known_location=False)


async def test_a_user_without_logins_has_no_history(storage: Postgres, pool: Pool, user: UUID, eve: UUID) -> None:
    await record(pool, eve, NOW - HOUR, location=LISBON)
    await record(pool, eve, NOW - SECOND, success=False)
    assert await history(storage, user, LISBON) == NOTHING
    assert await history(storage, user) == NOTHING


async def test_each_connection_has_a_history_of_its_own(storage: Postgres, pool: Pool, user: UUID) -> None:
    """Otherwise an organization could sign in as its member, and a risky sign-in elsewhere would look usual."""
    at_connection, at_other = uuid4(), uuid4()
    await record(pool, user, NOW - HOUR, success=False)
    await record(pool, user, NOW - MINUTE, location=LISBON, connection=at_connection)
    assert await history(storage, user, LISBON) == replace(NOTHING, failures=1)

    async def of(connection: UUID) -> LoginHistory:
        return (await within(storage, lambda tx: find_device_of(tx, user, fingerprint(location=LISBON), None, NOW, connection))).history

    assert await of(at_connection) == LoginHistory(failures=0, logins=1, at_this_hour=True, known_location=True)
    assert await of(at_other) == replace(NOTHING, failures=1)


async def test_a_sign_in_with_a_high_risk_makes_nothing_usual(storage: Postgres, pool: Pool, user: UUID) -> None:
    await record(pool, user, NOW - HOUR, success=False)
    await record(pool, user, NOW - MINUTE, location=LISBON, risk=71)
    assert await history(storage, user, LISBON) == replace(NOTHING, failures=1)
    await record(pool, user, NOW - MINUTE, location=LISBON, risk=70)
    assert await history(storage, user, LISBON) == LoginHistory(failures=0, logins=1, at_this_hour=True, known_location=True)


async def test_failures_count_since_the_last_success_within_24_hours(storage: Postgres, pool: Pool, user: UUID) -> None:
    async def failures() -> int:
        return (await history(storage, user)).failures

    for at in (NOW - DAY, NOW - DAY + MICROSECOND, NOW - HOUR):
        await record(pool, user, at, success=False)
    assert await failures() == 2, "the first one is older than 24 hours"
    await record(pool, user, NOW - 2 * HOUR)
    assert await failures() == 1
    await record(pool, user, NOW - 3 * HOUR)
    assert await failures() == 1, "only the last success counts"
    await record(pool, user, NOW - MINUTE)
    assert await failures() == 0
    for _ in range(7):
        await record(pool, user, NOW - SECOND, success=False)
    assert await failures() == 5, "further failures are not counted"


async def test_successful_logins_of_30_days_are_counted(storage: Postgres, pool: Pool, user: UUID) -> None:
    await record(pool, user, NOW - 30 * DAY)
    await record(pool, user, NOW - DAY, success=False)
    assert await history(storage, user) == NOTHING
    await record(pool, user, NOW - 30 * DAY + MICROSECOND)
    assert await history(storage, user) == replace(NOTHING, logins=1, at_this_hour=True)
    for _ in range(12):
        await record(pool, user, NOW - 2 * DAY)
    assert (await history(storage, user)).logins == 10, "further logins are not counted"


@pytest.mark.parametrize(
    ("minutes", "is_same_hour"),
    [(-10, False), (-9, True), (0, True), (50, True), (51, False), (12 * 60, False)],
)
async def test_hours_are_in_utc_in_any_time_zone_of_the_database(
    conninfo: str, clock: FakeClock, user: UUID, minutes: int, is_same_hour: bool
) -> None:
    nepal = make_conninfo(conninfo, options="-c TimeZone=Asia/Kathmandu")  # UTC+5:45
    async with aclosing(Pool(nepal, size=1)) as pool:
        assert await run_sql(pool, "show timezone") == [("Asia/Kathmandu",)]
        storage = Postgres(pool, make_vault(), clock)
        await record(pool, user, NOW - 3 * DAY + minutes * MINUTE)  # NOW is 9 minutes and 26 seconds past the hour
        assert (await history(storage, user)).at_this_hour is is_same_hour
        assert (await history(storage, user, now=NOW + DAY)).at_this_hour is is_same_hour


async def test_a_location_is_known_after_a_successful_login_there(storage: Postgres, pool: Pool, user: UUID, eve: UUID) -> None:
    async def is_known(location: Location | None) -> bool:
        return (await history(storage, user, location)).known_location

    await record(pool, user, NOW - 3000 * DAY, location=LISBON)
    await record(pool, user, NOW - HOUR, location=OSLO, success=False)
    await record(pool, eve, NOW - HOUR, location=PORTO)
    await record(pool, user, NOW - HOUR)
    assert await is_known(LISBON)
    for other in (OSLO, PORTO, PORTUGAL, Location("Lisbon", "US"), None):
        assert not await is_known(other), other
    await record(pool, user, NOW - HOUR, location=PORTUGAL)
    assert await is_known(PORTUGAL)
    assert not await is_known(PORTO)
