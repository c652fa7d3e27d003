"""The service under a supervisor such as systemd: its start, its watchdog, a reload and its end."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import httpx
import psycopg
import pytest

from adapters.crypto import generate_key
from tests import ROOT
from tests.fakes.supervisor import NotifySocket
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.process import CHEAP_HASHES, DatabaseServer, Service, children, environment
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

PERIODS = 12  # heartbeats while the database is frozen; the supervisor waits for four
LOCATIONS = Path(__file__).parents[3] / "fakes" / "geoip.mmdb"


@contextmanager
def frozen(conninfo: str) -> Iterator[None]:
    """Freeze all processes in the database server."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        [(backend,)] = connection.execute("select pg_backend_pid()").fetchall()
        stat = Path(f"/proc/{backend}/stat").read_text()
    server = int(stat.rpartition(")")[2].split()[1])
    try:
        _signal(server, signal.SIGSTOP)  # first: it starts no more processes
        for pid in children(server):
            _signal(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in [*children(server), server]:
            _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it has ended, as a closed connection's backend does
        os.kill(pid, number)


def test_a_frozen_database_restarts_nothing(service: Start, server: DatabaseServer, home: Path, tmp_path: Path) -> None:
    """Neither a single process nor workers.

    Both services run at once, because this test waits for heartbeats that take several seconds.
    """
    locations = tmp_path / "locations.mmdb"
    shutil.copy(LOCATIONS, locations)
    settings = {
        "SSO_DATABASE_URL": server.start().conninfo,
        "SSO_ENCRYPTION_KEYS": generate_key(),
        "SSO_BASE_URL": "https://id.example.com",
        "SSO_GEOIP_DATABASE": str(locations),
    }
    with NotifySocket() as one, NotifySocket() as other:
        supervised = {
            workers: (supervisor, start(service, home, supervisor, workers, settings)) for workers, supervisor in ((1, one), (2, other))
        }
        processes = {workers: running.workers for workers, (_, running) in supervised.items()}
        with frozen(server.conninfo):
            for supervisor, _ in supervised.values():
                supervisor.drop_received()
            for _ in range(PERIODS):
                for supervisor, _ in supervised.values():
                    supervisor.receive_until("WATCHDOG=1")
        assert {workers: running.workers for workers, (_, running) in supervised.items()} == processes

        locations.write_bytes(b"no longer usable")
        for workers, (supervisor, running) in supervised.items():
            assert not running.logged("worker_died")
            running.process.send_signal(signal.SIGHUP)
            assert "RELOADING=1" in supervisor.receive_until("READY=1")
            until(lambda: len(running.logged("file_not_reloaded")) == workers, "each worker has kept the last file")  # noqa: B023
            assert running.get("/health/live").status_code == 200
            running.process.terminate()
            supervisor.receive_until("STOPPING=1")
            assert running.wait() == 0


def start(service: Start, home: Path, supervisor: NotifySocket, workers: int, settings: Mapping[str, str]) -> Service:
    """Start a service with this supervisor."""
    running = service("--workers", str(workers), **settings, **supervisor.variables(watchdog=2))
    running.output_file = home / f"{workers}.output"
    running.launch()
    supervisor.receive_until("EXTEND_TIMEOUT_USEC=60000000")
    running.process.send_signal(signal.SIGHUP)  # it serves nothing yet, so there is nothing to reload
    started = supervisor.receive_until("READY=1")
    assert {line.partition("=")[0] for line in started} <= {"EXTEND_TIMEOUT_USEC", "READY"}
    assert running.get("/health/live").status_code == 200
    return running


# Start a program with the first argument as descriptor 3, as systemd does.
PASS_SOCKET: Final = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.execve(sys.argv[2], sys.argv[2:], {**os.environ, "LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"})
"""


def test_the_shell_script_becomes_the_service(own_database: dict[str, str], home: Path) -> None:
    """The process that systemd has started reports, and it takes systemd's socket. A proxy there must name the client."""
    path = home / "tmp" / "socket"
    with NotifySocket() as supervisor, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        settings = {**own_database, **CHEAP_HASHES, "SSO_BIND": "systemd", "SSO_BASE_URL": "https://id.example.com", "SSO_WORKERS": "2"}
        process = subprocess.Popen(
            [sys.executable, "-c", PASS_SOCKET, str(listening.fileno()), str(ROOT / "run"), "gatehouse", "serve"],
            env=environment(home, **settings, **supervisor.variables()),
            pass_fds=[listening.fileno()],
            stdin=subprocess.DEVNULL,
        )
        try:
            supervisor.receive_until("READY=1")
            transport = httpx.HTTPTransport(uds=str(path))
            with httpx.Client(transport=transport, base_url="http://127.0.0.1", timeout=PATIENCE) as proxy:
                assert proxy.get("/health/ready").status_code == 200
                assert proxy.get("/api/user").status_code == 400
                assert proxy.get("/api/user", headers={"X-Forwarded-For": "203.0.113.9"}).status_code == 401
            process.terminate()
            supervisor.receive_until("STOPPING=1")
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
        assert supervisor.senders == {process.pid}
        assert path.exists(), "systemd keeps its socket"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can create a namespace of processes")
def test_the_first_process_of_a_container_ends_while_it_waits_for_the_database(home: Path) -> None:
    first = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-m", "entrypoints.cli", "serve"]
    settings = {"SSO_DATABASE_URL": "postgresql://app@127.0.0.1:9/app", "SSO_ENCRYPTION_KEYS": generate_key()}
    log = home / "tmp" / "log"
    with log.open("w") as output, subprocess.Popen(first, env=environment(home, **settings), stdout=output, stderr=output) as process:
        try:
            until(lambda: "database" in log.read_text(), "the service waits for the database")
            [container] = children(process.pid)
            os.kill(container, signal.SIGTERM)
            assert process.wait(PATIENCE) == 128 + signal.SIGTERM
        finally:
            process.kill()
