"""The embedded database: a real server that is started, killed, and claimed by several processes."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from adapters.postgres.engine import embedded
from adapters.postgres.engine.embedded import EmbeddedError, attach, location, programs, start
from tests import ROOT
from tests.proof.embedded.kept_rows import kept_numbers, write
from tests.support.waiting import until

pytestmark = pytest.mark.slow

# A process that starts a database and stays until it is stopped.
OWNER = """
import sys, time
from pathlib import Path
from adapters.postgres.engine.embedded import start
running = start(Path(sys.argv[1]), durable=False)
print(running.pid, running.conninfo, flush=True)
time.sleep(600)
"""


def has_ended(pid: int) -> bool:
    # A server is adopted when its parent is killed, perhaps by a process that never reaps it. So a
    # zombie has ended, too.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@contextmanager
def owning_process(data: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", OWNER, str(data)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        output, _ = process.communicate()
        if server := output.split():  # empty if the test has read the output
            until(lambda: has_ended(int(server[0])), "the server has ended")


@pytest.fixture
def owner(initialized: Path) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """Another process that runs the database in `initialized`, with the server's pid and its connection string."""
    with owning_process(initialized) as process:
        assert process.stdout is not None
        pid, _, conninfo = process.stdout.readline().strip().partition(" ")
        yield process, int(pid), conninfo
    until(lambda: has_ended(int(pid)), "the server has ended")


# Starting and stopping


def test_rows_are_kept_from_one_start_to_the_next(data: Path) -> None:
    with start(data) as first:
        write(first.conninfo, 1)
        with psycopg.connect(first.conninfo) as connection:
            assert connection.execute("select lower('ÄÖÜ'), current_setting('fsync'), current_setting('listen_addresses')").fetchone() == (
                "äöü",
                "on",
                "",
            )
    with start(data, durable=False) as second:
        assert kept_numbers(second.conninfo) == [1]
        with psycopg.connect(second.conninfo) as connection:
            assert connection.execute("select current_setting('fsync')").fetchone() == ("off",)


def test_stop_shuts_the_server_down_and_may_be_called_again(initialized: Path) -> None:
    running = start(initialized, durable=False)
    idle = psycopg.connect(running.conninfo)
    running.stop()
    running.stop()
    assert has_ended(running.pid)
    assert not (initialized / "postmaster.pid").exists()
    with pytest.raises(psycopg.OperationalError):
        idle.execute("select 1")
    idle.close()


def test_directory_and_socket_are_private(data: Path) -> None:
    with start(data, durable=False):
        assert data.stat().st_mode & 0o777 == 0o700
        assert (data / ".s.PGSQL.5432").stat().st_mode & 0o777 == 0o700
        assert data.with_name("postgres.lock").stat().st_mode & 0o777 == 0o600
        assert data.with_name("postgres.log").stat().st_mode & 0o777 == 0o600


