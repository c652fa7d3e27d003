"""Check that names in backticks exist: `python -m ops.checks.names`. It reads the product's comments and docstrings."""

import re
import sys
import tokenize
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Final

from ops.checks.references import texts_in

LAYERS: Final = {"core", "ports", "adapters", "actors", "entrypoints", "ops"}
NAME: Final = re.compile(r"(?<!`)`([A-Za-z_][\w./]*)(?:\(\))?`(?!`)")
# A string after such a token is a statement, so it is a docstring.
STARTS: Final = {tokenize.ENCODING, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


def find_stale(root: Path) -> Iterator[str]:
    """Yield every name with a word that stands in no code and no path in the product, after its place."""
    prose, words = list[tuple[str, int, str]](), set[str]()
    for path, text in texts_in(root):
        if path.parts[0] in LAYERS:
            words.update(re.findall(r"\w+", str(path) if path.suffix == ".py" else f"{path} {text}"))
            before = tokenize.ENCODING
            for token in tokenize.generate_tokens(StringIO(text).readline) if path.suffix == ".py" else ():
                if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and before in STARTS):
                    prose.append((str(path), token.start[0], token.string))
                else:
                    words.update(re.findall(r"\w+", token.string))
                before = before if token.type in {tokenize.COMMENT, tokenize.NL} else token.type
    for place, line, text in prose:
        for match in NAME.finditer(text):
            if not words.issuperset(re.findall(r"\w+", match[1])):
                yield f"{place}:{line + text.count(chr(10), 0, match.start())}: {match[1]} does not exist"


if __name__ == "__main__":
    stale = list(find_stale(Path.cwd()))
    print("\n".join(stale or ["every name in backticks exists"]))
    sys.exit(bool(stale))
