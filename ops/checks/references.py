"""Check that every reference resolves inside the repository: `python -m ops.checks.references [PATH ...]`.

These forms are checked in code, tests, documentation and operations files:

- `security A-10`, `security A-10, B-2`: the id has an anchor in docs/specification.
- `security #passkeys`: docs/specification/security.md has the anchor.
- `decision 195`, `decisions 41, 42, 57`: the number has an anchor in docs/specification.
- `docs/adr/0014`: a record with this number exists. `docs/reference/errors.md`: the page exists.
- Relative links in Markdown, with their `#anchors`: the file and the anchor exist.

Some forms are refused because they point outside the repository or cannot be checked, such as ranges of decisions. Migrations are
not checked: a migration that was applied never changes.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final

from ops.checks.language import files_in

KINDS: Final = {".py", ".md", ".html", ".txt", ".toml", ".yml", ".yaml", ".service", ".sh", ".css", ".lua", ".js", ".mjs", ".sql", ""}
SPECIFICATION: Final = PurePosixPath("docs/specification")
# These two files contain the refused forms.
EXEMPT: Final = {"ops/checks/references.py", "tests/ops/test_references_check.py"}

# A reference may continue in the next line of a comment.
_GAP: Final = r"\s+(?:(?:#|--|\*)\s+)?"
_ID: Final = r"[ABCEGHIJKLMNOPRSTVWXYZ]-\d{1,2}"
_SECURITY: Final = re.compile(rf"\bsecurity{_GAP}({_ID}(?:(?:,{_GAP}(?:(?:and|or){_GAP})?|{_GAP}(?:and|or){_GAP}){_ID})*)\b", re.IGNORECASE)
_NAMED: Final = re.compile(rf"\bsecurity{_GAP}#([\w-]+)", re.IGNORECASE)
_BARE_ID: Final = re.compile(rf"(?<![\w/.-])({_ID})(?![\w.-]\w|[\w-])")
_DECISIONS: Final = re.compile(
    rf"\bdecisions?{_GAP}(\d+(?:(?:,{_GAP}(?:and{_GAP})?|{_GAP}and{_GAP})\d+)*)({_GAP}to{_GAP}\d+)?\b", re.IGNORECASE
)
_ADR: Final = re.compile(r"docs/adr/(\d{4})")
_PAGE: Final = re.compile(r"(?<![\w./])docs/[\w./-]+\.md\b")
_LINK: Final = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\s*\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
_ANCHOR: Final = re.compile(r"<\w+[^>]*\s(?:id|name)=\"([^\"]+)\"")
_HEADING: Final = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)

REFUSED: Final = {
    r"(?<![\w-])identity\.md|(?<![\w-])organizations\.md": "is not in the repository",
    r"security\.md,? (?:section|[A-Z]-\d)": 'write "security A-7"',
    rf"decisions,{_GAP}(?:points?|part)\b|\bpoints?{_GAP}\d+": 'write "decision 195" or "decisions 41, 42"',
    r"ops/decisions|\bADR \d+": 'write "docs/adr/0014"',
    r"\.\./shared": "is outside the repository",
    r"endpoints\.json": "belongs to the tests",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One reference that does not resolve, or has a refused form."""

    path: PurePosixPath
    line: int
    reference: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reference}: {self.reason}"


