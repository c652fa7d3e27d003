"""The service's supervisor, such as systemd: messages to it (sd_notify), and the workers' reports to their parent."""

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final, Protocol, Self

import structlog
import trio

EXTENSION: Final = 60.0  # seconds for the start, granted again with every heartbeat
SLOWEST_HEARTBEAT: Final = 20.0  # seconds

log = structlog.get_logger("supervision")


class Watcher(Protocol):
    """The process that watches this process: the supervisor, or a worker's parent."""

    @property
    def interval(self) -> float | None:
        """The seconds between two heartbeats, or None if nothing waits for them."""

    def send_heartbeat(self, problem: str | None) -> None:
        """Report that the event loop turns. With a `problem`, the process counts as stuck."""

    def ready(self) -> None:
        """Report that the port answers, or that a reload is complete."""

    def reloading(self) -> None:
        """Report that a reload begins."""

    def stopping(self) -> None:
        """Report that the process stops, and that running requests end first."""


async def send_heartbeats(watcher: Watcher, find_problem: Callable[[], str | None] = lambda: None) -> None:
    """Report to the watcher until this task is canceled, or return at once if nothing waits for that."""
    while watcher.interval is not None:
        watcher.send_heartbeat(find_problem())
        await trio.sleep(watcher.interval)


class Supervisor:
    """The program that started the main process. Without the variable NOTIFY_SOCKET there is none, and messages are dropped."""

    def __init__(self, address: str | None, watchdog: float | None) -> None:
        """`watchdog` is the number of seconds after which a silent service is restarted, or None."""
        self._address = address
        self._watchdog = watchdog
        self._is_ready = False
        self._problem: str | None = None

    @classmethod
    def from_environment(cls) -> Self:
        """Return the supervisor that the systemd variables name, and remove the variables: child processes must not report."""
        names = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
        address, microseconds, process = (os.environ.pop(name, "") for name in names)
        is_for_us = address and microseconds.isdigit() and process in ("", str(os.getpid()))
        return cls(address or None, int(microseconds) / 1_000_000 or None if is_for_us else None)

    @property
    def watchdog_interval(self) -> float | None:
        """The seconds between two heartbeats that the watchdog needs, or None if there is none."""
        return None if self._watchdog is None else min(SLOWEST_HEARTBEAT, self._watchdog / 4)

    @property
    def interval(self) -> float | None:
        extends = self._address is not None and not self._is_ready
        return self.watchdog_interval or (SLOWEST_HEARTBEAT if extends else None)

    def send_heartbeat(self, problem: str | None) -> None:
        if not self._is_ready:
            if problem is None:
                self._send(f"EXTEND_TIMEOUT_USEC={EXTENSION * 1_000_000:.0f}")
            return
        if problem != self._problem:
            self._problem = problem
            self._send(f"STATUS={problem or 'Serving.'}")
            if problem is not None:
                log.error("stuck", problem=problem)
        if problem is None:
            self._send("WATCHDOG=1")

    def ready(self) -> None:
        self._is_ready = True
        self._send("READY=1")

    def reloading(self) -> None:
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, *lines: str) -> None:
        if self._address is None:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            try:
                sock.sendto("\n".join(lines).encode(), address)
            except OSError as error:
                log.warning("supervisor_not_reached", message=lines[0], reason=error.strerror)


class Report(IntEnum):
    """A worker's report to its parent."""

    HEARTBEAT = 1
    READY = 2


_REPORT: Final = struct.Struct("=ib")  # the process and the report; so few bytes are written in a single piece


def read_reports(data: bytes) -> Iterator[tuple[int, Report]]:
    """Return the reports in data from the pipe, every report with its process id."""
    return ((process, Report(number)) for process, number in _REPORT.iter_unpack(data))


class ParentLink:
    """The pipes between a worker and its parent."""

    def __init__(self, gone: int, reports: int, interval: float | None) -> None:
        """`gone` is the reading end of a pipe that only the parent writes to, and `reports` is the writing end of a second pipe."""
        self._gone = gone
        self._reports = reports
        self.interval = interval

    async def wait_until_gone(self) -> None:
        """Return when the parent has ended, or when it wants this worker to stop quickly after Ctrl-C."""
        # The pipe carries no data. It becomes readable when its only writer, the parent, has ended for
        # any reason.
        await trio.lowlevel.wait_readable(self._gone)

    def send_heartbeat(self, problem: str | None) -> None:
        if problem is None:
            self._report(Report.HEARTBEAT)
        else:
            log.error("stuck", problem=problem)

    def ready(self) -> None:
        self._report(Report.READY)

    def reloading(self) -> None:
        pass  # the parent reports it to the supervisor

    def stopping(self) -> None:
        pass

    def _report(self, report: Report) -> None:
        try:
            os.write(self._reports, _REPORT.pack(os.getpid(), report))
        except OSError as error:  # the parent is gone, or has not read for long
            log.warning("parent_not_reached", reason=error.strerror)
