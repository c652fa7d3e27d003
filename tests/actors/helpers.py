"""Helpers for tests of actors: idle actors, captured log lines, and a clock that runs with Trio's."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import structlog
import trio

from actors.mailbox import Mailbox
from tests.fakes.outside import FakeClock
from tests.support.waiting import eventually


def is_idle(inbox: Mailbox) -> bool:
    return inbox._receiver.statistics().tasks_waiting_receive > 0


async def wait_until_idle(inbox: Mailbox) -> None:
    """Wait until the actor has handled every post, found no more work to start, and waits for the next post.

    It is not enough that no task runs, because a task that waits for the database does not run either.
    """
    await eventually(lambda: is_idle(inbox), "the actor waits for the next post")


@contextmanager
def capture_log() -> Iterator[list[Any]]:
    """Capture the log lines of a block, with their context variables."""
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as entries:
        yield entries


class TrioClock:
    """A clock that runs with Trio's, which a test can jump forward."""

    start = FakeClock().now()

    def now(self) -> datetime:
        return self.start + timedelta(seconds=trio.current_time())
