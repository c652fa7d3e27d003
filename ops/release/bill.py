"""What a release contains of other projects: a bill of materials in CycloneDX, and their licenses."""

import email.parser
import email.policy
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.message import Message
from pathlib import Path

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model import HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from ops.release.source import Source, sha256


def sbom(source: Source, wheel: Path, libraries: Sequence[Path]) -> str:
    """Return the bill of materials: each wheel with its version, hash and license."""
    components = [_component(path) for path in libraries]
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"gatehouse:{source.revision}"), components=components)
    bom.metadata.timestamp = datetime.fromtimestamp(source.committed_at, UTC)
    bom.metadata.component = application = _component(wheel)
    application.type = ComponentType.APPLICATION
    bom.register_dependency(application, components)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def licenses(libraries: Sequence[Path]) -> str:
    """Return the license texts of the libraries, each once."""
    parts = ["Gatehouse installs the following packages of other projects, each under its own license.\n"]
    seen = set()
    for wheel in libraries:
        metadata = _metadata(wheel)
        if (name := metadata["Name"]) in seen:  # the wheels of one library for several versions of Python
            continue
        seen.add(name)
        parts.append(f"{'=' * 100}\n{name} {metadata['Version']}: {_license(metadata)}\n")
        parts += [f"{'-' * 100}\n{text.strip()}\n" for text in _license_texts(wheel)]
    return "\n".join(parts)


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


def _license_texts(wheel: Path) -> Iterator[str]:
    with zipfile.ZipFile(wheel) as files:
        for name in sorted(files.namelist()):
            if ".dist-info/" in name and any(word in name.upper().rpartition("/")[2] for word in ("LICEN", "COPYING", "NOTICE", "AUTHORS")):
                yield files.read(name).decode(errors="replace")
