"""Token buckets: charged all or none, across connections, with any clock."""

import math
from datetime import timedelta
from random import Random

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.kernel.rate_limits import return_tokens
from adapters.postgres.storage import Postgres, Transaction
from core.kernel.causes import SYSTEM
from core.kernel.errors import Invalid, Limited, StorageDown
from core.kernel.rate_limits import Bucket, RequestTokens, Window, request_tokens
from core.maintenance.model.housekeeping import Sweep
from tests.support.builders import run_concurrently, run_sql
from tests.support.rows import ADA, NOW, SECOND, within

LOGIN, AUTH = Bucket("login", 6.0, 10), Bucket("auth", 1.0, 20)


async def charge(storage: Postgres, client: str, *buckets: Bucket, at: float = 0.0) -> float:
    async with storage.autocommit() as autocommit:
        return await autocommit.rates.take(client, buckets, NOW + timedelta(seconds=at))


async def window_wait(storage: Postgres, window: Window, at: float = 0.0) -> float:
    async with storage.autocommit() as autocommit:
        return await autocommit.rates.window_wait("a", window, NOW + timedelta(seconds=at))


async def charge_window(storage: Postgres, window: Window, at: float = 0.0) -> float:
    async with storage.autocommit() as autocommit:
        return await autocommit.rates.charge_window("a", window, NOW + timedelta(seconds=at))


async def test_a_bucket_gives_its_burst_and_then_its_rate(storage: Postgres) -> None:
    bucket = Bucket("x", 10.0, 3)
    assert [await charge(storage, "a", bucket) for _ in range(3)] == [0.0] * 3
    assert [await charge(storage, "a", bucket) for _ in range(3)] == [pytest.approx(10.0, abs=1e-5)] * 3
    assert await charge(storage, "a", bucket, at=4.0) == pytest.approx(6.0, abs=1e-5)
    assert await charge(storage, "a", bucket, at=9.999) > 0
    assert await charge(storage, "a", bucket, at=10.0) == 0
    assert await charge(storage, "a", bucket, at=10.0) == pytest.approx(10.0, abs=1e-5)
    assert [await charge(storage, "a", bucket, at=1000.0) == 0 for _ in range(4)] == [True, True, True, False]


async def test_a_bucket_of_one_token_refills(storage: Postgres) -> None:
    bucket = Bucket("x", 0.5, 1)
    assert await charge(storage, "a", bucket) == 0
    assert await charge(storage, "a", bucket) == pytest.approx(0.5, abs=1e-5)
    assert await charge(storage, "a", bucket, at=0.5) == 0


async def test_all_buckets_are_charged_or_none(storage: Postgres) -> None:
    narrow, wide = Bucket("narrow", 60.0, 1), Bucket("wide", 1.0, 3)
    assert await charge(storage, "a", narrow, wide) == 0
    for _ in range(5):
        assert await charge(storage, "a", narrow, wide) == pytest.approx(60.0, abs=1e-5)
    assert [await charge(storage, "a", wide) == 0 for _ in range(3)] == [True, True, False]
    # Both buckets are empty now, and the longer wait is returned, in either order.
    for buckets in ((narrow, wide), (wide, narrow)):
        assert await charge(storage, "a", *buckets) == pytest.approx(60.0, abs=1e-5)


async def test_clients_and_buckets_are_independent(storage: Postgres) -> None:
    bucket = Bucket("x", 10.0, 1)
    assert await charge(storage, "a", bucket) == 0
    assert await charge(storage, "b", bucket) == 0
    assert await charge(storage, "a", Bucket("y", 10.0, 1)) == 0
    assert await charge(storage, "a", bucket) > 0
    assert await charge(storage, "b", bucket) > 0


@pytest.mark.parametrize("seconds", [0.5, 3600.0])
async def test_a_clock_that_is_behind_allows_no_more_requests(storage: Postgres, seconds: float) -> None:
    bucket = Bucket("x", 10.0, 2)
    assert [await charge(storage, "a", bucket) for _ in range(2)] == [0.0] * 2
    assert await charge(storage, "a", bucket, at=-seconds) == pytest.approx(10.0 + seconds, abs=1e-5)


@pytest.mark.slow
async def test_parallel_charges_allow_exactly_the_burst(storage: Postgres) -> None:
    waits = await run_concurrently(40, lambda _: charge(storage, "a", LOGIN, AUTH))
    assert sum(wait == 0 for wait in waits) == 10
    waits = await run_concurrently(40, lambda _: charge(storage, "a", AUTH))
    assert sum(wait == 0 for wait in waits) == 10


