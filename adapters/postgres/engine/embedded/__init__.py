"""The embedded PostgreSQL server for development and tests, which starts and stops with this process.

This package runs PostgreSQL's own programs. The package creates the data, and starts and stops the server, a child
process that ends with its parent. The server listens on a socket in a private directory and on no port. The server has
a single owner: the process that holds the lock on `<data>.lock`.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from psycopg.conninfo import make_conninfo

from adapters.postgres.engine.embedded.location import (
    ServerUser,
    choose_data_location,
    data_location,
    has_owner,
    lock,
    runnable_programs,
    server_user,
)
from adapters.postgres.engine.embedded.programs import ENVIRONMENT, EmbeddedError, find_programs, version_of

__all__ = ["EmbeddedError", "Running", "attach", "exists", "launch", "locate", "scratch", "start"]

_LINUX: bool = sys.platform == "linux"

MAX_CONNECTIONS: Final = 200
PORT: Final = 5432  # part of the socket's name only. Always given, so that a PGPORT in the environment changes nothing.
USER: Final = "app"

_START_TIMEOUT: Final = 120.0  # seconds; recovery after a crash can take a while
_PREDECESSOR_TIMEOUT: Final = 15.0  # seconds
# sun_path has 108 bytes on Linux and 104 elsewhere, including the final NUL.
_LONGEST_SOCKET_PATH: Final = 107 if _LINUX else 103


class Running:
    """A running server with its connection string and its log file. As a context manager it stops when the block ends."""

    def __init__(self, conninfo: str, data: Path, lock: int, process: subprocess.Popen[bytes], clean_up: contextlib.ExitStack) -> None:
        self.conninfo = conninfo
        self.log = _log_file(data)
        self._data = data
        self._lock = lock
        self._process = process
        self._clean_up = clean_up

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the server has ended, by itself or by `stop`. The log may say why. SIGCHLD announces the end."""
        return self._process.poll() is not None

    def wait_until_ready(self) -> None:
        """Return when the server accepts connections.

        Raises: EmbeddedError.
        """
        deadline = time.monotonic() + _START_TIMEOUT
        while (server := _Server.in_directory(self._data)) is None or server.pid != self.pid or not server.ready:
            if self.ended:
                raise EmbeddedError(f"The database in {self._data} did not start: {_reason(self._data)}")
            if time.monotonic() > deadline:
                raise EmbeddedError(f"The database in {self._data} did not become ready in {_START_TIMEOUT:.0f} s: see {self.log}.")
            time.sleep(0.002)

    def stop(self) -> None:
        """Stop the server. Open transactions are rolled back, and committed data is kept. A second call does nothing."""
        self._clean_up.close()

    def disown(self) -> None:
        """Leave the server to the parent, in a process that its owner forked. Otherwise the lock would outlive the owner."""
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def start(data_dir: Path, *, durable: bool = True) -> Running:
    """Start the database in `data_dir`, create it first if it is missing, and return when it accepts connections.

    See `launch`. Raises: EmbeddedError.
    """
    running = launch(data_dir, durable=durable)
    try:
        running.wait_until_ready()
    except BaseException:
        running.stop()
        raise
    return running


