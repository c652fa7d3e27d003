"""Every page of the console in a real browser: accessible by the rules of axe-core, and as wide as the window.

With `./run screenshots`, it saves each page in three widths and both color schemes.
"""

import re
from functools import cache
from typing import Final

import pytest
from lxml import html
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from entrypoints.http.base.rendering import assets
from tests.proof.access.pages.opening import opened_pages
from tests.proof.access.world import World
from tests.proof.e2e.browser import Browser

pytestmark = pytest.mark.slow

PIECES: Final = 4  # so that the workers of a test run share the pages
STYLES: Final = re.compile(r'<link rel="stylesheet"[^>]*>')
TELLING: Final = frozenset({"class", "type", "role", "aria-current", "aria-invalid"})  # attributes with values that matter to a shape
SCRIPT: Final = re.compile(r"<script.*?</script>", re.DOTALL)


def standalone(body: str) -> str:
    """Return a page that needs no server: with its styles inside, and without its script."""
    styles = assets.asset(assets.asset_url("console.css").removeprefix("/assets/"))
    assert styles is not None
    inside = f"<style>{styles.body().decode()}</style>"
    return SCRIPT.sub("", STYLES.sub(lambda _: inside, body))


@cache  # all pieces need the shapes of all pages
def shapes(body: str) -> set[int]:
    """Return a number for each shape: the names and attributes of the elements from the root to an element."""
    found: set[int] = set()

    def visit(element: html.HtmlElement, parent: int) -> None:
        if isinstance(element.tag, str):  # not a comment
            attributes = ((name, value if name in TELLING else "") for name, value in element.items())
            shape = hash((parent, element.tag, *sorted(attributes), bool(element.text_content().strip())))
            found.add(shape)
            for child in element:
                visit(child, shape)

    visit(html.document_fromstring(body), 0)
    return found


@pytest.mark.parametrize("piece", range(PIECES))
async def test_no_page_breaks_a_rule_of_axe(app: QuartTrio, pool: Pool, world: World, browser: Browser, piece: int) -> None:
    """Colors depend on shapes, so the dark look is checked once for each shape. So is the page of a form that is shown again."""
    opened = sorted(await opened_pages(app, pool, world), key=lambda page: (page.answer.status >= 400, page.name))
    findings: dict[str, list[str]] = {}
    known: set[int] = set()
    for number, page in enumerate(opened):
        own = shapes(page.answer.text)
        is_new = not own <= known
        known |= own
        if number % PIECES == piece:
            looks = {"light": is_new or page.answer.status < 400, "dark": is_new}
            browser.show(standalone(page.answer.text))
            audited = browser.audit(page.name, [look for look, is_checked in looks.items() if is_checked])
            findings |= {f"{page.name}, {look}": violations for look, violations in audited.items() if violations}
    assert findings == {}
