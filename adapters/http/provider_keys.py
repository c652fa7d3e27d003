"""An identity provider's published keys, which verify its ID tokens."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

import trio

from adapters.crypto import IdTokenKeyUnknown
from ports.observe import Clock

CACHE_TTL: Final = timedelta(hours=1)
MAX_CACHED: Final = 1000  # caches with the same kind of key
REFETCH_PAUSE: Final = timedelta(minutes=1)  # between two fetches of the same cause, for tokens that no cached key verifies
MAX_CAUSES: Final = 6  # strangers, such as client addresses, that can cause a fetch within REFETCH_PAUSE
OUR_REQUEST: Final = "our request"  # the cause for fetching keys for a token that we have asked for

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Keys = Sequence[Mapping[str, Any]]
Fetch = Callable[[], Awaitable[Keys]]


class Caches(Generic[K, T]):
    """Caches by key. A cache is forgotten after CACHE_TTL without use, or when MAX_CACHED caches were used later."""

    def __init__(self, clock: Clock, new: Callable[[Clock], T]) -> None:
        self._clock = clock
        self._new = new
        self._used: OrderedDict[K, tuple[T, datetime]] = OrderedDict()

    def of(self, key: K) -> T:
        now = self._clock.now()
        cache = self._used[key][0] if key in self._used else self._new(self._clock)
        self._used[key] = cache, now
        self._used.move_to_end(key)
        while len(self._used) > MAX_CACHED or next(iter(self._used.values()))[1] + CACHE_TTL <= now:
            self._used.popitem(last=False)
        return cache


class ProviderKeys:
    """A provider's cached keys. Concurrent requests share a fetch."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = trio.Lock()
        self._keys: Keys = ()
        self._fetched_at: datetime | None = None
        self.failed_at: datetime | None = None  # the time of the last fetch, if it failed; `FetchedKeys` sets it
        self._refetches: dict[Hashable, datetime] = {}  # when keys were last fetched, by cause

    async def get(self, fetch: Fetch) -> tuple[Keys, bool]:
        """Return the keys, and whether they were fetched now because the cached keys are older than CACHE_TTL."""
        if self._is_fresh():  # without the lock, which another request may hold during a slow fetch
            return self._keys, False
        async with self._lock:
            is_new = not self._is_fresh()
            return await self._fetch(fetch) if is_new else self._keys, is_new

    def _is_fresh(self) -> bool:
        return self._fetched_at is not None and self._clock.now() < self._fetched_at + CACHE_TTL

    async def get_newer(self, keys: Keys, fetch: Fetch, cause: Hashable = OUR_REQUEST) -> Keys | None:
        """Return keys that are newer than `keys`, or None within REFETCH_PAUSE after a fetch for this cause.

        Forged tokens lead here too. So the pause applies also after a failed fetch. During the pause, at most MAX_CAUSES strangers cause a
        fetch.
        """
        async with self._lock:
            if self._keys is not keys:
                return self._keys
            now = self._clock.now()
            self._refetches = {each: at for each, at in self._refetches.items() if now < at + REFETCH_PAUSE}
            strangers = len(self._refetches.keys() - {OUR_REQUEST})
            if cause in self._refetches or (cause != OUR_REQUEST and strangers >= MAX_CAUSES):
                return None
            self._refetches[cause] = now
            return await self._fetch(fetch)

    async def verify(self, fetch: Fetch, read: Callable[[Keys], T], cause: Hashable = OUR_REQUEST) -> T:
        """Return the content of a token that `read` verifies with the keys, or with newer keys if no key signed it.

        Raises: the errors of `read`, such as IdTokenKeyUnknown.
        """
        keys, is_new = await self.get(fetch)
        try:
            return read(keys)
        except IdTokenKeyUnknown:
            newer = None if is_new else await self.get_newer(keys, fetch, cause)
            if newer is None:
                raise
            return read(newer)

    async def _fetch(self, fetch: Fetch) -> Keys:
        self._keys = await fetch()
        self._fetched_at = self._clock.now()
        return self._keys