def slug(heading: str) -> str:
    """Return the anchor that Markdown renderers give a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"<[^>]*>", "", heading)).replace("`", "").lower()
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip())


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """Return the anchors of a Markdown page: explicit ones and those of headings."""
    text = _without_fences(page.read_text("utf-8"))
    return frozenset(_ANCHOR.findall(text)) | {slug(heading) for heading in _HEADING.findall(text)}


@cache
def specified(root: Path) -> frozenset[str]:
    """Return all anchors of the specification."""
    pages = sorted((root / SPECIFICATION).rglob("*.md"))
    return frozenset(anchor for page in pages for anchor in anchors_of(page))


def _without_fences(text: str) -> str:
    # Fenced blocks become empty lines, so that line numbers stay.
    return re.sub(r"(?ms)^[ \t]*(```|~~~).*?^[ \t]*\1[ \t]*$", lambda block: "\n" * block[0].count("\n"), text)


def faults_in(root: Path, path: PurePosixPath, text: str) -> Iterator[Fault]:
    """Find the faults in one file. `root` is the repository that must contain the targets."""

    def fault(at: int, reference: str, reason: str) -> Fault:
        return Fault(path, text.count("\n", 0, at) + 1, " ".join(reference.split()), reason)

    in_specification = path.is_relative_to(SPECIFICATION)
    for pattern, reason in REFUSED.items():
        if "endpoints" in pattern and path.parts[0] == "tests":
            continue
        for match in re.finditer(pattern, text):
            yield fault(match.start(), match[0], reason)

    named: list[range] = []
    for match in _SECURITY.finditer(text):
        named.append(range(*match.span()))
    for match in _BARE_ID.finditer(text):
        if match[1].lower() not in specified(root):
            if any(match.start() in span for span in named):
                yield fault(match.start(), match[1], "has no anchor in docs/specification")
        elif not in_specification and not any(match.start() in span for span in named):
            yield fault(match.start(), match[1], f'write "security {match[1]}"')
    for match in _NAMED.finditer(text):
        if match[1] not in anchors_of(root / SPECIFICATION / "security.md"):
            yield fault(match.start(), match[0], "is no anchor of docs/specification/security.md")
    for match in _DECISIONS.finditer(text):
        if match[2]:
            yield fault(match.start(), match[0], "list the numbers instead of a range")
        for number in re.findall(r"\d+", match[1]):
            if f"decision-{number}" not in specified(root):
                yield fault(match.start(), match[0], f"decision {number} has no anchor in docs/specification")
    for match in _ADR.finditer(text):
        if not any((root / "docs/adr").glob(f"{match[1]}-*.md")):
            yield fault(match.start(), match[0], "does not exist")
    for match in _PAGE.finditer(text):
        if not text[: match.start()].endswith("](") and not (root / match[0]).is_file():
            yield fault(match.start(), match[0], "does not exist")
    if path.suffix == ".md":
        yield from _broken_links(root, path, text)


def _broken_links(root: Path, path: PurePosixPath, text: str) -> Iterator[Fault]:
    prose = re.sub(r"`[^`\n]+`", "``", _without_fences(text))
    for match in _LINK.finditer(prose):
        link = match[1] or match[2]
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        address, _, anchor = link.partition("#")
        target = (root / path.parent / address).resolve() if address else root / path
        line = prose.count("\n", 0, match.start()) + 1
        if not target.is_relative_to(root.resolve()) or not target.exists():
            yield Fault(path, line, link, "does not exist")
        elif anchor and target.suffix == ".md" and anchor not in anchors_of(target):
            yield Fault(path, line, link, "has no such anchor")


def main(arguments: Sequence[str] | None = None, targets: Path | None = None) -> int:
    """Print each fault. Return 1 if there is one. `targets` is the repository that must contain the targets, if it is another one."""
    parser = argparse.ArgumentParser(prog="python -m ops.checks.references", description="Check that every reference resolves.")
    parser.add_argument("paths", nargs="*", type=Path, help="files or directories to restrict the check to")
    options = parser.parse_args(arguments)
    root = next((place for place in (Path.cwd(), *Path.cwd().parents) if (place / "pyproject.toml").exists()), Path.cwd())
    count = 0
    for path in dict.fromkeys(files_in(root, [path.resolve() for path in options.paths] or [root])):
        if path.suffix not in KINDS or str(path) in EXEMPT:
            continue
        try:
            text = (root / path).read_text("utf-8")
        except UnicodeDecodeError:
            continue
        for fault in faults_in(targets or root, path, text):
            print(fault)
            count += 1
    print(f"{count} references that do not resolve" if count else "every reference resolves")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