def test_log_contains_no_statements_and_values(initialized: Path) -> None:
    with start(initialized, durable=False) as running, psycopg.connect(running.conninfo, autocommit=True) as connection:
        connection.execute("create table people (email text unique); insert into people values ('a@example.org')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("insert into people values ('a@example.org')")
        with pytest.raises(psycopg.errors.SyntaxError):
            connection.execute("selekt 'a@example.org'")
    assert "example.org" not in initialized.with_name("postgres.log").read_text()


def test_environment_of_the_caller_changes_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PGPORT": "1", "PGDATA": "/nowhere", "PGOPTIONS": "-c fsync=off", "LC_ALL": "nowhere.UTF-8"}.items():
        monkeypatch.setenv(name, value)
    with start(data) as running:
        monkeypatch.delenv("PGOPTIONS")
        write(running.conninfo, 1)
        assert kept_numbers(running.conninfo) == [1]
        with psycopg.connect(running.conninfo) as connection:
            assert connection.execute("select current_setting('fsync')").fetchone() == ("on",)


@pytest.mark.parametrize("name", ["with blanks, a comma and 'quotes\"", "long" * 30])
def test_a_path_that_cannot_hold_the_socket_gets_a_private_directory_for_it(home: Path, name: str) -> None:
    data = home / name / "postgres"
    with start(data, durable=False) as running:
        write(running.conninfo, 1)
        assert attach(data) == running.conninfo
        socket_dir = Path(str(psycopg.conninfo.conninfo_to_dict(running.conninfo)["host"]))
        assert socket_dir != data
        assert socket_dir.stat().st_mode & 0o777 == 0o700
    assert not socket_dir.exists()


def test_a_worker_thread_may_not_start_it(data: Path) -> None:
    caught: list[Exception] = []

    def run() -> None:
        try:
            start(data)
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "main thread" in str(caught[0])


# A single owner


def test_a_second_owner_is_refused(initialized: Path, owner: tuple[subprocess.Popen[str], int, str]) -> None:
    process, _, conninfo = owner
    with pytest.raises(EmbeddedError, match=rf"in use by another process \(pid {process.pid}\): stop that process first"):
        start(initialized)
    write(conninfo, 1)  # the first owner is not affected


def test_other_processes_attach_to_a_running_server(initialized: Path, owner: tuple[subprocess.Popen[str], int, str]) -> None:
    conninfo = attach(initialized)
    assert conninfo == owner[2]
    write(conninfo, 7)
    assert kept_numbers(owner[2]) == [7]


def test_without_a_running_server_there_is_nothing_to_attach_to(initialized: Path) -> None:
    assert attach(initialized) is None
    start(initialized, durable=False).stop()
    assert attach(initialized) is None


def test_attaching_waits_for_a_server_that_is_starting(data: Path) -> None:
    with owning_process(data):
        until(lambda: location.has_owner(data), "the directory has an owner")
        conninfo = attach(data)
        assert conninfo is not None
        write(conninfo, 1)


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_server_ends_with_its_parent_and_keeps_its_rows(
    initialized: Path, owner: tuple[subprocess.Popen[str], int, str], sign: signal.Signals
) -> None:
    process, server, conninfo = owner
    write(conninfo, 1)
    process.send_signal(sign)
    process.wait()
    until(lambda: has_ended(server), "the server has ended")
    assert not (initialized / "postmaster.pid").exists()  # the server shut down and did not crash
    with start(initialized, durable=False) as running:
        assert kept_numbers(running.conninfo) == [1]


def test_next_start_waits_for_the_server_of_a_killed_owner(initialized: Path, owner: tuple[subprocess.Popen[str], int, str]) -> None:
    process, _, conninfo = owner
    write(conninfo, 1)
    busy = psycopg.connect(conninfo)
    busy.execute("select 1")
    process.kill()
    process.wait()
    with start(initialized, durable=False) as running:  # at once
        assert kept_numbers(running.conninfo) == [1]
    busy.close()


def test_killed_server_recovers_at_the_next_start(initialized: Path) -> None:
    first = start(initialized)
    write(first.conninfo, 1)
    os.kill(first.pid, signal.SIGKILL)
    first.stop()
    assert (initialized / "postmaster.pid").exists()
    with start(initialized) as second:
        assert kept_numbers(second.conninfo) == [1]


def test_files_of_a_crash_do_not_stop_a_start(initialized: Path) -> None:
    with start(initialized) as first:
        write(first.conninfo, 1)
        left = (initialized / "postmaster.pid").read_text()
    # As after a machine's crash, when a process of the same user got the server's pid.
    stranger = start(initialized.with_name("another"), durable=False)
    (initialized / "postmaster.pid").write_text(left.replace(str(first.pid), str(stranger.pid), 1))
    shutil.copystat(initialized / "PG_VERSION", initialized / "postmaster.pid")
    os.chown(initialized / "postmaster.pid", initialized.stat().st_uid, initialized.stat().st_gid)
    initialized.with_name("postgres.lock").write_text("123456\n")
    with stranger, start(initialized) as second:
        assert kept_numbers(second.conninfo) == [1]
        assert not has_ended(stranger.pid)


def test_an_interrupted_creation_starts_over(data: Path) -> None:
    half = data.with_name("postgres.new")
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    with start(data, durable=False) as running:
        write(running.conninfo, 1)
    assert not half.exists()


# Errors


def test_a_database_of_another_version_is_refused(data: Path) -> None:
    data.mkdir()
    (data / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(EmbeddedError, match=r"was created by PostgreSQL 9\.6, but .* has version \d+: set PG_BINDIR"):
        start(data)


def test_a_directory_with_other_files_is_not_touched(data: Path) -> None:
    data.mkdir()
    (data / "letters.txt").write_text("dear")
    with pytest.raises(EmbeddedError, match="is not a data directory of PostgreSQL"):
        start(data)
    assert (data / "letters.txt").read_text() == "dear"


def test_an_empty_directory_is_used(data: Path) -> None:
    data.mkdir(parents=True)
    with start(data, durable=False) as running:
        write(running.conninfo, 1)


def test_the_error_names_the_reason_of_a_failed_start(initialized: Path) -> None:
    start(initialized, durable=False).stop()
    with (initialized / "postgresql.conf").open("a") as file:
        file.write("max_wal_senders = many\n")
    with pytest.raises(EmbeddedError, match=r"did not start: configuration file .* contains errors"):
        start(initialized)
    assert not location.has_owner(initialized)


def test_a_wrong_pg_bindir_is_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PG_BINDIR", "/nonexistent")
    with pytest.raises(
        EmbeddedError, match="PG_BINDIR is /nonexistent, but this directory does not contain the programs postgres and initdb"
    ):
        start(data)


def test_without_postgresql_the_error_says_how_to_install_it(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PG_BINDIR", raising=False)
    for source in ("_package_directories", "_debian_directories", "_path_directories"):
        monkeypatch.setattr(programs, source, lambda: iter(()))
    with pytest.raises(EmbeddedError, match="apt-get install postgresql"):
        start(data)


def test_programs_are_searched_in_order(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def add_programs(name: str) -> Path:
        directory = home / name / "bin"
        directory.mkdir(parents=True)
        for program in ("postgres", "initdb"):
            (directory / program).touch(0o755)
        return directory

    monkeypatch.delenv("PG_BINDIR", raising=False)
    path, debian, wheel, configured = add_programs("path"), add_programs("debian"), add_programs("wheel"), add_programs("configured")
    for source in ("_package_directories", "_debian_directories", "_path_directories"):
        monkeypatch.setattr(programs, source, lambda: iter(()))
    monkeypatch.setattr(programs, "_path_directories", lambda: iter([path]))
    assert programs.find_programs() == path
    monkeypatch.setattr(programs, "_debian_directories", lambda: iter([home / "not there", debian]))
    assert programs.find_programs() == debian
    monkeypatch.setattr(programs, "_package_directories", lambda: iter([wheel]))
    assert programs.find_programs() == wheel
    monkeypatch.setenv("PG_BINDIR", str(configured))
    assert programs.find_programs() == configured


def test_newest_version_comes_first() -> None:
    assert programs._newest_first(iter(Path(f"/usr/lib/postgresql/{number}/bin") for number in (9, 15, 17, 8)))[0].parent.name == "17"


def test_the_package_exports_its_public_names() -> None:
    assert set(embedded.__all__) == {"EmbeddedError", "Running", "attach", "exists", "launch", "locate", "scratch", "start"}
