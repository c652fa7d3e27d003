"""The parent process for several identical workers that share an inherited socket.

The workers are forks of the parent, so they start fast and share its memory. The parent replaces workers that die, and
forwards signals. When the parent ends, even by kill -9, its workers notice it and stop, so that the port becomes free.
"""

import math
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import structlog

from entrypoints import supervision

HEALTHY_AFTER = 10.0  # seconds; a worker that dies earlier failed to start
BACKOFF, BACKOFF_MAX = 0.5, 30.0  # seconds before the second start attempt, doubled for every further attempt
GIVE_UP_AFTER = 5  # consecutive failures to start, while no other worker is healthy
TERM_GRACE = 35.0  # seconds between SIGTERM and SIGKILL; longer than a worker's drain
INT_GRACE = 5.0  # seconds between SIGINT and SIGKILL
SECOND_INT_GRACE = 1.0  # seconds after a second SIGINT

SILENT_HEARTBEATS = 2.5  # intervals without a heartbeat after which a worker counts as stuck; the supervisor waits for four
REPORTS_AT_ONCE = 4000  # bytes; a multiple of the report size

_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)

log = structlog.get_logger("workers")


class Hooks(NamedTuple):
    """The service's functions that a parent process calls."""

    on_death: Callable[[int], object] = lambda pid: None  # with the process id of a worker that ended
    give_up: Callable[[], bool] = lambda: False  # whenever any child process has ended: whether to stop


def run_workers(
    count: int,
    work: Callable[[supervision.ParentLink], int],
    listening: Sequence[socket.socket],
    supervisor: supervision.Supervisor,
    hooks: Hooks,
    *,
    reloads: bool = True,
    term_grace: float = TERM_GRACE,
    int_grace: float = INT_GRACE,
) -> int:
    """Keep `count` processes running until SIGTERM or SIGINT, and return the exit code. Call it in the main thread.

    Every process is a fork, and its exit code is what `work` returns. `work` must not use what belongs to a single
    process, such as the parent's database connections.

    The supervisor learns when the first worker is ready, and that all workers send heartbeats. If `reloads` is
    true, SIGHUP is passed on to the workers, and the supervisor learns when all have reloaded.

    The exit code:

    - 0: all workers stopped in time.
    - 1: a worker had to be killed or failed while stopping, or `give_up` returned true.
    - Another code: that of workers that could not start.
    """
    grace = {signal.SIGTERM: term_grace, signal.SIGINT: int_grace}
    with _Signals((*_SIGNALS, signal.SIGHUP) if reloads else _SIGNALS) as signals:
        return _Parent(count, work, listening, signals, supervisor, grace, hooks).run()


class _Signals:
    """The signals that a parent waits for. As a context manager it receives them during the block."""

    def __init__(self, numbers: Sequence[signal.Signals]) -> None:
        self.numbers = numbers

    def __enter__(self) -> "_Signals":
        # The bytes in this pipe are signal numbers. The system's handler writes them in any thread,
        # so it does not matter which thread a signal interrupts.
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._wakeup_fd = signal.set_wakeup_fd(self._writer)
        self._handlers = {number: signal.signal(number, lambda *_: None) for number in self.numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_fd)
        os.close(self._reader)
        os.close(self._writer)

    def wait(self, timeout: float | None, other: int) -> tuple[bytes, bool]:
        """Return the signals that arrived, by number, and whether the descriptor `other` is readable.

        After `timeout` seconds, there can be no signals and nothing to read.
        """
        readable, _, _ = select.select([self._reader, other], [], [], timeout)
        return os.read(self._reader, 64) if self._reader in readable else b"", other in readable

    def reset(self) -> None:
        """Give up the signals in a fork. Outside its own receiver, a worker ignores SIGINT, so that Ctrl-C causes no traceback."""
        # A SIGINT that comes too early is lost, which is harmless: the pipe from the parent closes
        # as well. So is a SIGHUP: the parent sends it to workers that are ready.
        signal.set_wakeup_fd(-1)
        for number in self.numbers:
            signal.signal(number, signal.SIG_IGN if number in (signal.SIGINT, signal.SIGHUP) else signal.SIG_DFL)
        os.close(self._reader)
        os.close(self._writer)


@dataclass(slots=True)
class _Worker:
    """A worker's current process, its reports, and its failures to start."""

    pid: int | None = None
    since: float = 0.0
    heard_at: float = 0.0  # time of the last heartbeat, or of the start
    is_ready: bool = False
    must_reload: bool = False
    start_at: float = 0.0
    failures: int = 0  # consecutive failures to start


