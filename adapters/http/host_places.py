"""Requests to hosts that strangers name. In each process, an organization sends one request at a time to a host."""

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Final

import trio

from core.kernel.errors import Limited
from core.kernel.shares import FairPlaces

MAX_CONCURRENT: Final = 300  # requests of this process
MAX_OF_SHARE: Final = 6  # of an organization, or of a client address
MAX_OF_HOST: Final = 6  # each of another organization


class HostBusy(Exception):
    """Other requests of the organization, or to the host, took too long."""


class HostPlaces:
    """The hosts with a request in flight."""

    def __init__(self) -> None:
        self._places = FairPlaces(trio.Event, MAX_CONCURRENT, of_share=MAX_OF_SHARE)
        self._hosts: dict[str, FairPlaces] = {}

    @asynccontextmanager
    async def of(self, host: str, within: float) -> AsyncIterator[None]:
        """Let a request go to this host in its turn. Raises: HostBusy after this number of seconds."""
        places = self._hosts.setdefault(host, FairPlaces(trio.Event, MAX_OF_HOST, of_share=1))
        try:
            with ExitStack() as taken:
                try:
                    with trio.fail_after(within):
                        taken.enter_context(await places.take())
                        taken.enter_context(await self._places.take())
                except (Limited, trio.TooSlowError):
                    raise HostBusy from None
                yield
        finally:
            if places.is_idle and self._hosts.get(host) is places:
                del self._hosts[host]
