"""Installed packages meet pyproject.toml, including minimum versions from advisories, and locks pin versions and hashes."""

import re
import tomllib
from importlib.metadata import version

import pytest
from packaging.requirements import Requirement

from entrypoints.version import VERSION
from tests import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = {path.stem: path.read_text() for path in sorted((ROOT / "ops/requirements").glob("*.lock"))}


def pins(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lock, re.MULTILINE))


@pytest.mark.parametrize("name", [Requirement(line).name for line in PROJECT["project"]["dependencies"]])
def test_the_installed_version_meets_the_projects_requirement(name: str) -> None:
    requirement = next(r for r in map(Requirement, PROJECT["project"]["dependencies"]) if r.name == name)
    assert requirement.specifier.contains(version(name)), f"{name} {version(name)} is not {requirement.specifier}"


@pytest.mark.parametrize(
    ("lock", "requirements"),
    [
        ("runtime", PROJECT["project"]["dependencies"]),
        ("dev", PROJECT["project"]["dependencies"]),
        *PROJECT["dependency-groups"].items(),
    ],
)
def test_a_lock_meets_the_projects_requirements(lock: str, requirements: list[str]) -> None:
    pinned = pins(LOCKS[lock])
    unmet = [line for line in requirements if (r := Requirement(line)).name not in pinned or not r.specifier.contains(pinned[r.name])]
    assert not unmet, "run ./run lock"


def test_the_tests_run_on_the_versions_of_the_runtime() -> None:
    assert pins(LOCKS["runtime"]).items() <= pins(LOCKS["dev"]).items()


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_pins_every_package_by_hash_and_names_no_index(lock: str) -> None:
    text = LOCKS[lock]
    assert "://" not in text
    assert not re.search(r"^--?[a-z]", text, re.MULTILINE)
    assert not [name for name in pins(text) if not re.search(rf"^{name}==[^\n]*\\\n    --hash=sha256:[0-9a-f]{{64}}", text, re.MULTILINE)]


def test_the_service_reports_the_version_of_the_project() -> None:
    assert PROJECT["project"]["version"] == VERSION


def test_the_pages_name_the_files_of_this_version() -> None:
    file = re.compile(r"gatehouse(?:[-_:]|_version=)(\d+\.\d+\.\d+)", re.IGNORECASE)
    named = {(page.name, number) for page in (ROOT / "docs").rglob("*.md") for number in file.findall(page.read_text())}
    assert {"archive.md", "compose.md", "debian-package.md", "kubernetes.md"} <= {page for page, _ in named}
    assert {number for _, number in named} == {VERSION}, named
