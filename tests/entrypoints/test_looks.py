"""What the pages draw themselves: icons, initials with their colors, and times as seen from now."""

import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from heroicons import IconDoesNotExist
from hypothesis import given
from hypothesis import strategies as st

from core.kernel.display import format_ago
from core.tenancy.model.settings import TEXT, Color, contrast
from entrypoints.http.base.rendering.assets import HTTP
from entrypoints.http.base.rendering.avatars import HUES, hue, initials
from entrypoints.http.base.rendering.templates import icon
from tests.tables import table

NOW = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
CSS = {name: (HTTP / "assets" / name).read_text("utf-8") for name in ("console.css", "pages.css")}


@table(
    ("name", "letters"),
    [
        ("Ada Lovelace", "AL"),
        ("ada@example.org", "A"),
        ("ada.king.lovelace@example.org", "AL"),
        ("Acme & Sons", "AS"),
        ("Acme @ Home", "AH"),
        ("e\u0301mile zola", "\u00c9Z"),
        ("\u00df", "S"),
        ("\u65e5\u672c", "\u65e5"),
        ("\U0001f600", "?"),
        ("", "?"),
    ],
)
def test_initials_are_those_of_the_first_and_the_last_word(name: str, letters: str) -> None:
    assert initials(name) == letters


@given(st.text())
def test_any_name_has_one_or_two_initials(name: str) -> None:
    assert 1 <= len(initials(name)) <= 2


def test_an_id_keeps_its_color_and_all_colors_are_used() -> None:
    assert hue(UUID(int=7)) == hue(str(UUID(int=7)))
    assert {hue(UUID(int=number)) for number in range(100)} == set(range(HUES))


def test_initials_are_readable_in_both_schemes() -> None:
    colors = re.findall(r"\.hue-(\d) \{ --hue-ground: (#\w{6}); --hue-text: (#\w{6}); \}", CSS["console.css"])
    assert [int(number) for number, *_ in colors] == [*range(HUES), *range(HUES)], "the light scheme, and the dark one"
    for number, ground, text in colors:
        assert contrast(Color.parse(ground), Color.parse(text)) >= TEXT, number


def test_states_are_readable_in_both_schemes() -> None:
    for state in ("good", "wait", "bad"):
        [*texts] = re.findall(rf"--{state}: (#\w{{6}})", CSS["pages.css"])
        [*grounds] = re.findall(rf"--{state}-ground: (#\w{{6}})", CSS["pages.css"])
        assert len(texts) == len(grounds) == 2
        for text, ground in zip(texts, grounds, strict=True):
            assert contrast(Color.parse(text), Color.parse(ground)) >= TEXT, state


def test_an_icon_is_hidden_from_screen_readers_and_has_no_style() -> None:
    assert 'aria-hidden="true"' in icon("users")
    assert "style=" not in icon("users")
    with pytest.raises(IconDoesNotExist):
        icon("no-such-icon")


@table(
    ("seconds", "text"),
    [
        (0, "just now"),
        (59, "just now"),
        (60, "1 minute ago"),
        (3_599, "59 minutes ago"),
        (3_600, "1 hour ago"),
        (86_399, "23 hours ago"),
        (86_400, "1 day ago"),
        (30 * 86_400 - 1, "29 days ago"),
        (30 * 86_400, "2 February 2026"),
        (-59, "just now"),
        (-60, "in 1 minute"),
        (-7 * 86_400, "in 7 days"),
        (-30 * 86_400, "3 April 2026"),
    ],
)
def test_a_time_is_named_as_seen_from_now(seconds: int, text: str) -> None:
    assert format_ago(NOW - timedelta(seconds=seconds), NOW) == text
