"""Helpers for actor tests: running and idle actors, captured log lines, and a clock that runs with Trio's."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog
import trio

from actors.mailbox import Mailbox
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.waiting import PATIENCE, eventually


@asynccontextmanager
async def run_actors(actor: Callable[..., Awaitable[None]], ports: Ports, count: int = 1, **options: Any) -> AsyncIterator[list[Mailbox]]:
    """Run `count` copies of the actor during the block, and yield their mailboxes."""
    inboxes = [Mailbox() for _ in range(count)]
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            for inbox in inboxes:
                nursery.start_soon(partial(actor, ports, **options), inbox)
            yield inboxes
            nursery.cancel_scope.cancel()


def is_idle(inbox: Mailbox) -> bool:
    return inbox._receiver.statistics().tasks_waiting_receive > 0


async def wait_until_idle(inbox: Mailbox) -> None:
    """Wait until the actor has handled every post, found no more work to start, and waits for the next post.

    It is not enough that no task runs, because a task that waits for the database does not run either.
    """
    await eventually(lambda: is_idle(inbox), "the actor waits for the next post")


@contextmanager
def capture_log() -> Iterator[list[Any]]:
    """Capture a block's log lines, with their context variables."""
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as entries:
        yield entries


class TrioClock:
    """A clock that runs with Trio's, which a test can jump forward."""

    start = FakeClock().now()

    def now(self) -> datetime:
        return self.start + timedelta(seconds=trio.current_time())
