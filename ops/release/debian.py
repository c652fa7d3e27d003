"""The Debian package: the archive's files, a unit for systemd, a system user and settings."""

import gzip
import os
import shutil
from email.utils import formatdate
from pathlib import Path
from typing import Final

from ops.release import changes
from ops.release.source import ROOT, Source
from ops.release.wheels import run

ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_FILES: Final = Path(__file__).with_name("debian")
_SCRIPTS: Final = ("postinst", "prerm", "postrm")


def pack(source: Source, machine: str, archive: Path, work: Path, output: Path) -> Path:
    """Write the package with the files in the folder `archive`, and return its path."""
    root, architecture = work / f"debian-{machine}", ARCHITECTURES[machine]
    library, documentation = root / "usr/lib/gatehouse", root / "usr/share/doc/gatehouse"
    shutil.copytree(archive, library, copy_function=os.link)
    _put(_FILES / "gatehouse", root / "usr/bin/gatehouse", 0o755)
    _put(_FILES / "gatehouse.env", root / "usr/share/gatehouse/gatehouse.env")
    _put(source.folder / "docs/reference/settings.md", documentation / "settings.md")
    _put(_FILES / "copyright", documentation / "copyright")
    _compress(changes.text(source), documentation / "CHANGES.md.gz")
    values = {"VERSION": source.version, "ARCHITECTURE": architecture, "DATE": formatdate(source.committed_at)}
    _compress(_fill("changelog", values), documentation / "changelog.gz")
    _compress(_fill("gatehouse.1", values), root / "usr/share/man/man1/gatehouse.1.gz")
    unit = (ROOT / "ops/systemd/gatehouse.service").read_text()
    for line, packaged in _UNIT.items():
        assert line in unit, f"ops/systemd/gatehouse.service has no line {line!r}"
        unit = unit.replace(line, packaged)
    (root / "usr/lib/systemd/system").mkdir(parents=True)
    (root / "usr/lib/systemd/system/gatehouse.service").write_text(unit[unit.index("[Unit]") :])
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) // 1024
    for name in (*_SCRIPTS, "templates"):
        _put(_FILES / name, root / "DEBIAN" / name, 0o755 if name in _SCRIPTS else 0o644)
    (root / "DEBIAN/control").write_text(_fill("control", values | {"SIZE": str(size)}))
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    package = output / f"gatehouse_{source.version}_{architecture}.deb"
    # The wheels are compressed already, so lintian reports uses-no-compression. It also reports no-debconf-config: only a purge asks.
    run(source, "dpkg-deb", "--build", "--root-owner-group", "-Znone", root, package)
    return package


_UNIT: Final = {
    "WorkingDirectory=/opt/gatehouse\n": "WorkingDirectory=/var/lib/gatehouse\n",
    "ExecStartPre=+/opt/gatehouse/run setup\n": "ExecStartPre=+/usr/lib/gatehouse/gatehouse --version\n",
    "ExecStart=/opt/gatehouse/run gatehouse serve\n": "ExecStart=/usr/lib/gatehouse/gatehouse serve\n",
    "[Service]\n": "[Service]\nEnvironment=GATEHOUSE_COMMAND=gatehouse\n",
}


def _fill(name: str, values: dict[str, str]) -> str:
    text = (_FILES / name).read_text()
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def _compress(text: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(text.encode(), mtime=0))


def _put(file: Path, target: Path, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)
    target.chmod(mode)