@pytest.mark.slow
async def test_parallel_charges_of_different_buckets_and_clients_do_not_deadlock(storage: Postgres) -> None:
    buckets = [(LOGIN, AUTH), (AUTH, LOGIN), (AUTH,)]
    waits = await run_concurrently(60, lambda number: charge(storage, f"client {number % 4}", *buckets[number % 3]))
    assert all(wait >= 0 and math.isfinite(wait) for wait in waits)


@pytest.mark.slow
async def test_kept_tokens_are_given_back_once(storage: Postgres, pool: Pool) -> None:
    """Twenty at once: ten charge the same bucket, and ten also give back their own token."""
    bucket, browser = Bucket("x", 10.0, 50), b"browser"
    for client, count in (("a", 10), ("b", 4)):
        for _ in range(count):
            await charge(storage, client, bucket)
    async with storage.autocommit() as autocommit:
        for client in ("a", "a", "a", "b"):
            await autocommit.rates.keep(browser, client, (bucket, Bucket("y", 1.0, 1)))
        await autocommit.rates.keep(b"another", "a", (bucket,))

    async def act(number: int) -> None:
        if number % 2:
            await charge(storage, "a", bucket)
        else:
            async with storage.autocommit() as autocommit:
                await autocommit.rates.give_back(browser, "a", (bucket,), NOW + SECOND)

    await run_concurrently(20, act)
    tats = dict(await run_sql(pool, "select client, tats from rates"))
    taken = {client: round((tats[client]["x"] - NOW.timestamp()) / 10) for client in tats}
    assert taken == {"a": 10 + 10 - 3 - 10, "b": 4 - 1}
    assert await run_sql(pool, "select sign_in_hash from sign_in_charges") == [(b"another",)]


@pytest.mark.slow
async def test_sign_ins_with_the_same_addresses_do_not_deadlock(storage: Postgres, pool: Pool) -> None:
    """Twenty sign-ins at once, at two addresses: all give back their tokens for both addresses."""
    bucket = Bucket("x", 10.0, 50)
    for number in range(20):
        for client in ("a", "b") if number % 2 else ("b", "a"):
            await charge(storage, client, bucket)
            async with storage.autocommit() as autocommit:
                await autocommit.rates.keep(b"%d" % number, client, (bucket,))

    async def give_back(number: int) -> None:
        async with storage.autocommit() as autocommit:
            await autocommit.rates.give_back(b"%d" % number, "ab"[number % 2], (), NOW)

    await run_concurrently(20, give_back)
    tats = await run_sql(pool, "select client, (tats ->> 'x')::float8 from rates order by client")
    assert tats == [(client, pytest.approx(NOW.timestamp())) for client in ("a", "b")]


async def test_a_transaction_gives_back_after_its_commit_or_not_at_all(storage: Postgres, pool: Pool) -> None:
    bucket = Bucket("x", 10.0, 50)
    request_tokens.set(RequestTokens("a", (bucket,), NOW, are_taken=True))
    await charge(storage, "a", bucket)

    async def transact(tx: Transaction, charges: int, refusal: Exception | None = None) -> None:
        for _ in range(charges):
            await tx.rates.take("a", (bucket,), NOW)
        return_tokens(tx.connection, NOW)
        if refusal is not None:
            raise refusal

    async def seconds_ahead() -> float:
        [(tat,)] = await run_sql(pool, "select (tats ->> 'x')::float8 from rates")
        return float(tat) - NOW.timestamp()

    with pytest.raises(Invalid):
        await within(storage, lambda tx: transact(tx, 1, Invalid()))
    assert await seconds_ahead() == 10
    await within(storage, lambda tx: transact(tx, 0))  # without a statement before
    assert await seconds_ahead() == 0
    await within(storage, lambda tx: transact(tx, 2))
    assert await seconds_ahead() == 10


async def test_tokens_that_wait_for_the_first_query_come_before_what_it_reads(storage: Postgres) -> None:
    """429 comes first, although the query was sent together with the tokens. Nothing is changed before them."""
    for refusal in (Invalid, Limited):
        request_tokens.set(RequestTokens("a", (Bucket("x", 10.0, 1),), NOW, join_reading=True))
        with pytest.raises(refusal):  # noqa: PT012 (the statement before the error matters)
            async with storage.reading() as read:
                assert await read.accounts.by_email(ADA) is None
                raise Invalid
    for open_block in (storage.autocommit, lambda: storage.transaction(by=SYSTEM)):
        request_tokens.set(RequestTokens("a", (Bucket("x", 10.0, 1),), NOW, join_reading=True))
        with pytest.raises(Limited):
            async with open_block():
                raise AssertionError("the block must not begin")
        async with open_block():
            pass  # the tokens are taken once


