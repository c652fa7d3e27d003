"""The archive for a kind of machine: it runs with CPython 3.11 to 3.14, without a network."""

import gzip
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ops.release import bill, wheels
from ops.release.source import Source, sha256

_LAUNCHER: Final = Path(__file__).with_name("launcher.sh")


def assemble(source: Source, machine: str, wheel: Path, work: Path, kept: Path | None) -> Path:
    """Return the folder with all archive files, named as the archive is. Wheels in the folder `kept` are not downloaded again."""
    folder = work / f"gatehouse-{source.version}-linux-{machine}"
    (folder / "wheels").mkdir(parents=True)
    packages = wheels.download(source, machine, folder / "wheels", work, kept)
    packages.append(wheels.download_pip(source, folder / "wheels", work, kept))
    locked = (source.locks / "runtime.lock").read_text()
    own = f"gatehouse=={source.version} --hash=sha256:{sha256(wheel)}\n"
    (folder / "requirements.txt").write_text(wheels.without(locked, wheels.POSTGRESQL) + own)
    (folder / "postgresql.txt").write_text(wheels.only(locked, wheels.POSTGRESQL))
    shutil.copy(wheel, folder / "wheels")
    if machine == "x86_64":
        wheels.compile_argon2(source, "x86-64-v3", folder / "argon2-x86-64-v3", work)
    launcher = folder / "gatehouse"
    launcher.write_text(_LAUNCHER.read_text().replace("@MACHINE@", machine))
    launcher.chmod(0o755)
    for name in ("LICENSE", "NOTICE"):
        shutil.copy(source.folder / name, folder)
    (folder / "LICENSES.txt").write_text(bill.licenses(packages))
    (folder / "sbom.cdx.json").write_text(bill.sbom(source, wheel, packages))
    return folder


def pack(source: Source, folder: Path, output: Path, name: str | None = None) -> Path:
    """Write the folder as an archive, with the same bytes for the same files, and return its path. The wheels are compressed already."""
    target = output / (name or f"{folder.name}.tar.gz")
    with (
        compressed(target, source, level=0) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted([folder, *folder.rglob("*")]):
            archive.add(path, path.relative_to(folder.parent), recursive=False, filter=lambda entry: _anonymous(entry, source))
    return target


@contextmanager
def compressed(target: Path, source: Source, level: int) -> Iterator[gzip.GzipFile]:
    """Open a file to write it with gzip, without its name, and with the revision's time."""
    with (
        target.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", compresslevel=level, fileobj=file, mtime=source.committed_at) as stream,
    ):
        yield stream


def write_sums(files: Sequence[Path], output: Path) -> Path:
    """Write the files' SHA-256 as sha256sum(1) reads them, and return the path."""
    target = output / "SHA256SUMS"
    target.write_text("".join(f"{sha256(path)}  {path.name}\n" for path in sorted(files)))
    return target


def _anonymous(entry: tarfile.TarInfo, source: Source) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mtime = source.committed_at
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry
