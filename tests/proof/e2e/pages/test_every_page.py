"""Every page outside the console in a real browser: accessible by axe-core's rules, as wide as the window, in two color schemes."""

import re

import pytest

from core.tenancy.model.settings import BrandingSettings, Design
from tests.edge.test_pages import OUTSIDE, PAGES, render
from tests.proof.e2e.browser import Browser
from tests.proof.e2e.pages.audits import audit

pytestmark = pytest.mark.slow

BRANDED = Design("Acme & Sons", BrandingSettings(primary_color="#ffb400"))
SCRIPT = re.compile("<script.*?</script>", re.DOTALL)  # one page submits itself


def bodies(name: str) -> dict[str, str]:
    """Return the page with all its notices, and the same page without notices in an organization's design."""
    title = name.removesuffix(".html")
    without_notices = {key: None for key in ("problem", "done") if key in PAGES[name]}
    rendered = {title: render(name), f"{title}-branded": render(name, design=BRANDED, **without_notices)}
    return {title: SCRIPT.sub("", page.body) for title, page in rendered.items()}


def test_no_page_breaks_a_rule_of_axe(browser: Browser) -> None:
    assert audit(browser, {title: body for name in OUTSIDE for title, body in bodies(name).items()}) == {}
