"""The real service as its operator has it: started, asked over its socket, signalled, killed, and looked at from outside."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx

from tests import ROOT
from tests.support.waiting import PATIENCE, until

# Argon2id with the least that it takes: what hashing costs is measured by the benchmark.
CHEAP_HASHES: Final = {"SSO_ARGON2_MEMORY_KIB": "8", "SSO_ARGON2_TIME_COST": "1", "SSO_ARGON2_PARALLELISM": "1"}
# Else every client would read the certificate authorities, which takes longer than anything asked of the service here.
NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Port:
    """A port of the loopback interface that nobody else is given while this is open, so that a service can come back to it."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        # Bound, but not listening: the kernel hands the number to nobody, and who asks for it by number and may reuse it gets it.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def listen(self) -> None:
        """Take the port oneself."""
        self._socket.listen()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def environment(home: Path, **settings: str) -> dict[str, str]:
    """Ours without anybody's settings of the service, plus these. What it makes goes below `home`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SSO_", "PROMETHEUS_", "PG"))}
    return {**inherited, "SSO_DATA_DIR": str(home / "var"), "TMPDIR": str(home / "tmp"), **settings}


def gatehouse(home: Path, *arguments: str, typed: str = "", **settings: str) -> subprocess.CompletedProcess[str]:
    """Run one command of the command line to its end."""
    return subprocess.run(
        [sys.executable, "-m", "entrypoints.cli", *arguments],
        cwd=ROOT,
        env=environment(home, **settings),
        input=typed,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


class Service:
    """`gatehouse serve` with these arguments and settings. `home` is a directory of its own.

    It may be started again after it has ended; the address stays the same.
    """

    def __init__(self, home: Path, *arguments: str, **settings: str) -> None:
        self.home = home
        self.arguments = list(arguments)
        self._port = Port()
        self.address = f"http://127.0.0.1:{self._port.number}"
        self.settings = {
            "SSO_BIND": f"127.0.0.1:{self._port.number}",
            "SSO_LOG_FORMAT": "json",
            "SSO_RATE_LIMITS": "off",
            **CHEAP_HASHES,
            **settings,
        }
        self.output_file = home / "service.output"
        self._process: subprocess.Popen[bytes] | None = None

    # -- its life ---------------------------------------------------------------------------------------------------------

    def launch(self, output: int | None = None) -> Self:
        """Start it, and do not wait. What it writes goes to a file, or to the open descriptor `output`."""
        assert self._process is None or self._process.poll() is not None, "it runs already"
        with self.output_file.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "entrypoints.cli", "serve", *self.arguments],
                cwd=ROOT,
                env=environment(self.home, **self.settings),
                stdin=subprocess.DEVNULL,
                stdout=output or file,
                stderr=output or file,
                start_new_session=True,  # a process group of its own, as a terminal would give it
            )
        return self

    def start(self, output: int | None = None, patience: float = PATIENCE) -> Self:
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
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it was never started"
        return self._process

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self, patience: float = PATIENCE) -> int:
        """Its exit code, once it has ended by itself."""
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"after {patience:g} s the service still runs:\n{self.output}") from None

    def interrupt(self) -> None:
        """What Ctrl-C in a terminal does: an interrupt for its whole process group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        """kill -9 of the process that was started; whatever it has started in its turn has to end by itself."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        self.process.terminate()
        return self.wait()

    def clean_up(self) -> None:
        """End it if it still runs, and everything of it."""
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

    # -- what it says -----------------------------------------------------------------------------------------------------

    @property
    def output(self) -> str:
        """All that it has written so far, to either stream, in all its lives."""
        return self.output_file.read_text(errors="replace") if self.output_file.exists() else ""

    @property
    def log(self) -> list[dict[str, Any]]:
        """Its log lines so far."""
        return [json.loads(line) for line in self.output.splitlines() if line.startswith("{") and line.endswith("}")]

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The log lines of one event."""
        return [line for line in self.log if line["event"] == event]

    @property
    def workers(self) -> list[int]:
        """The processes that serve, if it has several."""
        return sorted(pid for pid in children(self.process.pid) if b"\0worker\0" in _read(pid, "cmdline"))

    # -- what it answers --------------------------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: Any = None, *, token: str | None = None, **headers: str) -> httpx.Response:
        """One request on a connection of its own. May be called from any thread."""
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        with httpx.Client(verify=NO_TLS, trust_env=False, timeout=PATIENCE) as client:
            return client.request(method, f"{self.address}{path}", json=body, headers=headers)

    def get(self, path: str, *, token: str | None = None, **headers: str) -> httpx.Response:
        return self.call("GET", path, token=token, **headers)

    def post(self, path: str, body: Any = None, *, token: str | None = None, **headers: str) -> httpx.Response:
        return self.call("POST", path, {} if body is None else body, token=token, **headers)

    def follow(self, link: str) -> httpx.Response:
        """What a program gets that opens the link of a mail."""
        assert link.startswith(f"{self.address}/"), link
        return self.get(link.removeprefix(self.address), Accept="application/json")

    def register(self, email: str, password: str) -> None:
        answer = self.post("/api/auth/register", {"email": email, "password": password})
        assert answer.status_code == 200, answer.text

    def login(self, email: str, password: str) -> dict[str, Any]:
        """The tokens."""
        answer = self.post("/api/auth/login", {"email": email, "password": password})
        assert answer.status_code == 200, answer.text
        tokens: dict[str, Any] = answer.json()
        return tokens

    def metric(self, name: str) -> dict[str, float]:
        """The samples of one name, by their labels as they are written."""
        return samples(self.get("/metrics").text, name)


