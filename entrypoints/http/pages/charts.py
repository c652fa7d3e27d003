"""Bar charts that the server draws as SVG.

A chart has the same color as the text around it, so it works in light and dark mode. It has no styles, which the
content security policy would refuse. Its horizontal positions are percentages, so that its text keeps its size on
phones. The table beneath a chart has the same numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from markupsafe import Markup

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
