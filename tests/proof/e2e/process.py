"""The real service as an operator runs it: started, called over its socket, signaled, killed, and inspected."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx

from tests import ROOT
from tests.fakes.certificates import client_context
from tests.proof.e2e.launcher import Forked, launcher
from tests.proof.wire.loopback import IPV4, IPV6, family_of, has_ipv6
from tests.support.waiting import PATIENCE, until

# Argon2id with minimal parameters. The benchmark measures real settings.
CHEAP_HASHES: Final = {"SSO_ARGON2_MEMORY_KIB": "8", "SSO_ARGON2_TIME_COST": "1", "SSO_ARGON2_PARALLELISM": "1"}
# Otherwise every client reads the certificate authorities, which takes longer than the requests.
NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Port:
    """A port on both loopback addresses that stays reserved, so that a restarted service can use it again."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self.number = 0
        while not self.number:
            try:
                for host in (IPV4, IPV6) if has_ipv6() else (IPV4,):
                    self.number = self._bind(host)
            except OSError:  # another program has this port at ::1
                self.close()

    def _bind(self, host: str) -> int:
        bound = socket.socket(family_of(host))
        self._sockets.append(bound)
        # Bound without listening: the kernel gives the number to no other program, but a service
        # that asks for it by number with SO_REUSEADDR gets it.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, self.number))
        port: int = bound.getsockname()[1]
        return port

    def listen(self) -> None:
        """Listen on a port at 127.0.0.1."""
        self._sockets[0].listen()

    def close(self) -> None:
        for bound in self._sockets:
            bound.close()
        self._sockets, self.number = [], 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def environment(home: Path, **settings: str) -> dict[str, str]:
    """Return our environment without service settings, plus these. Files go below `home`.

    The service finds our modules from any directory.
    """
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("SSO_", "PROMETHEUS_", "PG"))}
    modules = os.pathsep.join(filter(None, [settings.pop("PYTHONPATH", ours.get("PYTHONPATH")), str(ROOT)]))
    return {**ours, "PYTHONPATH": modules, "SSO_DATA_DIR": str(home / "var"), "TMPDIR": str(home / "tmp"), **settings}