def launch(data_dir: Path, *, durable: bool = True) -> Running:
    """Launch the server for the database in `data_dir`, create the database first if it is missing, and return before the server is ready.

    Call this in the main thread, before `trio.run`: on Linux the server ends with the thread that forked it, and a Trio
    worker thread ends after ten idle seconds. With `durable=False`, for tests, a machine crash may lose data. Raises:
    EmbeddedError.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("start the embedded database in the main thread: it ends with the thread that started it")
    try:
        with contextlib.ExitStack() as clean_up:  # in reverse order: the server, its socket, and then the lock for the next owner
            user = server_user(data_dir)
            programs = runnable_programs(find_programs(), user)
            version = version_of(programs)
            data = choose_data_location(data_dir, user)
            own_lock = lock(data)
            clean_up.callback(os.close, own_lock)
            if not (data / "PG_VERSION").exists():
                _create(data, programs, user, durable=durable)
            elif (data_version := (data / "PG_VERSION").read_text().strip()) != str(version):
                raise EmbeddedError(
                    f"The database in {data} was created by PostgreSQL {data_version}, but {programs} has version {version}: "
                    f"set PG_BINDIR to programs of version {data_version}, or move the directory away to start with an empty database."
                )
            _wait_for_predecessor(data)
            socket_dir = _socket_dir(data, user, clean_up)
            command = [str(programs / "postgres"), *_options(data, socket_dir, durable=durable)]
            process = _launch(command, user, _log_file(data))
            clean_up.callback(_end, process)
            return Running(_conninfo(socket_dir), data, own_lock, process, clean_up.pop_all())
    except OSError as error:
        raise EmbeddedError(f"The embedded database in {data_dir} could not be started: {error}.") from error


@contextlib.contextmanager
def scratch() -> Iterator[Running]:
    """Run a new database in a temporary directory, and remove the directory when the block ends. Raises: EmbeddedError."""
    with tempfile.TemporaryDirectory(prefix="gatehouse-scratch-") as name:
        data_dir = Path(name) / "postgres"
        if (user := server_user(data_dir)) is not None:
            Path(name).chmod(0o711)  # the server's user must be able to enter
        try:
            with start(data_dir, durable=False) as running:
                yield running
        finally:
            data = data_location(data_dir, user)
            if data != data_dir.resolve():  # that user cannot reach the temporary directory
                shutil.rmtree(data, ignore_errors=True)
                for file in data.parent.glob(f"{data.name}.*"):
                    file.unlink()


def exists(data_dir: Path) -> bool:
    """Return whether `data_dir` has a database, running or not."""
    return (locate(data_dir) / "PG_VERSION").exists()


def locate(data_dir: Path) -> Path:
    """Return the directory with the database for `data_dir`: another directory if the server's user cannot reach `data_dir`."""
    return data_location(data_dir, server_user(data_dir))


def attach(data_dir: Path) -> str | None:
    """Return the connection string for the database that another process runs in `data_dir`, or None if no process does.

    Wait for a server that is just starting. Raises: EmbeddedError.
    """
    deadline = time.monotonic() + _START_TIMEOUT
    try:
        while has_owner(data := data_location(data_dir, server_user(data_dir))):
            if (server := _Server.in_directory(data)) is not None and server.ready and _runs_in(server.pid, data):
                return _conninfo(server.socket_dir)
            if time.monotonic() > deadline:
                raise EmbeddedError(f"The database in {data} belongs to another process and does not become ready.")
            time.sleep(0.01)
    except OSError as error:
        raise EmbeddedError(f"The embedded database in {data_dir} could not be reached: {error}.") from error
    return None


def _conninfo(socket_dir: Path) -> str:
    return make_conninfo("", host=str(socket_dir), port=PORT, dbname="postgres", user=USER)


def _log_file(data: Path) -> Path:
    return data.with_name(data.name + ".log")


def _socket_dir(data: Path, user: ServerUser | None, clean_up: contextlib.ExitStack) -> Path:
    # libpq treats a comma as the name's end.
    if len(os.fsencode(data)) + len(f"/.s.PGSQL.{PORT}") <= _LONGEST_SOCKET_PATH and "," not in str(data):
        return data
    # A private directory: in a shared directory, any local user could pose as the server.
    directory = Path(tempfile.mkdtemp(prefix="gatehouse-"))
    clean_up.callback(shutil.rmtree, directory, ignore_errors=True)
    if user is not None:
        os.chown(directory, user.uid, user.gid)
    return directory


def _create(data: Path, programs: Path, user: ServerUser | None, *, durable: bool) -> None:
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise EmbeddedError(f"{data} exists, but it is not a data directory of PostgreSQL.")
    # Created beside its final place and moved there, so that a killed initdb leaves nothing that
    # looks like a database.
    new = data.with_name(data.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    if user is not None:
        os.chown(new, user.uid, user.gid)
    # The locale C.UTF-8, because plain C has upper and lower case for ASCII only.
    options = ["-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-instructions", *([] if durable else ["--no-sync"])]
    process = _launch([str(programs / "initdb"), "-D", str(new), *options], user, _log_file(data))
    try:
        if process.wait() != 0:
            raise EmbeddedError(f"The database in {data} could not be created: {_reason(data)}")
        new.rename(data)
    except BaseException:
        process.kill()
        process.wait()
        shutil.rmtree(new, ignore_errors=True)
        raise


def _options(data: Path, socket_dir: Path, *, durable: bool) -> Iterator[str]:
    quoted = str(socket_dir).replace('"', '""')
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": f'"{quoted}"',  # a list; the quotes protect a name with blanks
        "unix_socket_permissions": "0700",
        "max_connections": str(MAX_CONNECTIONS),
        # A sign-in opens about 120 tables and indexes. PostgreSQL 18 locks this many without its shared lock table.
        "max_locks_per_transaction": "256",
        "timezone": "UTC",
        "log_timezone": "UTC",
        # Failed statements and their values may be personal data. The service logs what operators
        # need, without values.
        "log_min_messages": "log",
        "log_min_error_statement": "panic",
        "log_error_verbosity": "terse",
    }
    if not durable:
        # The write-ahead log is kept small, because the directory is usually in memory.
        settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_wal_size": "256MB"}
    yield from ("-D", str(data), "-p", str(PORT))
    for name, value in settings.items():
        yield from ("-c", f"{name}={value}")


