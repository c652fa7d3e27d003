"""Waiting for results in tasks, databases or processes that cannot signal them."""

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, overload

import trio

T = TypeVar("T")

# Seconds. Only broken code takes this long: the machine may be busy, and no test asserts a
# duration.
PATIENCE: Final = 30.0


def until(condition: Callable[[], object], what: str, patience: float = PATIENCE, *, pause: float = 0.01) -> None:
    """Return soon after the condition holds: it is tested again after every pause, in seconds. `what` describes it in the error."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"after {patience:g} s, this does not hold yet: {what}"
        time.sleep(pause)


@overload
async def eventually(look: Callable[[], Awaitable[T | None]], what: str = ..., patience: float = ...) -> T: ...
@overload
async def eventually(look: Callable[[], T | None], what: str = ..., patience: float = ...) -> T: ...
async def eventually(look: Callable[[], object], what: str = "the condition holds", patience: float = PATIENCE) -> object:
    """Return the result of `look` as soon as it is true, while all other tasks run.

    `what` describes it in the error.
    """
    with trio.move_on_after(patience):
        while True:
            result = look()
            if inspect.isawaitable(result):
                result = await result
            if result:
                return result
            await trio.sleep(0.005)
    raise AssertionError(f"after {patience:g} s, this does not hold yet: {what}")
