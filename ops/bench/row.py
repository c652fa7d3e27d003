"""A row of the benchmark's table: the base class, the services that rows share, and the ways to measure.

Each row prepares once. Then each round measures the raw cost and then the service.
"""

import json
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from ops.bench import directories, end_users, service, tenants
from ops.bench.directories import Directories
from ops.bench.end_users import Applications, add_applications
from ops.bench.filling import Report
from ops.bench.processes import Child, MeasurementFailed, RequirementMissing
from ops.bench.service import Service, email_of, password_of
from ops.bench.table import Goal, Sample
from ops.bench.tenants import Tenants, add_tenants
from ops.bench.wrk import Load, Request, Wrk

CORES: Final = 2
ACCOUNTS: Final = 400  # enough that no account has several logins in progress, which count as failures until they are verified
READERS: Final = 64
START_TIMEOUT: Final = 20.0  # seconds
WARM_UP: Final = 1  # seconds of the round before the first one, which does not count
PAGE: Final = 50  # users on a page

REQUESTS: Final = Wrk(connections=16)
SEQUENTIAL: Final = Wrk(connections=1)


class Run:
    """The filled services that the rows of one run share.

    Each is large, so only one exists at a time. It is created for the first row that needs it, and
    ends when a row needs another one, or with the run.
    """

    def __init__(self, directory: Path, stack: ExitStack, say: Report, *, quick: bool, source: Path = service.ROOT) -> None:
        """`source` is the checkout with the code of the services."""
        self.source = source
        self._directory = directory
        self._stack = stack.enter_context(ExitStack())
        self._say = say
        self._quick = quick
        self._name = ""
        self._shared: tuple[Service, Any] | MeasurementFailed | None = None

    def tenants(self) -> tuple[Service, Tenants]:
        """Return a service with one worker and many organizations. Raises: MeasurementFailed, again for each row."""
        scale = tenants.QUICK if self._quick else tenants.FULL
        return self._get("organizations", scale.gigabytes, lambda on: add_tenants(on, scale, self._say))

    def applications(self) -> tuple[Service, Applications]:
        """Return a service with one worker and many end users of applications. Raises: MeasurementFailed, again for each row."""
        scale = end_users.QUICK if self._quick else end_users.FULL
        return self._get("end users", scale.gigabytes, lambda on: add_applications(on, scale, self._say))

    def directories(self) -> tuple[Service, Directories]:
        """Return a service with one worker and many provisioned users. Raises: MeasurementFailed, again for each row."""
        users = directories.QUICK if self._quick else directories.FULL
        return self._get("provisioned users", directories.GIGABYTES, lambda on: directories.add_directories(on, users, self._say))

    def _get(self, name: str, needed: float, fill: Callable[[Service], Any]) -> tuple[Service, Any]:
        if self._name != name:
            self._stack.close()
            self._name = name
            try:
                self._shared = self._new(needed, fill)
            except MeasurementFailed as reason:
                self._shared = reason
        if isinstance(self._shared, MeasurementFailed):
            raise self._shared
        assert self._shared is not None
        return self._shared

    def _new(self, needed: float, fill: Callable[[Service], Any]) -> tuple[Service, Any]:
        free = shutil.disk_usage(self._directory).free / 2**30
        if free < needed:
            raise RequirementMissing(
                f"The {self._name} need {needed:.0f} GB on the disk of {self._directory.parent}, which has {free:.0f} free."
            )
        data = self._directory / "shared"
        self._stack.callback(shutil.rmtree, data, ignore_errors=True)
        started = start_service(data, self._stack, 1, service.argon2_in_use(), self.source)
        return started, fill(started)


class Row(ABC):
    """A row of the table: `prepare` runs once, then `raw` and `ours` by turns. The stack ends everything that the row starts."""

    name: ClassVar[str]
    description: ClassVar[str]
    goal: ClassVar[Goal]
    unit: ClassVar[str] = "/s"  # of the raw and our measurements
    setting: str  # a short description of the load
    repeats: ClassVar[bool] = True  # False for a single round

    def __init__(self, directory: Path, stack: ExitStack, run: Run) -> None:
        self.directory = directory  # an empty directory for this row
        self.stack = stack
        self.run = run

    @abstractmethod
    def prepare(self, seconds: int, rounds: int) -> None:
        """Start and fill everything for `rounds` rounds of `seconds` each. Raises: MeasurementFailed, like the methods below."""

    def raw(self, seconds: int) -> Sample | None:
        """Measure the raw cost, or return None if the row has none."""
        return None

    @abstractmethod
    def ours(self, seconds: int) -> Sample:
        """Measure the service."""

    def comparisons(self, seconds: int) -> Mapping[str, Sample]:
        """Measure further values for comparison, by name."""
        return {}

    def plans(self) -> Sequence[str]:
        """Return the query plans behind the measurement, if the row shows them."""
        return ()

    def start_service(self, workers: int, **settings: str) -> Service:
        """Start the service on an empty database, with these settings and with the Argon2 build that `./run` would use."""
        return start_service(self.directory / "data", self.stack, workers, service.argon2_in_use(), self.run.source, **settings)


