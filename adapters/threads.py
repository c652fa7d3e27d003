"""Worker threads: Trio's threads with limited concurrent work, and low-priority threads for CPU work."""

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import outcome
import trio

from core.kernel import shares
from core.kernel.errors import Limited

T = TypeVar("T")


class TrioThreads:
    """Implements `ports.outside.WorkerThreads`.

    By default, a single job runs at a time. Most work holds the interpreter lock, so a second thread would only slow
    down the thread that serves requests.
    """

    def __init__(self, count: int = 1) -> None:
        """At most `count` jobs run at once."""
        self._places = cast("trio.CapacityLimiter", shares.FairPlaces(trio.Event, count))

    async def run(self, work: Callable[[], T], *, abandons: bool = False) -> T:
        """Run `work` in a thread.

        With `abandons`, a canceled caller does not wait for the work to end, and the work keeps its place until then.
        """
        return await trio.to_thread.run_sync(work, limiter=self._places, abandon_on_cancel=abandons)


# Seconds until an idle thread ends, with its 20 MB for hashes. The next job starts a new thread,
# which costs a quarter of a hash.
IDLE_AFTER = 0.2
NICENESS = 10


@dataclass(eq=False, slots=True, repr=False)
class _Job(Generic[T]):
    work: Callable[[], T]
    token: trio.lowlevel.TrioToken
    done: trio.Event
    result: outcome.Outcome[T] | None = None


class LowPriorityThreads:
    """A few threads with a lower priority than the thread that serves requests, and a bounded queue that serves shares in turn.

    trio.to_thread is not used: its threads are shared, and a thread cannot raise its priority again. For jobs that take
    1 or 2 ms, mostly without the interpreter lock, these threads also cost only a third, because fewer threads wait for
    the lock. Threads start when there is work, and end when they have been idle for a while.
    """

    def __init__(self, name: str, count: int, queue: int) -> None:
        """At most `count` jobs run at once, and at most `queue` more wait."""
        self._name = name
        self._count = count
        self._most = count + queue
        self._changed = threading.Condition()
        self._waiting: shares.FairQueue[_Job[Any]] = shares.FairQueue()
        self._alive = 0
        self._busy = 0
        self._closed = False

    def close(self) -> None:
        """End the threads when the queue is empty. A later job starts a thread that ends after it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread and return its result.

        Raises: Limited if the queue is full and the current share has more work in it than other shares; the errors of `work`.
        """
        share, job = shares.current_share.get(), _Job(work, trio.lowlevel.current_trio_token(), trio.Event())
        self._enqueue(share, job)
        try:
            await job.done.wait()
        finally:
            # A canceled job leaves the queue. A job that has started cannot be stopped, and keeps
            # its thread until it ends.
            if not job.done.is_set():
                with self._changed, suppress(ValueError, KeyError):
                    self._waiting.remove(share, job)
        assert job.result is not None  # set before `done`
        return job.result.unwrap()

    def _enqueue(self, share: shares.Share, job: _Job[Any]) -> None:
        with self._changed:
            refused = self._waiting.add(share, job, self._most - self._busy)
            if refused is not None:
                refused.result = outcome.Error(Limited(shares.RETRY_AFTER))
                refused.done.set()
            if refused is job:
                return
            if self._alive < self._count and self._alive - self._busy < len(self._waiting):
                threading.Thread(target=self._serve, name=self._name, daemon=True).start()
                self._alive += 1
            self._changed.notify()

    def _serve(self) -> None:
        _lower_priority()
        while True:
            with self._changed:
                while (following := self._waiting.pop()) is None:
                    if self._closed or not (self._changed.wait(IDLE_AFTER) or self._waiting):
                        self._alive -= 1
                        return
                job = following[1]
                self._busy += 1
            job.result = outcome.capture(job.work)
            with self._changed:
                self._busy -= 1
            with suppress(trio.RunFinishedError):
                job.token.run_sync_soon(job.done.set)
            del job, following  # the job may hold a secret, which an idle thread must not keep


def _lower_priority() -> None:
    """Lower this thread's priority. On two cores, two hashes at equal priority would delay every request."""
    if sys.platform == "linux":  # on non-Linux systems the niceness belongs to the whole process
        with suppress(OSError):
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS))
