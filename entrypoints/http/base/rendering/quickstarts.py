"""The quickstarts of the documentation as data: the settings to register, the files to save and the commands to run.

The console shows them filled in with the values of an application. The comments in front of the blocks are those that the tests follow.
"""

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from entrypoints.http.base.rendering.documentation import FOLDER

_BLOCK: Final = re.compile(r"^(?:<!-- (?P<kind>\w+)(?:: (?P<name>\S+))? -->\n)?```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_HEREDOC: Final = re.compile(r"^cat >+(?P<name>\S+) <<'?END'?\n(?P<text>.*?)^END\n", re.MULTILINE | re.DOTALL)
_REDIRECT: Final = re.compile(r'"redirect_uris": \["([^"]+)"')
_AFTER_LOGOUT: Final = re.compile(r'"post_logout_redirect_uris": \["([^"]+)"')


@dataclass(slots=True)
class Quickstart:
    """A page of the quickstarts."""

    redirect_uri: str = ""
    post_logout_redirect_uri: str | None = None
    has_environment: bool = False  # the application reads ISSUER, CLIENT_ID and CLIENT_SECRET
    install: str = ""  # commands, one a line
    start: str = ""  # the same
    files: list[tuple[str, str]] = field(default_factory=list)  # name and text


@cache
def load(page: str) -> Quickstart:
    """Return the quickstart of a page, such as `flask`."""
    quickstart = Quickstart()
    for block in _BLOCK.finditer((FOLDER / "guides" / "quickstarts" / f"{page}.md").read_text("utf-8")):
        text = block["text"]
        if block["kind"] == "file":
            quickstart.files.append((block["name"], text))
        elif block["kind"] == "start":
            quickstart.start = text
        else:
            _read_commands(quickstart, text)
    return quickstart


def _read_commands(quickstart: Quickstart, text: str) -> None:
    quickstart.files += [(block["name"], block["text"].strip("\n") + "\n") for block in _HEREDOC.finditer(text)]
    if (uri := _REDIRECT.search(text)) is not None:
        after = _AFTER_LOGOUT.search(text)
        quickstart.redirect_uri = uri[1]
        quickstart.post_logout_redirect_uri = None if after is None else after[1]
        quickstart.has_environment = "export ISSUER" in text
    else:
        quickstart.install += _HEREDOC.sub("", text)
