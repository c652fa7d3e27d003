"""The documentation is complete: every alert has its section, every page is in the navigation, and the README is short."""

import re
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
LONGEST_README: Final = 8 * 1024  # bytes
LARGEST_PICTURE: Final = 100_000


def test_every_alert_has_a_section_that_says_what_to_do() -> None:
    alerts = re.findall(r"^ *- alert: (\w+)$", (ROOT / "ops/prometheus/gatehouse.rules.yml").read_text("utf-8"), re.MULTILINE)
    sections = re.findall(r"^## (Gatehouse\w+)$", (DOCS / "operating/alerts.md").read_text("utf-8"), re.MULTILINE)
    assert len(alerts) >= 11
    assert sections == alerts


def test_the_navigation_lists_every_page_once() -> None:
    groups = tomllib.loads((DOCS / "navigation.toml").read_text("utf-8"))
    pages = [page for group in groups.values() for page in group.values()]
    assert sorted(pages) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_the_readme_is_short_and_shows_the_product() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.encode()) <= LONGEST_README
    [picture] = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    assert (ROOT / picture).read_bytes().startswith(b"\x89PNG")


def test_every_picture_is_light_and_shown_on_a_page() -> None:
    """`./run pictures` takes them."""
    names = set[str]()
    for page in (ROOT / "README.md", *DOCS.rglob("*.md")):
        names |= {(page.parent / name).resolve().name for name in re.findall(r"!\[[^]]+\]\(([^)]+)\)", page.read_text("utf-8"))}
    pictures = {file.name: file.stat().st_size for file in (DOCS / "assets").iterdir()}
    assert names == pictures.keys()
    assert {name: size for name, size in pictures.items() if size > LARGEST_PICTURE} == {}
