"""The service under measurement, with its accounts and sessions."""

import http.client
import json
import os
import re
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, LiteralString
from urllib.parse import urlsplit

import argon2
import psycopg

from adapters.postgres.engine import embedded
from core.kernel.values import digest, new_secret
from ops.bench.processes import Child, MeasurementFailed, cpu_seconds, has_loaded, name_of, settle, tree
from ops.bench.wrk import Request

ROOT: Final = Path(__file__).parents[2]
START_TIMEOUT: Final = 60.0  # seconds

ARGON2_MEMORY_KIB, ARGON2_TIME_COST, ARGON2_PARALLELISM = 19456, 2, 1

# The processor time per request, among the further values of a sample
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
    """Return an environment without foreign settings, and with the chosen build of Argon2. None is the PyPI wheel."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SSO_", "PYTHON", "PROMETHEUS_"))}
    return kept if argon2_build is None else {**kept, "PYTHONPATH": str(argon2_build)}


def argon2_built_here() -> Path | None:
    """Return the directory of argon2-cffi-bindings that `./run` compiled for this processor, or None."""
    return next(iter(sorted((ROOT / ".venv/argon2").resolve().glob("*/"))), None)


def argon2_in_use() -> Path | None:
    """Return the build that `./run` starts the service with: the compiled one, unless GATEHOUSE_ARGON2 is "wheel"."""
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


class Service:
    """A running service with its own database. `started` creates it."""

    def __init__(self, child: Child, address: str, conninfo: str, directory: Path, start: float) -> None:
        self._child = child
        self.start = start  # seconds until it was ready
        self.pid = child.pid
        self.address = address
        self.conninfo = conninfo
        self.directory = directory

    def settle(self) -> None:
        """Wait until the service is idle. Raises: MeasurementFailed if it does not become idle, or has ended."""
        if self._child.exit_code is not None:
            raise MeasurementFailed(f"The service has ended: {self._child.last_line()}")
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
        with self._child.output.open(errors="replace") as file:
            return sum(containing in line for line in file)

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Add the failures in the access log to a MeasurementFailed that is raised in the block."""
        try:
            yield
        except MeasurementFailed as reason:
            with self._child.output.open(errors="replace") as file:
                failed = Counter(failure for line in file if (failure := _failure(line)))
            if not failed:
                raise
            most = ", ".join(f"{count} x {failure}" for failure, count in failed.most_common(3))
            raise MeasurementFailed(f"{reason} In the access log: {most}.") from None

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, token: str = "", key: str = "") -> Any:
        """Send a request and return the decoded response. Raises: MeasurementFailed if it is not a success."""
        status, answer = self.send(Request(method, path, token, body, key))
        if status != 200:
            raise MeasurementFailed(f"{method} {path} returned {status}: {answer.decode(errors='replace')[:200]}")
        return json.loads(answer)

    def send(self, request: Request) -> tuple[int, bytes]:
        """Send a request and return the status and the body of the response."""
        return _exchange(self.address, request)


def _failure(line: str) -> str:
    """Return the route and status of a failed request in the access log, or an empty string."""
    if '"logger":"access"' not in line:
        return ""
    entry = json.loads(line)
    if entry["status"] < 400:
        return ""
    return f"{entry['method']} {entry['route']} {entry['status']} {entry.get('error_code', '')}".rstrip()


@contextmanager
def started(directory: Path, *, workers: int, argon2_build: Path | None, source: Path = ROOT, **settings: str) -> Iterator[Service]:
    """Run `gatehouse serve` with these settings on a new embedded database in `directory` until the block ends.

    `source` is the checkout with the code of the service.

    Raises: MeasurementFailed if the service does not start.
    """
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
        address = _address_of(child)
        start = time.monotonic() - began
        conninfo = embedded.attach(directory / "postgres")
        if conninfo is None:
            raise MeasurementFailed("The service has no embedded database.")
        service = Service(child, address, conninfo, directory, start)
        service.settle()  # by then every worker has started, because starting keeps a processor busy
        _check_argon2(service, workers, argon2_build)
        yield service


