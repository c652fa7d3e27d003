"""The user that runs the embedded server, where its data is, and the lock on its data directory.

An ordinary user runs the server in the requested directory. PostgreSQL refuses to run as root, so for root it runs as
`nobody`. `nobody` may be unable to reach a project under /root; then data and programs go to FALLBACK_DIRECTORY.
"""

import fcntl
import hashlib
import os
import pwd
import secrets
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from adapters.postgres.engine.embedded.programs import EmbeddedError

FALLBACK_DIRECTORY = Path("/var/lib/gatehouse-dev")

_LOCK_TIMEOUT = 0.5  # seconds


@dataclass(frozen=True, slots=True)
class ServerUser:
    """The user that runs the server if root starts it."""

    name: str
    uid: int
    gid: int

    def can_reach(self, path: Path) -> bool:
        return all(self._may_enter(parent) for parent in path.parents)

    def can_run(self, program: Path) -> bool:
        return self.can_reach(program) and self.can_reach(program.resolve()) and self._may_enter(program)

    def _may_enter(self, path: Path) -> bool:
        status = path.stat()
        shift = 6 if status.st_uid == self.uid else 3 if status.st_gid == self.gid else 0
        return bool(status.st_mode >> shift & 1)


def server_user(data_dir: Path) -> ServerUser | None:
    """For root, return the owner of existing data or `nobody`. For all other users, who run the server themselves, return None."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
        if (data_dir / "PG_VERSION").exists() and (owner := data_dir.stat().st_uid) != 0:
            entry = pwd.getpwuid(owner)
    except KeyError:  # initdb also refuses a user without an entry
        raise EmbeddedError("Root cannot run PostgreSQL, and the user `nobody` does not exist: start this as an ordinary user.") from None
    return ServerUser(entry.pw_name, entry.pw_uid, entry.pw_gid)


def data_location(data_dir: Path, user: ServerUser | None) -> Path:
    """Return the database's directory.

    The directory is `data_dir`, or a directory under FALLBACK_DIRECTORY that the file `<data_dir>.location` names.
    """
    data = data_dir.resolve()
    location = data.with_name(data.name + ".location")
    if user is not None and location.exists() and not (data / "PG_VERSION").exists():
        return Path(location.read_text().strip())
    return data


def choose_data_location(data_dir: Path, user: ServerUser | None) -> Path:
    """Return the database's directory, and choose it first if the database is new."""
    data = data_location(data_dir, user)
    data.parent.mkdir(parents=True, exist_ok=True)
    if user is not None and not user.can_reach(data):
        # The random name is stored beside the service's other files, such as the encryption keys.
        # If the operator deletes them all, the next start creates a new database. The old database
        # would be useless without its keys.
        location = data.with_name(data.name + ".location")
        location.write_text(f"{_public_directory('data') / secrets.token_hex(8)}\n")
        data = data_location(data_dir, user)
    return data


def runnable_programs(programs: Path, user: ServerUser | None) -> Path:
    """Return the programs, or a copy that `user` can run.

    The permissions on the present user's own directories are never changed for this.
    """
    if user is None or user.can_run(programs / "postgres"):
        return programs
    install, package = programs.parent, programs.parent.parent
    libraries = package.with_name(package.name + ".libs")  # programs from a wheel look for them here
    if not libraries.is_dir():
        raise EmbeddedError(f"The user {user.name} cannot run the programs in {programs}: set PG_BINDIR to other ones.")
    stamp = (programs / "postgres").stat()
    key = hashlib.sha256(f"{programs}:{stamp.st_size}:{stamp.st_mtime_ns}".encode()).hexdigest()[:16]
    target = _public_directory("programs") / key
    if not target.exists():
        staging = Path(tempfile.mkdtemp(dir=target.parent))
        try:
            unused = shutil.ignore_patterns("include", "*.a", "pkgconfig")
            shutil.copytree(install, staging / package.name / install.name, ignore=unused, symlinks=True)
            shutil.copytree(libraries, staging / libraries.name, symlinks=True)
            for path in (staging, *staging.rglob("*")):
                if not path.is_symlink():  # with umask 077 only root could read the files
                    path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
            staging.rename(target)  # all or nothing, in case two starts do this at once
        except OSError:
            shutil.rmtree(staging, ignore_errors=True)
            if not target.exists():
                raise
    return target / package.name / install.name / programs.name


def _public_directory(name: str) -> Path:
    directory = FALLBACK_DIRECTORY / name
    directory.mkdir(parents=True, exist_ok=True)
    for created in (FALLBACK_DIRECTORY, directory):
        created.chmod(0o755)  # with umask 077 the server could not read them
    return directory


# The owner's lock


def lock(data: Path) -> int:
    """Make this process the owner of the directory until it ends. Raises: EmbeddedError if another process is the owner."""
    descriptor = os.open(_lock_file(data), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _take(descriptor, data)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _take(descriptor: int, data: Path) -> None:
    deadline = time.monotonic() + _LOCK_TIMEOUT  # `has_owner` in another process takes the lock for an instant
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
                raise EmbeddedError(
                    f"The database in {data} is in use by another process (pid {owner}): stop that process first."
                ) from None
        time.sleep(0.02)


def has_owner(data: Path) -> bool:
    """Return whether a process, perhaps this process, owns the directory now."""
    try:
        descriptor = os.open(_lock_file(data), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _lock_file(data: Path) -> Path:
    return data.with_name(data.name + ".lock")
