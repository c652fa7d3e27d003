"""Two revisions of the service, measured by turns: `./run bench --compare REVISION`.

The load and the filled databases are those of the present benchmark, and so are the installed packages. Only the service runs the code
of the other revision.
"""

import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from ops.bench import service
from ops.bench.processes import MeasurementFailed
from ops.bench.row import Row, Run
from ops.bench.service import DATABASE_TIME, WORKER_TIME
from ops.bench.table import Sample, number, values, with_unit


@dataclass(frozen=True, slots=True)
class Comparison:
    """A row measured with both revisions. The samples at the same index are of the same round."""

    name: str
    unit: str
    before: Sequence[Sample] = ()
    now: Sequence[Sample] = ()
    problem: str = ""  # the reason if the row has no figures

    def ratios(self, part: str = "") -> list[float]:
        """Return now / before of each round: of the measurement, or of one of its further values."""
        pairs = [
            (now.also.get(part, 0), before.also.get(part, 0)) if part else (now.value, before.value)
            for before, now in zip(self.before, self.now, strict=True)
        ]
        return [now / before for now, before in pairs if before]


@dataclass
class _Side:
    """One of the two revisions."""

    row: Row
    samples: list[Sample] = field(default_factory=list)


class Comparing:
    """The comparison of this revision with another one, which is checked out into a directory."""

    def __init__(self, revision: str, directory: Path, stack: ExitStack, say: Callable[[str], None], *, quick: bool) -> None:
        """Check out the revision. Raises: MeasurementFailed if it does not exist."""
        self._directory, self._say = directory, say
        self._runs = [
            Run(_subdirectory(directory, "before"), stack, say, quick=quick, source=_checkout(revision, directory / "source")),
            Run(_subdirectory(directory, "now"), stack, say, quick=quick),
        ]

    def compare(self, row_class: type[Row], rounds: int, seconds: int, warm_up: int) -> Comparison:
        """Measure a row with both revisions by turns."""
        rounds = rounds if row_class.repeats else 1
        try:
            with ExitStack() as stack:
                sides = [
                    _Side(row_class(_subdirectory(self._directory, f"{row_class.name}-{n}"), stack, run))
                    for n, run in enumerate(self._runs)
                ]
                for side in sides:
                    side.row.prepare(seconds, rounds)
                    if row_class.repeats and warm_up:
                        side.row.ours(warm_up)
                for turn in range(rounds):
                    for side in sides if turn % 2 == 0 else reversed(sides):
                        side.samples.append(side.row.ours(seconds))
                    before, now = (side.samples[-1].value for side in sides)
                    unit = row_class.unit
                    self._say(f"  round {turn + 1} of {rounds}: {with_unit(before, unit)}, then {with_unit(now, unit)}")
        except MeasurementFailed as reason:
            self._say(f"  {reason}")
            return Comparison(row_class.name, row_class.unit, problem=str(reason))
        return Comparison(row_class.name, row_class.unit, sides[0].samples, sides[1].samples)


def _subdirectory(parent: Path, name: str) -> Path:
    path = parent / name
    path.mkdir()
    path.chmod(0o755)  # PostgreSQL runs as another user if this process runs as root
    return path


def _checkout(revision: str, directory: Path) -> Path:
    directory.mkdir()
    archive = subprocess.run(["git", "-C", str(service.ROOT), "archive", revision], capture_output=True, check=False)
    if archive.returncode != 0:
        raise MeasurementFailed(f"{revision} is not a revision of this repository: {archive.stderr.decode(errors='replace').strip()}")
    subprocess.run(["tar", "-x", "-C", str(directory)], input=archive.stdout, check=True)
    return directory


def comparison_table(comparisons: Sequence[Comparison], revision: str) -> str:
    """Return the table in Markdown. A ratio is now / before."""
    lines = [
        f"| row | {revision} | now | ratio (least to most) | CPU of the service per request | CPU of PostgreSQL per request |",
        "|---|---|---|---|---|---|",
    ]
    for row in comparisons:
        if row.problem:
            lines.append(f"| {row.name} | {row.problem} | | | | |")
            continue
        measured = [with_unit(median(values(samples)), row.unit) for samples in (row.before, row.now)]
        ratios = [_spread(row.ratios(part)) for part in ("", WORKER_TIME, DATABASE_TIME)]
        lines.append(f"| {' | '.join([row.name, *measured, *ratios])} |")
    return "\n".join(lines)


def _spread(ratios: Sequence[float]) -> str:
    if not ratios:
        return "-"
    return f"{number(median(ratios))} ({number(min(ratios))} to {number(max(ratios))})"
