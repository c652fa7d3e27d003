"""This build's version and revision, as `/health` reports them."""

from pathlib import Path
from typing import Final

VERSION: Final = "1.0.0"


def find_revision(exported: str, repository: Path) -> str | None:
    """Return the commit of these files: the commit that `git archive` wrote, or that a clone has checked out, or None."""
    if not exported.startswith("$"):
        return exported
    try:
        head = (repository / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        ref = head.removeprefix("ref: ")
        if (repository / ref).exists():
            return (repository / ref).read_text().strip()
        packed = (line.split(" ") for line in (repository / "packed-refs").read_text().splitlines())
        return next((commit for commit, *names in packed if names == [ref]), None)
    except OSError:  # a copy without the repository
        return None


# .gitattributes lets `git archive` write the commit into the file.
REVISION: Final = find_revision(Path(__file__).with_name("revision.txt").read_text().strip(), Path(__file__).parents[1] / ".git")
