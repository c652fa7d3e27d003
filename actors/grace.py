"""Time to finish what was begun when the process is asked to stop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def grace(seconds: float) -> AsyncIterator[None]:
    """A block that goes on for at most `seconds` after it was cancelled from outside; undisturbed it takes as long as it likes.

    For steps whose outcome must be written down once they have begun, such as handing over a mail.
    """
    async with trio.open_nursery() as nursery:
        with trio.CancelScope(shield=True) as shielded:

            async def watch() -> None:
                try:
                    await trio.sleep_forever()
                finally:  # only cancellation ends a sleep for ever
                    shielded.deadline = trio.current_time() + seconds

            nursery.start_soon(watch)
            yield
        nursery.cancel_scope.cancel()
