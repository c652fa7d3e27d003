"""Refuse phrases that readers have to read twice: `python -m ops.checks.language`. Every phrase is printed with its file and line."""

import re
import sys
from pathlib import Path
from typing import Final

from ops.checks.references import texts_in

# A space stands for a gap, which may contain a line break in a comment. Write the noun instead, or the plain word.
PHRASES: Final = r"""
(?:some|any|every)body
who(?:m|se)?(?:so)?ever
whom
by now
meanwhile
any ?more
for good
once more
(?:those|that one|the ones?|they|he|she) who
(?:that|who|which) (?:is|are|was|were) (?:none|no(?! longer))
what (?:it|they|he|she|one) (?:is|are|was|were)
"""
PHRASE: Final = re.compile(rf"(?i)(?<![\w-])(?:{'|'.join(PHRASES.split(chr(10))[1:-1])})\b".replace(" ", r"[\s#*]+"))
EXEMPT: Final = {"LICENSE", "ops/checks/language.py", "tests/ops/test_language_check.py"}


def main(root: Path) -> int:
    """Print the phrases. Return 1 if there are any."""
    count = 0
    for path, text in texts_in(root):
        is_exempt = str(path) in EXEMPT or path.parent.name == "notices"  # licenses from other projects
        for match in () if is_exempt else PHRASE.finditer(text):
            count += 1
            print(f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {' '.join(match[0].split())}")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
