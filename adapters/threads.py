"""Threads for work that keeps a processor busy, beside the one that serves requests."""

import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import outcome
import trio

from core.kernel.errors import Limited

T = TypeVar("T")

IDLE_AFTER = 60.0  # seconds after which a thread without work ends; the next piece of work starts one again
NICENESS = 10


@dataclass(eq=False, slots=True, repr=False)
class _Job(Generic[T]):
    work: Callable[[], T]
    token: trio.lowlevel.TrioToken
    done: trio.Event
    result: outcome.Outcome[T] | None = None


class LowPriorityThreads:
    """A few threads that give way to the one that serves requests, and a bounded queue before them.

    The threads of trio.to_thread serve everybody in turn, and a thread cannot take its niceness back, so these are separate ones. They also
    cost a third of those for work of a millisecond or two, most of which is done without the interpreter's lock: there are fewer of them to
    wait for it. They start when there is work and end when there is none for a while.
    """

    def __init__(self, name: str, count: int, queue: int) -> None:
        """At most `count` pieces of work are done at once, and at most `queue` more wait."""
        self._name = name
        self._count = count
        self._queue = queue
        self._changed = threading.Condition()
        self._waiting: deque[_Job[Any]] = deque()
        self._alive = 0
        self._busy = 0
        self._closed = False

    def close(self) -> None:
        """Let the threads end as soon as nothing waits; later work starts one that ends after it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def run(self, work: Callable[[], T]) -> T:
        """What this work gives, or raises. Raises Limited at once when the queue is full."""
        job = _Job(work, trio.lowlevel.current_trio_token(), trio.Event())
        self._admit(job)
        try:
            await job.done.wait()
        finally:
            # Whoever stops waiting gives its place to the next. Work that has begun cannot be stopped; it keeps its thread to the end.
            if not job.done.is_set():
                with self._changed, suppress(ValueError):
                    self._waiting.remove(job)
        assert job.result is not None  # set before `done`
        return job.result.unwrap()

    def _admit(self, job: _Job[Any]) -> None:
        with self._changed:
            if self._busy + len(self._waiting) >= self._count + self._queue:
                raise Limited(1)
            if self._alive < self._count and self._alive - self._busy <= len(self._waiting):
                threading.Thread(target=self._serve, name=self._name, daemon=True).start()
                self._alive += 1
            self._waiting.append(job)
            self._changed.notify()

    def _serve(self) -> None:
        _yield_to_others()
        while True:
            with self._changed:
                while not self._waiting:
                    if self._closed or not (self._changed.wait(IDLE_AFTER) or self._waiting):
                        self._alive -= 1
                        return
                job = self._waiting.popleft()
                self._busy += 1
            job.result = outcome.capture(job.work)
            with self._changed:
                self._busy -= 1
            with suppress(trio.RunFinishedError):
                job.token.run_sync_soon(job.done.set)
            del job  # it may hold a secret; an idle thread must not


def _yield_to_others() -> None:
    """Let the scheduler prefer every other thread: on two cores, two hashes at equal priority would make each request wait for them."""
    if sys.platform == "linux":  # elsewhere niceness belongs to the whole process
        with suppress(OSError):
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS))
