"""A row in the benchmark's table, and what all rows need: services, processes, rounds and measurements."""

import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from ops.bench.processes import Child, MeasurementFailed, RequirementMissing
from ops.bench.service import ROOT, Service, argon2_in_use, clean_environment, started
from ops.bench.wrk import Load, Request, Wrk

CORES: Final = 2
START_TIMEOUT: Final = 20.0  # seconds
WARM_UP: Final = 1  # seconds before the first round that counts

REQUESTS: Final = Wrk(connections=16)
SEQUENTIAL: Final = Wrk(connections=1)

Say = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sample:
    """A measurement. `also` has further values, by a template for their text, such as "p99 {} ms"."""

    value: float
    also: Mapping[str, float] = field(default_factory=dict)


Measure = Callable[[int], Sample]  # measures for some seconds


@dataclass(frozen=True, slots=True)
class Goal:
    """The value that a figure must reach (the bar) and the value that it should reach (the aim).

    A bar without an aim is an upper limit.
    """

    bar: float
    aim: float | None = None
    unit: str = ""  # the figure's unit; empty for a ratio

    @property
    def at_least(self) -> bool:
        """Whether more is better. Then the aim is above the bar."""
        return self.aim is not None and self.aim > self.bar

    def reached(self, figure: float, target: float) -> bool:
        return figure >= target if self.at_least else figure <= target


@dataclass(frozen=True, slots=True)
class Row:
    """A table row. `request` prepares once and returns the service's measurement; `raw` measures the raw cost."""

    name: str
    description: str
    request: "Callable[[Bench], Measure]"
    raw: "Callable[[Bench, int], Sample] | None"
    goal: Goal
    setting: str = ""  # a short load description
    unit: str = "/s"  # for the raw and our measurements
    repeats: bool = True  # False for a single round


class Scale(Protocol):
    """How much data a database has."""

    @property
    def gigabytes(self) -> float:
        """The disk space that the data needs."""


@dataclass(frozen=True, slots=True)
class Filling(Generic[T]):
    """A large database that rows share: its content, its size (also with --quick), and the function that adds the content.

    The function returns what a large, a small and possibly another organization or service has.
    """

    name: str
    full: Scale
    quick: Scale
    fill: Callable[[Service, Any, Say], Sequence[T]]


@dataclass(slots=True)
class Shared:
    """The filled service that a run's rows share. `source` is the checkout with its code.

    It is so large that only one filled service exists at a time. It is created for the first row that needs it, and
    ends when a row needs another filled service, or with the run.
    """

    directory: Path
    stack: ExitStack
    say: Say
    quick: bool
    source: Path = ROOT
    seconds: float = 0  # the time it took to fill it
    _filling: Filling[Any] | None = None
    _filled: tuple[Service, Sequence[Any]] | MeasurementFailed | None = None

    def get(self, filling: Filling[T]) -> tuple[Service, Sequence[T]]:
        """Return the filled service, which has a single worker, and its content. Raises: MeasurementFailed, again for every row."""
        if self._filling is not filling:
            self.stack.close()
            self._filling = filling
            try:
                self._filled = self._fill(filling)
            except MeasurementFailed as reason:
                self._filled = reason
        if isinstance(self._filled, MeasurementFailed):
            raise self._filled
        assert self._filled is not None
        return self._filled

    def scale(self, filling: Filling[T]) -> Scale:
        return filling.quick if self.quick else filling.full

    def _fill(self, filling: Filling[T]) -> tuple[Service, Sequence[T]]:
        scale, free = self.scale(filling), shutil.disk_usage(self.directory).free / 2**30
        if free < scale.gigabytes:
            raise RequirementMissing(
                f"The {filling.name} need {scale.gigabytes:.0f} GB on the disk of {self.directory.parent}, which has {free:.0f} free."
            )
        data = self.directory / "shared"
        self.stack.callback(shutil.rmtree, data, ignore_errors=True)
        build = argon2_in_use()
        on = self.stack.enter_context(started(data, workers=1, argon2_build=build, source=self.source))
        self.say(f"  {scale} ...")
        began = time.monotonic()
        content = filling.fill(on, scale, self.say)
        self.say("  vacuum and analyze ...")
        on.tidy()
        self.seconds = time.monotonic() - began
        return on, content


