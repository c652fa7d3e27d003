"""Counting guesses at secrets: the waits, the window, and that no count is lost."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from core.accounts.attempt_limits_rules import AttemptLimit, SecretKind
from core.kernel.policy import Policy
from core.maintenance.housekeeping_rules import Sweep
from tests.support.builders import everyone, run_sql
from tests.support.rows import DAY, HOUR, MICROSECOND, NOW, SECOND, within

ALLOWANCE = AttemptLimit(limit=3, window=timedelta(minutes=15))


async def guess(
    storage: Postgres, subject: bytes = b"ada", at: timedelta = timedelta(), attempt_limit: AttemptLimit = ALLOWANCE
) -> datetime | None:
    async with storage.autocommit() as count:
        return await count.attempt_limits.count_attempt(SecretKind.PASSWORD, subject, attempt_limit, NOW + at)


async def test_the_guess_after_the_limit_waits_and_each_later_one_longer(storage: Postgres) -> None:
    assert [await guess(storage) for _ in range(3)] == [None] * 3
    at = timedelta()
    for seconds in (30, 60, 120, 240, 480, 900, 900, 900):
        wait = timedelta(seconds=seconds)
        for early in (timedelta(), wait - MICROSECOND):
            assert await guess(storage, at=at + early) == NOW + at + wait
        at += wait
        assert await guess(storage, at=at) is None


async def test_a_refused_guess_counts_nothing(storage: Postgres) -> None:
    for _ in range(3):
        await guess(storage)
    for _ in range(50):
        assert await guess(storage) == NOW + timedelta(seconds=30)
    assert await guess(storage, at=timedelta(seconds=30)) is None
    assert await guess(storage, at=timedelta(seconds=30)) == NOW + timedelta(seconds=90)


async def test_the_window_begins_with_the_first_guess(storage: Postgres) -> None:
    await guess(storage)
    for minutes in (14, 14):
        assert await guess(storage, at=timedelta(minutes=minutes)) is None
    assert await guess(storage, at=timedelta(minutes=14, seconds=1)) is not None


async def test_a_new_window_forgets(storage: Postgres) -> None:
    for minutes in (0, 15, 30):
        assert [await guess(storage, at=timedelta(minutes=minutes)) for _ in range(2)] == [None] * 2


async def test_after_a_block_a_quiet_window_forgets(storage: Postgres) -> None:
    for _ in range(3):
        await guess(storage)
    quiet = timedelta(seconds=30) + ALLOWANCE.window
    assert [await guess(storage, at=quiet) for _ in range(3)] == [None] * 3
    assert await guess(storage, at=quiet) == NOW + quiet + timedelta(seconds=30)


async def test_a_limit_of_one(storage: Postgres) -> None:
    attempt_limit = AttemptLimit(limit=1, window=HOUR)
    assert await guess(storage, attempt_limit=attempt_limit) is None
    assert await guess(storage, attempt_limit=attempt_limit) == NOW + timedelta(seconds=30)


async def test_subjects_do_not_share_and_clearing_forgets_one(storage: Postgres) -> None:
    for subject in (b"ada", b"eve"):
        for _ in range(3):
            assert await guess(storage, subject) is None
        assert await guess(storage, subject) is not None
    async with storage.autocommit() as count:
        await count.attempt_limits.clear(SecretKind.PASSWORD, b"ada")
        await count.attempt_limits.clear(SecretKind.PASSWORD, b"nobody")
    assert await guess(storage, b"ada") is None
    assert await guess(storage, b"eve") is not None


@pytest.mark.slow
async def test_parallel_guesses_lose_no_count(storage: Postgres, pool: Pool) -> None:
    outcomes = await everyone(40, lambda _: guess(storage, attempt_limit=AttemptLimit(10, HOUR)))
    assert outcomes.count(None) == 10
    assert await run_sql(pool, "select failures from guesses") == [(10,)]


async def test_counters_are_swept_only_when_they_say_nothing_any_more(storage: Postgres) -> None:
    for _ in range(3):
        await guess(storage)
    # Blocked for at most a quarter of an hour, and remembered for a window more.
    later = timedelta(minutes=15) + ALLOWANCE.window
    assert await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.ATTEMPT_LIMITS, NOW + later, 10)) == 0
    assert await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.ATTEMPT_LIMITS, NOW + later + SECOND, 10)) == 1


async def test_without_quiet_all_is_forgotten_when_the_wait_is_over(storage: Postgres) -> None:
    """So many guesses in each window, and none besides (security.md M-2)."""
    window = timedelta(minutes=15)
    attempt_limit = replace(ALLOWANCE, first_wait=window, longest_wait=window, quiet=timedelta())
    for began in (timedelta(), window, 3 * window):
        assert [await guess(storage, at=began, attempt_limit=attempt_limit) for _ in range(3)] == [None] * 3
        for at in (began, began + window - MICROSECOND):
            assert await guess(storage, at=at, attempt_limit=attempt_limit) == NOW + began + window


def test_the_defaults_are_those_of_the_rules() -> None:
    policy, attempt_limit = Policy(), AttemptLimit(10, timedelta(minutes=15))
    assert (policy.account_guess_limit, policy.mfa_guess_limit, policy.guess_window) == (10, 10, timedelta(minutes=15))
    assert (attempt_limit.first_wait, attempt_limit.longest_wait) == (timedelta(seconds=30), timedelta(minutes=15))
    assert (policy.access_token_ttl, policy.refresh_token_ttl, policy.session_absolute_ttl) == (timedelta(seconds=900), 30 * DAY, 90 * DAY)
    assert (policy.refresh_grace, policy.verification_ttl, policy.reset_ttl) == (10 * SECOND, 24 * HOUR, HOUR)
    assert (policy.mails_per_recipient, policy.unverified_purge, policy.common_passwords) == (5, 7 * DAY, frozenset())


# Right answers that take back what they were charged, and no more


async def uncount(storage: Postgres, subject: bytes = b"ada") -> None:
    async with storage.autocommit() as count:
        await count.attempt_limits.uncount(SecretKind.PASSWORD, subject, ALLOWANCE)


async def test_a_right_answer_does_not_count_and_forgives_nothing(storage: Postgres) -> None:
    for _ in range(20):
        assert await guess(storage) is None
        await uncount(storage)
    assert [await guess(storage) for _ in range(2)] == [None] * 2
    for _ in range(20):
        assert await guess(storage) is None  # the third, which would have to wait,
        await uncount(storage)  # but for this
    assert await guess(storage) is None
    assert await guess(storage) == NOW + timedelta(seconds=30)


async def test_what_is_taken_back_of_others_stays(storage: Postgres, pool: Pool) -> None:
    await guess(storage)
    await uncount(storage, b"eve")
    assert await run_sql(pool, "select subject, failures from guesses") == [(b"ada", 1)]


async def test_there_is_never_less_than_nothing(storage: Postgres, pool: Pool) -> None:
    await guess(storage)
    await everyone(5, lambda _: uncount(storage))
    assert await run_sql(pool, "select failures from guesses") == [(0,)]
