"""The command `./run bench`: measures, prints the table, and writes it to a file."""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

import click

from ops.bench import machine
from ops.bench.compare import compare, comparison_table
from ops.bench.processes import MeasurementFailed, RequirementMissing
from ops.bench.row import CORES, WARM_UP, Bench, Row, Sample, Shared
from ops.bench.rows import ROWS
from ops.bench.table import Result, Verdict, details, number, plans, table, with_unit
from ops.bench.wrk import wrk_version

LATEST = Path(__file__).with_name("latest.md")
IDLE = 0.5  # an idle machine's highest load average
BUSY = ": the machine was busy with other work, so these figures are rough"


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, epilog="Example: ./run bench --row read --seconds 2"
)
@click.option(
    "--row", "names", multiple=True, type=click.Choice([row.name for row in ROWS]), help="Measure only this row. May be repeated."
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 99),
    default=5,
    show_default=True,
    help="Number of rounds. Each measures the raw cost and the service.",
)
@click.option("--seconds", type=click.IntRange(1, 60), default=4, show_default=True, help="Duration of each measurement.")
@click.option("--quick", is_flag=True, help="One short round with few organizations, to test that the benchmark works.")
@click.option("--output", type=click.Path(path_type=Path), help="File for the table [default: ops/bench/latest.md].")
@click.option("--compare", "revision", help="Measure this revision and the present code by turns, and print their ratio. Writes no file.")
def main(names: Sequence[str], rounds: int, seconds: int, quick: bool, output: Path | None, revision: str | None) -> None:
    """Compare the service's speed with the raw cost of its work.

    The exit code is 1 if a row misses its bar, or with --quick if a row fails. The machine should be idle otherwise.
    """
    warm_up = WARM_UP
    if quick:
        rounds, seconds, warm_up = 1, 1, 0
    signal.signal(signal.SIGTERM, _leave)
    try:
        wrk = wrk_version()
    except MeasurementFailed as reason:
        raise click.ClickException(str(reason)) from None
    # The service and the load generator share these cores, so a larger machine gives the same
    # table.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    load_before = os.getloadavg()[0]
    if load_before > IDLE:
        _say(f"The load average is {number(load_before)}{BUSY}.")
    rows = [row for row in ROWS if not names or row.name in names]
    if revision is not None:
        try:
            with _directory() as directory:
                compared = compare(rows, revision, directory, _say, rounds, seconds, warm_up, quick=quick)
        except MeasurementFailed as reason:
            raise click.ClickException(str(reason)) from None
        sys.stdout.write(f"{comparison_table(compared, revision)}\n")
        sys.exit(any(comparison.problem for comparison in compared))
    started = time.monotonic()
    with _directory() as directory, ExitStack() as stack:
        shared = Shared(directory, stack, _say, quick)
        results = [_measure(row, shared, directory / row.name, rounds, seconds, warm_up) for row in rows]
        load = f"{number(load_before)}{BUSY if load_before > IDLE else ''}"
        facts = machine.facts(directory, time.monotonic() - started, rounds, seconds, warm_up, load, wrk)
    if output is not None or not quick:
        (output or LATEST).write_text(_document(results, facts))
    sys.stdout.write(f"{table(results)}\n\n{details(results)}\n")
    wrong = {Verdict.FAILED} if quick else {Verdict.FAILED, Verdict.MISSED}
    sys.exit(any(result.verdict in wrong for result in results))


def _measure(row: Row, shared: Shared, directory: Path, rounds: int, seconds: int, warm_up: int) -> Result:
    _say(f"{row.name}: {row.description}")
    result = Result(row)
    rounds = rounds if row.repeats else 1
    try:
        with ExitStack() as stack:
            bench = Bench(row, shared, directory, stack, seconds * rounds)
            ours = row.request(bench)
            result.setting = bench.setting
            if row.repeats and warm_up:
                _measure_raw(row, bench, warm_up)
                ours(warm_up)
            for number_of_round in range(1, rounds + 1):
                result.raw += _measure_raw(row, bench, seconds)
                result.ours.append(ours(seconds))
                for what, measure in bench.beside.items():
                    result.beside.setdefault(what, []).append(measure(seconds))
                _say(f"  round {number_of_round} of {rounds}: {_progress(result)}")
            result.plans = bench.plans()
    except MeasurementFailed as reason:
        result.problem, result.absent = str(reason), isinstance(reason, RequirementMissing)
        _say(f"  {reason}")
    shutil.rmtree(directory, ignore_errors=True)
    return result


def _measure_raw(row: Row, bench: Bench, seconds: int) -> list[Sample]:
    if row.raw is None:
        return []
    bench.service.settle()
    return [row.raw(bench, seconds)]


def _progress(result: Result) -> str:
    ours = with_unit(result.ours[-1].value, result.row.unit)
    if not result.raw:
        return ours
    return f"raw {with_unit(result.raw[-1].value, result.row.unit)}, ours {ours}, ratio {number(result.ratios[-1])}"


def _document(results: Sequence[Result], facts: Sequence[str]) -> str:
    listed = "\n".join(f"- {fact}" for fact in facts)
    document = f"""# The latest benchmark

Written by `./run bench`. The columns of the table:

- **raw**: the work without the service, such as a bare ASGI app or a bare Argon2 verification. For requests about a large organization or
  service: the same request about a small one. For two workers: one worker.
- **ours**: the work as the service does it, measured in the same run.
- **figure**: ours divided by raw. If the bar has a unit, the figure is ours itself. It is the median of the rounds.
- **bar**: the value that the figure must reach. `./run bench` fails if a figure misses its bar.
- **aim**: the value that the figure should reach. If the aim is above the bar, more is better, otherwise less. A bar without an aim is an
  upper limit.

{table(results)}

{details(results)}

Measured:

{listed}
"""
    if explained := plans(results):
        document += f"""
## Plans

The statements of the rows with an absolute limit, for the large service: EXPLAIN (ANALYZE, BUFFERS), prepared and executed as the
service does.

{explained}
"""
    return document


@contextmanager
def _directory() -> Iterator[Path]:
    """Create a directory for data on a disk, since /tmp may be in memory. PostgreSQL's own user must be able to reach it."""
    with tempfile.TemporaryDirectory(prefix="gatehouse-bench-", dir="/var/tmp", ignore_cleanup_errors=True) as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # runs every block that ends a process


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
