"""The documentation: the Markdown files below docs/, and the search in them.

The files belong to the release, so whatever is read once is kept. Pages work without scripts.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from entrypoints.http.base.rendering import guides

CONTENT_TYPES: Final[Mapping[str, str]] = {".png": "image/png", ".sh": "text/plain; charset=utf-8"}
MOST_RESULTS: Final = 20
# The groups' weights in search results. Pages about the design and the code come last.
_WEIGHTS: Final[Mapping[str, int]] = {"Start": 10, "Quickstarts": 10, "Guides": 10, "Operating": 5, "Reference": 0}
_MOST_TERMS: Final = 8
_EXCERPT: Final = 240  # characters

_HTML: Final = re.compile(r"<br>|<a id=\"[\w-]+\">|</a>")  # the only HTML that pages may contain
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading below the page title."""

    level: int
    text: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Document:
    """A documentation page."""

    title: str
    html: Markup
    headings: Sequence[Heading]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page from a heading to the next heading, for the search."""

    href: str
    page: str  # the page title
    heading: str
    text: str
    words: str  # all in lower case
    weight: int  # the weight of the page's group


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A section with the words that were searched for."""

    section: Section
    excerpt: str


@cache
def files() -> Mapping[str, Path]:
    """Return the files by their addresses. Only these are served, so a client's input never becomes a file path."""
    return {
        guides.address_of(file.relative_to(guides.FOLDER).as_posix()): file
        for file in sorted(guides.FOLDER.rglob("*"))
        if file.suffix == ".md" or file.suffix in CONTENT_TYPES
    }


def slug(heading: str) -> str:
    """Return the anchor for a heading, which is the same as GitHub's."""
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())


@cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table")


def read_document(file: Path) -> Document:
    """Return the page made from a Markdown file."""
    base = file.relative_to(guides.FOLDER).parent.as_posix()
    tokens = _markdown().parse(file.read_text("utf-8"))
    headings: list[Heading] = []
    for position, token in enumerate(tokens):
        if token.type == "heading_open":
            heading = _heading(token, tokens[position + 1], {each.anchor for each in headings})
            token.attrSet("id", heading.anchor)
            headings.append(heading)
        elif token.type == "th_open" and not tokens[position + 1].content:
            token.tag = tokens[position + 2].tag = "td"  # a table's corner heads nothing
        elif token.type in ("table_open", "fence", "code_block"):
            token.attrSet("tabindex", "0")  # they can scroll, also with the keyboard
        for each in (token, *(token.children or ())):
            _complete(each, base)
    html = Markup(_markdown().renderer.render(tokens, _markdown().options, {}))  # noqa: S704  (a file of this project)
    title = next(heading.text for heading in headings if heading.level == 1)
    return Document(title, html, [heading for heading in headings if heading.level in (2, 3)])


def _heading(token: Token, inline: Token, taken: set[str]) -> Heading:
    text = "".join(each.content for each in inline.children or () if each.type in ("text", "code_inline"))
    anchors = (slug(text) + (f"-{number}" if number else "") for number in range(len(taken) + 1))
    return Heading(int(token.tag[1:]), text, next(anchor for anchor in anchors if anchor not in taken))


def _complete(token: Token, base: str) -> None:
    """Make links absolute, and drop comments. HTML that a page may not contain becomes text."""
    for name in ("href", "src"):
        if isinstance(link := token.attrGet(name), str):
            token.attrSet(name, link_target(link, base))
    if token.type in ("html_block", "html_inline"):
        token.content = _COMMENT.sub("", token.content)
        if not _HTML.fullmatch(token.content.strip()):
            token.type = "text"


def link_target(link: str, base: str) -> str:
    """Return the address that a link leads to, in a file in the folder `base` below docs/."""
    parts = urlsplit(link)
    if parts.scheme or not parts.path:
        return link
    return guides.address_of(posixpath.normpath(posixpath.join(base, parts.path))) + (f"#{parts.fragment}" if parts.fragment else "")


def search(text: str) -> list[SearchResult]:
    """Return the sections that have all words in the text, the best first. A word in a heading counts most. Single letters do not count."""
    terms = [word for word in text.lower().split() if len(word) > 1][:_MOST_TERMS]
    if not terms:
        return []
    matches = [section for section in _sections() if all(term in section.words for term in terms)]
    matches.sort(key=lambda section: -_score(section, terms))  # sections with the same score keep the navigation's order
    return [SearchResult(section, _excerpt(section.text, terms)) for section in matches[:MOST_RESULTS]]


def _score(section: Section, terms: Sequence[str]) -> int:
    heading, page = section.heading.lower(), section.page.lower()
    count = 0
    for term in terms:
        count += 20 * (term in heading) + 10 * (term in page) + min(section.words.count(term), 5)
    # A phrase says more than its words, and a long table has every word.
    return count + 15 * (" ".join(terms) in section.words) - len(section.words) // 1000 + section.weight


def _excerpt(text: str, terms: Sequence[str]) -> str:
    """Return the part of the text around the phrase, or else around the first word found."""
    places = [place for each in (" ".join(terms), *terms) if (place := text.lower().find(each)) >= 0]
    start = text.rfind(" ", 0, max(0, (places or [0])[0] - _EXCERPT // 3)) + 1
    if len(text) <= start + _EXCERPT:
        return f"{'… ' if start else ''}{text[start:]}"
    return f"{'… ' if start else ''}{text[start : text.rfind(' ', start + 1, start + _EXCERPT)]} …"


@cache
def _sections() -> Sequence[Section]:
    return [
        section for group, pages in guides.navigation().items() for address in pages.values() for section in _sections_of(address, group)
    ]


def _sections_of(address: str, group: str) -> Iterator[Section]:
    page = ""
    for part in re.split(r"(?m)^(?=#{1,3} )", _hide_comments_of_code(files()[address].read_text("utf-8"))):
        first, _, rest = part.partition("\n")
        if not first.startswith("#"):
            continue
        heading, text = _plain(first.lstrip("#")), _plain(rest.replace("\0", ""))
        page = page or heading
        href = address if heading == page else f"{address}#{slug(heading)}"
        yield Section(href, page, heading, text, f"{page} {heading} {text}".lower(), _WEIGHTS.get(group, -20))


def _hide_comments_of_code(source: str) -> str:
    """Put a mark before the lines in code blocks, so that none looks like a heading."""
    return re.sub(r"(?ms)^( *)```.*?^\1```", lambda block: block[0].replace("\n#", "\n\0#"), source)


def _plain(source: str) -> str:
    text = _HTML.sub(" ", _LINK.sub(r"\1", _COMMENT.sub("", source)))
    return " ".join(re.sub(r"^ *```\w*|[`*|]|-{3,}|^#+ ", " ", text, flags=re.MULTILINE).split())
