"""Check that every reference resolves inside the repository: `python -m ops.checks.references`.

These forms are checked in code, tests, documentation and operations files:

- `security A-10`, `security A-10, B-2`: the id has an anchor in docs/specification.
- `security #passkeys`: docs/specification/security.md, or the page of the interfaces beside it, has the anchor.
- `decision 195`, `decisions 41, 42, 57`: the number has an anchor in docs/specification.
- `docs/adr/0014`: a record with this number exists. `docs/reference/errors.md`: the page exists.
- Relative links in Markdown, with their `#anchors`: the file and the anchor exist.
- Each explicit id in docs/specification is defined only once.

Some forms are refused because they point outside the repository or cannot be checked, such as decision ranges.
"""

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final

KINDS: Final = {".py", ".md", ".html", ".txt", ".toml", ".yml", ".yaml", ".service", ".sh", ".css", ".lua", ".js", ".mjs", ".sql", ""}
# Directories without this project's own text, and the migrations.
SKIPPED: Final = {"node_modules", "var", "__pycache__", "migrations"}
SPECIFICATION: Final = PurePosixPath("docs/specification")
# These two files contain the refused forms.
EXEMPT: Final = {"ops/checks/references.py", "tests/ops/test_references_check.py"}

# A reference may continue in a comment's next line.
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

# A part that stands in all matches: a plain search for it takes a tenth as long, and few files have it.
REFUSED: Final = {
    r"(?<![\w-])identity\.md|(?<![\w-])organizations\.md": (".md", "is not in the repository"),
    r"security\.md,? (?:section|[A-Z]-\d)": ("security.md", 'write "security A-7"'),
    rf"decisions,{_GAP}(?:points?|part)\b": ("decisions,", 'write "decision 195" or "decisions 41, 42"'),
    rf"\bpoints?{_GAP}\d+": ("point", 'write "decision 195" or "decisions 41, 42"'),
    r"ops/decisions": ("ops/decisions", 'write "docs/adr/0014"'),
    r"\bADR \d+": ("ADR ", 'write "docs/adr/0014"'),
    r"\.\./shared": ("../shared", "is outside the repository"),
    r"endpoints\.json": ("endpoints.json", "belongs to the tests"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A reference that does not resolve, or has a refused form."""

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
    """Return a Markdown page's anchors: explicit anchors and headings."""
    text = _without_fences(page.read_text("utf-8"))
    return frozenset(_ANCHOR.findall(text)) | {slug(heading) for heading in _HEADING.findall(text)}


@cache
def specified(root: Path) -> frozenset[str]:
    """Return all anchors in the specification."""
    pages = sorted((root / SPECIFICATION).rglob("*.md"))
    return frozenset(anchor for page in pages for anchor in anchors_of(page))


@cache
def _definitions(root: Path) -> Counter[str]:
    """Return how often the specification defines every explicit id."""
    pages = (root / SPECIFICATION).rglob("*.md")
    return Counter(id_ for page in pages for id_ in _ANCHOR.findall(_without_fences(page.read_text("utf-8"))))


def _without_fences(text: str) -> str:
    # Fenced blocks become empty lines, so that line numbers stay.
    return re.sub(r"(?ms)^[ \t]*(```|~~~).*?^[ \t]*\1[ \t]*$", lambda block: "\n" * block[0].count("\n"), text)


def faults_in(root: Path, path: PurePosixPath, text: str) -> Iterator[Fault]:
    """Find the faults in a file. `root` is the repository that must contain the targets."""
    file = _File(root, path, text)
    yield from _refused_forms(file)
    yield from _unknown_requirements(file)
    yield from _unknown_decisions(file)
    yield from _missing_documents(file)
    if path.is_relative_to(SPECIFICATION):
        yield from _repeated_ids(file)
    if path.suffix == ".md":
        yield from _broken_links(root, path, text)


@dataclass(frozen=True, slots=True)
class _File:
    root: Path  # the repository's root directory
    path: PurePosixPath
    text: str

    def fault(self, match: re.Match[str], reason: str, group: int = 0) -> Fault:
        """Return this reference's fault, with a message that shows a group."""
        return Fault(self.path, self.text.count("\n", 0, match.start()) + 1, " ".join(match[group].split()), reason)


def _refused_forms(file: _File) -> Iterator[Fault]:
    for pattern, (part, reason) in REFUSED.items():
        if part not in file.text or ("endpoints" in pattern and file.path.parts[0] == "tests"):
            continue
        for match in re.finditer(pattern, file.text):
            yield file.fault(match, reason)


def _unknown_requirements(file: _File) -> Iterator[Fault]:
    """Find security requirements without an anchor, and ids without the word before them."""
    has_name = "security" in file.text.lower()
    named = [range(*match.span()) for match in _SECURITY.finditer(file.text)] if has_name else []
    for match in _BARE_ID.finditer(file.text):
        is_named = any(match.start() in span for span in named)
        if match[1].lower() not in specified(file.root):
            if is_named:
                yield file.fault(match, "has no anchor in docs/specification", 1)
        elif not is_named and not file.path.is_relative_to(SPECIFICATION):
            yield file.fault(match, f'write "security {match[1]}"', 1)
    for match in _NAMED.finditer(file.text) if has_name else ():
        pages = (file.root / SPECIFICATION).glob("security*.md")
        if not any(match[1] in anchors_of(page) for page in pages):
            yield file.fault(match, "is no anchor of docs/specification/security*.md")


def _unknown_decisions(file: _File) -> Iterator[Fault]:
    for match in _DECISIONS.finditer(file.text) if "decision" in file.text.lower() else ():
        if match[2]:
            yield file.fault(match, "list the numbers instead of a range")
        for number in re.findall(r"\d+", match[1]):
            if f"decision-{number}" not in specified(file.root):
                yield file.fault(match, f"decision {number} has no anchor in docs/specification")


def _repeated_ids(file: _File) -> Iterator[Fault]:
    for match in _ANCHOR.finditer(_without_fences(file.text)):
        if _definitions(file.root)[match[1]] > 1:
            yield file.fault(match, "is defined more than once in docs/specification", 1)


def _missing_documents(file: _File) -> Iterator[Fault]:
    if "docs/" not in file.text:
        return
    for match in _ADR.finditer(file.text):
        if not any((file.root / "docs/adr").glob(f"{match[1]}-*.md")):
            yield file.fault(match, "does not exist")
    for match in _PAGE.finditer(file.text):
        if not file.text[: match.start()].endswith("](") and not (file.root / match[0]).is_file():
            yield file.fault(match, "does not exist")


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


def texts_in(root: Path) -> Iterator[tuple[PurePosixPath, str]]:
    """Yield the paths of the project's text files, relative to `root`, with their contents."""
    for directory, directories, names in os.walk(root):
        directories[:] = sorted(name for name in directories if name not in SKIPPED and (name[0] != "." or name in {".ci", ".github"}))
        for file in (Path(directory, name) for name in sorted(names)):
            if file.suffix in KINDS:
                yield PurePosixPath(file.relative_to(root).as_posix()), file.read_text("utf-8")


def main(root: Path) -> int:
    """Print the faults. Return 1 if there are any."""
    count = 0
    for path, text in texts_in(root):
        for fault in faults_in(root, path, text) if str(path) not in EXEMPT else ():
            print(fault)
            count += 1
    print(f"{count} references that do not resolve" if count else "every reference resolves")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