# The server's process


def _launch(command: list[str], user: ServerUser | None, log: Path) -> subprocess.Popen[bytes]:
    identity: dict[str, Any] = {"user": user.uid, "group": user.gid, "extra_groups": []} if user is not None else {}
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=ENVIRONMENT,
            start_new_session=True,  # Ctrl-C in the terminal reaches only the service, which then stops the server properly
            preexec_fn=_end_with_parent(),
            **identity,
        )
    finally:
        os.close(output)


def _end_with_parent() -> Callable[[], None] | None:
    """Return a function for the child to run before it becomes the server.

    Python runs the function after the user has changed, which would undo its effect.

    With SCHED_BATCH, a server session that has work does not interrupt a process that runs, but comes after it. Otherwise a busy worker is
    interrupted three times per sign-in, and then finds the processor's caches filled with foreign data.
    """
    if not _LINUX:
        return None  # here the next start ends a server that was left behind
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def ask_the_kernel() -> None:
        prctl(1, signal.SIGINT, 0, 0, 0)  # PR_SET_PDEATHSIG; SIGINT is PostgreSQL's fast shutdown
        with contextlib.suppress(OSError):  # forbidden in some containers
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        if os.getppid() != parent:  # the parent ended before the request, so no signal will come
            os._exit(1)

    return ask_the_kernel


def _end(process: subprocess.Popen[bytes]) -> None:
    # PostgreSQL's fast shutdown, then the immediate shutdown, which needs recovery at the next
    # start, then a kill.
    for number, seconds in ((signal.SIGINT, 30.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)):
        process.send_signal(number)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
        return


@dataclass(frozen=True, slots=True)
class _Server:
    """The server in a directory, according to its file `postmaster.pid`."""

    pid: int
    socket_dir: Path
    ready: bool

    @classmethod
    def in_directory(cls, data: Path) -> Self | None:
        try:
            lines = (data / "postmaster.pid").read_text().splitlines()
            # The file grows line by line while the server starts. The lines are pid, data, time,
            # port, socket, address, memory, status.
            return cls(int(lines[0]), Path(lines[4] if len(lines) > 4 else ""), len(lines) > 7 and lines[7].strip() == "ready")
        except (FileNotFoundError, IndexError, ValueError):
            return None


def _wait_for_predecessor(data: Path) -> None:
    """Wait until a killed owner's server has ended. The lock is free at once, but the server needs some milliseconds."""
    server = _Server.in_directory(data)
    if server is None:
        return
    if not _LINUX and _runs_in(server.pid, data):
        os.kill(server.pid, signal.SIGINT)  # the kernel did not do it
    deadline = time.monotonic() + _PREDECESSOR_TIMEOUT
    while _runs_in(server.pid, data):
        if time.monotonic() > deadline:
            raise EmbeddedError(f"Another PostgreSQL (pid {server.pid}) runs in {data} and does not end: stop it first.")
        time.sleep(0.005)
    # After the machine or container crashed, the pid in the file can belong to another process by
    # the same user, and PostgreSQL would not start. PostgreSQL ignores its parent's pid, so that is
    # written instead. The rest stays in the file, because PostgreSQL uses it to look for survivors
    # in shared memory.
    pid_file = data / "postmaster.pid"
    with contextlib.suppress(FileNotFoundError):
        rest = pid_file.read_text().partition("\n")[2]
        with pid_file.open("r+") as file:
            file.write(f"{os.getpid()}\n{rest}")
            file.truncate()


def _runs_in(pid: int, data: Path) -> bool:
    """Return whether this process is a server in this directory, because pids are reused."""
    if _LINUX:
        try:
            return os.readlink(f"/proc/{pid}/cwd") == str(data)  # a server's working directory is its data directory
        except OSError:
            return False
    result = subprocess.run(["/bin/ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S603
    return str(data) in result.stdout


def _reason(data: Path) -> str:
    """Return the log line that explains the failure."""
    lines = [line.strip() for line in _log_file(data).read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "FATAL:" in line or "error:" in line]
    return (errors or lines or ["it gave no reason."])[-1].rpartition("FATAL:")[2].strip()
