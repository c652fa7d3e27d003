"""The `run` script with a complete environment, in which a script in place of Python prints its arguments and environment."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import ROOT

RUN = ROOT / "run"
Run = Callable[..., subprocess.CompletedProcess[str]]


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a complete environment: its stamp contains the checksum that the fake cksum prints."""
    project = tmp_path / "a project"
    script(project / ".venv/bin/python", 'pwd; printf "[%s]\\n" "$@"; env | grep -E "^(SSO_|PYTHONPATH)" | sort')
    script(tmp_path / "bin/cksum", "cat >/dev/null; echo 1 1")
    (project / "ops/requirements").mkdir(parents=True)
    (project / "ops/requirements/runtime.lock").touch()
    (project / ".venv/stamp").write_text("dev 1 1\n")
    shutil.copy(RUN, project)
    return project


@pytest.fixture
def run(project: Path) -> Run:
    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = f"{project.parent / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(
            [project / "run", *arguments], cwd="/", env={"PATH": path, **environment}, capture_output=True, text=True, check=False
        )

    return run


def test_help_lists_every_target(run: Run) -> None:
    targets = set(re.findall(r"^([a-z]+)\)", RUN.read_text(), re.MULTILINE)) - {"serve"}
    assert targets >= {"gatehouse", "test", "check", "bench", "clean"}
    assert set(re.findall(r"^\./run ([a-z]+)", run("help").stdout, re.MULTILINE)) == targets


def test_an_unknown_target_is_refused_with_the_help(run: Run) -> None:
    process = run("biuld")
    assert process.returncode == 2
    assert "./run check" in process.stderr


def test_arguments_reach_the_command_line_unchanged_from_any_directory(run: Run, project: Path) -> None:
    process = run("gatehouse", "owner", "create", "a b@example.com", "")
    assert process.stdout.splitlines() == [str(project), "[-m]", "[entrypoints.cli]", "[owner]", "[create]", "[a b@example.com]", "[]"]


def test_the_exit_status_is_that_of_the_service(run: Run, project: Path) -> None:
    script(project / ".venv/bin/python", "exit 7")
    assert run("gatehouse").returncode == 7


def test_without_a_target_the_service_starts(run: Run, project: Path) -> None:
    assert run().stdout.splitlines() == [str(project), "[-m]", "[entrypoints.cli]"]


def test_argon2_built_for_this_processor_comes_first_unless_the_wheel_is_requested(run: Run, project: Path) -> None:
    built = project / ".venv/argon2/built"
    built.mkdir(parents=True)
    assert f"PYTHONPATH={built}" in run("gatehouse", PYTHONPATH="/elsewhere").stdout
    assert "PYTHONPATH" not in run("gatehouse", PYTHONPATH=str(built), GATEHOUSE_ARGON2="wheel").stdout


def test_clean_keeps_the_data_by_default(run: Run, project: Path) -> None:
    (project / "var").mkdir()
    assert "--data" in run("clean").stderr
    assert not (project / ".venv").exists()
    assert (project / "var").exists()
    assert "accounts" in run("clean", "--data").stderr
    assert not (project / "var").exists()


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (
            "NewConnectionError: Failed to establish a new connection: Name or service not known",
            "Without a network, use the archive of a release",
        ),
        ("THESE PACKAGES DO NOT MATCH THE HASHES", "THESE PACKAGES DO NOT MATCH THE HASHES"),
    ],
)
def test_a_first_run_without_packages_says_in_one_sentence_what_is_missing(run: Run, project: Path, reason: str, expected: str) -> None:
    # The machine's Python, and the Python in every environment that it creates: `pip` fails in
    # them.
    shutil.rmtree(project / ".venv")
    created = project.parent / "python"
    script(created, f'case "$*" in *"-m pip"*) echo "{reason}" >&2; exit 1 ;; esac')
    create = f'mkdir -p "$last/bin"; cp "{created}" "$last/bin/python"'
    script(project.parent / "bin/chosen", f'for last; do :; done; case "$*" in *"-m venv"*) {create} ;; esac')
    (project / "ops/requirements/bootstrap.lock").touch()
    process = run("setup", GATEHOUSE_PYTHON="chosen")
    assert process.returncode == 1
    assert expected in process.stderr
    assert "NewConnectionError" not in process.stderr
    assert not (project / ".venv/stamp").exists()
