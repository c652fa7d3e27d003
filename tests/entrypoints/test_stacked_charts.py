"""Stacked charts: their parts, their texts, their colors, and how large they are at most."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from markupsafe import escape

from core.tenancy.model.settings import Color, contrast
from entrypoints.http.base.rendering.assets import HTTP
from entrypoints.http.pages.charts import HEIGHT, LONGEST_NAME, MOST_SERIES, OTHERS, Series, StackedChart, limit_series, sum_groups

CSS = {name: (HTTP / "assets" / name).read_text("utf-8") for name in ("console.css", "pages.css")}


def chart(*series: Series, labels: int = 3) -> StackedChart:
    return StackedChart("chart", "Sign-ins", [f"Day {number}" for number in range(1, labels + 1)], series)


def parts(drawn: StackedChart) -> list[list[tuple[int, float, float]]]:
    """Return the bar, the top and the height of the parts, by series."""
    root = ElementTree.fromstring(drawn.to_svg())  # noqa: S314  (our own text)
    moves = [re.findall(r"M([\d.]+) ([\d.]+)h[\d.]+v([\d.]+)", path.get("d") or "") for path in root.iter("path")]
    return [[(int(float(x)), float(y), float(height)) for x, y, height in each] for each in moves]


def test_parts_stand_on_each_other_and_do_not_leave_the_chart() -> None:
    drawn = parts(chart(Series("a", [0, 50, 100]), Series("b", [100, 50, 0]), Series("c", [0, 1, 1_000])))
    for bar in range(3):
        stack = [(top, height) for of_series in drawn for number, top, height in of_series if number == bar]
        bottom = float(HEIGHT)
        for top, height in stack:
            assert top >= 0
            assert top + height == pytest.approx(bottom, abs=0.2)
            bottom = top - 1 if height > 2 else top  # a line in the background
    assert sum(map(len, drawn)) == 6


def test_the_title_of_a_bar_names_its_parts_as_one_sees_them() -> None:
    root = ElementTree.fromstring(chart(Series("Signed in", [1_200, 0, 0]), Series("Failed", [7, 0, 0])).to_svg())  # noqa: S314
    titles = [title.text for rect in root.iter("rect") for title in rect]
    assert titles == ["Day 1: Failed 7, Signed in 1,200", "Day 2: none", "Day 3: none"]
    texts = {element.get("id"): element.text for element in root.iter()}
    assert [texts[name] for name in (root.get("aria-labelledby") or "").split()] == [
        "Sign-ins",
        "Bars from Day 1 to Day 3. From the bottom: Signed in, Failed. The highest bar is Day 1 with 1,207.",
    ]


def test_the_table_has_the_bars_that_are_not_empty_latest_first() -> None:
    rows = chart(Series("a", [1, 0, 3]), Series("b", [0, 0, 2_000])).rows
    assert rows == [("Day 3", ["3", "2,000"]), ("Day 1", ["1", "0"])]


def test_further_series_and_bars_are_summed() -> None:
    limited = limit_series([Series(str(number), [number, 1]) for number in range(9)])
    assert [(each.name, each.counts) for each in limited[-2:]] == [("4", [4, 1]), (OTHERS, [5 + 6 + 7 + 8, 4])]
    assert len(limited) == MOST_SERIES
    summed = sum_groups(chart(Series("a", [1, 2, 3])), [("First two", 2), ("Last", 1)], "Days")
    assert (summed.labels, summed.series[0].counts, summed.axis) == (["First two", "Last"], [3, 3], "Days")


def test_names_are_escaped_and_short_where_they_repeat() -> None:
    for name in ("<script>alert(1)</script>" + "x" * 90, '"' * 100, "x" * 100):
        series = Series(name, [1] * 30)
        svg = chart(series, labels=30).to_svg()
        assert "<script" not in svg
        assert not re.search(r"style=|<style|on[a-z]+=", svg)
        assert len(escape(series.short_name)) <= LONGEST_NAME + 1
        assert name.startswith(series.short_name.removesuffix("\u2026"))
    assert Series("Web shop", []).short_name == "Web shop"


def test_the_largest_chart_is_small() -> None:
    drawn = chart(*(Series("x" * 100, [999_999] * 31) for _ in range(MOST_SERIES)), labels=31)
    assert len(drawn.to_svg()) < 20_000


def test_parts_have_contrast_to_the_background_and_to_the_next_part() -> None:
    """At least 3:1 (WCAG 1.4.11), in both color schemes."""
    found = re.findall(r"\.series-(\d) \{ --series: (#\w{6}); \}", CSS["console.css"])
    assert [number for number, _ in found] == [str(number) for number in range(1, MOST_SERIES + 1)] * 2
    colors = [Color.parse(color) for _, color in found]
    surfaces = [Color.parse(text) for text in ("#ffffff", "#172024")]
    assert re.findall(r"--surface: (#\w+);", CSS["pages.css"]) == ["#fff", "#172024"]
    for surface, scheme in zip(surfaces, (colors[:MOST_SERIES], colors[MOST_SERIES:]), strict=True):
        assert min(contrast(surface, color) for color in scheme) >= 3
        assert min(contrast(one, other) for one, other in pairwise(scheme)) >= 3
