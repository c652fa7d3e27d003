"""A version's changes, as a file in its release."""

import re
from pathlib import Path

from ops.release.source import ReleaseError, Source


def write(source: Source, output: Path) -> Path:
    """Write the version's part in `CHANGELOG.md`, and return the path. Raises: the errors from `text`."""
    target = output / f"CHANGES-{source.version}.md"
    target.write_text(text(source))
    return target


def text(source: Source) -> str:
    """Return the version's part in `CHANGELOG.md`.

    Raises: ReleaseError if the changelog does not have the version.
    """
    parts = re.split(r"^## ", (source.folder / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    for part in parts:
        if part.split(maxsplit=1)[0] == source.version:
            break
    else:
        raise ReleaseError(f"CHANGELOG.md has no part for version {source.version}. Add the heading '## {source.version}' and the changes.")
    # Links into the repository would lead nowhere, so their targets become text.
    unlinked = re.sub(r"\[([^\]]+)\]\((?!https:)([^)]+)\)", r"\1 (\2)", part)
    return f"# Gatehouse {unlinked.strip()}\n"
