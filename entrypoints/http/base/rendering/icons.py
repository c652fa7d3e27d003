"""The pages' icons: Heroicons, as SVG inside the page."""

from functools import cache

from heroicons.jinja import heroicon_outline
from markupsafe import Markup


@cache
def icon(name: str) -> Markup:
    """Return an icon as SVG. It has the same color as the text beside it, which says the same to screen readers."""
    return Markup(heroicon_outline(name, size=20, **{"class": "icon", "focusable": "false"}))  # noqa: S704  (the file of a package)
