"""The parent process of several identical workers that share one inherited socket.

The parent replaces workers that die, and forwards signals. When the parent ends, even by kill -9,
its workers notice it and stop, so that the port becomes free.
"""

import math
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog
import trio

HEALTHY_AFTER = 10.0  # seconds; a worker that dies earlier failed to start
BACKOFF, BACKOFF_MAX = 0.5, 30.0  # seconds before the second start attempt, doubled for each further one
GIVE_UP_AFTER = 5  # consecutive failures to start, while no other worker is healthy
TERM_GRACE = 35.0  # seconds between SIGTERM and SIGKILL; longer than the drain of a worker
INT_GRACE = 5.0  # seconds between SIGINT and SIGKILL
SECOND_INT_GRACE = 1.0  # seconds after a second SIGINT

log = structlog.get_logger("workers")


async def parent_gone(fd: int) -> None:
    """Return when the parent has ended, or when it wants this worker to stop quickly after Ctrl-C.

    `fd` is the reading end of the pipe from the parent.
    """
    # The pipe carries no data. It becomes readable when its only writer, the parent, has ended for
    # any reason.
    await trio.lowlevel.wait_readable(fd)


def unblock_interrupts() -> None:
    """Ignore SIGINT outside of signal receivers, and unblock it. A worker calls this first, so that Ctrl-C causes no traceback."""
    # A SIGINT that comes too early is lost, which is harmless: the pipe closes as well.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def run_workers(
    count: int,
    command: Sequence[str],
    listening: socket.socket,
    env: Mapping[str, str],
    *,
    on_death: Callable[[int], object] = lambda pid: None,
    give_up: Callable[[], bool] = lambda: False,
    term_grace: float = TERM_GRACE,
    int_grace: float = INT_GRACE,
) -> int:
    """Keep `count` processes of `command` running until SIGTERM or SIGINT, and return the exit code. Call it in the main thread.

    `command` gets the options `--socket` and `--parent`: the descriptors of the listening socket
    and of the pipe for `parent_gone`. Each worker must call `unblock_interrupts`. `on_death` is
    called with the process id of each worker that ended. `give_up` is called whenever any child
    process has ended.

    The exit code is 0 if all workers stopped in time; 1 if a worker had to be killed or failed
    while stopping, or if `give_up` returned true; otherwise the exit code of workers that could not
    start.
    """
    grace = {signal.SIGTERM: term_grace, signal.SIGINT: int_grace}
    return trio.run(_Parent(count, _WorkerCommand(command, env), listening, grace, on_death, give_up).run)


@dataclass(frozen=True, slots=True)
class _WorkerCommand:
    """The command that starts a worker, without its options, and its environment."""

    arguments: Sequence[str]
    environment: Mapping[str, str]


@dataclass(slots=True)
class _Worker:
    """The current process of one worker, and its failures to start."""

    process: subprocess.Popen[bytes] | None = None
    since: float = 0.0
    start_at: float = 0.0
    failures: int = 0  # consecutive failures to start


