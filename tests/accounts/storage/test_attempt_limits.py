"""Every statement about attempt limits: the waits, the window, and that every attempt is counted."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.attempt_limits import AttemptLimit, SecretKind
from core.kernel.policy import Policy
from core.maintenance.model.housekeeping import Sweep
from tests.support.builders import run_concurrently, run_sql
from tests.support.rows import DAY, HOUR, MICROSECOND, NOW, SECOND, within

LIMIT = AttemptLimit(limit=3, window=timedelta(minutes=15))


async def count_attempt(
    storage: Postgres, subject: bytes = b"ada", at: timedelta = timedelta(), attempt_limit: AttemptLimit = LIMIT
) -> datetime | None:
    async with storage.autocommit() as count:
        return await count.attempt_limits.count_attempt(SecretKind.PASSWORD, subject, attempt_limit, NOW + at)


async def test_attempts_after_the_limit_wait_longer_and_longer(storage: Postgres) -> None:
    assert [await count_attempt(storage) for _ in range(3)] == [None] * 3
    at = timedelta()
    for seconds in (30, 60, 120, 240, 480, 900, 900, 900):
        wait = timedelta(seconds=seconds)
        for early in (timedelta(), wait - MICROSECOND):
            assert await count_attempt(storage, at=at + early) == NOW + at + wait
        at += wait
        assert await count_attempt(storage, at=at) is None


async def test_a_refused_attempt_is_not_counted(storage: Postgres) -> None:
    for _ in range(3):
        await count_attempt(storage)
    for _ in range(50):
        assert await count_attempt(storage) == NOW + timedelta(seconds=30)
    assert await count_attempt(storage, at=timedelta(seconds=30)) is None
    assert await count_attempt(storage, at=timedelta(seconds=30)) == NOW + timedelta(seconds=90)


async def test_the_window_begins_with_the_first_attempt(storage: Postgres) -> None:
    await count_attempt(storage)
    for minutes in (14, 14):
        assert await count_attempt(storage, at=timedelta(minutes=minutes)) is None
    assert await count_attempt(storage, at=timedelta(minutes=14, seconds=1)) is not None


async def test_a_new_window_resets_the_count(storage: Postgres) -> None:
    for minutes in (0, 15, 30):
        assert [await count_attempt(storage, at=timedelta(minutes=minutes)) for _ in range(2)] == [None] * 2


async def test_a_quiet_window_after_a_wait_resets_the_count(storage: Postgres) -> None:
    for _ in range(3):
        await count_attempt(storage)
    quiet = timedelta(seconds=30) + LIMIT.window
    assert [await count_attempt(storage, at=quiet) for _ in range(3)] == [None] * 3
    assert await count_attempt(storage, at=quiet) == NOW + quiet + timedelta(seconds=30)


async def test_a_limit_of_one_allows_one_attempt(storage: Postgres) -> None:
    attempt_limit = AttemptLimit(limit=1, window=HOUR)
    assert await count_attempt(storage, attempt_limit=attempt_limit) is None
    assert await count_attempt(storage, attempt_limit=attempt_limit) == NOW + timedelta(seconds=30)


async def test_subjects_are_counted_and_cleared_separately(storage: Postgres) -> None:
    for subject in (b"ada", b"eve"):
        for _ in range(3):
            assert await count_attempt(storage, subject) is None
        assert await count_attempt(storage, subject) is not None
    async with storage.autocommit() as count:
        await count.attempt_limits.clear(SecretKind.PASSWORD, b"ada")
        await count.attempt_limits.clear(SecretKind.PASSWORD, b"unknown")
    assert await count_attempt(storage, b"ada") is None
    assert await count_attempt(storage, b"eve") is not None


@pytest.mark.slow
async def test_concurrent_attempts_are_all_counted(storage: Postgres, pool: Pool) -> None:
    outcomes = await run_concurrently(40, lambda _: count_attempt(storage, attempt_limit=AttemptLimit(10, HOUR)))
    assert outcomes.count(None) == 10
    assert await run_sql(pool, "select failures from guesses") == [(10,)]


async def test_counters_are_swept_only_when_they_have_no_effect(storage: Postgres) -> None:
    for _ in range(3):
        await count_attempt(storage)
    # The longest wait is 15 minutes, and the count is kept for another window.
    later = timedelta(minutes=15) + LIMIT.window
    assert await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.ATTEMPT_LIMITS, NOW + later, 10)) == 0
    assert await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.ATTEMPT_LIMITS, NOW + later + SECOND, 10)) == 1


async def test_without_a_quiet_period_the_count_is_reset_after_the_wait(storage: Postgres) -> None:
    """A window allows exactly the full number of attempts (security M-2)."""
    window = timedelta(minutes=15)
    attempt_limit = replace(LIMIT, first_wait=window, longest_wait=window, quiet=timedelta())
    for start in (timedelta(), window, 3 * window):
        assert [await count_attempt(storage, at=start, attempt_limit=attempt_limit) for _ in range(3)] == [None] * 3
        for at in (start, start + window - MICROSECOND):
            assert await count_attempt(storage, at=at, attempt_limit=attempt_limit) == NOW + start + window


def test_the_defaults_are_the_documented_ones() -> None:
    policy, attempt_limit = Policy(), AttemptLimit(10, timedelta(minutes=15))
    assert (policy.account_guess_limit, policy.mfa_guess_limit, policy.guess_window) == (10, 10, timedelta(minutes=15))
    assert (attempt_limit.first_wait, attempt_limit.longest_wait) == (timedelta(seconds=30), timedelta(minutes=15))
    assert (policy.access_token_ttl, policy.refresh_token_ttl, policy.session_absolute_ttl) == (timedelta(seconds=900), 30 * DAY, 90 * DAY)
    assert (policy.refresh_grace, policy.verification_ttl, policy.reset_ttl) == (10 * SECOND, 24 * HOUR, HOUR)
    assert (policy.mails_per_recipient, policy.unverified_purge) == (5, 7 * DAY)


# Taking back correct attempts


async def uncount(storage: Postgres, subject: bytes = b"ada") -> None:
    async with storage.autocommit() as count:
        await count.attempt_limits.uncount(SecretKind.PASSWORD, subject, LIMIT)


async def test_uncounting_takes_back_one_attempt_only(storage: Postgres) -> None:
    for _ in range(20):
        assert await count_attempt(storage) is None
        await uncount(storage)
    assert [await count_attempt(storage) for _ in range(2)] == [None] * 2
    for _ in range(20):
        assert await count_attempt(storage) is None
        await uncount(storage)  # without this, the next attempt would have to wait
    assert await count_attempt(storage) is None
    assert await count_attempt(storage) == NOW + timedelta(seconds=30)


async def test_uncounting_affects_one_subject(storage: Postgres, pool: Pool) -> None:
    await count_attempt(storage)
    await uncount(storage, b"eve")
    assert await run_sql(pool, "select subject, failures from guesses") == [(b"ada", 1)]


async def test_the_count_is_never_negative(storage: Postgres, pool: Pool) -> None:
    await count_attempt(storage)
    await run_concurrently(5, lambda _: uncount(storage))
    assert await run_sql(pool, "select failures from guesses") == [(0,)]
