"""Whether a process's actors make progress.

An actor makes progress when it begins or ends a wait, or a database call. A turn is the time between two waits. If an
actor makes no progress in a turn for STUCK_AFTER seconds, it is stuck: the supervisor's watchdog then restarts the
service. An actor that waits for work, for time or for the database is not stuck.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import trio

# Longer than an actor's longest call to another server, and than any transaction. A database call fails earlier, even
# if the server is frozen.
STUCK_AFTER: Final = 600.0  # seconds


class Turn:
    """An actor's turn. Tasks that the actor starts share it."""

    __slots__ = ("progress_at",)

    def __init__(self) -> None:
        self.progress_at: float | None = None  # by Trio's clock; None while the actor waits


_turn: ContextVar[Turn | None] = ContextVar("turn", default=None)


class Turns:
    """The turns of a process's actors, by actor name."""

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}

    @contextmanager
    def of_actor(self, name: str) -> Iterator[None]:
        """Let the current task be the actor during the block. The actor is in a turn from then on."""
        turn = self._turns[name] = Turn()
        token = _turn.set(turn)
        turn.progress_at = trio.current_time()
        try:
            yield
        finally:
            turn.progress_at = None
            _turn.reset(token)

    def find_stuck(self) -> str | None:
        """Return a sentence that names the stuck actors, or None."""
        latest = trio.current_time() - STUCK_AFTER
        stuck = [name for name, turn in self._turns.items() if turn.progress_at is not None and turn.progress_at <= latest]
        return f"These actors are stuck: {', '.join(sorted(stuck))}." if stuck else None


@contextmanager
def waiting() -> Iterator[None]:
    """Mark the block as a wait by the current actor, if any."""
    turn = _turn.get()
    if turn is None:
        yield
        return
    turn.progress_at = None
    try:
        yield
    finally:
        turn.progress_at = trio.current_time()


async def sleep_between_turns(seconds: float) -> None:
    """Sleep. The actor does not count as stuck."""
    with waiting():
        await trio.sleep(seconds)


def record_progress() -> None:
    """Record progress by the actor that the current task belongs to, if any."""
    turn = _turn.get()
    if turn is not None and turn.progress_at is not None:
        turn.progress_at = trio.current_time()