async def test_tokens_taken_before_an_outage_are_not_taken_again(storage: Postgres) -> None:
    request_tokens.set(tokens := RequestTokens("a", (Bucket("x", 10.0, 1),), NOW, join_reading=True))
    with pytest.raises(StorageDown):  # noqa: PT012 (the statement before the error matters)
        async with storage.reading() as read:
            assert await read.accounts.by_email(ADA) is None
            raise StorageDown
    assert tokens.are_taken
    async with storage.reading() as read:
        assert await read.accounts.by_email(ADA) is None


async def test_a_bucket_that_is_full_again_is_deleted_within_ten_minutes(storage: Postgres, pool: Pool) -> None:
    await charge(storage, "a", Bucket("slow", 1000.0, 5), AUTH)
    await charge(storage, "a", AUTH)  # it must not shorten the time that the other bucket needs
    [(expires_at,)] = await run_sql(pool, "select expires_at from rates")
    assert NOW + 1000 * SECOND <= expires_at < NOW + 1600 * SECOND
    assert await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.RATES, expires_at, 10)) == 0
    assert await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.RATES, expires_at + SECOND, 10)) == 1


async def test_most_charges_keep_the_indexed_expiry(storage: Postgres, pool: Pool) -> None:
    expiries = set()
    for seconds in range(5):
        await charge(storage, "a", AUTH, at=seconds)
        expiries |= set(await run_sql(pool, "select expires_at from rates"))
    assert len(expiries) == 1


@pytest.mark.slow
async def test_buckets_are_checked_like_those_of_a_model(storage: Postgres) -> None:
    """Random charges, against the same algorithm in Python."""
    random = Random(27)  # noqa: S311
    available = [Bucket("a", 1.0, 3), Bucket("b", 0.5, 1), Bucket("c", 7.0, 2)]
    tats: dict[str, float] = {}
    seconds = 0.0
    for _ in range(300):
        seconds += random.choice([-0.5, 0.0, 0.0, 0.25, 1.0, 5.0])
        buckets = random.sample(available, random.randint(1, 3))
        bases = {bucket: max(tats.get(bucket.name, 0.0), seconds) for bucket in buckets}
        wait = max(0.0, *(base - seconds - (bucket.burst - 1) * bucket.period for bucket, base in bases.items()))
        if wait == 0:
            tats |= {bucket.name: base + bucket.period for bucket, base in bases.items()}
        assert await charge(storage, "client", *buckets, at=seconds) == pytest.approx(wait, abs=1e-5)


@pytest.mark.slow
async def test_no_period_of_a_window_has_more_than_its_count(storage: Postgres) -> None:
    """Random charges are compared with a list of all times. Processes have different clocks."""
    random = Random(58)  # noqa: S311
    window, times, seconds = Window("w", 10.0, 3), [-1000.0], 0.0
    for _ in range(200):
        seconds += random.choice([-0.5, 0.0, 0.25, 1.0, 3.0, 9.75])
        time = max(times[-1], seconds)
        latest = [each for each in times if each > time - 10.0]
        wait = latest[-3] + 10.0 - time if len(latest) >= 3 else 0.0
        if wait == 0:
            times.append(time)
        assert await charge_window(storage, window, at=seconds) == pytest.approx(wait, abs=1e-5)
        assert await charge(storage, "a", Bucket("bucket", 1.0, 1000), at=seconds) == 0, "it is in the same row"


@pytest.mark.slow
async def test_parallel_charges_fill_a_window_exactly(storage: Postgres, pool: Pool) -> None:
    window = Window("w", 3600.0, 10)
    assert await window_wait(storage, window) == 0
    assert sum(wait == 0 for wait in await run_concurrently(30, lambda _: charge_window(storage, window))) == 10
    assert [await window_wait(storage, window, at=3599.0) for _ in range(2)] == pytest.approx([1.0, 1.0], abs=1e-5)
    assert await charge_window(storage, window, at=3599.0) == pytest.approx(1.0, abs=1e-5)
    [(expires_at, times)] = await run_sql(pool, "select expires_at, tats -> 'w' from rates")
    assert expires_at >= NOW + 3600 * SECOND
    assert len(times) == 10
