"""Other projects' packages in a release: their bill of materials in CycloneDX, and their licenses."""

import email.parser
import email.policy
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.message import Message
from pathlib import Path
from typing import Final

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model import HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from ops.release import bundled
from ops.release.source import Source, sha256

_LINE: Final = "=" * 100
_INTRODUCTION: Final = """\
Gatehouse installs the following packages of other projects, each under its own license. The libraries inside them are named there, and
their licenses follow after the packages. The text of the Apache License 2.0 is in the file LICENSE.

The sources of the packages are at https://pypi.org/, and those of a library at the address behind it. Those of pkg:cargo are at
https://crates.io/, and those of pkg:rpm at https://git.almalinux.org/rpms and https://git.centos.org/rpms.
"""


def sbom(source: Source, wheel: Path, packages: Sequence[Path]) -> str:
    """Return the bill of materials: the wheels with version, hash and license, and the libraries inside."""
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"gatehouse:{source.revision}"))
    bom.metadata.timestamp = datetime.fromtimestamp(source.committed_at, UTC)
    bom.metadata.component = application = _component(wheel)
    application.type = ComponentType.APPLICATION
    components = [_component(path) for path in packages]
    libraries: dict[str, Component] = {}  # by their purl: several wheels contain the same library
    for path, component in zip(packages, components, strict=True):
        inside = [libraries.setdefault(library.purl, _inside(library)) for library in bundled.find(path)]
        bom.register_dependency(component, inside)
    bom.components.update(components, libraries.values())
    bom.register_dependency(application, components)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def licenses(packages: Sequence[Path]) -> str:
    """Return the license texts for the packages and the libraries inside, without repetition."""
    parts = [_INTRODUCTION]
    noticed: dict[str, set[str]] = {}  # the libraries that a notice is for
    seen = set()
    for wheel in packages:
        metadata = _metadata(wheel)
        if (name := metadata["Name"]) in seen:  # a library can have a wheel per Python version
            continue
        seen.add(name)
        parts.append(f"{_LINE}\n{name} {metadata['Version']}: {_license(metadata)}\n")
        libraries = bundled.find(wheel)
        if libraries:
            parts.append("It contains:\n" + "".join(f"  {_describe(library)}\n" for library in libraries))
        parts += [f"{'-' * 100}\n{name}\n\n{text.strip()}\n" for name, text in _license_texts(wheel)]
        for library in libraries:
            if library.notice is not None:
                noticed.setdefault(library.notice, set()).add(library.name)
    for notice, names in sorted(noticed.items()):
        text = bundled.read_notice(notice)
        parts.append(f"{_LINE}\nThe license of {', '.join(sorted(names))} in the packages above\n\n{text}")
    return "\n".join(parts)


def _describe(library: bundled.Library) -> str:
    return f"{library.name} {library.version or ''}".rstrip() + f": {library.license} ({library.source or library.purl})"


def _inside(library: bundled.Library) -> Component:
    return Component(
        type=ComponentType.LIBRARY,
        name=library.name,
        version=library.version,
        purl=PackageURL.from_string(library.purl),
        bom_ref=library.purl,
        cpe=library.cpe,
        licenses=[LicenseFactory().make_from_string(library.license)],
    )


def _component(wheel: Path) -> Component:
    metadata = _metadata(wheel)
    name, version = metadata["Name"], metadata["Version"]
    purl = PackageURL("pypi", name=name.lower().replace("_", "-"), version=version, qualifiers={"file_name": wheel.name})
    return Component(
        type=ComponentType.LIBRARY,
        name=name,
        version=version,
        purl=purl,
        bom_ref=str(purl),
        hashes=[HashType.from_hashlib_alg("sha256", sha256(wheel))],
        licenses=[LicenseFactory().make_from_string(_license(metadata))],
    )


def _metadata(wheel: Path) -> "Message[str, str]":
    with zipfile.ZipFile(wheel) as files:
        [name] = [name for name in files.namelist() if name.count("/") == 1 and name.endswith(".dist-info/METADATA")]
        return email.parser.BytesParser(policy=email.policy.compat32).parsebytes(files.read(name))


def _license(metadata: "Message[str, str]") -> str:
    if expression := metadata["License-Expression"]:
        return str(expression)
    classifiers = [text.split(" :: ")[-1] for text in metadata.get_all("Classifier", []) if text.startswith("License :: OSI")]
    return ", ".join(classifiers) or str(metadata["License"] or "see its files").splitlines()[0]


def _license_texts(wheel: Path) -> Iterator[tuple[str, str]]:
    """Yield the names of a wheel's license files, with their texts."""
    with zipfile.ZipFile(wheel) as files:
        for name in sorted(files.namelist()):
            if ".dist-info/" in name and any(word in name.upper().rpartition("/")[2] for word in ("LICEN", "COPYING", "NOTICE", "AUTHORS")):
                yield name, files.read(name).decode(errors="replace")
