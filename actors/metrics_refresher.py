"""The actor that refreshes the gauges: the platform's figures, the connection pool, and how much work is due."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn, Protocol

import structlog
import trio

from actors.mailbox import Mailbox
from actors.supervisor import describe_error
from actors.turns import sleep_between_turns
from core.accounts import email_queue, platform
from core.federation.connections import health
from core.kernel.errors import Outage
from ports import Ports

log = structlog.get_logger("metrics_refresher")

PERIOD: Final = 30.0  # seconds, as documented with the metrics
SHORTEST_PAUSE: Final = 1.0  # seconds between two refreshes, for the figures
# The pause after a refresh is this many times as long as the refresh, because counting reads a
# whole table. With this factor, counting uses a connection for at most 2 % of the time, whatever
# the table's size.
PAUSE_FACTOR: Final = 50


class PoolStats(Protocol):
    """How many database connections this process has."""

    @property
    def total(self) -> int: ...
    @property
    def idle(self) -> int: ...
    @property
    def maximum(self) -> int: ...


class Pool(Protocol):
    """A connection pool that reports its numbers."""

    @property
    def stats(self) -> PoolStats: ...


async def metrics_refresher(ports: Ports, pool: Pool, inbox: Mailbox) -> NoReturn:
    """Refresh all gauges now and every 30 seconds, and the figures soon after a message.

    The figures are refreshed at most once a second.
    """
    while True:
        next_round = trio.current_time() + PERIOD
        await refresh(ports, pool)
        pause = SHORTEST_PAUSE
        while (remaining := next_round - trio.current_time()) > 0:
            await sleep_between_turns(min(pause, remaining))
            if not await inbox.wait(at_most=next_round - trio.current_time()):
                break
            started = trio.current_time()
            await _refresh_figures(ports)
            pause = max(SHORTEST_PAUSE, PAUSE_FACTOR * (trio.current_time() - started))


async def refresh(ports: Ports, pool: Pool) -> None:
    """Set all gauges. During a database outage, only the pool's gauges are set, and all remaining gauges keep their values."""
    # Read the pool's numbers before the queries below, because the queries use connections
    # themselves.
    stats = pool.stats
    ports.metrics.pool(stats.total, stats.idle, stats.maximum)
    await _refresh_figures(ports)
    with _logged_outage("queue_depth"):
        ports.metrics.queue_depth(await platform.count_due_jobs(ports))
    with _logged_outage("mail_queue"):
        backlog = await email_queue.measure_backlog(ports)
        ports.metrics.mail_queue(backlog.depth, backlog.age.total_seconds())
    with _logged_outage("connections"):
        ports.metrics.connection_health(*await health.measure(ports))


async def _refresh_figures(ports: Ports) -> None:
    with _logged_outage("figures"):
        figures = await platform.get_figures(ports)
        ports.metrics.platform(
            figures.active_users, figures.organizations, figures.mfa_enabled_users, figures.passkey_users, figures.password_alone_users
        )


@contextmanager
def _logged_outage(gauges: str) -> Iterator[None]:
    """Log an outage that happens in the block, and continue after the block."""
    try:
        yield
    except Outage as outage:
        log.warning("gauge_not_refreshed", gauges=gauges, outage=describe_error(outage))
