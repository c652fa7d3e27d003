"""A release's files: always the same bytes, and all packages for every supported Python."""

import json
import re
import subprocess
import zipfile
from pathlib import Path

import pytest
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from entrypoints.version import VERSION
from ops.release import bundled
from ops.release.source import sha256
from ops.release.wheels import MACHINES, POSTGRESQL, PYTHONS
from tests import ROOT
from tests.release.conftest import Shared, unpack


@pytest.fixture(scope="session", params=MACHINES)
def unpacked(request: pytest.FixtureRequest, shared: Shared, release: Path) -> Path:
    """An archive's folder, which is named as its machine."""
    archive = release / f"gatehouse-{VERSION}-linux-{request.param}.tar.gz"
    return shared(str(request.param), lambda folder: unpack(archive, folder))


def test_the_same_revision_gives_the_same_bytes(release: Path, rebuilt: Path) -> None:
    again = [path for path in rebuilt.iterdir() if path.name != "SHA256SUMS" and "image" not in path.name]
    assert len(again) == 5
    for path in again:
        assert sha256(path) == sha256(release / path.name), path.name


def test_the_checksums_are_those_of_the_files(release: Path) -> None:
    lines = (release / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert sums == {path.name: sha256(path) for path in release.iterdir() if path.name != "SHA256SUMS"}


def test_the_changes_are_those_of_this_version_without_links_into_the_repository(release: Path) -> None:
    changes = (release / f"CHANGES-{VERSION}.md").read_text()
    assert changes.startswith(f"# Gatehouse {VERSION}")
    assert "Install (docs/operating/install.md)" in changes
    assert "](docs/" not in changes


def test_an_archive_has_a_wheel_with_a_pinned_hash_for_each_library_and_python(unpacked: Path) -> None:
    machine = unpacked.name
    pinned = dict(entries(unpacked / "requirements.txt"))
    wheels = [(*parse_wheel_filename(path.name), sha256(path)) for path in (unpacked / "wheels").iterdir()]
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(5, 29)] + [
        f"manylinux{name}_{machine}" for name in ("2014", "2010", "1")
    ]
    for python in PYTHONS:
        version = tuple(map(int, python.split(".")))
        fitting = {*cpython_tags(version, platforms=platforms), *compatible_tags(version, f"cp{version[0]}{version[1]}", platforms)}
        for name, hashes in pinned.items():
            assert [digest for found, _, _, tags, digest in wheels if found == name and tags & fitting and digest in hashes], (name, python)
    [(name, hashes)] = entries(unpacked / "postgresql.txt")
    [digest] = [digest for found, _, _, _, digest in wheels if found == name == POSTGRESQL]
    assert digest in hashes


def entries(requirements: Path) -> list[tuple[str, str]]:
    """Return a lock file's names with their hashes."""
    return re.findall(r"^([a-z0-9-]+)==((?:.*\\\n)*.*)", requirements.read_text(), re.MULTILINE)


def test_the_bill_of_materials_names_every_wheel_with_its_hash_and_every_component_with_its_license(unpacked: Path) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator  # takes seconds, so the processes that run other tests do not wait for it

    text = (unpacked / "sbom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    components = [document["metadata"]["component"], *document["components"]]
    hashes = {hashed["content"] for component in components for hashed in component.get("hashes", ())}
    assert hashes == {sha256(path) for path in (unpacked / "wheels").iterdir()}
    assert all(component["licenses"] for component in components)
    licenses = re.sub(r"^ +", "", (unpacked / "LICENSES.txt").read_text(), flags=re.MULTILINE)
    names = [f"{component['name']} {component.get('version', '')}".strip() for component in document["components"]]
    assert [name for name in names if f"\n{name}: " not in licenses] == []
    assert {"postgresql 18.4", "pgvector 0.8.5", "readline 7.0-10.el8", "pip 26.3", "libxml2 2.14.6"} <= set(names)


def test_every_shared_library_inside_a_wheel_is_named(unpacked: Path) -> None:
    findings = []
    for wheel in sorted((unpacked / "wheels").iterdir()):
        names = {library.name for library in bundled.find(wheel)}
        files = [file for entry in bundled.TABLE if entry["name"] in names for file in entry.get("files", ())]
        with zipfile.ZipFile(wheel) as packed:
            libraries = [name.partition(".libs/")[2] for name in packed.namelist()]
        findings += [(wheel.name, library) for library in filter(None, libraries) if not library.startswith(tuple(files))]
    assert findings == []


def test_the_libraries_inside_the_wheels_are_described_for_the_pinned_versions() -> None:
    pinned = {line.split()[0] for line in (ROOT / "ops/requirements/runtime.lock").read_text().splitlines() if "==" in line}
    assert {entry["wheel"] for entry in bundled.TABLE if "wheel" in entry} <= pinned, "see which libraries the new wheels contain"


def test_a_folder_that_cannot_be_made_is_reported_in_a_sentence() -> None:
    process = subprocess.run([ROOT / "run", "release", "--output", "/proc/dist"], capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert process.stderr == "Error: The folder /proc/dist cannot be made: No such file or directory. Name another one with --output.\n"


def test_no_file_of_a_release_names_the_machine_on_which_it_was_built(unpacked: Path) -> None:
    for path in unpacked.rglob("*"):
        assert path.is_dir() or str(ROOT).encode() not in path.read_bytes(), path
