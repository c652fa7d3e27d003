"""A PostgreSQL of our own, for development and tests: found, created, started and stopped with this process.

Only the programs are foreign, the life cycle is ours. The server is a direct child that ends with its parent, listens on
a socket in a private directory and on no port, and has one owner: the process that holds the lock on `<data>.lock`.
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

from adapters.postgres.engine.embedded.place import Account, account_for, choose_place, has_owner, lock, place_of, reachable
from adapters.postgres.engine.embedded.programs import ENVIRONMENT, EmbeddedError, find_programs, version_of

__all__ = ["EmbeddedError", "Running", "attach", "start"]

_LINUX: bool = sys.platform == "linux"

MAX_CONNECTIONS: Final = 200
PORT: Final = 5432  # only part of the socket's name; named everywhere, so that a PGPORT in the environment changes nothing
USER: Final = "app"

_START_PATIENCE: Final = 120.0  # recovery after a crash can take a while
_PREDECESSOR_PATIENCE: Final = 15.0
# sun_path has 108 bytes on Linux and 104 elsewhere, the closing NUL included.
_LONGEST_SOCKET_PATH: Final = 107 if _LINUX else 103


class Running:
    """A running server: `conninfo` reaches it, `log` is its log file, `stop()` ends it. As a context manager it stops at the end."""

    def __init__(self, conninfo: str, log: Path, process: subprocess.Popen[bytes], clean_up: contextlib.ExitStack) -> None:
        self.conninfo = conninfo
        self.log = log
        self._process = process
        self._clean_up = clean_up

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the server has ended, of itself or by `stop`; `log` may say why. Its end is announced by SIGCHLD."""
        return self._process.poll() is not None

    def stop(self) -> None:
        """End the server: open transactions are rolled back, everything committed is kept. May be called again."""
        self._clean_up.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def start(data_dir: Path, *, durable: bool = True) -> Running:
    """Start the database in `data_dir`, which is created when it is missing, and return when it answers.

    Call it in the main thread, before `trio.run`: Linux ties the promise that the server ends with its parent to the
    thread that forked it, and a worker thread of Trio goes away after ten idle seconds. With `durable=False` nothing
    need survive a crash of the machine; that is for tests. Raises EmbeddedError.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("start the embedded database in the main thread: it ends with the thread that started it")
    try:
        with contextlib.ExitStack() as clean_up:  # last in, first out: server, socket, and then the lock for the next owner
            account = account_for(data_dir)
            programs = reachable(find_programs(), account)
            version = version_of(programs)
            data = choose_place(data_dir, account)
            clean_up.callback(os.close, lock(data))
            if not (data / "PG_VERSION").exists():
                _create(data, programs, account, durable=durable)
            elif (made_by := (data / "PG_VERSION").read_text().strip()) != str(version):
                raise EmbeddedError(
                    f"The database in {data} was made by PostgreSQL {made_by}, but the programs in {programs} are version {version}: "
                    f"set PG_BINDIR to those of version {made_by}, or move the directory away to begin with an empty database."
                )
            _let_predecessor_end(data)
            socket_dir = _socket_dir(data, account, clean_up)
            command = [str(programs / "postgres"), *_options(data, socket_dir, durable=durable)]
            process = _launch(command, account, _log_of(data))
            clean_up.callback(_end, process)
            _wait_until_ready(process, data)
            return Running(_conninfo(socket_dir), _log_of(data), process, clean_up.pop_all())
    except OSError as error:
        raise EmbeddedError(f"The embedded database in {data_dir} could not be started: {error}.") from error


def attach(data_dir: Path) -> str | None:
    """How to reach the database that another process runs in `data_dir`, or None if none does.

    One that is being started at this moment is waited for. Raises EmbeddedError.
    """
    deadline = time.monotonic() + _START_PATIENCE
    try:
        while has_owner(data := place_of(data_dir, account_for(data_dir))):
            if (server := _Server.in_directory(data)) is not None and server.ready and _runs_in(server.pid, data):
                return _conninfo(server.socket_dir)
            if time.monotonic() > deadline:
                raise EmbeddedError(f"The database in {data} belongs to another process and does not get ready.")
            time.sleep(0.01)
    except OSError as error:
        raise EmbeddedError(f"The embedded database in {data_dir} could not be reached: {error}.") from error
    return None


def _conninfo(socket_dir: Path) -> str:
    return make_conninfo("", host=str(socket_dir), port=PORT, dbname="postgres", user=USER)


def _log_of(data: Path) -> Path:
    return data.with_name(data.name + ".log")


def _socket_dir(data: Path, account: Account | None, clean_up: contextlib.ExitStack) -> Path:
    # libpq would take a comma for the end of the name.
    if len(os.fsencode(data)) + len(f"/.s.PGSQL.{PORT}") <= _LONGEST_SOCKET_PATH and "," not in str(data):
        return data
    # A private directory with a name of its own: in a shared one anybody could pose as the server.
    directory = Path(tempfile.mkdtemp(prefix="gatehouse-"))
    clean_up.callback(shutil.rmtree, directory, ignore_errors=True)
    if account is not None:
        os.chown(directory, account.uid, account.gid)
    return directory


def _create(data: Path, programs: Path, account: Account | None, *, durable: bool) -> None:
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise EmbeddedError(f"{data} exists, but it is not the data directory of a PostgreSQL.")
    # Built beside and moved into place, so that an initdb killed half way leaves nothing that looks like a database.
    new = data.with_name(data.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    if account is not None:
        os.chown(new, account.uid, account.gid)
    # Plain C as the locale would know no upper and lower case beyond ASCII.
    options = ["-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-instructions", *([] if durable else ["--no-sync"])]
    process = _launch([str(programs / "initdb"), "-D", str(new), *options], account, _log_of(data))
    try:
        if process.wait() != 0:
            raise EmbeddedError(f"The database in {data} could not be created: {_last_words(data)}")
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
        "unix_socket_directories": f'"{quoted}"',  # it is a list; the quotes keep a name with blanks in one piece
        "unix_socket_permissions": "0700",
        "max_connections": str(MAX_CONNECTIONS),
        "timezone": "UTC",
        "log_timezone": "UTC",
        # Statements that fail, and the values in them, are personal data: the service logs what it needs, without values.
        "log_min_messages": "log",
        "log_min_error_statement": "panic",
        "log_error_verbosity": "terse",
    }
    if not durable:
        # The write-ahead log is kept small, because the directory usually lies in memory.
        settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_wal_size": "256MB"}
    yield from ("-D", str(data), "-p", str(PORT))
    for name, value in settings.items():
        yield from ("-c", f"{name}={value}")


# -- the server's process ----------------------------------------------------------------------------------------------


def _launch(command: list[str], account: Account | None, log: Path) -> subprocess.Popen[bytes]:
    identity: dict[str, Any] = {"user": account.uid, "group": account.gid, "extra_groups": []} if account is not None else {}
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=ENVIRONMENT,
            start_new_session=True,  # a Ctrl-C in the terminal is for the service, which then stops the server in good order
            preexec_fn=_end_with_parent(),
            **identity,
        )
    finally:
        os.close(output)


def _end_with_parent() -> Callable[[], None] | None:
    """What the child runs before it becomes the server. Python runs it after the change of user, which would undo it."""
    if not _LINUX:
        return None  # there the next start ends a server that was left behind
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def ask_the_kernel() -> None:
        prctl(1, signal.SIGINT, 0, 0, 0)  # PR_SET_PDEATHSIG; SIGINT is PostgreSQL's fast shutdown
        if os.getppid() != parent:  # the parent ended before the request, so no signal will come
            os._exit(1)

    return ask_the_kernel


def _end(process: subprocess.Popen[bytes]) -> None:
    # PostgreSQL's fast shutdown, then the immediate one, which needs recovery at the next start, then none at all.
    for sign, patience in ((signal.SIGINT, 30.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)):
        process.send_signal(sign)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        return


@dataclass(frozen=True, slots=True)
class _Server:
    """What `postmaster.pid` says of the server in a directory."""

    pid: int
    socket_dir: Path
    ready: bool

    @classmethod
    def in_directory(cls, data: Path) -> Self | None:
        try:
            lines = (data / "postmaster.pid").read_text().splitlines()
            # The file grows line by line as the server starts; the lines are pid, data, time, port, socket, address, memory, status.
            return cls(int(lines[0]), Path(lines[4] if len(lines) > 4 else ""), len(lines) > 7 and lines[7].strip() == "ready")
        except (FileNotFoundError, IndexError, ValueError):
            return None


def _wait_until_ready(process: subprocess.Popen[bytes], data: Path) -> None:
    deadline = time.monotonic() + _START_PATIENCE
    while (server := _Server.in_directory(data)) is None or server.pid != process.pid or not server.ready:
        if process.poll() is not None:
            raise EmbeddedError(f"The database in {data} did not start: {_last_words(data)}")
        if time.monotonic() > deadline:
            raise EmbeddedError(f"The database in {data} did not get ready in {_START_PATIENCE:.0f} s: see {_log_of(data)}.")
        time.sleep(0.002)


def _let_predecessor_end(data: Path) -> None:
    """Wait for the server of an owner that was killed: the lock is free at once, the server needs some milliseconds more."""
    server = _Server.in_directory(data)
    if server is None:
        return
    if not _LINUX and _runs_in(server.pid, data):
        os.kill(server.pid, signal.SIGINT)  # there the kernel did not do it
    deadline = time.monotonic() + _PREDECESSOR_PATIENCE
    while _runs_in(server.pid, data):
        if time.monotonic() > deadline:
            raise EmbeddedError(f"Another PostgreSQL (pid {server.pid}) runs in {data} and does not end: stop it first.")
        time.sleep(0.005)
    # After a crash of the machine or container the number in the file can be that of some other process of the same user,
    # and PostgreSQL would not start. Its parent's number it takes for such a coincidence, so that is put in place of it;
    # the rest of the file stays, because by it PostgreSQL looks for survivors in shared memory.
    pid_file = data / "postmaster.pid"
    with contextlib.suppress(FileNotFoundError):
        rest = pid_file.read_text().partition("\n")[2]
        with pid_file.open("r+") as file:
            file.write(f"{os.getpid()}\n{rest}")
            file.truncate()


def _runs_in(pid: int, data: Path) -> bool:
    """Whether this process is a server in this directory: process numbers are used again."""
    if _LINUX:
        try:
            return os.readlink(f"/proc/{pid}/cwd") == str(data)  # a server makes its data the working directory
        except OSError:
            return False
    said = subprocess.run(["/bin/ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S603
    return str(data) in said.stdout


def _last_words(data: Path) -> str:
    """The line of the log that says what went wrong."""
    lines = [line.strip() for line in _log_of(data).read_text(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if "FATAL:" in line or "error:" in line]
    return (telling or lines or ["it gave no reason."])[-1].rpartition("FATAL:")[2].strip()
