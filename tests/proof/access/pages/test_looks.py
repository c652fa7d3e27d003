"""Every console page in a real browser: accessible by axe-core's rules, and as wide as the window.

With `./run screenshots`, it saves every page in three widths and two color schemes.
"""

import re
from typing import Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from entrypoints.http.base.rendering import assets
from tests.proof.access.pages.opening import opened_pages
from tests.proof.access.world import World
from tests.proof.e2e.browser import Browser
from tests.proof.e2e.pages.audits import audit

pytestmark = pytest.mark.slow

PIECES: Final = 2  # so that a test run's workers share the pages
STYLES: Final = re.compile(r'<link rel="stylesheet"[^>]*>')
SCRIPT: Final = re.compile(r"<script.*?</script>", re.DOTALL)


def standalone(body: str) -> str:
    """Return a page that needs no server: with its styles inside, and without its script."""
    styles = assets.asset(assets.asset_url("console.css").removeprefix("/assets/"))
    assert styles is not None
    inside = f"<style>{styles.body().decode()}</style>"
    return SCRIPT.sub("", STYLES.sub(lambda _: inside, body))


@pytest.mark.parametrize("piece", range(PIECES))
async def test_no_page_breaks_a_rule_of_axe(app: QuartTrio, pool: Pool, world: World, browser: Browser, piece: int) -> None:
    opened = sorted(await opened_pages(app, pool, world), key=lambda page: page.name)
    part = opened[piece * len(opened) // PIECES : (piece + 1) * len(opened) // PIECES]
    assert len({page.name for page in opened}) == len(opened)
    assert audit(browser, {page.name: standalone(page.answer.text) for page in part}) == {}
