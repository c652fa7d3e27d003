"""The signals that stop or reload a process, and other reasons to stop it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog
import trio

if TYPE_CHECKING:
    from adapters.postgres.engine import embedded
    from entrypoints.supervision import ParentLink, Watcher

# Seconds for running requests to finish after SIGTERM, which supervisors send, and after Ctrl-C,
# when a user is waiting.
DRAIN_ON_SIGTERM: Final = 30.0
DRAIN_ON_SIGINT: Final = 2.0

log = structlog.get_logger("main")


class Stop:
    """The stop request and its grace period. After SIGTERM or Ctrl-C, requests can finish. A second Ctrl-C aborts them."""

    def __init__(self, at_once: trio.CancelScope, watcher: Watcher) -> None:
        self.requested = trio.Event()
        self.shutdown_grace = DRAIN_ON_SIGTERM
        self.exit_code = 0
        self._at_once = at_once
        self._watcher = watcher
        self._is_serving = False

    def report_start(self) -> None:
        """Report that the port answers."""
        self._is_serving = True
        self._watcher.ready()

    async def on_signals(self, reload: Callable[[], None] | None) -> None:
        """Stop after SIGTERM and SIGINT. After SIGHUP, call `reload` in a thread, unless it is None."""
        received = (signal.SIGTERM, signal.SIGINT) if reload is None else (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        with trio.open_signal_receiver(*received) as signals:
            async for number in signals:
                if reload is not None and number == signal.SIGHUP:
                    await self._reload(reload)
                    continue
                log.info("stopping", signal=signal.Signals(number).name)
                if number == signal.SIGINT:
                    if self.requested.is_set():
                        self._at_once.cancel()
                    self.shutdown_grace = DRAIN_ON_SIGINT
                self._request()

    async def _reload(self, reload: Callable[[], None]) -> None:
        reports = self._is_serving and not self.requested.is_set()  # the report about the end says that the port answers
        if reports:
            self._watcher.reloading()
        await trio.to_thread.run_sync(reload)
        if reports:
            self._watcher.ready()

    def _request(self) -> None:
        if not self.requested.is_set():
            self._watcher.stopping()
            self.requested.set()

    async def on_parent_gone(self, parent: ParentLink) -> None:
        await parent.wait_until_gone()
        self.shutdown_grace = DRAIN_ON_SIGINT
        self._request()

    async def on_end_of(self, database: embedded.Running) -> None:
        """Stop the service when its embedded database ends. A supervisor must restart the service, and with it the database."""
        with trio.open_signal_receiver(signal.SIGCHLD) as signals:
            while not has_ended(database):
                await anext(aiter(signals))
        if not self.requested.is_set():
            self.exit_code = 1
            self.shutdown_grace = DRAIN_ON_SIGINT
            self._request()


def has_ended(database: embedded.Running | None) -> bool:
    if database is None or not database.ended:
        return False
    log.error("database_ended", reason="the embedded database has ended, so the service ends too", see=str(database.log))
    return True
