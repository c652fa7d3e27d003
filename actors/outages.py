"""Recording what became of something, however long the database stays away."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

from actors.mailbox import jittered
from core.kernel.errors import Outage

T = TypeVar("T")

LONGEST_PAUSE: Final = 5.0  # seconds


async def retry_until_stored(record: Callable[[], Awaitable[T]], tell: Callable[[Outage], object]) -> T:
    """What `record` gives, once it can be done; `tell` hears each time that it could not.

    For what nobody else knows, and without which the same would be done twice.
    """
    pause = 0.1
    while True:
        try:
            return await record()
        except Outage as outage:
            tell(outage)
        await trio.sleep(jittered(pause))
        pause = min(pause * 2, LONGEST_PAUSE)
