"""Whatever colour an organization chooses, what is written in it and on it can be read, in both schemes (WCAG 2, 1.4.3 and 1.4.11)."""

import re
from itertools import product

import pytest

from core.tenancy.colors import BLACK, OUTLINE, TEXT, WHITE, Color, ColorInvalid, ColorScheme, contrast, derive_palette
from tests import ROOT

PAGES = (ROOT / "entrypoints/http/pages/assets/pages.css").read_text("utf-8")
MAILS = (ROOT / "adapters/email/templates/layout.html").read_text("utf-8")
GROUNDS = {"light": ("#f2f5f6", "#ffffff"), "dark": ("#0e1417", "#172024")}
ALL = [Color(*parts) for parts in product(range(0, 256, 51), repeat=3)]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("#000000", "#ffffff", 21.0),
        ("#ffffff", "#ffffff", 1.0),
        ("#777777", "#ffffff", 4.48),
        ("#0000ff", "#ffffff", 8.59),
        ("#ff0000", "#ffffff", 4.0),
    ],
)
def test_contrast_is_that_of_wcag(one: str, other: str, expected: float) -> None:
    assert contrast(Color.parse(one), Color.parse(other)) == pytest.approx(expected, abs=0.01)
    assert contrast(Color.parse(one), Color.parse(other)) == contrast(Color.parse(other), Color.parse(one))


def check(scheme: ColorScheme, grounds: tuple[str, str]) -> None:
    assert contrast(scheme.label, scheme.button) >= TEXT
    assert contrast(scheme.label, scheme.button_hover) >= TEXT
    for ground in map(Color.parse, grounds):
        assert contrast(scheme.accent, ground) >= TEXT
        assert contrast(scheme.accent_hover, ground) >= TEXT
        assert contrast(scheme.edge, ground) >= OUTLINE


def test_every_colour_can_be_read_on_every_ground_and_every_label_on_its_button() -> None:
    for color in ALL:
        found = derive_palette(color)
        check(found.light, GROUNDS["light"])
        check(found.dark, GROUNDS["dark"])
        assert found.light.button == found.dark.button == color


def test_a_colour_that_can_be_read_stays_as_it_is() -> None:
    teal = Color.parse("#0b5d66")
    assert derive_palette(teal).light.accent == teal == derive_palette(teal).light.edge
    assert derive_palette(WHITE).dark.accent == WHITE
    assert derive_palette(BLACK).light.accent == BLACK


def test_a_pale_and_a_dark_button_stand_out_by_their_edge() -> None:
    assert derive_palette(Color.parse("#fff6d5")).light.edge != Color.parse("#fff6d5")
    assert derive_palette(Color.parse("#101820")).dark.edge != Color.parse("#101820")
    assert derive_palette(Color.parse("#fff6d5")).light.label == BLACK
    assert derive_palette(Color.parse("#101820")).dark.label == WHITE


def test_a_colour_is_written_as_it_is_read() -> None:
    for text in ("#000000", "#0b5d66", "#ffffff"):
        assert str(Color.parse(text)) == str(Color.parse(text.upper())) == text
    for text in ("", "#fff", "0b5d66", "#0b5d6g", "#0b5d66\n", "#\uff10b5d66"):
        with pytest.raises(ColorInvalid):
            Color.parse(text)


def test_these_are_the_grounds_of_pages_and_mails() -> None:
    light, _, dark = PAGES.partition("@media (prefers-color-scheme: dark)")
    for scheme, grounds in ((light, GROUNDS["light"]), (dark, GROUNDS["dark"])):
        found = re.search(r"--ground: (#\w+);\s+--surface: (#\w+);", scheme)
        assert found is not None
        assert [f"#{color[1:] * 2}" if len(color) == 4 else color for color in found.groups()] == list(grounds)
    for name, bright, dim in zip(("ground", "card"), GROUNDS["light"], GROUNDS["dark"], strict=True):
        assert f"background:{bright}" in MAILS
        assert f".{name} {{ background: {dim} !important" in MAILS
