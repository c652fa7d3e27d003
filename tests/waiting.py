"""Waiting for what happens elsewhere, with an end."""

from collections.abc import Awaitable, Callable

import trio

PATIENCE = 10.0


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Return once the condition holds: it is about a database or a log, which have no event to wait for."""
    with trio.fail_after(PATIENCE):
        while not (holds if isinstance(holds := condition(), bool) else await holds):  # noqa: ASYNC110
            await trio.sleep(0.005)
