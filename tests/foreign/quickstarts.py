"""A reader of a quickstart, who registers the application, saves its files and starts it, in the order of the page."""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests import ROOT
from tests.foreign.gatehouse import EMAIL, PASSWORD, Gatehouse
from tests.foreign.programs import NODE, PYTHON, Program
from tests.proof.e2e.docs.documented import DOCS, Part, parts
from tests.proof.e2e.docs.walk import Shell
from tests.proof.e2e.process import Port, environment

QUICKSTARTS: Final = DOCS / "guides" / "quickstarts"
# The address of the application in a page.
_ADDRESS: Final = re.compile(r"http://localhost:(?P<port>\d+)|https://shop\.example\.com")


class Quickstart:
    """The application of a page, at an address with a free port."""

    def __init__(self, gatehouse: Gatehouse, page: Path, folder: Path, port: Port) -> None:
        self._page = page
        self._folder = folder
        self._port = port
        self.address = f"http://localhost:{port.number}"
        self._programs: list[Program] = []
        (folder / "tmp").mkdir(exist_ok=True)
        if NODE not in folder.parents:
            (folder / "node_modules").symlink_to(NODE / "node_modules")
        self._shell = Shell(folder, environment(folder, api=gatehouse.address, PATH=f"{PYTHON}:{os.environ['PATH']}"))
        self._shell.run(f". {ROOT}/docs/walk.sh\naccount ada {EMAIL} '{PASSWORD}'\ncd {folder}\n")

    def follow(self) -> None:
        """Run the commands of the page, and save its files, in their order."""
        for part in parts(self._page):
            text = self._here(part.text)
            match part.kind:
                case "walk":
                    self._shell.run(text, where=f"{self._page.name}, line {part.line}")
                case "file":
                    self._save(part, text)
                case "start":
                    self._start(text)

    def close(self) -> None:
        for program in self._programs:
            program.stop()
        self._shell.close()

    @property
    def output(self) -> str:
        return "\n".join(program.output for program in self._programs)

    def _here(self, text: str) -> str:
        """Return the text with the address of this test."""
        [(address, port)] = {(match[0], match["port"]) for match in _ADDRESS.finditer(self._page.read_text("utf-8"))}
        text = text.replace(address, self.address)
        return text.replace(port, str(self._port.number)) if port else text

    def _save(self, part: Part, text: str) -> None:
        file = self._folder / part.name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def _start(self, command: str) -> None:
        exported = self._shell.run("env").splitlines()
        variables = dict(line.split("=", 1) for line in exported if "=" in line)
        own: dict[str, str] = {name: variables[name] for name in ("ISSUER", "CLIENT_ID", "CLIENT_SECRET") if name in variables}
        self._programs.append(Program(command, self._port.number, self._folder, own).wait_until_it_listens())


@contextmanager
def follow(gatehouse: Gatehouse, page: str, folder: Path, port: Port | None = None) -> Iterator[Quickstart]:
    """Follow the page, and yield the running application."""
    with ExitStack() as stack:
        quickstart = Quickstart(gatehouse, QUICKSTARTS / page, folder, port or stack.enter_context(Port()))
        stack.callback(quickstart.close)
        quickstart.follow()
        yield quickstart