def _address_of(child: Child) -> str:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        if child.exit_code is not None:
            raise MeasurementFailed(f"The service did not start: {child.last_line()}")
        found = re.search(r"serves on\s+(http://\S+)", child.read_output())
        if found and _is_ready(found[1]):
            return found[1]
        time.sleep(0.02)
    raise MeasurementFailed(f"The service was not ready within {START_TIMEOUT:.0f} s: {child.last_line()}")


def _is_ready(address: str) -> bool:
    try:
        return _exchange(address, Request("GET", "/health/ready"))[0] == 200
    except OSError:
        return False


def _check_argon2(service: Service, workers: int, build: Path | None) -> None:
    built = argon2_built_here()
    servers = [pid for pid in tree(service.pid) if name_of(pid) != "postgres"][1 if workers > 1 else 0 :]
    if len(servers) != workers:
        raise MeasurementFailed(f"The service has {len(servers)} workers, not {workers}.")
    if built is not None and any(has_loaded(pid, built) != (build is not None) for pid in servers):
        raise MeasurementFailed("The service uses another build of Argon2 than the requested one.")


def _exchange(address: str, request: Request) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    try:
        connection.request(request.method, request.path, request.content() or None, request.headers())
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


# Accounts and sessions


def email_of(number: int) -> str:
    return f"person-{number}@bench.example"


def password_of(number: int) -> str:
    return f"the password of person {number}"


def add_accounts(service: Service, count: int) -> None:
    """Add verified accounts, numbered from 0, each with a different password."""
    hasher = argon2.PasswordHasher(time_cost=ARGON2_TIME_COST, memory_cost=ARGON2_MEMORY_KIB, parallelism=ARGON2_PARALLELISM)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        hashes = list(threads.map(lambda number: hasher.hash(password_of(number)), range(count)))
    now = datetime.now(UTC)
    columns = "id, email, email_verified_at, first_verified_at, password_hash, origin, created_at, updated_at"
    rows = [(uuid.uuid4(), email_of(number), now, now, hashed, "platform", now, now) for number, hashed in enumerate(hashes)]
    with psycopg.connect(service.conninfo) as connection:
        _copy(connection, f"copy users ({columns}) from stdin", rows)
    tidy(service)


def add_sessions(service: Service, count: int) -> list[str]:
    """Add sessions of these accounts in turn, and return the unused refresh token of each."""
    now = datetime.now(UTC)
    ends = now + timedelta(days=30)
    tokens = [new_secret() for _ in range(count)]
    sessions = [uuid.uuid4() for _ in range(count)]
    with psycopg.connect(service.conninfo) as connection:
        users = [row[0] for row in connection.execute("select id from users where email like '%@bench.example'")]
        _copy(
            connection,
            "copy sessions (id, user_id, created_at, expires_at, ends_at) from stdin",
            [(session, users[number % len(users)], now, ends, ends) for number, session in enumerate(sessions)],
        )
        _copy(
            connection,
            "copy refresh_tokens (token_hash, session_id, generation, created_at) from stdin",
            [(digest(token), session, 1, now) for token, session in zip(tokens, sessions, strict=True)],
        )
    tidy(service)
    return tokens


def access_tokens(service: Service, count: int) -> list[str]:
    """Sign in with the first `count` accounts and return their access tokens."""
    return [
        str(service.ask("POST", "/api/auth/login", {"email": email_of(number), "password": password_of(number)})["access_token"])
        for number in range(count)
    ]


def database_version(service: Service) -> str:
    with psycopg.connect(service.conninfo) as connection:
        return f"{connection.info.server_version // 10000}.{connection.info.server_version % 10000}"


def _copy(connection: psycopg.Connection[Any], statement: LiteralString, rows: Sequence[Sequence[object]]) -> None:
    with connection.cursor().copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


def tidy(service: Service) -> None:
    """Update the statistics, and finish pending writes, so that neither happens during a measurement."""
    with psycopg.connect(service.conninfo, autocommit=True) as connection:
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")
