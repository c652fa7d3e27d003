"""A reader who pastes the documentation's commands into a shell."""

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests import ROOT
from tests.proof.e2e.docs.documented import Part

# Commands in the documentation show answers with `curl -s`. Here an answer with an error status also stops the walk.
PRELUDE: Final = """
set -eu -o pipefail
curl() { command curl --fail-with-body --show-error --max-time 60 "$@"; }
"""

# The commands start `python3` some hundred times. Where a version manager is the path's first `python3`, every start takes five times as
# long, so this process's Python comes first.
PROGRAMS: Final = os.pathsep.join([str(Path(sys.executable).resolve().parent), os.environ["PATH"]])

Step = Callable[["Shell"], dict[str, str]]  # returns the variables to set


class WalkFailed(Exception):
    """A command in the documentation failed. The text has the page, the commands, and the output."""


class Shell:
    """A bash in the project's directory that keeps its variables and functions between blocks of commands."""

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self._home = home
        self._output = home / "walk.output"
        self._output.touch()
        self._blocks = 0
        reader, answers = os.pipe()
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                ["bash", "--noprofile", "--norc"],
                cwd=ROOT,
                env={**environment, "PATH": PROGRAMS, "TMPDIR": str(home / "tmp"), "answers": str(answers)},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[answers],
                text=True,
            )
        os.close(answers)
        self._reader = os.fdopen(reader, encoding="utf-8", errors="replace")
        self.run(PRELUDE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        self._reader.close()

    def run(self, commands: str, *, where: str = "") -> str:
        """Run commands and return their output. Raises: WalkFailed if a command fails."""
        self._blocks += 1
        block = self._home / f"block-{self._blocks}.sh"
        block.write_text(commands)
        begin = self._output.stat().st_size
        # A separate file, because a command that reads standard input would otherwise read the commands after it.
        answer = self._ask(f". {shlex.quote(str(block))} </dev/null; echo done >&$answers")
        output = self._output.read_bytes()[begin:].decode(errors="replace")
        if answer != "done":
            raise WalkFailed(f"{where}: these commands failed:\n{commands}\nTheir output:\n{output}")
        return output

    def variable(self, name: str) -> str:
        """Return a shell variable, or an empty string."""
        return self._ask(f'printf "%s\\n" "${{{name}:-}}" | head -1 >&$answers')

    def set(self, name: str, value: str) -> None:
        """Set a shell variable."""
        self.run(f"{name}={shlex.quote(value)}\n")

    def _ask(self, command: str) -> str:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return ""
        return self._reader.readline().rstrip("\n")  # empty when the shell has ended


def walk(shell: Shell, page: Path, parts: list[Part], steps: Mapping[str, Step], folder: Path) -> None:
    """Do all steps on a page. Raises: WalkFailed; a step's errors."""
    for part in parts:
        where = f"{page.relative_to(ROOT)}, line {part.line}"
        match part.kind:
            case "walk":
                shell.run(part.text, where=where)
            case "file":
                (folder / part.name).write_text(part.text)
            case _:
                assert part.name in steps, f"{where}: no test knows the step {part.name}"
                for name, value in steps[part.name](shell).items():
                    shell.set(name, value)


def is_open(port: int) -> bool:
    """Return whether a program listens on this loopback port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
