"""Webhook dispatchers that work on a queue, and their progress."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from actors.dispatching import webhook_dispatcher
from actors.mailbox import Mailbox
from adapters.postgres.engine.pool import Pool
from tests.actors.helpers import run_actors, wait_until_idle
from tests.support.waiting import eventually
from tests.support.webhooks import queue

dispatching = partial(run_actors, webhook_dispatcher)


async def until_each(pool: Pool, description: str, condition: Callable[[Mapping[str, Any]], bool]) -> list[dict[str, Any]]:
    """Return the queue once the condition holds for every delivery."""

    async def holds_for_all() -> bool:
        rows = await queue(pool)
        return bool(rows) and all(map(condition, rows))

    await eventually(holds_for_all, description)
    return await queue(pool)


async def all_delivered(pool: Pool) -> list[dict[str, Any]]:
    return await until_each(pool, "all deliveries have succeeded", lambda row: row["delivered"])


async def all_attempted(pool: Pool, times: int = 1) -> list[dict[str, Any]]:
    return await until_each(pool, f"all were attempted {times} times", lambda row: row["attempt_count"] == times)


async def attempts_of(pool: Pool, inbox: Mailbox, attempt: int) -> dict[str, Any]:
    """Return the only delivery after `attempt` attempts."""
    [row] = await all_attempted(pool, attempt)
    await wait_until_idle(inbox)
    return row
