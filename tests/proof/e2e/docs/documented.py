"""The documentation's parts that tests run: shell commands, steps for the reader, and files.

A comment in front of a fenced block says what the block is:

- `<!-- walk -->`: commands that the reader pastes into a shell. The blocks of a page run in order, in one shell.
- `<!-- step: NAME -->`: not followed by a block. The reader does something by hand, for example signs in in a browser.
- `<!-- file: NAME -->`: a file that the reader saves under this name.
- `<!-- start -->`: a command that runs until the reader stops it, in another shell.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests import ROOT

DOCS: Final = ROOT / "docs"
_PART: Final = re.compile(
    r"^<!-- (?:(?P<kind>walk|file|start)(?:: (?P<file>\S+))? -->\n```\w+\n(?P<text>.*?)^```$|step: (?P<step>[\w-]+) -->$)",
    re.MULTILINE | re.DOTALL,
)
_MARK: Final = re.compile(r"^<!-- (?:walk|file|step|start)\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Part:
    """A marked part of a page. `name` names the step or the file, and is empty for commands."""

    kind: str  # walk, step, file or start
    name: str
    text: str
    line: int


def parts(page: Path) -> list[Part]:
    """Return the marked parts of a page, in order. Unknown marks are errors."""
    source = page.read_text("utf-8")
    page_parts = [
        Part(
            kind=match["kind"] or "step",
            name=match["step"] or match["file"] or "",
            text=match["text"] or "",
            line=source.count("\n", 0, match.start()) + 1,
        )
        for match in _PART.finditer(source)
    ]
    assert len(page_parts) == len(_MARK.findall(source)), f"{page} has a mark without its block"
    return page_parts


def files(page: Path) -> dict[str, str]:
    """Return the files that a page shows, by name."""
    return {part.name: part.text for part in parts(page) if part.kind == "file"}
