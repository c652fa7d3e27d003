"""A benchmark's results: verdicts against bars and aims, and the table in Markdown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from statistics import median

from ops.bench.row import Row, Sample


class Verdict(Enum):
    """The verdict on a row."""

    AIM = "✓✓ aim reached"
    BAR = "✓ bar passed"
    MISSED = "✗ misses the bar"
    FAILED = "✗ failed"
    ABSENT = "- not measured"


@dataclass(slots=True)
class Result:
    """A row after its rounds. If the goal has a unit, the figure is the measurement itself, and the raw cost is only shown."""

    row: Row
    raw: list[Sample] = field(default_factory=list)
    ours: list[Sample] = field(default_factory=list)
    beside: dict[str, list[Sample]] = field(default_factory=dict)  # shown for comparison, without a verdict
    setting: str = ""
    plans: Sequence[str] = ()  # its statements' plans
    problem: str = ""  # the reason if the row has no figures
    absent: bool = False  # whether the machine is the reason, and not the service

    @property
    def ratios(self) -> list[float]:
        """The ratio ours / raw per round. A disturbance usually affects both halves of a round."""
        return [ours.value / raw.value for raw, ours in zip(self.raw, self.ours, strict=True)] if self.raw else []

    @property
    def figures(self) -> list[float]:
        """The figures per round: the ratios, or the measurements if the goal has a unit."""
        return self.ratios if self.ratios and not self.row.goal.unit else values(self.ours)

    @property
    def figure(self) -> float:
        """The figures' median."""
        return median(self.figures)

    @property
    def verdict(self) -> Verdict:
        if self.problem:
            return Verdict.ABSENT if self.absent else Verdict.FAILED
        if self.row.goal.aim is not None and self.row.goal.reached(self.figure, self.row.goal.aim):
            return Verdict.AIM
        return Verdict.BAR if self.row.goal.reached(self.figure, self.row.goal.bar) else Verdict.MISSED


def values(samples: Iterable[Sample]) -> list[float]:
    return [sample.value for sample in samples]


def number(value: float) -> str:
    """Format a number with three significant digits and without an exponent."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def with_unit(value: float, unit: str) -> str:
    return f"{number(value)}{unit if unit.startswith('/') else f' {unit}'}".rstrip()


def summary(samples: Sequence[Sample], unit: str) -> str:
    """Return the median measurement, and the medians of its further values."""
    texts = [with_unit(median(values(samples)), unit)]
    texts += [phrase.format(number(median([sample.also[phrase] for sample in samples]))) for phrase in samples[0].also]
    return ", ".join(texts)


def table(results: Sequence[Result]) -> str:
    """Return the table in Markdown."""
    lines = [
        "| row | description | raw | ours | figure (least to most) | bar | aim | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(_cell(text) for text in _cells(result))} |" for result in results]
    return "\n".join(lines)


def details(results: Sequence[Result]) -> str:
    """Return every row's further values in Markdown."""
    lines: list[str] = []
    setting = ""
    for result in results:
        if not result.problem:
            lines += _detail(result, "same as above" if setting and result.setting == setting else result.setting)
            setting = result.setting
    return "\n".join(lines)


def plans(results: Sequence[Result]) -> str:
    """Return the rows' query plans in Markdown."""
    sections = [[f"### {result.row.name}", *(f"```text\n{plan}\n```" for plan in result.plans)] for result in results if result.plans]
    return "\n\n".join(part for parts in sections for part in parts)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|") or "-"


def _cells(result: Result) -> list[str]:
    unit = result.row.goal.unit
    goal = ["" if target is None else with_unit(target, unit) for target in (result.row.goal.bar, result.row.goal.aim)]
    if result.problem:
        return [result.row.name, result.row.description, "", "", "", *goal, f"{result.verdict.value}: {result.problem}"]
    raw = with_unit(median(values(result.raw)), result.row.unit) if result.raw else ""
    ours = with_unit(median(values(result.ours)), result.row.unit)
    each = result.figures
    figure = with_unit(result.figure, unit)
    if len(each) > 1:
        figure += f" ({number(min(each))} to {number(max(each))})"
    return [result.row.name, result.row.description, raw, ours, figure, *goal, result.verdict.value]


def _detail(result: Result, setting: str) -> list[str]:
    lines = [f"- **{result.row.name}**: {setting}".rstrip()]
    if result.raw:
        lines.append(f"  - raw: {summary(result.raw, result.row.unit)}")
    compared = f"; {number(median(result.ratios))} of raw" if result.ratios and result.row.goal.unit else ""
    lines.append(f"  - ours: {summary(result.ours, result.row.unit)}{compared}")
    for what, samples in result.beside.items():
        line = f"  - for comparison, {what}: {summary(samples, result.row.unit)}"
        if result.raw:
            ratio = median([beside.value / raw.value for raw, beside in zip(result.raw, samples, strict=True)])
            line += f"; {number(ratio)} of raw"
        lines.append(line)
    return lines
