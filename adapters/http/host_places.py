"""Requests to hosts that strangers name. In a process, an organization sends one request at a time to a host."""

from collections.abc import AsyncIterator, Hashable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import trio

from core.kernel.errors import Limited
from core.kernel.shares import FairPlaces, current_share

MAX_CONCURRENT: Final = 300  # requests in this process
MAX_OF_SHARE: Final = 6  # requests by an organization, or a client address
MAX_OF_HOST: Final = 6  # requests to a host, from six organizations


class HostBusy(Exception):
    """Earlier requests by the organization, or to the host, took too long."""


class HostPlaces:
    """The hosts with a request in flight."""

    def __init__(self) -> None:
        self._hosts: dict[Hashable, FairPlaces] = {}  # by host, by share, by (share, host), and by None for all hosts

    @asynccontextmanager
    async def of(self, host: str, within: float) -> AsyncIterator[None]:
        """Let a request go to this host in its turn. Raises: HostBusy after `within` seconds.

        The most shared places are taken last. So a waiting request holds no place that unrelated callers need (security N-11).
        """
        share = current_share.get()
        totals = {(share, host): 1, share: MAX_OF_SHARE, host: MAX_OF_HOST, None: MAX_CONCURRENT}
        async with AsyncExitStack() as taken:
            try:
                with trio.fail_after(within):
                    for key, total in totals.items():
                        await taken.enter_async_context(self._place(key, total))
            except (Limited, trio.TooSlowError):
                raise HostBusy from None
            yield

    @asynccontextmanager
    async def _place(self, key: Hashable, total: int) -> AsyncIterator[None]:
        places = self._hosts.setdefault(key, FairPlaces(trio.Event, total, of_share=total))
        try:
            with await places.take():
                yield
        finally:
            if places.is_idle and self._hosts.get(key) is places:
                del self._hosts[key]
