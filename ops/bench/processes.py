"""The processes that a benchmark starts. None outlives it, and their resource use can be read."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

_TICK: Final = os.sysconf("SC_CLK_TCK")
_PR_SET_PDEATHSIG: Final = 1
_STOP_TIMEOUT: Final = 40.0  # seconds; a service drains for up to 30
_libc = ctypes.CDLL(None)
T = TypeVar("T")


class MeasurementFailed(Exception):
    """A row cannot be measured. The message is a sentence with the reason."""


class RequirementMissing(MeasurementFailed):
    """A row cannot be measured because this machine lacks something. The service is not the reason."""


class Child:
    """A process that ends with its parent. As a context manager it ends with the block."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], output: Path, directory: Path | None = None) -> None:
        """Start the command in `directory`, by default the current directory, and write its output to the file `output`."""
        self.output = output
        with output.open("wb") as file:
            self._process = subprocess.Popen(
                command,
                env=environment,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches only the benchmark, which then stops its children properly
                preexec_fn=_end_with_parent,
            )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def exit_code(self) -> int | None:
        """The exit code, or None while the process runs."""
        return self._process.poll()

    def wait(self, timeout: float) -> int:
        """Wait for the end and return the exit code. Raises: MeasurementFailed if it takes longer."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise MeasurementFailed(f"{self._process.args!r} did not end within {timeout:.0f} s.") from None

    def wait_until(self, ready: Callable[[str], T | None], timeout: float, name: str) -> T:
        """Wait until `ready` returns a value for the output. Raises: MeasurementFailed if the process ends, or on a timeout."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self.exit_code is None:
            if value := ready(self.read_output()):
                return value
            time.sleep(0.02)
        problem = "was not ready in time" if self.exit_code is None else "did not start"
        raise MeasurementFailed(f"{name} {problem}: {self.last_line()}")

    def interrupt(self) -> None:
        """Send SIGINT, like Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def stop(self) -> None:
        """Stop the process and wait for its end."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def read_output(self) -> str:
        return self.output.read_text(errors="replace")

    def last_line(self) -> str:
        return (self.read_output().strip().splitlines() or ["there was no output"])[-1]


def _end_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def tree(pid: int) -> list[int]:
    """Return the process and all its descendants."""
    pids = [pid]
    for parent in pids:  # the list grows during the loop
        with suppress(OSError):  # it has just ended
            for tasks in Path(f"/proc/{parent}/task").glob("*/children"):
                with suppress(OSError):  # that thread has just ended
                    pids += map(int, tasks.read_text().split())
    return pids


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the processor time that these processes have used since they started."""
    ticks = 0
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue  # it has ended
        fields = stat.rpartition(")")[2].split()  # after the name, which may contain any character
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICK


def resident_mb(pid: int) -> tuple[float, float]:
    """Return the resident memory in MB (1024 KiB): the present and the highest value."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["VmRSS"].split()[0]) / 1024, int(lines["VmHWM"].split()[0]) / 1024


def has_loaded(pid: int, directory: Path) -> bool:
    """Return whether the process has loaded a library from this directory."""
    return f" {directory}/" in Path(f"/proc/{pid}/maps").read_text()


def settle(pid: int, timeout: float = 20.0) -> None:
    """Wait until the process and its descendants are idle. Raises: MeasurementFailed if they do not become idle."""
    deadline = time.monotonic() + timeout
    used = cpu_seconds(tree(pid))
    while time.monotonic() < deadline:
        time.sleep(0.25)
        before, used = used, cpu_seconds(tree(pid))
        if used - before <= 0.02:
            return
    raise MeasurementFailed(f"The process {name_of(pid)} did not become idle within {timeout:.0f} s.")
