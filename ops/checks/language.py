"""Check that the project's prose is plain English: `python -m ops.checks.language [--show] [PATH ...]`.

The check counts phrases that readers have to read twice, per 1,000 words of prose. Prose is: docstrings, comments, sentences in
string literals, names of tests, templates of pages and emails, and Markdown. Each layer has a bar. Exit code 1 if one is exceeded.

Not counted: code in Markdown (fenced or in backticks), questions that start with "what", and files of other projects.
"""

import argparse
import ast
import io
import os
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

BARS: Final[dict[str, float]] = {"core": 3, "ports": 3, "adapters": 3, "actors": 3, "entrypoints": 3, "docs": 3, "ops": 3, "tests": 8}

# Directories that hold no text of this project. `assets/docs` is the vendored interface description.
SKIPPED_DIRECTORIES: Final = {".git", ".venv", "node_modules", "var", "site", "__pycache__"}
SKIPPED_PARTS: Final = ("assets/docs",)

# Verbs, pronouns and articles that turn "what" into a noun clause: "what it is told" where the noun would be clearer.
_AFTER_WHAT: Final = (
    "is|are|was|were|be|been|being|has|have|had|does|did|do|will|would|can|could|may|might|must|shall|"
    "should|it|its|they|their|he|his|she|her|we|our|you|your|one|i|this|that|these|those|there|such|"
    "other|others|somebody|nobody|anybody|everybody|whoever|belongs|came|comes|counts|else|follows|goes|"
    "holds|lies|looks|makes|made|matters|needs|remains|said|says|sent|stands|stays|waits|went"
)

