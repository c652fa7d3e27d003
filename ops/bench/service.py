"""The service under measurement."""

import http.client
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, LiteralString
from urllib.parse import urlsplit

import psycopg

from adapters.postgres.engine import embedded
from ops.bench.processes import Child, MeasurementFailed, cpu_seconds, has_loaded, name_of, settle, tree
from ops.bench.wrk import Request

ROOT: Final = Path(__file__).parents[2]
START_TIMEOUT: Final = 60.0  # seconds

ARGON2_MEMORY_KIB, ARGON2_TIME_COST, ARGON2_PARALLELISM = 19456, 2, 1

# The processor time per request, among a sample's further values
WORKER_TIME: Final = "CPU {} ms per request"
DATABASE_TIME: Final = "in PostgreSQL {} ms more"

# Everything else has its default: fsync, access log and metrics are on.
SETTINGS: Final = {
    "SSO_RATE_LIMITS": "100000",  # the limits are checked, but refuse no request: the benchmark is a single client
    "SSO_LOG_FORMAT": "json",
    "SSO_ARGON2_MEMORY_KIB": str(ARGON2_MEMORY_KIB),
    "SSO_ARGON2_TIME_COST": str(ARGON2_TIME_COST),
    "SSO_ARGON2_PARALLELISM": str(ARGON2_PARALLELISM),
}


def clean_environment(argon2_build: Path | None) -> dict[str, str]:
    """Return an environment without foreign settings, and with the chosen Argon2 build. None is the PyPI wheel."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SSO_", "PYTHON", "PROMETHEUS_"))}
    return kept if argon2_build is None else {**kept, "PYTHONPATH": str(argon2_build)}


def argon2_built_here() -> Path | None:
    """Return the argon2-cffi-bindings directory that `./run` compiled for this processor, or None."""
    return next(iter(sorted((ROOT / ".venv/argon2").resolve().glob("*/"))), None)


def argon2_in_use() -> Path | None:
    """Return the build that `./run` starts the service with: the compiled build, unless GATEHOUSE_ARGON2 is "wheel"."""
    return None if os.environ.get("GATEHOUSE_ARGON2") == "wheel" else argon2_built_here()


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time used so far, in seconds."""

    service: float
    database: float

    def since(self, before: "Usage", requests: int) -> dict[str, float]:
        """Return the processor time per request since `before`. Database processes that have ended since are not counted."""
        return {
            WORKER_TIME: 1000 * (self.service - before.service) / requests,
            DATABASE_TIME: 1000 * (self.database - before.database) / requests,
        }


@dataclass(frozen=True, slots=True)
class Response:
    """A response by the service."""

    status: int
    headers: http.client.HTTPMessage
    body: str


