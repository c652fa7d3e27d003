"""The service under a supervisor such as systemd: its start, its watchdog, a reload and its end."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from adapters.crypto import generate_key
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.process import DatabaseServer, children
from tests.support.supervisor import NotifySocket
from tests.support.waiting import until

pytestmark = pytest.mark.slow

PERIODS = 12  # beats while the database is frozen; the supervisor waits for four
LOCATIONS = Path(__file__).parents[2] / "fakes" / "geoip.mmdb"


@contextmanager
def frozen(conninfo: str) -> Iterator[None]:
    """Freeze all processes of the database server."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        [(backend,)] = connection.execute("select pg_backend_pid()").fetchall()
    stat = Path(f"/proc/{backend}/stat").read_text()
    server = int(stat.rpartition(")")[2].split()[1])
    processes = [server, *children(server)]
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in processes:
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_frozen_database_restarts_nothing(service: Start, server: DatabaseServer, tmp_path: Path, workers: str) -> None:
    locations = tmp_path / "locations.mmdb"
    shutil.copy(LOCATIONS, locations)
    conninfo = server.start().conninfo
    settings = {"SSO_DATABASE_URL": conninfo, "SSO_ENCRYPTION_KEYS": generate_key(), "SSO_GEOIP_DATABASE": str(locations)}
    with NotifySocket() as supervisor:
        running = service("--workers", workers, **settings, **supervisor.variables(watchdog=4)).start()
        started = supervisor.receive_until("READY=1")
        assert {line.partition("=")[0] for line in started} <= {"EXTEND_TIMEOUT_USEC", "READY"}
        assert "EXTEND_TIMEOUT_USEC=60000000" in started
        processes = running.workers
        with frozen(conninfo):
            for _ in range(PERIODS):
                supervisor.receive_until("WATCHDOG=1")
        assert running.workers == processes
        assert not running.logged("worker_died")

        locations.write_bytes(b"no longer usable")
        running.process.send_signal(signal.SIGHUP)
        assert "RELOADING=1" in supervisor.receive_until("READY=1")
        until(lambda: len(running.logged("file_not_reloaded")) == int(workers), "each worker has kept the last file")
        assert running.get("/health/live").status_code == 200
        running.process.terminate()
        supervisor.receive_until("STOPPING=1")
        assert running.wait() == 0
