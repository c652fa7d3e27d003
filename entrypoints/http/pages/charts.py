"""Bar charts and stacked bar charts that the server draws as SVG.

A chart has the same color as the text around it, so it works in light and dark mode. It has no styles, which the
content security policy would refuse. Its horizontal positions are percentages, so that its text keeps its size on
phones. The table beneath a chart has the same numbers.

The parts' colors are CSS classes, which pages have in light and dark mode. A part is also known by its place: the legend and the table have
the parts in this order, and a bar's title lists them. So color is never the only sign.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Final

from markupsafe import Markup, escape

from core.applications.model.analytics import DailyLogins

WIDTH: Final = 100.0  # percent
LEFT: Final = 11.0  # percent, for the grid lines' labels
HEIGHT: Final = 160  # height for the bars, in pixels
LEAST_BAR: Final = 2  # so that a single sign-in beside thousands can be seen
STEPS: Final = (1, 2, 5)  # times a power of ten
BAR_SHARE: Final = 0.8  # share of a day's width; the rest is the gap to the next bar

_SVG: Final = Markup(
    '<svg class="chart" width="100%" height="192" role="img" aria-labelledby="{id}-title {id}-desc">'
    '<title id="{id}-title">{title}</title><desc id="{id}-desc">{description}</desc>'
    '<g transform="translate(0 8)" fill="currentColor" font-size="12">{lines}{bars}'
    '<text x="11%" y="178">{first}</text><text x="100%" y="178" text-anchor="end">{last}</text></g></svg>'
)
_LINE: Final = Markup(
    '<line x1="11%" x2="100%" y1="{y}" y2="{y}" stroke="currentColor" stroke-opacity=".25"/>'
    '<text x="10%" y="{y}" dy="4" text-anchor="end">{label}</text>'
)
_BAR: Final = Markup('<rect x="{x}%" y="{y}" width="{width}%" height="{height}"><title>{label}</title></rect>')


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar in a chart. `x` and `width` are percentages, `y` (its top) and `height` are pixels."""

    x: float
    y: float
    width: float
    height: float
    label: str  # for the tooltip


@dataclass(frozen=True, slots=True)
class GridLine:
    """A horizontal line in a chart with its value."""

    y: float
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A bar chart with its texts for screen readers."""

    title: str
    description: str
    bars: Sequence[Bar]
    lines: Sequence[GridLine]
    first: str  # the label below the first bar
    last: str

    def to_svg(self, id_: str) -> Markup:
        """Return the SVG element. `id_` is unique on the page. All texts are escaped."""
        lines = Markup().join(_LINE.format(y=line.y, label=line.label) for line in self.lines)
        bars = Markup().join(
            _BAR.format(x=bar.x, y=bar.y, width=bar.width, height=bar.height, label=bar.label) for bar in self.bars if bar.height
        )
        texts = {"title": self.title, "description": self.description, "first": self.first, "last": self.last}
        return _SVG.format(id=id_, lines=lines, bars=bars, **texts)


@dataclass(frozen=True, slots=True)
class Grid:
    """A chart's horizontal lines as SVG, and the highest line's value."""

    top: int
    lines: Markup


def draw_grid(highest: int) -> Grid:
    """Return the grid for a chart with this highest value."""
    top, lines = _grid(highest)
    return Grid(top, Markup().join(_LINE.format(y=line.y, label=line.label) for line in lines))


def draw_days(title: str, days: Sequence[DailyLogins]) -> Chart:
    """Return the chart for at least one day, earliest first, with a bar for every day."""
    highest = max(each.count for each in days)
    top, lines = _grid(highest)
    slot = (WIDTH - LEFT) / len(days)
    bars = []
    for number, each in enumerate(days):
        height = max(LEAST_BAR, HEIGHT * each.count / top) if each.count else 0
        x, width = LEFT + number * slot, slot * BAR_SHARE
        bars.append(Bar(round(x, 2), round(HEIGHT - height, 1), round(width, 2), round(height, 1), f"{_day(each.day)}: {each.count:,}"))
    return Chart(title, _describe(days, highest), bars, lines, _day(days[0].day), _day(days[-1].day))


def _grid(highest: int) -> tuple[int, list[GridLine]]:
    """Return the highest line's value, and the lines."""
    step = _grid_step(highest)
    top = max(step, -(-highest // step) * step)
    return top, [GridLine(round(HEIGHT - HEIGHT * value / top, 1), _grid_label(value, top)) for value in range(0, top + 1, step)]


def _describe(days: Sequence[DailyLogins], highest: int) -> str:
    total = sum(each.count for each in days)
    span = f"{_day(days[0].day)} to {_day(days[-1].day)}"
    if not total:
        return f"No sign-ins from {span}."
    busiest = next(each for each in days if each.count == highest)
    return f"{total:,} sign-ins from {span}. The busiest day was {_day(busiest.day)} with {highest:,}."


def _grid_step(highest: int) -> int:
    """Return the distance between the grid lines: a round number, so that there are at most five lines."""
    power = 1
    while True:
        for step in STEPS:
            if step * power * 4 >= highest:
                return step * power
        power *= 10


def _grid_label(value: int, top: int) -> str:
    """Return a grid line's text, which is short enough for phones."""
    if value == 0:
        return "0"
    if top >= 10_000_000:
        return f"{value // 1_000_000:,}M"
    return f"{value // 1000}k" if top >= 10_000 else f"{value:,}"


def _day(day: date) -> str:
    return f"{day.day} {day:%B}"


MOST_SERIES: Final = 6  # a series per color
OTHERS: Final = "All others"
RANGE: Final = " to "  # in a label for several days; the axis has their first and their last day
LONGEST_NAME: Final = 40  # characters in a name with its escapes, in the bars' titles: they repeat it

_STACKED_SVG: Final = Markup(
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
        return _STACKED_SVG.format(
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
