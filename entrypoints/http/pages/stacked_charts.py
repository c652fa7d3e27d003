"""Stacked bar charts that the server draws as SVG, with a table that has the same numbers.

The parts' colors are CSS classes, which pages have in light and dark mode. A part is also known by its place: the legend and the table have
the parts in this order, and a bar's title lists them. So color is never the only sign.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from markupsafe import Markup, escape

from entrypoints.http.pages.charts import BAR_SHARE, HEIGHT, LEAST_BAR, draw_grid

MOST_SERIES: Final = 6  # a series per color
OTHERS: Final = "All others"
RANGE: Final = " to "  # in a label for several days; the axis has their first and their last day
LONGEST_NAME: Final = 40  # characters in a name with its escapes, in the bars' titles: they repeat it

_SVG: Final = Markup(
    '<svg class="chart" width="100%" height="192" role="img" aria-labelledby="{id}-title {id}-desc">'
    '<title id="{id}-title">{title}</title><desc id="{id}-desc">{description}</desc>'
    '<g transform="translate(0 8)" fill="currentColor" font-size="12">{lines}'
    '<svg x="11%" width="89%" height="160" viewBox="0 0 {count} 160" preserveAspectRatio="none">{parts}{slots}</svg>'
    '<text x="11%" y="178">{first}</text><text x="100%" y="178" text-anchor="end">{last}</text></g></svg>'
)
_PART: Final = Markup('<path class="series-{number}" d="{path}"/>')
_SLOT: Final = Markup('<rect class="slot" x="{x}" width="1" height="160"><title>{label}</title></rect>')


@dataclass(frozen=True, slots=True)
class Series:
    """Numbers with a name, a number for every bar."""

    name: str
    counts: Sequence[int]

    @property
    def total(self) -> int:
        return sum(self.counts)

    @property
    def short_name(self) -> str:
        """Return the name, or its beginning if it would make a page large that repeats it."""
        length = len(self.name)
        while len(escape(self.name[:length])) > LONGEST_NAME:
            length -= 1
        return self.name if length == len(self.name) else f"{self.name[:length]}…"


@dataclass(frozen=True, slots=True)
class StackedChart:
    """A chart with its legend and its table. `note` is a sentence beneath the heading, `unit` follows a bar's numbers."""

    id: str
    title: str
    labels: Sequence[str]  # the bars' labels, in the table and in the bars' titles
    series: Sequence[Series]  # from a bar's bottom to its top
    axis: str = "Day (UTC)"  # the labels' unit
    note: str = ""
    unit: str = ""
    columns: Sequence[tuple[str, Sequence[str]]] = ()  # further table columns: head and cells
    has_totals: bool = True  # whether the legend has the sum over all bars

    @property
    def is_empty(self) -> bool:
        return not any(each.total for each in self.series)

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """Return the label and the cells for every bar that is not empty, the latest first."""
        return [
            (
                self.labels[number],
                [f"{each.counts[number]:,}{self.unit}" for each in self.series] + [cells[number] for _, cells in self.columns],
            )
            for number in reversed(range(len(self.labels)))
            if any(each.counts[number] for each in self.series)
        ]

    def to_svg(self) -> Markup:
        """Return the SVG element. All texts are escaped."""
        sums = [sum(each.counts[number] for each in self.series) for number in range(len(self.labels))]
        grid = draw_grid(max(sums, default=0))
        paths: list[list[str]] = [[] for _ in self.series]
        for number in range(len(self.labels)):
            bottom = float(HEIGHT)
            for path, each in zip(paths, self.series, strict=True):
                if not each.counts[number]:
                    continue
                height = min(max(LEAST_BAR, HEIGHT * each.counts[number] / grid.top), bottom)
                bottom -= height
                # A pixel in the background's color separates a part from the next part.
                visible = height - 1 if height > LEAST_BAR else height
                path.append(f"M{number + (1 - BAR_SHARE) / 2:.3g} {bottom + height - visible:.1f}h{BAR_SHARE}v{visible:.1f}h-{BAR_SHARE}z")
        return _SVG.format(
            id=self.id,
            title=self.title,
            description=self._describe(sums),
            lines=grid.lines,
            count=len(self.labels),
            parts=Markup().join(_PART.format(number=number, path=" ".join(path)) for number, path in enumerate(paths, 1) if path),
            slots=Markup().join(_SLOT.format(x=number, label=self._title(number)) for number in range(len(self.labels))),
            first=self.labels[0].partition(RANGE)[0],
            last=self.labels[-1].rpartition(RANGE)[2],
        )

    def _title(self, number: int) -> str:
        """Return the text beside the pointer on a bar: its parts from the top to the bottom."""
        parts = [f"{each.short_name} {each.counts[number]:,}{self.unit}" for each in reversed(self.series) if each.counts[number]]
        return f"{self.labels[number]}: {', '.join(parts) or 'none'}"

    def _describe(self, sums: Sequence[int]) -> str:
        span = f"{self.labels[0]} to {self.labels[-1]}"
        if not any(sums):
            return f"Nothing from {span}."
        highest = max(sums)
        names = ", ".join(each.name for each in self.series)
        most = f"{self.labels[sums.index(highest)]} with {highest:,}{self.unit}"
        return f"Bars from {span}. From the bottom: {names}. The highest bar is {most}."


def limit_series(series: Sequence[Series]) -> list[Series]:
    """Return at most MOST_SERIES series: the first series, and the sum over the remaining series."""
    if len(series) <= MOST_SERIES:
        return list(series)
    first, others = series[: MOST_SERIES - 1], series[MOST_SERIES - 1 :]
    return [*first, Series(OTHERS, [sum(numbers) for numbers in zip(*(each.counts for each in others), strict=True)])]


def sum_groups(chart: StackedChart, groups: Sequence[tuple[str, int]], axis: str) -> StackedChart:
    """Return the chart with a bar for every group: its label, and how many of the original bars it has. `axis` is the labels' unit."""
    series = []
    for each in chart.series:
        counts, start = [], 0
        for _, length in groups:
            counts.append(sum(each.counts[start : start + length]))
            start += length
        series.append(Series(each.name, counts))
    return replace(chart, labels=[label for label, _ in groups], series=series, axis=axis)
