"""Trio's worker threads, for CPU work of the core."""

from collections.abc import Callable
from typing import TypeVar

import trio

T = TypeVar("T")


class TrioThreads:
    """Implements `ports.threads.WorkerThreads` with Trio's threads, one piece of work at a time.

    Such work holds the interpreter lock, so a second thread would only slow down the thread that
    serves requests.
    """

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(1)

    async def run(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._limiter)
