"""Any color gives readable text and buttons in the light and the dark mode (WCAG 2, 1.4.3 and 1.4.11)."""

import re
from itertools import product

import pytest

from core.tenancy.model.settings import BLACK, OUTLINE, TEXT, WHITE, Color, ColorInvalid, ColorScheme, contrast, derive_palette
from tests import ROOT

PAGES = (ROOT / "entrypoints/http/assets/pages.css").read_text("utf-8")
EMAILS = (ROOT / "adapters/email/templates/layout.html").read_text("utf-8")
BACKGROUNDS = {"light": ("#f2f5f6", "#ffffff"), "dark": ("#0e1417", "#172024")}
ALL = [Color(*parts) for parts in product(range(0, 256, 51), repeat=3)]


def test_contrast_follows_wcag() -> None:
    for one, other, expected in [
        ("#000000", "#ffffff", 21.0),
        ("#ffffff", "#ffffff", 1.0),
        ("#777777", "#ffffff", 4.48),
        ("#0000ff", "#ffffff", 8.59),
        ("#ff0000", "#ffffff", 4.0),
    ]:
        assert contrast(Color.parse(one), Color.parse(other)) == pytest.approx(expected, abs=0.01)
        assert contrast(Color.parse(one), Color.parse(other)) == contrast(Color.parse(other), Color.parse(one))


def assert_readable(scheme: ColorScheme, backgrounds: tuple[str, str]) -> None:
    assert contrast(scheme.label, scheme.button) >= TEXT
    assert contrast(scheme.label, scheme.button_hover) >= TEXT
    for background in map(Color.parse, backgrounds):
        assert contrast(scheme.accent, background) >= TEXT
        assert contrast(scheme.accent_hover, background) >= TEXT
        assert contrast(scheme.edge, background) >= OUTLINE


def test_every_color_is_readable_on_every_background_and_every_label_on_its_button() -> None:
    for color in ALL:
        palette = derive_palette(color)
        assert_readable(palette.light, BACKGROUNDS["light"])
        assert_readable(palette.dark, BACKGROUNDS["dark"])
        assert palette.light.button == palette.dark.button == color


def test_a_readable_color_is_not_changed() -> None:
    teal = Color.parse("#0b5d66")
    assert derive_palette(teal).light.accent == teal == derive_palette(teal).light.edge
    assert derive_palette(WHITE).dark.accent == WHITE
    assert derive_palette(BLACK).light.accent == BLACK


def test_a_pale_and_a_dark_button_have_a_visible_edge() -> None:
    pale, dark = Color.parse("#fff6d5"), Color.parse("#101820")
    assert derive_palette(pale).light.edge != pale
    assert derive_palette(dark).dark.edge != dark
    assert derive_palette(pale).light.label == BLACK
    assert derive_palette(dark).dark.label == WHITE


def test_a_color_is_written_in_lower_case_and_anything_else_is_refused() -> None:
    for text in ("#000000", "#0b5d66", "#ffffff"):
        assert str(Color.parse(text)) == str(Color.parse(text.upper())) == text
    for text in ("", "#fff", "0b5d66", "#0b5d6g", "#0b5d66\n", "#\uff10b5d66"):
        with pytest.raises(ColorInvalid):
            Color.parse(text)


def test_the_backgrounds_are_those_of_pages_and_emails() -> None:
    light, _, dark = PAGES.partition("@media (prefers-color-scheme: dark)")
    for css, backgrounds in ((light, BACKGROUNDS["light"]), (dark, BACKGROUNDS["dark"])):
        match = re.search(r"--ground: (#\w+);\s+--surface: (#\w+);", css)
        assert match is not None
        assert [f"#{color[1:] * 2}" if len(color) == 4 else color for color in match.groups()] == list(backgrounds)
    for name, bright, dim in zip(("ground", "card"), BACKGROUNDS["light"], BACKGROUNDS["dark"], strict=True):
        assert f"background:{bright}" in EMAILS
        assert f".{name} {{ background: {dim} !important" in EMAILS
