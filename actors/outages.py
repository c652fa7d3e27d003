"""Storing finished work's outcome, even if the database is down for a while."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

from actors.mailbox import jittered
from core.kernel.errors import Outage

T = TypeVar("T")

LONGEST_PAUSE: Final = 5.0  # seconds


async def retry_until_stored(store: Callable[[], Awaitable[T]], report: Callable[[Outage], object]) -> T:
    """Return the result from `store` once it succeeds, and call `report` for every outage before that.

    Use this for outcomes that only this process has. If such an outcome is lost, the same work is done twice.
    """
    pause = 0.1
    while True:
        try:
            return await store()
        except Outage as outage:
            report(outage)
        await trio.sleep(jittered(pause))
        pause = min(pause * 2, LONGEST_PAUSE)
