"""Two revisions of the service, measured by turns: `./run bench --compare REVISION`.

Load, filled databases and installed packages come from the present benchmark. Only the service runs the old revision's code.
"""

import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from ops.bench import service
from ops.bench.processes import MeasurementFailed
from ops.bench.row import Bench, Row, Sample, Say, Shared, new_directory
from ops.bench.service import DATABASE_TIME, WORKER_TIME
from ops.bench.table import number, values, with_unit


@dataclass(slots=True)
class Comparison:
    """A row measured with two revisions. The samples at the same index come from the same round."""

    row: Row
    before: list[Sample] = field(default_factory=list)
    now: list[Sample] = field(default_factory=list)
    problem: str = ""  # the reason if the row has no figures

    def ratios(self, part: str = "") -> list[float]:
        """Return now / before per round, for the measurement or a further value."""
        pairs = [
            (now.also.get(part, 0), before.also.get(part, 0)) if part else (now.value, before.value)
            for before, now in zip(self.before, self.now, strict=True)
        ]
        return [now / before for now, before in pairs if before]


def compare(
    rows: Sequence[Row], revision: str, directory: Path, say: Say, rounds: int, seconds: int, warm_up: int, *, quick: bool
) -> list[Comparison]:
    """Check out the old revision, and measure the rows with it and with the present revision.

    Raises: MeasurementFailed if the revision does not exist.
    """
    sources = {"before": _checkout(revision, directory / "source"), "now": service.ROOT}
    with ExitStack() as stack:
        shared = [
            Shared(new_directory(directory / name), stack.enter_context(ExitStack()), say, quick, source)
            for name, source in sources.items()
        ]
        return [_compare(row, shared, directory, say, rounds if row.repeats else 1, seconds, warm_up) for row in rows]


def _compare(row: Row, shared: Sequence[Shared], directory: Path, say: Say, rounds: int, seconds: int, warm_up: int) -> Comparison:
    """Measure a row with the two revisions by turns."""
    say(f"{row.name}: {row.description}")
    compared = Comparison(row)
    sides = [compared.before, compared.now]
    try:
        with ExitStack() as stack:
            measures = []
            for number_of_side, on in enumerate(shared):
                bench = Bench(row, on, directory / f"{row.name}-{number_of_side}", stack, seconds * rounds)
                measures.append(row.request(bench))
                if row.repeats and warm_up:
                    measures[-1](warm_up)
            for turn in range(rounds):
                for side in (0, 1) if turn % 2 == 0 else (1, 0):
                    sides[side].append(measures[side](seconds))
                before, now = (with_unit(side[-1].value, row.unit) for side in sides)
                say(f"  round {turn + 1} of {rounds}: {before}, then {now}")
    except MeasurementFailed as reason:
        say(f"  {reason}")
        compared.problem = str(reason)
    return compared


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
    for one in comparisons:
        if one.problem:
            lines.append(f"| {one.row.name} | {one.problem} | | | | |")
            continue
        measured = [with_unit(median(values(samples)), one.row.unit) for samples in (one.before, one.now)]
        ratios = [_spread(one.ratios(part)) for part in ("", WORKER_TIME, DATABASE_TIME)]
        lines.append(f"| {' | '.join([one.row.name, *measured, *ratios])} |")
    return "\n".join(lines)


def _spread(ratios: Sequence[float]) -> str:
    return f"{number(median(ratios))} ({number(min(ratios))} to {number(max(ratios))})" if ratios else "-"
