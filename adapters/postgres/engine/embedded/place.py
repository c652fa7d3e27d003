"""Which account runs the server, where its data lies, and who owns them.

An ordinary user's server runs as that user, in the directory that was asked for. PostgreSQL refuses to run as root, so
root lends it to `nobody`, who may be unable to reach a project under /root; then data and programs move to ELSEWHERE.
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

ELSEWHERE = Path("/var/lib/gatehouse-dev")

_LOCK_PATIENCE = 0.5


@dataclass(frozen=True, slots=True)
class Account:
    """The user that runs the server when root starts it."""

    name: str
    uid: int
    gid: int

    def can_reach(self, path: Path) -> bool:
        return all(self._may_enter(parent) for parent in path.parents)

    def can_run(self, program: Path) -> bool:
        return self.can_reach(program) and self.can_reach(program.resolve()) and self._may_enter(program)

    def _may_enter(self, path: Path) -> bool:
        found = path.stat()
        shift = 6 if found.st_uid == self.uid else 3 if found.st_gid == self.gid else 0
        return bool(found.st_mode >> shift & 1)


def account_for(data_dir: Path) -> Account | None:
    """None to run as the present user; for root the owner of existing data, or `nobody`."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
        if (data_dir / "PG_VERSION").exists() and (owner := data_dir.stat().st_uid) != 0:
            entry = pwd.getpwuid(owner)
    except KeyError:  # a user that is not in the list is refused by initdb as well
        raise EmbeddedError("Root cannot run PostgreSQL, and there is no user `nobody` for it: start this as an ordinary user.") from None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def place_of(data_dir: Path, account: Account | None) -> Path:
    """The directory of the database: `data_dir` itself, or one under ELSEWHERE that the file `<data_dir>.location` names."""
    data = data_dir.resolve()
    location = data.with_name(data.name + ".location")
    if account is not None and location.exists() and not (data / "PG_VERSION").exists():
        return Path(location.read_text().strip())
    return data


def choose_place(data_dir: Path, account: Account | None) -> Path:
    """As `place_of`, but a new database is given its place here."""
    data = place_of(data_dir, account)
    data.parent.mkdir(parents=True, exist_ok=True)
    if account is not None and not account.can_reach(data):
        # The name is drawn once and kept beside the service's other files. Whoever deletes those gets a fresh database
        # too, and not one whose encryption keys are gone.
        location = data.with_name(data.name + ".location")
        location.write_text(f"{_directory_for_all('data') / secrets.token_hex(8)}\n")
        data = place_of(data_dir, account)
    return data


def reachable(programs: Path, account: Account | None) -> Path:
    """The programs, or a copy of them where `account` can run them. The user's own directories are never opened up instead."""
    if account is None or account.can_run(programs / "postgres"):
        return programs
    install, package = programs.parent, programs.parent.parent
    libraries = package.with_name(package.name + ".libs")  # a wheel's programs look for them at this place beside their own
    if not libraries.is_dir():
        raise EmbeddedError(f"The user {account.name} cannot run the programs in {programs}: set PG_BINDIR to others.")
    stamp = (programs / "postgres").stat()
    key = hashlib.sha256(f"{programs}:{stamp.st_size}:{stamp.st_mtime_ns}".encode()).hexdigest()[:16]
    target = _directory_for_all("programs") / key
    if not target.exists():
        staging = Path(tempfile.mkdtemp(dir=target.parent))
        try:
            not_needed = shutil.ignore_patterns("include", "*.a", "pkgconfig")
            shutil.copytree(install, staging / package.name / install.name, ignore=not_needed, symlinks=True)
            shutil.copytree(libraries, staging / libraries.name, symlinks=True)
            for path in (staging, *staging.rglob("*")):
                if not path.is_symlink():  # installed under a umask of 077, the files are for root only
                    path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
            staging.rename(target)  # whole or not at all, if two starts do this at once
        except OSError:
            shutil.rmtree(staging, ignore_errors=True)
            if not target.exists():
                raise
    return target / package.name / install.name / programs.name


def _directory_for_all(name: str) -> Path:
    directory = ELSEWHERE / name
    directory.mkdir(parents=True, exist_ok=True)
    for ours in (ELSEWHERE, directory):
        ours.chmod(0o755)  # a umask of 077 would have closed them to the server
    return directory


# -- one owner ---------------------------------------------------------------------------------------------------------


def lock(data: Path) -> int:
    """Become the owner of the directory until this process ends, however it ends. Refused while another process is."""
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
    deadline = time.monotonic() + _LOCK_PATIENCE  # `has_owner` in another process looks at the lock by taking it for an instant
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
                raise EmbeddedError(f"The database in {data} is in use by another process (pid {owner}): stop that one first.") from None
        time.sleep(0.02)


def has_owner(data: Path) -> bool:
    """Whether some process, perhaps this one, owns the directory now."""
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
