"""A Trio loop in a thread, for synchronous tests.

Hypothesis runs many examples in a single test call.
"""

import queue
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar

import trio

T = TypeVar("T")


class Background:
    """The loop, as a context manager.

    All calls run in the same loop, so they can share connections.
    """

    def __init__(self) -> None:
        self._started: queue.SimpleQueue[tuple[trio.lowlevel.TrioToken, trio.Event]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=trio.run, args=(self._main,))

    def run(self, act: Callable[..., Awaitable[T]], *args: object) -> T:
        """Run `act(*args)` in the loop. Return its result or raise its error."""
        return trio.from_thread.run(act, *args, trio_token=self._token)

    async def _main(self) -> None:
        done = trio.Event()
        self._started.put((trio.lowlevel.current_trio_token(), done))
        await done.wait()

    def __enter__(self) -> Self:
        self._thread.start()
        self._token, self._done = self._started.get()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._token.run_sync_soon(self._done.set)
        self._thread.join()