def gatehouse_in_new_interpreter(home: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, without the launcher."""
    command = [sys.executable, "-m", "entrypoints.cli", *arguments]
    return subprocess.run(
        command, cwd=home, env=environment(home, **settings), capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def gatehouse(home: Path, *arguments: str, typed: str = "", **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command until it ends, in a fork from the launcher."""
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        stdin.write(typed.encode())
        stdin.seek(0)
        streams = [file.fileno() for file in (stdin, stdout, stderr)]
        process = launcher().launch(arguments, home=home, environment=environment(home, **settings), streams=streams)
        try:
            code = process.wait(PATIENCE)
        finally:
            process.kill()
        printed = []
        for file in (stdout, stderr):
            file.seek(0)
            printed.append(file.read().decode())
    return subprocess.CompletedProcess(["gatehouse", *arguments], code, *printed)


class Service:
    """`gatehouse serve` with these arguments and settings, in the directory `home`.

    It can be started again after it has ended. Its address stays the same. Its process is forked from the launcher,
    except after `in_new_interpreter`.
    """

    def __init__(self, home: Path, *arguments: str, **settings: str) -> None:
        self.home = home
        self._has_new_interpreter = False
        self.arguments = list(arguments)
        self._port = Port()
        self.port = self._port.number
        certificate = settings.get("SSO_TLS_CERTIFICATE")
        self.address = f"{'https' if certificate else 'http'}://localhost:{self.port}"
        self._trust = client_context(Path(certificate)) if certificate else NO_TLS
        self.settings = {
            "SSO_BIND": f"localhost:{self.port}",
            "SSO_LOG_FORMAT": "json",
            "SSO_RATE_LIMITS": "off",
            # A connection costs the database as much as a short test's requests. Without a limit, a start opens ten.
            "SSO_DB_POOL_SIZE": "4",
            **CHEAP_HASHES,
            **settings,
        }
        self.output_file = home / "service.output"
        self._process: subprocess.Popen[bytes] | Forked | None = None

    # Start and stop

    def in_new_interpreter(self, is_new: bool = True) -> Self:
        """Start it without the launcher from now on, or with it again."""
        self._has_new_interpreter = is_new
        return self

    def launch(self, output: int | None = None) -> Self:
        """Start the process without waiting.

        Its output goes to a file, or to the open descriptor `output`.
        """
        assert self._process is None or self._process.poll() is not None, "it runs already"
        with self.output_file.open("ab") as file, Path(os.devnull).open("rb") as nothing:
            written = output or file.fileno()
            variables = environment(self.home, **self.settings)
            if self._has_new_interpreter:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "entrypoints.cli", "serve", *self.arguments],
                    cwd=self.home,
                    env=variables,
                    stdin=nothing,
                    stdout=written,
                    stderr=written,
                    start_new_session=True,  # in its own process group, as a terminal would start it
                )
            else:
                streams = [nothing.fileno(), written, written]
                self._process = launcher().launch(["serve", *self.arguments], home=self.home, environment=variables, streams=streams)
        return self

    def start(self, output: int | None = None, patience: float = 2 * PATIENCE) -> Self:
        """Start it, and wait until it answers."""
        self.launch(output)
        until(self._answers, f"the service answers\n{self.output}", patience)
        return self

    def _answers(self) -> bool:
        assert self.process.poll() is None, f"the service ended with {self.process.returncode}:\n{self.output}"
        with suppress(httpx.TransportError):
            return self.get("/health/live").status_code == 200
        return False

    @property
    def process(self) -> subprocess.Popen[bytes] | Forked:
        assert self._process is not None, "it was never started"
        return self._process

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self, patience: float = PATIENCE) -> int:
        """Return its exit code, as soon as it has ended."""
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"after {patience:g} s the service still runs:\n{self.output}") from None

    def interrupt(self) -> None:
        """Interrupt its whole process group, as Ctrl-C in a terminal does."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        """Kill the process with SIGKILL. Its children must end by themselves."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Send SIGTERM. Return the exit code."""
        self.process.terminate()
        return self.wait()

    def clean_up(self) -> None:
        """End the process and all its descendants."""
        if self.runs:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
        for pid in family(self.home):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        self._port.close()

    # Output

    @property
    def output(self) -> str:
        """Return its output so far, standard output and errors, from all starts."""
        return self.output_file.read_text(errors="replace") if self.output_file.exists() else ""

    @property
    def log(self) -> list[dict[str, Any]]:
        """Return its log lines so far."""
        return [json.loads(line) for line in self.output.splitlines() if line.startswith("{") and line.endswith("}")]

    def logged(self, event: str) -> list[dict[str, Any]]:
        """Return an event's log lines."""
        return [line for line in self.log if line["event"] == event]

    @property
    def workers(self) -> list[int]:
        """Return the worker processes, which are forked from the service's process."""
        command = _read(self.process.pid, "cmdline")
        return sorted(pid for pid in children(self.process.pid) if _read(pid, "cmdline") == command)

    # Requests

    def call(self, method: str, path: str, body: Any = None, *, token: str | None = None, **headers: str) -> httpx.Response:
        """Send a request on a new connection. Can be called from any thread."""
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        with httpx.Client(verify=self._trust, trust_env=False, timeout=PATIENCE) as client:
            return client.request(method, f"{self.address}{path}", json=body, headers=headers)

    def get(self, path: str, *, token: str | None = None, **headers: str) -> httpx.Response:
        return self.call("GET", path, token=token, **headers)

    def post(self, path: str, body: Any = None, *, token: str | None = None, **headers: str) -> httpx.Response:
        return self.call("POST", path, {} if body is None else body, token=token, **headers)

    def follow(self, link: str) -> httpx.Response:
        """Open an email's link as a program."""
        assert link.startswith(f"{self.address}/"), link
        return self.get(link.removeprefix(self.address), Accept="application/json")

    def register(self, email: str, password: str) -> None:
        answer = self.post("/api/auth/register", {"email": email, "password": password})
        assert answer.status_code == 200, answer.text

    def login(self, email: str, password: str) -> dict[str, Any]:
        """Return a login's tokens."""
        answer = self.post("/api/auth/login", {"email": email, "password": password})
        assert answer.status_code == 200, answer.text
        tokens: dict[str, Any] = answer.json()
        return tokens

    def metric(self, name: str) -> dict[str, float]:
        """Return a metric's samples by their labels, as text."""
        return samples(self.get("/metrics").text, name)


