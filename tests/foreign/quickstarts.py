"""Two quickstart readers: for its page, and for the directory that `gatehouse quickstart` writes."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests import ROOT
from tests.foreign.gatehouse import EMAIL, PASSWORD, Gatehouse
from tests.foreign.programs import NODE, PYTHON, Program
from tests.proof.e2e.docs.documented import DOCS, Part, parts
from tests.proof.e2e.docs.walk import Shell
from tests.proof.e2e.process import Port, environment, gatehouse

QUICKSTARTS: Final = DOCS / "guides" / "quickstarts"
# The application's address in a page.
_ADDRESS: Final = re.compile(r"http://localhost:(?P<port>\d+)|https://shop\.example\.com")
_START: Final = re.compile(r"^## Start\n\n```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class PageReader:
    """A page's reader, who registers the application and saves its files, in the page's order. Its address has this port."""

    def __init__(self, gatehouse: Gatehouse, page: Path, folder: Path, port: Port) -> None:
        self._page = page
        self._folder = folder
        self._port = port
        self.address = f"http://localhost:{port.number}"
        self.commands: list[str] = []  # that start its programs
        home = folder / "tmp"
        (home / "tmp").mkdir(parents=True)
        link_packages(folder)
        self._shell = Shell(home, environment(home, api=gatehouse.address, PATH=f"{PYTHON}:{os.environ['PATH']}"))
        self._shell.run(f". {ROOT}/docs/walk.sh\naccount ada {EMAIL} '{PASSWORD}'\ncd {folder}\n")

    def follow(self) -> None:
        """Run the page's commands, and save its files, in their order."""
        for part in parts(self._page):
            text = self._here(part.text)
            match part.kind:
                case "walk":
                    self._shell.run(text, where=f"{self._page.name}, line {part.line}")
                case "file":
                    self._save(part, text)
                case "start":
                    self.commands.append(text)

    def value(self, name: str) -> str:
        """Return a variable in the reader's shell."""
        return self._shell.run(f'printf %s "${name}"').strip()

    def close(self) -> None:
        self._shell.close()

    def _here(self, text: str) -> str:
        """Return the text with this test's address."""
        [(address, port)] = {(match[0], match["port"]) for match in _ADDRESS.finditer(self._page.read_text("utf-8"))}
        text = text.replace(address, self.address)
        return text.replace(port, str(self._port.number)) if port else text

    def _save(self, part: Part, text: str) -> None:
        file = self._folder / part.name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def link_packages(folder: Path) -> None:
    """Let Node.js find the packages for `./run test foreign` from a folder."""
    if NODE not in folder.parents:
        (folder / "node_modules").symlink_to(NODE / "node_modules")


class WrittenQuickstart:
    """The application that `gatehouse quickstart` wrote to a folder, at an address with this port."""

    def __init__(self, gatehouse: Gatehouse, framework: str, folder: Path, port: Port) -> None:
        self.address = f"http://localhost:{port.number}"
        self.printed = write(gatehouse, framework, folder, self.address)
        self.files = read_files(folder)
        self._folder = folder
        self._port = port
        self._program: Program | None = None

    def start(self) -> None:
        """Start it as its README says, if it has a command for that."""
        link_packages(self._folder)
        for command in _START.findall(self.files["README.md"]):
            self._program = Program(command, self._port.number, self._folder, {}).wait_until_it_listens()

    def stop(self) -> None:
        if self._program is not None:
            self._program.stop()

    @property
    def output(self) -> str:
        return "" if self._program is None else self._program.output


def write(running: Gatehouse, framework: str, folder: Path, address: str) -> str:
    """Run `gatehouse quickstart` beside the running service. Return its output."""
    options = ("--directory", str(folder), "--url", address)
    done = gatehouse(running.service.home, "quickstart", framework, *options, **running.service.settings)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def read_files(folder: Path) -> Mapping[str, str]:
    """Return the files in a folder, by path. Folders with packages and the shell's folders are left out."""
    files = (file for file in folder.rglob("*") if file.is_file() and not {"node_modules", "tmp"} & set(file.relative_to(folder).parts))
    return {str(file.relative_to(folder)): file.read_text() for file in files}


@contextmanager
def start(gatehouse: Gatehouse, framework: str, folder: Path, port: Port | None = None) -> Iterator[WrittenQuickstart]:
    """Write a framework's application, and yield it running."""
    with ExitStack() as stack:
        quickstart = WrittenQuickstart(gatehouse, framework, folder, port or stack.enter_context(Port()))
        stack.callback(quickstart.stop)
        quickstart.start()
        yield quickstart
