"""The command `./run bench`: measures, prints the table, and writes it to a file."""

import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import click

from ops.bench import machine, service
from ops.bench.compare import Comparing, comparison_table
from ops.bench.processes import MeasurementFailed, RequirementMissing
from ops.bench.row import CORES, WARM_UP, Row, Run
from ops.bench.rows import ROWS
from ops.bench.table import Result, Sample, Verdict, details, number, plans, table, with_unit
from ops.bench.wrk import wrk_version

LATEST = Path(__file__).with_name("latest.md")
IDLE = 0.5  # the highest load average of an idle machine
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
@click.option("--quick", is_flag=True, help="One round of one second with few organizations, to test that the benchmark works.")
@click.option("--output", type=click.Path(path_type=Path), help="File for the table [default: ops/bench/latest.md].")
@click.option("--compare", "revision", help="Measure this revision and the present code by turns, and print their ratio. Writes no file.")
def main(names: Sequence[str], rounds: int, seconds: int, quick: bool, output: Path | None, revision: str | None) -> None:
    """Measure the speed of the service compared with the raw cost of its work.

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
        sys.exit(_compare(rows, revision, rounds, seconds, warm_up, quick=quick))
    started = time.monotonic()
    with _directory() as directory, ExitStack() as stack:
        run = Run(directory, stack, _say, quick=quick)
        results = [_run(row, run, directory / row.name, rounds, seconds, warm_up) for row in rows]
        file_system = machine.file_system(directory)
    elapsed = time.monotonic() - started
    facts = [
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, revision {machine.revision(service.ROOT) or 'unknown'}, in {elapsed:.0f} s",
        f"{rounds} rounds, raw and ours by turns, {seconds} s each after a warm-up of {warm_up} s; figures are medians of the rounds",
        f"{machine.processor()}, {len(os.sched_getaffinity(0))} of {os.cpu_count()} cores used, by wrk too; {machine.memory_gb():.0f} GB; "
        f"load average before the start {number(load_before)}{BUSY if load_before > IDLE else ''}",
        f"{machine.system()}; data on {file_system}, fsync on",
        f"Python {platform.python_version()}, wrk {wrk}, {machine.packages()}",
        f"Argon2 {service.ARGON2_MEMORY_KIB} KiB, {service.ARGON2_TIME_COST} passes, {service.ARGON2_PARALLELISM} lane; "
        f"unless the table says otherwise, {'the PyPI wheel' if service.argon2_in_use() is None else 'built for this processor'}",
        "as deployed: audit, access log (JSON, to a file), metrics and rate limits are on; the factor of the limits is so large that they "
        "refuse no request",
        "a new embedded PostgreSQL for each row, but one for all pages of organizations, one for all rows about end users, and one for all "
        "rows about SCIM users",
    ]
    if output is not None or not quick:
        (output or LATEST).write_text(_document(results, facts))
    sys.stdout.write(f"{table(results)}\n\n{details(results)}\n")
    wrong = {Verdict.FAILED} if quick else {Verdict.FAILED, Verdict.MISSED}
    sys.exit(any(result.verdict in wrong for result in results))


def _compare(rows: Sequence[type[Row]], revision: str, rounds: int, seconds: int, warm_up: int, *, quick: bool) -> bool:
    """Measure both revisions, print the table, and return whether a row failed."""
    try:
        with _directory() as directory, ExitStack() as stack:
            comparing = Comparing(revision, directory, stack, _say, quick=quick)
            comparisons = []
            for row in rows:
                _say(f"{row.name}: {row.description}")
                comparisons.append(comparing.compare(row, rounds, seconds, warm_up))
    except MeasurementFailed as reason:
        raise click.ClickException(str(reason)) from None
    sys.stdout.write(f"{comparison_table(comparisons, revision)}\n")
    return any(row.problem for row in comparisons)


def _run(row_class: type[Row], run: Run, directory: Path, rounds: int, seconds: int, warm_up: int) -> Result:
    """Measure all rounds of one row."""
    directory.mkdir()
    directory.chmod(0o755)
    raw: list[Sample] = []
    ours: list[Sample] = []
    beside: dict[str, list[Sample]] = {}
    explained: Sequence[str] = ()
    problem, absent, setting = "", False, ""
    _say(f"{row_class.name}: {row_class.description}")
    try:
        with ExitStack() as stack:
            row = row_class(directory, stack, run)
            if not row.repeats:
                rounds = 1
            row.prepare(seconds, rounds)
            setting = row.setting
            if row.repeats and warm_up:
                row.raw(warm_up)
                row.ours(warm_up)
            for round_number in range(1, rounds + 1):
                raw_sample = row.raw(seconds)
                ours_sample = row.ours(seconds)
                raw += [raw_sample] if raw_sample else []
                ours.append(ours_sample)
                for what, sample in row.comparisons(seconds).items():
                    beside.setdefault(what, []).append(sample)
                _say(f"  round {round_number} of {rounds}: {_progress(raw_sample, ours_sample, row.unit)}")
            explained = row.plans()
    except MeasurementFailed as reason:
        problem, absent = str(reason), isinstance(reason, RequirementMissing)
        _say(f"  {problem}")
    shutil.rmtree(directory, ignore_errors=True)
    return Result(
        row_class.name, row_class.description, row_class.unit, row_class.goal, raw, ours, beside, setting, explained, problem, absent
    )


def _progress(raw: Sample | None, ours: Sample, unit: str) -> str:
    if raw is None:
        return with_unit(ours.value, unit)
    return f"raw {with_unit(raw.value, unit)}, ours {with_unit(ours.value, unit)}, ratio {number(ours.value / raw.value)}"


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
