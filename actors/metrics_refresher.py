"""Keeps the gauges fresh: the platform's figures, the pool's, and how much work is due (organizations.md section 4.11)."""

from typing import Final, NoReturn, Protocol

import structlog
import trio

from actors.supervisor import said
from core.accounts import platform
from core.kernel.errors import Outage
from ports import Ports

log = structlog.get_logger("metrics_refresher")

PERIOD: Final = 30.0  # seconds, as the interface promises


class PoolStats(Protocol):
    """Database connections of this process."""

    @property
    def total(self) -> int: ...
    @property
    def idle(self) -> int: ...
    @property
    def maximum(self) -> int: ...


class Pool(Protocol):
    """What has such figures."""

    @property
    def stats(self) -> PoolStats: ...


async def metrics_refresher(ports: Ports, pool: Pool) -> NoReturn:
    """Refresh now, and then every 30 seconds."""
    while True:
        await refresh(ports, pool)
        await trio.sleep(PERIOD)


async def refresh(ports: Ports, pool: Pool) -> None:
    """Set every gauge that can be known. While the database is away its figures stay as they were, and the pool's are still told."""
    # Before the questions below, which would themselves show up as connections in use.
    stats = pool.stats
    ports.metrics.pool(stats.total, stats.idle, stats.maximum)
    for refresh_one in (_refresh_figures, _refresh_queue_depth):
        try:
            await refresh_one(ports)
        except Outage as outage:
            log.warning("gauge_not_refreshed", gauges=refresh_one.__name__.removeprefix("_refresh_"), outage=said(outage))


async def _refresh_figures(ports: Ports) -> None:
    figures = await platform.figures(ports)
    ports.metrics.platform(figures.active_users, figures.organizations, figures.mfa_enabled_users)


async def _refresh_queue_depth(ports: Ports) -> None:
    async with ports.storage.reading() as read:
        due = await read.platform.due_jobs(ports.clock.now())
    ports.metrics.queue_depth(due)