class Bench:
    """A row under measurement. Its `request` starts the services with it, and leaves what else the rounds need."""

    service: Service
    easier: Measure  # the same work under the condition that the row compares with

    def __init__(self, row: Row, shared: Shared, directory: Path, stack: ExitStack, seconds: int) -> None:
        """`seconds` is how long all rounds take together."""
        self.shared = shared
        self.directory = new_directory(directory)
        self.seconds = seconds + WARM_UP + 1  # for which a row needs requests
        self.setting = row.setting
        self.beside: dict[str, Measure] = {}  # shown for comparison
        self.plans: Callable[[], Sequence[str]] = list  # the query plans behind the measurement, if the row shows them
        self._stack = stack
        self._raw_servers: dict[str, str] = {}

    def keep(self, context: AbstractContextManager[T]) -> T:
        """Enter a context until the row ends, and return its value."""
        return self._stack.enter_context(context)

    def start(self, workers: int = 1, **options: Any) -> Service:
        """Start the service until the row ends, as `starting` does."""
        self.service = self._stack.enter_context(self.starting(workers, **options))
        return self.service

    def starting(
        self, workers: int = 1, *, data: str = "data", build: Callable[[], Path | None] = argon2_in_use, **settings: str
    ) -> AbstractContextManager[Service]:
        """Start the service for a block, on the database in `data`, which is created if it does not exist.

        By default, it has the Argon2 build that `./run` would use.
        """
        return started(self.directory / data, workers=workers, argon2_build=build(), source=self.shared.source, **settings)

    def raw_server(self, name: str) -> str:
        """Return the address of a server in raw.py. It starts for the first call, and ends with the row."""
        if name not in self._raw_servers:
            child = self._stack.enter_context(self._raw_child(name))
            child.wait_until(lambda output: output.endswith("}\n"), START_TIMEOUT, "The bare application")
            self._raw_servers[name] = json.loads(child.last_line())["address"]
        return self._raw_servers[name]

    def run_raw(self, seconds: int, name: str, *arguments: object, build: Path | None = None) -> Any:
        """Run a measurement in raw.py, and return its output. Raises: MeasurementFailed."""
        with self._raw_child(name, *arguments, build=build) as child:
            if child.wait(seconds + START_TIMEOUT) != 0:
                raise MeasurementFailed(f"The raw measurement {name} failed: {child.last_line()}")
        return json.loads(child.last_line())

    def _raw_child(self, name: str, *arguments: object, build: Path | None = None) -> Child:
        command = [sys.executable, "-m", "ops.bench.raw", name, *map(str, arguments)]
        return Child(command, clean_environment(build), self.directory / f"raw-{name}")


def new_directory(path: Path) -> Path:
    path.mkdir()
    path.chmod(0o755)  # PostgreSQL runs as another user if this process runs as root
    return path


def drive_bare(address: str, seconds: int) -> Sample:
    load = REQUESTS.drive(address, [Request("GET", "/")], seconds)
    return Sample(load.rate, {"p50 {} ms": load.p50, "p99 {} ms": load.p99})


def check_equal(name: str, value: object, expected: object) -> None:
    """Raise MeasurementFailed unless the values are equal."""
    if value != expected:
        raise MeasurementFailed(f"{name} should be {str(expected)[:200]}, not {str(value)[:200]}.")


def measure_sequentially(on: Service, requests: Sequence[Request], seconds: int, *, times: int | None = None) -> Sample:
    """Measure how long a request takes, or several in turn, without any other load, at most so many times.

    Raises: MeasurementFailed.
    """
    load, costs = _drive_and_check(on, SEQUENTIAL, [*requests] * (times or 1), seconds, once=times is not None)
    return Sample(load.p50, {"p99 {} ms": load.p99, "{} pages/s": load.rate, **costs})


def measure(on: Service, wrk: Wrk, requests: Sequence[Request], seconds: int) -> Sample:
    """Measure a route's requests per second, and the cost per request. Raises: MeasurementFailed."""
    load, costs = _drive_and_check(on, wrk, requests, seconds)
    return Sample(load.rate, {"p50 {} ms": load.p50, "p99 {} ms": load.p99, **costs})


def _drive_and_check(
    on: Service, wrk: Wrk, requests: Sequence[Request], seconds: int, *, once: bool = False
) -> tuple[Load, Mapping[str, float]]:
    """Send requests to a route, and return the load and the cost per request.

    Raises: MeasurementFailed if a request failed, or has no line in the access log.
    """
    on.settle()
    paths = {urlsplit(request.path).path for request in requests}
    marked = f'"path":"{paths.pop()}"' if len(paths) == 1 else f'"path":"{paths.pop().rpartition("/")[0]}/'
    lines, usage = on.log_lines(marked), on.usage()
    with on.explaining():
        load = wrk.drive(on.address, requests, seconds, once=once)
    on.settle()
    logged = on.log_lines(marked) - lines
    if logged < load.requests:
        raise MeasurementFailed(f"Of {load.requests} requests, {logged} are in the access log.")
    return load, on.usage().since(usage, logged)
