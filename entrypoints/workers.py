"""The parent process of several identical workers that share one inherited socket.

The workers are forks of the parent, so they start fast and share its memory. The parent replaces
workers that die, and forwards signals. When the parent ends, even by kill -9, its workers notice it
and stop, so that the port becomes free.
"""

import math
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

import structlog
import trio

HEALTHY_AFTER = 10.0  # seconds; a worker that dies earlier failed to start
BACKOFF, BACKOFF_MAX = 0.5, 30.0  # seconds before the second start attempt, doubled for each further one
GIVE_UP_AFTER = 5  # consecutive failures to start, while no other worker is healthy
TERM_GRACE = 35.0  # seconds between SIGTERM and SIGKILL; longer than the drain of a worker
INT_GRACE = 5.0  # seconds between SIGINT and SIGKILL
SECOND_INT_GRACE = 1.0  # seconds after a second SIGINT

_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)

log = structlog.get_logger("workers")


async def parent_gone(fd: int) -> None:
    """Return when the parent has ended, or when it wants this worker to stop quickly after Ctrl-C.

    `fd` is the reading end of the pipe from the parent.
    """
    # The pipe carries no data. It becomes readable when its only writer, the parent, has ended for
    # any reason.
    await trio.lowlevel.wait_readable(fd)


def run_workers(
    count: int,
    work: Callable[[int], int],
    listening: socket.socket,
    *,
    on_death: Callable[[int], object] = lambda pid: None,
    give_up: Callable[[], bool] = lambda: False,
    term_grace: float = TERM_GRACE,
    int_grace: float = INT_GRACE,
) -> int:
    """Keep `count` processes running until SIGTERM or SIGINT, and return the exit code. Call it in the main thread.

    Each process is a fork, and its exit code is the result of `work`. The argument of `work` is the
    descriptor for `parent_gone`. `work` must not use what belongs to one process, such as the
    parent's database connections. `on_death` is called with the process id of each worker that
    ended. `give_up` is called whenever any child process has ended.

    The exit code is 0 if all workers stopped in time; 1 if a worker had to be killed or failed
    while stopping, or if `give_up` returned true; otherwise the exit code of workers that could not
    start.
    """
    grace = {signal.SIGTERM: term_grace, signal.SIGINT: int_grace}
    with _Signals() as signals:
        return _Parent(count, work, listening, signals, grace, on_death, give_up).run()


class _Signals:
    """The signals that a parent waits for. As a context manager it receives them during the block."""

    def __enter__(self) -> "_Signals":
        # The bytes in this pipe are the numbers of signals. The system's handler writes them in any
        # thread, so it does not matter which thread a signal interrupts.
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._wakeup_fd = signal.set_wakeup_fd(self._writer)
        self._handlers = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_fd)
        os.close(self._reader)
        os.close(self._writer)

    def wait(self, timeout: float | None) -> bytes:
        """Return the numbers of the signals that arrived, or no bytes after `timeout` seconds."""
        readable, _, _ = select.select([self._reader], [], [], timeout)
        return os.read(self._reader, 64) if readable else b""

    def reset(self) -> None:
        """Give up the signals in a fork. Outside of its own receiver, a worker ignores SIGINT, so that Ctrl-C causes no traceback."""
        # A SIGINT that comes too early is lost, which is harmless: the pipe from the parent closes
        # as well.
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)
        os.close(self._reader)
        os.close(self._writer)


@dataclass(slots=True)
class _Worker:
    """The current process of one worker, and its failures to start."""

    pid: int | None = None
    since: float = 0.0
    start_at: float = 0.0
    failures: int = 0  # consecutive failures to start


