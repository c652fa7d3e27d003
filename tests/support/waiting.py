"""Waiting for what happens elsewhere, beyond a socket, a database or a process, where there is no event to wait for."""

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, overload

import trio

T = TypeVar("T")

# Seconds. Nothing takes this long unless it is broken: the machine may be busy with other tests, and no test is about a duration.
PATIENCE: Final = 30.0


def until(condition: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Return once the condition holds; `what` says it in words for when it does not."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"after {patience:g} s still not so: {what}"
        time.sleep(0.01)


@overload
async def eventually(look: Callable[[], Awaitable[T | None]], what: str = ..., patience: float = ...) -> T: ...
@overload
async def eventually(look: Callable[[], T | None], what: str = ..., patience: float = ...) -> T: ...
async def eventually(look: Callable[[], object], what: str = "what was looked for is there", patience: float = PATIENCE) -> object:
    """What `look` finds, as soon as it finds something, while other tasks go on; `what` says it in words for when it does not."""
    with trio.move_on_after(patience):
        while True:
            found = look()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return found
            await trio.sleep(0.005)
    raise AssertionError(f"after {patience:g} s still not so: {what}")
