"""Extra time for a step that is running when the process is stopped."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def shutdown_grace(seconds: float) -> AsyncIterator[None]:
    """Let a block run for up to `seconds` after a cancellation from outside. Without a cancellation, there is no limit.

    Use this for steps that must store their outcome once they have started, such as sending an email.
    """
    async with trio.open_nursery() as nursery:
        with trio.CancelScope(shield=True) as shielded:

            async def watch() -> None:
                try:
                    await trio.sleep_forever()
                finally:  # only a cancellation ends sleep_forever
                    shielded.deadline = trio.current_time() + seconds

            nursery.start_soon(watch)
            yield
        nursery.cancel_scope.cancel()
