"""The processes that a benchmark starts: none outlives it, and what they use can be read."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_TICK: Final = os.sysconf("SC_CLK_TCK")
_PR_SET_PDEATHSIG: Final = 1
_STOP_PATIENCE: Final = 40.0  # seconds; a service drains for up to 30
_libc = ctypes.CDLL(None)


class Unfit(Exception):
    """A row cannot be measured; the message is a sentence that says why."""


class NotHere(Unfit):
    """... because this machine lacks something, which is no fault of the service."""


class Child:
    """A process that ends at the latest with this one; as a context manager, with the block."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], output: Path) -> None:
        self.output = output
        with output.open("wb") as file:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the benchmark, which then stops its children in good order
                preexec_fn=_end_with_parent,
            )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def wait(self, patience: float) -> int:
        """Its exit code. Raises Unfit if it takes longer."""
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            raise Unfit(f"{self._process.args!r} did not end within {patience:.0f} s.") from None

    def interrupt(self) -> None:
        """As Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def stop(self) -> None:
        """End it, and wait until it has ended."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def said(self) -> str:
        return self.output.read_text(errors="replace")

    def last_words(self) -> str:
        return (self.said().strip().splitlines() or ["it said nothing"])[-1]


def _end_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def tree(pid: int) -> list[int]:
    """The process and all that descend from it."""
    found = [pid]
    for parent in found:  # it grows meanwhile
        for tasks in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, tasks.read_text().split())
            except OSError:
                continue  # that thread has just ended
    return found


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def cpu_seconds(pids: Sequence[int]) -> float:
    """The processor time that these have used since they started."""
    ticks = 0
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue  # it has ended
        fields = stat.rpartition(")")[2].split()  # after the name, which may hold anything
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICK


def resident_mb(pid: int) -> tuple[float, float]:
    """Its resident memory in MB (of 1024 KiB), now and at its highest."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["VmRSS"].split()[0]) / 1024, int(lines["VmHWM"].split()[0]) / 1024


def has_loaded(pid: int, directory: Path) -> bool:
    """Whether it has a library of this directory in memory."""
    return f" {directory}/" in Path(f"/proc/{pid}/maps").read_text()


def settle(pid: int, patience: float = 20.0) -> None:
    """Wait until the process and its descendants have finished starting, or working off what came before.

    Raises Unfit if they do not.
    """
    deadline = time.monotonic() + patience
    used = cpu_seconds(tree(pid))
    while time.monotonic() < deadline:
        time.sleep(0.25)
        before, used = used, cpu_seconds(tree(pid))
        if used - before <= 0.02:
            return
    raise Unfit(f"The process {name_of(pid)} did not become idle within {patience:.0f} s.")