class _Parent:
    """The parent process: it starts and restarts the workers, and stops them after a signal."""

    def __init__(
        self,
        count: int,
        work: Callable[[int], int],
        listening: socket.socket,
        signals: _Signals,
        grace: Mapping[signal.Signals, float],
        on_death: Callable[[int], object],
        give_up: Callable[[], bool],
    ) -> None:
        """Prepare to start `count` workers. `grace` has the seconds between a signal and SIGKILL."""
        self._work = work
        self._signals = signals
        self._on_death = on_death
        self._give_up = give_up
        self._grace = grace
        self._workers = [_Worker() for _ in range(count)]
        # Workers inherit the reading end. The writing end stays open while the parent lives.
        self._pipe_reader, self._pipe_writer = os.pipe()
        self._listening = listening
        self._stop_by: float | None = None  # the deadline for stopping workers
        self._interrupts = 0
        self._exit_code = 0

    def run(self) -> int:
        try:
            self._handle(signal.SIGCHLD)  # a child may have died before the signals were received
            while self._stop_by is None or self._running():
                self._start_due()
                numbers = self._signals.wait(self._timeout())
                for number in numbers:
                    self._handle(number)
                if self._stop_by is not None and time.monotonic() >= self._stop_by:
                    self._kill()
            return self._exit_code
        finally:
            self._close_pipe()
            os.close(self._pipe_reader)

    def _handle(self, number: int) -> None:
        if number == signal.SIGCHLD:
            # Several SIGCHLD can merge into one, so check all workers.
            for worker, pid in self._running():
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    self._record_death(worker, pid, os.waitstatus_to_exitcode(status))
            if self._stop_by is None and self._give_up():
                self._exit_code = 1
                self._stop(signal.SIGTERM)
        else:
            self._stop(signal.Signals(number))

    def _running(self) -> list[tuple[_Worker, int]]:
        return [(worker, worker.pid) for worker in self._workers if worker.pid is not None]

    def _timeout(self) -> float | None:
        if self._stop_by is not None:
            deadline = self._stop_by
        else:
            deadline = min((worker.start_at for worker in self._workers if worker.pid is None), default=math.inf)
        return None if deadline == math.inf else max(0.0, deadline - time.monotonic())

    def _start_due(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.pid is None and worker.start_at <= now and self._stop_by is None:
                worker.since = now
                try:
                    worker.pid = self._fork()
                except OSError as error:  # no memory or no process is left
                    log.error("worker_not_started", reason=error.strerror)  # noqa: TRY400 (the traceback adds nothing)
                    self._delay_start(worker, 1)

    def _fork(self) -> int:
        # Before its reset, the worker would report a signal to the parent.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                self._signals.reset()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid or self._become_worker()

    def _become_worker(self) -> NoReturn:
        """Work until the end of this process, which must not clean up what belongs to the parent."""
        code = 1
        try:
            # The terminal sends Ctrl-C to its whole process group. Outside of that group, a worker
            # gets it only from the parent, and can tell the first from the second.
            os.setpgid(0, 0)
            os.close(self._pipe_writer)
            code = self._work(self._pipe_reader)
        except BaseException:
            traceback.print_exc()
        finally:
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)  # also if the reader of the output has gone

    def _record_death(self, worker: _Worker, pid: int, code: int) -> None:
        worker.pid = None
        self._on_death(pid)
        if self._stop_by is not None:
            if code not in (0, -signal.SIGTERM, -signal.SIGINT):
                self._exit_code = self._exit_code or 1
            return
        now = time.monotonic()
        if now - worker.since >= HEALTHY_AFTER:
            worker.failures = 0
            worker.start_at = now
        else:
            self._delay_start(worker, code)
        if self._stop_by is None:
            log.warning("worker_died", pid=pid, exit_code=code, restart_in=round(worker.start_at - now, 1))

    def _delay_start(self, worker: _Worker, code: int) -> None:
        """Count a failure to start. Stop if it was the last attempt, and no other worker is healthy."""
        now = time.monotonic()
        worker.failures += 1
        worker.start_at = now + min(BACKOFF * 2 ** (worker.failures - 1), BACKOFF_MAX)
        if worker.failures >= GIVE_UP_AFTER and not any(now - other.since >= HEALTHY_AFTER for other, _ in self._running()):
            log.error("workers_do_not_start", exit_code=code)
            self._exit_code = code if code > 0 else 128 - code if code < 0 else 1
            self._stop(signal.SIGTERM)

    def _stop(self, number: signal.Signals) -> None:
        # While any process has the socket open, the kernel accepts connections that no process
        # would serve.
        self._listening.close()
        grace = self._grace[number]
        if number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts > 1:
                grace = SECOND_INT_GRACE
        stop_by = time.monotonic() + grace
        self._stop_by = stop_by if self._stop_by is None else min(self._stop_by, stop_by)
        for _, pid in self._running():
            os.kill(pid, number)
        if number == signal.SIGINT:
            self._close_pipe()  # after the signals, so that workers receive the signal first

    def _kill(self) -> None:
        for worker, pid in self._running():
            log.error("worker_killed", reason="it did not stop in time", pid=pid)
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            self._record_death(worker, pid, os.waitstatus_to_exitcode(status))

    def _close_pipe(self) -> None:
        if self._pipe_writer >= 0:
            os.close(self._pipe_writer)
            self._pipe_writer = -1