def samples(exposition: str, name: str) -> dict[str, float]:
    """The samples of one name, by their labels as they are written."""
    found = re.findall(rf"^{name}(\{{.*\}})? (\S+)$", exposition, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def is_storage_down(answer: httpx.Response) -> bool:
    """Whether this is exactly what the interface promises while the database is away."""
    if answer.status_code != 500:
        return False
    body = answer.json()
    return (
        body.keys() == {"error", "error_code", "timestamp"}
        and body["error_code"] == "DATABASE_ERROR"
        and int(answer.headers["Retry-After"]) > 0
        and answer.headers["Content-Type"] == "application/json"
    )


# -- a database server of the test's own --------------------------------------------------------------------------------------

# In a process of its own, because a server ends with the thread that has started it, and because starting one means to fork.
_OWNER: Final = """
import sys
from pathlib import Path
from adapters.postgres import embedded
with embedded.start(Path(sys.argv[1]), durable=sys.argv[2] == "durable") as running:
    print(running.conninfo, flush=True)
    sys.stdin.read()
"""


class DatabaseServer:
    """A PostgreSQL that a test starts and stops; `conninfo` stays the same."""

    def __init__(self, home: Path) -> None:
        self._data = home / "server"
        self._process: subprocess.Popen[str] | None = None
        self.conninfo = ""

    def start(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _OWNER, str(self._data), "fast"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        conninfo = self._process.stdout.readline().strip()
        assert conninfo, "the database server did not start"
        assert self.conninfo in ("", conninfo)
        self.conninfo = conninfo
        return self

    def stop(self) -> None:
        """Shut down as `systemctl restart postgresql` does: sessions are ended, what was committed is kept."""
        self.begin_stop()
        if self._process is not None:
            self._process.wait(PATIENCE)

    def begin_stop(self) -> None:
        if self._process is not None:
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None


# -- the processes of the machine -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Running:
    parent: int
    state: str


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # gone meanwhile, or somebody else's
        return b""


def _processes() -> Iterator[tuple[int, _Running]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            # The name, in parentheses, may hold anything.
            fields = _read(int(entry.name), "stat").rpartition(b")")[2].split()
            if fields and fields[0] != b"Z":
                yield int(entry.name), _Running(int(fields[1]), fields[0].decode())


def children(parent: int) -> list[int]:
    """The living processes that this one has started."""
    return [pid for pid, running in _processes() if running.parent == parent]


def family(home: Path) -> Mapping[int, str]:
    """Every living process that belongs to a service or a database of this home, wherever it hangs; with its command line.

    Such a process names the home in its settings or its command line or works below it, or was started by one that does.
    """
    living = dict(_processes())
    mark = os.fsencode(home)
    found = {pid for pid in living if mark in _read(pid, "environ") or mark in _read(pid, "cmdline") or _works_below(pid, home)}
    while more := {pid for pid, running in living.items() if running.parent in found} - found:
        found |= more
    return {pid: _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace") for pid in found if pid != os.getpid()}


def _works_below(pid: int, home: Path) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(home)
    except OSError:
        return False
