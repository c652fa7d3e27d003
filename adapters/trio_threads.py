"""Trio's worker threads, with limited concurrent work. Shares that wait are served in turn."""

from collections.abc import Callable
from typing import TypeVar, cast

import trio

from core.kernel.shares import FairPlaces

T = TypeVar("T")


class TrioThreads:
    """Implements `ports.threads.WorkerThreads`.

    By default, a single job runs at a time. Most work holds the interpreter lock, so a second thread would only slow
    down the thread that serves requests.
    """

    def __init__(self, count: int = 1) -> None:
        """At most `count` jobs run at once."""
        self._places = cast("trio.CapacityLimiter", FairPlaces(trio.Event, count))

    async def run(self, work: Callable[[], T], *, abandons: bool = False) -> T:
        """Run `work` in a thread.

        With `abandons`, a canceled caller does not wait for the work to end, and the work keeps its place until then.
        """
        return await trio.to_thread.run_sync(work, limiter=self._places, abandon_on_cancel=abandons)