class BareAppRow(Row):
    """A row that compares requests to one worker with requests to a bare application on Hypercorn's Trio worker."""

    setting = f"1 worker, {REQUESTS.connections} connections"

    def prepare(self, seconds: int, rounds: int) -> None:
        self.bare = start_bare_app(self, "hypercorn")
        self.service = self.start_service(workers=1)

    def raw(self, seconds: int) -> Sample:
        self.service.settle()
        return load_sample(REQUESTS.drive(self.bare, [Request("GET", "/")], seconds))


def start_service(data: Path, stack: ExitStack, workers: int, argon2_build: Path | None, source: Path, **settings: str) -> Service:
    """Start the service of the checkout `source` on the database in `data`, which is created if it does not exist."""
    data.mkdir(exist_ok=True)
    data.chmod(0o755)  # PostgreSQL runs as another user if this process runs as root
    return stack.enter_context(service.started(data, workers=workers, argon2_build=argon2_build, source=source, **settings))


def raw_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ops.bench.raw", *arguments]


def start_bare_app(row: Row, server: str) -> str:
    """Start the bare application on one of the servers in raw.py until the row ends, and return its address."""
    child = Child(raw_command(server), service.clean_environment(None), row.directory / f"bare-{server}")
    row.stack.enter_context(child)
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline and child.exit_code is None:
        if child.read_output().endswith("}\n"):
            return str(json.loads(child.last_line())["address"])
        time.sleep(0.02)
    raise MeasurementFailed(f"The bare application did not start: {child.last_line()}")


def load_sample(load: Load) -> Sample:
    return Sample(load.rate, {"p50 {} ms": load.p50, "p99 {} ms": load.p99})


def ask(on: Service, request: Request) -> Any:
    return on.ask(request.method, request.path, request.body, request.token, request.key)


def check_body(on: Service, request: Request, part: str, status: int = 200) -> None:
    """Raise MeasurementFailed unless the response has this status and contains `part`."""
    actual, body = on.send(request)
    check_equal(f"The status of {request.method} {request.path}", actual, status)
    if part not in body.decode(errors="replace"):
        raise MeasurementFailed(f"{request.method} {request.path} does not contain {part}.")


def check_equal(name: str, value: object, expected: object) -> None:
    """Raise MeasurementFailed unless the values are equal."""
    if value != expected:
        raise MeasurementFailed(f"{name} should be {str(expected)[:200]}, not {str(value)[:200]}.")


def measure_sequentially(on: Service, request: Request, seconds: int) -> Sample:
    """Measure the duration of one request without any other load. Raises: MeasurementFailed."""
    load, costs = drive_and_check(on, SEQUENTIAL, [request], seconds)
    return Sample(load.p50, {"p99 {} ms": load.p99, "{} pages/s": load.rate, **costs})


def measure(on: Service, wrk: Wrk, requests: Sequence[Request], seconds: int) -> Sample:
    """Measure the requests of one route per second, and the cost of each. Raises: MeasurementFailed."""
    load, costs = drive_and_check(on, wrk, requests, seconds)
    return Sample(load.rate, {"p50 {} ms": load.p50, "p99 {} ms": load.p99, **costs})


def drive_and_check(on: Service, wrk: Wrk, requests: Sequence[Request], seconds: int) -> tuple[Load, Mapping[str, float]]:
    """Send requests of one route, and return the load and the cost of each request.

    Raises: MeasurementFailed if a request failed, or has no line in the access log.
    """
    on.settle()
    paths = {urlsplit(request.path).path for request in requests}
    marked = f'"path":"{paths.pop()}"' if len(paths) == 1 else f'"path":"{paths.pop().rpartition("/")[0]}/'
    lines, usage = on.log_lines(marked), on.usage()
    with on.explaining():
        load = wrk.drive(on.address, requests, seconds)
    on.settle()
    logged = on.log_lines(marked) - lines
    if logged < load.requests:
        raise MeasurementFailed(f"Of {load.requests} requests, {logged} are in the access log.")
    return load, on.usage().since(usage, logged)


def logins() -> list[Request]:
    """Return one login request per account."""
    return [
        Request("POST", "/api/auth/login", body={"email": email_of(number), "password": password_of(number)}) for number in range(ACCOUNTS)
    ]


def reads(tokens: Sequence[str]) -> list[Request]:
    return [Request("GET", "/api/user", token) for token in tokens]


def refreshes(tokens: Sequence[str]) -> list[Request]:
    return [Request("POST", "/api/auth/refresh", body={"refresh_token": token}) for token in tokens]
