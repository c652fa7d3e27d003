"""How an actor is woken: a mailbox carries no work, it only says that there may be some. The work itself is in the database."""

import random
from contextlib import suppress

import trio


class Mailbox:
    """A memory channel of size one: posting never blocks, and any number of posts fold into one wake-up."""

    def __init__(self) -> None:
        self._sender, self._receiver = trio.open_memory_channel[None](1)

    def post(self) -> None:
        """Wake the owner, now or when it next waits. From any task of the same Trio run."""
        with suppress(trio.WouldBlock):
            self._sender.send_nowait(None)

    async def wait(self, at_most: float) -> None:
        """Return when something was posted since the last wait, and after `at_most` seconds in any case."""
        with trio.move_on_after(max(at_most, 0)):
            await self._receiver.receive()


def jittered(seconds: float) -> float:
    """A quarter more or less, so that processes that were started together do not go on asking the database together."""
    return seconds * random.uniform(0.75, 1.25)  # noqa: S311  (spreads load, guards nothing)
