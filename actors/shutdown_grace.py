"""Time to finish a step after the process was asked to stop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def shutdown_grace(seconds: float) -> AsyncIterator[None]:
    """Let a block run for up to `seconds` after it was canceled from outside, and without limit otherwise.

    For steps that must store their outcome once they have begun, such as handing over an email.
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
