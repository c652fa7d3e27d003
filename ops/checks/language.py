"""Refuse sentences that readers have to read twice: `python -m ops.checks.language`.

It counts three patterns in the docstrings and comments of every top-level folder, and in the pages of `docs` outside
their generated parts, and prints the files with most.
"""

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ops.checks.references import texts_in

POINTERS: Final = r"\b(?:ones?|others?|those|each|both)\b"
# Matches per 1,000 words. Projects that read well have about half. Write compound nouns ("client keys"), and repeat the noun.
LIMITS: Final = {
    r"\bof\s+(?:[\w'`.-]+\s+){1,4}of\b": 0.5,
    r"\bof\b": 25,
    POINTERS: 8,
}
DOCS_LIMITS: Final = LIMITS | {POINTERS: 12}  # with their nouns, rules need these words: "each request", "one transaction"
# What divides the prose of a page: generated parts, code, addresses and tags, and empty lines
_NO_PROSE: Final = re.compile(
    r"<!-- begin generated.*?<!-- end generated[^>]*-->|^ *```.*?^ *```$|\]\([^)]*\)|<[^>]+>|\n\n", re.DOTALL | re.MULTILINE
)


def main(root: Path) -> int:
    """Print every rate above its limit. Return 1 if a rate is above its limit."""
    folders: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for path, text in texts_in(root):
        if path.suffix == ".py":
            folders[path.parts[0]][str(path)] = " | ".join(_sentences(text))
        elif path.suffix == ".md" and path.parts[0] == "docs":
            folders["docs"][str(path)] = _NO_PROSE.sub(" | ", text)
    refused = 0
    for folder, texts in folders.items():
        words = sum(len(re.findall(r"[\w'-]+", text)) for text in texts.values())
        for pattern, limit in (DOCS_LIMITS if folder == "docs" else LIMITS).items():
            counts = {path: len(re.findall(pattern, text, re.IGNORECASE)) for path, text in texts.items()}
            rate = sum(counts.values()) * 1_000 / max(words, 1)
            if rate > limit:
                refused += 1
                worst = sorted(counts, key=counts.__getitem__, reverse=True)[:5]
                print(f"{folder}: {rate:.1f} matches of {pattern} per 1,000 words, at most {limit}. Most: {', '.join(worst)}")
    return int(refused > 0)


def _sentences(code: str) -> Iterator[str]:
    """Return the docstrings and comments in Python code."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("# ")


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
