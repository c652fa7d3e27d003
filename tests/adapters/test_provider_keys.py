"""Identity providers' cached keys, while a fetch is in progress."""

import trio
import trio.testing

from adapters.http.provider_keys import CACHE_TTL, Keys, ProviderKeys
from tests.fakes.outside import FakeClock
from tests.support.waiting import PATIENCE


async def test_cached_keys_are_returned_during_a_fetch_of_newer_ones() -> None:
    cached: Keys = [{"kid": "cached"}]
    newer: Keys = [{"kid": "newer"}]
    provider_keys, entered, leave = ProviderKeys(FakeClock()), trio.Event(), trio.Event()

    async def fetch() -> Keys:
        return cached

    async def fetch_slowly() -> Keys:
        entered.set()
        await leave.wait()
        return newer

    assert await provider_keys.get(fetch) == (cached, True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(provider_keys.get_newer, cached, fetch_slowly)
        await entered.wait()
        with trio.fail_after(PATIENCE):
            assert await provider_keys.get(fetch_slowly) == (cached, False)
        leave.set()
    assert await provider_keys.get(fetch) == (newer, False)


async def test_concurrent_requests_share_the_fetch_of_expired_keys() -> None:
    clock = FakeClock()
    provider_keys, fetches = ProviderKeys(clock), 0

    async def fetch() -> Keys:
        nonlocal fetches
        fetches += 1
        await trio.testing.wait_all_tasks_blocked()
        return [{"kid": str(fetches)}]

    for number in (1, 2):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(provider_keys.get, fetch)
        assert await provider_keys.get(fetch) == ([{"kid": str(number)}], False)
        clock.advance(CACHE_TTL)