class _Parent:
    """The parent process: it starts and restarts the workers, and stops them after a signal."""

    def __init__(
        self,
        count: int,
        command: _WorkerCommand,
        listening: socket.socket,
        grace: Mapping[signal.Signals, float],
        on_death: Callable[[int], object],
        give_up: Callable[[], bool],
    ) -> None:
        """Prepare to start `count` workers. `grace` has the seconds between a signal and SIGKILL."""
        self._on_death = on_death
        self._give_up = give_up
        self._grace = grace
        self._workers = [_Worker() for _ in range(count)]
        # Workers inherit the reading end. The writing end stays open while the parent lives.
        self._pipe_reader, self._pipe_writer = os.pipe()
        self._listening = listening
        self._command = [*command.arguments, "--socket", str(listening.fileno()), "--parent", str(self._pipe_reader)]
        self._inherited = (listening.fileno(), self._pipe_reader)
        self._environment = dict(command.environment)
        self._stop_by: float | None = None  # the deadline for stopping workers
        self._interrupts = 0
        self._exit_code = 0

    async def run(self) -> int:
        try:
            with trio.open_signal_receiver(signal.SIGCHLD, signal.SIGTERM, signal.SIGINT) as signals:
                self._handle(signal.SIGCHLD)  # workers may have died before the receiver was open
                while self._stop_by is None or self._running():
                    self._start_due()
                    with trio.move_on_at(self._next_deadline()) as waiting:
                        self._handle(await anext(aiter(signals)))
                    if waiting.cancelled_caught and self._stop_by is not None:
                        self._kill()
            return self._exit_code
        finally:
            self._close_pipe()
            os.close(self._pipe_reader)

    def _handle(self, number: int) -> None:
        if number == signal.SIGCHLD:
            # Several SIGCHLD can merge into one, so check all workers.
            for worker in self._running():
                if worker.process is not None and worker.process.poll() is not None:
                    self._record_death(worker, worker.process)
            if self._stop_by is None and self._give_up():
                self._exit_code = 1
                self._stop(signal.SIGTERM)
        else:
            self._stop(signal.Signals(number))

    def _running(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.process is not None]

    def _next_deadline(self) -> float:
        if self._stop_by is not None:
            return self._stop_by
        return min((worker.start_at for worker in self._workers if worker.process is None), default=math.inf)

    def _start_due(self) -> None:
        now = trio.current_time()
        for worker in self._workers:
            if worker.process is None and worker.start_at <= now and self._stop_by is None:
                worker.since = now
                worker.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        # SIGINT during the imports of a worker would end it with a traceback, so the worker
        # inherits a mask that blocks SIGINT. A preexec_fn would run Python after the fork, which is
        # not safe while threads exist.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return subprocess.Popen(  # noqa: S603 - our own command
                self._command,
                env=self._environment,
                pass_fds=self._inherited,
                # The terminal sends Ctrl-C to its whole process group. Outside of that group, a
                # worker gets it only from the parent, and can tell the first from the second.
                process_group=0,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _record_death(self, worker: _Worker, process: subprocess.Popen[bytes]) -> None:
        worker.process = None
        self._on_death(process.pid)
        code = process.returncode
        if self._stop_by is not None:
            if code not in (0, -signal.SIGTERM, -signal.SIGINT):
                self._exit_code = self._exit_code or 1
            return
        now = trio.current_time()
        if now - worker.since >= HEALTHY_AFTER:
            worker.failures = 0
            worker.start_at = now
        else:
            worker.failures += 1
            worker.start_at = now + min(BACKOFF * 2 ** (worker.failures - 1), BACKOFF_MAX)
            if worker.failures >= GIVE_UP_AFTER and not any(now - other.since >= HEALTHY_AFTER for other in self._running()):
                log.error("workers_do_not_start", exit_code=code)
                self._exit_code = code if code > 0 else 128 - code if code < 0 else 1
                self._stop(signal.SIGTERM)
                return
        log.warning("worker_died", pid=process.pid, exit_code=code, restart_in=round(worker.start_at - now, 1))

    def _stop(self, number: signal.Signals) -> None:
        # While any process has the socket open, the kernel accepts connections that no process
        # would serve.
        self._listening.close()
        grace = self._grace[number]
        if number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts > 1:
                grace = SECOND_INT_GRACE
        stop_by = trio.current_time() + grace
        self._stop_by = stop_by if self._stop_by is None else min(self._stop_by, stop_by)
        for worker in self._running():
            if worker.process is not None:
                worker.process.send_signal(number)
        if number == signal.SIGINT:
            self._close_pipe()  # after the signals, so that workers receive the signal first

    def _kill(self) -> None:
        for worker in self._running():
            if worker.process is not None:
                log.error("worker_killed", reason="it did not stop in time", pid=worker.process.pid)
                worker.process.kill()
                worker.process.wait()
                self._record_death(worker, worker.process)

    def _close_pipe(self) -> None:
        if self._pipe_writer >= 0:
            os.close(self._pipe_writer)
            self._pipe_writer = -1
