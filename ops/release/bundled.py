"""Other projects' libraries inside a wheel, such as the OpenSSL in cryptography."""

import json
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packageurl import PackageURL

from ops.release.source import ReleaseError

TABLE: Final[Sequence[dict[str, Any]]] = tomllib.loads(Path(__file__).with_name("bundled.toml").read_text())["library"]
_COMMON_LICENSES: Final = Path("/usr/share/common-licenses")  # in Debian's package base-files
_DOCUMENTATION: Final = Path("/usr/share/doc")  # every Debian package has a file "copyright" there


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A library inside a wheel. Its version, source, notice and CPE are None if they are not known."""

    name: str
    version: str | None
    license: str
    purl: str
    source: str | None
    notice: str | None  # the name of its license text (`read_notice`)
    cpe: str | None


def find(wheel: Path) -> list[Library]:
    """Return the libraries inside a wheel: from its bills of materials (PEP 770), and then from `bundled.toml`."""
    project, version, *_ = wheel.name.split("-")
    pinned = f"{project.lower().replace('_', '-')}=={version}"
    more = {entry["name"]: entry for entry in TABLE if "wheel" not in entry}
    libraries = [
        # A Rust crate can have the same name as the library that it binds.
        _library(
            ({} if component.get("purl", "").startswith("pkg:cargo/") else more.get(component["name"], {})) | {"version": None} | component
        )
        for component in _read_bills(wheel, f"pkg:pypi/{project}@".lower())
    ]
    libraries += [_library(entry) for entry in TABLE if entry.get("wheel") == pinned and entry.get("machine", "") in wheel.name]
    return libraries


def read_notice(name: str) -> str:
    """Return a license text as Debian has it. Raises: ReleaseError."""
    try:
        # Debian adds to some package names, as in libxml2-16.
        path = next(iter(sorted(_DOCUMENTATION.glob(f"{name}*/copyright"))), _COMMON_LICENSES / name)
        return path.read_text("utf-8")
    except OSError as e:
        raise ReleaseError(f"The license text {name} is missing. Build the release on Debian, as root: ./run release installs it.") from e


def _library(entry: dict[str, Any]) -> Library:
    name, version, cpe = entry["name"], entry.get("version"), entry.get("cpe")
    return Library(
        name=name,
        version=version,
        license=entry["license"],
        purl=entry.get("purl") or str(PackageURL("generic", name=name, version=version)),
        source=entry.get("source"),
        notice=entry.get("notice"),
        cpe=f"cpe:2.3:a:{cpe}:{version}:*:*:*:*:*:*:*" if cpe and version else None,
    )


def _read_bills(wheel: Path, own: str) -> Iterator[dict[str, Any]]:
    """Yield the libraries that a wheel's bills of materials name. A purl that begins with `own` belongs to the wheel itself."""
    with zipfile.ZipFile(wheel) as files:
        bills = [json.loads(files.read(name)) for name in files.namelist() if ".dist-info/sboms/" in name and name.endswith(".json")]
    for component in (component for bill in bills for component in bill["components"]):
        # Build dependencies are excluded.
        if component.get("purl", "").lower().replace("-", "_").startswith(own.replace("-", "_")) or component.get("scope") == "excluded":
            continue
        library = {key: component[key] for key in ("name", "version", "purl") if key in component}
        licenses = [_license(license_) for license_ in component.get("licenses", ())]
        yield library | ({"license": " AND ".join(licenses)} if licenses else {})


def _license(choice: dict[str, Any]) -> str:
    if "expression" in choice:
        return str(choice["expression"])
    return str(choice["license"].get("id") or choice["license"]["name"])