PHRASES: Final[dict[str, str]] = {
    "somebody": r"(?:some|no|any|every)body(?:'s)?",
    "whoever": r"who(?:m|se)?(?:so)?ever|whosoever|whom|whose",
    "what is": rf"what\s+(?:{_AFTER_WHAT})",
    "by now": r"by\s+now",
    "meanwhile": r"(?:in\s+the\s+)?meanwhile",
    "any more": r"any\s+more|anymore",
    "for good": r"for\s+good",
    "once more": r"once\s+more",
    "of its own": r"of\s+(?:one's|its|their|his|her|my|our|your)\s+own|of\s+(?:ours|theirs|yours|hers|mine)",
    "that there is": r"that\s+there\s+(?:is|are|was|were)",
    "those who": r"(?:those|that\s+one|the\s+ones?|they|he|she)\s+who",
    "who is no": r"(?:who|that|which)\s+(?:is|are|was|were)\s+(?:no|none)",
}
_PHRASE: Final = re.compile(
    r"\b(?:" + "|".join(f"(?P<p{number}>{pattern})" for number, pattern in enumerate(PHRASES.values())) + r")\b", re.IGNORECASE
)
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'\u2019-]*")
_SENTENCE: Final = re.compile(r"[A-Z][a-z]*['\u2019,]?\s+\S+\s+\S+.*[.!?]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Prose:
    """A piece of prose and the line of its file on which it starts. Its line breaks are those of the file."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """One counted phrase."""

    path: PurePosixPath
    line: int
    phrase: str  # a key of PHRASES
    found: str
    context: str


def hits_in(path: PurePosixPath, prose: Prose) -> Iterator[Hit]:
    """Find the counted phrases in one piece of prose."""
    for match in _PHRASE.finditer(prose.text):
        phrase = list(PHRASES)[int((match.lastgroup or "p0")[1:])]
        if phrase == "what is" and _is_question(prose.text, match.start()):
            continue
        line = prose.text.count("\n", 0, match.start())
        context = prose.text.split("\n")[line].strip()
        yield Hit(path, prose.line + line, phrase, " ".join(match[0].split()), context)


def _is_question(text: str, start: int) -> bool:
    """Return whether the clause at `start` begins a sentence and ends with a question mark."""
    before = text[:start].rstrip(" \n#*>-")
    ending = re.search(r"[.!?:](?=\s|$)|\n\s*\n", text[start:])
    return (not before or before[-1] in ".!?:") and ending is not None and ending[0] == "?"


def count_words(text: str) -> int:
    """Return the number of words, names of variables included."""
    return len(_WORD.findall(text))


# Kinds of files


def python_prose(source: str) -> Iterator[Prose]:
    """Yield the docstrings, comments, sentences in string literals and names of tests."""
    tree = ast.parse(source)
    statements: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text)) as constant):
                statements.add(id(constant))
                yield Prose(node.lineno, text)
            case ast.JoinedStr(values=values):
                statements.update(id(value) for value in values)
                literals = [value.value if isinstance(value, ast.Constant) else "x" for value in values]
                yield from _sentence(node.lineno, "".join(str(literal) for literal in literals))
            case ast.Constant(value=str(text)) if id(node) not in statements:
                yield from _sentence(node.lineno, text)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                yield Prose(node.lineno, name.removeprefix("test_").replace("_", " "))
            case _:
                pass
    yield from _comments(source)


def _sentence(line: int, text: str) -> Iterator[Prose]:
    """Yield a string literal that reads like a sentence; SQL, formats and names do not."""
    if _SENTENCE.fullmatch(text.strip()):
        yield Prose(line, text)


def _comments(source: str) -> Iterator[Prose]:
    """Yield the comments. Lines that stand below each other are one piece, because phrases span lines."""
    block: list[str] = []
    first = last = column = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or token.string.startswith("#!"):
            continue
        line, at = token.start
        alone = not token.line[:at].strip()
        text = re.sub(r"noqa(: [A-Z]+\d+)?(, [A-Z]+\d+)*|type: ignore\[[^]]*\]|pragma: no cover", "", token.string.lstrip("#"))
        if block and not (alone and line == last + 1 and at == column):
            yield Prose(first, "\n".join(block))
            block = []
        if not block:
            first = line
        block.append(text)
        last, column = line, at if alone else -1
    if block:
        yield Prose(first, "\n".join(block))


def template_prose(source: str) -> Iterator[Prose]:
    """Yield the text of a template without its tags, and the sentences that are arguments of its macros."""
    text = re.sub(r"<!--|-->|\{#-?|-?#\}", _blank, source)
    text = re.sub(r"(?s)<(style|script)\b.*?</\1>", _blank, text)
    text = re.sub(r"(?s)\{\{.*?\}\}|\{%.*?%\}", _literals, text)
    yield Prose(1, re.sub(r"(?s)<[^>]*>", _blank, text))


def _blank(match: re.Match[str]) -> str:
    return " " + "\n" * match[0].count("\n")


def _literals(match: re.Match[str]) -> str:
    literals: list[str] = [literal for literal in re.findall(r'"([^"]*)"', match[0]) if " " in literal.strip()]
    return " " + " . ".join(literals) + "\n" * (match[0].count("\n") - sum(literal.count("\n") for literal in literals))


def markdown_prose(source: str) -> Iterator[Prose]:
    """Yield the text without code, addresses of links and HTML tags."""
    text = re.sub(r"(?ms)^[ \t]*(```|~~~).*?^[ \t]*\1[ \t]*$", _blank, source)
    text = re.sub(r"`[^`\n]+`", "code", text)
    text = re.sub(r"\]\([^)\s]*\)", "]", text)
    yield Prose(1, re.sub(r"<[^>]*>", _blank, text))


def hash_prose(source: str) -> Iterator[Prose]:
    """Yield the comments of a file in which `#` starts one: shell, YAML, TOML, Dockerfile."""
    yield from _marked_prose(source, r"(?:^|\s)#+\s(.*)$")


def dash_prose(source: str) -> Iterator[Prose]:
    """Yield the comments of a file in which `--` starts one: SQL and Lua."""
    yield from _marked_prose(source, r"--\s(.*)$")


def _marked_prose(source: str, mark: str) -> Iterator[Prose]:
    found = [re.search(mark, line) for line in source.split("\n")]
    yield Prose(1, "\n".join(match[1] if match else "" for match in found))


def style_prose(source: str) -> Iterator[Prose]:
    """Yield the comments of a style sheet."""
    for match in re.finditer(r"(?s)/\*(.*?)\*/", source):
        yield Prose(source.count("\n", 0, match.start()) + 1, match[1])


def reader_for(path: PurePosixPath) -> Callable[[str], Iterator[Prose]] | None:
    """Return the function that yields the prose of this kind of file, or None if the kind has no prose."""
    match path.suffix:
        case ".py":
            return python_prose
        case ".html" | ".txt" if "templates" in path.parts:
            return template_prose
        case ".md":
            return markdown_prose
        case ".sql" | ".lua":
            return dash_prose
        case ".css":
            return style_prose
        case ".yml" | ".yaml" | ".toml" | ".service" | ".sh" | ".conf":
            return hash_prose
        case "" if path.name in {"run", "Dockerfile"}:
            return hash_prose
        case _:
            return None


def layer_of(path: PurePosixPath) -> str:
    """Return the layer that decides the bar: Markdown at the root counts to docs, other files at the root to ops."""
    if path.parts[0] in BARS:
        return path.parts[0]
    return "docs" if path.suffix == ".md" else "ops"


def files_in(root: Path, paths: Sequence[Path]) -> Iterator[PurePosixPath]:
    """Yield the project's files below these paths, relative to `root`."""
    for path in paths:
        if path.is_file():
            yield PurePosixPath(path.relative_to(root).as_posix())
        for directory, directories, names in os.walk(path):
            below = Path(directory).relative_to(root).as_posix()
            directories[:] = sorted(
                name
                for name in directories
                if name not in SKIPPED_DIRECTORIES
                and not (name.startswith(".") and name != ".ci")
                and not f"{below}/{name}".endswith(SKIPPED_PARTS)
            )
            for name in sorted(names):
                yield PurePosixPath(below, name)


# Command


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, and with `--show` each phrase. Return 1 if a layer exceeds its bar."""
    parser = argparse.ArgumentParser(prog="python -m ops.checks.language", description="Count phrases that have to be read twice.")
    parser.add_argument("paths", nargs="*", type=Path, help="files or directories to restrict the check to")
    parser.add_argument("--show", action="store_true", help="print each phrase with its file, line and text")
    parser.add_argument("--by-phrase", action="store_true", help="print how often each kind of phrase occurs")
    options = parser.parse_args(arguments)

    root = next((place for place in (Path.cwd(), *Path.cwd().parents) if (place / "pyproject.toml").exists()), Path.cwd())
    words, phrases, kinds = Counter[str](), Counter[str](), Counter[str]()
    for path in dict.fromkeys(files_in(root, [path.resolve() for path in options.paths] or [root])):
        reader, layer = reader_for(path), layer_of(path)
        if reader is None:
            continue
        try:
            pieces = list(reader((root / path).read_text("utf-8")))
        except (SyntaxError, UnicodeDecodeError, tokenize.TokenError) as error:
            sys.exit(f"{path}: {error}")
        for prose in pieces:
            words[layer] += count_words(prose.text)
            for hit in hits_in(path, prose):
                phrases[layer] += 1
                kinds[hit.phrase] += 1
                if options.show:
                    print(f"{hit.path}:{hit.line}: {hit.found}: {hit.context}")

    if options.by_phrase:
        for phrase, count in kinds.most_common():
            print(f"{phrase:14} {count:6}")
    failed = False
    print(f"{'layer':12} {'words':>8} {'phrases':>8} {'per 1,000':>10} {'bar':>5}")
    for layer, bar in BARS.items():
        if not words[layer]:
            continue
        density = 1000 * phrases[layer] / words[layer]
        failed = failed or density > bar
        print(f"{layer:12} {words[layer]:8} {phrases[layer]:8} {density:10.1f} {bar:5.0f}{'  exceeded' if density > bar else ''}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
