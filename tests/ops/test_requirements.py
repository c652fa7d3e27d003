"""Installed packages meet pyproject.toml, including minimum versions from advisories, and locks pin versions and hashes."""

import re
import tomllib
from importlib.metadata import version

from packaging.requirements import Requirement

from entrypoints.doctor.checks import PYTHON_FLOORS
from entrypoints.version import VERSION
from ops.release.wheels import PYTHONS
from tests import ROOT
from tests.tables import table

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = {path.stem: path.read_text() for path in sorted((ROOT / "ops/requirements").glob("*.lock"))}


def pins(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lock, re.MULTILINE))


@table("name", [Requirement(line).name for line in PROJECT["project"]["dependencies"]])
def test_the_installed_version_meets_the_projects_requirement(name: str) -> None:
    requirement = next(r for r in map(Requirement, PROJECT["project"]["dependencies"]) if r.name == name)
    assert requirement.specifier.contains(version(name)), f"{name} {version(name)} is not {requirement.specifier}"


@table(
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


@table("lock", LOCKS)
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


def test_all_pages_and_scripts_name_the_versions_of_python_of_the_release() -> None:
    first, last = (int(version.removeprefix("3.")) for version in (PYTHONS[0], PYTHONS[-1]))
    pages = [path for path in ROOT.glob("docs/**/*.md") if "specification" not in path.parts]  # which says what some versions do
    paths = [*pages, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "run", *ROOT.glob("ops/release/*.*")]
    ranges = [
        (path.relative_to(ROOT), numbers)
        for path in paths
        for text in [path.read_text()]
        for numbers in re.findall(r"Python\s3\.(\d+) to 3\.(\d+)", text) + re.findall(r"\(3, (\d+)\) <= .* <= \(3, (\d+)\)", text)
    ]
    assert len(ranges) >= 10
    assert [found for found in ranges if found[1] != (str(first), str(last))] == []
    assert PROJECT["project"]["requires-python"] == f">=3.{first}"
    assert f"python3 (>= 3.{first}), python3 (<< 3.{last + 1})" in (ROOT / "ops/release/debian/control").read_text()
    assert [f"{major}.{minor}" for major, minor in PYTHON_FLOORS] == list(PYTHONS)