def samples(exposition: str, name: str) -> dict[str, float]:
    """Return a metric's samples by their labels, as text."""
    lines = re.findall(rf"^{name}(\{{.*\}})? (\S+)$", exposition, re.MULTILINE)
    return {labels: float(value) for labels, value in lines}


def is_storage_down(answer: httpx.Response) -> bool:
    """Return whether this is the response that is documented for a lost database."""
    if answer.status_code != 500:
        return False
    body = answer.json()
    return (
        body.keys() == {"error", "error_code", "timestamp"}
        and body["error_code"] == "DATABASE_ERROR"
        and int(answer.headers["Retry-After"]) > 0
        and answer.headers["Content-Type"] == "application/json"
    )


class DatabaseServer:
    """A PostgreSQL server that a test starts and stops. `conninfo` stays the same.

    It runs in another process, because PostgreSQL ends with the thread that has started it. Its data is copied from `stopped`, or new.
    """

    def __init__(self, home: Path, stopped: Path | None = None) -> None:
        self._data = home / "server"
        self._stopped = stopped
        self._process: Forked | None = None
        self._stdin = -1
        self.conninfo = ""

    def start(self) -> Self:
        if self._stopped is not None and not self._data.exists():
            copy_database(self._stopped, self._data)
        (stdin, self._stdin), (output, stdout) = os.pipe(), os.pipe()
        try:
            self._process = launcher().launch(
                [str(self._data)], program="database", home=self._data.parent, environment=os.environ, streams=[stdin, stdout, 2]
            )
        finally:
            os.close(stdin)
            os.close(stdout)
        with os.fdopen(output) as lines:
            conninfo = lines.readline().strip()
        assert conninfo, "the database server did not start"
        assert self.conninfo in ("", conninfo)
        self.conninfo = conninfo
        return self

    def stop(self) -> None:
        """Shut down as `systemctl restart postgresql` does: sessions are ended, and committed data stays."""
        self.begin_stop()
        if self._process is not None:
            self._process.wait(PATIENCE)

    def begin_stop(self) -> None:
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None


def copy_database(stopped: Path, data: Path) -> None:
    """Copy a stopped database's data with its owner."""
    subprocess.run(["cp", "-a", stopped, data], check=True)


# Processes on the machine


@dataclass(frozen=True, slots=True)
class _Running:
    parent: int
    state: str


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # ended, or another user's
        return b""


def _processes() -> Iterator[tuple[int, _Running]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            # The name, in parentheses, can contain any characters.
            fields = _read(int(entry.name), "stat").rpartition(b")")[2].split()
            if fields and fields[0] != b"Z":
                yield int(entry.name), _Running(int(fields[1]), fields[0].decode())


def children(parent: int) -> list[int]:
    """Return this process's living children."""
    return [pid for pid, running in _processes() if running.parent == parent]


def family(home: Path) -> Mapping[int, str]:
    """Return the command lines of this home's living service and database processes, by process id.

    Such a process has the home in its settings, its command line or its working directory, or its
    parent has.
    """
    living = dict(_processes())
    mark = os.fsencode(home)
    pids = {pid for pid in living if mark in _read(pid, "environ") or mark in _read(pid, "cmdline") or _works_below(pid, home)}
    while more := {pid for pid, running in living.items() if running.parent in pids} - pids:
        pids |= more
    return {pid: _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace") for pid in pids if pid != os.getpid()}


def _works_below(pid: int, home: Path) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(home)
    except OSError:
        return False
