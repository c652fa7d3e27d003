"""What was measured, judged against its bar and its aim, and told as a table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from statistics import median


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement; `also` is what else was seen meanwhile, under how it is told, such as "p99 {} ms"."""

    value: float
    also: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure must reach (the bar) and what it should reach (the aim). A bar alone is a limit, for which less is better."""

    bar: float
    aim: float | None = None
    unit: str = ""  # of the figure; a ratio has none

    @property
    def at_least(self) -> bool:
        """Whether more is better: then the aim lies above the bar."""
        return self.aim is not None and self.aim > self.bar

    def reached(self, figure: float, wanted: float) -> bool:
        return figure >= wanted if self.at_least else figure <= wanted


class Verdict(Enum):
    """How a row came out."""

    AIM = "✓✓ aim reached"
    BAR = "✓ bar passed"
    MISSED = "✗ misses the bar"
    FAILED = "✗ failed"
    ABSENT = "- not measured"


@dataclass(frozen=True, slots=True)
class Result:
    """A row after its rounds. Where the goal has a unit, the figure is the measurement itself, and the raw cost is there to compare."""

    name: str
    what: str
    unit: str
    goal: Goal
    raw: Sequence[Sample] = ()
    ours: Sequence[Sample] = ()
    beside: Mapping[str, Sequence[Sample]] = field(default_factory=dict)  # measured for comparison, judged by nothing
    setting: str = ""
    plans: Sequence[str] = ()  # of the statements behind it
    problem: str = ""  # why there are no figures to judge
    absent: bool = False  # ... and that this is no fault of the service

    @property
    def ratios(self) -> list[float]:
        """Ours to raw, round by round: what disturbs one round mostly disturbs both its halves."""
        return [ours.value / raw.value for raw, ours in zip(self.raw, self.ours, strict=True)] if self.raw else []

    @property
    def figures(self) -> list[float]:
        """What is judged, round by round: the ratios, or the measurements where these have a bar of their own."""
        return self.ratios if self.ratios and not self.goal.unit else values(self.ours)

    @property
    def figure(self) -> float:
        """The median of them."""
        return median(self.figures)

    @property
    def verdict(self) -> Verdict:
        if self.problem:
            return Verdict.ABSENT if self.absent else Verdict.FAILED
        if self.goal.aim is not None and self.goal.reached(self.figure, self.goal.aim):
            return Verdict.AIM
        return Verdict.BAR if self.goal.reached(self.figure, self.goal.bar) else Verdict.MISSED


def values(samples: Iterable[Sample]) -> list[float]:
    return [sample.value for sample in samples]


def number(value: float) -> str:
    """Three significant digits, and never an exponent."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def with_unit(value: float, unit: str) -> str:
    return f"{number(value)}{unit if unit.startswith('/') else f' {unit}'}".rstrip()


def summary(samples: Sequence[Sample], unit: str) -> str:
    """The median of the measurements, and of everything else that was seen with them."""
    told = [with_unit(median(values(samples)), unit)]
    told += [phrase.format(number(median([sample.also[phrase] for sample in samples]))) for phrase in samples[0].also]
    return ", ".join(told)


def table(results: Sequence[Result]) -> str:
    """The table in Markdown."""
    lines = [
        "| row | what | raw | ours | figure (least to most) | bar | aim | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(_cell(text) for text in _cells(result))} |" for result in results]
    return "\n".join(lines)


def details(results: Sequence[Result]) -> str:
    """What else was seen, row by row, in Markdown."""
    lines: list[str] = []
    setting = ""
    for result in results:
        if not result.problem:
            lines += _detail(result, "as before" if setting and result.setting == setting else result.setting)
            setting = result.setting
    return "\n".join(lines)


def plans(results: Sequence[Result]) -> str:
    """The plans of the rows that have some, in Markdown."""
    told = [[f"### {result.name}", *(f"```text\n{plan}\n```" for plan in result.plans)] for result in results if result.plans]
    return "\n\n".join(part for parts in told for part in parts)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|") or "-"


def _cells(result: Result) -> list[str]:
    unit = result.goal.unit
    goal = ["" if wanted is None else with_unit(wanted, unit) for wanted in (result.goal.bar, result.goal.aim)]
    if result.problem:
        return [result.name, result.what, "", "", "", *goal, f"{result.verdict.value}: {result.problem}"]
    raw = with_unit(median(values(result.raw)), result.unit) if result.raw else ""
    ours = with_unit(median(values(result.ours)), result.unit)
    each = result.figures
    figure = with_unit(result.figure, unit)
    if len(each) > 1:
        figure += f" ({number(min(each))} to {number(max(each))})"
    return [result.name, result.what, raw, ours, figure, *goal, result.verdict.value]


def _detail(result: Result, setting: str) -> list[str]:
    lines = [f"- **{result.name}**: {setting}".rstrip()]
    if result.raw:
        lines.append(f"  - raw: {summary(result.raw, result.unit)}")
    compared = f"; {number(median(result.ratios))} of raw" if result.ratios and result.goal.unit else ""
    lines.append(f"  - ours: {summary(result.ours, result.unit)}{compared}")
    for what, samples in result.beside.items():
        line = f"  - for comparison, {what}: {summary(samples, result.unit)}"
        if result.raw:
            ratio = median([beside.value / raw.value for raw, beside in zip(result.raw, samples, strict=True)])
            line += f"; {number(ratio)} of raw"
        lines.append(line)
    return lines
