"""Requests to hosts that strangers name: one at a time for each host, in each process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class HostBusy(Exception):
    """Another request to the host took too long."""


class HostLocks:
    """The hosts with a request in flight."""

    def __init__(self) -> None:
        self._locks: dict[str, trio.Lock] = {}

    @asynccontextmanager
    async def of(self, host: str, within: float) -> AsyncIterator[None]:
        """Let one request at a time go to this host. Raises: HostBusy after this number of seconds."""
        lock = self._locks.setdefault(host, trio.Lock())
        try:
            with trio.move_on_after(within) as deadline:
                await lock.acquire()
            if deadline.cancelled_caught:
                raise HostBusy
            try:
                yield
            finally:
                lock.release()
        finally:
            if not lock.locked() and not lock.statistics().tasks_waiting and self._locks.get(host) is lock:
                del self._locks[host]
