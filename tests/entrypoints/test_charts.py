"""Bar charts: their scale, their texts for screen readers, and their SVG."""

import re
from datetime import date, timedelta
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from core.applications.model.analytics import DailyLogins
from entrypoints.http.pages.charts import HEIGHT, LEAST_BAR, LEFT, WIDTH, Chart, draw_days
from tests.tables import table


def draw(*counts: int) -> Chart:
    return draw_days("Sign-ins by day", [DailyLogins(date(2026, 3, 1) + timedelta(days=n), count) for n, count in enumerate(counts)])


@table("counts", [(0,), (1,), (0, 0, 0), (3, 0, 7), (1, 999), (12_345_678, 1), tuple(range(30)), tuple(range(366))])
def test_every_count_has_a_bar_inside_the_chart(counts: tuple[int, ...]) -> None:
    chart = draw(*counts)
    assert len(chart.bars) == len(counts)
    for bar, count in zip(chart.bars, counts, strict=True):
        assert (bar.height == 0) == (count == 0)
        assert bar.y >= 0
        assert bar.y + bar.height == pytest.approx(HEIGHT)
        assert LEFT <= bar.x <= bar.x + bar.width <= WIDTH
        assert bar.label.endswith(f": {count:,}")
    assert all(left.x + left.width < right.x for left, right in pairwise(chart.bars))
    assert 2 <= len(chart.lines) <= 6
    assert (chart.lines[0].y, chart.lines[-1].y) == (HEIGHT, 0)


def test_heights_follow_the_counts_and_small_counts_stay_visible() -> None:
    chart = draw(1, 5_000, 10_000)
    assert [bar.height for bar in chart.bars] == [LEAST_BAR, HEIGHT / 2, HEIGHT]
    assert [line.label for line in chart.lines] == ["0", "5k", "10k"]


@table(
    ("count", "labels"),
    [(0, "0 1"), (3, "0 1 2 3"), (4000, "0 1,000 2,000 3,000 4,000"), (80_000, "0 20k 40k 60k 80k"), (21_000_000, "0 10M 20M 30M")],
)
def test_grid_lines_have_round_and_short_values(count: int, labels: str) -> None:
    assert [line.label for line in draw(count).lines] == labels.split()


def test_the_description_says_what_the_chart_shows() -> None:
    assert draw(0, 0).description == "No sign-ins from 1 March to 2 March."
    assert draw(2, 1_500, 3).description == "1,505 sign-ins from 1 March to 3 March. The busiest day was 2 March with 1,500."


def test_the_svg_is_labeled_and_needs_no_styles() -> None:
    """The content security policy allows no style attributes."""
    svg = draw(3, 0, 7).to_svg("trend")
    root = ElementTree.fromstring(svg)  # noqa: S314  (our own text)
    texts = {element.get("id"): element.text for element in root.iter()}
    assert [texts[name] for name in (root.get("aria-labelledby") or "").split()] == [
        "Sign-ins by day",
        "10 sign-ins from 1 March to 3 March. The busiest day was 3 March with 7.",
    ]
    assert root.get("role") == "img"
    assert len(root.findall(".//rect")) == 2
    assert not re.search(r"style=|<style|#[0-9a-f]{3}|on[a-z]+=", svg)


def test_texts_are_escaped() -> None:
    svg = draw_days("<script>&", [DailyLogins(date(2026, 3, 1), 1)]).to_svg("trend")
    assert "<script" not in svg
    assert "&lt;script&gt;&amp;" in svg
