"""The parent of several identical workers that accept on one inherited socket.

A worker that dies is replaced; signals are passed on; and when the parent is gone, even by kill -9, its workers notice and end, so that
the port is free for the next one.
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

HEALTHY_AFTER = 10.0  # seconds; who dies younger failed to start
BACKOFF, BACKOFF_MAX = 0.5, 30.0  # seconds before the second attempt to start, doubled for each further one
GIVE_UP_AFTER = 5  # failures to start in a row, while no other worker is healthy
TERM_GRACE = 35.0  # seconds that SIGTERM leaves before SIGKILL; longer than the drain of a worker itself
INT_GRACE = 5.0  # ... that Ctrl-C leaves
HURRY_GRACE = 1.0  # ... and a second Ctrl-C

log = structlog.get_logger("workers")


async def parent_gone(fd: int) -> None:
    """Return when there is no parent any more, or when it wants this worker to end quickly: what a first Ctrl-C means."""
    # Nothing is ever written to this pipe. It becomes readable when its last writer, the parent, is closed by whatever end it came to.
    await trio.lowlevel.wait_readable(fd)


def let_interrupts_in() -> None:
    """For a worker, first of all: an interrupt is for those who listen for it, and before and after them it ends in no traceback."""
    # One that comes too early is missed, which does no harm: the pipe closes as well.
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
    """Keep `count` processes of `command` running until SIGTERM or SIGINT; return the exit code for this process. Main thread only.

    Each is started with `--socket` and `--parent` added: the descriptors of the listening socket and of what `parent_gone` waits for;
    and each has to call `let_interrupts_in`.
    0: asked to stop, and every worker did in time. 1: asked to stop, and one had to be killed, or failed on its way out; or `give_up`
    said so, which is asked whenever a child process has ended, one of others too. Else the workers could not be started, and it is their
    exit code. `on_death` hears of every worker that is gone, by its id.
    """
    return trio.run(_Parent(count, command, listening, env, on_death, give_up, term_grace, int_grace).run)


@dataclass(slots=True)
class _Worker:
    """One of the places that a process fills."""

    process: subprocess.Popen[bytes] | None = None
    since: float = 0.0
    start_at: float = 0.0
    failures: int = 0  # to start, in a row


class _Parent:
    def __init__(
        self,
        count: int,
        command: Sequence[str],
        listening: socket.socket,
        env: Mapping[str, str],
        on_death: Callable[[int], object],
        give_up: Callable[[], bool],
        term_grace: float,
        int_grace: float,
    ) -> None:
        self._on_death = on_death
        self._give_up = give_up
        self._grace = {signal.SIGTERM: term_grace, signal.SIGINT: int_grace}
        self._workers = [_Worker() for _ in range(count)]
        self._alive, self._life = os.pipe()  # the workers get the first end, and the second is open for as long as we are
        self._listening = listening
        self._command = [*command, "--socket", str(listening.fileno()), "--parent", str(self._alive)]
        self._inherited = (listening.fileno(), self._alive)
        self._env = dict(env)
        self._stop_by: float | None = None  # when the patience with stopping workers ends
        self._interrupts = 0
        self._exit_code = 0

    async def run(self) -> int:
        try:
            with trio.open_signal_receiver(signal.SIGCHLD, signal.SIGTERM, signal.SIGINT) as signals:
                self._handle(signal.SIGCHLD)  # what happened before anybody listened
                while self._stop_by is None or self._running():
                    self._start_due()
                    with trio.move_on_at(self._next_deadline()) as waiting:
                        self._handle(await anext(aiter(signals)))
                    if waiting.cancelled_caught and self._stop_by is not None:
                        self._kill()
            return self._exit_code
        finally:
            self._close_life()
            os.close(self._alive)

    def _handle(self, number: int) -> None:
        if number == signal.SIGCHLD:
            # Signals of one kind fold into one, so it says no more than that somebody may have died.
            for worker in self._running():
                if worker.process is not None and worker.process.poll() is not None:
                    self._bury(worker, worker.process)
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
        # An interrupt while a worker still imports would make it die with a traceback, so it begins with the signal held back: the mask
        # is inherited. (A preexec_fn would run Python after the fork, which is not safe: on a first start, threads are left.)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return subprocess.Popen(  # noqa: S603 - our own command
                self._command,
                env=self._env,
                pass_fds=self._inherited,
                # The terminal sends Ctrl-C to its whole process group. Out of that group a worker gets it from us alone, once, and can
                # tell a first from a second.
                process_group=0,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _bury(self, worker: _Worker, process: subprocess.Popen[bytes]) -> None:
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
        # As long as anybody has it open, the kernel takes connections on it, which nobody would answer.
        self._listening.close()
        grace = self._grace[number]
        if number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts > 1:
                grace = HURRY_GRACE
        stop_by = trio.current_time() + grace
        self._stop_by = stop_by if self._stop_by is None else min(self._stop_by, stop_by)
        for worker in self._running():
            if worker.process is not None:
                worker.process.send_signal(number)
        if number == signal.SIGINT:
            self._close_life()  # after the signals, so that whoever listens hears of the reason first

    def _kill(self) -> None:
        for worker in self._running():
            if worker.process is not None:
                log.error("worker_killed", reason="it did not stop in time", pid=worker.process.pid)
                worker.process.kill()
                worker.process.wait()
                self._bury(worker, worker.process)

    def _close_life(self) -> None:
        if self._life >= 0:
            os.close(self._life)
            self._life = -1