@dataclass(slots=True)
class Service:
    """A running service with its own database. `started` creates it."""

    child: Child
    address: str
    conninfo: str
    directory: Path
    argon2_build: Path | None
    start: float  # seconds until it was ready

    @property
    def pid(self) -> int:
        return self.child.pid

    def settle(self) -> None:
        """Wait until the service is idle. Raises: MeasurementFailed if it does not become idle, or has ended."""
        if self.child.exit_code is not None:
            raise MeasurementFailed(f"The service has ended: {self.child.last_line()}")
        settle(self.pid)

    def usage(self) -> Usage:
        database: list[int] = []
        service: list[int] = []
        for pid in tree(self.pid):
            try:
                (database if name_of(pid) == "postgres" else service).append(pid)
            except OSError:
                continue
        return Usage(cpu_seconds(service), cpu_seconds(database))

    def log_lines(self, containing: str) -> int:
        with self.child.output.open(errors="replace") as file:
            return sum(containing in line for line in file)

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Add the failures in the access log to a MeasurementFailed that is raised in the block."""
        try:
            yield
        except MeasurementFailed as reason:
            with self.child.output.open(errors="replace") as file:
                entries = [json.loads(line) for line in file if '"logger":"access"' in line]
            failed = Counter(
                f"{one['method']} {one['route']} {one['status']} {one.get('error_code', '')}".rstrip()
                for one in entries
                if one["status"] >= 400
            )
            if not failed:
                raise
            most = ", ".join(f"{count} x {failure}" for failure, count in failed.most_common(3))
            raise MeasurementFailed(f"{reason} In the access log: {most}.") from None

    def send(self, request: Request) -> Response:
        return _exchange(self.address, request)

    def check(self, request: Request, part: str = "", status: int = 200) -> str:
        """Return the response's body. Raises: MeasurementFailed unless it has this status and contains `part`."""
        response = self.send(request)
        if response.status != status:
            raise MeasurementFailed(f"{request.method} {request.path} returned {response.status}: {response.body[:200]}")
        if part not in response.body:
            raise MeasurementFailed(f"{request.method} {request.path} does not contain {part}.")
        return response.body

    def ask(self, request: Request) -> Any:
        """Return the decoded response. Raises: MeasurementFailed if it is not a success."""
        return json.loads(self.check(request))

    def query(self, statement: LiteralString, **values: object) -> list[tuple[Any, ...]]:
        """Execute an SQL statement with these values, and return its rows."""
        # ClientCursor puts the values into the statement, which then needs no types.
        with psycopg.connect(self.conninfo, cursor_factory=psycopg.ClientCursor) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def tidy(self) -> None:
        """Update the statistics, and finish pending writes, so that neither happens during a measurement."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute("vacuum analyze")
            connection.execute("checkpoint")


@contextmanager
def started(directory: Path, *, workers: int, argon2_build: Path | None, source: Path = ROOT, **settings: str) -> Iterator[Service]:
    """Run `gatehouse serve` with these settings until the block ends. Its embedded database in `directory` is created if missing.

    `source` is the checkout with the service's code.

    Raises: MeasurementFailed if the service does not start.
    """
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)  # PostgreSQL runs as another user if this process runs as root
    environment = {
        **clean_environment(argon2_build),
        **SETTINGS,
        "SSO_BIND": "127.0.0.1:0",
        "SSO_DATA_DIR": str(directory),
        "SSO_WORKERS": str(workers),
        **settings,
    }
    command = [sys.executable, "-m", "entrypoints.cli", "serve", "--welcome"]  # only the welcome text contains the port
    began = time.monotonic()
    with Child(command, environment, directory / "log", source) as child:
        address = child.wait_until(_ready_address, START_TIMEOUT, "The service")
        start = time.monotonic() - began
        conninfo = embedded.attach(directory / "postgres")
        if conninfo is None:
            raise MeasurementFailed("The service has no embedded database.")
        service = Service(child, address, conninfo, directory, argon2_build, start)
        service.settle()  # by then every worker has started, because starting keeps a processor busy
        _check_argon2(service, workers)
        yield service


def _ready_address(output: str) -> str | None:
    found = re.search(r"serves on\s+(http://\S+)", output)
    try:
        return found[1] if found and _exchange(found[1], Request("GET", "/health/ready")).status == 200 else None
    except OSError:
        return None


def _check_argon2(service: Service, workers: int) -> None:
    built = argon2_built_here()
    servers = [pid for pid in tree(service.pid) if name_of(pid) != "postgres"][1 if workers > 1 else 0 :]
    if len(servers) != workers:
        raise MeasurementFailed(f"The service has {len(servers)} workers, not {workers}.")
    if built is not None and any(has_loaded(pid, built) != (service.argon2_build is not None) for pid in servers):
        raise MeasurementFailed("The service uses another build of Argon2 than the requested one.")


def _exchange(address: str, request: Request) -> Response:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    try:
        connection.request(request.method, request.path, request.content() or None, request.headers())
        response = connection.getresponse()
        return Response(response.status, response.headers, response.read().decode(errors="replace"))
    finally:
        connection.close()