class _Parent:
    """The parent process: it starts and restarts the workers, and stops them after a signal."""

    def __init__(
        self,
        count: int,
        work: Callable[[supervision.ParentLink], int],
        listening: Sequence[socket.socket],
        signals: _Signals,
        supervisor: supervision.Supervisor,
        grace: Mapping[signal.Signals, float],
        hooks: Hooks,
    ) -> None:
        """Prepare to start `count` workers. `grace` has the seconds between a signal and SIGKILL."""
        self._work = work
        self._signals = signals
        self._supervisor = supervisor
        self._heartbeat_at = 0.0  # when the supervisor gets the next heartbeat
        self._hooks = hooks
        self._grace = grace
        self._workers = [_Worker() for _ in range(count)]
        # Workers inherit the reading end. The writing end stays open while the parent lives.
        self._pipe_reader, self._pipe_writer = os.pipe()
        self._reports_reader, self._reports_writer = os.pipe()
        os.set_blocking(self._reports_writer, False)
        self._listening = listening
        self._stop_by: float | None = None  # the deadline for stopping workers
        self._interrupts = 0
        self._exit_code = 0
        self._was_ready = False  # at least one worker
        self._is_reloading = False

    def run(self) -> int:
        try:
            self._handle(signal.SIGCHLD)  # a child may have died before the signals were received
            while self._stop_by is None or self._running():
                self._start_due()
                numbers, has_reports = self._signals.wait(self._timeout(), self._reports_reader)
                if has_reports:
                    self._read_reports()
                for number in numbers:
                    self._handle(number)
                self._send_heartbeat()
                if self._stop_by is not None and time.monotonic() >= self._stop_by:
                    self._kill()
            return self._exit_code
        finally:
            self._close_pipe()
            for descriptor in (self._pipe_reader, self._reports_reader, self._reports_writer):
                os.close(descriptor)

    def _read_reports(self) -> None:
        processes = {pid: worker for worker, pid in self._running()}
        for pid, report in supervision.read_reports(os.read(self._reports_reader, REPORTS_AT_ONCE)):
            worker = processes.get(pid)
            if worker is None:  # it has ended since
                continue
            worker.heard_at = time.monotonic()
            if report is supervision.Report.READY and worker.is_ready:
                worker.must_reload = False
                self._end_reload()
            elif report is supervision.Report.READY:
                worker.is_ready = True
                if not self._was_ready:
                    self._was_ready = True
                    self._supervisor.ready()
                if worker.must_reload:  # it may have read the files before the signal
                    os.kill(pid, signal.SIGHUP)

    def _send_heartbeat(self) -> None:
        """Let the supervisor know how the workers are, if that is due. A worker that the parent starts again is no problem."""
        interval, now = self._supervisor.interval, time.monotonic()
        if interval is None or self._stop_by is not None or now < self._heartbeat_at:
            return
        self._heartbeat_at = now + interval
        silent = [pid for worker, pid in self._running() if now - worker.heard_at > SILENT_HEARTBEATS * interval]
        self._supervisor.send_heartbeat(f"These workers do not respond: {silent}." if silent else None)

    def _reload(self) -> None:
        self._is_reloading = self._was_ready  # the report about the end says that the port answers
        if self._is_reloading:
            self._supervisor.reloading()
        for worker, pid in self._running():
            worker.must_reload = True
            if worker.is_ready:
                os.kill(pid, signal.SIGHUP)
        self._end_reload()

    def _end_reload(self) -> None:
        if self._is_reloading and self._stop_by is None and not any(worker.must_reload for worker, _ in self._running()):
            self._is_reloading = False
            self._supervisor.ready()

    def _handle(self, number: int) -> None:
        if number == signal.SIGCHLD:
            # Several SIGCHLD can merge into a single signal, so check all workers.
            for worker, pid in self._running():
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    self._record_death(worker, pid, os.waitstatus_to_exitcode(status))
            if self._stop_by is None and self._hooks.give_up():
                self._exit_code = 1
                self._stop(signal.SIGTERM)
        elif number == signal.SIGHUP:
            if self._stop_by is None:
                self._reload()
        else:
            self._stop(signal.Signals(number))

    def _running(self) -> list[tuple[_Worker, int]]:
        return [(worker, worker.pid) for worker in self._workers if worker.pid is not None]

    def _timeout(self) -> float | None:
        if self._stop_by is not None:
            deadline = self._stop_by
        else:
            starts = (worker.start_at for worker in self._workers if worker.pid is None)
            deadline = min(starts, default=math.inf)
            if self._supervisor.interval is not None:
                deadline = min(deadline, self._heartbeat_at)
        return None if deadline == math.inf else max(0.0, deadline - time.monotonic())

    def _start_due(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.pid is None and worker.start_at <= now and self._stop_by is None:
                worker.since = worker.heard_at = now
                worker.is_ready = worker.must_reload = False
                try:
                    worker.pid = self._fork()
                except OSError as error:  # no memory or no process is left
                    log.error("worker_not_started", reason=error.strerror)  # noqa: TRY400 (the traceback adds nothing)
                    self._delay_start(worker, 1)

    def _fork(self) -> int:
        # Before its reset, the worker would report a signal to the parent.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, self._signals.numbers)
        try:
            pid = os.fork()
            if pid == 0:
                self._signals.reset()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid or self._become_worker()

    def _become_worker(self) -> NoReturn:
        """Work until this process ends. It must not clean up what belongs to the parent."""
        code = 1
        try:
            # The terminal sends Ctrl-C to its whole process group. Outside that group, a worker
            # gets it only from the parent, and can tell the first from the second.
            os.setpgid(0, 0)
            os.close(self._pipe_writer)
            os.close(self._reports_reader)
            code = self._work(supervision.ParentLink(self._pipe_reader, self._reports_writer, self._supervisor.watchdog_interval))
        except BaseException:
            traceback.print_exc()
        finally:
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)  # also if the process that reads the output has gone

    def _record_death(self, worker: _Worker, pid: int, code: int) -> None:
        worker.pid = None
        self._hooks.on_death(pid)
        self._end_reload()
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
        if self._stop_by is None:
            self._supervisor.stopping()
        # While any process has a socket open, the kernel accepts connections that no process
        # would serve.
        for sock in self._listening:
            sock.close()
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
